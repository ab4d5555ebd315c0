"""The IWSLT-14 files that everyone trains on, reproduced from their codes."""

import pytest

from lidstone.text.bpe import BPE
from lidstone.text.reader import read_lines

# lines and pieces: the validation and test rows of the data table of Malagutti et al. 2024
SIZES = {"valid.de": 175_309, "valid.en": 171_339, "test.de": 155_088, "test.en": 150_178}


@pytest.mark.parametrize("name", SIZES)
def test_codes_reproduce_the_published_segmentation(data_dir, name):
    part, language = name.split(".")
    folder = data_dir / "iwslt14-de-en"
    plain = list(read_lines(folder / f"{name}.xz"))
    expected = list(read_lines(folder / f"{part}.bpe.{language}.xz"))
    bpe = BPE.load(folder / "bpe.codes.xz")

    encoded = bpe.encode_lines(plain)

    assert [" ".join(pieces) for pieces in encoded] == expected
    assert sum(map(len, encoded)) == SIZES[name]
    assert len(encoded) == {"valid": 7283, "test": 6750}[part]
    assert [bpe.decode(pieces) for pieces in encoded] == plain
