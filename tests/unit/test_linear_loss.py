"""LinearSmoothedCrossEntropy equals SmoothedCrossEntropy of the projection, however it is cut into chunks.

Every test runs with the CPU's kernels and with plain tensor operations, which keep the same promises.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.smoothing_cases import VOCAB, counted, fitted

from lidstone.errors import InputError, VocabularyMismatch
from lidstone.loss.kernels import chunks
from lidstone.loss.kernels.protocol import using
from lidstone.loss.losses import LinearSmoothedCrossEntropy, SmoothedCrossEntropy

TABLE, COUNTS = fitted("kneser-essen-ney", 3), counted(3)
LABELS = torch.tensor([[2, 3, -100, 4, 1], [5, 6, 1, -100, -100]])
POSITIONS, WIDTH = LABELS.numel(), 3
KEPT = int((LABELS >= 0).sum())
FORMS = list(itertools.product(("exact", "published"), ("token", "ngram")))


@pytest.fixture(params=["cpu", "tensors"], autouse=True)
def kernels(request):
    with using(request.param):
        yield request.param


def set_chunk(monkeypatch, positions):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4 * VOCAB.size * positions)


def leaves(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = (*LABELS.shape, WIDTH), (VOCAB.size, WIDTH), (VOCAB.size,)
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


def both(chunked, on_logits, **call):
    """Parts and gradients of the two forms."""
    found = []
    for loss in (chunked, on_logits):
        hidden, weight, bias = leaves()
        if loss is chunked:
            parts = loss(hidden, weight, LABELS, bias=bias, **call)
        else:
            parts = loss(hidden @ weight.T + bias, LABELS, **call)
        found.append((parts, torch.autograd.grad(parts.total * 2, [hidden, weight, bias])))
    return found


def agree(found):
    (parts, gradients), (other_parts, other_gradients) = found
    for one, other in zip((*parts, *gradients), (*other_parts, *other_gradients), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6)


@pytest.mark.filterwarnings("ignore:.*no lower bound")
@pytest.mark.parametrize(("form", "empirical"), FORMS)
@pytest.mark.parametrize("positions", range(1, KEPT + 2))
def test_any_size_of_chunks(monkeypatch, positions, form, empirical):
    set_chunk(monkeypatch, positions)
    options = {"gamma_plus": 0.4, "gamma_minus": 0.7, "form": form, "empirical": empirical}
    agree(both(*(kind(TABLE, COUNTS, **options) for kind in (LinearSmoothedCrossEntropy, SmoothedCrossEntropy))))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("num_items", [None, 20])
def test_reductions_and_num_items(monkeypatch, reduction, num_items):
    set_chunk(monkeypatch, 2)
    options = {"gamma": 0.3, "reduction": reduction}
    agree(
        both(
            *(kind(TABLE, **options) for kind in (LinearSmoothedCrossEntropy, SmoothedCrossEntropy)),
            num_items=num_items,
        )
    )


def test_histories_of_any_shape(monkeypatch):
    set_chunk(monkeypatch, 2)
    losses = LinearSmoothedCrossEntropy(TABLE, gamma=0.9), SmoothedCrossEntropy(TABLE, gamma=0.9)
    contexts = torch.tensor([[VOCAB.bos, 2, 3, 6, 4], [4, 5, 6, 1, -1]])
    agree(both(*losses, histories=contexts))
    hidden, weight, _ = leaves()
    row = losses[0](hidden[0], weight, LABELS[0], contexts[0]).total
    torch.testing.assert_close(row, losses[1](hidden[0] @ weight.T, LABELS[0], contexts[0]).total)


def test_without_a_table_and_without_bias():
    hidden, weight, _ = leaves()
    found = LinearSmoothedCrossEntropy()(hidden, weight, LABELS).total
    expected = torch.nn.functional.cross_entropy((hidden @ weight.T).reshape(-1, VOCAB.size), LABELS.reshape(-1))
    torch.testing.assert_close(found, expected)


def test_a_negative_factor():
    hidden, weight, bias = leaves()
    loss = LinearSmoothedCrossEntropy(TABLE, gamma=0.3)
    up = torch.autograd.grad(-loss(hidden, weight, LABELS, bias=bias).total, [hidden, weight, bias])
    down = torch.autograd.grad(loss(hidden, weight, LABELS, bias=bias).total, [hidden, weight, bias])
    for one, other in zip(up, down, strict=True):
        torch.testing.assert_close(one, -other)


def test_only_what_needs_a_gradient_gets_one():
    hidden, weight, _ = leaves()
    LinearSmoothedCrossEntropy(TABLE, gamma=0.3)(hidden, weight.detach(), LABELS).total.backward()
    assert hidden.grad is not None
    assert weight.grad is None
    LinearSmoothedCrossEntropy(TABLE, gamma=0.3)(hidden.detach(), weight, LABELS).total.backward()
    assert weight.grad.abs().sum() > 0


def test_no_grad_is_plain_and_makes_no_gradients(monkeypatch):
    def fail(*_):
        raise AssertionError("gradients were made")

    hidden, weight, bias = leaves()
    loss = LinearSmoothedCrossEntropy(TABLE, gamma=0.3)
    expected = SmoothedCrossEntropy()(hidden @ weight.T + bias, LABELS).total.item()
    monkeypatch.setattr(chunks.LinearGradients, "add", fail)
    with torch.no_grad():
        parts = loss(hidden, weight, LABELS, bias=bias)
    assert parts.total.item() == pytest.approx(expected)
    assert not parts.total.requires_grad
    monkeypatch.undo()
    loss.eval()
    assert loss(hidden, weight, LABELS, bias=bias).total.item() == pytest.approx(expected)


def test_ignored_positions_get_no_gradient_even_if_they_hold_nan():
    hidden, weight, bias = leaves()
    with torch.no_grad():
        hidden[LABELS < 0] = torch.nan
    value = LinearSmoothedCrossEntropy(TABLE, gamma=0.3)(hidden, weight, LABELS, bias=bias).total
    value.backward()
    assert (hidden.grad[LABELS < 0] == 0).all()
    for leaf in (hidden, weight, bias):
        assert leaf.grad.isfinite().all()


def test_all_positions_ignored():
    hidden, weight, bias = leaves()
    value = LinearSmoothedCrossEntropy(TABLE, gamma=0.3)(hidden, weight, torch.full_like(LABELS, -100), bias=bias).total
    value.backward()
    assert value.item() == 0
    assert all((leaf.grad == 0).all() for leaf in (hidden, weight, bias))


def test_bfloat16_is_no_worse_than_the_form_on_logits(monkeypatch):
    """Both project in bfloat16; the truth is float64. The chunked weight gradient is summed in float32."""
    set_chunk(monkeypatch, 2)
    hidden, weight, bias = (leaf.detach().double().requires_grad_() for leaf in leaves(torch.bfloat16))
    truth_parts = SmoothedCrossEntropy(TABLE, gamma=0.3)(hidden @ weight.T + bias, LABELS)
    truth = torch.autograd.grad(truth_parts.total, [hidden, weight, bias])
    errors = []
    for kind in (LinearSmoothedCrossEntropy, SmoothedCrossEntropy):
        h, w, b = leaves(torch.bfloat16)
        loss = kind(TABLE, gamma=0.3)
        parts = loss(h, w, LABELS, bias=b) if kind is LinearSmoothedCrossEntropy else loss(h @ w.T + b, LABELS)
        assert parts.total.dtype == torch.float32
        found = torch.autograd.grad(parts.total, [h, w, b])
        assert {gradient.dtype for gradient in found} == {torch.bfloat16}
        errors.append([(one.double() - right).abs().mean().item() for one, right in zip(found, truth, strict=True)])
        assert parts.total.item() == pytest.approx(truth_parts.total.item(), rel=1e-2)
    for chunked, on_logits in zip(*errors, strict=True):
        assert chunked <= on_logits * 1.25


def test_autocast_projects_in_bfloat16_and_sums_in_float32():
    hidden, weight, bias = leaves()
    loss = LinearSmoothedCrossEntropy(TABLE, gamma=0.3)
    exact = loss(hidden, weight, LABELS, bias=bias).total
    with torch.autocast("cpu", dtype=torch.bfloat16):
        parts = loss(hidden, weight, LABELS, bias=bias)
    value = parts.total
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(exact.item(), rel=1e-2)
    value.backward()
    assert {leaf.grad.dtype for leaf in (hidden, weight, bias)} == {torch.float32}
    logits = torch.nn.functional.linear(hidden.bfloat16(), weight.bfloat16(), bias.bfloat16())
    expected = SmoothedCrossEntropy(TABLE, gamma=0.3)(logits, LABELS)
    assert parts.nll.item() == pytest.approx(expected.nll.item(), rel=1e-6)
    assert value.item() == pytest.approx(
        expected.total.item(), rel=1e-4
    )  # the base does not pass through rounded logits


@pytest.mark.parametrize("num_items", [8, 1 << 16])
def test_half_precision_does_not_lose_what_many_tokens_share(num_items):
    """As under a GradScaler: the scaled gradient fits float16, and must not have vanished on the way."""
    hidden, weight, bias = leaves()
    loss = LinearSmoothedCrossEntropy(TABLE, gamma=0.3)
    expected = torch.autograd.grad(loss(hidden, weight, LABELS, bias=bias, num_items=num_items).total * 2**16, [hidden])
    with torch.autocast("cpu", dtype=torch.float16):
        value = loss(hidden, weight, LABELS, bias=bias, num_items=num_items).total
    found = torch.autograd.grad(value * 2**16, [hidden])
    assert (found[0] - expected[0]).norm() < 2e-3 * expected[0].norm()


def test_a_second_backward_is_refused():
    hidden, weight, _ = leaves()
    value = LinearSmoothedCrossEntropy()(hidden, weight, LABELS).total
    value.backward(retain_graph=True)
    with pytest.raises(InputError, match="differentiated once"):
        value.backward()


def test_second_derivatives_are_refused():
    hidden, weight, _ = leaves()
    value = LinearSmoothedCrossEntropy(TABLE, gamma=0.3)(hidden, weight, LABELS).total
    with pytest.raises(InputError, match=r"no second derivative.*hint: leave out create_graph=True"):
        torch.autograd.grad(value, hidden, create_graph=True)


@pytest.mark.parametrize("place", range(3))
def test_the_meta_device_is_refused(place):
    given = [*leaves()[:2], LABELS]
    given[place] = given[place].to("meta")
    with pytest.raises(InputError, match="the meta device, which holds no numbers"):
        LinearSmoothedCrossEntropy(TABLE, gamma=0.3)(*given)


def test_nan_is_reported():
    hidden, weight, _ = leaves()
    with torch.no_grad():
        hidden[0, 0] = torch.nan
    with pytest.warns(UserWarning, match="the loss is not finite: the logits"):
        assert LinearSmoothedCrossEntropy(TABLE, gamma=0.3)(hidden, weight, LABELS).total.isnan()


class TestMistakes:
    def test_a_value_per_position_is_not_offered(self):
        hidden, weight, _ = leaves()
        with pytest.raises(InputError, match="the linear loss sums over positions"):
            LinearSmoothedCrossEntropy(TABLE, gamma=0.3, reduction="none")(hidden, weight, LABELS)

    def test_shapes_that_do_not_fit(self):
        hidden, weight, _ = leaves()
        loss = LinearSmoothedCrossEntropy(TABLE, gamma=0.3)
        for wrong in ((hidden[..., :2], weight, LABELS), (hidden, weight, LABELS[:, :2])):
            with pytest.raises(InputError, match="do not fit"):
                loss(*wrong)

    def test_an_output_matrix_of_another_size(self):
        hidden, _, _ = leaves()
        with pytest.raises(VocabularyMismatch, match="the table has 8 ids, the output matrix 9"):
            LinearSmoothedCrossEntropy(TABLE, gamma=0.3)(hidden, torch.zeros(9, WIDTH), LABELS)

    def test_labels_out_of_range(self):
        hidden, weight, _ = leaves()
        with pytest.raises(InputError, match="labels hold the id 8, which is outside 0 to 7"):
            LinearSmoothedCrossEntropy()(hidden, weight, torch.full_like(LABELS, 8))

    def test_histories_out_of_range(self):
        hidden, weight, _ = leaves()
        with pytest.raises(InputError, match="histories hold the id 9, which is outside 0 to 8"):
            LinearSmoothedCrossEntropy(TABLE, gamma=0.3)(hidden, weight, LABELS, torch.full_like(LABELS, 9))


def test_the_trainers_call_names_the_remedy() -> None:
    """`compute_loss_func=LinearSmoothedCrossEntropy(...)` is called with outputs and labels."""
    with pytest.raises(InputError, match="needs hidden states") as caught:
        LinearSmoothedCrossEntropy()({"logits": torch.zeros(1, 2, 3)}, torch.tensor([[1, 2]]), num_items_in_batch=2)
    assert "SmoothedLossMixin" in caught.value.hint
