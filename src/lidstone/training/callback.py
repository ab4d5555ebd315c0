"""The TrainerCallback of `trainer_loss`: the parts in the log, and the progress of the schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from lidstone.training.checks import check_arguments

if TYPE_CHECKING:
    from lidstone.training.hook import TrainerLoss


class PartsCallback(TrainerCallback):
    """Adds nll, plus and minus to each line of the training log.

    The lines of `state.log_history` get them, and the callbacks after this one. The Trainer puts its own reporters
    (TensorBoard and the like) first, so they get them from `SmoothedLossMixin` only.
    """

    def __init__(self, hook: TrainerLoss) -> None:
        self.hook = hook

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Refuse arguments that the loss cannot honour, and start anew."""
        check_arguments(args)
        self.hook.meter.clear()
        self.hook.step = state.global_step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tell the loss how far training is."""
        self.hook.step = state.global_step
        self.hook.loss.progress = state.global_step / max(state.max_steps, 1)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Add the parts to a line of the training log; lines of evaluation have no `loss`."""
        if logs is None or "loss" not in logs:
            return
        parts = self.hook.meter.read(args.world_size)
        if args.average_tokens_across_devices:  # then each process holds its share of one sum
            parts = {name: value * args.world_size for name, value in parts.items()}
        logs.update(parts)
        state.log_history[-1].update(parts)
