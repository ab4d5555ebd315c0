"""The steps of counting on a cluster, without one: splits, tasks and parts; and with a local Ray that loses workers."""

from __future__ import annotations

import gzip
import io
import os
import signal
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from lidstone.errors import InputError, LidstoneError, RunError, TextError
from lidstone.ngram.cluster import ray_count as cluster
from lidstone.ngram.cluster import tasks as cluster_tasks
from lidstone.ngram.cluster.parts import count_types, gathered, load_parts
from lidstone.ngram.cluster.tasks import BLANK, CountJob, Space, add_bucket, count_block, cut, guarded, read_split
from lidstone.ngram.counts import count_text
from lidstone.ngram.formats.safetensors import save
from lidstone.ngram.smoothers.registry import get_smoother
from lidstone.text.inputs import Input

LINES = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=6), min_size=1, max_size=30).filter(any)
TEXT = "a b c a d\nb c e\nf a b\ng a\n" * 12


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


def batches(splits):
    """Each split as a batch of its own, as Ray would hand it to a task."""
    for split in splits:
        values = {**vars(split), "column": split.column or ""}
        yield {name: np.array([value]) for name, value in values.items()}


def rows_of(task, given, *rest):
    """The rows that a guarded task gives for some batches."""
    run = guarded(task, *rest)
    return [{name: array[0] for name, array in row.items()} for batch in given for row in run(batch)]


def shuffled(rows, parts):
    """Batches as the shuffle gives them: some hold several buckets, and one bucket may come in two batches."""
    groups = defaultdict(list)
    for number, row in enumerate(rows):
        groups[row["bucket"] % 2, number % parts].append(row)
    for group in groups.values():
        yield {
            name: np.array([row[name] for row in group], object if isinstance(BLANK[name], bytes) else None)
            for name in BLANK
        }


def count_by_tasks(inputs, order, folder, *, tokens, nodes, size, parts=1, thresholds=()):
    """What `count_on_ray` does, with lists instead of datasets."""
    folder.mkdir()
    job, splits = CountJob(order, tokens, nodes), cut(inputs, size)
    blocks = rows_of(read_split, batches(splits), job, None)
    found, ids, unigrams, _ = cluster._number_words(cluster._raised(blocks), splits, None, print)
    space = Space(found, ids, cluster.bucket_starts(unigrams, order, nodes, 2), str(folder))
    rows = rows_of(count_block, shuffled(blocks, parts), job, space)
    sums = list(cluster._raised(rows_of(add_bucket, shuffled(rows, parts), job, space)))
    files = cluster._check(sums, int(unigrams[:-1].sum()), job, space)
    cluster.save_parts(folder, cluster.Parts(found, order, unigrams, [], thresholds), files)


@settings(deadline=None, max_examples=40)
@given(
    lines=LINES, order=st.integers(2, 5), tokens=st.integers(1, 30), size=st.integers(4, 60), parts=st.integers(1, 2)
)
def test_tasks_and_parts_give_the_file_of_counting_in_memory(tmp_path_factory, lines, order, tokens, size, parts):
    folder = tmp_path_factory.mktemp("cluster")
    text = folder / "text"
    text.write_text("".join(" ".join(line) + "\n" for line in lines))
    count_by_tasks([Input(str(text))], order, folder / "out", tokens=tokens, nodes=2000, size=size, parts=parts)
    save(count_text(text, order), folder / "same")
    assert Path(gathered(folder / "out")).read_bytes() == (folder / "same").read_bytes()


def test_thresholds_of_parts_are_applied_when_they_become_one_file(tmp_path):
    text = tmp_path / "text"
    text.write_text(TEXT + "g g a\n")
    options = {"tokens": 20, "nodes": 2000, "size": 60, "thresholds": (0, 1, 11)}
    count_by_tasks([Input(str(text))], 3, tmp_path / "out", **options)
    counts = count_text(text, 3, thresholds=[0, 1, 11])
    save(counts, tmp_path / "same")
    assert count_types(load_parts(tmp_path / "out")) == np.diff(counts.trie.levels)[1:].tolist()
    assert Path(gathered(tmp_path / "out")).read_bytes() == (tmp_path / "same").read_bytes()
    assert not list((tmp_path / "out").glob(".*"))


def test_buckets_are_in_order_and_cut_frequent_words():
    unigrams = np.array([0, 10, 100, 10, 10, 10, 20])  # 160 tokens in 4 or more shares of at most 40
    starts = cluster.bucket_starts(unigrams, order=3, limit=1000, workers=2)
    assert starts == sorted(set(starts)) and starts[0] == 0
    inside = [start for start in starts if start >> 32 == 2]
    assert len(inside) >= 2 and inside[0] == 2 << 32


def test_a_lost_row_is_noticed(tmp_path):
    job, space = CountJob(3, 100, 100), None
    row = {**BLANK, "bucket": 0, "file": "a", "block": "0.0", "pairs": 9}
    with pytest.raises(RunError, match="9 pairs were counted of 10 tokens"):
        cluster._check([row], 10, job, space)
    space = Space(None, {}, [0], str(tmp_path))
    with pytest.raises(RunError, match="gave a block twice"):
        cluster._check([row, row], 18, job, space)


def test_an_error_in_a_text_is_raised_or_its_file_left_out(tmp_path):
    (tmp_path / "bad.gz").write_bytes(gzip.compress(b"x y z\n" * 99_999)[:-9])
    (tmp_path / "good").write_text(TEXT)
    splits = cut([Input(str(tmp_path / name)) for name in ("bad.gz", "good")])
    rows = rows_of(read_split, batches(splits), CountJob(3, 100, 100), None)
    with pytest.raises(LidstoneError, match=r"bad\.gz is cut off") as caught:
        list(cluster._raised(rows))
    assert caught.value.hint
    rows, said = rows_of(read_split, batches(splits), CountJob(3, 100, 100, skip_bad=True), None), []
    assert [row["split"] for row in rows].count(0) > 1  # blocks of the bad file that could be read
    found, ids, unigrams, bad = cluster._number_words(cluster._raised(rows), splits, None, said.append)
    assert said == [f"skipped: {reason}" for reason in [row["bad"] for row in rows if row["bad"]]]
    counts = count_text(tmp_path / "good", 3)
    assert bad == {str(tmp_path / "bad.gz")} and found.tokens == counts.vocab.tokens
    space = Space(found, ids, [0], str(tmp_path), left_out=frozenset([0]))
    rows = rows_of(count_block, shuffled(rows, 1), CountJob(3, 100, 1000), space)
    assert {row["block"].split(".")[0] for row in rows} == {"1"}
    assert unigrams.tolist() == counts.counts[: len(unigrams)].tolist()


def test_errors_travel_as_rows_through_every_step(tmp_path):
    space = Space(count_text(io.BytesIO(b"a b\n"), 1).vocab, {}, [0], str(tmp_path))
    rows = rows_of(count_block, [BLANK], CountJob(3, 100, 100, version="0.0.9"), space)
    rows = rows_of(add_bucket, shuffled(rows, 1), CountJob(3, 100, 100), space)
    with pytest.raises(LidstoneError, match="a worker has lidstone"):
        list(cluster._raised(rows))


def test_workers_of_another_version_are_refused(tmp_path, monkeypatch):
    (tmp_path / "text").write_text(TEXT)
    job = CountJob(3, 100, 100, version="0.0.9")
    rows = rows_of(read_split, batches(cut([Input(str(tmp_path / "text"))])), job, None)
    with pytest.raises(LidstoneError, match=r"a worker has lidstone .*, the driver 0\.0\.9"):
        list(cluster._raised(rows))


def test_a_text_that_changed_since_it_was_cut(tmp_path):
    text = tmp_path / "text"
    text.write_text(TEXT)
    (split,) = cut([Input(str(text))])
    os.utime(text, ns=(1, 1))
    with pytest.raises(TextError, match="changed while it was read"):
        split.open()


def test_standard_input_cannot_be_cut_and_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "count_workers", lambda: 2)
    with pytest.raises(InputError, match="workers cannot read standard input"):
        cluster.count_on_ray([Input("-")], 2, tmp_path / "parts")
    assert not (tmp_path / "parts").exists()


def test_small_texts_are_cut_so_that_all_workers_read(tmp_path):
    (tmp_path / "text").write_bytes(b"a b\n" * (1 << 20))
    assert [len(cut([Input(str(tmp_path / "text"))], workers=workers)) for workers in (1, 2, 8)] == [2, 4, 4]


def test_a_folder_with_something_in_it_is_not_written_to(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "count_workers", lambda: 2)
    (tmp_path / "x").touch()
    with pytest.raises(InputError, match="is not empty"):
        cluster.count_on_ray([Input("text")], 2, tmp_path)


def test_a_folder_of_a_stopped_count(tmp_path):
    with pytest.raises(InputError, match=r"holds no finished counts: it has no parts\.json"):
        load_parts(tmp_path)


def dying(task, flag):
    """The task, but the first worker that runs it is killed when it has begun."""

    def run(batch, *rest):
        for row in task(batch, *rest):
            if not Path(flag).exists():
                Path(flag).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield row

    return run


def dying_once(function, flag):
    """The function, but the first worker that calls it is killed."""

    def call(*arguments):
        if not Path(flag).exists():
            Path(flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)

    return call


def kill_shufflers(monkeypatch, folder):
    """Let Ray's own shuffle lose a worker while it partitions blocks, and one while it puts partitions together."""
    planner = pytest.importorskip("ray.data._internal.planner.plan_all_to_all_op")
    make, reduce, flags = planner._make_hash_partition_fn, planner._concat_reduce, [folder / "map", folder / "reduce"]
    monkeypatch.setattr(planner, "_make_hash_partition_fn", lambda *given: dying_once(make(*given), str(flags[0])))
    monkeypatch.setattr(planner, "_concat_reduce", dying_once(reduce, str(flags[1])))
    return flags


@pytest.mark.unix
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["witten-bell", "katz"])
def test_counts_and_tables_are_exact_though_workers_die(tmp_path, monkeypatch, name):
    """Workers are killed while blocks are counted, twice in the shuffle, when buckets are summed up, and in fitting."""
    ray = pytest.importorskip("ray")
    from lidstone.cli.main import app
    from lidstone.ngram.disk import fit as disk_fit

    text, flags = tmp_path / "text", [tmp_path / "counting", tmp_path / "summing", tmp_path / "fitting"]
    text.write_text(TEXT)
    monkeypatch.setattr(cluster, "count_block", dying(cluster_tasks.count_block, str(flags[0])))
    monkeypatch.setattr(cluster, "add_bucket", dying(cluster_tasks.add_bucket, str(flags[1])))
    monkeypatch.setattr(disk_fit, "fill_block", dying_once(disk_fit.fill_block, str(flags[2])))
    monkeypatch.setattr(disk_fit, "block_nodes", lambda *_: 20)
    monkeypatch.setattr(cluster, "SPLIT_BYTES", 100)
    flags += kill_shufflers(monkeypatch, tmp_path)
    options = ["-n", "3", "-o", str(tmp_path / "out"), "--engine", "ray", "--memory", "1M"]
    result = CliRunner().invoke(app, ["count", str(text), *options])
    assert result.exit_code == 0, result.output
    fallback = ["--set", "fallback=0.5"] if name == "katz" else []
    fit = ["fit", str(tmp_path / "out"), "-s", name, *fallback, "--engine", "ray", "-o", str(tmp_path / "table")]
    fitted = CliRunner().invoke(app, fit)
    assert fitted.exit_code == 0, fitted.output
    assert all(flag.exists() for flag in flags)
    assert not ray.is_initialized()
    counts = count_text(text, 3)
    save(counts, tmp_path / "same")
    assert Path(gathered(tmp_path / "out")).read_bytes() == (tmp_path / "same").read_bytes()
    get_smoother(name, **({"fallback": 0.5} if fallback else {})).fit(counts).save(tmp_path / "same-table")
    assert (tmp_path / "table").read_bytes() == (tmp_path / "same-table").read_bytes()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_words_without_ids_are_the_same_from_one_machine_and_from_several(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    from lidstone.ray_cluster import connect

    text, folders = tmp_path / "text", [tmp_path / "one", tmp_path / "several"]
    text.write_text(TEXT)
    ray = connect(cpus=1)
    try:
        cluster.count_on_ray([Input(str(text))], 3, folders[0], split_bytes=100)
        monkeypatch.setattr(cluster, "count_nodes", lambda: 3)
        cluster.count_on_ray([Input(str(text))], 3, folders[1], split_bytes=100)
    finally:
        ray.shutdown()
    one, several = (Path(gathered(folder)).read_bytes() for folder in folders)
    assert one == several
