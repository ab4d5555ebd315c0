"""A teacher on disk: at each position of a text, the log-probabilities of the words that it names.

    teacher/  teacher.json               what it was made from, the shards and their checksums
              shard-00000.safetensors    whole sentences: ids and logprobs (positions, k), labels (positions,), lengths

A position is a token, or the end of its sentence; `labels` has its id, so that a teacher is only used with the text
that it was made for. A log-probability is a multiple of 1/2048 from -31.999 to 0, in 16 bits: it is wrong by at most
1/4096, a probability by 0.025 %. Words that are less probable are left out. An id has 16 bits where V allows.

Columns of others are read as well: `target_token_ids` and `target_logprobs` beside `input_ids` (axolotl), in JSON lines
or Parquet, and `prompt_logprobs` beside `prompt_token_ids` (vLLM) in JSON lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lidstone.errors import InputError, VocabularyMismatch, format_error
from lidstone.files import file_checksums, parse_json, read_json, verify_files, with_checksum, write_text
from lidstone.ngram.formats.checked_tensors import read_arrays, write_arrays
from lidstone.text.vocabulary import Vocabulary

FORMAT, MANIFEST = 1, "teacher.json"
STEPS = 2048  # per nat
NO_WORD = 65535  # the code of an unused place
IDS, LOGPROBS, MASK = COLUMNS = ("target_token_ids", "target_logprobs", "target_mask")
"""the columns of a teacher in a batch or a data set, as axolotl names them"""
_AGAIN = "make it again with lidstone teach"


class Taught(NamedTuple):
    """What a teacher says at some positions; in places that are unused the id is -1."""

    labels: NDArray[np.int64]  # (positions,)
    ids: NDArray[np.int64]  # (positions, k)
    logprobs: NDArray[np.float32]  # (positions, k)


class Shard(NamedTuple):
    """Some sentences of a teacher as they are stored."""

    ids: NDArray[Any]  # (positions, k)
    codes: NDArray[np.uint16]  # (positions, k)
    labels: NDArray[np.int32]  # (positions,)
    lengths: NDArray[np.int32]  # (sentences,)

    def save(self, path: Path, metadata: Mapping[str, str]) -> None:
        """Write it in one step."""
        arrays = {name: array.reshape(-1) for name, array in self._asdict().items()}
        write_arrays(path, arrays, {**metadata, "k": str(self.ids.shape[1])})


@dataclass(frozen=True, eq=False)
class StoredTeacher:
    """The sentences of a teacher, mapped from its files.

    >>> teacher = teacher_of([([5, 0], [[(5, -0.5)], [(0, -0.25), (5, -2.0)]])])
    >>> taught = teacher[0]
    >>> taught.ids.tolist(), taught.logprobs.tolist()
    ([[5, -1], [0, 5]], [[-0.5, 0.0], [-0.25, -2.0]])
    """

    shards: Sequence[Shard]
    signature: Mapping[str, Any]

    @property
    def k(self) -> int:
        """The places for words at each position."""
        return int(self.shards[0].ids.shape[1])

    @property
    def facts(self) -> dict[str, Any]:
        """The signature, with the bytes of a position."""
        size = sum(array.nbytes for shard in self.shards for array in shard)
        return {**self.signature, "bytes_per_position": round(size / max(int(self.ends[-1]), 1), 2)}

    def __len__(self) -> int:
        return len(self.ends)

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """The position after each sentence."""
        return np.cumsum(np.concatenate([shard.lengths for shard in self.shards]), dtype=np.int64)

    @cached_property
    def _shard_ends(self) -> NDArray[np.int64]:
        return np.cumsum([len(shard.labels) for shard in self.shards])

    @cached_property
    def _by_tokens(self) -> dict[int, int]:
        """The sentences by a hash of their tokens, and by one of their tokens without the last."""
        found: dict[int, int] = {}
        for shard in self.shards:
            for labels in np.split(shard.labels, np.cumsum(shard.lengths)[:-1]):
                number = len(found) // 2
                found |= {_key(labels, 0): number, _key(labels[:-1], 1): number}
        return found

    def __getitem__(self, number: int) -> Taught:
        end = int(self.ends[number])
        start = int(self.ends[number - 1]) if number % len(self) else 0
        return self.at(np.arange(start, end))

    def at(self, positions: NDArray[np.integer]) -> Taught:
        """What it says at positions of the text (n,); nothing at -1."""
        ids, codes = np.full((len(positions), self.k), -1), np.full((len(positions), self.k), NO_WORD, np.uint16)
        labels, owner = np.full(len(positions), -1), np.searchsorted(self._shard_ends, positions, side="right")
        for number in np.unique(owner[positions >= 0]):
            here = (owner == number) & (positions >= 0)
            shard, first = self.shards[number], int(self._shard_ends[number - 1]) if number else 0
            rows = positions[here] - first
            ids[here], codes[here], labels[here] = shard.ids[rows], shard.codes[rows], shard.labels[rows]
        unused = codes == NO_WORD
        ids[unused] = -1
        return Taught(labels, ids, np.where(unused, 0, -codes.astype(np.float32) / STEPS))

    def find(self, tokens: ArrayLike) -> Taught:
        """What it says of a row of tokens that is one of its sentences, aligned with the tokens.

        The row may have eos or bos before the sentence, and may lack the eos after it.
        """
        row = np.asarray(tokens, dtype=np.int64)
        for start, end in ((0, 0), (1, 0), (0, 1), (1, 1)):  # begun by bos; cut before eos
            number = self._by_tokens.get(_key(row[start:], end)) if len(row) > start else None
            if number is not None:
                found = self[number]
                kept = found._replace(labels=found.labels[: len(row) - start])
                if (kept.labels == row[start:]).all():
                    return _padded(found, start, len(row))
        raise InputError(
            f"a row of {len(row)} tokens, {row[:5].tolist()}..., is no sentence of the teacher",
            hint="make the teacher of this text with this tokenizer; packed rows need `seq_lengths`, as TRL makes them",
        )

    def add_columns(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The columns of a row with `input_ids`, for `dataset.map(teacher.add_columns)`.

        A row of several sentences, as TRL packs them, has their `seq_lengths`.
        """
        ids = np.asarray(row["input_ids"], dtype=np.int64)
        parts = np.split(ids, np.cumsum(row.get("seq_lengths") or [len(ids)])[:-1])
        found = [self.find(part) for part in parts]
        return {
            IDS: np.concatenate([each.ids for each in found]),
            LOGPROBS: np.concatenate([f.logprobs for f in found]),
        }

    def require(self, vocab: Vocabulary) -> None:
        """Raise an error if the teacher was made with another vocabulary."""
        if self.signature.get("vocabulary") not in (None, vocab.fingerprint):
            raise VocabularyMismatch(
                f"the teacher was made with another tokenizer: {self.signature['vocabulary']}, not {vocab.fingerprint}",
                hint="make it with the tokenizer of the network that learns from it",
            )

    def save_parquet(self, path: str | Path) -> None:
        """Write `input_ids`, `target_token_ids` and `target_logprobs`, a row for each sentence; needs pyarrow."""
        import pyarrow
        from pyarrow import parquet

        from lidstone.files import atomic_write

        schema = pyarrow.schema(
            {
                "input_ids": pyarrow.list_(pyarrow.int32()),
                IDS: pyarrow.list_(pyarrow.list_(pyarrow.int32())),
                LOGPROBS: pyarrow.list_(pyarrow.list_(pyarrow.float32())),
            }
        )
        with atomic_write(path) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
            for start in range(0, len(self), 1000):
                rows = [self[number] for number in range(start, min(start + 1000, len(self)))]
                columns = [[row.labels for row in rows], _used(rows, "ids"), _used(rows, "logprobs")]
                writer.write_table(pyarrow.Table.from_arrays(list(map(pyarrow.array, columns)), schema=schema))


def _used(rows: Sequence[Taught], name: str) -> list[Any]:
    """The values of this name, without unused places."""
    return [[line[keep].tolist() for line, keep in zip(getattr(row, name), row.ids >= 0, strict=True)] for row in rows]


def _key(tokens: NDArray[Any], missing: int) -> int:
    """A hash of the tokens of a sentence."""
    return hash((tokens.astype(np.int32).tobytes(), missing))


def _padded(found: Taught, start: int, length: int) -> Taught:
    """Moved by `start` positions, at which nothing is said, and cut to a length."""
    before = [(start, 0)]
    labels = np.pad(found.labels, before, constant_values=-1)
    ids, logprobs = np.pad(found.ids, [*before, (0, 0)], constant_values=-1), np.pad(found.logprobs, [*before, (0, 0)])
    return Taught(labels[:length], ids[:length], logprobs[:length])


def encode(logprobs: NDArray[np.floating], used: NDArray[np.bool_]) -> NDArray[np.uint16]:
    """Log-probabilities in 16 bits; words below exp(-31.999), and places that are not used, become `NO_WORD`.

    >>> encode(np.array([-0.5, -40.0, 0.0]), np.array([True, True, False])).tolist()
    [1024, 65535, 65535]
    """
    codes = np.rint(np.clip(-np.where(used, logprobs, 0.0), 0, 40) * STEPS)
    return np.where(used & (codes < NO_WORD), codes, NO_WORD).astype(np.uint16)


def id_type(size: int) -> type[np.integer]:
    """The type in which ids of a vocabulary are stored."""
    return np.uint16 if size <= 1 << 16 else np.int32


def save_manifest(folder: Path, signature: Mapping[str, Any], shards: Sequence[str] | None = None) -> None:
    """Write `teacher.json`; without shards the teacher is not finished."""
    facts: dict[str, Any] = {"format": FORMAT, "signature": dict(signature), "complete": shards is not None}
    files = {} if shards is None else file_checksums(folder, shards)
    write_text(folder / MANIFEST, json.dumps(with_checksum({**facts, "files": files}), indent=1) + "\n")


def load_teacher(path: str | Path, *, verify: bool = True) -> StoredTeacher:
    """A teacher that `lidstone teach` wrote, or a file of columns: JSON lines (.jsonl, compressed or not) or Parquet.

    `verify=False` does not compare the checksums of a folder's files, and so does not read them.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "teacher.jsonl"
    >>> row = {"input_ids": [1, 2], "target_token_ids": [[0], [2]], "target_logprobs": [[0.0], [-0.5]]}
    >>> _ = file.write_text(json.dumps(row))
    >>> load_teacher(file).k
    1
    """
    folder = Path(path)
    if not folder.exists():
        raise InputError(f"there is no teacher {path}", hint=_AGAIN)
    if not folder.is_dir():
        return _of_columns(folder)
    manifest = read_manifest(folder)
    if not manifest.get("complete"):
        raise InputError(f"the teacher {folder} is not finished", hint="run the same command again: it continues")
    try:
        if verify:
            verify_files(folder, manifest["files"])
        shards = [load_shard(folder / name) for name in manifest["files"]]
        if len({shard.ids.shape[1] for shard in shards}) != 1:
            raise ValueError("its shards do not fit together")
        return StoredTeacher(shards, manifest["signature"])
    except (ValueError, OSError, TypeError, LookupError, AttributeError) as error:
        raise format_error(folder, str(error), hint=_AGAIN) from error


def read_manifest(folder: Path) -> dict[str, Any]:
    """The content of `teacher.json`."""
    if not (folder / MANIFEST).is_file():
        raise InputError(f"{folder} is no teacher: it has no {MANIFEST}", hint=_AGAIN)
    found = read_json(folder / MANIFEST, hint=_AGAIN)
    if not isinstance(found, dict) or found.get("format") != FORMAT or not isinstance(found.get("files"), dict):
        raise format_error(folder, f"its {MANIFEST} has another format", hint="use a newer lidstone, or make it again")
    return found


def load_shard(path: Path) -> Shard:
    """A shard, mapped."""
    arrays, metadata = read_arrays(path, verify=False)
    k, positions = int(metadata.get("k", 0)), len(arrays.get("labels", ()))
    sizes = {name: len(array) for name, array in arrays.items()}
    if sizes != {"ids": k * positions, "codes": k * positions, "labels": positions, "lengths": sizes.get("lengths")}:
        raise format_error(path, "it is no shard of a teacher", hint=_AGAIN)
    types, lengths = {name: array.dtype.str[1:] for name, array in arrays.items()}, arrays["lengths"]
    if types.pop("ids") not in ("u2", "i4") or types != {"codes": "u2", "labels": "i4", "lengths": "i4"}:
        raise format_error(path, "an array has the wrong type", hint=_AGAIN)
    if k < 1 or lengths.min(initial=1) < 1 or lengths.sum(dtype=np.int64) != positions:
        raise format_error(path, "its sentences do not fit its positions", hint=_AGAIN)
    ids, codes = (arrays[name].reshape(-1, k) for name in ("ids", "codes"))
    return Shard(ids, codes, arrays["labels"], arrays["lengths"])


Words = Sequence[tuple[int, float]]
"""the words that are named at a position, and their log-probabilities"""


def teacher_of(
    sentences: Iterable[tuple[Sequence[int], Sequence[Words]]], signature: Mapping[str, Any] | None = None
) -> StoredTeacher:
    """A teacher in memory, from the tokens of each sentence and the words named at each token."""
    read = list(sentences)
    words = [named for _, sentence in read for named in sentence]
    k = max(map(len, words), default=0)
    if not k:
        raise InputError("the teacher names no word", hint="check the columns that were read")
    ids, logprobs = np.full((len(words), k), -1), np.zeros((len(words), k))
    for at, named in enumerate(words):
        for place, (word, value) in enumerate(named):
            ids[at, place], logprobs[at, place] = word, value
    if np.isnan(logprobs).any() or (logprobs > 1e-3).any():
        raise InputError("the teacher's log-probabilities hold NaN or numbers above 0", hint="give natural logarithms")
    labels = np.concatenate([np.asarray(tokens, dtype=np.int32) for tokens, _ in read])
    lengths = np.array([len(tokens) for tokens, _ in read], dtype=np.int32)
    return StoredTeacher([Shard(ids.astype(np.int32), encode(logprobs, ids >= 0), labels, lengths)], signature or {})


def _of_columns(path: Path) -> StoredTeacher:
    rows = _parquet_rows(path) if path.suffix == ".parquet" else _json_rows(path)
    return teacher_of(_read_row(path, number, row) for number, row in enumerate(rows, start=1))


def _json_rows(path: Path) -> Iterator[Any]:
    from lidstone.text.reader import read_lines

    for number, line in enumerate(read_lines(path), start=1):
        try:
            yield parse_json(line)
        except ValueError as error:
            raise format_error(path, f"it is not JSON: {error}", line=number) from error


def _parquet_rows(path: Path) -> Iterator[Any]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise InputError(f"{path} needs pyarrow", hint="pip install pyarrow, or give JSON lines") from error
    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
    except (ArrowException, OSError) as error:
        raise format_error(path, str(error)) from error


def _read_row(path: Path, number: int, row: Any) -> tuple[list[int], list[Words]]:
    """Tokens, and the words named at each, of a row of either kind."""
    try:
        if "prompt_logprobs" in row:
            tokens, named = row["prompt_token_ids"], [_of_vllm(each) for each in row["prompt_logprobs"]]
        else:
            tokens, named = row["input_ids"], _of_axolotl(row)
        if not len(tokens) == len(named):
            raise format_error(path, f"{len(tokens)} tokens have {len(named)} entries of the teacher", line=number)
        labels = [int(token) for token in tokens]
        ids = [*labels, *(word for words in named for word, _ in words)]
        if not 0 <= min(ids, default=0) <= max(ids, default=0) < 1 << 31:
            raise ValueError("an id is negative or has more than 31 bits")
        return labels, named
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        hint = f"rows have input_ids, {IDS} and {LOGPROBS}, or vLLM's prompt_token_ids and prompt_logprobs"
        raise format_error(path, f"it is no row of a teacher ({error!r})", line=number, hint=hint) from error


def _of_vllm(entry: Mapping[str, Any] | None) -> Words:
    """One position of `prompt_logprobs`; the first is null."""
    found = {int(word): value["logprob"] for word, value in (entry or {}).items()}
    return [(word, float(value)) for word, value in found.items() if value > -np.inf]


def _of_axolotl(row: Mapping[str, Any]) -> list[Words]:
    """The columns of a row; they may begin later than the tokens, which are then without words."""
    mask = row.get(MASK) or [[1] * len(ids) for ids in row[IDS]]
    found: list[Words] = [
        [(int(word), float(value)) for word, value, use in zip(*line, strict=True) if use and value > -np.inf]
        for line in zip(row[IDS], row[LOGPROBS], mask, strict=True)
    ]
    return [*([[]] * (len(row["input_ids"]) - len(found))), *found]
