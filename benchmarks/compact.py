"""Bytes per n-gram, perplexity and load time of compact tables and of KenLM's binaries, from the same ARPA file.

python benchmarks/compact.py                orders 3 and 5 of WikiText-2; benchmarks/tables.py writes the page

`resident` is what a process has in memory of a model after it scored the held-out text, in excess of what it has with
a model of a few words. KenLM's `query` reads the whole file, ours maps it and reads what it needs. Load times are
medians of wall time, ours with and without verification; the page shows them if the machine was idle.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _timing import write_results
from ngram import estimate, write_corpora

import lidstone as ld
from lidstone.ngram.formats.arpa import read_arpa, write_arpa

HERE = Path(__file__).parent
MARKS = ("<!-- compact -->", "<!-- end of compact -->")
OURS: dict[str, dict[str, Any]] = {
    "lidstone, float64": {"bits": 64},
    "lidstone, float32": {"bits": 32},
    "lidstone, 16 bits": {"bits": 16},
    "lidstone, 16 bits, packed": {"bits": 16, "pack": True},
    "lidstone, 8 bits, packed": {"bits": 8, "pack": True},
}
KENLM: dict[str, list[str]] = {
    "KenLM probing": ["probing"],
    "KenLM trie": ["trie"],
    "KenLM trie -q 8 -b 8 -a 22": ["-q", "8", "-b", "8", "-a", "22", "trie"],
}
SCORE = """
import os, sys, time
import lidstone as ld

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def use(path, text):
    table = ld.load(path, verify=False)
    lines = open(text, encoding="utf-8").read().splitlines()
    return table, table.perplexity([table.vocab.encode(line.split()) for line in lines]).value

small, path, text = sys.argv[1:]
first = use(small, text)
before = resident()
table, value = use(path, text)
print(value, resident() - before)
"""


def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True, **options)


def evict(path: Path) -> None:
    """Take a file out of the system's cache, so that only what is read is in memory."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def seconds(call: Any, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def measure_ours(path: Path, small: Path, text: Path, rounds: int) -> dict[str, float]:
    evict(path)
    value, resident = run([sys.executable, "-c", SCORE, str(small), str(path), str(text)]).stdout.split()
    return {
        "bytes": path.stat().st_size,
        "perplexity": float(value),
        "resident": int(resident),
        "load": seconds(lambda: ld.load(path), rounds),
        "load_unverified": seconds(lambda: ld.load(path, verify=False), rounds),
    }


def query(path: Path, text: str) -> str:
    """What KenLM's query says; a shell between, for a new process begins with the peak of the one that starts it."""
    command = ["sh", "-c", 'query -v summary "$0" 2>&1; true', str(path)]
    return run(command, input=text).stdout


def most_memory(output: str) -> int:
    return int(re.search(r"RSSMax:(\d+) kB", output)[1]) * 1024  # type: ignore[index]


def measure_kenlm(path: Path, small: Path, text: Path, rounds: int) -> dict[str, float]:
    output = query(path, text.read_text(encoding="utf-8"))
    value = re.search(r"Perplexity including OOVs:\s*(\S+)", output)
    assert value is not None, output
    empty = [seconds(lambda p=p: query(p, ""), rounds) for p in (path, small)]  # type: ignore[misc]
    return {
        "bytes": path.stat().st_size,
        "perplexity": float(value[1]),
        "resident": most_memory(output) - most_memory(query(small, text.read_text(encoding="utf-8"))),
        "load": max(empty[0] - empty[1], 0.0),
    }


def bench(order: int, corpora: dict[str, Path], folder: Path, rounds: int) -> dict[str, Any]:
    """All forms of one model, and of a model of three words, which tells what a process has without a model."""
    arpa, tiny = folder / f"{order}.arpa", folder / f"tiny-{order}.arpa"
    write_arpa(estimate(corpora["wikitext-2"], order), arpa)
    text = folder / "tiny.txt"
    text.write_text("a b c a b\n" * 5)
    write_arpa(ld.WittenBell().fit(ld.count_text(text, order)), tiny)
    tables = {"model": read_arpa(arpa), "tiny": read_arpa(tiny)}
    found: dict[str, dict[str, float]] = {}
    for name, options in OURS.items():
        files = {kind: folder / f"{kind}.safetensors" for kind in tables}
        for kind, table in tables.items():
            table.compact(**options).save(files[kind])
        found[name] = measure_ours(files["model"], files["tiny"], corpora["held out"], rounds)
        print(f"  {name:30} {found[name]}", flush=True)
    for name, flags in KENLM.items():
        files = {"model": folder / "model.kenlm", "tiny": folder / "tiny.kenlm"}
        for source, target in ((arpa, files["model"]), (tiny, files["tiny"])):
            run(["build_binary", *flags[:-1], flags[-1], str(source), str(target)])
        found[name] = measure_kenlm(files["model"], files["tiny"], corpora["held out"], rounds)
        print(f"  {name:30} {found[name]}", flush=True)
    errors = {bits: tables["model"].compact(bits).codes.error for bits in (16, 8)}  # type: ignore[union-attr]
    return {"order": order, "ngrams": tables["model"].trie.size - 1, "errors": errors, "forms": found}


def tables(figures: dict[str, Any]) -> str:
    """The measured part of docs/scale.md."""
    idle = figures["load_average_at_start"] < 0.5
    head = "| order | | bytes per n-gram | resident | perplexity |" + (" load s | unverified |" if idle else "")
    lines = [head, "|---|---|---:|---:|---:|" + ("---:|---:|" if idle else "")]
    for run in figures["runs"]:
        exact = run["forms"]["lidstone, float64"]["perplexity"]
        for name, one in run["forms"].items():
            change = 100 * (one["perplexity"] / exact - 1)
            cells = [str(run["order"]), name, *(f"{one[what] / run['ngrams']:.2f}" for what in ("bytes", "resident"))]
            cells.append(f"{one['perplexity']:.3f}" + (f" ({change:+.4f} %)" if name != "lidstone, float64" else ""))
            if idle:
                cells += [f"{one[what]:.3f}" if what in one else "" for what in ("load", "load_unverified")]
            lines.append(f"| {' | '.join(cells)} |")
    sizes = ", ".join(f"{run['ngrams']:,} n-grams at order {run['order']}" for run in figures["runs"])
    errors = ", ".join(f"{run['errors']['16']:.2e} at order {run['order']}" for run in figures["runs"])
    note = f"Modified Kneser-Ney of WikiText-2, {sizes}; perplexity of its validation set."
    return "\n".join([note, f"`codes.error` of 16 bits: {errors}.", "", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, nargs="+", default=[3, 5])
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="lidstone-compact-") as name:
        corpora = write_corpora(Path(name))
        runs = [bench(order, corpora, Path(name), given.rounds) for order in given.orders]
    print(write_results("compact", {"load_average_at_start": load, "rounds": given.rounds, "runs": runs}))


if __name__ == "__main__":
    main()
