"""Binaries that lidstone writes beside those of `build_binary` from the same ARPA file: the same bytes.

Equal bytes have equal scores, in `query`, in the kenlm module and in any other program that loads them.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.test_kenlm import DIALECTS, REFUSED

import lidstone as ld
from lidstone.errors import InputError
from lidstone.ngram.formats.kenlm import read_trie_sections
from lidstone.text.corpora import embedded_corpus

needs_build = pytest.mark.skipif(not shutil.which("build_binary"), reason="KenLM's build_binary is not on the PATH")
OPTIONS: dict[str, dict[str, Any]] = {
    "probing": {},
    "-p 1.3 probing": {"multiplier": 1.3},
    "-v -p 3.7 probing": {"multiplier": 3.7, "words": False},
    "trie": {"format": "trie"},
    "-a 0 trie": {"format": "trie", "array_bits": 0},
    "-a 3 trie": {"format": "trie", "array_bits": 3},
    "-q 8 trie": {"format": "trie", "bits": 8},
    "-q 1 -b 2 trie": {"format": "trie", "bits": 1, "backoff_bits": 2},
    "-q 12 -b 5 -a 255 trie": {"format": "trie", "bits": 12, "backoff_bits": 5, "array_bits": 255},
}


def random_arpa(seed: int, order: int) -> str:
    """Random n-grams, each with its prefix, some without their suffix; some probabilities and backoffs are 1."""
    draw = np.random.default_rng(seed)
    words = ["<unk>", "<s>", "</s>", *(f"w{number}" for number in range(draw.integers(3, 15)))]
    levels: list[list[str]] = [[str(word) for word in draw.permutation(words)]]
    for _ in range(order - 1):
        histories = [ngram for ngram in levels[-1] if not ngram.endswith("</s>")]
        drawn = [f"{draw.choice(histories)} {draw.choice(words[2:])}" for _ in range(draw.integers(50, 400))]
        kept = [ngram for ngram in drawn if ngram.partition(" ")[2] in levels[-1] or draw.random() < 0.1]
        levels.append(list(dict.fromkeys(kept or drawn[:1])))
    lines = ["\\data\\", *(f"ngram {k}={len(level)}" for k, level in enumerate(levels, start=1))]
    for k, level in enumerate(levels, start=1):
        lines += ["", f"\\{k}-grams:"]
        for ngram in level:
            p = draw.choice(["-0", f"{-draw.exponential():.6g}", f"{-draw.exponential() * 9:.7g}"], p=[0.05, 0.6, 0.35])
            backoff = draw.choice(["", "\t0", "\t-0", f"\t{-draw.exponential():.6g}"], p=[0.2, 0.1, 0.1, 0.6])
            lines.append(f"{p}\t{ngram}{backoff if k < order else ''}")
    return "\n".join([*lines, "", "\\end\\", ""])


def built(arpa: Path, options: str, output: Path) -> bytes | None:
    """What build_binary writes, or None where its hash tables have no room for the n-grams that it inserts."""
    done = subprocess.run(["build_binary", *options.split(), arpa, output], capture_output=True, text=True)
    if "ProbingSizeException" in done.stderr:
        return None
    assert done.returncode == 0, done.stderr
    return output.read_bytes()


def compare(arpa: Path, options: str, folder: Path, **more: Any) -> bool:
    expected = built(arpa, options, folder / "kenlm.bin")
    ld.write_kenlm(arpa, folder / "ours.bin", **OPTIONS[options], **more)
    if expected not in (None, (folder / "ours.bin").read_bytes()):
        assert equal_tries(folder / "kenlm.bin", folder / "ours.bin")
    return expected is not None


def equal_tries(theirs: Path, ours: Path) -> bool:
    """From order 4 on KenLM's tries lack the sign, a flag, of the backoff 0 of some n-grams that it inserted.

    They are histories of other such n-grams, and the last ones of their order. Scores do not depend on that sign.
    """
    pairs = zip(read_trie_sections(theirs)[1], read_trie_sections(ours)[1], strict=True)
    same = all(np.array_equal(a, b) for one, other in pairs for a, b in zip(one.columns, other.columns, strict=True))
    return same and len(read_trie_sections(ours)[1]) > 3


@needs_build
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("order", [2, 3, 5])
def test_random_models_have_the_same_bytes(tmp_path: Path, options: str, order: int) -> None:
    compared = 0
    for seed in range(4):
        (tmp_path / "m.arpa").write_text(random_arpa(seed, order), encoding="utf-8")
        compared += compare(tmp_path / "m.arpa", options, tmp_path)
    assert compared or "-p 1.3" in options  # its tables have little room for inserted n-grams


@needs_build
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name not in REFUSED])
def test_models_by_hand_have_the_same_bytes(tmp_path: Path, options: str, dialect: str) -> None:
    (tmp_path / "m.arpa").write_text(DIALECTS[dialect], encoding="utf-8")
    compare(tmp_path / "m.arpa", options, tmp_path, unknown=-100.0)


@needs_build
@pytest.mark.parametrize("options", OPTIONS)
def test_a_model_of_real_text_has_the_same_bytes(tmp_path: Path, options: str) -> None:
    """Quantised too: the means of thousands of values are added up in KenLM's order."""
    (tmp_path / "text").write_text("\n".join(" ".join(words) for words in embedded_corpus()[:2000]), encoding="utf-8")
    ld.write_arpa(ld.ModifiedKneserNey().fit(ld.count_text(tmp_path / "text", 4)), tmp_path / "m.arpa")
    assert compare(tmp_path / "m.arpa", options, tmp_path)


@pytest.mark.parametrize("options", ["probing", "trie", "-q 12 -b 5 -a 255 trie"])
@pytest.mark.parametrize("has_unk", [True, False])
def test_a_table_written_directly_scores_in_the_kenlm_module(tmp_path: Path, options: str, has_unk: bool) -> None:
    """To seven digits as through its ARPA file; quantised as well as 12 and 5 bits allow."""
    kenlm = pytest.importorskip("kenlm", reason="the kenlm module is not installed")
    words = [f"w{number}" for number in range(9)]
    vocab = ld.Vocabulary.from_words(words) if has_unk else ld.Vocabulary(size=10, eos=0, tokens=("</s>", *words))
    draw = np.random.default_rng(3)
    text = [draw.integers(2 if has_unk else 1, 10, draw.integers(1, 9)).tolist() for _ in range(60)]
    table = ld.WittenBell().fit(ld.count(text, vocab, 3))
    ld.write_arpa(table, tmp_path / "m.arpa")
    ld.write_kenlm(table, tmp_path / "m.bin", **OPTIONS[options], unknown=None if has_unk else -50.0)
    expected, found = kenlm.Model(str(tmp_path / "m.arpa")), kenlm.Model(str(tmp_path / "m.bin"))
    for sentence in ("w1 w2 w3", "w5 w5 w8 w1", "w3"):
        assert found.score(sentence) == pytest.approx(expected.score(sentence), rel=0.05 if "-q" in options else 1e-6)
        assert [n for _, n, _ in found.full_scores(sentence)] == [n for _, n, _ in expected.full_scores(sentence)]
    if not has_unk:
        assert next(found.full_scores("zebra", bos=False))[0] == -50


@pytest.mark.parametrize(
    ("change", "options", "reason"),
    [
        ({}, {"format": "tree"}, "no format 'tree'"),
        ({}, {"bits": 8}, "only tries are quantised"),
        ({}, {"multiplier": 1.0}, "must be above 1"),
        ({}, {"format": "trie", "backoff_bits": 8}, "needs bits"),
        ({}, {"format": "trie", "bits": 26}, "bits must be 1 to 25"),
        ({}, {"format": "trie", "bits": 1}, "backoff_bits must be 2 to 25"),
        ({}, {"format": "trie", "array_bits": 256}, "0 to 255"),
        ({"<unk>": "unk"}, {}, "has no <unk>"),
        ({"-0.9\t</s>": "-inf\t</s>"}, {}, "1-gram with a probability or a backoff of 0"),
        ({"rain on\t-0.3": "rain on\t-inf"}, {}, "2-gram with a probability or a backoff of 0"),
    ],
)
def test_what_kenlm_cannot_express_is_refused(
    tmp_path: Path, change: dict[str, str], options: dict[str, Any], reason: str
) -> None:
    text = DIALECTS["srilm"]
    for old, new in change.items():
        text = text.replace(old, new)
    (tmp_path / "m.arpa").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=reason):
        ld.write_kenlm(tmp_path / "m.arpa", tmp_path / "m.bin", **options)
    assert not (tmp_path / "m.bin").exists()


def test_a_model_of_order_1_is_refused(tmp_path: Path) -> None:
    table = ld.AddLambda(1.0).fit(ld.count([[2, 3]], ld.Vocabulary.from_words(["a", "b"]), 1))
    with pytest.raises(InputError, match="of order 1"):
        ld.write_kenlm(table, tmp_path / "m.bin")
