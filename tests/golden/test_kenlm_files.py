"""Binaries of every kind that KenLM writes, kept as files, with the scores that KenLM gives (files/kenlm/README.md)."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lidstone as ld
import lidstone.kenlm as kenlm
from lidstone.errors import FileFormatError, InputError
from lidstone.ngram.formats.kenlm import table_of_binary
from lidstone.ngram.scorer.models import scorer_of_binary
from lidstone.text.corpora import embedded_corpus

FILES = Path(__file__).parent / "files" / "kenlm"
EXPECTED = json.loads((FILES / "scores.json").read_text(encoding="utf-8"))
SENTENCES = EXPECTED["sentences"]
MODELS = sorted(EXPECTED["files"])
TRIES = ["array-trie.bin", "quant-array-trie.bin", "quant-trie.bin", "trie.bin"]
ROWLESS = ["probing.bin", "rest-probing.bin", "wordless-trie.bin"]


@pytest.mark.parametrize("name", MODELS)
def test_words_score_as_in_kenlm(name: str) -> None:
    model = kenlm.Model(FILES / name)
    assert model.order == 4
    for sentence, expected in zip(SENTENCES, EXPECTED["files"][name], strict=True):
        found = list(model.full_scores(sentence))
        assert [(length, oov) for _, length, oov in found] == [(length, bool(oov)) for _, length, oov in expected]
        np.testing.assert_allclose([p for p, _, _ in found], [p for p, _, _ in expected], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_sentences_and_lines_score_as_the_sum_of_their_words(name: str) -> None:
    model = kenlm.Model(FILES / name)
    sums = [sum(p for p, _, _ in words) for words in EXPECTED["files"][name]]
    np.testing.assert_allclose([model.score(sentence) for sentence in SENTENCES], sums, rtol=1e-6)
    assert model.score_lines(SENTENCES).tolist() == [model.score(sentence) for sentence in SENTENCES]


@pytest.mark.parametrize("name", TRIES)
def test_a_trie_is_a_table_with_the_same_scores(name: str) -> None:
    table = table_of_binary(FILES / name)
    assert table.order == 4 and table.signature["smoother"] == "kenlm"
    for sentence, expected in zip(SENTENCES, EXPECTED["files"][name], strict=True):
        if "s>" not in sentence:  # a table predicts no <s>, and begins anew after </s>
            ids = np.append(table.vocab.encode(sentence.split()), table.vocab.eos)
            found = table.token_logprobs(ids) / np.log(10)
            np.testing.assert_allclose(found, [p for p, _, _ in expected], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["array-trie.bin", "trie.bin"])
def test_a_trie_has_the_rows_of_its_arpa_file(name: str) -> None:
    """The values of the file are float32 of the same seven digits; the ids differ."""
    ours, arpa = table_of_binary(FILES / name), ld.read_arpa(FILES / "model.arpa")
    order = ours.vocab.encode(arpa.vocab.tokens)
    for history in ("", "the", "the cat", "green green", "a dog sees"):
        words = history.split()
        row = ours.prob([ours.vocab.encode(words).tolist()])[0]
        np.testing.assert_allclose(row[order], arpa.prob([arpa.vocab.encode(words).tolist()])[0], rtol=2e-6)


def test_load_reads_a_trie_and_the_command_line_scores_with_it(tmp_path: Path) -> None:
    """The perplexity that KenLM's query prints for these lines: 10^(-sum / tokens)."""
    table = ld.load(FILES / "trie.bin")
    assert isinstance(table, ld.BackoffTable)
    chosen = [i for i, sentence in enumerate(SENTENCES) if sentence and "s>" not in sentence]
    (tmp_path / "text").write_text("\n".join(SENTENCES[i] for i in chosen), encoding="utf-8")
    command = [sys.executable, "-m", "lidstone", "score", str(FILES / "trie.bin"), str(tmp_path / "text"), "--json"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    scores = [p for i in chosen for p, _, _ in EXPECTED["files"]["trie.bin"][i]]
    assert json.loads(printed)["perplexity"] == pytest.approx(10 ** -np.mean(scores), rel=1e-6)


def test_a_compressed_binary_is_named(tmp_path: Path) -> None:
    (tmp_path / "trie.bin.gz").write_bytes(gzip.compress((FILES / "trie.bin").read_bytes()))
    with pytest.raises(FileFormatError, match="compressed"):
        ld.load(tmp_path / "trie.bin.gz")


@pytest.mark.parametrize("name", ROWLESS)
def test_what_cannot_give_rows_says_so(name: str) -> None:
    with pytest.raises(InputError, match="cannot give rows" if "probing" in name else "without its words"):
        table_of_binary(FILES / name)
    with pytest.raises(InputError):
        _ = kenlm.Model(FILES / name).table


@pytest.mark.skipif(not shutil.which("query"), reason="KenLM's query is not on the PATH")
@pytest.mark.parametrize("name", MODELS)
def test_query_gives_the_kept_scores(name: str) -> None:
    """The kept scores are KenLM's, not ours: `word=id length log10` for each word."""
    plain = [i for i, sentence in enumerate(SENTENCES) if "s>" not in sentence]
    text = "".join(f"{SENTENCES[i]}\n" for i in plain)
    printed = subprocess.run(
        ["query", "-v", "word", FILES / name], input=text, capture_output=True, text=True, check=True
    )
    found = [field.split(" ") for field in re.findall(r"[^\t\n]+=\d+ \d+ \S+", printed.stdout)]
    expected = [word for i in plain for word in EXPECTED["files"][name][i]]
    assert [int(length) for _, length, _ in found] == [length for _, length, _ in expected]
    np.testing.assert_allclose([float(p) for *_, p in found], [p for p, _, _ in expected], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("probing.bin", {}),
        ("trie.bin", {"format": "trie"}),
        ("wordless-trie.bin", {"format": "trie", "words": False}),
        ("array-trie.bin", {"format": "trie", "array_bits": 255}),
        ("quant-trie.bin", {"format": "trie", "bits": 4, "backoff_bits": 3}),
        ("quant-array-trie.bin", {"format": "trie", "bits": 5, "backoff_bits": 4, "array_bits": 255}),
    ],
)
def test_a_written_binary_has_the_bytes_that_build_binary_wrote(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    ld.write_kenlm(FILES / "model.arpa", tmp_path / name, **options)
    assert (tmp_path / name).read_bytes() == (FILES / name).read_bytes()


def test_convert_writes_binaries(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lidstone", "convert", FILES / "model.arpa"]
    for name, options in (("trie.bin", "--kenlm trie"), ("quant-array-trie.trie", "-q 5 -b 4 -a 255")):
        subprocess.run([*command, tmp_path / name, *options.split()], check=True, capture_output=True)
        assert (tmp_path / name).read_bytes() == (FILES / name.replace(".trie", ".bin")).read_bytes()
    failed = subprocess.run([*command, tmp_path / "m.table", "-q", "8"], capture_output=True, text=True)
    assert failed.returncode == 1 and "hint: name the output" in failed.stderr


@pytest.mark.parametrize("name", [name for name in MODELS if name.endswith(".bin")])
def test_a_binary_is_opened_without_reading_it(tmp_path: Path, name: str) -> None:
    """A hole of a terabyte follows it: reading that would take minutes, and decoding it more memory than there is."""
    (tmp_path / name).write_bytes((FILES / name).read_bytes())
    os.truncate(tmp_path / name, 1 << 40)
    expected = [p for p, _, _ in EXPECTED["files"][name][0]]
    found = [p for p, _, _ in kenlm.Model(tmp_path / name).full_scores(SENTENCES[0])]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.skipif(not shutil.which("build_binary"), reason="KenLM's build_binary is not on the PATH")
@pytest.mark.parametrize("options", ["-q 8 trie", "-q 12 -b 3 -a 2 trie", "-a 255 trie", "trie", "-p 3.7 probing"])
@pytest.mark.parametrize("missing_unk", [False, True])
def test_models_of_real_text_built_now(tmp_path: Path, options: str, missing_unk: bool) -> None:
    """A few thousand n-grams of English, with and without <unk>; the kenlm module is the judge."""
    judge = pytest.importorskip("kenlm")
    arpa, binary = tmp_path / "m.arpa", tmp_path / "m.bin"
    sentences = [" ".join(words) for words in embedded_corpus()[:500]]
    (tmp_path / "text").write_text("\n".join(sentences[:400]), encoding="utf-8")
    ld.write_arpa(ld.WittenBell().fit(ld.count_text(tmp_path / "text", 3)), arpa)
    if missing_unk:
        _remove_unk(arpa)
    subprocess.run(["build_binary", *options.split(), arpa, binary], capture_output=True, check=True)
    expected, found = judge.Model(str(binary)), scorer_of_binary(binary)
    for sentence in sentences[350:500]:
        assert found.score_words(sentence) == list(expected.full_scores(sentence))


def _remove_unk(arpa: Path) -> None:
    text = arpa.read_text(encoding="utf-8")
    count = int(text.split("ngram 1=")[1].split("\n")[0])
    lines = [line for line in text.split("\n") if "\t<unk>" not in line]
    arpa.write_text("\n".join(lines).replace(f"ngram 1={count}", f"ngram 1={count - 1}"), encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({49: b"4"}, "version 4 of the format"),
        ({60: b"\0\0\0\0"}, "another byte order"),
        ({33: b" incomplete"}, "did not finish"),
        ({88: b"\x01"}, "order 1"),
        ({88: b"\x0a"}, "order 10"),
        ({96: b"\x09"}, "kind 9"),
        ({104: b"\x07"}, "version 7"),
        ({108: b"\xff" * 8}, "cannot hold"),
    ],
)
@pytest.mark.parametrize("name", ["trie.bin", "probing.bin"])
def test_other_versions_and_machines_are_named(
    tmp_path: Path, name: str, change: dict[int, bytes], message: str
) -> None:
    data = bytearray((FILES / name).read_bytes())
    for at, new in change.items():
        data[at : at + len(new)] = new
    (tmp_path / "changed").write_bytes(data)
    with pytest.raises(FileFormatError, match=message):
        scorer_of_binary(tmp_path / "changed")
