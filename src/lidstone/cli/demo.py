"""`lidstone demo`: no regularizer, the paper's best and the recommended method, on text that comes with Python."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from lidstone.cli.console import print_json, say
from lidstone.cli.inputs import JSON, not_stdout


def demo(
    smoke: Annotated[bool, Option("--smoke", help="A few steps only, to check that it runs.")] = False,
    output: Annotated[
        Path, Option("--output", "-o", callback=not_stdout, help="The folder for runs and report.")
    ] = Path("demo"),
    as_json: JSON = False,
) -> None:
    """Train small language models with and without smoothing, and compare their perplexities."""
    from lidstone.lab.sweep.demo import run_demo, winner, write_report

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
    keys = ("id", "name", "method", "seed", "metrics", "cost", "ngram", "mixture")
    return {key: record[key] for key in keys if key in record}


def _verdict(best: dict[str, Any], records: list[dict[str, Any]], smoke: bool) -> None:
    baseline = next(record for record in records if record["name"] == "none")
    scores = [record["metrics"]["test"]["perplexity"] for record in (best, baseline)]
    print(f"winner: {best['name']}, test perplexity {scores[0]:.2f} (unregularized {scores[1]:.2f}), one seed each")
    if "mixture" in best:
        _print_ngram(scores[0], records)
    if smoke:
        print("after a few steps only: these numbers are meaningless")


def _print_ngram(network: float, records: list[dict[str, Any]]) -> None:
    """Print the perplexity of the n-gram model and of the best mixture, compared with the best network."""
    ngram, order = records[0]["ngram"]["test"]["perplexity"], records[0]["ngram"]["order"]
    mixed = min((record for record in records if "mixture" in record), key=_mixture)
    verdict = "beats every network" if ngram < network else "is beaten by the best network"
    print(f"the {order}-gram model of the same text has {ngram:.2f} and {verdict}; ", end="")
    print(f"mixed with {mixed['name']} it has {_mixture(mixed):.2f}")


def _mixture(record: dict[str, Any]) -> float:
    return float(record["mixture"]["test"]["perplexity"])
