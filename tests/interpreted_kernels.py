"""Run the Triton programs on CPU tensors, against the dense reference; prints the largest errors as JSON.

    TRITON_INTERPRET=1 python -m tests.interpreted_kernels

On a machine with a GPU, `--device cuda` runs the same cases there, compiled.
"""

from __future__ import annotations

import argparse
import itertools
import json
import warnings
from typing import Any

import torch
from torch import Tensor

from lidstone.loss.kernels import chunks
from lidstone.loss.kernels.protocol import using
from lidstone.loss.losses import LinearSmoothedCrossEntropy, SmoothedCrossEntropy
from lidstone.loss.reference import dense_loss, dense_target, taught_target
from lidstone.loss.teacher import LinearSparseTargetCrossEntropy, SparseTargetCrossEntropy
from lidstone.ngram.counts import count
from lidstone.ngram.smoothers.base import FallbackUsed
from lidstone.ngram.smoothers.kneser_essen_ney import KneserEssenNey
from lidstone.text.history import histories_of
from lidstone.text.vocabulary import Vocabulary

FORMS = list(itertools.product(("exact", "published"), ("token", "ngram")))
SMALL = Vocabulary(size=23, eos=1, unpredictable=(0,))
LARGE = Vocabulary(size=5003, eos=1, unpredictable=(0,))
DEVICE = "cpu"


def random_text(vocab: Vocabulary, seed: int = 0) -> list[list[int]]:
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 14, (60,), generator=draw).tolist()
    return [torch.randint(2, min(vocab.size - 1, 12), (n,), generator=draw).tolist() for n in lengths]


def wide_text() -> list[list[int]]:
    """After the word 2 come 1,500 others, more than a program takes at once; after 3 3 come 700."""
    return [[2, word] for word in range(10, 1510)] + [[3, 3, word] for word in range(10, 710)] + random_text(LARGE)


TEXTS = {"small": (SMALL, random_text(SMALL)), "large": (LARGE, wide_text())}


def problem(
    size: str, order: int, seed: int, shape: tuple[int, int] = (2, 9)
) -> tuple[Any, Any, Tensor, Tensor, Tensor]:
    """Table and counts, contexts, labels and logits, with everything that can happen to a history."""
    vocab, text = TEXTS[size]
    counts = count(text, vocab, order)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackUsed)
        table = KneserEssenNey(fallback=0.5).fit(counts)
    draw = torch.Generator().manual_seed(seed)
    stream = torch.tensor([token for sentence in text for token in (*sentence, vocab.eos)])
    start = int(torch.randint(0, len(stream) - shape[0] * shape[1] - 1, (1,), generator=draw))
    block = stream[start : start + shape[0] * shape[1] + 1]
    contexts, labels = block[:-1].view(shape).clone(), block[1:].view(shape).clone()
    contexts[0, 2], contexts[1, 0], contexts[1, 4] = -1, vocab.bos, 0
    labels[0, 5], labels[1, 1], labels[1, 6] = -100, vocab.size - 1, 0
    if size == "large":
        contexts[0, 3], contexts[1, 2:4] = 2, 3
    return table, counts, contexts, labels, 3 * torch.randn(*shape, vocab.size, generator=draw)


def expected(table: Any, text: Any, contexts: Tensor, labels: Tensor, logits: Tensor, **options: Any) -> list[Tensor]:
    """Value and gradient of the dense reference, in float64."""
    z = logits.double().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(labels)):
        histories = histories_of(contexts[row].tolist(), table.vocab, table.order)
        kept = [i for i, label in enumerate(labels[row].tolist()) if label >= 0]
        made = [dense_target(table, text, histories[i], int(labels[row, i]), **options) for i in kept]
        if kept:
            total = total + dense_sum(z[row, kept], torch.stack(made))
    return [total.detach(), torch.autograd.grad(total, z)[0] if total.requires_grad else torch.zeros_like(z)]


def dense_sum(logits: Tensor, targets: Tensor) -> Tensor:
    """The reference, with 0 log 0 = 0 for masked ids."""
    if logits.isfinite().all():
        return dense_loss(logits, targets)
    logs = torch.log_softmax(logits, -1)
    return -(targets * logs.masked_fill(targets == 0, 0.0)).sum()


def found(
    kind: Any, leaves: list[Tensor], labels: Tensor, contexts: Tensor, table: Any, counts: Any, **options: Any
) -> list[Tensor]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no lower bound")
        loss = kind(table, counts, reduction="sum", **options).to(DEVICE)
    with using("triton"):
        parts = loss(*(leaf.to(DEVICE) for leaf in leaves), labels.to(DEVICE), contexts.to(DEVICE))
        gradients = torch.autograd.grad(parts.total, leaves)
    summed = (parts.nll + parts.plus + parts.minus - parts.total).abs()
    return [parts.total.detach().cpu(), *(gradient.cpu() for gradient in gradients), summed.cpu()]


def errors(got: list[Tensor], want: list[Tensor]) -> dict[str, float]:
    value = (got[0].double() - want[0]).abs() / want[0].abs().clamp(min=1)
    gradients = [(one.double() - other).abs().max().item() for one, other in zip(got[1:-1], want[1:], strict=True)]
    return {"value": value.item(), "gradient": max(gradients), "parts": got[-1].item() / max(1.0, abs(want[0].item()))}


def check(size: str, order: int, form: str, empirical: str, change: Any = None, **more: Any) -> dict[str, float]:
    table, counts, contexts, labels, logits = problem(size, order, seed=order)
    options = {"gamma_plus": 0.4, "gamma_minus": 0.7, "form": form, "empirical": empirical}
    if change is masked:
        labels[labels == 0] = -100
    logits = logits if change is None else change(logits, labels)
    want = expected(table, TEXTS[size][1], contexts, labels, logits, **options)
    return errors(
        found(SmoothedCrossEntropy, [logits.requires_grad_()], labels, contexts, table, counts, **options, **more), want
    )


def check_linear(order: int, form: str, empirical: str, rows: int) -> dict[str, float]:
    table, counts, contexts, labels, _ = problem("small", order, seed=order)
    options = {"gamma_plus": 0.4, "gamma_minus": 0.7, "form": form, "empirical": empirical}
    draw = torch.Generator().manual_seed(1)
    hidden, weight = torch.randn(*labels.shape, 5, generator=draw), torch.randn(SMALL.size, 5, generator=draw)
    leaves = [hidden.requires_grad_(), weight.requires_grad_()]
    logits = hidden.double() @ weight.double().T
    value, gradient = expected(table, TEXTS["small"][1], contexts, labels, logits.detach(), **options)
    want = [value, *torch.autograd.grad(logits, leaves, gradient)]
    with torch.no_grad():
        hidden[labels < 0] = torch.nan
    chunks.CHUNK_BYTES = 4 * SMALL.size * rows
    return errors(found(LinearSmoothedCrossEntropy, leaves, labels, contexts, table, counts, **options), want)


def masked(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.index_fill(-1, torch.tensor([0]), -torch.inf)


def far(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits + 1e5).float()


def hidden_nan(logits: Tensor, labels: Tensor) -> Tensor:
    """NaN where labels are ignored; the reference does not look there."""
    return logits.masked_fill((labels < 0)[..., None], 0.0)


def cut(logits: Tensor, labels: Tensor) -> Tensor:
    """The same numbers as a slice of longer logits, as in logits[:, :-1]."""
    wide = torch.cat([logits, logits[:, :1]], 1)
    return wide[:, :-1]


def turned(logits: Tensor, labels: Tensor) -> Tensor:
    """Time before batch in memory."""
    return logits.transpose(0, 1).contiguous().transpose(0, 1)


def check_half(dtype: torch.dtype, order: int, empirical: str) -> dict[str, float]:
    return check("small", order, "published", empirical, lambda logits, labels: logits.to(dtype))


def check_ignored_nan() -> dict[str, float]:
    table, counts, contexts, labels, logits = problem("small", 3, seed=3)
    options = {"gamma_plus": 0.4, "gamma_minus": 0.7, "form": "exact", "empirical": "token"}
    want = expected(table, TEXTS["small"][1], contexts, labels, hidden_nan(logits, labels), **options)
    broken = logits.masked_fill((labels < 0)[..., None], torch.nan).requires_grad_()
    return errors(found(SmoothedCrossEntropy, [broken], labels, contexts, table, counts, **options), want)


def teacher(labels: Tensor, size: int, k: int) -> tuple[Tensor, Tensor]:
    """The k most probable words of random distributions, one the label; one place is unused, one position empty."""
    noise = torch.randn(*labels.shape, size, generator=torch.Generator().manual_seed(9))
    logits = noise.scatter(-1, labels.clamp(min=0)[..., None], 4.0)
    logprobs, ids = (1.5 * logits).log_softmax(-1).topk(k)
    ids[0, 1, -1], ids[1, 3] = -1, -1
    return ids, logprobs


def check_taught(tail: str, k: int, size: str = "small", linear: bool = False, change: Any = None) -> dict[str, float]:
    """A teacher completed by a rule, or by the table of an order."""
    order = int(tail[-1]) if tail.startswith("table") else 1
    table, _, contexts, labels, logits = problem(size, order, seed=order)
    ids, logprobs = teacher(labels, table.vocab.size, k)
    if change is masked:
        labels[labels == 0], ids[ids == 0] = -100, -1
    leaves = [logits if change is None else change(logits, labels)]
    if linear:
        leaves = [draw_normal(*labels.shape, 5), draw_normal(table.vocab.size, 5)]
        chunks.CHUNK_BYTES = 4 * SMALL.size * 4
    leaves = [leaf.requires_grad_() for leaf in leaves]
    double = [leaf.detach().double().requires_grad_() for leaf in leaves]
    scores = double[0] @ double[1].T if linear else double[0]
    total = torch.zeros((), dtype=torch.float64)
    for row, at in (labels >= 0).nonzero().tolist():
        history = histories_of(contexts[row].tolist(), table.vocab, order)[at]
        row_of = {"uniform": torch.full((table.vocab.size,), 1 / table.vocab.size, dtype=torch.float64), "drop": "drop"}
        other = row_of.get(tail, torch.tensor(table.prob([history])[0]))
        words = ids[row, at].tolist(), logprobs[row, at].tolist(), int(labels[row, at])
        target, _ = taught_target(*words, other, gamma=0.6, size=table.vocab.size)
        total = total + dense_sum(scores[row, at][None], target[None])
    want = [total.detach(), *torch.autograd.grad(total, double)]
    kind = LinearSparseTargetCrossEntropy if linear else SparseTargetCrossEntropy
    loss = kind(table if tail.startswith("table") else tail, gamma=0.6, reduction="sum").to(DEVICE)
    with using("triton"):
        given = (labels, ids, logprobs, contexts)
        parts = loss(*(leaf.to(DEVICE) for leaf in leaves), *(each.to(DEVICE) for each in given))
        gradients = torch.autograd.grad(parts.total, leaves)
    mixed = (0.4 * parts.nll + 0.6 * parts.cross_entropy - parts.total).abs().cpu()
    unused = torch.zeros(()) if tail == "drop" else mixed  # there the position without words has the plain loss
    return errors([parts.total.detach().cpu(), *(gradient.cpu() for gradient in gradients), unused], want)


def draw_normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def check_out_of_range() -> dict[str, float]:
    """A label outside the vocabulary gives NaN, not a number that looks right."""
    table, counts, contexts, labels, logits = problem("small", 2, seed=2)
    labels[0, 0] = SMALL.size
    got = found(SmoothedCrossEntropy, [logits.requires_grad_()], labels, contexts, table, counts, gamma=0.3)
    return {"value": float(not got[0].isnan()), "gradient": 0.0, "parts": 0.0}


def check_plain() -> dict[str, float]:
    *_, labels, logits = problem("large", 2, seed=5)
    z = logits.clone().requires_grad_()
    with using("triton"):
        parts = SmoothedCrossEntropy(reduction="sum")(z.to(DEVICE), labels.to(DEVICE))
        gradient = torch.autograd.grad(parts.total, z)[0]
    double = logits.double().requires_grad_()
    want = torch.nn.functional.cross_entropy(double.flatten(0, 1), labels.flatten(), reduction="sum")
    return errors(
        [parts.total.detach().cpu(), gradient.cpu(), torch.zeros(())],
        [want.detach(), torch.autograd.grad(want, double)[0]],
    )


def check_inplace(order: int) -> dict[str, float]:
    """The gradient takes the memory of the logits."""
    table, counts, contexts, labels, logits = problem("small", order, seed=order)
    options = {"gamma_plus": 0.4, "gamma_minus": 0.7, "form": "exact", "empirical": "token"}
    want = expected(table, TEXTS["small"][1], contexts, labels, logits, **options)
    loss = SmoothedCrossEntropy(table, counts, reduction="sum", inplace_gradient=True, **options).to(DEVICE)
    leaf = logits.to(DEVICE).requires_grad_()
    with using("triton"):
        scores = leaf * 1.0
        total = loss(scores, labels.to(DEVICE), contexts.to(DEVICE)).total
        total.backward()
    held = scores.detach().cpu()  # now the gradient
    return errors([total.detach().cpu(), leaf.grad.cpu(), (held - leaf.grad.cpu()).abs().max()], want)


def cases() -> dict[str, Any]:
    made: dict[str, Any] = {}
    for order, (form, empirical) in itertools.product((1, 2, 3), FORMS):
        made[f"order {order} {form} {empirical}"] = lambda o=order, f=form, e=empirical: check("small", o, f, e)
    for order in (4, 5, 6, 7, 8):
        form, empirical = FORMS[order % 4]
        made[f"order {order} {form} {empirical}"] = lambda o=order, f=form, e=empirical: check("small", o, f, e)
    for empirical in ("token", "ngram"):
        made[f"large {empirical}"] = lambda e=empirical: check("large", 3, "published", e)
        made[f"masked {empirical}"] = lambda e=empirical: check("small", 3, "published", e, masked)
        made[f"linear {empirical}"] = lambda e=empirical: check_linear(3, "published", e, rows=4)
        for dtype in (torch.bfloat16, torch.float16):
            made[f"{dtype} {empirical}"] = lambda d=dtype, e=empirical: check_half(d, 3, e)
    made["masked order 1 ngram"] = lambda: check("small", 1, "published", "ngram", masked)
    for name, change in (("far", far), ("cut", cut), ("turned", turned)):
        made[name] = lambda c=change: check("small", 3, "exact", "token", c)
    made |= {"ignored nan": check_ignored_nan, "out of range": check_out_of_range, "plain": check_plain}
    made["in place"] = lambda: check_inplace(3)
    for tail in ("drop", "uniform", "table 1", "table 3"):
        made[f"teacher {tail}"] = lambda t=tail: check_taught(t, 4)
        made[f"teacher linear {tail}"] = lambda t=tail: check_taught(t, 4, linear=True)
    made["teacher all words"] = lambda: check_taught("table 2", SMALL.size)
    made["teacher of 700 words"] = lambda: check_taught("table 3", 700, "large")
    made["teacher masked"] = lambda: check_taught("table 3", 4, change=masked)
    made["torch.bfloat16 teacher"] = lambda: check_taught("table 3", 4, change=lambda logits, _: logits.bfloat16())
    return made


def main() -> None:
    global DEVICE
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    DEVICE = parser.parse_args().device
    warnings.filterwarnings("ignore", category=RuntimeWarning)  # numpy's, in the interpreter
    print(json.dumps({name: run() for name, run in cases().items()}))


if __name__ == "__main__":
    main()
