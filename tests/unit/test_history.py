"""Every code that finds histories for itself finds those of `text.history`, on one set of adversarial rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.adversarial_rows import ORDERS, TIME, VOCABULARIES, fitted, kernel_nodes, rows

from lidstone.hf.alignment import align_causal, align_decoder
from lidstone.hf.mixture import Mixture
from lidstone.ngram.counts import count
from lidstone.text.history import histories_of, history_after

ROOT = Path(__file__).parents[2]


def known_nodes(name, order, histories):
    """The node of each history's longest suffix that the table has, or -1."""
    trie = fitted(name, order)[0].trie
    suffixes = [[history[i:] for i in range(len(history))] for history in histories]
    return [next((node for one in each if (node := trie.find(list(one))) >= 0), -1) for each in suffixes]


def expected_nodes(name, order, contexts):
    return known_nodes(name, order, [h for row in contexts for h in histories_of(row, VOCABULARIES[name], order)])


def known_rows(name):
    """The rows without unknown tokens, as streams of ids that begin a sentence: `<s>` is eos there."""
    vocab = VOCABULARIES[name]
    return [[vocab.eos if token == vocab.bos else token for token in row] for row in rows(vocab) if min(row) >= 0]


def positions(name, order):
    """(history, word) of each position of the streams whose word can be predicted."""
    vocab, found = VOCABULARIES[name], []
    for row in known_rows(name):
        before = histories_of([vocab.bos, *row], vocab, order)
        found += [(history, word) for history, word in zip(before, row, strict=False) if vocab.events[word]]
    return found


def check_kernels(kernels, name, order):
    contexts = rows(VOCABULARIES[name])
    assert kernel_nodes(kernels, name, order, contexts) == expected_nodes(name, order, contexts)
    one_column = [[row[0]] for row in contexts]  # rows of one position: no neighbour may count
    assert kernel_nodes(kernels, name, order, one_column) == expected_nodes(name, order, one_column)
    assert kernel_nodes(kernels, name, order, [[], []]) == []


def check_cpu(name, order):
    check_kernels("cpu", name, order)


def check_tensors(name, order):
    check_kernels("tensors", name, order)


def check_triton(name, order):
    assert interpreted()[f"{name} {order}"] == expected_nodes(name, order, rows(VOCABULARIES[name]))


@cache
def interpreted():
    command = [sys.executable, "-m", "tests.adversarial_rows"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert found.returncode == 0, found.stderr[-3000:]
    return json.loads(found.stdout)


def check_counting(name, order):
    """Each n-gram of the streams is counted once for every position that has its history."""
    vocab = VOCABULARIES[name]
    streams = [[vocab.eos, *row, vocab.eos] for row in known_rows(name)]  # eos: rows do not see each other
    expected = Counter((*history, word) for history, word in positions(name, order))
    expected[(vocab.bos, vocab.eos)[-order:]] += len(streams)  # the empty sentence before each
    for row in known_rows(name):
        after = history_after([vocab.bos, *row], vocab, order)
        expected[(*after, vocab.eos)] += 1
    counts = count(np.concatenate(streams).astype(np.int32), vocab, order)
    whole = {ngram: times for ngram, times in expected.items() if len(ngram) == order or ngram[0] == vocab.bos}
    assert {ngram: int(counts.counts[counts.trie.find(list(ngram))]) for ngram in whole} == whole


def check_scoring(name, order):
    table, vocab = fitted(name, order)[0], VOCABULARIES[name]
    for row in known_rows(name):
        before = histories_of([vocab.bos, *row], vocab, order)
        pairs = [(history, word) for history, word in zip(before, row, strict=False) if vocab.events[word]]
        expected = [np.log(table.prob([history])[0, word]) for history, word in pairs]
        np.testing.assert_allclose(table.token_logprobs(np.array(row)), expected, rtol=1e-12)


def check_mixture(name, order):
    mixture, vocab = Mixture(None, fitted(name, order)[0]), VOCABULARIES[name]
    for row in known_rows(name):
        found = [tuple(mixture.history(row[:end])) for end in range(TIME + 1)]
        assert found == histories_of([vocab.bos, *row], vocab, order)


def check_alignment(name, order):
    """Labels of a causal model are its histories; a decoder's first input is the sentence start."""
    vocab = VOCABULARIES[name]
    for row in rows(vocab):
        labels = torch.tensor([row])
        found = align_causal(labels).histories[0].tolist()
        assert histories_of(found, vocab, order) == histories_of(row, vocab, order)
        inputs = align_decoder(labels, labels.clamp(min=0), vocab.bos).histories[0].tolist()
        assert histories_of(inputs, vocab, order)[0] == (vocab.bos,)[: order - 1]


CHECKS = {
    "cpu kernels": check_cpu,
    "tensor kernels": check_tensors,
    "counting": check_counting,
    "scoring": check_scoring,
    "mixture": check_mixture,
    "alignment": check_alignment,
}
NO_TRITON = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
TRITON = pytest.param(check_triton, id="triton kernels", marks=[pytest.mark.slow, NO_TRITON])


@pytest.mark.parametrize("name", VOCABULARIES)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("check", [*(pytest.param(check, id=name) for name, check in CHECKS.items()), TRITON])
def test_histories(check, order, name):
    check(name, order)


def test_the_definition_by_hand():
    """0 is padding, 1 ends a sentence, 8 is `<s>`; a masked label is unknown."""
    vocab = VOCABULARIES["pad"]
    assert histories_of([2, 3, 1, 4, 0, 5, -100, 6], vocab, 3) == [
        (2,),
        (2, 3),
        (8,),
        (8, 4),
        (8,),
        (8, 5),
        (),
        (6,),
    ]
    assert histories_of([], vocab, 3) == []
    assert histories_of([8, 2], vocab, 1) == [(), ()]
