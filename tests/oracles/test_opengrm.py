"""Smoothers, pruning and mixing against the models that OpenGrm NGram keeps for its own tests.

They are not part of this project. OPENGRM_TESTDATA names the folder `src/test/testdata` of OpenGrm's sources (1.3.6).
"""

from __future__ import annotations

import io
import math
import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import lidstone as ld
from lidstone.ngram.counts import Counts
from lidstone.ngram.table import BackoffTable

FOLDER = Path(os.environ.get("OPENGRM_TESTDATA", "."))
pytestmark = pytest.mark.skipif(
    not (FOLDER / "earnest.arpa").is_file(), reason="OPENGRM_TESTDATA does not name the test data of OpenGrm"
)
Ngram = tuple[str, ...]


@dataclass(frozen=True)
class Model:
    """Natural logs of p and of backoffs, by n-gram."""

    probs: dict[Ngram, float]
    backoffs: dict[Ngram, float]


@cache
def opengrm(name: str) -> Model:
    """Read a model from OpenFst's text: arcs are n-grams, arcs without a word back off, final weights are `</s>`."""
    arcs: dict[int, list[tuple[str, int, float]]] = {}
    below: dict[int, tuple[int, float]] = {}
    final: dict[int, float] = {}
    lines = [line.split("\t") for line in (FOLDER / f"{name}.txt").read_text().splitlines()]
    for source, *rest in lines:
        if len(rest) < 3:
            final[int(source)] = float(rest[0]) if rest else 0.0
        elif rest[1] == "<epsilon>":
            below[int(source)] = int(rest[0]), _weight(rest)
        else:
            arcs.setdefault(int(source), []).append((rest[1], int(rest[0]), _weight(rest)))
    contexts = _contexts(arcs, below, start=int(lines[0][0]))
    probs = {contexts[state] + (word,): -cost for state, many in arcs.items() for word, _, cost in many}
    probs |= {contexts[state] + ("</s>",): -cost for state, cost in final.items()}
    return Model(probs, {contexts[state]: -cost for state, (_, cost) in below.items()})


def _weight(rest: list[str]) -> float:
    return float(rest[3]) if len(rest) > 3 else 0.0  # OpenFst leaves zero out


def _contexts(arcs: dict, below: dict, start: int) -> dict[int, Ngram]:
    """The words that each state stands for: one more than the state it backs off to."""

    def length(state: int) -> int:
        return length(below[state][0]) + 1 if state in below else 0

    unigrams = next(state for state in arcs if state not in below)
    contexts: dict[int, Ngram] = {unigrams: (), start: ("<s>",)}
    waiting = [unigrams, start]
    while waiting:
        state = waiting.pop()
        for word, target, _ in arcs.get(state, []):
            if target not in contexts and length(target) == length(state) + 1:
                contexts[target] = contexts[state] + (word,)
                waiting.append(target)
    return contexts


def table_of(model: Model) -> BackoffTable:
    """OpenGrm's model as a table, through ARPA."""
    order = max(map(len, model.probs))
    levels = [[ngram for ngram in model.probs if len(ngram) == k] for k in range(1, order + 1)]
    sizes = [len(level) + (k == 0) for k, level in enumerate(levels)]
    text = ["\\data\\", *(f"ngram {k}={size}" for k, size in enumerate(sizes, start=1))]
    for k, level in enumerate(levels, start=1):
        text.append(f"\\{k}-grams:")
        if k == 1:
            text.append(f"-99\t<s>\t{model.backoffs['<s>',] / math.log(10)}")
        for ngram in level:
            backoff = f"\t{model.backoffs.get(ngram, 0) / math.log(10)}" if k < order else ""
            text.append(f"{model.probs[ngram] / math.log(10)}\t{' '.join(ngram)}{backoff}")
    return ld.read_arpa(io.BytesIO("\n".join([*text, "\\end\\", ""]).encode()))


def nodes(table: BackoffTable) -> dict[Ngram, int]:
    """The node of each n-gram by its words; without `<s>` and `<unk>`, which OpenGrm's models do not list."""
    strings = [*table.vocab.tokens, "<s>"]
    trie = table.trie
    named = {tuple(strings[word] for word in trie.ngram(node)): node for node in range(trie.size)}
    return {ngram: node for ngram, node in named.items() if ngram not in (("<s>",), ("<unk>",))}


def assert_equal(table: BackoffTable, expected: Model, tolerance: float = 3e-6) -> None:
    found = nodes(table)
    assert set(found) == set(expected.probs)
    for ngram, node in found.items():
        assert math.log(table.ngram_probs[node]) == pytest.approx(expected.probs[ngram], abs=tolerance), ngram


@cache
def counted() -> Counts:
    """OpenGrm's text with the words that occur and no <unk>."""
    lines = [line.split() for line in (FOLDER / "earnest.txt").read_text().splitlines()]
    tokens = ("</s>", *dict.fromkeys(word for line in lines for word in line))
    vocab = ld.Vocabulary(size=len(tokens), eos=0, tokens=tokens)
    return ld.count([vocab.encode(line) for line in lines if line], vocab, 5)


@pytest.mark.parametrize(
    ("name", "smoother"), [("absolute", ld.AbsoluteDiscounting()), ("kneser_ney", ld.KneserEssenNey())]
)
def test_absolute_discounting_and_kneser_ney_are_opengrms(name, smoother):
    assert_equal(smoother.fit(counted()), opengrm(f"earnest-{name}.mod"))


def test_witten_bell_is_opengrms_on_plain_unigrams():
    counts = counted()
    table = replace(ld.WittenBell().fit(counts), base=counts.counts[: counts.vocab.size] / counts.tokens)
    assert_equal(table, opengrm("earnest-witten_bell.mod"))


def test_katz_has_opengrms_discounts_up_to_k():
    """Above k, OpenGrm takes a thousandth off every count; at order 5, where n_6 = 0, it keeps k and we lower it."""
    counts, expected = counted(), opengrm("earnest-katz.mod")
    table = ld.Katz(unigrams="ml").fit(counts)
    compared = 0
    for ngram, node in nodes(table).items():
        if len(ngram) < 5 and (counts.counts[node] <= 5 or len(ngram) == 1):
            assert math.log(table.ngram_probs[node]) == pytest.approx(expected.probs[ngram], abs=3e-6), ngram
            compared += 1
    assert compared > 40_000


def test_pruning_by_relative_entropy_keeps_the_same_ngrams_with_the_same_weights():
    """ngramshrink --method=relative_entropy --theta=.00015, and --target_number_of_ngrams=5897."""
    whole, expected = ld.read_arpa(FOLDER / "earnest.arpa"), opengrm("earnest-relative_entropy.pru")
    pruned = ld.prune(whole, entropy=0.00015)
    assert_equal(pruned, expected)
    places = nodes(pruned) | {("<s>",): pruned.vocab.bos}
    for history, backoff in expected.backoffs.items():
        assert math.log(pruned.backoffs[places[history]]) == pytest.approx(backoff, abs=3e-6), history
    by_size = ld.prune(whole, size=len(expected.probs) + 2)  # with <s> and <unk>
    np.testing.assert_array_equal(by_size.trie.words, pruned.trie.words)


def test_mixing_is_opengrms_model_merge():
    """ngrammerge --method=model_merge --normalize, alpha = beta."""
    parts = [table_of(opengrm(name)) for name in ("earnest-absolute.mod", "earnest-seymore.pru")]
    expected = opengrm("earnest.mrg.smooth.norm")
    mixed = ld.mix(parts)
    assert_equal(mixed, expected)
    places = nodes(mixed) | {("<s>",): mixed.vocab.bos}
    for history, backoff in expected.backoffs.items():  # OpenGrm's are float32, and 1 - sum loses digits
        assert math.log(mixed.backoffs[places[history]]) == pytest.approx(backoff, abs=1e-3), history
