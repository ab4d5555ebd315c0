"""The search of a sweep: how many settings it tries, what it stops early, what it remembers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.sweep_cells import BEST, CELLS, CutShort, begun, pretend, pretend_training, recipe, sweep, valid

from lidstone.errors import RunError
from lidstone.lab.run.run import TrainedRun
from lidstone.lab.sweep.search import RunningTrial, Search
from lidstone.lab.sweep.work import InProcess, Job, compute


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def test_a_search_that_was_cut_chooses_among_all_its_trials(tmp_path: Path) -> None:
    more = ("sweep.search=tpe", "sweep.trials=10")  # as many as there are settings
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path, *more).run(CutShort(12))
    states = {state.method: state for state in sweep(tmp_path, *more).run(InProcess(pretend))}
    assert states["katz"].best is not None
    assert states["katz"].best.settings == BEST
    assert len(begun(tmp_path)) == CELLS


def test_a_search_tries_as_many_settings_as_asked_for(tmp_path: Path) -> None:
    states = sweep(tmp_path, "sweep.search=tpe", "sweep.trials=7").run(InProcess(pretend))
    katz = [cell for cell, _ in states[1].outcomes.values() if cell.seed == 1]
    assert len({cell.key for cell in katz}) == 7


def test_a_changed_recipe_begins_a_new_search(tmp_path: Path) -> None:
    sweep(tmp_path, "sweep.search=tpe", "sweep.trials=3").run(InProcess(pretend))
    sweep(tmp_path, "sweep.search=tpe", "sweep.trials=3", "training.epochs=2").run(InProcess(pretend))
    assert len(begun(tmp_path)) == len(set(begun(tmp_path))) == 2 * (1 + 3 + 4)


class Trains:
    """Stands for `run.train_run`: three evaluations at the pretended score, then a record."""

    def __init__(self) -> None:
        self.evaluations: Counter[str] = Counter()

    def __call__(self, recipe: Any, prepared: Any, folder: Path, *, resume: bool, watch: Any) -> Any:
        job = Job(folder.name, recipe, str(folder.parent))
        job.folder.mkdir(exist_ok=True)
        for _ in range(3):
            self.evaluations[job.name] += 1
            watch({"perplexity": valid(job.recipe)})
        return TrainedRun(job.folder, pretend_training(job).record or {})


def test_a_search_stops_early_what_is_worse_than_the_median(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = Trains()
    monkeypatch.setattr("lidstone.lab.run.run.train_run", train)
    more = ("sweep.search=tpe", "sweep.trials=10")
    _, katz = sweep(tmp_path, *more).run(InProcess(compute))
    outcomes = [(cell, out) for cell, out in katz.outcomes.values() if cell.seed == 1]
    pruned = [cell for cell, out in outcomes if out.state == "pruned"]
    assert len(outcomes) == 10
    assert 1 <= len(pruned) <= 6  # the first four are what others are compared with
    assert katz.best is not None
    assert katz.best.settings == BEST
    assert train.evaluations.total() == 3 * (CELLS - len(pruned)) + len(pruned)  # stopped at the first evaluation
    assert all((sweep(tmp_path).jobs.of(cell).folder / "pruned.json").exists() for cell in pruned)

    before = train.evaluations.total()
    _, katz = sweep(tmp_path, *more).run(InProcess(compute))
    assert sum(out.state == "pruned" for _, out in katz.outcomes.values()) == len(pruned)
    assert train.evaluations.total() == before
    sweep(tmp_path, "sweep.search=grid").run(InProcess(compute))  # a grid wants them whole
    assert train.evaluations.total() == before + 3 * len(pruned)


def test_a_trial_taken_up_again_goes_on_counting(tmp_path: Path) -> None:
    search = Search(recipe(), "katz", tmp_path)
    asked = search.ask(3)
    assert asked is not None
    first = RunningTrial(asked[1])
    first.report(5.0)
    first.report(4.0)
    again = RunningTrial(asked[1])  # in another process, which reads its earlier evaluations from a checkpoint
    for score in (5.0, 4.0, 3.0):
        again.report(score)
    assert search.study.trials[0].intermediate_values == {1: 5.0, 2: 4.0, 3: 3.0}


def test_a_trial_without_a_setting_is_dropped(tmp_path: Path) -> None:
    search = Search(recipe(), "katz", tmp_path)
    search.study.ask()  # killed before it chose
    asked = search.ask(3)
    assert asked is not None
    assert [trial.state.name for trial in search.study.trials] == ["FAIL", "RUNNING"]
    assert [cell.key for cell, _ in search.tried()] == [asked[0].key]


@pytest.mark.parametrize("line", ['{"op_code": 4711}\n', '{"op_code": 0}\n', "not json\nat all\n", "[1]\n"])
def test_journals_of_newer_versions_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "sweep.journal").write_text(line)
    with pytest.raises(RunError, match=r"journal .* cannot be read.*newer version"):
        sweep(tmp_path, "sweep.search=tpe").run(InProcess(pretend))


def test_half_a_line_in_the_journal_is_mended(tmp_path: Path) -> None:
    more = ("sweep.search=tpe", "sweep.trials=4")
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path, *more).run(CutShort(3))
    with (tmp_path / "sweep.journal").open("a") as file:
        file.write('{"op_code":4,"worker')
    sweep(tmp_path, *more).run(InProcess(pretend))
    assert len(begun(tmp_path)) == len(set(begun(tmp_path))) == 1 + 4 + 2 * 2


def test_a_search_leaves_out_values_that_do_not_go_together(tmp_path: Path) -> None:
    """A width must be a multiple of the heads: of nine pairs, six are possible."""
    axes = "sweep.axes={model.width: [64, 96, 128], model.heads: [4, 6, 8]}"
    planned = sweep(tmp_path, "sweep.search=tpe", "sweep.trials=9", "sweep.by_method={}", axes)
    states = planned.run(InProcess(pretend))
    tried = {
        (cell.settings["model.width"], cell.settings["model.heads"])
        for cell, outcome in states[0].outcomes.values()
        if cell.seed == 1 and outcome.state == "complete"
    }
    possible = {(width, heads) for width in (64, 96, 128) for heads in (4, 6, 8) if width % heads == 0}
    assert tried == possible and states[0].best is not None
    assert not sweep(tmp_path, "sweep.search=tpe", "sweep.trials=9", "sweep.by_method={}", axes).read_states()[0].todo
