"""Compare two runs of the benchmarks, and name what moved by more than noise.

    python benchmarks/compare.py benchmarks/results/2026-11-18.json benchmarks/results/2026-12-01.json [--noise 0.15]

Ratios are compared, since they are taken side by side in one run: those of the figures, and the seconds of every method
over those of the first one in its group. Seconds themselves only with --all, on one machine. Exits with 1 if something
moved.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RATIOS = ("ratio", "over", "speedup", "gain")


def numbers(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """Every number in nested figures, with the keys that lead to it."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from numbers(item, (*path, str(key)))
    elif isinstance(value, list):
        yield from numbers(dict(enumerate(value)), path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, float(value)


def side_by_side(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """The seconds of each method over those of the first one in its group."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for kind in ("seconds", "cpu_seconds"):
            first, *others = [(name, one) for name, one in seconds_in(value, kind) if one] or [("", 0.0)]
            for name, one in others:
                yield (*path, kind, f"{name} over {first[0]}"), one / first[1]
        for name, item in value.items():
            yield from side_by_side(item, (*path, str(name)))


def seconds_in(group: dict[Any, Any], kind: str) -> Iterator[tuple[str, float]]:
    """`{"seconds": {"a": 1, "b": 2}}` and `{"a": {"seconds": 1}, "b": {"seconds": 2}}` are groups of methods."""
    below = group.get(kind)
    for name, item in below.items() if isinstance(below, dict) else group.items():
        one = item if isinstance(below, dict) else item.get(kind) if isinstance(item, dict) else None
        if isinstance(one, (int, float)):
            yield str(name), float(one)


def moved(old: Any, new: Any, noise: float, everything: bool) -> list[str]:
    """A line for each number that is in both and differs by more than `noise`."""
    before, lines = dict([*numbers(old), *side_by_side(old)]), []
    for path, value in [*numbers(new), *side_by_side(new)]:
        is_ratio = any(word in key for key in path for word in RATIOS)
        known = before.get(path)
        if known and value and (everything or is_ratio) and abs(value / known - 1) > noise:
            lines.append(f"{' / '.join(path)}: {known:.4g} -> {value:.4g} ({value / known - 1:+.0%})")
    return lines


def main() -> int:
    """Print what moved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--noise", type=float, default=0.15, help="the share by which figures may differ (0.15)")
    parser.add_argument("--all", action="store_true", help="compare all numbers, not ratios alone")
    given = parser.parse_args()
    old, new = (json.loads(path.read_text()) for path in (given.old, given.new))
    if old["machine"] != new["machine"]:
        print(f"the machines differ: {old['machine']}, {new['machine']}")
    shared = sorted(set(old["figures"]) & set(new["figures"]))
    lines = moved(old["figures"], new["figures"], given.noise, given.all)
    print(
        *lines,
        f"{len(lines)} figures of {', '.join(shared) or 'nothing'} moved by more than {given.noise:.0%}",
        sep="\n",
    )
    return int(bool(lines))


if __name__ == "__main__":
    raise SystemExit(main())
