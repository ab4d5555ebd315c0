"""The scorer's hash tables and batches, beside obvious twins: a dictionary, and one sentence at a time."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

import lidstone as ld
from lidstone.errors import TextError
from lidstone.jit import kernel
from lidstone.ngram.scorer import build
from lidstone.ngram.scorer.scorer import BATCH, cut_batches, joined
from lidstone.text import hash_tables
from lidstone.text.hash_tables import GROUP, GROUPED, empty_groups, fill


@kernel
def find(table, groups, value, key):
    return hash_tables.find(table, groups, value, GROUPED, key)


@kernel
def find_in_group(begin, value, key):
    return hash_tables.find_in_group(begin, value, key)


@kernel
def group_of(groups, key):
    return hash_tables.group_of(groups, key)


ENTRIES = {"longest": build._LONGEST, "middle": build._MIDDLE}


@pytest.mark.parametrize("kind", ENTRIES)
@pytest.mark.parametrize("crowded", [False, True])
def test_every_key_is_found_and_no_other(kind, crowded):
    """Crowded keys share the upper half, which says where the search begins: groups overflow, around the end too."""
    draw = np.random.default_rng(0)
    keys = np.unique(draw.integers(1, 1 << 63, 1000, dtype=np.uint64))
    if crowded:
        keys = keys & np.uint64(0xFFFFFFFF) | np.uint64(0xFFFFFFFF << 32)
    values = draw.normal(size=len(keys)).astype(np.float32)
    table, addresses = build._joined([build._table(keys, ENTRIES[kind], {"logprob": values})])
    assert addresses[0] % GROUP == 0
    known, groups = dict(zip(keys.tolist(), values.tolist(), strict=True)), len(table) // GROUP
    value = ENTRIES[kind].itemsize
    for key in [*keys.tolist(), *(keys ^ np.uint64(1 << 20)).tolist(), 0]:
        at = find(addresses[0], groups, value, np.uint64(key))
        found = table[at - addresses[0] :][:4].view(np.float32)[0] if at else None
        assert found == known.get(key)


@pytest.mark.parametrize(("each", "value"), [(5, 4), (4, 8)])
def test_a_group_says_whether_keys_have_passed_it(each, value):
    """By brute force: a key has passed the groups between the one where its search begins and its own."""
    keys = np.unique(np.random.default_rng(1).integers(1, 1 << 63, 900, dtype=np.uint64))
    groups = len(keys) // each + 1  # nearly all are full
    table = empty_groups(groups)
    numbers = np.arange(len(keys), dtype=np.uint64)
    fill(table.ctypes.data, groups, value, keys, numbers.ctypes.data)
    lines = table.reshape(groups, 8)
    at = [int(np.flatnonzero((lines[:, :each] == key).any(axis=1))[0]) for key in keys]
    passed = {
        (group_of(groups, key) + k) % groups
        for key, own in zip(keys, at, strict=True)
        for k in range((own - group_of(groups, key)) % groups)
    }
    assert 0 < len(passed) < groups
    for group in range(groups):
        assert find_in_group(table.ctypes.data + group * GROUP, value, np.uint64(1 << 63)) == (0, group in passed)
        assert not find_in_group(table.ctypes.data + group * GROUP, value, lines[group, 0])[1]


def test_groups_cover_the_table():
    assert [group_of(3, np.uint64(half << 32)) for half in (0, 1 << 31, (1 << 32) - 1)] == [0, 1, 2]


def test_batches_hold_every_sentence_once():
    texts = ["", "x" * (3 * BATCH), *["a b"] * 100_000, "é" * BATCH, ""]
    cuts = cut_batches(texts)
    assert len(cuts) > 4 and cuts[0][0] == 0 and cuts[-1][1] == len(texts)
    assert all(one[1] == other[0] and one[0] < one[1] for one, other in itertools.pairwise(cuts))


@pytest.mark.parametrize("texts", [["a", "é b", ""], ["a\nb", "c"], [b"\xff\n", "a"], [""]])
def test_joined_lines_are_the_sentences_with_spaces_for_line_feeds(texts):
    lines = [text if isinstance(text, bytes) else text.encode() for text in texts]
    assert joined(texts, 0)[:-8].split(b"\n") == [line.replace(b"\n", b" ") for line in lines]


@pytest.mark.parametrize("wrong", ["\ud800", 3, None])
def test_what_is_no_text_is_named_by_its_number(wrong):
    with pytest.raises(TextError, match="line 12 of the list"):
        joined(["a", wrong], 10)


@pytest.mark.slow
def test_n_grams_with_very_many_children(tmp_path):
    """Where a key has no room for their number they are looked for again: here from three on, usually of millions."""
    sentences = [f"{a} {b} {c}" for a in "abcdef" for b in "abc" for c in "ab"] * 2 + ["a b", "c"]
    (tmp_path / "text").write_text("\n".join(sentences))
    ld.write_kenlm(ld.WittenBell().fit(ld.count_text(tmp_path / "text", 4)), tmp_path / "m.trie", "trie")
    code = (
        "import sys, numpy as np\n"
        "from lidstone.ngram.scorer import tries\n"
        "if sys.argv[1] == 'few': tries._MANY = np.uint64(3)\n"
        "from lidstone.ngram.scorer.models import load_scorer\n"
        "scorer = load_scorer('m.trie')\n"
        "print(scorer.score_lines(open('text').read().split('\\n')).single.tolist(), scorer.score_words('f c b a'))\n"
    )
    found = [
        subprocess.run([sys.executable, "-c", code, how], cwd=tmp_path, capture_output=True, text=True, check=True,
                       env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / how)}).stdout
        for how in ("few", "many")
    ]  # fmt: skip
    assert found[0] == found[1] != ""
