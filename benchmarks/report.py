"""Speed of significance tests and reports: `python benchmarks/report.py`. Prints one line for each figure."""

from __future__ import annotations

import json
import platform
import runpy
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lidstone.lab.evaluation.significance import paired_permutations
from lidstone.lab.report import Report
from lidstone.lab.report.comparisons import compare_runs

TREES = runpy.run_path(str(Path(__file__).parents[1] / "tests" / "run_trees.py"))


def timed(what: str, work: Callable[[], Any], **more: Any) -> Any:
    start, busy = time.perf_counter(), time.process_time()
    answer = work()
    seconds, cpu = time.perf_counter() - start, time.process_time() - busy
    print(json.dumps({"what": what, "seconds": round(seconds, 3), "cpu_seconds": round(cpu, 3), **more}))
    return answer


def permutations(sentences: int = 10_000, systems: int = 6, flips: int = 10_000) -> None:
    scores = np.random.default_rng(1).normal(size=(systems, sentences))
    others = {f"system {k}": scores[k] for k in range(1, systems)}
    timed(
        "paired permutations",
        lambda: paired_permutations(others, scores[0], permutations=flips),
        sentences=sentences,
        systems=systems,
        permutations=flips,
    )


def write_runs(folder: Path, count: int) -> None:
    """The paper's six methods over five seeds, then cells of its grids, each with a curve of 100 points."""
    TREES["write_tree"](folder, points=100)
    written, wave = 30, 0
    while written < count:
        wave += 1
        for name in list(TREES["METHODS"])[1:]:
            for plus in TREES["GAMMAS"]:
                for minus in TREES["GAMMAS"]:
                    if written == count:
                        return
                    cell = {"gamma_plus": plus, "gamma_minus": minus, "parameters": {"k": wave}}
                    run = TREES["record"](name, 1, method=cell, shift=1.0 + wave, points=100)
                    TREES["write_run"](folder, run, with_sentences=False)
                    written += 1


def reports(count: int = 1_000) -> None:
    with tempfile.TemporaryDirectory() as home:
        runs = Path(home) / "runs"
        write_runs(runs, count)
        report = timed("read and compare", lambda: Report.from_runs(runs, compare=compare_runs), runs=count)
        timed("text, Markdown, LaTeX, CSV, JSON", lambda: [report.to_text(), report.to_markdown(), report.to_latex(),
                                                            report.to_csv(), report.to_json()], runs=count)  # fmt: skip
        page = timed("page", lambda: report.to_html(Path(home) / "report.html"), runs=count)
        print(json.dumps({"what": "size of the page", "bytes": page.stat().st_size}))
        written = timed("plots", lambda: report.plots(Path(home) / "plots"), runs=count)
        print(json.dumps({"what": "plots written", "files": len(written)}))


if __name__ == "__main__":
    print(json.dumps({"what": "machine", "python": platform.python_version(), "processor": platform.machine()}))
    permutations()
    reports()
