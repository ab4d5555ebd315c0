"""Side-by-side timing: interleaved rounds, medians, ratios, and the machine named beside the figures."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def interleaved(methods: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each method; one warm-up, then every round runs all of them in turn."""
    times: dict[str, list[float]] = {name: [] for name in methods}
    for number in range(rounds + 1):
        for name, method in methods.items():
            start = time.perf_counter()
            method()
            if number:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def wall_and_cpu(methods: dict[str, Callable[[], Any]], rounds: int) -> dict[str, dict[str, float]]:
    """Like `interleaved`, with the processor time of this process and its children beside the wall clock's.

    A turn is two runs, of which the second is timed, and every round has another order: what one method leaves behind,
    such as memory that the system has to fetch anew, must not count for or against the next.
    """
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
    order = random.Random(0)
    for _ in range(rounds):
        for name in order.sample(list(methods), len(methods)):
            method = methods[name]
            method()
            start, busy = time.perf_counter(), _processor_seconds()
            method()
            times[name].append((time.perf_counter() - start, _processor_seconds() - busy))
    medians = {name: map(statistics.median, zip(*values, strict=True)) for name, values in times.items()}
    return {name: dict(zip(("seconds", "cpu_seconds"), pair, strict=True)) for name, pair in medians.items()}


def _processor_seconds() -> float:
    """Of this process, all its threads, and its finished children; in microseconds, where os.times has hundredths."""
    import resource  # which Windows does not have

    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def machine() -> dict[str, Any]:
    """The machine the figures belong to."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.system()}


def versions() -> dict[str, str]:
    """The packages that the figures depend on, where they are installed."""
    found = {"python": platform.python_version()}
    for name in ("lidstone", "numpy", "numba", "torch", "transformers", "kenlm", "ray"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


PEAK = """
def peak():
    import re, resource
    from pathlib import Path
    status = Path("/proc/self/status")  # on Linux ru_maxrss of a new process begins with what its parent had
    if status.exists():
        return int(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
"""


def peak_memory(code: str) -> int:
    """Peak resident bytes of a fresh interpreter that runs `code`."""
    program = f"{code}\n{PEAK}\nprint(peak())"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return int(result.stdout.split()[-1])


def write_results(name: str, figures: dict[str, Any]) -> Path:
    """Keep the raw figures in the file of today's run; all benchmarks of a run are in one file."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{os.environ.get('BENCH_RUN') or date.today().isoformat()}.json"
    run = json.loads(path.read_text()) if path.exists() else {"figures": {}}
    run = {"machine": machine(), "versions": versions(), "figures": run["figures"] | {name: figures}}
    path.write_text(json.dumps(run, indent=1) + "\n")
    return path


def newest(name: str) -> dict[str, Any]:
    """The figures of a benchmark in the newest run that has it."""
    return dict(newest_run(name)["figures"][name])


def newest_run(name: str) -> dict[str, Any]:
    """The newest run that has a benchmark, with its machine and versions."""
    for path in sorted(RESULTS.glob("20*.json"), reverse=True):
        run = json.loads(path.read_text())
        if name in run["figures"]:
            return dict(run)
    raise SystemExit(f"no run in {RESULTS} has the benchmark {name}")


def put_between(marks: tuple[str, str], text: str, page: str) -> str:
    """A page with this text between two of its marks."""
    pattern = "(?s)" + re.escape(marks[0]) + ".*?" + re.escape(marks[1])
    changed, times = re.subn(pattern, lambda _: f"{marks[0]}\n{text}\n{marks[1]}", page)
    if times != 1:
        raise SystemExit(f"the page has {marks[0]} {times} times")
    return changed
