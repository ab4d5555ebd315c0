"""Started by torchrun with two processes: one step and one evaluation of the Trainer under its own FSDP2, on CPUs.

torchrun --nproc_per_node 2 fsdp_worker.py FOLDER

On CPUs accelerate ignores `fsdp=True` without a message and uses DDP. So the Trainers here tell it that the plugin is
in use; sharding, gathering and the sum of gradients are then those of accelerate and torch.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import tiny_training
import torch
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from tiny_training import Gradients, examples, make_loss, make_trainer

CONFIGURATION = {
    "version": 2,
    "transformer_layer_cls_to_wrap": ["OPTDecoderLayer"],
    "cpu_ram_efficient_loading": False,
}


class OnCpu:
    """A Trainer whose accelerator shards the model though there is no GPU."""

    def create_accelerator_and_postprocess(self: Any) -> None:
        super().create_accelerator_and_postprocess()  # type: ignore[misc]
        plugin = FullyShardedDataParallelPlugin(**self.args.fsdp_plugin_args)
        for shared in (AcceleratorState._shared_state, PartialState._shared_state):
            shared["distributed_type"] = DistributedType.FSDP
        AcceleratorState._shared_state["fsdp_plugin"] = plugin
        self.is_fsdp_enabled = True


class Smoothed(OnCpu, tiny_training.Smoothed):
    pass


class Plain(OnCpu, tiny_training.Trainer):
    pass


class WholeGradients(Gradients):
    """Gathers the gradients, and keeps the name of the model's class."""

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.found = {name: p.grad.full_tensor() for name, p in model.named_parameters() if p.grad is not None}
        self.model = type(model).__name__


def run(folder: Path, way: str, batch: int, accumulation: int) -> dict[str, Any]:
    linear = way == "linear"
    trainer = make_trainer(
        "opt", "mixin" if linear else way, make_loss("token", linear=linear), folder,
        per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation, eval_data=examples("opt"),
        ddp_backend="gloo", learning_rate=0.0, fsdp=True, fsdp_config=dict(CONFIGURATION),
    )  # fmt: skip
    keeper = WholeGradients()
    trainer.add_callback(keeper)
    trainer.train()
    evaluated = trainer.evaluate()["eval_loss"]  # of the same weights: the learning rate is 0
    loss = next(line["loss"] for line in trainer.state.log_history if "loss" in line)
    AcceleratorState._reset_state(reset_partial_state=True)
    return {"loss": loss, "eval_loss": evaluated, "gradient": keeper.found, "model": keeper.model}


def main() -> None:
    warnings.filterwarnings("ignore", message=".*returned a view tensor")
    tiny_training.Smoothed, tiny_training.Trainer = Smoothed, Plain  # type: ignore[misc]
    folder = Path(sys.argv[1])
    configurations = [(way, *cut) for way in ("hook", "mixin", "linear") for cut in ((4, 1), (2, 2))]
    found = {configuration: run(folder, *configuration) for configuration in configurations}
    if os.environ["RANK"] == "0":
        torch.save(found, folder / "found.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
