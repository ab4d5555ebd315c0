"""The plain tensor code: how many operations a step takes, how often the host waits, and offsets of the logits."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from tests.smoothing_cases import VOCAB, counted, fitted
from torch.utils._python_dispatch import TorchDispatchMode

from lidstone.errors import InputError
from lidstone.loss import operators
from lidstone.loss.kernels import chunks, protocol
from lidstone.loss.kernels.protocol import kernel_name, using
from lidstone.loss.losses import LinearSmoothedCrossEntropy, SmoothedCrossEntropy

# what starts no work on a device: views, and memory that is not filled
VIEWS = {"view", "_unsafe_view", "_reshape_alias", "select", "unsqueeze", "detach", "slice", "unbind", "expand"}
VIEWS |= {"alias", "t", "new_empty"}
# what makes the host wait: the value or the size of the result must be known
WAITS = {"item", "_local_scalar_dense", "nonzero", "unique", "_unique2", "is_nonzero", "equal", "masked_select"}
WAITS |= {"tolist"}


class Operations(TorchDispatchMode):
    """Counts operations, inside our own operators too.

    An operation that torch puts together from others counts as those: `reshape` as nothing where it is a view and as
    `clone` where it copies, `to` as `_to_copy` where it converts.
    """

    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        options, name = options or {}, operation.name().split("::")[1].split(".")[0]
        with self:
            if operation.namespace == "lidstone":
                return getattr(operators, name)._init_fn(*arguments, **options)
            parts = operation.decompose(*arguments, **options)
        if parts is not NotImplemented:
            return parts
        boolean = name == "index" and any(i is not None and i.dtype == torch.bool for i in arguments[1])
        sized = name == "repeat_interleave" and "output_size" not in options
        self.found["nonzero" if boolean or sized else name] += 1
        return operation(*arguments, **options)


@pytest.fixture
def other_device(monkeypatch):
    """Treat the CPU as a device for which the host has to wait; count `tolist`, which torch does not dispatch."""
    reads, tolist = Counter(), torch.Tensor.tolist

    def counted_tolist(tensor):
        reads["tolist"] += 1
        return tolist(tensor)

    monkeypatch.setattr(protocol, "HOST_READABLE", ())
    monkeypatch.setattr(torch.Tensor, "tolist", counted_tolist)
    return reads


def operations_of_a_step(kind, empirical, positions, reads):
    loss = kind(fitted("katz", 3), counted(3), gamma=0.3, form="published", empirical=empirical)
    ids = torch.randint(2, 7, (2, positions // 2))
    leaves = [torch.randn(*ids.shape, VOCAB.size, requires_grad=True)]
    if kind is LinearSmoothedCrossEntropy:
        leaves.append(torch.randn(VOCAB.size, VOCAB.size, requires_grad=True))
    with using("tensors"):
        loss(*leaves, ids, ids).total.backward()  # makes the lookup of the table, once
        reads.clear()
        for leaf in leaves:
            leaf.grad = None
        with Operations() as operations:
            loss(*leaves, ids, ids).total.backward()
    return Counter({name: number for name, number in operations.found.items() if name not in VIEWS}) + reads


def waits(found):
    return sum(number for name, number in found.items() if name in WAITS)


@pytest.mark.parametrize("empirical", ["token", "ngram"])
def test_a_step_takes_few_operations_and_one_wait_whatever_its_size(empirical, other_device):
    kind = SmoothedCrossEntropy
    small, large = (operations_of_a_step(kind, empirical, positions, other_device) for positions in (8, 128))
    assert small == large
    assert waits(large) == 1
    assert large.total() <= 80


@pytest.mark.parametrize("empirical", ["token", "ngram"])
def test_the_linear_loss_waits_once_for_all_chunks(empirical, other_device, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4 * VOCAB.size * 8)
    few, many = (
        operations_of_a_step(LinearSmoothedCrossEntropy, empirical, positions, other_device) for positions in (8, 128)
    )
    assert many["index_add_"] == 16 * few["index_add_"] == 16  # so many chunks
    assert waits(few) == waits(many) == many["tolist"] == 1


@pytest.mark.parametrize("kernels", ["cpu", "tensors"])
@pytest.mark.parametrize("empirical", ["token", "ngram"])
def test_a_common_offset_of_the_logits_changes_nothing(empirical, kernels):
    """Logits near 1e5 have steps of 1/128, so multiples of that are exact with and without the offset."""
    loss = SmoothedCrossEntropy(fitted("katz", 3), counted(3), gamma=0.3, form="published", empirical=empirical)
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, 7, (3, 6), generator=generator)
    near = torch.randint(-512, 512, (3, 6, VOCAB.size), generator=generator) / 128
    found = []
    with using(kernels):
        for offset in (0.0, 1e5, -1e5):
            logits = (near + offset).requires_grad_()
            value = loss(logits, labels).total
            found.append((value.detach(), torch.autograd.grad(value, logits)[0]))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kernels", ["cpu", "tensors"])
def test_an_offset_in_the_bias_of_the_linear_loss(kernels):
    loss = LinearSmoothedCrossEntropy(fitted("katz", 3), gamma=0.3)
    hidden, weight = torch.zeros(1, 4, 2), torch.zeros(VOCAB.size, 2)
    bias = torch.arange(VOCAB.size) / 4
    labels = torch.tensor([[2, 3, 4, 5]])
    with using(kernels):
        near, far = (loss(hidden.requires_grad_(), weight, labels, bias=b).total.item() for b in (bias, bias + 1e5))
    assert far == pytest.approx(near, rel=1e-6)


def test_plain_loss_far_from_zero_is_as_exact_as_torch():
    generator = torch.Generator().manual_seed(0)
    logits, labels = (
        torch.randn(4, 30, 50, generator=generator) + 1e5,
        torch.randint(0, 50, (4, 30), generator=generator),
    )
    truth = F.cross_entropy(logits.double().flatten(0, 1), labels.flatten()).item()
    assert SmoothedCrossEntropy()(logits, labels).total.item() == pytest.approx(truth, rel=5e-7)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bool])
@pytest.mark.parametrize("kind", [SmoothedCrossEntropy, LinearSmoothedCrossEntropy])
def test_labels_must_be_signed_integers(kind, dtype):
    labels = torch.ones(1, 3).to(dtype)
    scores = [torch.zeros(1, 3, 8)] if kind is SmoothedCrossEntropy else [torch.zeros(1, 3, 2), torch.zeros(8, 2)]
    with pytest.raises(InputError, match=f"labels are {dtype}, not integers with a sign. hint: pass labels.long()"):
        kind()(*scores, labels)


def test_the_gradient_may_take_the_memory_of_the_logits():
    losses = [SmoothedCrossEntropy(fitted("katz", 2), gamma=0.3, inplace_gradient=inplace) for inplace in (False, True)]
    leaf, labels = torch.randn(1, 5, VOCAB.size, requires_grad=True), torch.tensor([[2, 3, 4, 5, 1]])
    expected = torch.autograd.grad(losses[0](leaf * 2, labels).total, leaf)[0]
    scores = leaf * 2
    torch.testing.assert_close(torch.autograd.grad(losses[1](scores, labels).total, leaf)[0], expected)
    torch.testing.assert_close(scores.detach() * 2, expected)
    squared = leaf.exp()  # whose gradient needs its result: autograd notices that it is gone
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        losses[1](squared, labels).total.backward()


def test_kernels_that_are_not_there(monkeypatch):
    monkeypatch.setenv("LIDSTONE_KERNELS", "cuda")
    with pytest.raises(InputError, match=r"no kernels named 'cuda'\. hint: choose from cpu, triton, tensors"):
        kernel_name(torch.device("cpu"))
