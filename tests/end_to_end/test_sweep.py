"""Sweeps from beginning to end: chosen on validation, killed at any point, shared by several processes.

Most trainings are pretended (see `tests/sweep_cells.py`); what is under test is that each is done once.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.sweep_cells import BEST, CELLS, CutShort, begun, ended, pretend, pretend_training, recipe, sweep
from tests.tiny import SIX_METHODS
from typer.testing import CliRunner

from lidstone.cli.main import app
from lidstone.errors import LidstoneError, RunError
from lidstone.lab.sweep.sweep import Sweep
from lidstone.lab.sweep.work import InProcess, Job, Outcome, compute_once

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def start(output: Path, search: str = "grid", jobs: int = 1, seconds: float = 0.0, *die: str) -> subprocess.Popen[str]:
    arguments = [str(output), search, "local", str(jobs), str(seconds), *die]
    command = [sys.executable, "-m", "tests.sweep_cells", *arguments]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE)


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return json.loads(text)


def wait_for(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_best_on_validation_gets_all_seeds(tmp_path: Path) -> None:
    states = {state.method: state for state in sweep(tmp_path).run(InProcess(pretend))}
    best = states["katz"].best
    assert best is not None
    assert best.settings == BEST
    assert len(begun(tmp_path)) == len(set(begun(tmp_path))) == CELLS
    seeds = [cell.seed for cell, _ in states["katz"].outcomes.values() if cell.settings == BEST]
    assert sorted(seeds) == [1, 2, 3]
    assert [cell.seed for cell, _ in states["none"].outcomes.values()] == [1, 2, 3]


@pytest.mark.parametrize("search", ["grid", "tpe"])
def test_the_best_setting_is_refined_before_it_gets_all_seeds(tmp_path: Path, search: str) -> None:
    values = "{regularizer.gamma_plus: [0.1, 0.12], regularizer.gamma_minus: [0.02], training.epochs: [9]}"
    more = (f"sweep.search={search}", "sweep.trials=10", f"sweep.refine={values}")
    planned = 1 + 10 + (1 + 4) + 2 * 2  # without a regularizer only the epochs are tried
    left = []
    for _ in range(40):  # killed after every cell, it goes on where it was
        looked = sweep(tmp_path, *more)
        left.append(sum(map(looked.cells_left, looked.read_states())))
        try:
            states = looked.run(CutShort(1))
        except KeyboardInterrupt:
            continue
        break
    katz = states[1]
    assert katz.found is not None and katz.found.settings == BEST
    assert katz.best is not None and katz.best.settings == {**BEST, "regularizer.gamma_minus": 0.02}
    assert len(begun(tmp_path)) == len(set(begun(tmp_path))) == planned - 1  # gamma_plus 0.1 is in the grid
    assert left[0] == planned and left == sorted(left, reverse=True) and left[-1] == 1
    assert sum(map(looked.cells_left, looked.read_states())) == 0
    settings = [cell.settings for cell, _ in katz.outcomes.values() if cell.seed > 1]
    assert settings == [katz.best.settings] * 2


def test_refining_never_replaces_a_better_setting(tmp_path: Path) -> None:
    states = sweep(tmp_path, "sweep.refine={regularizer.gamma_plus: [0.3]}").run(InProcess(pretend))
    assert states[1].best is not None and states[1].best.settings == BEST
    assert len(begun(tmp_path)) == CELLS + 1


def test_values_to_refine_that_do_not_go_with_a_setting_are_found_before_anything_runs(tmp_path: Path) -> None:
    more = ("sweep.axes={model.width: [32, 36]}", "sweep.refine={model.heads: [8]}")
    with pytest.raises(LidstoneError, match="cell none width=36 heads=8 seed=1"):
        sweep(tmp_path, *more)
    with pytest.raises(LidstoneError, match=r"unknown axis training.epoch\."):
        sweep(tmp_path, "sweep.refine={training.epoch: [8]}")


def test_a_training_that_two_methods_ask_for_is_done_once_and_carries_both_names(tmp_path: Path) -> None:
    both = "methods=[{smoother: katz, gamma: 0.1}, {name: another, smoother: katz, gamma: 0.5}]"
    more = (both, "sweep.axes={}", "sweep.by_method={another: {regularizer.gamma: [0.1, 0.5]}}", "sweep.seeds=[1]")
    for _ in range(2):
        sweep(tmp_path, *more).run(InProcess(pretend))
    assert len(begun(tmp_path)) == 2
    records = [json.loads(file.read_text()) for file in tmp_path.glob("*/run.json")]
    assert sorted((record["name"], record.get("names")) for record in records) == [
        ("another", None),
        ("katz", ["katz", "another"]),
    ]


def test_checkpoints_that_an_end_left_in_a_complete_run_are_removed(tmp_path: Path) -> None:
    sweep(tmp_path, "sweep.seeds=[1]").run(InProcess(pretend))
    for file in tmp_path.glob("*/run.json"):
        (file.parent / "checkpoints" / "checkpoint-2").mkdir(parents=True)
    sweep(tmp_path, "sweep.seeds=[1]").read_states()
    assert len(list(tmp_path.glob("*/checkpoints"))) == 11  # looking changes nothing
    sweep(tmp_path, "sweep.seeds=[1]").run(InProcess(pretend))
    assert not list(tmp_path.glob("*/checkpoints"))


@pytest.mark.parametrize("seeds", ["[1]", "[]"])
def test_fewer_than_two_seeds_are_fine(tmp_path: Path, seeds: str) -> None:
    sweep(tmp_path, f"sweep.seeds={seeds}").run(InProcess(pretend))
    assert len(begun(tmp_path)) == 11


@pytest.mark.parametrize("search", ["grid", "tpe"])
def test_nothing_is_computed_twice_wherever_it_is_cut(tmp_path: Path, search: str) -> None:
    more = (f"sweep.search={search}", "sweep.trials=4")
    for _ in range(20):
        try:
            sweep(tmp_path, *more).run(CutShort(1))
        except KeyboardInterrupt:
            continue
        break
    cut = begun(tmp_path)
    assert max(Counter(cut).values()) == 1
    states = sweep(tmp_path, *more).run(InProcess(pretend))
    assert begun(tmp_path) == cut
    assert len(cut) == (CELLS if search == "grid" else 1 + 4 + 2 * 2)
    assert [len(state.outcomes) for state in states] == ([3, 12] if search == "grid" else [3, 6])


def always_fails(job: Job) -> Outcome:
    return compute_once(job, _fail)


def _fail(job: Job) -> Outcome:
    if job.recipe.regularizer.strengths[0] == 0.1:
        raise RunError("the loss is not a number", hint="lower the rate")
    return pretend_training(job)


@pytest.mark.parametrize("search", ["grid", "tpe"])
def test_cells_that_fail_are_told_and_tried_again_next_time(tmp_path: Path, search: str) -> None:
    more = (f"sweep.search={search}", "sweep.trials=10")
    states = sweep(tmp_path, *more).run(InProcess(always_fails))
    assert len(states[1].failures()) == 2
    assert "gamma_plus=0.1 gamma_minus=0.05 seed=1: the loss is not a number. hint: lower the rate" in " ".join(
        states[1].failures()
    )
    assert states[1].best is not None
    assert states[1].best.settings["regularizer.gamma_plus"] == 0.05
    states = sweep(tmp_path, *more).run(InProcess(pretend))
    assert states[1].best is not None
    assert states[1].best.settings == BEST


def test_a_score_that_is_not_finite_is_never_the_best(tmp_path: Path) -> None:
    def diverge(job: Job) -> Outcome:
        outcome = pretend(job)
        if job.recipe.regularizer.strengths[0] == 0.1 and outcome.record:
            outcome.record["metrics"]["valid"]["perplexity"] = None
        return outcome

    states = sweep(tmp_path).run(InProcess(diverge))
    assert states[1].best is not None
    assert states[1].best.settings["regularizer.gamma_plus"] == 0.05


def test_unknown_axes_are_found_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(LidstoneError, match=r"unknown axis training.epoch.*did you mean epochs"):
        sweep(tmp_path / "runs", "sweep.axes={training.epoch: [1]}")
    with pytest.raises(LidstoneError, match="katz"):
        Sweep(recipe(), tmp_path / "runs", ["katzz"])
    with pytest.raises(LidstoneError, match=r"training.seed must be >= 0"):
        sweep(tmp_path / "runs", "sweep.seeds=[1, -2]")
    assert not (tmp_path / "runs").exists()


def test_folders_of_newer_versions_are_refused(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text('{"schema": 99}')
    with pytest.raises(RunError, match=r"newer version \(schema 99\). hint: update lidstone"):
        sweep(tmp_path).run(InProcess(pretend))
    (tmp_path / "sweep.json").write_text("{")
    with pytest.raises(RunError, match="damaged"):
        sweep(tmp_path).read_states()


def test_the_best_of_a_later_look_is_known(tmp_path: Path) -> None:
    before = sweep(tmp_path).read_states()
    assert [sweep(tmp_path).cells_left(state) for state in before] == [1 + 2, 10 + 2]
    assert sweep(tmp_path).seconds_left(before, 1) is None
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path).run(CutShort(6))
    middle = sweep(tmp_path).read_states()
    assert sweep(tmp_path).seconds_left(middle, 3) == (CELLS - 6) * 60.0 / 3
    sweep(tmp_path).run(InProcess(pretend))
    after = sweep(tmp_path).read_states()
    assert [state.best.settings for state in after if state.best] == [{}, BEST]
    assert sweep(tmp_path).seconds_left(after, 1) == 0.0


SET = ["--set", "corpus.limit=100", "--set", "sweep.seeds=[1, 2]", "--method", "katz"]


def test_a_dry_run_shows_cells_and_time(tmp_path: Path) -> None:
    arguments = ["sweep", SIX_METHODS, *SET, "--set", "sweep.axes={regularizer.gamma_plus: [0.1, 0.5]}"]
    shown = CliRunner().invoke(app, [*arguments, "--dry-run", "--output", str(tmp_path / "runs")])
    assert shown.exit_code == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert [line.split(None, 1)[1] for line in lines[:2]] == [
        "waiting   katz gamma_plus=0.1 seed=1",
        "waiting   katz gamma_plus=0.5 seed=1",
    ]
    assert lines[2] == (
        "3 trainings to come, 1 of them seeds of the best settings or trials not chosen yet; "
        "time left: unknown until a cell is done"
    )
    as_json = CliRunner().invoke(app, [*arguments, "--dry-run", "--json", "--output", str(tmp_path / "runs")])
    assert json.loads(as_json.stdout)["to_compute"] == 3
    assert not (tmp_path / "runs").exists()
    one = CliRunner().invoke(app, ["sweep", SIX_METHODS, *SET, "--set", "sweep.seeds=[1]", "--dry-run"])
    assert one.stdout.splitlines()[-1] == "1 training to come; time left: unknown until a cell is done"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--set", "sweep.axes={training.epoch: [1]}"],
            "error: unknown axis training.epoch\nhint: did you mean epochs?",
        ),
        (["--address", "auto"], "error: --address is for --engine ray\nhint: add --engine ray"),
        (["--engine", "ray", "--address", "127.0.0.1:1"], "error: there is no Ray cluster at 127.0.0.1:1: "),
    ],
)
def test_mistakes_are_two_lines(tmp_path: Path, arguments: list[str], message: str) -> None:
    shown = CliRunner().invoke(app, ["sweep", SIX_METHODS, *SET, *arguments, "--output", str(tmp_path / "runs")])
    assert shown.exit_code == 1
    assert message in shown.stderr
    assert "Traceback" not in shown.stderr


def test_the_live_table(tmp_path: Path) -> None:
    from rich.console import Console

    from lidstone.cli.sweep import progress_table

    planned, shown = sweep(tmp_path), []
    console = Console(width=120, force_terminal=True, color_system=None, file=(tmp_path / "screen").open("w"))
    planned.run(InProcess(pretend), watch=lambda states, left: shown.append(progress_table(planned, states, left)))
    with console.file, console.capture() as captured:
        console.print(shown[3])
        console.print(shown[-1])
    first, last = captured.get().split("method", 2)[1:]
    assert "about 0 h 12 min left" in first  # 3 of 15 cells of a minute each are done
    assert "gamma_plus=0.1 gamma_minus=0.05" in last
    assert "nothing left to do" in last


def test_cells_that_are_complete_already_are_not_in_the_time_left(tmp_path: Path) -> None:
    Sweep(recipe(), tmp_path, ["katz"], threads=1).run(InProcess(pretend))
    left: list[float | None] = []
    sweep(tmp_path).run(InProcess(pretend), watch=lambda states, seconds: left.append(seconds))
    assert left == [180.0, 120.0, 60.0, 0.0]  # the three seeds of the first method; all of the second are there


def test_output_that_goes_to_a_file_has_the_estimate_and_a_line_per_cell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from lidstone.cli.sweep import _run

    _run(sweep(tmp_path), InProcess(always_fails_but_times))
    note, *lines = capsys.readouterr().err.splitlines()
    assert note.startswith("note: model.max_positions is 128, but rows of 64 tokens are trained")
    assert lines[0] == "15 trainings to come; about 0 h 30 min left if none stops early"  # 15 of two minutes each
    assert lines[1] == "1/15  none seed=1: complete, valid perplexity 100.101, 60 s; about 0 h 14 min left"
    assert [line.split("/")[0] for line in lines[1:]] == [str(number) for number in range(1, CELLS + 1)]
    failed = [line for line in lines if "failed" in line]
    assert len(failed) == 2
    assert "katz gamma_plus=0.1 gamma_minus=0.05 seed=1: failed, the loss is not a number" in failed[0]
    _run(sweep(tmp_path), InProcess(pretend))
    again = capsys.readouterr().err.splitlines()[1:]
    # the two that failed and two more seeds of the best, each a minute by the finished cells
    assert again[0] == "4 trainings to come; about 0 h 04 min left if none stops early"
    assert sum("complete already" in line for line in again) == CELLS - 4


def always_fails_but_times(job: Job) -> Outcome:
    return pretend(job) if job.timing else always_fails(job)


@pytest.mark.unix
@pytest.mark.slow
@pytest.mark.parametrize("search", ["grid", "tpe"])
def test_kill_9_loses_nothing_and_repeats_nothing(tmp_path: Path, search: str) -> None:
    process = start(tmp_path, search, 2, 0.2)
    wait_for(lambda: len(ended(tmp_path)) >= 4)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    time.sleep(1)  # its workers end with it
    kept, started = ended(tmp_path), len(begun(tmp_path))
    assert started - len(kept) <= 2
    assert result(start(tmp_path, search, 2)) == result(start(tmp_path, search, 1))
    after = ended(tmp_path)
    assert {name: after[name] for name in kept} == kept
    assert len(after) == (CELLS if search == "grid" else 1 + 6 + 2 * 2)
    assert len(begun(tmp_path)) - len(after) == started - len(kept)  # only what was under way began again


@pytest.mark.slow
def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    assert result(start(tmp_path, "grid", 2, 0.0, "die"))["katz"] == BEST
    died = (tmp_path / "died").read_text()
    counts = Counter(begun(tmp_path))
    assert counts.pop(died) == 2
    assert set(counts.values()) == {1}
    assert len(ended(tmp_path)) == CELLS


@pytest.mark.slow
@pytest.mark.parametrize("search", ["grid", "tpe"])
def test_two_sweeps_share_the_work(tmp_path: Path, search: str) -> None:
    both = [start(tmp_path, search, 1, 0.15) for _ in range(2)]
    assert result(both[0]) == result(both[1])
    assert len(begun(tmp_path)) == len(ended(tmp_path)) == (CELLS if search == "grid" else 1 + 6 + 2 * 2)


TINY = [
    *("--set", "corpus.limit=100", "--set", "training.epochs=2", "--set", "training.eval_every=2"),
    *("--set", "model={layers: 1, width: 8, heads: 1, ffn: 8, max_positions: 64, kind: transformer-lm}"),
    *("--set", "sweep.seeds=[1, 2]", "--set", "sweep.axes={regularizer.gamma_plus: [0.1, 0.5, 1.0]}"),
    *("--set", "sweep.search=tpe", "--set", "sweep.trials=2", "--method", "jelinek-mercer"),
]


def on_terminal(command: list[str]) -> tuple[int, str]:
    """The exit code, and what is written to a terminal as stderr."""
    screen, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # which is how a terminal ends
            while part := os.read(screen, 1 << 16):
                shown += part
    os.close(screen)
    return process.returncode, shown.decode()


@pytest.mark.slow
def test_a_real_sweep_on_a_terminal(tmp_path: Path) -> None:
    output = tmp_path / "runs"
    run = "from lidstone.cli.main import run; run()"
    command = [sys.executable, "-c", run, "sweep", SIX_METHODS, *TINY, "--jobs", "2", "--output", str(output)]
    code, shown = on_terminal(command)
    assert code == 0, shown
    assert "jelinek-mercer" in shown
    assert "in work" in shown
    records = [json.loads(file.read_text()) for file in output.glob("*/run.json")]
    assert sorted(record["seed"] for record in records) == [1, 1, 2]
    assert {record["config"]["training"]["threads"] for record in records} == {
        max(1, len(os.sched_getaffinity(0)) // 2)
    }
    scores = {record["metrics"]["valid"]["perplexity"]: record for record in records if record["seed"] == 1}
    second = next(record for record in records if record["seed"] == 2)
    assert scores[min(scores)]["method"]["gamma_plus"] == second["method"]["gamma_plus"]
    before = ended(output)
    again = subprocess.run([*command, "--json"], text=True, capture_output=True, timeout=240)
    assert again.returncode == 0, again.stderr
    assert ended(output) == before
    assert len(json.loads(again.stdout)[0]["ids"]) == 3
