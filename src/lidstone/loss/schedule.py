"""Strengths that change over training: constant, or annealed linearly or along a cosine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from lidstone.errors import InputError

Kind = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class Schedule:
    """A factor on both strengths, as a function of the share of training that is done.

    >>> fade = Schedule("linear", start=1.0, end=0.0)
    >>> fade(0.0), fade(0.25), fade(1.0)
    (1.0, 0.75, 0.0)
    >>> round(Schedule("cosine")(0.5), 6)
    0.5
    """

    kind: Kind = "constant"
    """how the factor moves from start to end"""
    start: float = 1.0
    """the factor at the beginning"""
    end: float = 0.0
    """the factor at the end; unused when constant"""
    share: float = 1.0
    """the end is reached when this share of training is done"""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"unknown schedule {self.kind!r}", hint="choose constant, linear or cosine")
        if not 0 < self.share <= 1:
            raise InputError(f"share must be more than 0 and at most 1, not {self.share}", hint="1.0: all of training")
        if not (0 <= self.start <= 1 and 0 <= self.end <= 1):
            raise InputError(
                f"a schedule's factors must be from 0 to 1, not {self.start} and {self.end}",
                hint="set the strength itself with gamma",
            )

    def __call__(self, progress: float) -> float:
        """The factor when this share of training, from 0 to 1, is done."""
        done = min(max(progress / self.share, 0.0), 1.0)
        if self.kind == "constant":
            return self.start
        if self.kind == "cosine":
            done = (1 - math.cos(math.pi * done)) / 2
        return self.start + (self.end - self.start) * done

    def __str__(self) -> str:
        share = "" if self.share == 1 else f" in {self.share:g}"
        if self.kind == "constant":
            return self.kind if self.start == 1 else f"{self.kind} {self.start:g}"
        return f"{self.kind} {self.start:g}->{self.end:g}{share}"


CONSTANT = Schedule()
