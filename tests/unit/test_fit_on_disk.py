"""Fitting on disk writes the bytes that fitting in memory writes, however small its blocks are."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import warnings
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ray_machines import Workers
from tests.smoothing_cases import FALLBACKS
from typer.testing import CliRunner

from lidstone.cli.main import app
from lidstone.errors import FileFormatError, InputError, LidstoneError
from lidstone.ngram.counts import count, count_text
from lidstone.ngram.disk import count_file, derive
from lidstone.ngram.disk import fit as disk_fit
from lidstone.ngram.disk import write_counts as writing
from lidstone.ngram.disk.derive import CountFiles, history_blocks
from lidstone.ngram.disk.executors import ThreadExecutor
from lidstone.ngram.disk.fit import fit_to_file
from lidstone.ngram.formats import arpa, checked_tensors
from lidstone.ngram.formats.safetensors import load_counts, load_table, save
from lidstone.ngram.smoothers import good_turing, registry
from lidstone.ngram.smoothers.base import BlockSmoother, FallbackUsed, make_table, uniform
from lidstone.ngram.smoothers.registry import get_smoother, smoother_names
from lidstone.text.vocabulary import Vocabulary

MEMORY = 1 << 40
LINES = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=6), min_size=1, max_size=30).filter(any)


def smoother_of(name):
    return get_smoother(name, **FALLBACKS.get(name, {}))


def write_counts(path, lines, order, thresholds=None):
    text = path.with_suffix(".txt")
    text.write_text("".join(" ".join(line) + "\n" for line in lines))
    counts = count_text(text, order, thresholds=thresholds)
    save(counts, path)
    return counts


def fit_both(folder, name, counts, nodes, executor=None):
    """The bytes of the table fitted in memory, and of that fitted in blocks of so many nodes."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as monkeypatch:
        warnings.simplefilter("ignore")
        smoother_of(name).fit(counts).save(folder / "in-memory")
        monkeypatch.setattr(disk_fit, "block_nodes", lambda *_: nodes)
        monkeypatch.setattr(derive, "WINDOW", 1)
        fit_to_file(folder / "counts", folder / "on-disk", smoother_of(name), memory=MEMORY, executor=executor)
    return (folder / "in-memory").read_bytes(), (folder / "on-disk").read_bytes()


@pytest.mark.parametrize("name", smoother_names())
def test_all_smoothers_can_be_fitted_block_by_block(name):
    smoother = get_smoother(name)
    assert isinstance(smoother, BlockSmoother) and smoother.name == name


@pytest.mark.parametrize("name", smoother_names())
@settings(deadline=None, max_examples=15)
@given(lines=LINES, order=st.integers(1, 8), nodes=st.integers(1, 60), cut=st.booleans(), workers=st.booleans())
def test_the_files_are_those_of_fitting_in_memory(tmp_path_factory, name, lines, order, nodes, cut, workers):
    folder, executor = tmp_path_factory.mktemp("fit"), Workers(2) if workers else ThreadExecutor(2)
    thresholds = [0, 0, 1, 1, 2][:order] if cut else None
    counts = write_counts(folder / "counts", lines, order, thresholds)
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name_of_size in ("CHUNK", "LARGEST"):
            monkeypatch.setattr(good_turing, name_of_size, 3)
        monkeypatch.setattr(arpa, "_BLOCK", nodes)
        in_memory, on_disk = fit_both(folder, name, counts, nodes, executor)
        arpa.write_arpa(load_table(folder / "in-memory"), folder / "a.arpa")
        disk_fit.write_arpa_by_tasks(folder / "on-disk", folder / "b.arpa", executor, memory=MEMORY)
    assert in_memory == on_disk and (folder / "a.arpa").read_bytes() == (folder / "b.arpa").read_bytes()
    names = ["a.arpa", "b.arpa", "counts", "counts.txt", "in-memory", "on-disk"]
    assert sorted(path.name for path in folder.iterdir()) == names


TEXT = [list("abcad"), list("bce"), list("fab"), list("ga")] * 12


def test_blocks_hold_at_most_so_many_nodes_and_every_history_once(tmp_path):
    trie = write_counts(tmp_path / "counts", TEXT, 4).trie
    for limit in (1, 7, 30, 10_000):
        for order in (2, 3, 4):
            blocks = list(history_blocks(trie, order, limit))
            level = trie.level(order - 1)
            assert [node for start, stop in blocks for node in range(start, stop)] == list(
                range(level.start, level.stop)
            )
            sizes = [stop - start + int(trie.first[stop] - trie.first[start]) for start, stop in blocks]
            assert all(size <= limit or stop - start == 1 for size, (start, stop) in zip(sizes, blocks, strict=True))


def test_derived_counts_are_those_in_memory(tmp_path):
    counts = write_counts(tmp_path / "counts", TEXT, 4)
    files, _ = CountFiles.load(tmp_path / "counts")
    found = derive.derive_to_file(counts, files, tmp_path / "derived", nodes=1, executor=ThreadExecutor(2))
    truth = counts.derived
    for name in ("totals", "adjusted", "adjusted_totals"):
        np.testing.assert_array_equal(getattr(found, name), getattr(truth, name))
        assert getattr(found, name).dtype == getattr(truth, name).dtype
    for name in ("histograms", "adjusted_histograms"):
        assert [part.tolist() for part in getattr(found, name)] == [part.tolist() for part in getattr(truth, name)]


def test_workers_that_do_not_reach_the_output_send_what_they_would_write(tmp_path, monkeypatch):
    counts, write, sent = write_counts(tmp_path / "counts", TEXT, 4), checked_tensors.Target.write, []

    def out_of_reach(target, *values):
        if Path(target.path).parent == tmp_path:  # temporary files stand in a folder there
            sent.append(target)
            target = replace(target, path=str(tmp_path / "nowhere"))
        return write(target, *values)

    monkeypatch.setattr(checked_tensors.Target, "write", out_of_reach)
    in_memory, on_disk = fit_both(tmp_path, "katz", counts, 9, Workers(2))
    assert in_memory == on_disk and sent


def test_64_bit_ids_and_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "count_type", lambda unigrams: np.int64)
    monkeypatch.setattr(writing, "node_type", lambda nodes: np.int64)
    write_counts(tmp_path / "narrow", TEXT, 3)
    count_file.count_to_file([tmp_path / "narrow.txt"], 3, tmp_path / "counts", memory=MEMORY)
    wide = load_counts(tmp_path / "counts")
    assert wide.counts.dtype == np.int64
    for name in ("modified-kneser-ney", "katz"):
        in_memory, on_disk = fit_both(tmp_path, name, wide, 9)
        assert in_memory == on_disk


@dataclass(frozen=True)
class OnlyFit:
    """A smoother of another package, which knows nothing of blocks."""

    def fit(self, counts):
        return make_table(
            self, "only-fit", counts, uniform(counts), np.zeros(counts.trie.size), np.ones(counts.trie.num_histories)
        )


def test_a_smoother_that_has_only_fit_says_that_it_cannot(tmp_path, monkeypatch):
    point = EntryPoint("only-fit", f"{__name__}:OnlyFit", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    write_counts(tmp_path / "counts", TEXT, 3)
    command = ["fit", str(tmp_path / "counts"), "-s", "only-fit", "-o", str(tmp_path / "t.table")]
    assert CliRunner().invoke(app, command).exit_code == 0
    result = CliRunner().invoke(app, [*command, "--memory", "1G"])
    assert result.exit_code == 1
    assert "only-fit cannot be fitted block by block" in result.output


def test_good_turing_falls_back_to_any_smoother(tmp_path, monkeypatch):
    """Here no n-gram occurs once, so that Good-Turing is undefined."""
    point = EntryPoint("only-fit", f"{__name__}:OnlyFit", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    counts = write_counts(tmp_path / "counts", [["a", "b"]] * 2, 2)
    for fallback in ("only-fit", "witten-bell"):
        with pytest.warns(FallbackUsed, match=f"good-turing uses its fallback {fallback} for order 2"):
            table = get_smoother("good-turing", fallback=fallback).fit(counts)
        expected = get_smoother(fallback).fit(counts)
        for name in ("base", "rows", "backoffs"):
            np.testing.assert_array_equal(getattr(table, name), getattr(expected, name))


@pytest.mark.parametrize("name", ["model.table", "model.arpa", "model.arpa.gz"])
def test_the_command_line_writes_what_fitting_in_memory_writes(tmp_path, name):
    write_counts(tmp_path / "counts", TEXT, 3)
    options = ["fit", str(tmp_path / "counts"), "-s", "witten-bell", "-o"]
    plain = CliRunner().invoke(app, [*options, str(tmp_path / name)])
    expected = (tmp_path / name).read_bytes()
    (tmp_path / name).unlink()
    found = CliRunner().invoke(app, [*options, str(tmp_path / name), "--memory", "2G"])
    assert found.exit_code == 0, found.output
    assert found.output == plain.output
    assert (tmp_path / name).read_bytes() == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["counts", "counts.txt", name]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "spark"], "there is no engine 'spark'"),
        (["--address", "auto"], "--address is that of a Ray cluster"),
        (["--memory", "1G", "--held-out", "x"], "--held-out cannot be combined with --memory"),
        (["--memory", "10M"], "leaves 0 B beside the program"),
        (["--memory", "much"], "'much' is not an amount of memory"),
    ],
)
def test_options_that_do_not_fit(tmp_path, options, message):
    write_counts(tmp_path / "counts", TEXT, 3)
    command = ["fit", str(tmp_path / "counts"), "-s", "witten-bell", "-o", str(tmp_path / "t.table")]
    result = CliRunner().invoke(app, [*command, *options])
    assert result.exit_code == 1 and message in result.output


def test_a_count_file_that_changes_while_it_is_read(tmp_path, monkeypatch):
    write_counts(tmp_path / "counts", TEXT, 3)
    fill = disk_fit.fill_block

    def meddle(*arguments):
        os.utime(tmp_path / "counts", ns=(1, 1))
        return fill(*arguments)

    monkeypatch.setattr(disk_fit, "fill_block", meddle)
    with pytest.raises(InputError, match="counts changed while it was read"):
        fit_to_file(tmp_path / "counts", tmp_path / "table", smoother_of("witten-bell"), memory=MEMORY)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["counts", "counts.txt"]


def test_a_damaged_count_file_is_noticed(tmp_path):
    write_counts(tmp_path / "counts", TEXT, 3)
    data = bytearray((tmp_path / "counts").read_bytes())
    data[-100] ^= 1
    (tmp_path / "counts").write_bytes(data)
    with pytest.raises(FileFormatError, match="damaged"):
        fit_to_file(tmp_path / "counts", tmp_path / "table", smoother_of("witten-bell"), memory=MEMORY)


def test_an_interrupt_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    write_counts(tmp_path / "counts", TEXT, 3)
    monkeypatch.setattr(disk_fit, "fill_block", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit_to_file(tmp_path / "counts", tmp_path / "table", smoother_of("witten-bell"), memory=MEMORY)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["counts", "counts.txt"]


@pytest.mark.parametrize("stage", ["derived", "table"])
def test_a_disk_that_fills_up_is_an_error_that_cleans_up(tmp_path, monkeypatch, stage):
    """The system refuses to let a file grow beyond a limit, as a full disk does."""
    resource = pytest.importorskip("resource")
    counts = write_counts(tmp_path / "counts", TEXT, 3)
    limit = derive.derived_bytes(counts) + 800 if stage == "table" else 500
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        with pytest.raises(LidstoneError, match=rf"cannot write .*{stage}[^/]*: File too large"):
            fit_to_file(tmp_path / "counts", tmp_path / "table", smoother_of("witten-bell"), memory=MEMORY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["counts", "counts.txt"]


def test_a_write_that_fails_in_the_middle_cleans_up(tmp_path, monkeypatch):
    write_all = checked_tensors._write_all

    def full(file, data, *checksum):
        if "table" in Path(file.name).name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_all(file, data, *checksum)

    write_counts(tmp_path / "counts", TEXT, 3)
    monkeypatch.setattr(checked_tensors, "_write_all", full)
    with pytest.raises(LidstoneError, match=r"cannot write .*table: No space left on device"):
        fit_to_file(tmp_path / "counts", tmp_path / "table", smoother_of("witten-bell"), memory=MEMORY)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["counts", "counts.txt"]


def test_too_little_space_is_refused_before_any_work(tmp_path, monkeypatch):
    write_counts(tmp_path / "counts", TEXT, 3)
    monkeypatch.setattr("lidstone.ngram.disk.workspace.shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(InputError, match="fitting needs about"):
        fit_to_file(tmp_path / "counts", tmp_path / "table", smoother_of("witten-bell"), memory=MEMORY)


PEAK = """
import re, sys
from pathlib import Path
from lidstone.ngram.disk.fit import fit_to_file
from lidstone.ngram.formats import checked_tensors
from lidstone.ngram.smoothers.registry import get_smoother
fallbacks = {"modified-kneser-ney": (0.5, 1, 1.5), "katz": 0.5}
smoother = get_smoother(sys.argv[4], fallback=fallbacks[sys.argv[4]])
fit_to_file(sys.argv[1], sys.argv[2], smoother, memory=int(sys.argv[3]))
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
@pytest.mark.parametrize("name", ["modified-kneser-ney", "katz"])
def test_the_limit_is_kept(tmp_path, name):
    """Counts and table take several times the limit; a fifth above it is allowed."""
    generator = np.random.default_rng(0)
    words = generator.integers(0, 20_000, 4_000_000, dtype=np.int32)
    save(count(words, Vocabulary(size=20_000, eos=0), 5), tmp_path / "counts")
    limit = 260 << 20
    command = [sys.executable, "-c", PEAK, str(tmp_path / "counts"), str(tmp_path / "out"), str(limit), name]
    peak = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) * 1024
    sizes = (tmp_path / "counts").stat().st_size, (tmp_path / "out").stat().st_size
    assert sum(sizes) > 2 * limit, sizes
    assert peak <= 1.2 * limit, peak
