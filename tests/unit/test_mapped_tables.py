"""Tables that are used from their files: nothing is copied, and only what is used is in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lidstone.ngram.counts import count
from lidstone.ngram.formats.safetensors import load_table
from lidstone.ngram.smoothers.registry import get_smoother
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import Trie
from lidstone.text.vocabulary import Vocabulary

MB = 1 << 20
linux = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs /proc/self/smaps_rollup")

USE = """
import json, sys
import numpy as np
import lidstone as ld

def memory():
    lines = open("/proc/self/smaps_rollup").read().splitlines()[1:]
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    return sizes["Rss"], sizes["Private_Clean"] + sizes["Private_Dirty"], sizes["Anonymous"]

def use(path):
    table = ld.load(path, verify=False)
    stream = np.tile([5, 6, 7, 8, 0], 4)
    table.token_logprobs(stream)
    state = table.start()
    for word in (5, 6, 7):
        _, state = table.advance(state, word)
    table.prob([(5, 6)])
    table.logprob([7], [(5, 6)])
    return table

def loss(table):
    import torch
    from lidstone.loss.losses import SmoothedCrossEntropy
    loss = SmoothedCrossEntropy(table, gamma=0.1).train()
    logits = torch.zeros(1, 5, table.vocab.size, requires_grad=True)
    loss(logits, torch.tensor([[5, 6, 7, 8, 0]])).total.backward()
    return loss

small, path, parts = sys.argv[1:]
kept = [use(small)]  # compiled code and libraries
if "loss" in parts:
    kept.append(loss(kept[0]))
before = memory()
kept.append(use(path))
if "loss" in parts:
    kept.append(loss(kept[-1]))
after = memory()
print(json.dumps([a - b for a, b in zip(after, before)]), flush=True)
if "wait" in parts:
    sys.stdin.readline()
    print(json.dumps(memory()[1] - before[1]), flush=True)
    sys.stdin.readline()
"""


def make(words: int, dtype: type) -> BackoffTable:
    """Order 3, where each of the words stands before 10 words, and each pair before 10: 100 n-grams per word."""
    size, per = words, 10
    pairs, triples = size * per, size * per * per
    levels = np.array([0, size + 1, size + 1 + pairs, size + 1 + pairs + triples])
    follow = np.sort(np.arange(size)[:, None] * 7 % (size - 11) + np.arange(per) + 1, axis=1).astype(np.int32)
    second = follow[follow.reshape(-1)]  # after (v, w) come the words that come after w
    nodes = np.concatenate([np.arange(size + 1), follow.reshape(-1), second.reshape(-1)]).astype(np.int32)
    suffixes = np.full(levels[3], -1, np.int32)
    suffixes[levels[1] : levels[2]] = follow.reshape(-1)
    suffixes[levels[2] :] = (levels[1] + follow.reshape(-1)[:, None] * per + np.arange(per)).reshape(-1)
    first = np.concatenate([levels[1] + np.arange(size) * per, levels[2] + np.arange(pairs + 1) * per])
    first = np.insert(first, size, levels[2]).astype(np.int32)
    rows = np.where(np.arange(levels[3]) > size, 0.05, 0.0).astype(dtype)
    backoffs = np.where(np.arange(levels[2]) == size, 1.0, 0.5).astype(dtype)
    trie = Trie(levels, nodes, suffixes, first)
    vocab = Vocabulary(size=size, eos=0)
    return BackoffTable(vocab, trie, np.full(size, 1 / size), rows, backoffs, {"smoother": "made"})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A small and a large table of each kind; the large one in float32 has about 170 MB."""
    folder = tmp_path_factory.mktemp("tables")
    small, large = make(100, np.float32), make(120_000, np.float32)
    small.save(folder / "small")
    large.save(folder / "large")
    small.compact(16, pack=True).save(folder / "small-packed")
    large.compact(16, pack=True).save(folder / "large-packed")
    return folder


def run(small: Path, large: Path, parts: str) -> subprocess.Popen:
    command = [sys.executable, "-c", USE, str(small), str(large), parts]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def evict(path: Path) -> None:
    """Take a file out of the system's cache, whose pages may be mapped two megabytes at a time."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_the_made_table_is_sound(files):
    table = load_table(files / "small")  # verified
    assert table.normalisation_error(None) < 1e-6
    assert (files / "large").stat().st_size > 150 * MB


@linux
@pytest.mark.parametrize(
    ("name", "parts"), [("", "score"), ("-packed", "score"), pytest.param("", "loss", marks=pytest.mark.slow)]
)
def test_only_what_is_used_is_in_memory(files, name, parts):
    evict(files / f"large{name}")
    process = run(files / f"small{name}", files / f"large{name}", parts)
    resident, _, anonymous = json.loads(process.communicate(timeout=300)[0])
    size = (files / f"large{name}").stat().st_size
    dense = 120_000 * 8 * 30  # rows of the vocabulary: logits, gradients, probabilities, and the vocabulary itself
    assert anonymous < dense < size / 3 or name == "-packed"
    assert resident < 0.4 * size


@linux
@pytest.mark.slow
def test_processes_share_the_pages(files):
    pytest.importorskip("torch")
    processes = [run(files / "small", files / "large", "loss wait") for _ in range(2)]
    for process in processes:
        process.stdout.readline()
    private = []
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
        private.append(json.loads(process.stdout.readline()))
    for process in processes:
        process.communicate("\n", timeout=60)
    assert sum(private) < 0.5 * (files / "large").stat().st_size


def test_the_loss_reads_the_file_and_gives_the_same_numbers(tmp_path):
    torch = pytest.importorskip("torch")
    from lidstone.loss.kernels.protocol import using
    from lidstone.loss.losses import SmoothedCrossEntropy

    text = [[1, 2, 3], [1, 2], [3, 1, 2, 2], [2, 3]]
    table = get_smoother("witten-bell").fit(count(text, Vocabulary(size=5, eos=0), 3)).compact()
    table.save(tmp_path / "table")
    mapped = load_table(tmp_path / "table", verify=False)
    logits, labels = torch.randn(2, 5, 5), torch.randint(1, 4, (2, 5))
    own, shared = (SmoothedCrossEntropy(each, gamma=0.3).train() for each in (table, mapped))
    assert shared.targets.rows.data_ptr() == mapped.rows.ctypes.data
    assert shared.targets.words.data_ptr() == mapped.trie.words.ctypes.data
    grads = []
    for loss in (own, shared):
        leaf = logits.clone().requires_grad_()
        loss(leaf, labels).total.backward()
        grads.append(leaf.grad)
    assert torch.equal(*grads)
    with using("tensors"):
        totals = [loss(logits.clone().requires_grad_(), labels).total for loss in (own, shared)]
    assert torch.equal(*totals)


def test_scoring_a_mapped_table_computes_no_probabilities_of_all_ngrams(tmp_path):
    text = [[1, 2, 3], [1, 2], [3, 1, 2, 2], [2, 3]]
    table = get_smoother("kneser-essen-ney", discount=0.5).fit(count(text, Vocabulary(size=5, eos=0), 3))
    table.save(tmp_path / "table")
    mapped = load_table(tmp_path / "table")
    stream = np.array([1, 2, 2, 4, 0, 3, 1, 0])
    np.testing.assert_array_equal(mapped.token_logprobs(stream), table.token_logprobs(stream))
    assert mapped.advance(mapped.start(), 1) == table.advance(table.start(), 1)
    assert "ngram_probs" not in vars(mapped)
