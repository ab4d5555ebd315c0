"""The losses with a teacher: every tail against the dense reference, limits that are known losses, and bad input."""

from __future__ import annotations

import copy
import pickle
from contextlib import nullcontext

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.smoothing_cases import ORDERS, SMOOTHERS, VOCAB, counted, fitted
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode

import lidstone as ld
from lidstone.errors import InputError, VocabularyMismatch
from lidstone.loss import operators
from lidstone.loss.kernels.protocol import using
from lidstone.loss.losses import SmoothedCrossEntropy
from lidstone.loss.reference import dense_loss, taught_target
from lidstone.loss.targets import history_entropies
from lidstone.loss.teacher import LinearSparseTargetCrossEntropy, SparseTargetCrossEntropy
from lidstone.text.history import histories_of

V, K, WIDTH = VOCAB.size, 3, 5
LABELS = torch.tensor([[2, 3, 4, 1], [5, 6, 1, -100], [2, 2, -100, 7]])
CONTEXTS = torch.tensor([[8, 2, 3, 4], [8, 5, 6, 1], [8, 2, 2, -1]])
DISTRIBUTION = torch.tensor([0.0, 0.3, 0.2, 0.2, 0.1, 0.1, 0.05, 0.05])
RULES = ["drop", "renormalize", "uniform", "unigram", "distribution"]
TAILS = [*RULES, *(f"table {order}" for order in ORDERS)]


def make(tail: str, linear: bool = False, **options):
    kind = LinearSparseTargetCrossEntropy if linear else SparseTargetCrossEntropy
    if tail.startswith("table"):
        return kind(fitted("witten-bell", int(tail[-1])), **options)
    given = DISTRIBUTION if tail == "distribution" else tail
    return kind(given, counts=counted(1) if tail == "unigram" else None, **options)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def teacher(k=K, seed=5, labels=LABELS):
    """The k most probable words of random distributions; one place is unused, and one position has no word."""
    logprobs, ids = (2 * draw(*labels.shape, V, seed=seed)).log_softmax(-1).topk(k)
    if k < V:
        ids[0, 1, -1] = -1
        ids[1, 0] = -1
    return ids, logprobs


def row_of(tail: str, history: tuple[int, ...]):
    """The distribution that completes the teacher, or the rule."""
    if tail.startswith("table"):
        return torch.tensor(fitted("witten-bell", int(tail[-1])).prob([history])[0])
    unigrams = torch.tensor(counted(1).counts[:V] / counted(1).tokens)
    rows = {"uniform": torch.full((V,), 1 / V).double(), "unigram": unigrams, "distribution": DISTRIBUTION.double()}
    return rows.get(tail, tail)


def dense(tail: str, ids, logprobs, gamma: float):
    """The targets and the teachers of the positions that count, (positions, V)."""
    order = int(tail[-1]) if tail.startswith("table") else 1
    histories = [history for row in CONTEXTS.tolist() for history in histories_of(row, VOCAB, order)]
    counts = LABELS.flatten() >= 0
    made = [
        taught_target(
            ids.view(-1, ids.shape[-1])[at].tolist(),
            logprobs.view(-1, ids.shape[-1])[at].tolist(),
            int(LABELS.flatten()[at]),
            row_of(tail, histories[at]),
            gamma=gamma,
            size=V,
        )
        for at in counts.nonzero()[:, 0].tolist()
    ]
    return counts, torch.stack([each[0] for each in made]), torch.stack([each[1] for each in made])


def kernels(name: str):
    return using("tensors") if name == "tensors" else nullcontext()


@pytest.mark.parametrize("name", ["cpu", "tensors"])
@pytest.mark.parametrize("k", [1, K, V])
@pytest.mark.parametrize("tail", TAILS)
class TestDense:
    def test_logits(self, tail, k, name):
        ids, logprobs = teacher(k)
        counts, targets, teachers = dense(tail, ids, logprobs, gamma=0.6)
        logits = (3 * draw(*LABELS.shape, V, seed=2)).requires_grad_()
        with kernels(name):
            parts = make(tail, gamma=0.6, reduction="sum")(logits, LABELS, ids, logprobs, CONTEXTS)
            found = torch.autograd.grad(parts.total, logits)[0]
        double = logits.detach().double().requires_grad_()
        kept = double.flatten(0, 1)[counts]
        expected = dense_loss(kept, targets)
        torch.testing.assert_close(parts.total.double(), expected, rtol=2e-6, atol=2e-6)
        gradient = torch.autograd.grad(expected, double)[0]
        torch.testing.assert_close(found.double(), gradient, rtol=1e-5, atol=2e-6)
        torch.testing.assert_close(parts.cross_entropy.double(), dense_loss(kept, teachers), rtol=2e-6, atol=2e-6)
        kl = dense_loss(kept, teachers) - torch.special.entr(teachers).sum()
        torch.testing.assert_close(parts.kl.double(), kl, rtol=1e-5, atol=1e-5)

    def test_hidden_states(self, tail, k, name, monkeypatch):
        monkeypatch.setattr("lidstone.loss.kernels.chunks.CHUNK_BYTES", 5 * V * 4)
        ids, logprobs = teacher(k)
        leaves = [draw(*shape, seed=7).requires_grad_() for shape in ((*LABELS.shape, WIDTH), (V, WIDTH), (V,))]
        with kernels(name):
            linear = make(tail, linear=True, gamma=0.6)
            found = linear(leaves[0], leaves[1], LABELS, ids, logprobs, CONTEXTS, bias=leaves[2])
            gradients = torch.autograd.grad(found.total, leaves)
            logits = F.linear(*leaves)
            expected = make(tail, gamma=0.6)(logits, LABELS, ids, logprobs, CONTEXTS)
            dense_gradients = torch.autograd.grad(expected.total, leaves)
        torch.testing.assert_close(tuple(found), tuple(expected), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradients, dense_gradients, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("tail", TAILS)
class TestLimits:
    """Losses that are known under other names."""

    def test_a_share_of_0_is_cross_entropy(self, tail):
        logits = draw(*LABELS.shape, V).requires_grad_()
        total = make(tail, gamma=0.0)(logits, LABELS, *teacher(), CONTEXTS).total
        expected = F.cross_entropy(logits.flatten(0, 1), LABELS.flatten())
        same_with_gradient(total, expected, logits)

    def test_a_onehot_teacher_is_cross_entropy(self, tail):
        logits = draw(*LABELS.shape, V).requires_grad_()
        ids, logprobs = LABELS.clamp(min=0)[..., None], torch.zeros(*LABELS.shape, 1)
        total = make(tail, gamma=0.7)(logits, LABELS, ids, logprobs, CONTEXTS).total
        same_with_gradient(total, F.cross_entropy(logits.flatten(0, 1), LABELS.flatten()), logits)

    def test_all_words_are_full_distillation(self, tail):
        """Then the tail does not matter: F.cross_entropy with class probabilities."""
        logits, (ids, logprobs) = draw(*LABELS.shape, V).requires_grad_(), teacher(V)
        total = make(tail, gamma=1.0)(logits, LABELS, ids, logprobs, CONTEXTS).total
        probs = torch.zeros_like(logits).scatter(-1, ids, logprobs.exp())
        keep = LABELS >= 0
        same_with_gradient(total, F.cross_entropy(logits[keep], probs[keep]), logits)

    def test_in_evaluation_the_total_is_the_nll(self, tail):
        loss, logits = make(tail, gamma=0.7), draw(*LABELS.shape, V).requires_grad_()
        trained = loss(logits, LABELS, *teacher(), CONTEXTS)
        loss.eval()
        parts, plain = loss(logits, LABELS, *teacher(), CONTEXTS), loss(logits, LABELS)
        same_with_gradient(parts.total, F.cross_entropy(logits.flatten(0, 1), LABELS.flatten()), logits)
        assert torch.equal(parts.kl, trained.kl) and torch.equal(parts.total, plain.total)
        with torch.no_grad():
            assert torch.equal(loss.train()(logits, LABELS, *teacher(), CONTEXTS).total, parts.total)

    def test_ignored_positions_may_hold_anything(self, tail):
        logits, (ids, logprobs) = draw(*LABELS.shape, V), teacher()
        expected = gradient_of(make(tail), logits, ids, logprobs)
        logits, ids, logprobs = logits.clone(), ids.clone(), logprobs.clone()
        ids[1, 3], logprobs[1, 3], logits[1, 3] = 999, torch.nan, torch.nan
        assert torch.equal(gradient_of(make(tail), logits, ids, logprobs), expected)

    def test_halves_of_a_batch_add_up_with_num_items(self, tail):
        logits, (ids, logprobs) = draw(*LABELS.shape, V).requires_grad_(), teacher()
        loss = make(tail)
        whole = loss(logits, LABELS, ids, logprobs, CONTEXTS).total
        halves = [
            loss(logits[p], LABELS[p], ids[p], logprobs[p], CONTEXTS[p], num_items=(LABELS >= 0).sum()).total
            for p in (slice(0, 1), slice(1, 3))
        ]
        same_with_gradient(halves[0] + halves[1], whole, logits)

    def test_no_reduction(self, tail):
        logits, given = draw(*LABELS.shape, V).requires_grad_(), (LABELS, *teacher(), CONTEXTS)
        each, whole = make(tail, reduction="none")(logits, *given), make(tail, reduction="sum")(logits, *given)
        assert each.kl.shape == LABELS.shape and each.total[1, 3] == 0
        torch.testing.assert_close([part.sum() for part in each], list(whole))

    @pytest.mark.parametrize("inplace", [False, True])
    def test_bfloat16_logits_are_read_in_float32(self, tail, inplace):
        logits, (ids, logprobs) = draw(*LABELS.shape, V).bfloat16(), teacher()
        exact = gradient_of(make(tail), logits.float(), ids, logprobs)
        found = gradient_of(make(tail, inplace_gradient=inplace), logits, ids, logprobs)
        assert torch.equal(found, exact.bfloat16())

    def test_a_common_offset_of_the_logits_changes_nothing(self, tail):
        logits, given = (8 * draw(*LABELS.shape, V)).round() / 8, (LABELS, *teacher(), CONTEXTS)
        far = (logits + 2.0**16).requires_grad_()
        same = make(tail)(logits.requires_grad_(), *given)
        torch.testing.assert_close(tuple(make(tail)(far, *given)), tuple(same), rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("linear", [False, True])
    def test_a_compiled_step_is_the_eager_one_in_one_graph(self, tail, linear):
        torch._dynamo.reset()
        loss, given = make(tail, linear=linear), (LABELS, *teacher(), CONTEXTS)
        leaves = [draw(*LABELS.shape, WIDTH), draw(V, WIDTH)] if linear else [draw(*LABELS.shape, V)]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
        expected, found = loss(*leaves, *given), compiled(*leaves, *given)
        torch.testing.assert_close(tuple(found), tuple(expected))
        gradients = torch.autograd.grad(found.total, leaves)
        torch.testing.assert_close(gradients, torch.autograd.grad(expected.total, leaves))


def same_with_gradient(found, expected, leaf):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        torch.autograd.grad(found, leaf)[0], torch.autograd.grad(expected, leaf)[0], rtol=1e-5, atol=1e-6
    )


def gradient_of(loss, logits, ids, logprobs):
    leaf = logits.clone().requires_grad_()
    loss(leaf * 1, LABELS, ids, logprobs, CONTEXTS).total.backward()
    return leaf.grad


def check_operators(loss):
    ids, logprobs = teacher()
    opcheck(operators.teacher, (ids, logprobs, LABELS.clamp(min=-1), V, loss.tail == "renormalize", 1.0))
    gold = LABELS.clamp(min=-1)
    batch = loss._taught(gold, ids, logprobs, CONTEXTS, None, V)
    given = operators.with_rows(batch)
    opcheck(operators.completed, given.packed())
    target = operators.with_target(given)
    logits = draw(*LABELS.shape, V).requires_grad_()
    opcheck(operators.losses, (logits, *target.packed(), False))
    leaves = draw(gold.numel(), WIDTH).requires_grad_(), draw(V, WIDTH).requires_grad_(), None
    opcheck(operators.linear_losses, (*leaves, *batch.packed(), torch.float32, [True, True, False]))


@pytest.mark.parametrize("name", ["cpu", "tensors"])
@pytest.mark.parametrize("tail", ["drop", "uniform", "table 3"])
def test_operators(tail, name):
    with kernels(name):
        check_operators(make(tail))


class LargeTensors(TorchDispatchMode):
    """Counts the tensors of at least `size` numbers that operations make; views and changes in place are none."""

    def __init__(self, size):
        super().__init__()
        self.size, self.found = size, 0

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        if operation.namespace == "lidstone":  # look inside
            with self:
                return getattr(operators, operation.name().split("::")[1])._init_fn(*arguments, **(options or {}))
        given = {each.untyped_storage().data_ptr() for each in arguments if isinstance(each, torch.Tensor)}
        made = operation(*arguments, **(options or {}))
        for each in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(each, torch.Tensor) and each.numel() >= self.size:
                self.found += each.untyped_storage().data_ptr() not in given
        return made


@pytest.mark.parametrize("tail", ["drop", "renormalize", "uniform", "table"])
@pytest.mark.parametrize(("linear", "large"), [(False, 1), (True, 0)])
def test_no_target_of_all_positions_and_words_is_made(tail, linear, large, monkeypatch):
    """On logits the one large tensor is the gradient; from hidden states there is none, as for plain cross-entropy."""
    monkeypatch.setattr("lidstone.loss.kernels.chunks.CHUNK_BYTES", 4 * 4 * 300)
    vocab, positions, k = ld.Vocabulary(size=300, eos=0), 40, 6
    table = ld.WittenBell().fit(ld.count([[word, word + 1, 5] for word in range(1, 250)], vocab, order=3))
    loss = (LinearSparseTargetCrossEntropy if linear else SparseTargetCrossEntropy)(table if tail == "table" else tail)
    leaves = [draw(1, positions, 3), draw(300, 3)] if linear else [draw(1, positions, 300)]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    logprobs, ids = draw(1, positions, 300, seed=3).log_softmax(-1).topk(k)
    with LargeTensors(positions * 300) as tensors:
        loss(*leaves, torch.arange(positions)[None], ids, logprobs).total.backward()
    assert tensors.found == large


def test_a_teacher_without_words_is_the_smoothed_loss():
    """With a label that the table predicts: others have the plain NLL there, and the tail here."""
    table, logits = fitted("witten-bell", 3), draw(2, 4, V).requires_grad_()
    nothing = torch.full((2, 4, 2), -1)
    found = SparseTargetCrossEntropy(table, gamma=0.3)(logits, LABELS[:2], nothing, nothing.float())
    same_with_gradient(found.total, SmoothedCrossEntropy(table, gamma=0.3)(logits, LABELS[:2]).total, logits)


def test_a_uniform_teacher_without_words_is_label_smoothing():
    logits, nothing = draw(*LABELS.shape, V).requires_grad_(), torch.full((*LABELS.shape, 1), -1)
    found = SparseTargetCrossEntropy("uniform", gamma=0.3)(logits, LABELS, nothing, nothing.float())
    expected = F.cross_entropy(logits.flatten(0, 1), LABELS.flatten(), label_smoothing=0.3)
    same_with_gradient(found.total, expected, logits)


@pytest.mark.parametrize("tail", ["drop", "renormalize"])
def test_without_words_and_without_tail_a_position_has_the_plain_loss(tail):
    logits, nothing = draw(*LABELS.shape, V).requires_grad_(), torch.full((*LABELS.shape, 1), -1)
    found = SparseTargetCrossEntropy(tail, gamma=0.3)(logits, LABELS, nothing, nothing.float())
    same_with_gradient(found.total, F.cross_entropy(logits.flatten(0, 1), LABELS.flatten()), logits)


def test_dropped_tails_give_the_kl_of_the_named_words():
    """As verl writes top-k distillation: sum over the k words of t (log t - log q)."""
    logits, (ids, logprobs) = draw(3, 4, V).requires_grad_(), teacher(4, labels=LABELS.clamp(min=0))
    ids, logprobs = ids[2:], logprobs[2:]
    found = SparseTargetCrossEntropy("drop", gamma=1.0)(logits[2:], LABELS[2:].clamp(min=0), ids, logprobs)
    expected = F.kl_div(logits[2:].log_softmax(-1).gather(-1, ids), logprobs, reduction="none", log_target=True)
    torch.testing.assert_close(found.kl, expected.sum(-1).mean().detach())
    same_with_gradient(
        found.total, -(logprobs.exp() * logits[2:].log_softmax(-1).gather(-1, ids)).sum(-1).mean(), logits
    )


def test_all_words_give_the_loss_of_trl():
    """Its generalized Jensen-Shannon divergence with beta = 0 is KL(teacher || student), averaged over the labels."""
    trl = pytest.importorskip("trl.experimental.gkd", reason="TRL is not installed")
    logits, of_teacher = draw(*LABELS.shape, V).requires_grad_(), draw(*LABELS.shape, V, seed=8)
    logprobs, ids = of_teacher.log_softmax(-1).sort(-1, descending=True)
    found = SparseTargetCrossEntropy("drop", gamma=1.0)(logits, LABELS, ids, logprobs)
    expected = trl.GKDTrainer.generalized_jsd_loss(logits, of_teacher, LABELS, beta=0)
    torch.testing.assert_close(found.kl, expected.detach(), rtol=1e-5, atol=1e-6)
    gradients = [torch.autograd.grad(value, logits)[0] for value in (found.total, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)


def test_a_temperature_softens_the_named_words():
    """Words of 8/10 and 2/10 at T = 2: sqrt(8) : sqrt(2) = 2/3 : 1/3."""
    logits, ids = torch.zeros(1, 1, V, requires_grad=True), torch.tensor([[[2, 3]]])
    loss = SparseTargetCrossEntropy("renormalize", gamma=1.0, temperature=2.0)
    loss(logits, torch.tensor([[4]]), ids, torch.tensor([[[0.4, 0.1]]]).log()).total.backward()
    torch.testing.assert_close(1 / V - logits.grad[0, 0, 2:4], torch.tensor([2 / 3, 1 / 3]))


def test_masked_words_that_have_no_target_are_silent():
    """Padding has a logit of -inf, and no table gives it probability."""
    logits = draw(*LABELS.shape, V)
    logits[..., 0] = -torch.inf
    ids, logprobs = teacher(2)
    ids = torch.where(ids == 0, -1, ids)
    for tail in ("drop", "renormalize", "unigram", "table 1", "table 3"):
        for name in ("cpu", "tensors"):
            with kernels(name):
                gradient = gradient_of(make(tail), logits, ids, logprobs)
            assert gradient.isfinite().all() and not gradient[..., 0].any(), (tail, name)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("smoother", SMOOTHERS)
def test_entropies_of_all_histories(smoother, order):
    table = fitted(smoother, order)
    histories = [table.trie.ngram(node) for node in range(table.trie.num_histories)] if order > 1 else []
    rows = table.prob([*histories, ()])
    expected = -(rows * np.log(np.where(rows > 0, rows, 1))).sum(1)
    found = history_entropies(table)
    np.testing.assert_allclose(np.append(found[: len(histories)], found[-1]), expected, atol=1e-9)


def test_copies_pickles_and_devices():
    loss, logits = make("table 3"), draw(*LABELS.shape, V).requires_grad_()
    given = (LABELS, *teacher(), CONTEXTS)
    expected = loss(logits, *given).total
    moved = make("table 3").to("meta").to_empty(device="cpu")
    for same in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), moved):
        assert torch.equal(same(logits, *given).total, expected)
    assert not list(loss.state_dict())
    assert "tail=table, gamma=0.5" in repr(loss)
    assert make("distribution").signature["distribution"] == DISTRIBUTION.tolist()


def call(tail="uniform", labels=LABELS, ids=None, logprobs=None, size=V, **options):
    given = teacher()
    ids, logprobs = given[0] if ids is None else ids, given[1] if logprobs is None else logprobs
    return make(tail, **options)(draw(*labels.shape, size).requires_grad_(), labels, ids, logprobs, CONTEXTS)


def changed(tensor, value):
    tensor = tensor.clone()
    tensor[0, 0, 0] = value
    return tensor


IDS, LOGPROBS = teacher()
TWICE = IDS.clone()
TWICE[0, 0, 1] = TWICE[0, 0, 0]
MISTAKES = [
    (lambda: call(ids=changed(IDS, V)), "hold the id 8, which is outside 0 to 7"),
    (lambda: call(ids=changed(IDS, -2)), "hold the id -2"),
    (lambda: call(ids=TWICE), r"has the id \d twice at a position.*each word once"),
    (
        lambda: call(logprobs=changed(LOGPROBS, 0.1)),
        r"probabilities sum to .* at a position.*natural logarithms.*1\.01",
    ),
    (lambda: call(logprobs=changed(LOGPROBS, torch.nan)), "hold NaN"),
    (lambda: call(ids=IDS[..., :2]), r"ids \(3, 4, 2\) and logprobs \(3, 4, 3\) do not fit labels \(3, 4\)"),
    (lambda: call(ids=IDS[:, :2], logprobs=LOGPROBS[:, :2]), "do not fit labels.*aligned"),
    (lambda: call(ids=IDS.repeat(1, 1, 3), logprobs=LOGPROBS.repeat(1, 1, 3)), "names 9 words of a vocabulary of 8"),
    (lambda: call(ids=IDS.float()), "ids are torch.float32"),
    (lambda: call(gamma=1.5), "gamma must be from 0 to 1, not 1.5"),
    (lambda: call(gamma=float("nan")), "gamma must be from 0 to 1, not nan"),
    (lambda: call(temperature=0.0), "temperature must be above 0"),
    (lambda: call("table 2", temperature=2.0), 'temperature=2.0 is not defined.*tail="renormalize"'),
    (lambda: SparseTargetCrossEntropy("unigrams"), "tail='unigrams' is unknown.*choose from drop, renormalize"),
    (lambda: SparseTargetCrossEntropy("unigram"), 'tail="unigram" needs the counts'),
    (lambda: SparseTargetCrossEntropy([0.5, 0.6]), "is not a distribution over the vocabulary"),
    (lambda: SparseTargetCrossEntropy(counted(2)), "Counts was given where a tail is expected"),
    (lambda: make("drop")(draw(*LABELS.shape, V).requires_grad_(), LABELS), "the teacher is missing"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_mistakes_are_one_line_with_a_hint(mistake, message):
    with pytest.raises(InputError, match=message) as caught:
        mistake()
    assert caught.value.hint and "\n" not in str(caught.value.args[0])


@pytest.mark.parametrize("tail", ["table 2", "distribution"])
def test_a_tail_of_another_vocabulary(tail):
    with pytest.raises(VocabularyMismatch, match=r"has 8 ids, the logits 9"):
        call(tail, size=V + 1)
    loss = make(tail, linear=True)
    with pytest.raises(VocabularyMismatch, match=r"has 8 ids, the output matrix 9"):
        loss(draw(*LABELS.shape, WIDTH), draw(V + 1, WIDTH), LABELS, IDS, LOGPROBS, CONTEXTS)


def test_the_names_are_public():
    assert ld.SparseTargetCrossEntropy is SparseTargetCrossEntropy
    assert ld.LinearSparseTargetCrossEntropy is LinearSparseTargetCrossEntropy


@pytest.mark.parametrize("kernels", ["cpu", "tensors"])
@pytest.mark.parametrize("tail", ["renormalize", "table 3"])
def test_gradcheck_passes_with_its_default_settings(tail, kernels):
    logits, hidden, weight = (
        draw(*shape).double().requires_grad_() for shape in ((3, 4, V), (3, 4, WIDTH), (V, WIDTH))
    )
    loss, linear, named = make(tail, gamma=0.6), make(tail, linear=True, gamma=0.6), teacher()
    with using(kernels):
        assert torch.autograd.gradcheck(lambda z: loss(z, LABELS, *named, CONTEXTS).total, logits)
        given = hidden, weight
        assert torch.autograd.gradcheck(lambda h, w: linear(h, w, LABELS, *named, CONTEXTS).total, given)
