"""Benchmarks that can be followed: one dated file per run, tables of the newest, and a comparison of two runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource", reason="the benchmarks need the modules of Unix")

from benchmarks import _timing
from benchmarks.compare import moved

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_the_tables_of_the_pages_are_those_of_the_newest_figures() -> None:
    command = [sys.executable, BENCHMARKS / "tables.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}: run python benchmarks/tables.py"


def test_the_results_are_one_dated_file_per_run() -> None:
    for path in (BENCHMARKS / "results").iterdir():
        assert path.name.startswith("20") and set(json.loads(path.read_text())) == {"machine", "versions", "figures"}


def test_all_benchmarks_of_a_run_are_in_one_file_and_the_newest_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_timing, "RESULTS", tmp_path)
    for run, ratio in (("2026-12-01", 1.0), ("2026-12-01T0930", 2.0)):
        monkeypatch.setenv("BENCH_RUN", run)
        _timing.write_results("loss", {"ratio": ratio})
    _timing.write_results("sweep", {"gain": 1.5})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2026-12-01.json", "2026-12-01T0930.json"]
    assert _timing.newest("loss") == {"ratio": 2.0} and _timing.newest("sweep") == {"gain": 1.5}
    assert _timing.newest_run("loss")["versions"]["python"]


def test_ratios_that_moved_beyond_noise_are_named_and_seconds_on_request() -> None:
    old, new = ({"order 3": {"seconds": s, "ratio": r, "flag": True}} for s, r in ((1.0, 2.0), (1.5, 1.6)))
    assert moved(old, new, 0.15, False) == ["order 3 / ratio: 2 -> 1.6 (-20%)"]  # 1.6 / 2 - 1
    assert moved(old, new, 0.25, False) == []
    assert len(moved(old, new, 0.15, True)) == 2


def test_lists_of_runs_are_compared_too() -> None:
    assert moved({"runs": [{"ratio": 1.0}]}, {"runs": [{"ratio": 1.5}]}, 0.15, False) == [
        "runs / 0 / ratio: 1 -> 1.5 (+50%)"
    ]


def test_methods_side_by_side_are_compared_with_the_first_of_them() -> None:
    old, new = ({"order 3": {"ours": {"cpu_seconds": 0.5}, "lmplz": {"cpu_seconds": s}}} for s in (5.0, 2.5))
    assert moved(old, new, 0.15, False) == ["order 3 / cpu_seconds / lmplz over ours: 10 -> 5 (-50%)"]  # 2.5 / 0.5
    old, new = ([{"threads": 2, "seconds": {"torch": 1.0, "ours": s}}] for s in (1.0, 1.2))
    assert moved(old, new, 0.15, False) == ["0 / seconds / ours over torch: 1 -> 1.2 (+20%)"]
