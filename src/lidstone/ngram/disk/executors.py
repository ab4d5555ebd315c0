"""Executors of blocks: threads of this process, or the workers of a Ray cluster. Results come in order.

A task is a function of opened files and a few numbers; other processes open the files themselves. At most a few results
are in memory at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from lidstone import __version__
from lidstone.errors import LidstoneError
from lidstone.parallel import bounded_lookahead
from lidstone.ray_cluster import SHUFFLERS, check_version, count_workers, named_errors

Task = Callable[..., Any]


class Executor(Protocol):
    """Runs a task for each of some arguments."""

    workers: int
    remote: bool
    """whether the work is done by other processes, with memory of their own"""

    def run(self, task: Task, files: Any, opened: Any, arguments: Iterable[Any]) -> Iterator[Any]:
        """The results of task(opened, *argument), in the order of the arguments; `opened` is `files.open()`."""
        ...


class ThreadExecutor:
    """The cores of this machine."""

    def __init__(self, workers: int) -> None:
        self.workers, self.remote = workers, False

    def run(self, task: Task, files: Any, opened: Any, arguments: Iterable[Any]) -> Iterator[Any]:
        """The results, a few computed ahead."""
        with ThreadPoolExecutor(self.workers) as pool:
            started = (pool.submit(task, opened, *argument) for argument in arguments)
            for future in bounded_lookahead(started, self.workers):
                yield future.result()


class RayExecutor:
    """The workers of the Ray cluster that this process is connected to. They need the files at the same paths."""

    def __init__(self) -> None:
        self.workers, self.remote = count_workers(), True

    def run(self, task: Task, files: Any, opened: Any, arguments: Iterable[Any]) -> Iterator[Any]:
        """The results. Ray runs the tasks of a lost worker again; they give the same result."""
        import ray

        remote = ray.remote(_run_task).options(runtime_env=SHUFFLERS)  # the processes that counted
        shared = ray.put((task, files, __version__))
        started = (remote.remote(shared, argument) for argument in arguments)
        for reference in bounded_lookahead(started, self.workers):
            with named_errors():
                error, result = ray.get(reference)
            if error is not None:
                raise LidstoneError(error[0], hint=error[1])
            yield result


def _run_task(shared: tuple[Task, Any, str], argument: tuple[Any, ...]) -> tuple[Any, Any]:
    """On a worker: the error, as message and hint, or the result."""
    task, files, version = shared
    try:
        check_version(version)
        return None, task(files.open(), *argument)
    except LidstoneError as error:
        return (error.message, error.hint), None
    except OSError as error:
        return (f"a worker cannot write: {error}", "look at the disk of the output"), None
