"""Compare two runs of the benchmarks, and name what moved by more than noise.

    python benchmarks/compare.py benchmarks/results/2026-11-18.json benchmarks/results/2026-12-01.json [--noise 0.15]

Ratios are compared, since they are taken side by side in one run; seconds only with --all, on one machine. Exits with 1
if something moved.
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


def moved(old: Any, new: Any, noise: float, everything: bool) -> list[str]:
    """A line for each number that is in both and differs by more than `noise`."""
    before, lines = dict(numbers(old)), []
    for path, value in numbers(new):
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
