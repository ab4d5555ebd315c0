"""Locks, worker processes and addresses: what a sweep stands on."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lidstone.errors import RunError
from lidstone.files import try_lock
from lidstone.lab.recipe.recipe import load_recipe
from lidstone.lab.sweep.engines import RETRIES, Processes
from lidstone.lab.sweep.work import InProcess, Job, Outcome, compute_once, finished
from lidstone.ray_cluster import _probe

RECIPE = load_recipe("demo")


def answer(job: Job) -> Outcome:
    return Outcome("complete", {"pid": os.getpid(), "omp": os.environ.get("OMP_NUM_THREADS")})


def die(job: Job) -> Outcome:
    """Die on the job called bad; else answer."""
    with (Path(job.output) / f"{job.name}.tries").open("a") as file:
        file.write("x")
    if job.name == "bad":
        os.kill(os.getpid(), signal.SIGKILL)
    return answer(job)


def fail(job: Job) -> Outcome:
    return compute_once(job, lambda job: {}["what is not there"])  # type: ignore[index]


def fill_the_disk(job: Job) -> Outcome:
    def write(job: Job) -> Outcome:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/a")

    return compute_once(job, write)


@pytest.fixture
def workers() -> Iterator[list[Processes]]:
    opened: list[Processes] = []
    yield opened
    for engine in opened:
        engine.close()


def run(engine: Processes | InProcess, jobs: list[Job]) -> dict[str, Outcome]:
    for job in jobs:
        engine.submit(job)
    return {job.name: outcome for job, outcome in filter(None, (engine.next() for _ in jobs))}


HOLD = """
import signal, sys
from pathlib import Path
from lidstone.files import try_lock
with try_lock(Path(sys.argv[1]), "cell") as mine:
    print(mine, flush=True)
    signal.pause()
"""


def test_a_lock_ends_with_its_holder(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with try_lock(tmp_path, "cell") as mine:
            assert not mine
        holder.kill()
    with try_lock(tmp_path, "cell") as mine:
        assert mine


def test_what_is_locked_is_busy_and_not_computed(tmp_path: Path) -> None:
    job = Job("cell", RECIPE, str(tmp_path))
    with try_lock(tmp_path, "cell"):
        assert compute_once(job, answer).state == "busy"
    assert compute_once(job, answer).state == "complete"


def test_a_training_that_was_stopped_early_counts_for_a_search_only(tmp_path: Path) -> None:
    from lidstone.lab.sweep.work import TrialName

    (tmp_path / "cell").mkdir()
    (tmp_path / "cell" / "pruned.json").write_text('{"metrics": {"valid": {"perplexity": 3.0}}}')
    assert finished(Job("cell", RECIPE, str(tmp_path))) is None
    found = finished(Job("cell", RECIPE, str(tmp_path), trial=TrialName("journal", "study", 0)))
    assert found is not None
    assert (found.state, found.score("perplexity")) == ("pruned", 3.0)


def test_a_bug_in_one_cell_is_an_outcome(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(InProcess(fail), [Job("cell", RECIPE, str(tmp_path))])["cell"]
    assert (outcome.state, outcome.message) == ("failed", "KeyError: 'what is not there'")
    assert "Traceback" in capsys.readouterr().err


def test_a_full_disk_in_one_cell_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(InProcess(fill_the_disk), [Job("cell", RECIPE, str(tmp_path))])["cell"]
    told = "runs/a: No space left on device. hint: check the disk and its permissions"
    assert (outcome.state, outcome.message) == ("failed", told)
    assert not capsys.readouterr().err


def test_workers_are_pinned_and_used_again(tmp_path: Path, workers: list[Processes]) -> None:
    before = dict(os.environ)
    engine = Processes(2, threads=3, compute=answer)
    workers.append(engine)
    outcomes = run(engine, [Job(name, RECIPE, str(tmp_path)) for name in "ab"])
    records = [outcome.record or {} for outcome in outcomes.values()]
    assert [record["omp"] for record in records] == ["3", "3"]
    again = run(engine, [Job("c", RECIPE, str(tmp_path))])["c"].record or {}
    assert again["pid"] in {record["pid"] for record in records}
    assert os.getpid() != again["pid"]
    assert dict(os.environ) == before


def test_nothing_done_in_time_is_none(tmp_path: Path) -> None:
    assert Processes(2).next(timeout=0.0) is None


@pytest.mark.unix
def test_a_worker_that_dies_takes_only_its_own_cell_with_it(tmp_path: Path, workers: list[Processes]) -> None:
    engine = Processes(2, compute=die)
    workers.append(engine)
    outcomes = run(engine, [Job(name, RECIPE, str(tmp_path)) for name in ("bad", "good")])
    assert outcomes["good"].state == "complete"
    assert outcomes["bad"].state == "failed"
    assert "died 4 times" in outcomes["bad"].message
    assert (tmp_path / "bad.tries").read_text() == "x" * (RETRIES + 1)
    assert (tmp_path / "good.tries").read_text() == "x"


@pytest.mark.parametrize("address", ["head", "ray://head", "head:port"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(RunError, match=r"is not the address of a Ray cluster. hint: use auto, HOST:6379"):
        _probe(address)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_unreachable_cluster_is_named_at_once(scheme: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]  # bound, but nobody listens
        with pytest.raises(RunError, match=f"no Ray cluster at {scheme}127.0.0.1:{port}.*refused.*ray start --head"):
            _probe(f"{scheme}127.0.0.1:{port}")


def test_a_cluster_that_answers_passes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        _probe(f"127.0.0.1:{server.getsockname()[1]}")
    for named in (None, "auto", "local"):
        _probe(named)
