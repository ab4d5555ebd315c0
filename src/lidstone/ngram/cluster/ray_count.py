"""Counting on a Ray cluster with Ray Data: `count_on_ray`. Nodes need lidstone, and the output folder at the same path.

1. `map_batches(read_split)`: words and how often each occurs. The driver numbers them in the order of the text, whose
   ids stay in the object store.
2. `map_batches(count_block)`: the kernel counts each block; its n-grams go to buckets, ranges of their first two words.
3. `repartition(keys=["bucket"])`: the shuffle, through the object store, which spills to disk.
4. `map_batches(add_bucket)`: the sum of each bucket, as a file.
"""

from __future__ import annotations

import itertools
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError, LidstoneError, RunError
from lidstone.files import as_url
from lidstone.ngram.cluster.parts import save_parts
from lidstone.ngram.cluster.tasks import (
    IDS,
    SPLIT_BYTES,
    CountJob,
    Rows,
    Space,
    TextSplit,
    add_bucket,
    count_block,
    cut,
    guarded,
    on_tables,
    read_split,
)
from lidstone.ngram.counts import check_thresholds
from lidstone.ngram.disk.memory import BYTES_PER_NODE, block_tokens
from lidstone.ngram.disk.merge import merge_within
from lidstone.ngram.disk.pieces import BITS, load_piece, save_piece, whole
from lidstone.ngram.disk.write_counts import Parts, count_type
from lidstone.ngram.trie import check_order
from lidstone.ray_cluster import SHUFFLERS, count_nodes, count_workers, named_errors
from lidstone.text.inputs import Input
from lidstone.text.vocabulary import Vocabulary
from lidstone.text.words import Blank, WordReader

Report = Callable[[str], None]
DEFAULT_MEMORY = 2 << 30
"""Bytes per task."""
PARTITIONS = 16
"""Of a shuffle, at least: buckets go to partitions by hash, so as many as buckets would leave some empty."""


def count_on_ray(
    inputs: Sequence[Input],
    order: int,
    output: str | Path,
    *,
    memory: int = DEFAULT_MEMORY,
    vocab: Vocabulary | None = None,
    thresholds: Sequence[int] | None = None,
    skip_bad: bool = False,
    blank: Blank = "skip",
    split_bytes: int | None = None,
    report: Report = lambda text: None,
) -> tuple[Parts, int]:
    """Count texts on the Ray cluster that this process is connected to, into a folder of parts.

    A task takes about `memory` bytes. `report` is called with messages on progress and on files that are left out.
    Parts hold all n-grams; thresholds are applied when they become one file, for the continuation counts of the whole
    text come first. Returns the parts, and how many of the inputs were counted.
    """
    check_order(order)
    limits = check_thresholds(thresholds or [0], order)
    job = CountJob(order, block_tokens(memory, order, 1), memory // BYTES_PER_NODE, skip_bad, blank)
    splits = cut(inputs, split_bytes or SPLIT_BYTES, count_workers())
    folder = _new_folder(Path(output))
    report(f"reading {len(splits)} parts of {len(inputs)} texts")
    blocks = _read(splits, job, vocab)
    found, ids, unigrams, bad = _number_words(_words(blocks), splits, vocab, report)
    left_out = frozenset(split.number for split in splits if split.name in bad)
    starts = bucket_starts(unigrams, order, job.nodes, count_workers())
    bare = replace(found, tokens=None)
    space = Space(bare, ids, starts, str(folder.resolve()), count_type(unigrams), left_out)
    files = _count(blocks, int(unigrams[:-1].sum()), job, space, report) if order > 1 else []
    parts = save_parts(folder, Parts(found, order, unigrams, [], limits), files)
    return parts, sum(item.name not in bad for item in inputs)


def _new_folder(output: Path) -> Path:
    """An empty folder: parts of another count must not get between ours."""
    if url := as_url(output):
        raise InputError(f"{url} is not a folder that workers can write to", hint="give one that all nodes share")
    output.mkdir(parents=True, exist_ok=True)
    if any(output.iterdir()):
        raise InputError(f"{output} is not empty", hint="give a new folder, or remove what is there")
    return output


def _dataset(splits: Sequence[TextSplit]) -> Any:
    import ray.data

    _configure(ray.data.DataContext.get_current())
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    rows = [{**asdict(split), "column": split.column or ""} for split in splits]
    return ray.data.from_items(rows, override_num_blocks=max(len(rows), 1))


def _configure(context: Any) -> None:
    """All workers count before the first of them shuffles. Compression and fewer objects pay between machines only."""
    context.enable_progress_bars = False
    context.op_resource_reservation_enabled = False
    if count_nodes() == 1:
        context.shuffle_compression = "none"  # since Ray 2.58
        context.shuffle_input_batch_bytes = 0  # blocks are not copied into larger ones first


def _read(splits: Sequence[TextSplit], job: CountJob, vocab: Vocabulary | None) -> Any:
    """The words of all splits, block by block."""
    with named_errors():
        return _mapped(_dataset(splits), guarded(read_split, job, vocab)).materialize()


def _mapped(data: Any, task: Any) -> Any:
    """A task over all blocks of data, by the processes that will also end the shuffle: new ones take a second."""
    return data.map_batches(task, batch_size=None, batch_format="numpy", runtime_env=SHUFFLERS)


def _rows(data: Any) -> Iterator[Rows]:
    """All rows; an error among them is raised."""
    with named_errors():
        yield from _raised(data.iter_rows())


def _words(blocks: Any) -> Iterator[Rows]:
    """The rows of `read_split` without ids: of other machines, these must not come here."""
    if count_nodes() > 1:
        yield from _rows(blocks.drop_columns(list(IDS), runtime_env=SHUFFLERS))
        return
    with named_errors():
        for table in blocks.iter_batches(batch_size=None, batch_format="pyarrow"):
            yield from _raised(table.drop_columns(list(IDS)).to_pylist())


def _raised(rows: Iterable[Rows]) -> Iterator[Rows]:
    """The rows, up to the first that says what is wrong with the input."""
    for row in rows:
        if row["error"]:
            message, hint = row["error"].split("\0")
            raise LidstoneError(message, hint=hint)
        yield row


def _number_words(
    rows: Iterable[Rows], splits: Sequence[TextSplit], vocab: Vocabulary | None, report: Report
) -> tuple[Vocabulary, dict[int, Any], NDArray[np.int64], set[str]]:
    """The vocabulary in the order of the text; by split, the ids of its words; how often each occurs; bad files."""
    ordered = sorted(rows, key=lambda row: (int(row["split"]), int(row["number"])))
    bad = {splits[int(row["split"])].name: row["bad"] for row in ordered if row["bad"]}
    for message in dict.fromkeys(bad.values()):
        report(f"skipped: {message}")
    good = [row for row in ordered if splits[int(row["split"])].name not in bad]
    found, ids = (vocab, {}) if vocab else _numbered(good)
    total = np.zeros(found.size + 1, np.int64)
    for row in good:
        counts = np.frombuffer(row["counts"], np.int64)
        of_words = ids[int(row["split"])] if ids else np.arange(len(counts))
        total[of_words[: len(counts)]] += counts  # each word has one id
    total[-1] = total[found.eos]
    if not total.any():
        raise InputError("there is nothing to count: no sentence has a token", hint="give some text")
    return found, ids, total, set(bad)


def _numbered(rows: Sequence[Rows]) -> tuple[Vocabulary, dict[int, NDArray[np.int32]]]:
    """The words of all rows at their first occurrence, and for each split the ids of its words."""
    reader, ids = WordReader(None), {}
    for split, found in itertools.groupby(rows, key=lambda row: int(row["split"])):
        ids[split] = reader.learn(b"".join(row["words"] for row in found))
    return reader.vocabulary(), ids


def bucket_starts(unigrams: NDArray[np.int64], order: int, limit: int, workers: int) -> list[int]:
    """Keys at which buckets begin: about equal shares of the text, at least four per worker.

    How often two words follow each other is not known yet; where a word is frequent its followers are taken to be
    distributed as all words are.
    """
    tokens = int(unigrams.sum())
    share = max(1, min(limit // max(order - 1, 1), tokens // (4 * workers)))
    followers = np.cumsum(unigrams[:-1]) / max(int(unigrams[:-1].sum()), 1)
    starts, weight = [0], 0
    for word, count in enumerate(unigrams.tolist()):
        if count > share:
            cuts = np.searchsorted(followers, np.arange(1, -(-count // share)) / -(-count // share)) + 1
            starts += [word << BITS, *(word << BITS | second for second in np.unique(cuts).tolist())]
            weight = share
        elif weight + count > share:
            starts.append(word << BITS)
            weight = count
        else:
            weight += count
    return sorted(set(starts))


def _count(blocks: Any, tokens: int, job: CountJob, space: Space, report: Report) -> list[Path]:
    """The piece of each bucket, in order."""
    import ray

    report(f"counting into {len(space.starts)} buckets")
    shared = ray.put(replace(space, ids={split: ray.put(ids) for split, ids in space.ids.items()}))
    counted = _mapped(blocks, guarded(count_block, job, shared))
    shuffled = counted.repartition(max(len(space.starts), PARTITIONS), keys=["bucket"])
    add = on_tables(guarded(add_bucket, job, shared))
    sums = shuffled.map_batches(add, batch_size=None, batch_format="pyarrow")  # Ray makes the shuffle end with it
    return _check(list(_rows(sums)), tokens, job, space)


def _check(rows: Sequence[Rows], tokens: int, job: CountJob, space: Space) -> list[Path]:
    """One file per bucket, with every block once; a token is the second of exactly one pair, so none may be missing."""
    pairs = sum(int(row["pairs"]) for row in rows)
    if pairs != tokens:
        hint = "count again; a text may have changed meanwhile"
        raise RunError(f"{pairs:,} pairs were counted of {tokens:,} tokens", hint=hint)
    by_bucket: dict[int, list[Rows]] = defaultdict(list)
    for row in rows:
        by_bucket[int(row["bucket"])].append(row)
    return [_one_file(found, job, space) for _, found in sorted(by_bucket.items())]


def _one_file(rows: list[Rows], job: CountJob, space: Space) -> Path:
    """Ray may hand a bucket out in several batches: their sums are added."""
    folder = Path(space.folder)
    blocks = [block for row in rows for block in row["block"].split()]
    if len(set(blocks)) != len(blocks):
        raise RunError("the shuffle gave a block twice", hint="count again; if it happens again, report it")
    path: Path = folder / rows[0]["file"]
    if len(rows) == 1:
        return path
    parts = [whole(load_piece(folder / row["file"])[0], space.vocab.bos) for row in rows]
    save_piece(merge_within(parts, job.order, space.vocab.bos, job.nodes, space.counts), path)
    for row in rows[1:]:
        (folder / row["file"]).unlink()
    return path
