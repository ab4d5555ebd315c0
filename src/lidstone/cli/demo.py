"""`lidstone demo`: a baseline and the paper's five methods on text that comes with Python."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from lidstone.cli.console import print_json, say
from lidstone.cli.inputs import JSON


def demo(
    smoke: Annotated[bool, typer.Option("--smoke", help="A few steps only: does it run at all?")] = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder for runs and report.")] = Path("demo"),
    as_json: JSON = False,
) -> None:
    """Train small language models with and without smoothing, and say which has the best perplexity."""
    from lidstone.sweep.demo import run_demo, winner, write_report

    began = time.perf_counter()
    folder = output / "smoke" if smoke else output
    folder.mkdir(parents=True, exist_ok=True)
    records = run_demo(folder, smoke=smoke, say=say)
    text, files = write_report(folder)
    best, seconds = winner(records), time.perf_counter() - began
    if as_json:
        print_json({"results": [_result(record) for record in records], "winner": best["name"], "seconds": seconds})
        return
    print(text)
    _verdict(best, records, smoke)
    say(f"{seconds:.0f} s; wrote {', '.join(map(str, files))}")


def _result(record: dict[str, Any]) -> dict[str, Any]:
    keys = ("id", "name", "method", "seed", "metrics", "cost")
    return {key: record[key] for key in keys}


def _verdict(best: dict[str, Any], records: list[dict[str, Any]], smoke: bool) -> None:
    baseline = next(record for record in records if record["name"] == "none")
    scores = [record["metrics"]["test"]["perplexity"] for record in (best, baseline)]
    print(f"winner: {best['name']}, test perplexity {scores[0]:.2f} (unregularized {scores[1]:.2f}), one seed each")
    if smoke:
        print("after a few steps only: these numbers mean nothing")
