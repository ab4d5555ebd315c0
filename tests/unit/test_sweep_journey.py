"""On the way of a sweep each cell's recipe is checked once, the corpus prepared once, each run's id computed once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.sweep_cells import CELLS, pretend_training, recipe

from lidstone.errors import RunError
from lidstone.lab.corpus import prepare
from lidstone.lab.recipe.recipe import Recipe
from lidstone.lab.run import record, setup
from lidstone.lab.run.record import write_explorer
from lidstone.lab.run.run import TrainedRun
from lidstone.lab.run.setup import cached_corpus
from lidstone.lab.sweep.engines import Processes
from lidstone.lab.sweep.sweep import Sweep
from lidstone.lab.sweep.work import InProcess, Job, Outcome, compute


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setattr(setup, "_HELD", {})


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a recipe is checked, a corpus read, an id computed."""
    counted: Counter[str] = Counter()

    def count(owner: Any, name: str, what: str) -> None:
        original = getattr(owner, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            counted[what] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, counting)

    count(Recipe, "model_validate", "checked")
    count(prepare, "read_corpus", "prepared")
    count(record, "identity", "named")
    return counted


def train(recipe: Recipe, prepared: Any, folder: Path, *, resume: bool, watch: Any) -> TrainedRun:
    """Stands for `run.train_run`."""
    assert len(prepared.train) == 100
    return TrainedRun(folder, pretend_training(Job(folder.name, recipe, str(folder.parent))).record or {})


@pytest.mark.parametrize("search", ["grid", "tpe"])
def test_each_step_is_taken_once(
    tmp_path: Path, calls: Counter[str], monkeypatch: pytest.MonkeyPatch, search: str
) -> None:
    monkeypatch.setattr("lidstone.lab.run.run.train_run", train)
    more = (f"sweep.search={search}", "sweep.trials=10")  # as many as there are settings
    planned = Sweep(recipe(*more), tmp_path)
    before = planned.read_states()
    states = planned.run(InProcess(compute))
    write_explorer(planned.recipe, tmp_path, planned.jobs.corpus(planned.recipe))
    assert [planned.cells_left(state) for state in states] == [0, 0]
    assert sum(len(state.outcomes) for state in states) == CELLS
    assert [len(state.todo) for state in before] == ([1, 10] if search == "grid" else [1, 0])
    # the recipe itself, and two more seeds of Katz's first setting, which are checked in advance but are not the best
    assert calls["checked"] == 1 + CELLS + 2
    assert calls["named"] == CELLS
    assert calls["prepared"] == 1


def count_reads(job: Job) -> Outcome:
    """In a worker: how often it has read the corpus for the jobs so far."""
    if not hasattr(prepare, "reads"):
        original = prepare.read_corpus
        prepare.reads = 0  # type: ignore[attr-defined]

        def read(*args: Any) -> Any:
            prepare.reads += 1  # type: ignore[attr-defined]
            return original(*args)

        prepare.read_corpus = read
    cached_corpus(job.recipe, job.corpus)
    return Outcome("complete", {"reads": prepare.reads})  # type: ignore[attr-defined]


def test_a_worker_reads_the_corpus_once(tmp_path: Path) -> None:
    planned = Sweep(recipe(), tmp_path)
    cells = [task.cell for state in planned.read_states() for task in state.todo][:3]
    engine = Processes(1, compute=count_reads)
    try:
        for cell in cells:
            engine.submit(planned.jobs.of(cell))
            done = engine.next(60)
            assert done is not None
            assert done[1].record == {"reads": 1}
    finally:
        engine.close()


def test_text_that_changes_under_a_running_sweep_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("a b c\n" * 40)
    own = recipe(f"corpus={{train: {text}}}", "tokenizer.min_count=1")
    planned = Sweep(own, tmp_path / "runs")
    job = planned.jobs.of(planned.read_states()[0].todo[0].cell)
    text.write_text("a b d\n" * 40)
    assert cached_corpus(job.recipe, job.corpus).key == job.corpus  # this process has it in memory
    setup._HELD.clear()
    with pytest.raises(RunError, match="is not the one that the sweep was started with"):
        cached_corpus(job.recipe, job.corpus)
    again = Sweep(own, tmp_path / "runs")  # a new sweep reads the text as it is now
    assert again.jobs.of(again.read_states()[0].todo[0].cell).name != job.name
