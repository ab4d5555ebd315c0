"""A Ray cluster of three machines on this one, of which some die; and threads that are given what its workers are."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import pickle
import shutil
import signal
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from lidstone.ngram.disk.executors import RayExecutor, ThreadExecutor

OBJECTS = 80 << 20


class Workers(ThreadExecutor):
    """Threads that open the files themselves, and get copies of all else, whose arrays are those that were put."""

    def __init__(self, workers):
        super().__init__(workers)
        self.remote, self.tasks = True, 0

    def put(self, value):
        buffers = []
        data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        return Stored(data, [np.frombuffer(bytearray(buffer.raw()), np.uint8) for buffer in buffers])

    def run(self, task, files, opened, arguments):
        def work(_, *argument):
            self.tasks += 1
            return pickle.loads(task)(files and files.open(), *pickle.loads(pickle.dumps(argument)))

        task = pytest.importorskip("ray").cloudpickle.dumps(task)  # functions without a name, too
        for result in super().run(work, None, None, arguments):
            yield pickle.loads(pickle.dumps(result))


class Stored:
    """A value, and the arrays that it is made with each time."""

    def __init__(self, data, buffers):
        self.data, self.buffers = data, buffers

    def open(self):
        return pickle.loads(self.data, buffers=self.buffers)


class Machines(RayExecutor):
    """Kills a worker at the start of each step, and a machine in the middle of some; another machine is started.

    `folder` is for notes of the workers that were killed; `spilled` says whether results went to the disk. One machine
    may be slow, and the disk of one full: their ids.
    """

    spilled, slow, full = False, "", ""

    def __init__(self, machines, left, folder):
        super().__init__()
        self.machines, self.left, self.folder = machines, left, folder

    def run(self, task, files, opened, arguments):
        name = getattr(task, "func", task).__name__
        results = super().run(delayed(task, self.folder / name, self.slow, self.full), files, opened, arguments)
        if name in self.left:
            yield from itertools.islice(results, 1)
            self.left.remove(name)
            self.machines.remove_node(next(iter(self.machines.worker_nodes)), allow_graceful=False)
            self.machines.add_node(num_cpus=1, object_store_memory=OBJECTS)
        for result in results:
            Machines.spilled |= any(Path(os.environ["RAY_TMPDIR"]).glob("ray/session_*/ray_spilled_objects*/*"))
            yield result


def delayed(task, killed, slow, full):
    """The task, a moment later, so that several are under way; the first one kills its process, and notes its id."""

    def run(*arguments):
        import ray

        machine = ray.get_runtime_context().get_node_id()
        time.sleep(2 if machine == slow else 0.1)
        if machine == full:
            raise OSError(errno.ENOSPC, "No space left on device")
        with contextlib.suppress(FileExistsError), killed.open("x") as note:
            note.write(str(os.getpid()))
            note.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return task(*arguments)

    return run


@pytest.fixture
def machines(monkeypatch):
    """Three machines with object stores of their own; the first one has no worker."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # short, for sockets; others look for clusters in /tmp/ray
    monkeypatch.setenv("RAY_TMPDIR", folder)
    monkeypatch.setenv("RAY_worker_niceness", "0")  # 15 by default: too little on a machine that does other work
    head = {"num_cpus": 0, "object_store_memory": OBJECTS, "include_dashboard": False}
    found = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(2):
            found.add_node(num_cpus=1, object_store_memory=OBJECTS)
        yield found
    finally:
        found.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
