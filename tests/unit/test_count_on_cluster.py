"""Counting and fitting by tasks: by threads, byte for byte as in memory; and on Ray, on several machines that fail."""

from __future__ import annotations

import contextlib
import errno
import functools
import gzip
import itertools
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lidstone import __version__
from lidstone.errors import InputError, LidstoneError, TextError
from lidstone.ngram.counts import count_text
from lidstone.ngram.disk import count_on_cluster as cluster
from lidstone.ngram.disk import executors, links, write_counts
from lidstone.ngram.disk.count_on_cluster import count_on_cluster, cut
from lidstone.ngram.disk.executors import RayExecutor, ThreadExecutor, _run_task
from lidstone.ngram.formats.safetensors import save
from lidstone.text import words
from lidstone.text.inputs import Input
from lidstone.text.vocabulary import Vocabulary

LINES = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=6), min_size=1, max_size=30).filter(any)
TEXT = "a b c a d\nb c e\nf a b\ng a\n" * 12
MEMORY = 1 << 40


@given(text=st.text(alphabet="ab \n", max_size=60), size=st.integers(1, 20), data=st.integers(1, 7))
@settings(deadline=None)
def test_every_line_is_in_exactly_one_split(tmp_path_factory, text, size, data):
    path = tmp_path_factory.mktemp("split") / "text"
    path.write_text(text)
    parts = []
    for split in cut([Input(str(path))], size):
        source = split.open()
        with Path(source).open("rb") if isinstance(source, str) else source as stream:
            parts.append(b"".join(iter(lambda stream=stream: stream.read(data), b"")).decode())
    assert "".join(parts) == text
    filled = [part for part in parts if part]
    assert all(part.endswith("\n") for part in filled[:-1])


def set_sizes(monkeypatch, *, tokens, nodes, lists=2):
    """Blocks of a few tokens, buckets of a few n-grams, and several rounds in which words are joined."""
    monkeypatch.setattr(words, "CHUNK_BYTES", 16)
    monkeypatch.setattr(cluster, "block_tokens", lambda *_: tokens)
    monkeypatch.setattr(cluster, "LISTS", lists)
    monkeypatch.setattr(write_counts, "bucket_nodes", lambda *_: nodes)
    monkeypatch.setattr(links, "BLOCK_NODES", 5)


@settings(deadline=None, max_examples=40)
@given(
    lines=LINES,
    order=st.integers(1, 8),
    tokens=st.integers(1, 30),
    size=st.integers(4, 60),
    lists=st.integers(2, 4),
    limits=st.lists(st.integers(0, 3), max_size=4),
    known=st.sampled_from([None, "abcd"]),
)
def test_the_file_is_that_of_counting_in_memory(tmp_path_factory, lines, order, tokens, size, lists, limits, known):
    folder = tmp_path_factory.mktemp("cluster")
    text, limits = folder / "text", [0, *sorted(limits)][:order]
    text.write_text("".join(" ".join(line) + "\n" for line in lines))
    options = {"thresholds": limits, "vocab": known and Vocabulary.from_words(known)}
    with pytest.MonkeyPatch.context() as monkeypatch:
        set_sizes(monkeypatch, tokens=tokens, nodes=1000, lists=lists)
        inputs = [Input(str(text))]
        count_on_cluster(inputs, order, folder / "out", ThreadExecutor(2), memory=MEMORY, split_bytes=size, **options)
    save(count_text(text, order, **options), folder / "same")
    assert (folder / "out").read_bytes() == (folder / "same").read_bytes()
    assert sorted(path.name for path in folder.iterdir()) == ["out", "same", "text"]


def test_a_bad_file_stops_the_count_or_is_left_out(tmp_path, monkeypatch):
    (tmp_path / "bad.gz").write_bytes(gzip.compress(b"x y z\n" * 9_999)[:-9])
    (tmp_path / "good").write_text(TEXT)
    inputs = [Input(str(tmp_path / name)) for name in ("bad.gz", "good")]
    set_sizes(monkeypatch, tokens=100_000, nodes=100_000)
    arguments, said = (inputs, 3, tmp_path / "out", ThreadExecutor(1)), []
    with pytest.raises(LidstoneError, match=r"bad\.gz is cut off") as caught:
        count_on_cluster(*arguments, memory=MEMORY)
    assert caught.value.hint
    assert count_on_cluster(*arguments, memory=MEMORY, skip_bad=True, report=said.append) == 1
    assert len(said) == 1 and "bad.gz is cut off" in said[0]
    save(count_text(tmp_path / "good", 3), tmp_path / "same")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "same").read_bytes()
    with pytest.raises(InputError, match="nothing to count"):
        count_on_cluster(inputs[:1], 3, tmp_path / "out", ThreadExecutor(1), memory=MEMORY, skip_bad=True)


def test_a_text_that_changed_since_it_was_cut(tmp_path):
    text = tmp_path / "text"
    text.write_text(TEXT)
    (split,) = cut([Input(str(text))])
    os.utime(text, ns=(1, 1))
    with pytest.raises(TextError, match="changed while it was read"):
        split.open()


def test_standard_input_cannot_be_cut_and_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match="workers cannot read standard input"):
        count_on_cluster([Input("-")], 2, tmp_path / "out", ThreadExecutor(1), memory=MEMORY)
    assert not list(tmp_path.iterdir())


def test_small_texts_are_cut_so_that_all_workers_read(tmp_path):
    (tmp_path / "text").write_bytes(b"a b\n" * (1 << 20))
    assert [len(cut([Input(str(tmp_path / "text"))], workers=workers)) for workers in (1, 2, 8)] == [2, 4, 4]


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_errors_of_workers_travel_as_one_line():
    assert _run_task((lambda opened, number: number, None, __version__), (3,)) == (None, 3)
    (message, hint), _ = _run_task((full, None, __version__), ())
    assert "a worker cannot read or write: [Errno 28] No space left on device" in message and hint
    (message, hint), _ = _run_task((full, None, "0.0.9"), ())
    assert message.startswith("a worker has lidstone") and "the driver 0.0.9" in message and hint


STEPS = ["read_split", "join_words", "count_block", "merge_bucket", "write_level", "link_children", "write_window"]
STEPS += ["write_kept", "fill_block"]
OBJECTS = 80 << 20


class Machines(RayExecutor):
    """Kills a worker at the start of each step, and a machine in the middle of it; another machine is started."""

    def __init__(self, machines, killed, folder):
        super().__init__()
        self.machines, self.killed, self.folder = machines, killed, folder

    def run(self, task, files, opened, arguments):
        name = getattr(task, "func", task).__name__
        results = super().run(delayed(task, self.folder / name), files, opened, arguments)
        if name in STEPS and name not in self.killed:
            yield from itertools.islice(results, 1)
            self.killed.append(name)
            self.machines.remove_node(next(iter(self.machines.worker_nodes)), allow_graceful=False)
            self.machines.add_node(num_cpus=1, object_store_memory=OBJECTS)
        yield from results


def delayed(task, killed):
    """The task, a moment later, so that several are under way; the first one kills its process, and notes its id."""

    def run(*arguments):
        time.sleep(0.1)
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
    head = {"num_cpus": 0, "object_store_memory": OBJECTS, "include_dashboard": False}
    found = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(2):
            found.add_node(num_cpus=1, object_store_memory=OBJECTS)
        yield found
    finally:
        found.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.unix
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_counts_and_tables_are_exact_though_a_worker_and_a_machine_die_in_every_step(tmp_path, monkeypatch, machines):
    import ray
    from typer.testing import CliRunner

    from lidstone.cli.main import app
    from lidstone.ngram.disk import derive
    from lidstone.ngram.disk import fit as disk_fit
    from lidstone.ngram.smoothers.registry import get_smoother

    text, killed, workers = tmp_path / "text", [], tmp_path / "workers"
    workers.mkdir()
    text.write_text(TEXT * 3)
    set_sizes(monkeypatch, tokens=40, nodes=1000)
    monkeypatch.setattr(cluster, "SPLIT_BYTES", 300)
    monkeypatch.setattr(executors, "RayExecutor", functools.partial(Machines, machines, killed, workers))
    for module in (derive, disk_fit):
        monkeypatch.setattr(module, "block_nodes", lambda *_: 40)

    def run(*arguments):
        result = CliRunner().invoke(app, [*map(str, arguments), "--engine", "ray", "--address", machines.address])
        assert not ray.is_initialized()
        return result

    counted = run("count", text, "-n", 4, "--threshold", 0, "--threshold", 0, "--threshold", 1, "-o", tmp_path / "out")
    assert counted.exit_code == 0, counted.output
    fitted = run("fit", tmp_path / "out", "-s", "katz", "--set", "fallback=0.5", "-o", tmp_path / "table")
    assert fitted.exit_code == 0, fitted.output
    assert sorted(killed) == sorted(STEPS)
    assert {path.name for path in workers.iterdir()} >= set(STEPS)
    assert len({path.read_text() for path in workers.iterdir()} - {str(os.getpid())}) >= len(STEPS)
    counts = count_text(text, 4, thresholds=[0, 0, 1])
    save(counts, tmp_path / "same")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "same").read_bytes()
    get_smoother("katz", fallback=0.5).fit(counts).save(tmp_path / "same-table")
    assert (tmp_path / "table").read_bytes() == (tmp_path / "same-table").read_bytes()
    monkeypatch.setattr(executors, "_is_folder", lambda *_: False)
    refused = run("count", text, "-n", 2, "-o", tmp_path / "other")
    assert refused.exit_code == 1 and "has no folder" in refused.output
    assert not (tmp_path / "other").exists() and not list(tmp_path.glob(".*"))
