"""Many updates of a tiny model with every smoother's loss in turn: is any loss, gradient or weight ever not finite?

    python -m tests.fuzz.many_steps --steps 100000

The learning rate is ten times the usual one, nothing is clipped, and every fourth batch has logits in bfloat16.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from dataclasses import dataclass

import torch
from tests.smoothing_cases import SMOOTHERS, TEXT, VOCAB, counted, fit

from lidstone.loss.losses import SmoothedCrossEntropy

ORDER, ROWS, WIDTH = 3, 8, 16
FORMS = (("exact", "token"), ("published", "ngram"), ("published", "token"))
"""exact with ngram is left out: it has no lower bound, so its loss is meant to fall for ever"""


@dataclass
class Outcome:
    """What became of a training."""

    steps: int = 0
    not_finite: int = 0
    first_nll: float = math.nan
    last_nll: float = math.nan


class Tiny(torch.nn.Module):
    """Logits of the next word from an embedding of the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(VOCAB.size + 1, WIDTH)
        self.project = torch.nn.Linear(WIDTH, VOCAB.size)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.project(torch.tanh(self.embed(words)))


def losses() -> list[SmoothedCrossEntropy]:
    """One loss for each smoother and form."""
    counts = counted(ORDER)
    tables = [fit(name, counts) for name in SMOOTHERS]
    return [
        SmoothedCrossEntropy(table, counts, gamma=0.3, form=form, empirical=empirical)
        for table, (form, empirical) in itertools.product(tables, FORMS)
    ]


def batch() -> torch.Tensor:
    """The longest sentences of the text with their ends; -100 behind."""
    longest = [[*sentence, VOCAB.eos] for sentence in sorted(TEXT, key=len)[-ROWS:]]
    width = max(map(len, longest))
    return torch.tensor([[*row, *[-100] * (width - len(row))] for row in longest])


def train(steps: int) -> Outcome:
    """Make so many updates."""
    torch.manual_seed(1)
    model, labels, outcome, made = Tiny(), batch(), Outcome(), losses()
    words = torch.cat([torch.full((len(labels), 1), VOCAB.bos), labels[:, :-1].clamp(min=0)], 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.03)
    for step in range(steps):
        logits = model(words)
        parts = made[step % len(made)](logits.bfloat16() if step % 4 == 3 else logits, labels)
        optimizer.zero_grad()
        parts.total.backward()
        finite = all(torch.isfinite(weight.grad).all() for weight in model.parameters() if weight.grad is not None)
        outcome.not_finite += not (finite and math.isfinite(parts.total.item()))
        optimizer.step()
        outcome.last_nll = parts.nll.item() if step % len(made) == 0 else outcome.last_nll
        outcome.first_nll = outcome.last_nll if step == 0 else outcome.first_nll
        outcome.steps += 1
    outcome.not_finite += not all(torch.isfinite(weight).all() for weight in model.parameters())
    return outcome


def main() -> int:
    """Train, print, and fail at a number that is not finite."""
    reader = argparse.ArgumentParser(prog="python -m tests.fuzz.many_steps")
    reader.add_argument("--steps", type=int, default=100_000)
    began = time.perf_counter()
    done = train(reader.parse_args().steps)
    print(
        f"{done.steps:,} steps, {done.not_finite} not finite, nll {done.first_nll:.3f} -> {done.last_nll:.3f}, "
        f"{time.perf_counter() - began:.0f} s"
    )
    return int(bool(done.not_finite))


if __name__ == "__main__":
    sys.exit(main())
