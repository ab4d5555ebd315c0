"""From numbers to positions on a page: linear and logarithmic axes with round ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Maps `low..high` onto `start..end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The position of a value; values outside the axis are extrapolated.

        >>> Scale(0, 10, 100, 200)(5), Scale(1, 100, 0, 10, log=True)(10)
        (150.0, 5.0)
        """
        low, high, at = (math.log(max(v, 1e-300)) if self.log else v for v in (self.low, self.high, value))
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Round numbers along the axis.

        >>> Scale(0, 10, 0, 1).ticks(), Scale(90, 1100, 0, 1, log=True).ticks()
        ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [100, 200, 500, 1000])
        """
        return _log_ticks(self.low, self.high, count) if self.log else _linear_ticks(self.low, self.high, count)


def padded(values: list[float], start: float, end: float, *, log: bool = False, pad: float = 0.06) -> Scale:
    """A scale that holds all values with some room on both sides."""
    low, high = min(values), max(values)
    if log and low > 0:
        room = (high / low) ** pad if high > low else 1.05
        return Scale(low / room, high * room, start, end, log=True)
    room = (high - low) * pad or abs(high) * pad or 1.0
    return Scale(low - room, high + room, start, end)


def tick_text(value: float) -> str:
    """A tick label in the shortest form.

    >>> [tick_text(v) for v in (0.0, 0.25, 1500.0, 2_000_000.0)]
    ['0', '0.25', '1,500', '2,000,000']
    """
    return f"{value:,.0f}" if value == int(value) else f"{value:.6g}"


def _linear_ticks(low: float, high: float, count: int) -> list[float]:
    rough = (high - low) / max(count, 1)
    if rough <= 0 or not math.isfinite(rough):
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float, count: int) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [m * 10**p if p >= 0 else m / 10**-p for p in powers for m in (1, 2, 5)]
    inside = [tick for tick in ticks if low <= tick <= high]
    return inside if len(inside) >= 3 else _linear_ticks(low, high, count)
