"""The n-gram residual (Li et al. 2022): sparse corrections against dense log rows, in value and gradient; folds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import lidstone as ld
from lidstone.errors import InputError
from lidstone.lab.methods.residual import NgramResidual, log_table
from lidstone.text.history import histories_of

SIZE, EOS = 9, 2
VOCAB = ld.Vocabulary(size=SIZE, eos=EOS, unpredictable=(0, 1))
RNG = np.random.default_rng(3)
TEXT = [RNG.integers(3, SIZE, size=RNG.integers(1, 7)).tolist() for _ in range(25)]
SMOOTHERS = {
    "modified-kneser-ney": ld.ModifiedKneserNey((0.5, 1.0, 1.5)),
    "witten-bell": ld.WittenBell(),
    "jelinek-mercer": ld.JelinekMercer(weights=0.6, base="uniform"),
    "katz": ld.Katz(fallback=0.5),
}
pytestmark = pytest.mark.filterwarnings("ignore::lidstone.ngram.smoothers.base.FallbackUsed")


def fit(order, name="witten-bell", text=TEXT):
    return SMOOTHERS[name].fit(ld.count(text, VOCAB, order=order))


def contexts():
    """Sentence starts, seen and unseen histories, and a token after padding."""
    return torch.tensor([[EOS, 3, 4, 5, 8, 7], [EOS, 8, 8, 8, EOS, 3], [4, 5, 6, 1, 3, 3]])


def dense(logits, rows, tables, alpha):
    """Softmax of logits + alpha log p~ with whole rows in float64; tables: one per position, in order."""
    found = []
    for row, tokens in enumerate(rows.tolist()):
        for time, history in enumerate(histories_of(tokens, VOCAB, tables[0].order)):
            log_p = torch.tensor(tables[row * rows.shape[1] + time].prob([history])[0]).log()
            found.append(torch.log_softmax(logits[row, time].double() + alpha * log_p, -1))
    return torch.stack(found).view(logits.shape)


def random_logits(shape):
    torch.manual_seed(0)
    return torch.randn(*shape, SIZE, requires_grad=True)


def test_corrections_by_hand():
    # 3 4 </s>, 3 5 </s>; Witten-Bell: after 3 come 4, 5 once each, 2 of 2 + 2 -> backoff 1/2
    table = SMOOTHERS["witten-bell"].fit(ld.count([[3, 4], [3, 5]], VOCAB, order=2))
    p = table.prob([[3], []])
    logs = log_table(table)
    node = table.trie.find([3, 4])
    backoff = p[0][7] / p[1][7]  # 7 never follows 3
    assert backoff == pytest.approx(0.5)
    assert logs.rows[node] == pytest.approx(np.log(p[0][4]) - np.log(0.5) - np.log(p[1][4]))
    assert logs.backoffs.tolist() == [1.0] * len(table.backoffs)


@pytest.mark.parametrize("name", SMOOTHERS)
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_sparse_corrections_equal_dense_log_rows(name, order):
    table, rows = fit(order, name), contexts()
    logits = random_logits(rows.shape)
    found = torch.log_softmax(NgramResidual(table, 0.7)(logits, rows), -1)
    expected = dense(logits, rows, [table] * rows.numel(), 0.7)
    np.testing.assert_allclose(found.detach().exp(), expected.detach().exp(), atol=2e-6)
    np.testing.assert_allclose(found.detach().exp().sum(-1), 1, atol=1e-6)


def test_value_and_gradient_of_the_loss_equal_the_dense_judges():
    table, rows = fit(3), contexts()
    labels = torch.tensor([[3, 4, 5, 8, 7, EOS], [8, 8, 8, EOS, 3, 4], [5, 6, 7, 3, 3, EOS]])
    logits = random_logits(rows.shape)
    loss = ld.SmoothedCrossEntropy()(NgramResidual(table, 0.5)(logits, rows), labels).total
    loss.backward()
    twin = random_logits(rows.shape)
    judged = -dense(twin, rows, [table] * rows.numel(), 0.5).gather(-1, labels[..., None]).mean()
    judged.backward()
    assert loss.item() == pytest.approx(judged.item(), abs=1e-5)
    np.testing.assert_allclose(logits.grad, twin.grad, atol=1e-6)


def test_an_unseen_history_and_a_unigram_table_leave_one_dense_row():
    """Order 1 is the base alone: log p(w), the same for all positions."""
    table, rows = fit(1), contexts()
    added = NgramResidual(table, 1.0)(torch.zeros(*rows.shape, SIZE), rows)
    assert torch.isneginf(added[..., :2]).all()  # what is never predicted gets no probability
    np.testing.assert_allclose(added[0, 0].exp(), table.base, atol=1e-7)
    assert torch.equal(added, added[:1, :1].expand(added.shape))


def test_each_fold_meets_its_own_table():
    folds = [fit(2, text=TEXT[:12]), fit(2, text=TEXT[12:])]
    residual, rows = NgramResidual(fit(2), 0.8, folds), contexts()
    logits = random_logits(rows.shape)
    residual.fold_of = torch.tensor([[0] * 6, [1] * 6, [0, 0, 0, 1, 1, 1]])
    chosen = [folds[number] for number in residual.fold_of.reshape(-1).tolist()]
    found = torch.log_softmax(residual(logits, rows), -1)
    np.testing.assert_allclose(found.detach().exp(), dense(logits, rows, chosen, 0.8).detach().exp(), atol=2e-6)
    residual.fold_of = None
    whole = torch.log_softmax(residual(logits, rows), -1)
    expected = dense(logits, rows, [fit(2)] * rows.numel(), 0.8)
    np.testing.assert_allclose(whole.detach().exp(), expected.detach().exp(), atol=2e-6)


def test_a_processor_gives_the_last_position():
    residual, rows = NgramResidual(fit(3), 0.7), contexts()
    logits = random_logits(rows.shape)
    expected = torch.log_softmax(residual(logits, rows), -1)[:, -1]
    np.testing.assert_allclose(residual.process(rows, logits[:, -1]).detach().exp(), expected.detach().exp(), atol=1e-6)


def test_a_table_with_zeros_is_refused():
    never = ld.JelinekMercer(weights=0.9, base="unigram").fit(ld.count([[3, 4]], VOCAB, order=2))
    with pytest.raises(InputError, match="above 0"):
        NgramResidual(never, 0.5)
    with pytest.raises(InputError, match="strength"):
        NgramResidual(fit(2), 0.0)
