"""The demo: a sweep of the methods of `demo.yaml`, one training each, on text that comes with Python.

Each method is trained in a worker process with one thread: networks this small are faster that way than with several.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lidstone.errors import RunError
from lidstone.lab.recipe.recipe import load_recipe
from lidstone.lab.sweep.engines import Processes
from lidstone.lab.sweep.grid import Cell
from lidstone.lab.sweep.sweep import Sweep
from lidstone.lab.sweep.work import Outcome
from lidstone.parallel import cores

ONE_RUN_EACH = ("sweep.axes={}", "sweep.by_method={}", "sweep.seeds=[]")
SMOKE = (
    "training.max_steps=8",
    "training.epochs=null",
    "training.eval_every=4",
    "training.batch_tokens=512",
    "training.warmup_steps=2",
    "corpus.limit=300",
    "model.width=32",
    "model.ffn=64",
)
"""Settings with which the demo takes seconds: they show that everything runs; the numbers are meaningless."""


def run_demo(
    output: Path, *, smoke: bool = False, workers: int | None = None, say: Callable[[str], None] = lambda text: None
) -> list[dict[str, Any]]:
    """Train every method of the demo; return the records of the runs, which are in `output`/runs, in recipe order."""
    from lidstone.lab.run.record import write_explorer

    recipe = load_recipe("demo", [*ONE_RUN_EACH, *(SMOKE if smoke else ())])
    planned = Sweep(recipe, output / "runs", threads=1)
    prepared = planned.jobs.corpus(recipe)
    words = int(prepared.train.words.sum())
    say(f"{words:,} training words, {prepared.vocab.size:,} types, {len(recipe.method_names)} methods")
    records = _train_all(planned, workers or cores(), say)
    write_explorer(recipe, planned.output, prepared)
    return records


def write_report(output: Path) -> tuple[str, list[Path]]:
    """Write the report; return its table as text and the files."""
    from lidstone.files import write_text
    from lidstone.lab.report import Report
    from lidstone.lab.report.comparisons import compare_runs
    from lidstone.lab.report.render import to_text

    report = Report.from_runs(output / "runs", compare=compare_runs, title="lidstone demo")
    page = report.to_html(output / "report.html")
    write_text(output / "report.md", report.to_markdown())
    return to_text(report.best_seed_table()), [page, output / "report.md"]


def winner(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The record with the lowest test perplexity."""
    return min(records, key=lambda record: record["metrics"]["test"]["perplexity"] or float("inf"))


def _train_all(planned: Sweep, workers: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    planned.output.mkdir(parents=True, exist_ok=True)
    engine = Processes(min(workers, len(planned.methods)), threads=1, log=planned.output / "sweep.log")
    try:
        states = planned.run(engine, report=lambda cell, outcome: say(_line(cell, outcome)))
    finally:
        engine.close()
    failures = [failure for state in states for failure in state.failures()]
    if failures:
        raise RunError(f"a training failed: {failures[0]}", hint=f"see {planned.output / 'sweep.log'}")
    return [outcome.record for state in states for _, outcome in state.outcomes.values() if outcome.record]


def _line(cell: Cell, outcome: Outcome) -> str:
    if outcome.record is None:
        return f"{cell.method}: {outcome.state}"
    test, cost = outcome.record["metrics"]["test"]["perplexity"], outcome.record["cost"]
    return f"{cell.method}: test perplexity {test:.2f} after {cost['steps']} steps, {cost['train_seconds']:.0f} s"
