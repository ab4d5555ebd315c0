"""The front door: the methods of `demo.yaml` on text that every Python carries, side by side on the cores there are.

Each method is trained in a process of its own with one thread: networks this small are faster that way than with
several threads each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from lidstone.recipe.recipe import Recipe, load_recipe, make_recipe

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
"""What makes the demo a matter of seconds: to see that it runs, not what it gives."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def run_demo(
    output: Path, *, smoke: bool = False, workers: int | None = None, say: Callable[[str], None] = lambda text: None
) -> list[dict[str, Any]]:
    """Train every method of the demo; the records of the runs, which stay in `output`/runs, in the recipe's order."""
    from lidstone.corpus.prepare import prepare_corpus
    from lidstone.experiment.explorer import write_explorer

    recipe = load_recipe("demo", ["training.threads=1", *(SMOKE if smoke else ())])
    prepared = prepare_corpus(recipe)  # once, before the processes ask for it
    words = int(prepared.train.words.sum())
    say(f"{words:,} words to learn from, {prepared.vocab.size:,} types, {len(recipe.method_names)} methods")
    jobs = {name: recipe.method(name).to_dict() for name in recipe.method_names}
    records: dict[str, dict[str, Any]] = {}
    with _pool(min(workers or os.cpu_count() or 1, len(jobs))) as pool:
        waiting = {pool.submit(_train, job, str(output / "runs")): name for name, job in jobs.items()}
        for future in as_completed(waiting):
            record = records[waiting[future]] = future.result()
            say(_line(record))
    write_explorer(recipe, output / "runs")
    return [records[name] for name in recipe.method_names]


def write_report(output: Path) -> tuple[str, list[Path]]:
    """The table as text, and the files that hold it and more."""
    from lidstone.files import write_text
    from lidstone.report import Report
    from lidstone.report.comparisons import compare_runs
    from lidstone.report.render import to_text

    report = Report.from_runs(output / "runs", compare=compare_runs, title="lidstone demo")
    page = report.to_html(output / "report.html")
    write_text(output / "report.md", report.to_markdown())
    return to_text(report.best_seed_table()), [page, output / "report.md"]


def winner(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The record with the lowest test perplexity."""
    return min(records, key=lambda record: record["metrics"]["test"]["perplexity"] or float("inf"))


def _train(config: dict[str, Any], output: str) -> dict[str, Any]:
    """What a worker does: one method."""
    from lidstone.experiment.run import train

    recipe: Recipe = make_recipe(config)
    return train(recipe, output, resume=True).record


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes with one thread each; what was asked of the environment before stays."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            yield pool
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _line(record: dict[str, Any]) -> str:
    test, cost = record["metrics"]["test"]["perplexity"], record["cost"]
    return f"{record['name']}: test perplexity {test:.2f} after {cost['steps']} steps, {cost['train_seconds']:.0f} s"
