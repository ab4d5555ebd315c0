"""Started by torchrun: one step and one evaluation for each configuration, written by the first process.

torchrun --nproc_per_node 2 distributed_worker.py FOLDER CONFIGURATIONS.json
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from tiny_training import Gradients, examples, make_loss, make_trainer

from lidstone.errors import RunError


def run(folder: Path, kind: str, way: str, loss: str, batch: int, accumulation: int) -> dict[str, Any]:
    linear = way == "linear"
    trainer = make_trainer(
        kind, "mixin" if linear else way, make_loss(loss, linear=linear), folder,
        per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation, per_device_eval_batch_size=4,
        eval_data=examples(kind), ddp_backend="gloo", learning_rate=0.0,
    )  # fmt: skip
    keeper = Gradients()
    trainer.add_callback(keeper)
    trainer.train()
    evaluated = trainer.evaluate()["eval_loss"]  # of the same weights: the learning rate is 0
    training = next(line for line in trainer.state.log_history if "loss" in line)
    return {"log": training, "eval_loss": evaluated, "gradient": keeper.found, "processes": trainer.args.world_size}


def run_evaluating_first(folder: Path) -> str:
    """What the mixin says when evaluation comes before training."""
    trainer = make_trainer("opt", "mixin", make_loss("token"), folder, eval_data=examples("opt"), ddp_backend="gloo")
    trainer.evaluate()
    try:
        trainer.train()
    except RunError as error:
        return str(error)
    return "nothing"


def main() -> None:
    folder, configurations = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    found = [run(folder, *configuration) for configuration in configurations]
    refusal = run_evaluating_first(folder)
    if os.environ["RANK"] == "0":
        torch.save({"found": found, "refusal": refusal}, folder / "found.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
