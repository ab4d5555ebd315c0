"""Started by torchrun with two processes: each scenario in parallel, and the same step in one process.

torchrun --nproc_per_node 2 parallel_worker.py FOLDER
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tiny_training import Pad, examples, make_loss, make_model
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import lidstone as ld
from lidstone.errors import InputError
from lidstone.hf.alignment import align_causal
from lidstone.hf.projection import Projection

SIZE, WIDTH = 51, 16  # an odd size: the two shards of the vocabulary differ
VOCAB = ld.Vocabulary(size=SIZE, eos=2, unpredictable=(0, 1))
dice = random.Random(3)
TEXT = [[3 + min(dice.randint(0, 47), dice.randint(0, 47)) for _ in range(dice.randint(2, 8))] for _ in range(200)]
COUNTS = ld.count(TEXT, VOCAB, order=3)
TABLE = ld.KneserEssenNey(discount=0.6).fit(COUNTS)
KINDS: dict[str, dict[str, Any]] = {
    "token": {"gamma_plus": 0.3, "gamma_minus": 0.2},
    "ngram": {"gamma_plus": 0.1, "gamma_minus": 0.5, "form": "published", "empirical": "ngram"},
}
TAUGHT = {
    "LinearSmoothedCrossEntropy": "LinearSparseTargetCrossEntropy",
    "SmoothedCrossEntropy": "SparseTargetCrossEntropy",
}
LABELS = torch.tensor([[*words[:8], 2, *[-100] * (8 - len(words))] for words in TEXT[:8]])
INPUTS = torch.cat([torch.full((8, 1), 2), LABELS[:, :-1]], 1).clamp(min=0)
ITEMS = int((LABELS >= 0).sum())


class Tiny(nn.Module):
    """Embedding, a layer, an output matrix; hidden states or logits."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding = nn.Embedding(SIZE, WIDTH)
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, SIZE, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, inputs: Tensor, *, linear: bool = False) -> Tensor:
        hidden = torch.tanh(self.layer(self.embedding(inputs)))
        return hidden if linear else self.head(hidden)


class WithLoss(nn.Module):
    """The loss as a part of the model, as Lightning modules have it."""

    def __init__(self, model: nn.Module, loss: nn.Module) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, inputs: Tensor, labels: Tensor, num_items: Any) -> Tensor:
        return self.loss(self.model(inputs), labels, inputs, num_items).total


class Taught(nn.Module):
    """A loss with a teacher that names three words, which depend on the label."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, *given: Any) -> Any:
        *scores, labels, histories, items = given
        ids = (labels[..., None].clamp(min=0) + torch.arange(3)) % SIZE
        logprobs = torch.tensor([0.5, 0.2, 0.1]).log().expand(ids.shape)
        return self.loss(*scores, labels, ids, logprobs, histories, items)


def make(name: str, kind: str) -> Any:
    if kind == "teacher":
        return Taught(getattr(ld, TAUGHT[name])(TABLE, gamma=0.6))
    return getattr(ld, name)(TABLE, COUNTS, **KINDS[kind])


def mine(rows: Tensor) -> Tensor:
    return rows.chunk(2)[dist.get_rank()]


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """Whole gradients, gathered where they are sharded."""
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {n: (g.full_tensor() if isinstance(g, DTensor) else g).clone() for n, g in found.items()}


def averaged(value: Tensor) -> float:
    value = value.detach().clone()
    dist.all_reduce(value)
    return value.item() / dist.get_world_size()


def alone(kind: str, tied: bool = False) -> tuple[float, dict[str, Tensor]]:
    """The step in one process, on all rows."""
    model = Tiny(tied)
    total = make("SmoothedCrossEntropy", kind)(model(INPUTS), LABELS, INPUTS, ITEMS).total
    total.backward()
    return total.item(), gradients(model)


def ddp(kind: str, steps: int) -> tuple[float, dict[str, Tensor]]:
    """Gradients are averaged over the processes, so each loss counts twice; `steps` micro-batches."""
    core = Tiny()
    model = DistributedDataParallel(WithLoss(core, make("SmoothedCrossEntropy", kind)))
    parts = list(zip(mine(INPUTS).chunk(steps), mine(LABELS).chunk(steps), strict=True))
    value = torch.zeros(())
    for number, (inputs, labels) in enumerate(parts):
        model.require_backward_grad_sync = number == steps - 1
        total = 2 * model(inputs, labels, ITEMS)
        total.backward()
        value += total.detach()
    return averaged(value), gradients(core)


def fsdp(kind: str, linear: bool, head: str) -> tuple[float, dict[str, Tensor]]:
    """The output matrix in the root's group, in a group of its own, or tied to the embedding."""
    model = Tiny(tied=head == "tied")
    mesh = init_device_mesh("cpu", (2,))
    if head == "own":
        fully_shard(model.head, mesh=mesh)
    fully_shard(model.layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    inputs, labels = mine(INPUTS), mine(LABELS)
    if linear:
        hidden = model(inputs, linear=True)
        total = 2 * make("LinearSmoothedCrossEntropy", kind)(hidden, model.head.weight, labels, inputs, ITEMS).total
    else:
        total = 2 * make("SmoothedCrossEntropy", kind)(model(inputs), labels, inputs, ITEMS).total
    total.backward()
    return averaged(total), gradients(model)


def fsdp_projection(own_head: bool) -> tuple[float, dict[str, Tensor]]:
    """What the mixin does with the linear loss: a Hugging Face model, its head taken out of the forward pass."""
    model, mesh = make_model("opt"), init_device_mesh("cpu", (2,))
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone()) if own_head else model.lm_head.weight
    if own_head:
        fully_shard(model.lm_head, mesh=mesh)
    for layer in model.model.decoder.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    loss, projection, total = make_loss("token", linear=True), Projection(model), torch.zeros(())
    for proven in (False, True):  # the first batch is also a probe of the output layer
        model.zero_grad()
        assert projection.proven == proven
        total = hf_step(model, projection, loss, share=2, half=True)
    return averaged(total), gradients(model)


def hf_step(model: Any, projection: Projection, loss: Any, share: float, half: bool) -> Tensor:
    batch = Pad()(examples("opt"))
    items = int((align_causal(batch["labels"]).labels >= 0).sum())
    rows = {name: mine(tensor) if half else tensor for name, tensor in batch.items()}
    labels, histories = align_causal(rows.pop("labels"), rows["input_ids"], rows["attention_mask"])
    parts, _ = projection(model, rows, lambda h, w, b: loss(h, w, labels, histories, items, b))
    total = share * parts.total
    total.backward()
    return total


def alone_projection(own_head: bool) -> tuple[float, dict[str, Tensor]]:
    model = make_model("opt")
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone()) if own_head else model.lm_head.weight
    total = hf_step(model, Projection(model), make_loss("token", linear=True), share=1, half=False)
    return total.item(), gradients(model)


def tensor_parallel(kind: str) -> tuple[float, dict[str, Tensor]]:
    """The output layer gives DTensors of logits that are sharded over the vocabulary, as under loss_parallel."""
    model, mesh = Tiny(), init_device_mesh("cpu", (2,))
    from torch.distributed.tensor import Shard

    parallelize_module(model, mesh, {"head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
    loss = ld.VocabularyParallelCrossEntropy(TABLE, COUNTS, **KINDS[kind], group=mesh.get_group())
    total = loss(model(INPUTS), LABELS, INPUTS, ITEMS).total
    total.backward()
    return total.item(), gradients(model)


def shard_by_hand(kind: str) -> tuple[float, dict[str, Tensor]]:
    """Plain tensors of 40 and 11 columns."""
    model = Tiny()
    start, stop = ((0, 40), (40, SIZE))[dist.get_rank()]
    loss = ld.VocabularyParallelCrossEntropy(TABLE, COUNTS, **KINDS[kind], columns=(start, stop))
    hidden = model(INPUTS, linear=True)
    total = loss(hidden @ model.head.weight[start:stop].T, LABELS, INPUTS, ITEMS).total
    total.backward()
    for parameter in model.parameters():  # each process has its columns' share of the hidden states' gradient
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
    return total.item(), gradients(model)


def evaluation() -> tuple[float, dict[str, Tensor]]:
    loss = ld.VocabularyParallelCrossEntropy(TABLE, gamma=0.5).eval()
    columns = slice(loss.columns.start, loss.columns.stop)
    with torch.no_grad():
        return loss(Tiny()(INPUTS)[..., columns], LABELS).total.item(), {}


def alone_evaluation() -> tuple[float, dict[str, Tensor]]:
    flat = Tiny()(INPUTS).flatten(0, 1)
    return nn.functional.cross_entropy(flat, LABELS.flatten()).item(), {}


def refusals() -> dict[str, str]:
    """What cannot be right, and what is said."""
    loss = ld.VocabularyParallelCrossEntropy(TABLE, gamma=0.5)
    mesh = init_device_mesh("cpu", (2,))
    from torch.distributed.tensor import Shard, distribute_tensor

    logits = torch.zeros(1, 2, SIZE)
    sharded = distribute_tensor(logits, mesh, [Shard(2)]).requires_grad_()
    calls = {
        "all logits": lambda: loss(logits, torch.zeros(1, 2, dtype=torch.long)),
        "sharded logits": lambda: ld.SmoothedCrossEntropy(TABLE, gamma=0.5)(
            sharded, torch.zeros(1, 2, dtype=torch.long)
        ),
    }
    return {name: _message(call) for name, call in calls.items()}


def _message(call: Any) -> str:
    try:
        call()
    except InputError as error:
        return str(error)
    return "nothing"


def main() -> None:
    dist.init_process_group("gloo")
    folder = Path(sys.argv[1])
    scenarios: dict[str, Any] = {}
    for kind in KINDS:
        one = alone(kind)
        scenarios[f"ddp-{kind}"] = ddp(kind, 1), one
        scenarios[f"ddp-accumulation-{kind}"] = ddp(kind, 2), one
        scenarios[f"tensor-parallel-{kind}"] = tensor_parallel(kind), one
        scenarios[f"shard-by-hand-{kind}"] = shard_by_hand(kind), one
        for head in ("root", "own", "tied"):
            for linear in (False, True):
                name = f"fsdp-{'linear' if linear else 'logits'}-{head}-{kind}"
                scenarios[name] = fsdp(kind, linear, head), alone(kind, tied=head == "tied")
    scenarios["ddp-accumulation-teacher"] = ddp("teacher", 2), alone("teacher")
    scenarios["fsdp-logits-root-teacher"] = fsdp("teacher", False, "root"), alone("teacher")
    scenarios["fsdp-linear-tied-teacher"] = fsdp("teacher", True, "tied"), alone("teacher", tied=True)
    for own in (False, True):
        scenarios[f"fsdp-projection-{'own' if own else 'tied'}"] = fsdp_projection(own), alone_projection(own)
    scenarios["evaluation"] = evaluation(), alone_evaluation()
    said = refusals()
    if os.environ["RANK"] == "0":
        torch.save({"scenarios": scenarios, "refusals": said}, folder / "found.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
