"""The laws at the edges: texts that are as small, large, flat or steep as a text can be.

Rows sum to one, p~ - p = Z (p+ - p-), and the loss equals the dense judge in value and gradient, in all four forms.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch
from tests.smoothing_cases import SMOOTHERS, fit

from lidstone.errors import InputError
from lidstone.loss.losses import SmoothedCrossEntropy
from lidstone.loss.reference import dense_loss, dense_target
from lidstone.loss.split import signed_split, whole_history
from lidstone.ngram.counts import Counts, count
from lidstone.ngram.table import BackoffTable
from lidstone.text.history import histories_of
from lidstone.text.vocabulary import Vocabulary

COMBINATIONS = list(itertools.product(("exact", "published"), ("token", "ngram")))


@dataclass(frozen=True)
class Case:
    """A text with a vocabulary whose id 0 ends sentences."""

    sentences: list[list[int]]
    size: int
    order: int = 2
    times: int = 1
    """what every count is multiplied by: as if the text were repeated"""

    @property
    def vocab(self) -> Vocabulary:
        return Vocabulary(size=self.size, eos=0)

    @property
    def counts(self) -> Counts:
        counts = count(self.sentences, self.vocab, self.order, append_eos=True)
        return counts if self.times == 1 else replace(counts, counts=counts.counts.astype(np.int64) * self.times)


CASES = {
    "one event": Case([[1]], 3),
    "one word": Case([[1], [1, 1, 1], [1]], 2, 3),
    "V = 200k": Case([[1, 199_999, 7], [7, 1], [1, 7, 7]], 200_000, 3),
    "order 8": Case([[1, 2, 3, 1, 2, 3, 1, 2, 4, 4], [2, 3, 1, 2, 3, 1, 2, 3]], 6, 8),
    "all singletons": Case([list(range(1, 40))], 42, 3),
    "counts beyond 2^31": Case([[1, 2, 1], [2, 2, 1, 3], [1]], 5, 3, 2**33 + 1),
    "a history followed by everything": Case([[1, word] for word in range(1, 30)], 30),
}


@cache
def counted(case: str) -> Counts:
    return CASES[case].counts


@cache
def fitted(case: str, name: str) -> BackoffTable:
    return fit(name, counted(case))


def text_of(case: str) -> tuple[list[int], list[tuple[int, ...]]]:
    """Some labels of the text in a row, with what stands before them: every kind of history of the case."""
    given = CASES[case]
    labels = [word for sentence in given.sentences[:3] for word in (*sentence[:12], 0)]
    return labels, histories_of([given.vocab.bos, *labels[:-1]], given.vocab, given.order)


def empirical(case: str, history: tuple[int, ...]) -> np.ndarray:
    given, row = CASES[case], np.zeros(CASES[case].size)
    for sentence in given.sentences:
        padded = (given.vocab.bos, *sentence, 0)
        for end in range(1, len(padded)):
            row[padded[end]] += padded[max(0, end - given.order + 1) : end] == history
    return row / row.sum()


every_case = pytest.mark.parametrize("case", CASES)
every_smoother = pytest.mark.parametrize("name", SMOOTHERS)


@every_case
@every_smoother
def test_rows_sum_to_one(case: str, name: str) -> None:
    table, given = fitted(case, name), CASES[case]
    last = given.size - 1
    histories = [(), (given.vocab.bos,), (last,), (last,) * (given.order - 1), *text_of(case)[1]]
    rows = table.prob([history[: given.order - 1] for history in histories])
    assert rows.min() >= 0
    np.testing.assert_allclose(rows.sum(1), 1, atol=1e-11, rtol=0)


@every_case
@every_smoother
def test_the_split_is_the_difference(case: str, name: str) -> None:
    table = fitted(case, name)
    parts = signed_split(table, counted(case))
    for history in set(text_of(case)[1]):
        node = whole_history(parts.table, history)
        assert node is not None
        slots, words = parts.slots(node), parts.table.trie.words[parts.table.trie.children(node)]
        plus = parts.table.backoffs[node] * table.prob([history[1:]])[0]
        minus = np.zeros_like(plus)
        plus[words] += parts.plus[slots]
        minus[words] = parts.minus[slots]
        np.testing.assert_allclose(plus - minus, table.prob([history])[0] - empirical(case, history), atol=1e-12)
        assert plus.min() >= -1e-13 and minus.min() >= 0
        assert plus.sum() == pytest.approx(minus.sum(), abs=1e-11)  # Z+ = Z-


@every_case
@every_smoother
@pytest.mark.parametrize(("form", "empirical"), COMBINATIONS)
def test_the_loss_is_the_dense_one(case: str, name: str, form: str, empirical: str) -> None:
    table, given = fitted(case, name), CASES[case]
    labels, histories = text_of(case)
    options = {"gamma_plus": 0.4, "gamma_minus": 0.7, "form": form, "empirical": empirical}
    torch.manual_seed(0)
    logits = 3 * torch.randn(len(labels), given.size)
    wanted = logits.double().requires_grad_()
    pairs = zip(histories, labels, strict=True)
    targets = [dense_target(table, given.sentences, history, label, **options) for history, label in pairs]
    dense_loss(wanted, torch.stack(targets)).backward()
    value = dense_loss(wanted.detach(), torch.stack(targets)).item()
    found = logits.clone().requires_grad_()
    total = quiet(lambda: SmoothedCrossEntropy(table, counted(case), reduction="sum", **options))(
        found[None], torch.tensor([labels])
    ).total
    total.backward()
    assert total.item() == pytest.approx(value, rel=3e-6, abs=1e-5)
    assert found.grad is not None and wanted.grad is not None
    assert (found.grad.double() - wanted.grad).abs().max().item() <= 2e-6


def test_a_vocabulary_of_the_sentence_end_alone_has_no_text() -> None:
    with pytest.raises(InputError, match="nothing to count"):
        count([[], []], Vocabulary(size=1, eos=0), 2)


def quiet(make: Callable[[], SmoothedCrossEntropy]) -> SmoothedCrossEntropy:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no lower bound")
        return make()
