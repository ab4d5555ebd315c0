"""Counting and fitting by tasks: by threads, byte for byte as in memory; and on Ray, on several machines that fail."""

from __future__ import annotations

import errno
import functools
import gzip
import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ray_machines import Machines, Workers, machines  # noqa: F401

from lidstone import __version__
from lidstone.errors import InputError, LidstoneError, TextError
from lidstone.ngram.counts import count_text
from lidstone.ngram.disk import count_on_cluster as cluster
from lidstone.ngram.disk import executors, links, write_counts
from lidstone.ngram.disk.count_on_cluster import count_on_cluster
from lidstone.ngram.disk.executors import ThreadExecutor, _run_task
from lidstone.ngram.formats import arpa
from lidstone.ngram.formats.arpa import write_arpa
from lidstone.ngram.formats.checked_tensors import read_arrays
from lidstone.ngram.formats.safetensors import load_table, save
from lidstone.text import splits, words
from lidstone.text.inputs import Input
from lidstone.text.reader import read_chunks
from lidstone.text.splits import cut
from lidstone.text.vocabulary import Vocabulary

LINES = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=6), min_size=1, max_size=30).filter(any)
TEXT = "a b c a d\nb c e\nf a b\ng a\n" * 12
MEMORY = 1 << 40


@given(text=st.text(alphabet="ab \n", max_size=60), size=st.integers(1, 20), data=st.integers(1, 7))
@settings(deadline=None)
def test_every_line_is_in_exactly_one_split(tmp_path_factory, text, size, data):
    path = tmp_path_factory.mktemp("split") / "text"
    path.write_text(text)
    parts = [
        split.read(
            lambda *where: b"".join(chunk.data for chunk in read_chunks(*where[:2], stop=where[2], chunk_bytes=data))
        )
        for split in cut([Input(str(path))], size)
    ]
    assert b"".join(parts).decode() == text
    filled = [part for part in parts if part]
    assert all(part.endswith(b"\n") for part in filled[:-1])


def set_sizes(monkeypatch, *, tokens, nodes, lists=2):
    """Blocks of a few tokens, buckets of a few n-grams, and several rounds in which words are joined."""
    monkeypatch.setattr(words, "CHUNK_BYTES", 16)
    monkeypatch.setattr(cluster, "block_tokens", lambda *_: tokens)
    monkeypatch.setattr(cluster, "LISTS", lists)
    monkeypatch.setattr(write_counts, "bucket_nodes", lambda *_: nodes)
    monkeypatch.setattr(links, "BLOCK_NODES", 5)
    monkeypatch.setattr(links, "REMOTE", 2)


@settings(deadline=None, max_examples=40)
@given(
    lines=LINES,
    order=st.integers(1, 8),
    tokens=st.integers(1, 30),
    size=st.integers(4, 60),
    lists=st.integers(2, 4),
    limits=st.lists(st.integers(0, 3), max_size=4),
    known=st.sampled_from([None, "abcd"]),
    workers=st.booleans(),
)
def test_the_file_is_that_of_counting_in_memory(
    tmp_path_factory, lines, order, tokens, size, lists, limits, known, workers
):
    folder = tmp_path_factory.mktemp("cluster")
    text, limits = folder / "text", [0, *sorted(limits)][:order]
    text.write_text("".join(" ".join(line) + "\n" for line in lines))
    options = {"thresholds": limits, "vocab": known and Vocabulary.from_words(known)}
    with pytest.MonkeyPatch.context() as monkeypatch:
        set_sizes(monkeypatch, tokens=tokens, nodes=1000, lists=lists)
        inputs, executor = [Input(str(text))], Workers(2) if workers else ThreadExecutor(2)
        count_on_cluster(inputs, order, folder / "out", executor, memory=MEMORY, split_bytes=size, **options)
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
        split.read(lambda *where: None)


def test_an_error_in_a_part_names_the_line_of_the_file(tmp_path):
    text = tmp_path / "text"
    text.write_bytes(b"a b\n" * 30 + b"a \xff\n" + b"c\n" * 9)
    with pytest.raises(TextError, match=r"0xff in line 31, at byte 122"):
        count_on_cluster([Input(str(text))], 2, tmp_path / "out", ThreadExecutor(1), memory=MEMORY, split_bytes=25)


def test_standard_input_cannot_be_cut_and_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match="workers cannot read standard input"):
        count_on_cluster([Input("-")], 2, tmp_path / "out", ThreadExecutor(1), memory=MEMORY)
    assert not list(tmp_path.iterdir())


def test_small_texts_are_cut_so_that_all_workers_read(tmp_path):
    (tmp_path / "text").write_bytes(b"a b\n" * (1 << 20))
    assert [len(cut([Input(str(tmp_path / "text"))], workers=workers)) for workers in (1, 2, 8)] == [2, 4, 4]


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def read_nothing(*_):
    read_arrays("/nowhere")


def test_errors_of_workers_travel_as_one_line():
    assert _run_task((lambda opened, number: number, None, __version__), (3,)) == (None, 3)
    (message, hint), _ = _run_task((full, None, __version__), ())
    assert re.fullmatch(r"the machine \S+ cannot read or write: \[Errno 28\] No space left on device", message) and hint
    (message, hint), _ = _run_task((read_nothing, None, __version__), ())
    assert re.fullmatch(r"the machine \S+: cannot read /nowhere: No such file or directory", message) and hint
    (message, hint), _ = _run_task((full, None, "0.0.9"), ())
    assert message.startswith("a worker has lidstone") and "the driver 0.0.9" in message and hint


@pytest.mark.unix
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_counts_and_tables_are_exact_though_a_worker_and_a_machine_die_in_every_step(tmp_path, monkeypatch, machines):  # noqa: F811
    import ray
    from typer.testing import CliRunner

    from lidstone.cli.main import app
    from lidstone.ngram.disk import derive
    from lidstone.ngram.disk import fit as disk_fit
    from lidstone.ngram.smoothers.registry import get_smoother

    left = ["read_split", "join_words", "count_block", "merge_bucket", "write_level", "link_children"]
    left += ["write_window", "write_kept", "fill_block", "block_lines"]
    text, workers, steps = tmp_path / "text", tmp_path / "workers", set(left)
    workers.mkdir()
    text.write_text(TEXT * 3)
    set_sizes(monkeypatch, tokens=40, nodes=1000)
    monkeypatch.setattr(splits, "SPLIT_BYTES", 300)
    monkeypatch.setattr(executors, "RayExecutor", functools.partial(Machines, machines, left, workers))
    monkeypatch.setattr(arpa, "_BLOCK", 9)
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
    converted = run("convert", tmp_path / "table", tmp_path / "table.arpa")
    assert converted.exit_code == 0, converted.output
    assert not left and {path.name for path in workers.iterdir()} >= steps
    assert len({path.read_text() for path in workers.iterdir()} - {str(os.getpid())}) >= len(steps)
    counts = count_text(text, 4, thresholds=[0, 0, 1])
    save(counts, tmp_path / "same")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "same").read_bytes()
    get_smoother("katz", fallback=0.5).fit(counts).save(tmp_path / "same-table")
    assert (tmp_path / "table").read_bytes() == (tmp_path / "same-table").read_bytes()
    write_arpa(load_table(tmp_path / "same-table"), tmp_path / "same.arpa")
    assert (tmp_path / "table.arpa").read_bytes() == (tmp_path / "same.arpa").read_bytes()
    (tmp_path / "out").unlink()
    monkeypatch.setattr(Machines, "full", next(iter(machines.worker_nodes)).node_id)
    stopped = run("count", text, "-n", 3, "-o", tmp_path / "out")
    assert stopped.exit_code == 1 and "error: the machine" in stopped.output and "No space left" in stopped.output
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".*"))
    monkeypatch.setattr(Machines, "full", "")
    monkeypatch.setattr(Machines, "slow", next(iter(machines.worker_nodes)).node_id)
    assert run("count", text, "-n", 3, "-o", tmp_path / "out").exit_code == 0
    save(count_text(text, 3), tmp_path / "same")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "same").read_bytes()
    monkeypatch.setattr(executors, "_is_folder", lambda *_: False)
    refused = run("count", text, "-n", 2, "-o", tmp_path / "other")
    assert refused.exit_code == 1 and "has no folder" in refused.output
    assert not (tmp_path / "other").exists() and not list(tmp_path.glob(".*"))
