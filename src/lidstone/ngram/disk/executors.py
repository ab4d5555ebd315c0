"""Executors of tasks over ranges: threads of this process, or the workers of a Ray cluster. Results come in order.

A task is a function of opened files and a few numbers; other processes open the files themselves. It writes what is
large to files and gives back sizes and totals. At most a few results are in memory at once.
"""

from __future__ import annotations

import functools
import pickle
import platform
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lidstone import __version__
from lidstone.errors import InputError, LidstoneError, RunError
from lidstone.ngram.disk.memory import PAGE_SHARE, plan, resident
from lidstone.parallel import bounded_lookahead
from lidstone.ray_cluster import check_version, count_workers, live_nodes, named_errors
from lidstone.text.source import stamp

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

    def has(self, path: str) -> bool:
        """Whether all workers have this file at this path."""
        ...

    def put(self, value: Any) -> Any:
        """Give a value to all workers: the `files` of tasks that need it, and do not change it."""
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

    def has(self, path: str) -> bool:
        """All threads have it."""
        return True

    def put(self, value: Any) -> None:
        """Threads get the value itself."""


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
        for address, there in self._on_each_machine(_is_folder, str(folder.resolve())):
            if not there:
                hint = "give counts, --output and --temporary in folders that all machines share"
                raise InputError(f"the machine {address} has no folder {folder}", hint=hint)

    def has(self, path: str) -> bool:
        """Whether all machines of the cluster have the file, with the same size and time of change."""
        known = stamp(path)
        return known is not None and all(found == known for _, found in self._on_each_machine(_stamp, path))

    def put(self, value: Any) -> InStore:
        """Put a value into the object store."""
        import ray

        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        with named_errors():
            return InStore(ray.put((data, [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers])))

    def _on_each_machine(self, task: Task, *argument: Any) -> Iterator[tuple[str, Any]]:
        """The address of each machine, and what the task gives there."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        shared = ray.put((task, None, __version__))
        for node in live_nodes():
            there = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
            remote = ray.remote(_run_task).options(scheduling_strategy=there, num_cpus=0)
            try:
                yield node["NodeManagerAddress"], _result(remote.remote(shared, argument))
            except RunError as error:  # a machine that is lost does not need to have anything
                if not isinstance(error.__cause__, ray.exceptions.TaskUnschedulableError):
                    raise


DRIVER_PAGES = 1 << 29
"""Bytes of mapped files that the process may occupy whose tasks run elsewhere: it looks at few places of them."""


def page_limit(executor: Executor, memory: int) -> int:
    """How much this process may occupy before it gives pages of files back, if tasks may use so much memory."""
    return resident() + DRIVER_PAGES if executor.remote else int(memory * PAGE_SHARE)


def portable(model: Any, executor: Executor) -> Any:
    """A model as it is given to workers: one in a file that all have at its path by the path, others by value."""
    return model if model.file is None or executor.has(model.file) else model.by_value()


@dataclass(frozen=True)
class InStore:
    """A value in the object store. It is sent to each machine once; its arrays are used where they are there."""

    reference: Any

    def open(self) -> Any:
        """The value, which a worker keeps for its next tasks."""
        return _from_store(self)


@functools.lru_cache(maxsize=1)
def _from_store(stored: InStore) -> Any:
    import ray

    data, buffers = ray.get(stored.reference)
    return pickle.loads(data, buffers=[np.asarray(_Mapped(buffer)) for buffer in buffers])


class _Mapped:
    """Memory of the object store as an array of the type that functions are compiled for: others may be written to."""

    def __init__(self, array: NDArray[np.uint8]) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def _stamp(_: None, path: str) -> Any:
    return stamp(path)


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
        of_system = isinstance(error.__cause__, OSError)
        return (f"{_HERE}: {error.message}" if of_system else error.message, error.hint), None
    except OSError as error:
        return (f"{_HERE} cannot read or write: {error}", "look at its disks, and at that of the output"), None


_HERE = f"the machine {platform.node()}"
