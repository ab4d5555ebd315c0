"""Theorem 3: for an n-gram model, smoothing is regularization, with the sign put right.

    KL(p~ || q) = KL(p || q) + Z H(p+, q) - Z H(p-, q) + constant

so `form="exact", empirical="ngram"` with both strengths 1 is training on p~. The paper adds the last term; then the
optimum is another, and this file says which. And for a model that sees more than h the exact n-gram form has no lower
bound, whereas the exact token form has one: the entropy of its target.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoothing_cases import ORDERS, SMOOTHERS, TEXT, VOCAB, corpus_positions, counted, empirical, fitted

from lidstone.loss.losses import SmoothedCrossEntropy
from lidstone.loss.reference import dense_target
from lidstone.loss.split import signed_split, whole_ngrams
from lidstone.ngram.counts import count, count_text
from lidstone.ngram.smoothers.add_lambda import AddLambda
from lidstone.ngram.smoothers.registry import get_smoother
from lidstone.text.vocabulary import Vocabulary

pytestmark = pytest.mark.filterwarnings("ignore:.*no lower bound")
CASES = pytest.mark.parametrize(("name", "order"), [*itertools.product(SMOOTHERS, ORDERS)])


class Corpus:
    """The text as a batch for a free n-gram model: one row of logits per history."""

    def __init__(self, order: int) -> None:
        self.positions = corpus_positions(order)
        self.histories = sorted({history for history, _ in self.positions})
        numbers = {history: number for number, history in enumerate(self.histories)}
        self.index = torch.tensor([numbers[history] for history, _ in self.positions])
        self.labels = torch.tensor([word for _, word in self.positions])
        self.totals = torch.bincount(self.index).double()  # c(h)
        self.p = torch.tensor(np.stack([empirical(history, order) for history in self.histories]))

    def loss(self, logits, table, **options):
        """The summed loss of the n-gram model q whose logits are (histories, V); the text is one packed row."""
        loss = SmoothedCrossEntropy(table, counted(table.order), reduction="sum", **options)
        return loss(logits[self.index][None], self.labels[None]).total

    def smoothed(self, table):
        return torch.tensor(table.prob(self.histories))

    def mean(self, values):
        """Per position of the text; values are per history."""
        return ((self.totals * values).sum() / self.totals.sum()).item()


@pytest.fixture(scope="module")
def corpora():
    return {order: Corpus(order) for order in ORDERS}


def random_logits(corpus, seed=0):
    return torch.randn(corpus.p.shape, generator=torch.Generator().manual_seed(seed)) * 2


def cross_entropy(p, logits):
    """H(p, q) of each history in float64."""
    return -(p * torch.log_softmax(logits.double(), -1)).sum(-1)


def divergence(p, q):
    """KL(p || q) of each history."""
    return torch.where(p > 0, p * (p / q).log(), 0.0).sum(-1)


@CASES
def test_kl_to_the_smoothed_distribution_is_the_signed_sum(corpora, name, order):
    """The constant is one and the same for every q; with the paper's sign it is not."""
    corpus = corpora[order]
    smoothed = corpus.smoothed(fitted(name, order))
    plus, minus = (smoothed - corpus.p).clamp(min=0), (corpus.p - smoothed).clamp(min=0)
    exact, published = [], []
    for seed in range(3):
        logits = random_logits(corpus, seed).double()
        rest = cross_entropy(smoothed, logits) - cross_entropy(corpus.p, logits) - cross_entropy(plus, logits)
        exact.append(rest + cross_entropy(minus, logits))
        published.append(rest - cross_entropy(minus, logits))
    assert torch.stack(exact).abs().max() < 1e-12
    moved = minus.sum(-1) > 1e-6
    assert (torch.stack(published).std(0)[moved] > 1e-7).all()


@CASES
def test_targets_of_all_positions_add_up_to_the_smoothed_counts(corpora, name, order):
    """In float64: the sum over the positions of h of onehot + Z p+ - Z p- is c(h) p~(.|h)."""
    corpus, table = corpora[order], fitted(name, order)
    smoothed = corpus.smoothed(table)
    options = {"gamma_plus": 1.0, "gamma_minus": 1.0, "form": "exact", "empirical": "ngram"}
    some = range(0, len(corpus.histories), 3)  # the judge counts the text anew for each
    for i in some:
        history = corpus.histories[i]
        labels = corpus.labels[corpus.index == i]
        made = {int(y): dense_target(table, TEXT, history, int(y), **options) for y in labels.unique()}
        total = sum((made[int(y)] for y in labels), torch.zeros(VOCAB.size, dtype=torch.float64))
        torch.testing.assert_close(total, corpus.totals[i] * smoothed[i], rtol=0, atol=1e-11)


@CASES
@pytest.mark.parametrize("kind", ["ngram", "token"])
def test_loss_and_gradient_are_those_of_training_on_the_smoothed_distribution(corpora, name, order, kind):
    """On the fast loss. With both strengths 1 the token form is p~ itself at every single position."""
    corpus, table = corpora[order], fitted(name, order)
    logits = random_logits(corpus).requires_grad_()
    total = corpus.loss(logits, table, gamma=1.0, form="exact", empirical=kind)
    total.backward()
    expected = (corpus.totals * cross_entropy(corpus.smoothed(table), logits.detach())).sum()
    assert total.item() == pytest.approx(expected.item(), rel=2e-6)
    gradient = corpus.totals[:, None] * (torch.softmax(logits.detach().double(), -1) - corpus.smoothed(table))
    torch.testing.assert_close(logits.grad.double(), gradient, rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize("gamma", [0.1, 0.5])
@pytest.mark.parametrize("name", ["katz", "kneser-essen-ney"])
def test_for_an_ngram_model_token_and_ngram_are_one_loss(corpora, name, gamma):
    """Onehots average to p(.|h), so with equal strengths both train on (1 - gamma) p + gamma p~."""
    corpus, table = corpora[3], fitted(name, 3)
    logits = random_logits(corpus)
    totals = [
        corpus.loss(logits.clone().requires_grad_(), table, gamma=gamma, empirical=kind).item()
        for kind in ("token", "ngram")
    ]
    mixture = (1 - gamma) * corpus.p + gamma * corpus.smoothed(table)
    expected = (corpus.totals * cross_entropy(mixture, logits)).sum().item()
    assert totals == pytest.approx([expected, expected], rel=2e-6)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", SMOOTHERS)
def test_a_free_ngram_model_converges_to_the_smoothed_distribution(corpora, name, order):
    corpus, table = corpora[order], fitted(name, order)
    q = minimise(lambda logits: corpus.loss(logits, table, gamma=1.0, empirical="ngram"), corpus)
    assert corpus.mean(divergence(corpus.smoothed(table), q)) < 1e-4  # it starts from the uniform, at 0.1 or more
    torch.testing.assert_close(q, corpus.smoothed(table), rtol=0, atol=1e-2)


def minimise(objective, corpus):
    """The q of the smallest loss, by L-BFGS on the logits of a free n-gram model."""
    logits = torch.zeros(corpus.p.shape, requires_grad=True)
    optimizer = torch.optim.LBFGS([logits], max_iter=100, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value = objective(logits)
        value.backward()
        return value

    optimizer.step(closure)
    return torch.softmax(logits.detach().double(), -1)


class TestThePublishedForm:
    """Its optimum is q* = (p + Z p+ + Z p-) / (1 + 2Z), which is p~ only where smoothing changes nothing."""

    @staticmethod
    def optimum(corpus, table):
        moved = (corpus.smoothed(table) - corpus.p).abs()
        return (corpus.p + moved) / (1 + moved.sum(-1, keepdim=True))

    @CASES
    def test_the_gradient_vanishes_there(self, corpora, name, order):
        corpus, table = corpora[order], fitted(name, order)
        logits = self.optimum(corpus, table).log().clamp(min=-60).float().requires_grad_()
        corpus.loss(logits, table, gamma=1.0, form="published", empirical="ngram").backward()
        assert (logits.grad.abs().max(-1).values / corpus.totals).max() < 5e-6

    @CASES
    def test_how_far_it_is_from_the_smoothed_distribution(self, corpora, name, order):
        """TV(q*, p~) = 2Z/(1 + 2Z) TV(p-, p~), and p- is never p~: it has nothing where p+ has something."""
        corpus, table = corpora[order], fitted(name, order)
        p, smoothed, best = corpus.p, corpus.smoothed(table), self.optimum(corpus, table)
        minus = (p - smoothed).clamp(min=0)
        z = minus.sum(-1)
        kept = z > 1e-9
        distance = (best - smoothed).abs().sum(-1) / 2
        to_minus = (minus[kept] / z[kept, None] - smoothed[kept]).abs().sum(-1) / 2
        torch.testing.assert_close(distance[kept], 2 * z[kept] / (1 + 2 * z[kept]) * to_minus, rtol=1e-9, atol=1e-12)
        gained = (smoothed * (smoothed > p)).sum(-1)[kept]
        assert (to_minus >= gained - 1e-12).all()
        assert gained.min() > 0

    @pytest.mark.parametrize("order", [2, 3, 4])
    @pytest.mark.parametrize("name", SMOOTHERS)
    def test_it_does_not_learn_the_smoothed_distribution(self, corpora, name, order):
        """In nats per token of this text KL(p~ || q*) is from 0.00007 to 0.18; in the exact form it is zero."""
        corpus, table = corpora[order], fitted(name, order)
        assert corpus.mean(divergence(corpus.smoothed(table), self.optimum(corpus, table))) > 5e-5

    def test_worked_out_for_one_history(self):
        """After h came w, w, v; three more words exist. Add-1/2: p~ = (1, 1, 1, 5, 3)/11, Z = 3/11.

        Z p+ = 1/11 for each of the three, Z p- = (7/33, 2/33) for w and v; so 1 + 2Z = 17/11 and
        q* = (1/17, 1/17, 1/17, 29/51, 13/51): w keeps 0.569, where p~ has 0.455 and p had 0.667.
        """
        vocab = Vocabulary(size=5, eos=0)  # h is 2, w is 3, v is 4
        counts = count([[2, 3], [2, 3], [2, 4]], vocab, 2)
        smoothed = torch.tensor(AddLambda(lam=0.5).fit(counts).prob([[2]])[0])
        p = torch.tensor([0, 0, 0, 2 / 3, 1 / 3], dtype=torch.float64)
        torch.testing.assert_close(smoothed, torch.tensor([1, 1, 1, 5, 3], dtype=torch.float64) / 11)
        best = (p + (smoothed - p).abs()) / (1 + (smoothed - p).abs().sum())
        torch.testing.assert_close(best, torch.tensor([3, 3, 3, 29, 13], dtype=torch.float64) / 51)

    @pytest.mark.parametrize(
        ("name", "order", "z", "kl"),
        [
            ("jelinek-mercer", 2, 0.1976, 0.0187),
            ("kneser-essen-ney", 2, 0.1815, 0.1039),
            ("kneser-essen-ney", 3, 0.4831, 0.3093),
        ],
    )
    def test_on_wikitext(self, data_dir, name, order, z, kl):
        """On the words of WikiText-2; sparse, for p + |p~ - p| is max(p~, 2p - p~) where seen and p~ elsewhere."""
        counts = count_text(data_dir / "wikitext-2" / "wiki.train.tokens.xz", order)
        parts = signed_split(get_smoother(name).fit(counts), counts)
        trie = parts.table.trie
        nodes = whole_ngrams(trie)
        histories, p, smoothed = trie.parents[nodes], parts.empirical, parts.table.ngram_probs[nodes]

        def summed(values):
            return np.bincount(histories, values, trie.num_histories)

        weights = np.where(summed(p) > 0, counts.totals, 0) / counts.tokens
        moved = summed(parts.minus)
        away = np.log1p(2 * moved) + summed(smoothed * np.log(smoothed / np.maximum(smoothed, 2 * p - smoothed)))
        assert weights.sum() == pytest.approx(1)
        assert weights @ moved == pytest.approx(z, abs=1e-4)
        assert weights @ away == pytest.approx(kl, abs=1e-4)


class TestBounds:
    @settings(deadline=None, max_examples=60)
    @given(
        st.sampled_from(SMOOTHERS),
        st.sampled_from(ORDERS),
        st.floats(0, 1),
        st.floats(0, 1),
        st.floats(0.1, 1000),
        st.integers(0, 1000),
    )
    def test_the_exact_token_form_is_never_below_the_entropy_of_its_target(self, name, order, plus, minus, size, seed):
        """However sure of itself the model is, at every single position: loss >= mass H(target / mass)."""
        table = fitted(name, order)
        options = {"gamma_plus": plus + 1e-3, "gamma_minus": minus, "form": "exact", "empirical": "token"}
        labels = [*TEXT[0], VOCAB.eos]
        logits = torch.randn(len(labels), VOCAB.size, generator=torch.Generator().manual_seed(seed)) * size
        loss = SmoothedCrossEntropy(table, reduction="none", **options)
        found = loss(logits.requires_grad_()[None], torch.tensor([labels])).total[0].detach().double()
        for value, (history, label) in zip(found, corpus_positions(order, [TEXT[0]]), strict=True):
            target = dense_target(table, TEXT, history, label, **options)
            assert target.min() >= 0
            bound = -torch.special.xlogy(target, target / target.sum()).sum()
            assert value >= bound - 1e-5 * (1 + size)

    def test_the_exact_ngram_form_falls_without_end_for_a_model_that_sees_more(self):
        """Where y follows h but w follows it more often, w has a negative target: let its logit there go to -infinity.

        A model that sees more than h may do that at this one position alone. An n-gram model must do the same wherever
        h stands, and there the label w holds it back.
        """
        table, counts = fitted("kneser-essen-ney", 2), counted(2)
        history = (VOCAB.bos,)
        delta = empirical(history, 2) - table.prob([history])[0]
        word = int(delta.argmax())
        label = next(other for other in np.flatnonzero(empirical(history, 2)) if other != word)
        loss = SmoothedCrossEntropy(table, counts, gamma=1.0, empirical="ngram")
        depths = (10.0, 100.0, 1000.0, 10000.0)
        values = []
        for depth in depths:
            logits = torch.zeros(1, VOCAB.size)
            logits[0, word] = -depth
            values.append(loss(logits.requires_grad_(), torch.tensor([label])).total.item())
        slopes = np.diff(values) / np.diff(depths)
        np.testing.assert_allclose(slopes, -delta[word], rtol=1e-4)  # linear: twice as deep, twice as low
        assert values[-1] < -delta[word] * 9000 < -10

    def test_an_ngram_model_cannot_fall_below_the_entropy_of_the_smoothed_text(self, corpora):
        """The same logits at every position of h: sum over the text >= sum_h c(h) H(p~(.|h)), however deep."""
        corpus, table = corpora[2], fitted("kneser-essen-ney", 2)
        smoothed = corpus.smoothed(table)
        bound = (corpus.totals * -torch.special.xlogy(smoothed, smoothed).sum(-1)).sum().item()
        for size in (1.0, 30.0, 1000.0):
            logits = (random_logits(corpus) * size).requires_grad_()
            assert corpus.loss(logits, table, gamma=1.0, empirical="ngram").item() > bound
