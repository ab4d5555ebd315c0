"""Counting on disk writes the bytes that counting in memory writes, however small its blocks and buckets are."""

from __future__ import annotations

import gzip
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lidstone.errors import InputError, LidstoneError, TextError
from lidstone.ngram.counts import count_text
from lidstone.ngram.disk import count_file, derive, links
from lidstone.ngram.disk import write_counts as writing
from lidstone.ngram.disk.count_file import count_to_file
from lidstone.ngram.disk.executors import ThreadExecutor
from lidstone.ngram.formats.safetensors import load_counts, save
from lidstone.text import words
from lidstone.text.vocabulary import Vocabulary

MEMORY = 1 << 40
LINES = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=6), min_size=1, max_size=30).filter(any)


@pytest.fixture
def tiny(monkeypatch):
    """Blocks of a few tokens and buckets of a few n-grams."""
    set_sizes(monkeypatch, tokens=7, nodes=40)


def set_sizes(monkeypatch, *, tokens, nodes, chunk=16):
    monkeypatch.setattr(words, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(count_file, "block_tokens", lambda *_: tokens)
    monkeypatch.setattr(writing, "bucket_nodes", lambda *_: nodes)
    monkeypatch.setattr(links, "BLOCK_NODES", 5)


def text_of(lines):
    return "".join(" ".join(line) + "\n" for line in lines)


def in_memory(path, order, output, **options):
    save(count_text(path, order, **options), output)
    return output.read_bytes()


@settings(deadline=None, max_examples=60)
@given(
    lines=LINES,
    order=st.integers(1, 6),
    tokens=st.integers(1, 30),
    nodes=st.integers(30, 300),
    blank=st.sampled_from(["skip", "count"]),
)
def test_the_file_is_that_of_counting_in_memory(tmp_path_factory, lines, order, tokens, nodes, blank):
    folder = tmp_path_factory.mktemp("count")
    text, output = folder / "text", folder / "on-disk"
    text.write_text(text_of(lines))
    with pytest.MonkeyPatch.context() as monkeypatch:
        set_sizes(monkeypatch, tokens=tokens, nodes=nodes)
        try:
            count_to_file([text], order, output, memory=MEMORY, blank=blank)
        except InputError as error:
            assert "begin with one pair of words" in str(error) and nodes < 30 * order
            return
    assert output.read_bytes() == in_memory(text, order, folder / "in-memory", blank=blank)
    assert sorted(path.name for path in folder.iterdir()) == ["in-memory", "on-disk", "text"]


@settings(deadline=None, max_examples=40)
@given(lines=LINES, order=st.integers(1, 5), nodes=st.integers(1, 60), limits=st.lists(st.integers(0, 3), max_size=4))
def test_thresholds_on_disk_write_what_they_write_in_memory(tmp_path_factory, lines, order, nodes, limits):
    folder = tmp_path_factory.mktemp("count")
    text, output, limits = folder / "text", folder / "on-disk", [0, *sorted(limits)][:order]
    text.write_text(text_of(lines))
    with pytest.MonkeyPatch.context() as monkeypatch:
        set_sizes(monkeypatch, tokens=20, nodes=1000)
        monkeypatch.setattr(derive, "block_nodes", lambda *_: nodes)
        count_to_file([text], order, output, memory=MEMORY, thresholds=limits)
    assert output.read_bytes() == in_memory(text, order, folder / "in-memory", thresholds=limits)
    assert sorted(path.name for path in folder.iterdir()) == ["in-memory", "on-disk", "text"]


def test_several_files_and_a_given_vocabulary(tmp_path, tiny):
    vocab = Vocabulary.from_words(["a", "b", "d"])
    (tmp_path / "one").write_text("a b c\nb a\n")
    (tmp_path / "two.gz").write_bytes(gzip.compress(b"c d a b\n\n" * 40))
    sources = [tmp_path / "one", tmp_path / "two.gz"]
    count_to_file(sources, 4, tmp_path / "out", memory=MEMORY, vocab=vocab)
    assert (tmp_path / "out").read_bytes() == in_memory(sources, 4, tmp_path / "same", vocab=vocab)


def test_standard_streams_can_be_counted(tmp_path, tiny):
    count_to_file([io.BytesIO(b"a b\nb c a\n" * 20)], 3, tmp_path / "out", memory=MEMORY)
    assert load_counts(tmp_path / "out").of([2, 3]) == 20


def test_wikitext(tmp_path, monkeypatch):
    data = os.environ.get("LIDSTONE_DATA")
    text = Path(data or ".") / "wikitext-2" / "wiki.valid.tokens.xz"
    if not text.is_file():
        pytest.skip("needs WikiText-2")
    monkeypatch.setattr(count_file, "block_tokens", lambda *_: 30_000)
    monkeypatch.setattr(writing, "bucket_nodes", lambda *_: 40_000)
    count_to_file([text], 4, tmp_path / "out", memory=MEMORY)
    assert (tmp_path / "out").read_bytes() == in_memory(text, 4, tmp_path / "same")


def test_wide_node_ids_and_counts_say_the_same(tmp_path, tiny, monkeypatch):
    text = tmp_path / "text"
    text.write_text("a b c a\nb c\n" * 9)
    plain = count_text(text, 3)
    monkeypatch.setattr("lidstone.ngram.disk.write_counts.count.MAX_NODES", 20)
    with pytest.MonkeyPatch.context() as inner:
        inner.setattr(writing, "node_type", lambda nodes: np.int64)
        inner.setattr(writing, "count_type", lambda unigrams: np.int64)
        inner.setattr("lidstone.ngram.count.MAX_NODES", 2**31 - 1)
        count_to_file([text], 3, tmp_path / "out", memory=MEMORY)
    wide = load_counts(tmp_path / "out")
    assert wide.trie.first.dtype == wide.trie.suffixes.dtype == wide.counts.dtype == np.int64
    for name in ("levels", "words", "suffixes", "first"):
        np.testing.assert_array_equal(getattr(wide.trie, name), getattr(plain.trie, name))
    np.testing.assert_array_equal(wide.counts, plain.counts)
    assert writing.node_type(20) is np.int32 and writing.node_type(21) is np.int64


def test_an_error_leaves_nothing_behind(tmp_path, tiny):
    (tmp_path / "text").write_bytes(b"a b c\n" * 50 + b"a <s> b\n")
    with pytest.raises(TextError, match=r"reserved word <s> .*line 51"):
        count_to_file([tmp_path / "text"], 3, tmp_path / "out", memory=MEMORY)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_an_interrupt_leaves_nothing_behind(tmp_path, tiny, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    (tmp_path / "text").write_bytes(b"a b c\n" * 50)
    monkeypatch.setattr(writing, "merge_within", interrupted)
    with pytest.raises(KeyboardInterrupt):
        count_to_file([tmp_path / "text"], 3, tmp_path / "out", memory=MEMORY)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_a_disk_that_fills_up_is_an_error_that_cleans_up(tmp_path, tiny, monkeypatch):
    def full(*_, **__):
        raise LidstoneError("cannot write run-3: No space left on device", hint="free some space")

    (tmp_path / "text").write_bytes(b"a b c\n" * 50)
    monkeypatch.setattr(count_file, "save_piece", full)
    with pytest.raises(LidstoneError, match="No space left"):
        count_to_file([tmp_path / "text"], 3, tmp_path / "out", memory=MEMORY)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_too_little_space_is_refused_before_any_work(tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr("lidstone.ngram.disk.workspace.shutil.disk_usage", lambda _: usage)
    (tmp_path / "text").write_bytes(b"a b c\n" * 50)
    # 200 tokens x 2 orders x 0.75 n-grams x 24 bytes = 7,200 bytes
    with pytest.raises(InputError, match=r"needs about 7\.0 KB of temporary space"):
        count_to_file([tmp_path / "text"], 3, tmp_path / "out", memory=MEMORY)


def test_a_file_that_changes_while_it_is_read(tmp_path, tiny, monkeypatch):
    text = tmp_path / "text"
    text.write_bytes(b"a b c\n" * 50)
    count = count_file.RunWriter._count

    def meddle(self, block, number, vocab):
        if number == 1:
            text.write_bytes(b"a b d\n" * 50)
            os.utime(text, ns=(1, 1))
        count(self, block, number, vocab)

    monkeypatch.setattr(count_file.RunWriter, "_count", meddle)
    with pytest.raises(TextError, match="text changed while it was read"):
        count_to_file([text], 3, tmp_path / "out", memory=MEMORY)


def test_a_second_count_to_the_same_file_is_refused(tmp_path, tiny):
    (tmp_path / "text").write_bytes(b"a b c\n")
    with count_file.workspace(tmp_path / "out", {}), pytest.raises(InputError, match="another process is counting"):
        count_to_file([tmp_path / "text"], 3, tmp_path / "out", memory=MEMORY)


def test_a_limit_below_the_program_itself(tmp_path):
    (tmp_path / "text").write_bytes(b"a b c\n")
    with pytest.raises(InputError, match=r"a limit of 10\.0 MB leaves 0 B"):
        count_to_file([tmp_path / "text"], 3, tmp_path / "out", memory=10 << 20)


def test_nothing_to_count(tmp_path):
    (tmp_path / "text").write_bytes(b"\n\n")
    with pytest.raises(InputError, match="nothing to count"):
        count_to_file([tmp_path / "text"], 3, tmp_path / "out", memory=MEMORY)


KILLED = """
import sys
from pathlib import Path
from lidstone.ngram.disk import count_file, write_counts
from lidstone.text import words
words.CHUNK_BYTES = 16
count_file.block_tokens = lambda *_: 7
write_counts.bucket_nodes = lambda *_: 60
stop_at, counted = int(sys.argv[3]), []
save = count_file.save_piece
def slow(piece, path, extra=None):
    save(piece, path, extra)
    counted.append(path.name)
    print(path.name, flush=True)
    if len(counted) == stop_at:
        import time
        time.sleep(60)
count_file.save_piece = write_counts.save_piece = slow
count_file.count_to_file([Path(sys.argv[1])], 3, sys.argv[2], memory=1 << 40, workers=1)
"""


def run_killed(text, output, stop_at):
    """The files that a count has written before it is killed, or in all if it is not."""
    command = [sys.executable, "-c", KILLED, str(text), str(output), str(stop_at)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        names = []
        for line in process.stdout:
            names.append(line.strip())
            if len(names) == stop_at:
                process.send_signal(signal.SIGKILL)
    return names


@pytest.mark.unix
@pytest.mark.slow
def test_a_killed_count_goes_on_where_it_was(tmp_path):
    text, output = tmp_path / "text", tmp_path / "out"
    text.write_text("a b c a d\nb c e\nf a b\n" * 8)
    first = run_killed(text, output, stop_at=3)
    assert (tmp_path / ".out.counting").is_dir() and not output.exists()
    second = run_killed(text, output, stop_at=10_000)
    assert not set(first[:3]) & set(second) and any(name.startswith("run-3") for name in second)
    assert output.read_bytes() == in_memory(text, 3, tmp_path / "same")
    third = run_killed(text, output, stop_at=len(first) + len(second) - 1)  # killed in the middle of merging
    assert any(name.startswith("piece") for name in third)
    fourth = run_killed(text, output, stop_at=10_000)
    assert not any(name.startswith("run") for name in fourth)
    assert output.read_bytes() == (tmp_path / "same").read_bytes()
    assert not (tmp_path / ".out.counting").exists()


@pytest.mark.unix
@pytest.mark.slow
def test_a_text_that_changed_after_a_kill_is_counted_anew(tmp_path):
    text, output = tmp_path / "text", tmp_path / "out"
    text.write_text("a b c a d\nb c e\nf a b\n" * 8)
    run_killed(text, output, stop_at=3)
    time.sleep(0.01)
    text.write_text("a a c a d\nb c e\nf a b\n" * 8)
    assert "run-0.safetensors" in run_killed(text, output, stop_at=10_000)
    assert output.read_bytes() == in_memory(text, 3, tmp_path / "same")


def test_tables_of_wide_counts_are_the_same(tmp_path, monkeypatch):
    """Fitting, saving, scoring and sampling do not mind whether nodes and counts have 32 or 64 bits."""
    from lidstone.ngram.formats.safetensors import load_table
    from lidstone.ngram.smoothers.modified_kneser_ney import ModifiedKneserNey

    text = tmp_path / "text"
    text.write_text("a b c a\nb c d e\na c e\n" * 9 + "e d\n")
    monkeypatch.setattr(writing, "count_type", lambda unigrams: np.int64)
    monkeypatch.setattr(writing, "node_type", lambda nodes: np.int64)
    count_to_file([text], 3, tmp_path / "out", memory=MEMORY)
    smoother = ModifiedKneserNey(fallback=(0.5, 1.0, 1.5))
    with pytest.warns(UserWarning, match="fallback"):
        plain = smoother.fit(count_text(text, 3))
    with pytest.warns(UserWarning, match="fallback"):
        smoother.fit(load_counts(tmp_path / "out")).save(tmp_path / "table")
    wide = load_table(tmp_path / "table")
    assert wide.trie.first.dtype == np.int64
    np.testing.assert_array_equal(wide.rows, plain.rows)
    histories = [[], [2], [2, 3], [wide.vocab.bos], [4, 2]]
    np.testing.assert_array_equal(wide.prob(histories), plain.prob(histories))
    ids = np.array([2, 3, 4, 1, 5, 1])
    np.testing.assert_array_equal(wide.token_logprobs(ids), plain.token_logprobs(ids))
    assert wide.sample(seed=3) == plain.sample(seed=3)
    assert wide.advance(wide.start(), 2) == plain.advance(plain.start(), 2)
    np.testing.assert_array_equal(
        load_counts(tmp_path / "out").drop([0, 1]).counts, count_text(text, 3).drop([0, 1]).counts
    )


def test_the_fingerprint_of_a_file_is_that_of_its_counts(tmp_path, tiny):
    (tmp_path / "text").write_text("a b c a\nb c d e\n" * 5)
    count_to_file([tmp_path / "text"], 3, tmp_path / "out", memory=MEMORY)
    assert load_counts(tmp_path / "out", verify=False).fingerprint == count_text(tmp_path / "text", 3).fingerprint


@pytest.mark.parametrize("thresholds", [[0], [0, 1]])
@pytest.mark.parametrize("size", [8, 1 << 30])
def test_the_fingerprint_by_tasks_is_the_same(tmp_path, tiny, monkeypatch, thresholds, size):
    (tmp_path / "text").write_text("a b c a\nb c d e\n" * 5 + "e e\n")
    monkeypatch.setattr("lidstone.ngram.counts.HASHED_BYTES", size)
    count_to_file([tmp_path / "text"], 3, tmp_path / "out", memory=MEMORY, thresholds=thresholds)
    files, counts = derive.CountFiles.load(tmp_path / "out")
    derive.identify(counts, files, ThreadExecutor(2))
    assert vars(counts)["fingerprint"] == count_text(tmp_path / "text", 3, thresholds=thresholds).fingerprint


PEAK = """
import re, sys
from pathlib import Path
from lidstone.ngram.disk.count_file import count_to_file
from lidstone.cli.count import summary_of_file
count_to_file([sys.argv[1]], 5, sys.argv[2], memory=int(sys.argv[3]))
summary_of_file(Path(sys.argv[2]), int(sys.argv[3]))
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_the_limit_is_kept(tmp_path):
    """A fifth above the limit is allowed."""
    generator = np.random.default_rng(0)
    words = np.minimum(generator.zipf(1.3, 1_500_000), 50_000).reshape(-1, 15)
    with (tmp_path / "text").open("w") as file:
        file.writelines(" ".join(map(str, line)) + "\n" for line in words.tolist())
    limit = 320 << 20
    command = [sys.executable, "-c", PEAK, str(tmp_path / "text"), str(tmp_path / "out"), str(limit)]
    peak = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) * 1024
    assert peak <= 1.2 * limit
