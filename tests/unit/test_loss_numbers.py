"""SmoothedCrossEntropy in half precision, with NaN, infinities and nothing to count."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.smoothing_cases import TEXT, VOCAB, counted, fitted

from lidstone.loss.losses import SmoothedCrossEntropy
from lidstone.loss.reference import dense_target
from lidstone.text.history import histories_of

TABLE, COUNTS = fitted("kneser-essen-ney", 2), counted(2)
LABELS = torch.tensor([[2, 3, 4, 1], [5, 6, 1, -100]])


def make_logits(shape=(2, 4), seed=0, scale=2.0):
    return scale * torch.randn(*shape, VOCAB.size, generator=torch.Generator().manual_seed(seed))


def long_batch():
    labels = torch.randint(1, 7, (8, 16), generator=torch.Generator().manual_seed(1))
    return make_logits((8, 16), scale=5.0), labels


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
class TestHalfPrecision:
    """Against the truth in float64 of logits that were not rounded: no worse than torch's own computation."""

    def each(self, function, logits):
        """The loss of each position and the gradient of their sum, in float64."""
        z = logits.requires_grad_()
        value = function(z).reshape(-1)
        gradient = torch.autograd.grad(value.sum(), z)[0]
        assert gradient.dtype == logits.dtype
        return value.detach().double(), gradient.double()

    def compare(self, ours, theirs, logits, dtype):
        truth = self.each(theirs, logits.double())
        for mine, other, right in zip(*(self.each(f, logits.to(dtype)) for f in (ours, theirs)), truth, strict=True):
            assert (mine - right).abs().mean() <= (other - right).abs().mean() * 1.01

    def test_plain(self, dtype):
        logits, labels = long_batch()

        def theirs(z):
            return F.cross_entropy(z.reshape(-1, VOCAB.size), labels.reshape(-1), reduction="none")

        self.compare(lambda z: SmoothedCrossEntropy(reduction="none")(z, labels).total, theirs, logits, dtype)

    def test_regularized(self, dtype):
        logits, labels = long_batch()
        options = {"gamma_plus": 0.3, "gamma_minus": 0.3, "form": "exact", "empirical": "token"}
        rows = [(histories_of([VOCAB.bos, *row[:-1]], VOCAB, 2), row) for row in labels.tolist()]
        pairs = [pair for histories, row in rows for pair in zip(histories, row, strict=True)]
        target = torch.stack([dense_target(TABLE, TEXT, history, label, **options) for history, label in pairs])

        def theirs(z):
            return F.cross_entropy(z.reshape(-1, VOCAB.size), target.to(z.dtype), reduction="none")

        loss = SmoothedCrossEntropy(TABLE, reduction="none", **options)
        self.compare(lambda z: loss(z, labels).total, theirs, logits, dtype)

    def test_the_loss_itself_is_float32(self, dtype):
        parts = SmoothedCrossEntropy(TABLE, gamma=0.3)(make_logits().to(dtype).requires_grad_(), LABELS)
        assert {part.dtype for part in parts} == {torch.float32}

    def test_autocast_does_not_reach_inside(self, dtype):
        logits = make_logits(scale=20.0).requires_grad_()
        loss = SmoothedCrossEntropy(TABLE, COUNTS, gamma=0.5, empirical="ngram", form="published")
        value = loss(logits, LABELS).total
        gradient = torch.autograd.grad(value, logits)[0]
        with torch.autocast("cpu", dtype=dtype):
            inside = loss(logits, LABELS).total
            inside_gradient = torch.autograd.grad(inside, logits)[0]
        assert inside.item() == value.item()
        assert torch.equal(inside_gradient, gradient)


class TestNumbersThatAreNotNumbers:
    def test_all_positions_ignored(self):
        for kind in (TABLE, None):
            loss = SmoothedCrossEntropy(kind, gamma=0.3) if kind else SmoothedCrossEntropy()
            logits = make_logits().requires_grad_()
            parts = loss(logits, torch.full_like(LABELS, -100))
            parts.total.backward()
            assert [part.item() for part in parts] == [0, 0, 0, 0]
            assert (logits.grad == 0).all()

    def test_nan_logits_are_reported_and_passed_on(self):
        logits = make_logits()
        logits[0, 1, 3] = torch.nan
        with pytest.warns(UserWarning, match=r"not finite at 1 of 8 positions: the logits \(torch.float32\) hold NaN"):
            value = SmoothedCrossEntropy(TABLE, gamma=0.3)(logits.requires_grad_(), LABELS).total
        assert value.isnan()

    def test_nan_where_nothing_counts_is_no_matter(self):
        logits = make_logits()
        logits[1, 3] = torch.nan
        value = SmoothedCrossEntropy(TABLE, gamma=0.3)(logits.requires_grad_(), LABELS).total
        value.backward()
        assert (
            value.item() == SmoothedCrossEntropy(TABLE, gamma=0.3)(make_logits().requires_grad_(), LABELS).total.item()
        )
        assert (logits.grad[1, 3] == 0).all()
        assert logits.grad.isfinite().all()

    def test_float16_overflow_is_reported(self):
        logits = (make_logits() * 1e5).half()  # beyond 65504
        assert logits.isinf().any()
        with pytest.warns(UserWarning, match=r"\(torch.float16\) hold NaN or infinities.*bfloat16"):
            value = SmoothedCrossEntropy(TABLE, gamma=0.3)(logits.requires_grad_(), LABELS).total
        assert not value.isfinite()

    def test_large_logits_are_no_overflow(self):
        logits = make_logits(scale=2e4).half().requires_grad_()
        value = SmoothedCrossEntropy(TABLE, gamma=0.3)(logits, LABELS).total
        value.backward()
        assert value.isfinite()
        assert logits.grad.isfinite().all()

    @pytest.mark.parametrize("order", [1, 2])
    @pytest.mark.parametrize("empirical", ["token", "ngram"])
    def test_an_id_that_the_model_masks_and_the_table_never_predicts(self, order, empirical):
        """Padding with a logit of -inf and a probability of zero adds nothing: 0 log 0."""
        masked, low = make_logits(), make_logits()
        masked[..., 0], low[..., 0] = -torch.inf, -1e4
        table = fitted("kneser-essen-ney", order)
        loss = SmoothedCrossEntropy(table, counted(order), gamma=0.3, form="published", empirical=empirical)
        pairs = []
        for logits in (masked, low):
            z = logits.requires_grad_()
            value = loss(z, LABELS).total
            pairs.append((value.detach(), torch.autograd.grad(value, z)[0]))
        torch.testing.assert_close(*pairs)
