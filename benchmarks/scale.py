"""Throughput against corpus size: `python benchmarks/scale.py --tokens 10e6 100e6 1e9 --orders 3 5 --memory 4G`.

Text file to fitted modified Kneser-Ney: in memory, on disk (`count_to_file` and `fit_to_file`, which write counts and
table), on a local Ray with 1 and 2 workers of half the memory each (likewise), and lmplz with the same memory where it
is on the PATH. The text is drawn from a table that was fitted on the corpora of LIDSTONE_DATA. Every measurement is a
process of its own, with warm kernels, after another has touched the memory; methods take turns; medians are compared.
Figures are added to those of earlier runs, and what is measured already is not measured again: go on size by size.
`--budget 60` measures what fits into 60 minutes, `--plan` says what would be measured and how long it takes.
`--work` keeps what is measured for the table of processor time alone, which other programs disturb little.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import _plan
from _timing import PEAK, newest, write_results

METHODS = ("memory", "disk", "ray 1", "ray 2", "lmplz")
MARKS = "<!-- figures -->", "<!-- end of figures -->"
MACHINES, CORES, GIGABITS = 100, 16, 10
"""The cluster on paper: machines, cores of each, and the speed of its network in Gbit/s."""

CHILD = """
import io, json, os, sys, time, warnings
from pathlib import Path
warnings.simplefilter("ignore")
method, text, order, memory, folder = sys.argv[1:]
order, memory, folder = int(order), int(memory), Path(folder)
import numpy as np
import lidstone as ld
from lidstone.ngram.disk.count_file import count_to_file
from lidstone.ngram.disk.executors import RayExecutor, ThreadExecutor
from lidstone.ngram.disk.fit import fit_to_file
from lidstone.ngram.formats.safetensors import load_counts
small = "\\n".join(" ".join(map(str, line)) for line in np.random.default_rng(0).integers(0, 9, (300, 9)))
(folder / "warm.txt").write_text(small)
smoother = ld.ModifiedKneserNey(fallback=(0.5, 1.0, 1.5))
smoother.fit(ld.count_text(folder / "warm.txt", order))
count_to_file([folder / "warm.txt"], order, folder / "warm", memory=1 << 40)
fit_to_file(folder / "warm", folder / "warm-table", smoother, memory=1 << 40)
if method.startswith("ray"):
    from collections import Counter
    from lidstone.ray_cluster import connect
    work = Counter()
    class Measured(RayExecutor):
        def run(self, task, files, opened, arguments):
            step = getattr(task, "func", task).__name__
            for result, seconds, written in super().run(measured(task), files, opened, arguments):
                work["cpu " + step] += seconds
                work["written " + step] += written
                yield result
    def measured(task):
        def run(*arguments):
            before = usage()
            result = task(*arguments)
            return result, *(after - begin for after, begin in zip(usage(), before))
        def usage():
            said = dict(line.split(": ") for line in open("/proc/self/io").read().splitlines())
            return time.process_time(), int(said["wchar"])
        return run
    from lidstone.ngram.disk.count_on_cluster import count_on_cluster
    from lidstone.text.inputs import Input
    connect(cpus=int(method[-1]))
    executor, limit = Measured(), memory // 2
    warm = [Input(str(folder / "warm.txt"))]
    count_on_cluster(warm, order, folder / "warm", executor, memory=limit, split_bytes=1024)
    fit_to_file(folder / "warm", folder / "warm-table", smoother, memory=limit, executor=executor)
    work.clear()

start, busy = time.perf_counter(), sum(os.times()[:2])
if method == "memory":
    counts = ld.count_text(text, order)
elif method == "disk":
    count_to_file([text], order, folder / "counts", memory=memory)
    path, executor, limit = folder / "counts", ThreadExecutor(len(os.sched_getaffinity(0))), memory
else:
    count_on_cluster([Input(text)], order, folder / "counts", executor, memory=limit)
    path = folder / "counts"
counted, counted_busy = time.perf_counter() - start, sum(os.times()[:2]) - busy
counting_peak = peak()
if method == "memory":
    smoother.fit(counts)
else:
    Path("/proc/self/clear_refs").write_text("5")  # peak() counts from here on
    fit_to_file(path, folder / "table", smoother, memory=limit, executor=executor, verify=False)
    counts = load_counts(path, verify=False)
found = {
    "seconds": time.perf_counter() - start,
    "cpu_seconds": sum(os.times()[:2]) - busy,
    "counting_seconds": counted,
    "counting_cpu_seconds": counted_busy,
    "counting_peak": counting_peak,
    "fitting_peak": peak(),
    "peak": max(counting_peak, peak()),
    "tokens": counts.tokens,
    "ngrams": counts.trie.size,
}
if method.startswith("ray"):
    found |= work
print(json.dumps(found))
"""


def measure(method: str, text: Path, order: int, memory: int, folder: Path) -> dict[str, float]:
    """One measurement in a process of its own."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        if method == "lmplz":
            return run_lmplz(text, order, memory, Path(name))
        command = [sys.executable, "-c", PEAK + CHILD, method, str(text), str(order), str(memory), name]
        output = subprocess.run(command, capture_output=True, text=True, check=False)
        if output.returncode:
            sys.exit(f"error: {method} at order {order} failed\n{output.stderr[-2000:]}")
        return json.loads(output.stdout.splitlines()[-1])


def touch(size: int) -> None:
    """Write so many bytes and free them: where a host took free memory from a virtual machine, wait for it now."""
    subprocess.run([sys.executable, "-c", f"b'x' * {size}"], check=True)


def run_lmplz(text: Path, order: int, memory: int, folder: Path) -> dict[str, float]:
    command = ["lmplz", "-o", str(order), "-S", f"{memory >> 20}M", "-T", str(folder), "--discount_fallback"]
    start = time.perf_counter()
    with text.open("rb") as file:
        process = subprocess.Popen(command, stdin=file, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"error: lmplz gave {process.returncode} at order {order}; try: {' '.join(command)} < {text}")
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "cpu_seconds": usage.ru_utime + usage.ru_stime, "peak": usage.ru_maxrss * 1024}


def write_text(tokens: int, folder: Path) -> Path:
    """A text of so many tokens, kept between runs of this script."""
    path = folder / f"sample-{tokens}.txt"
    if not path.exists():
        import ngram
        from _sampling import write_sample

        import lidstone as ld

        corpora = ngram.write_corpora(folder)
        table = ld.ModifiedKneserNey().fit(ld.count_text(corpora["all corpora"], 3))
        write_sample(table, tokens, path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
    return path


def medians(measured: list[dict[str, float]]) -> dict[str, Any]:
    found = {name: statistics.median(one[name] for one in measured) for name in measured[0]}
    return {**found, "rounds": len(measured), "seconds_of_rounds": [round(one["seconds"], 2) for one in measured]}


def bench(
    text: Path, order: int, memory: int, methods: list[str], rounds: int, folder: Path, *, wall: bool
) -> dict[str, Any]:
    measured: dict[str, list[dict[str, float]]] = {method: [] for method in methods}
    for turn in range(rounds):
        first = turn % len(methods)  # what ran before leaves the machine's memory in one state or another
        for method in methods[first:] + methods[:first]:
            touch(2 * memory if wall else 0)
            measured[method].append(measure(method, text, order, memory, folder))
            print(f"  {method:10} {measured[method][-1]['seconds']:9.2f} s", flush=True)
    return {method: medians(found) for method, found in measured.items()}


def tables(figures: dict[str, Any], machine: dict[str, Any]) -> str:
    """The measured part of docs/scale.md."""
    lines = [
        f"Measured on {machine['cpu']}, {machine['cores']} cores; medians of the rounds; memory limit "
        f"{figures['memory'] / 2**30:g} GB; load average {figures['load_average_at_start']:.1f} at the start.",
        "",
        "| tokens, n | rounds | method | wall s | cpu s | tokens/s | peak GB | count/limit | fit/limit | lmplz/ours |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, found in sorted(figures["runs"].items(), key=lambda item: (item[1]["tokens"], item[1]["order"])):
        tokens = found["tokens"]
        for method, one in found["methods"].items():
            rival = found["methods"].get("lmplz")
            ratio = f"{rival['seconds'] / one['seconds']:.1f}" if rival and method != "lmplz" else ""
            peaks = [one.get(f"{step}_peak", 0) for step in ("counting", "fitting")] if method == "disk" else []
            shares = [f"{value / figures['memory']:.2f}" for value in peaks] or ["", ""]
            cells = [name, str(int(one["rounds"])), method, f"{one['seconds']:.1f}", f"{one['cpu_seconds']:.1f}"]
            cells += [f"{tokens / one['seconds']:,.0f}", f"{one['peak'] / 2**30:.2f}", *shares, ratio]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *on_paper(figures)])


STEPS = {
    "read": ("read_split",),
    "number words": ("join_words",),
    "count": ("count_block",),
    "merge": ("_size_of_run", "_sample_run", "merge_bucket"),
    "write": ("write_level",),
    "link": ("link_children",),
    "derive": ("write_window", "write_sums"),
    "identify": ("all_occur", "digest_part"),
    "fit": ("fill_block",),
}
"""The tasks of each step on Ray."""


def on_paper(figures: dict[str, Any]) -> list[str]:
    """The work of each step per token, and 1 TB of text on a cluster: from the measurements with one Ray worker."""
    runs = [run for run in figures.get("work", {}).values() if "ray 1" in run["methods"]]
    if not runs:
        return []
    order = max(run["order"] for run in runs)
    runs = sorted((run for run in runs if run["order"] == order), key=lambda run: run["tokens"])
    last = runs[-1]
    total = 1e12 * last["tokens"] / last["bytes"]
    titles = [f"{run['tokens'] / 1e6:g}M" for run in runs]
    lines = [
        f"**The work of a cluster**, order {order}, one Ray worker: processor time and bytes written by the tasks of "
        f"each step, per token. The last column is 1 TB of text, {total:.2e} tokens, on {MACHINES} machines of {CORES} "
        f"cores and {GIGABITS} Gbit/s, on paper: the time of the step if its work is spread evenly, or that of its "
        "bytes through the network where that is longer.",
        "",
        f"| step | {' | '.join(f'{title}, ns' for title in titles)} | bytes | 1 TB, minutes |",
        f"|---|{'---:|' * (len(runs) + 2)}",
    ]
    minutes = 0.0
    for step, tasks in STEPS.items():
        spent = [_sum(run, "cpu", tasks) for run in runs]
        written = _sum(last, "written", tasks)
        needed = max(spent[-1] / (MACHINES * CORES), written * 8 / (MACHINES * GIGABITS * 1e9)) * total / 60
        minutes += needed
        cells = [step, *(f"{1e9 * value:.0f}" for value in spent), f"{written:.1f}", f"{needed:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    driver = [run["methods"]["ray 1"]["cpu_seconds"] / run["tokens"] * 1e9 for run in runs]
    return [
        *lines,
        f"| the driver | {' | '.join(f'{value:.1f}' for value in driver)} | | |",
        f"| all steps | {' | '.join([*[''] * len(runs), ''])} | {minutes:.1f} |",
        "",
        "Processor time in all, in seconds, of the driver and the tasks together; one measurement each, while other "
        "programs ran:",
        "",
        f"| tokens, n | {' | '.join(METHODS[1:])} |",
        f"|---|{'---:|' * len(METHODS[1:])}",
        *(
            f"| {title}, {order} | {' | '.join(_processor_time(run))} |"
            for title, run in zip(titles, runs, strict=True)
            if "disk" in run["methods"]
        ),
    ]


def _processor_time(run: dict[str, Any]) -> list[str]:
    """Of each method: on Ray, of the driver and of all tasks."""
    found = [run["methods"].get(method, {}) for method in METHODS[1:]]
    return [f"{sum(one[name] for name in one if name.startswith('cpu')):.1f}" if one else "" for one in found]


def _sum(run: dict[str, Any], kind: str, tasks: tuple[str, ...]) -> float:
    return sum(run["methods"]["ray 1"].get(f"{kind} {task}", 0.0) for task in tasks) / run["tokens"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=float, nargs="+", default=[9e6, 72e6])
    parser.add_argument("--orders", type=int, nargs="+", default=[3, 5])
    parser.add_argument("--memory", default="4G", help="the limit on disk, on Ray and for lmplz (4G)")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "lidstone-scale")
    parser.add_argument("--budget", type=float, default=float("inf"), help="minutes to measure for (no limit)")
    parser.add_argument("--plan", action="store_true", help="say what would be measured and how long it takes, and end")
    parser.add_argument("--work", action="store_true", help="for the table of processor time alone, in one round")
    parser.add_argument("--again", action="store_true", help="forget the figures of earlier runs")
    arguments = parser.parse_args()
    from lidstone.ngram.disk.memory import parse_size

    arguments.folder.mkdir(exist_ok=True, parents=True)
    methods = [method for method in arguments.methods if method != "lmplz" or shutil.which("lmplz")]
    figures = earlier(arguments.again)
    if figures.get("memory", limit := parse_size(arguments.memory)) != limit:
        sys.exit("error: earlier figures are for another --memory\nhint: give the same, or --again")
    figures |= {"rounds": arguments.rounds, "memory": limit}
    figures.setdefault("load_average_at_start", os.getloadavg()[0])
    kind, most = ("work", 1) if arguments.work else ("runs", arguments.rounds)
    known = figures.setdefault(kind, {})
    end = time.monotonic() + 60 * arguments.budget
    total = 0.0
    for tokens in map(int, arguments.tokens):
        for order in arguments.orders:
            name = f"{tokens / 1e6:g}M, {order}"
            left = _plan.missing(methods, tokens, order, known, name)
            text = arguments.folder / f"sample-{tokens}.txt"
            writing = 0 if text.exists() else _plan.WRITING * tokens / 1e6
            per_round = sum(_plan.seconds(method, tokens, order, figures["runs"]) for method in left)
            time_left = (60 * arguments.budget - total if arguments.plan else end - time.monotonic()) - writing
            rounds = _plan.rounds_within(per_round, most, time_left) if left else 0
            total += writing + per_round * rounds
            print(f"{name}: {rounds} rounds of {', '.join(left) or 'nothing'}, {per_round * rounds / 60:.1f} minutes")
            if rounds and not arguments.plan:
                text = write_text(tokens, arguments.folder)
                add_run(figures, kind, name, text, order, left, rounds, tokens=tokens)
    print(f"{total / 60:.0f} minutes in all were expected")


def earlier(forget: bool) -> dict[str, Any]:
    """The figures of earlier runs, to which those of this one are added."""
    return {"runs": {}} if forget else newest("scale")


def add_run(
    figures: dict[str, Any],
    kind: str,
    name: str,
    text: Path,
    order: int,
    methods: list[str],
    rounds: int,
    *,
    tokens: int,
) -> None:
    """Measure the methods at one size and order, and write the figures."""
    found = bench(text, order, figures["memory"], methods, rounds, text.parent, wall=kind == "runs")
    run = {"tokens": tokens, "order": order, "bytes": text.stat().st_size}
    known = figures[kind].get(name, {}).get("methods", {})
    figures[kind][name] = run | {"methods": {m: (known | found)[m] for m in METHODS if m in known | found}}
    print(f"written to {write_results('scale', figures)}", flush=True)


if __name__ == "__main__":
    main()
