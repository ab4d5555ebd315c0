"""Blank lines as KenLM treats them: lmplz and query count each as a sentence, and so does --blank count."""

from __future__ import annotations

import lzma
import shutil
import subprocess

import pytest

from lidstone.ngram.counts import count_text
from lidstone.ngram.formats.arpa import read_arpa
from lidstone.ngram.scoring import Totals, score_lines, score_tokens
from lidstone.ngram.smoothers.modified_kneser_ney import ModifiedKneserNey
from lidstone.text.words import read_batches

pytestmark = pytest.mark.skipif(
    not (shutil.which("lmplz") and shutil.which("query")), reason="KenLM's programs are not on the PATH"
)
ORDER = 3


@pytest.fixture(scope="module")
def wikitext(data_dir, tmp_path_factory):
    """The validation text to train on and the test text, with an ordinary word for <unk>, which lmplz refuses."""
    folder = tmp_path_factory.mktemp("wikitext")
    for name in ("valid", "test"):
        text = lzma.decompress((data_dir / "wikitext-2" / f"wiki.{name}.tokens.xz").read_bytes())
        (folder / name).write_bytes(text.replace(b"<unk>", b"UNKNOWN"))
    command = ["lmplz", "-o", str(ORDER), "-S", "100M", "-T", str(folder)]
    with (folder / "valid").open("rb") as text, (folder / "k.arpa").open("wb") as arpa:
        subprocess.run(command, stdin=text, stdout=arpa, stderr=subprocess.DEVNULL, check=True)
    return folder


def query(folder, *options):
    with (folder / "test").open("rb") as text:
        return subprocess.run(
            ["query", *options, str(folder / "k.arpa")], stdin=text, capture_output=True, check=True
        ).stdout.decode()


def totals(table, folder, blank):
    found = Totals()
    for batch in read_batches(folder / "test", table.vocab, chunk_bytes=1 << 16):
        found.add(Totals.of(score_lines(table, batch.ids, blank)))
    return found


def test_the_perplexity_of_wikitext_is_that_of_kenlm(wikitext):
    printed = dict(line.split(":\t") for line in query(wikitext, "-v", "summary").splitlines())
    expected, tokens = float(printed["Perplexity including OOVs"]), int(printed["Tokens"])
    counts = count_text(wikitext / "valid", ORDER, blank="count")
    for table in (read_arpa(wikitext / "k.arpa"), ModifiedKneserNey().fit(counts)):
        found = totals(table, wikitext, "count")
        assert (found.tokens, found.oov) == (tokens, int(printed["OOVs"]))
        assert found.perplexity == pytest.approx(expected, rel=2e-5)
        assert totals(table, wikitext, "skip").tokens == tokens - 1467  # the blank lines of the test text


def test_every_word_matches_as_long_an_ngram_as_in_kenlm(wikitext):
    table = read_arpa(wikitext / "k.arpa")
    words = [entry for entry in query(wikitext, "-v", "word").replace("\n", "\t").split("\t") if "Total:" not in entry]
    columns = [entry.rsplit("=", 1)[1].split(" ") for entry in words if entry]
    batches = [score_tokens(table, batch.ids, "count") for batch in read_batches(wikitext / "test", table.vocab)]
    assert [length for batch in batches for length in batch.lengths.tolist()] == [
        int(length) for _, length, _ in columns
    ]
