"""Executors of tasks over ranges: threads of this process, or the workers of a Ray cluster. Results come in order.

A task is a function of opened files and a few numbers; other processes open the files themselves. It writes what is
large to files and gives back sizes and totals. At most a few results are in memory at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from lidstone import __version__
from lidstone.errors import InputError, LidstoneError
from lidstone.ngram.disk.memory import plan
from lidstone.parallel import bounded_lookahead
from lidstone.ray_cluster import check_version, count_workers, live_nodes, named_errors

Task = Callable[..., Any]
TASK_MEMORY = 2 << 30
"""Bytes that a task of a cluster may use, unless the user says otherwise."""
AHEAD = 4
"""Tasks per worker of a cluster that are under way: a slow one delays the results of the others, not their work."""


class Executor(Protocol):
    """Runs a task for each of some arguments."""

    workers: int
    remote: bool
    """whether the work is done by other processes, with memory of their own"""

    def run(self, task: Task, files: Any, opened: Any, arguments: Iterable[Any]) -> Iterator[Any]:
        """The results of task(opened, *argument), in the order of the arguments; `opened` is `files.open()`."""
        ...

    def share(self, memory: int) -> int:
        """What a task may use of a limit: the limit of this process is shared, workers of a cluster have one each."""
        ...

    def check_shared(self, folder: Path) -> None:
        """Refuse a folder that some worker does not have at this path."""
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

    def share(self, memory: int) -> int:
        """An equal part of what is left."""
        return plan(memory) // self.workers

    def check_shared(self, folder: Path) -> None:
        """All threads have it."""


class RayExecutor:
    """The workers of the Ray cluster that this process is connected to. They need the files at the same paths."""

    def __init__(self) -> None:
        self.workers, self.remote = count_workers(), True

    def run(self, task: Task, files: Any, opened: Any, arguments: Iterable[Any]) -> Iterator[Any]:
        """The results. Ray runs the tasks of a lost worker again; they give the same result."""
        import ray

        remote, shared = ray.remote(_run_task), ray.put((task, files, __version__))
        started = (remote.remote(shared, argument) for argument in arguments)
        for reference in bounded_lookahead(started, AHEAD * self.workers):
            yield _result(reference)

    def share(self, memory: int) -> int:
        """All of it."""
        return memory

    def check_shared(self, folder: Path) -> None:
        """Refuse a folder that some machine of the cluster does not have at this path."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        shared = ray.put((_is_folder, None, __version__))
        for node in live_nodes():
            there = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
            remote = ray.remote(_run_task).options(scheduling_strategy=there, num_cpus=0)
            if not _result(remote.remote(shared, (str(folder.resolve()),))):
                hint = "give --output, and --temporary if it is set, in a folder that all machines share"
                raise InputError(f"the machine {node['NodeManagerAddress']} has no folder {folder}", hint=hint)


def _is_folder(_: None, path: str) -> bool:
    return Path(path).is_dir()


def _result(reference: Any) -> Any:
    import ray

    with named_errors():
        error, result = ray.get(reference)
    if error is not None:
        raise LidstoneError(error[0], hint=error[1])
    return result


def _run_task(shared: tuple[Task, Any, str], argument: tuple[Any, ...]) -> tuple[Any, Any]:
    """On a worker: the error, as message and hint, or the result."""
    task, files, version = shared
    try:
        check_version(version)
        return None, task(None if files is None else files.open(), *argument)
    except LidstoneError as error:
        return (error.message, error.hint), None
    except OSError as error:
        return (f"a worker cannot read or write: {error}", "look at the disk of the output"), None
