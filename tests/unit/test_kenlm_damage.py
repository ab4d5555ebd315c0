"""Damaged binaries of KenLM: a clear error, or a model that scores; never a crash, and never a wait without end.

Every file is cut at many places, and bytes are changed at random, in the header most of all. KenLM's format has no
checksums, so a changed number may pass; but whatever loads must score.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import numpy as np
import pytest

import lidstone as ld
from lidstone import kenlm
from lidstone.errors import FileFormatError, LidstoneError
from lidstone.ngram.formats.kenlm import table_of_binary
from lidstone.ngram.scorer.models import scorer_of_arpa, scorer_of_binary, scorer_of_table
from lidstone.ngram.scorer.tries import UNIGRAMS, VOCAB, VOCAB_BUCKETS
from lidstone.text.tokens import hash_words

FILES = Path(__file__).parents[1] / "golden" / "files" / "kenlm"
BINARIES = sorted(path.name for path in FILES.glob("*.bin"))
LINES = ["the cat sees a dog", "green green zebra", "", "</s> <s> the café quietly then runs"]


def loads_and_scores(path: Path) -> bool:
    """Whether the file was taken for a model."""
    try:
        scorer = scorer_of_binary(path)
    except LidstoneError:
        return False
    with contextlib.suppress(FileFormatError):  # a number that is not finite
        found = scorer.score_lines(LINES)
        assert found.words.tolist() == [5, 3, 0, 7]
        for line in LINES:
            scorer.score_words(line)
    if "trie" in path.name:
        with contextlib.suppress(LidstoneError):
            table_of_binary(path).prob([(), [1, 2]])
    return True


@pytest.mark.parametrize("name", BINARIES)
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, name: str) -> None:
    data = (FILES / name).read_bytes()
    path = tmp_path / name
    ends = [*range(0, 160, 3), *range(160, len(data), 41), len(data) - 1]
    for end in ends:
        path.write_bytes(data[:end])
        loads_and_scores(path)
    path.write_bytes(data[: len(data) // 2])
    assert not loads_and_scores(path)
    path.write_bytes(data)
    assert loads_and_scores(path)


@pytest.mark.parametrize("name", BINARIES)
def test_changed_bytes_never_crash(tmp_path: Path, name: str) -> None:
    data = np.frombuffer((FILES / name).read_bytes(), np.uint8)
    path = tmp_path / name
    draw = np.random.default_rng(7)
    refused = 0
    for trial in range(250):
        changed = data.copy()
        size = min(len(data), 170) if trial % 2 else len(data)  # every other time only the header and what follows it
        places = draw.integers(50, size, draw.integers(1, 4))
        changed[places] = draw.choice([0, 1, 127, 128, 255, int(draw.integers(256))], len(places))
        path.write_bytes(changed.tobytes())
        refused += not loads_and_scores(path)
    assert refused > 20


@pytest.mark.parametrize("name", [name for name in BINARIES if "trie" in name])
def test_pointers_of_a_trie_never_lead_out_of_it(tmp_path: Path, name: str) -> None:
    """Every byte of the bigrams and of what is before them, after the header, is set to all ones in turn."""
    data = (FILES / name).read_bytes()
    path = tmp_path / name
    for at in range(120, len(data) // 2, 7):
        path.write_bytes(data[:at] + b"\xff" * 7 + data[at + 7 :])
        loads_and_scores(path)


def test_a_hash_table_without_an_empty_slot_is_searched_once(tmp_path: Path) -> None:
    """Where KenLM would look for ever."""
    data = np.frombuffer((FILES / "probing.bin").read_bytes(), np.uint8).copy()
    scorer = scorer_of_binary(FILES / "probing.bin")
    start = int(scorer.packed.layout[VOCAB]) - scorer.packed.data.ctypes.data
    entries = data[start : start + 12 * int(scorer.packed.layout[VOCAB_BUCKETS])].view([("key", "<u8"), ("id", "<u4")])
    entries["key"][entries["key"] == 0] = 12345
    (tmp_path / "full.bin").write_bytes(data.tobytes())
    full = scorer_of_binary(tmp_path / "full.bin")
    assert full.score("the zebra") == scorer.score("the zebra")


def test_ids_beyond_the_unigrams_are_unknown_words(tmp_path: Path) -> None:
    data = np.frombuffer((FILES / "probing.bin").read_bytes(), np.uint8).copy()
    scorer = scorer_of_binary(FILES / "probing.bin")
    start = int(scorer.packed.layout[VOCAB]) - scorer.packed.data.ctypes.data
    entries = data[start : start + 12 * int(scorer.packed.layout[VOCAB_BUCKETS])].view([("key", "<u8"), ("id", "<u4")])
    place = np.flatnonzero(entries["key"] == hash_words([b"cat"])[0])[0]
    entries["id"][place] = 2**32 - 1
    (tmp_path / "far.bin").write_bytes(data.tobytes())
    far = scorer_of_binary(tmp_path / "far.bin")
    assert far.index("cat") == far.unk != scorer.index("cat")
    assert far.score("the cat") == scorer.score("the zebra")


def word_of_hash_zero() -> bytes:
    """Sixteen printable bytes: the first eight are tried, and MurmurHash64A is solved for the others.

    The last steps of the hash give 0 for 0 only: with h after the first block, x = k * m and x' = x ^ (x >> 47) of the
    second block k, h must be x' * m. As 47 > 32, x = x' ^ (x' >> 47).
    """
    m, low = 0xC6A4A7935BD1E995, 2**64 - 1
    inverse = pow(m, -1, 2**64)
    for number in range(1_000_000):
        first = b"w%07d" % number
        x = int.from_bytes(first, "little") * m & low
        h = (16 * m & low ^ ((x ^ x >> 47) * m & low)) * m & low
        mixed = h * inverse & low
        second = ((mixed ^ mixed >> 47) * inverse & low).to_bytes(8, "little")
        if all(32 < byte < 127 for byte in second):
            return first + second
    raise AssertionError("no word found")


def test_a_word_whose_hash_is_zero_follows_no_unchecked_id(tmp_path: Path) -> None:
    """It is looked for as key 0, and the slots with key 0 are the empty ones, where a sound file has zeros."""
    word = word_of_hash_zero()
    assert hash_words([word, b""]).tolist() == [0, 0]
    sound = scorer_of_binary(FILES / "probing.bin")
    for text in (word, b"", word + b" the cat"):
        assert sound.index(text) == sound.unk
        sound.score(text)
    start = int(sound.packed.layout[VOCAB]) - sound.packed.data.ctypes.data
    data = np.frombuffer((FILES / "probing.bin").read_bytes(), np.uint8).copy()
    entries = data[start : start + 12 * int(sound.packed.layout[VOCAB_BUCKETS])].view([("key", "<u8"), ("id", "<u4")])
    empty = np.flatnonzero(entries["key"] == 0)
    entries["id"][empty] = 7  # where KenLM finds a word that was entered with this hash
    (tmp_path / "near.bin").write_bytes(data.tobytes())
    assert scorer_of_binary(tmp_path / "near.bin").index(word) == 7
    entries["id"][empty] = 2**31
    (tmp_path / "far.bin").write_bytes(data.tobytes())
    assert scorer_of_binary(tmp_path / "far.bin").index(word) == sound.unk


def test_own_scorers_find_a_word_whose_hash_is_zero() -> None:
    word = word_of_hash_zero().decode()
    unigrams = f"-.3 {word} -.2\n-.4 </s>\n-1 <unk>\n-99 <s>\n"
    arpa = f"\\data\\\nngram 1=4\nngram 2=1\n\\1-grams:\n{unigrams}\\2-grams:\n-.1 {word} {word}\n\\end\\\n"
    scorer = scorer_of_arpa(io.BytesIO(arpa.encode()))
    assert word in scorer
    assert "unknown" not in scorer
    assert scorer.score(f"{word} {word}") == pytest.approx(
        -0.3 - 0.1 - 0.2 - 0.4
    )  # the last: backed off after the word
    assert scorer.score_words(word)[0][2] is False
    table = ld.AddLambda(0.5).fit(ld.count_text(io.BytesIO(f"{word} b\n".encode()), order=2))
    assert word in scorer_of_table(table)


def test_an_empty_file_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    for path in (tmp_path / "empty", tmp_path, tmp_path / "absent"):
        with pytest.raises(LidstoneError):
            scorer_of_binary(path)


@pytest.mark.parametrize("name", BINARIES)
@pytest.mark.parametrize("number", [b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f"], ids=["nan", "infinity"])
def test_a_number_that_is_not_finite_is_refused_when_it_is_met(tmp_path: Path, name: str, number: bytes) -> None:
    """log10 p of the unknown word, which is the first unigram; no longer n-gram ends in it."""
    data = (FILES / name).read_bytes()
    layout = scorer_of_binary(FILES / name).packed
    start = int(layout.layout[UNIGRAMS] - layout.data.ctypes.data)
    path = tmp_path / name
    path.write_bytes(data[:start] + number + data[start + 4 :])
    scorer = scorer_of_binary(path)
    assert np.isfinite(scorer.score("the cat"))
    if number == b"\x00\x00\x80\x7f":  # the sign is a flag
        assert scorer.score("zebra") == -np.inf
        return
    model, state = kenlm.Model(path), kenlm.State()
    model.NullContextWrite(state)
    one_word = (lambda word: model.BaseScore(state, word, state), lambda word: model.BaseFullScore(state, word, state))
    whole = (scorer.score, scorer.score_words, model.score, model.perplexity, model.full_scores)
    for score in (*one_word, *whole, lambda text: scorer.score_lines([text])):
        with pytest.raises(FileFormatError, match="not finite"):
            score("zebra")
