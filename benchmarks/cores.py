"""What a second core gains: from a text file to a modified Kneser-Ney model in memory, with one core and with all.

Run `python benchmarks/cores.py`. It uses the texts of `benchmarks/scale.py`. One process does both in turn, by changing
which cores it may use; medians are compared, and the bits of both must be the same. The figures go to
`benchmarks/results/`; `benchmarks/tables.py` writes docs/scale.md. Target: at order 5, two cores at least 1.6 times as
fast as one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import scale
from _timing import write_results

import lidstone as ld

MARKS = "<!-- cores -->", "<!-- end of cores -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=float, nargs="+", default=[9e6, 72e6])
    parser.add_argument("--orders", type=int, nargs="+", default=[3, 5])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "lidstone-scale")
    arguments = parser.parse_args()
    if not hasattr(os, "sched_setaffinity"):
        parser.error("this system does not let a process choose its cores; use Linux")
    arguments.folder.mkdir(exist_ok=True, parents=True)
    found = {}
    for tokens in map(int, arguments.tokens):
        text = scale.write_text(tokens, arguments.folder)
        for order in arguments.orders:
            name = f"{tokens / 1e6:g}M, {order}"
            found[name] = one = compare(text, order, arguments.rounds)
            print(
                f"{name:8} one core {one['one core']:.2f} s, all {one['all']:.2f} s: {one['ratio']:.2f} times as fast"
            )
    print(f"written to {write_results('cores', {'rounds': arguments.rounds, 'runs': found})}")


def as_table(runs: dict[str, dict[str, Any]]) -> str:
    """The figures for docs/scale.md."""
    rows = [f"| {name} | {run['one core']:.2f} | {run['all']:.2f} | {run['ratio']:.2f} |" for name, run in runs.items()]
    return "\n".join(["| tokens, n | one core, s | all cores, s | ratio |", "|---|---:|---:|---:|", *rows])


def compare(text: Path, order: int, rounds: int) -> dict[str, Any]:
    """The median seconds of both, after a first go that fills the memory."""
    everything = os.sched_getaffinity(0)
    ways = {"one core": {min(everything)}, "all": everything}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    sums = set()
    for number in range(rounds + 1):
        for way, allowed in ways.items():
            os.sched_setaffinity(0, allowed)
            start = time.perf_counter()
            table = ld.ModifiedKneserNey(fallback=(0.5, 1.0, 1.5)).fit(ld.count_text(text, order))
            if number:
                seconds[way].append(time.perf_counter() - start)
            arrays = table.trie.words, table.trie.first, table.rows, table.backoffs
            sums.add(tuple(zlib.crc32(array) for array in arrays))
            del table, arrays
    os.sched_setaffinity(0, everything)
    assert len(sums) == 1, "one core and all give different tables"
    medians = {way: statistics.median(found) for way, found in seconds.items()}
    return {**medians, "ratio": medians["one core"] / medians["all"], "seconds_of_rounds": seconds}


if __name__ == "__main__":
    main()
