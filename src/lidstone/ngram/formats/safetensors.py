"""Tables and counts as files: `save` and `load`.

A file holds the arrays of the trie and the values on its nodes, the strings of the vocabulary, and as metadata the
format's version, what kind of thing it is, the vocabulary's specials and the signature. `checked_tensors.py` looks
after the bytes. Loading maps the arrays into memory, so a large table is ready as fast as its checksum is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from lidstone.errors import FileFormatError, InputError, TextError, format_error
from lidstone.files import as_url
from lidstone.ngram.adjusted import Derived
from lidstone.ngram.compact import code_parts, coded_table, read_codes, read_trie, trie_parts
from lidstone.ngram.counts import Counts
from lidstone.ngram.formats.checked_tensors import Arrays, Shape, StreamFile, read_arrays, shapes_of, write_arrays
from lidstone.ngram.formats.kenlm import table_of_binary
from lidstone.ngram.formats.remote import model_card, read_remote, write_remote
from lidstone.ngram.formats.validate import (
    array_sizes,
    check_counts,
    check_dtypes,
    check_probabilities,
    check_shapes,
    check_table,
    check_trie,
)
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import Trie
from lidstone.text.source import KIND_NAMES, Kind, kind_of_file
from lidstone.text.vocabulary import Vocabulary

FORMAT = "lidstone"
VERSION = 1
MAX_DEPTH = 20
_TRIE = ("levels", "words", "suffixes", "first")


def save(thing: BackoffTable | Counts, path: str | Path) -> None:
    """Write a table or counts as safetensors; whole or not at all. Addresses (s3://, hf://) are in `remote.py`.

    >>> import tempfile
    >>> from lidstone.ngram.counts import count
    >>> file = Path(tempfile.mkdtemp()) / "counts.safetensors"
    >>> save(count([[1, 2]], Vocabulary(size=3, eos=0), order=2), file)
    >>> load(file).of([1, 2])
    1
    """
    if url := as_url(path):
        return write_remote(url, partial(save, thing), partial(model_card, thing))
    kind, values, facts = _table_parts(thing) if isinstance(thing, BackoffTable) else _counts_parts(thing)
    strings, metadata = _head(kind, thing.vocab, facts)
    write_arrays(path, {**values, **strings}, metadata)


@contextmanager
def stream(
    path: Path,
    kind: Literal["table", "counts"],
    vocab: Vocabulary,
    levels: NDArray[np.int64],
    types: Mapping[str, DTypeLike],
    facts: Mapping[str, Any],
    more: Mapping[str, NDArray[Any]] | None = None,
) -> Iterator[StreamFile]:
    """The file that `save` writes, for arrays of these types that come stretch by stretch; with `more` small arrays."""
    strings, metadata = _head(kind, vocab, facts)
    small, sizes = {"levels": levels, **(more or {}), **strings}, array_sizes(levels)
    large = {name: Shape(np.dtype(dtype), sizes[name]) for name, dtype in types.items()}
    shapes = shapes_of({"levels": levels}) | large | shapes_of(small)  # in the order of `save`
    with StreamFile(path, shapes, metadata) as file:
        file.append(small)
        yield file
        file.finish()


def _head(kind: str, vocab: Vocabulary, facts: Mapping[str, Any]) -> tuple[Arrays, dict[str, str]]:
    """The strings of a file as arrays, and what its header says besides the arrays."""
    strings, vocabulary = _vocabulary_parts(vocab)
    facts = {"format": FORMAT, "version": VERSION, "kind": kind, "vocabulary": vocabulary, **facts}
    write = json.JSONEncoder(default=np.generic.item).encode  # settings may be numpy's numbers
    return strings, {name: fact if isinstance(fact, str) else write(fact) for name, fact in facts.items()}


def load(path: str | Path, *, verify: bool = True) -> BackoffTable | Counts:
    """Map what `save` wrote back into memory; a trie of KenLM is read as a table.

    Everything that is later used as an index or summed is checked first (`validate.py`), and a table whose
    probabilities do not sum to one is reported on the logger `lidstone`. `verify=False` skips checksums and these
    checks, and so the reading of the whole file: for files from a source that you trust. Then only pages that are used
    are in memory, and processes that load the same file share them.

    >>> import tempfile
    >>> from lidstone import WittenBell, count
    >>> file = Path(tempfile.mkdtemp()) / "table.safetensors"
    >>> WittenBell().fit(count([[1, 2]], Vocabulary(size=3, eos=0), order=2)).save(file)
    >>> load(file).order
    2
    """
    if url := as_url(path):
        return read_remote(url, partial(load, verify=verify))
    if _check_kind(path) == "kenlm":
        return table_of_binary(path)
    arrays, metadata = read_arrays(path, verify=verify)
    _check_version(path, metadata)
    read = _READERS.get(metadata["kind"])
    if read is None:
        raise format_error(path, f"it holds {metadata['kind']!r}, neither a table nor counts")
    try:
        check_dtypes(arrays)
        thing = read(arrays, metadata)
        check_shapes(thing.vocab, thing.trie, arrays)
        if verify:
            check_trie(thing.trie, thing.vocab)
            check_table(thing) if isinstance(thing, BackoffTable) else check_counts(thing)
    except KeyError as error:
        raise format_error(path, f"it lacks {error}") from error
    except (TypeError, ValueError, IndexError, OverflowError, RecursionError, InputError) as error:
        raise format_error(path, f"its parts do not fit together ({error})") from error
    if verify and isinstance(thing, BackoffTable):
        check_probabilities(thing, str(path))
    return thing


def _check_kind(path: str | Path) -> Kind | None:
    """What the file is; what `load` cannot read is refused, and the error says how it is read."""
    if not Path(path).is_file():
        return None  # the reader says why
    try:
        kind, compressed = kind_of_file(path)
    except TextError as error:
        raise FileFormatError(error.message, hint=error.hint) from error
    if kind in _ELSEWHERE:
        raise FileFormatError(f"{path} is {KIND_NAMES[kind]}, not a table or counts", hint=_ELSEWHERE[kind])
    if compressed and kind in ("table", "counts", "kenlm"):
        raise FileFormatError(
            f"{path} is compressed {KIND_NAMES[kind]}", hint="decompress it first: it is mapped into memory"
        )
    return kind


_ELSEWHERE: dict[Kind, str] = {
    "arpa": "use lidstone.read_arpa, or turn it into a table: lidstone convert IN.arpa OUT.safetensors",
    "text": "count it first: lidstone.count_text, or lidstone count TEXT --order 3 --output COUNTS",
    "zip": "unpack it first",
}


def load_table(path: str | Path, *, verify: bool = True) -> BackoffTable:
    """`load`, where only a table will do."""
    thing = load(path, verify=verify)
    if isinstance(thing, BackoffTable):
        return thing
    raise InputError(f"{path} holds counts, not a table", hint="fit a smoother to them first: lidstone fit")


def load_counts(path: str | Path, *, verify: bool = True) -> Counts:
    """`load`, where only counts will do."""
    thing = load(path, verify=verify)
    if isinstance(thing, Counts):
        return thing
    raise InputError(f"{path} holds a table, not counts", hint="count a text first: lidstone count")


def _check_version(path: str | Path, metadata: Mapping[str, str]) -> None:
    if metadata.get("format") != FORMAT or "kind" not in metadata:
        raise format_error(path, "it is a safetensors file of another program")
    if metadata.get("version") != str(VERSION):
        raise FileFormatError(
            f"{path} has version {metadata.get('version')} of the format; this lidstone reads version {VERSION}",
            hint="update lidstone, or make the file again",
        )


def _table_parts(table: BackoffTable) -> tuple[str, Arrays, dict[str, Any]]:
    """The arrays of a table, plain or compact; `widths` are those of packed arrays."""
    values = {"rows": table.rows, "backoffs": table.backoffs} if table.codes is None else code_parts(table.codes)
    packed = table.trie.packed
    links, widths = (_trie_parts(table.trie), {}) if packed is None else trie_parts(packed)
    arrays = {"levels": table.trie.levels, **links, "base": table.base, **values}
    return "table", arrays, {"signature": table.signature, **({"widths": widths} if widths else {})}


def _read_table(arrays: Arrays, metadata: Mapping[str, str]) -> BackoffTable:
    signature, base, levels = _json(metadata, "signature", dict), arrays["base"], arrays["levels"]
    packed = "widths" in metadata
    trie = read_trie(levels, arrays, _json(metadata, "widths", dict)) if packed else _trie(arrays)
    vocab = _vocabulary(arrays, metadata)
    if "prob_codes" in arrays:
        return coded_table(vocab, base, trie, read_codes(levels, arrays), signature)
    return BackoffTable(vocab, trie, base, arrays["rows"], arrays["backoffs"], signature)


def _counts_parts(counts: Counts) -> tuple[str, Arrays, dict[str, Any]]:
    values = {**_trie_parts(counts.trie), "counts": counts.counts}
    if counts.stored is not None:
        stored = counts.stored
        values |= {name: getattr(stored, name) for name in ("totals", "adjusted", "adjusted_totals")}
        values |= histogram_parts(stored)
    return "counts", values, {"thresholds": counts.thresholds}


def histogram_parts(derived: Derived) -> Arrays:
    """Counts of counts by their names in files."""
    names = ("histograms", "adjusted_histograms")
    return {f"{name}.{k}": array for name in names for k, array in enumerate(getattr(derived, name), start=1)}


def _read_counts(arrays: Arrays, metadata: Mapping[str, str]) -> Counts:
    trie, stored = _trie(arrays), None
    if "totals" in arrays:
        plain, adjusted = (
            tuple(arrays[f"{name}.{order}"] for order in range(1, trie.order + 1))
            for name in ("histograms", "adjusted_histograms")
        )
        stored = Derived(arrays["totals"], arrays["adjusted"], arrays["adjusted_totals"], plain, adjusted)
    thresholds = tuple(_json(metadata, "thresholds", list))
    return Counts(_vocabulary(arrays, metadata), trie, arrays["counts"], thresholds, stored)


_READERS: dict[str, Callable[[Arrays, Mapping[str, str]], BackoffTable | Counts]] = {
    "table": _read_table,
    "counts": _read_counts,
}


def _trie_parts(trie: Trie) -> Arrays:
    return {name: getattr(trie, name) for name in _TRIE}


def _trie(arrays: Arrays) -> Trie:
    return Trie(*(arrays[name] for name in _TRIE))


def _vocabulary_parts(vocab: Vocabulary) -> tuple[Arrays, dict[str, Any]]:
    """Strings as one array of bytes, for they may be many; the rest as JSON."""
    facts = vocab.to_dict()
    tokens = facts.pop("tokens")
    if tokens is None:
        return {}, facts
    text = "".join(tokens).encode("utf-8", "surrogatepass")
    lengths = np.fromiter(map(len, tokens), np.int32, len(tokens))
    return {"token_lengths": lengths, "token_text": np.frombuffer(text, np.uint8)}, facts


def _vocabulary(arrays: Arrays, metadata: Mapping[str, str]) -> Vocabulary:
    tokens = None
    if "token_lengths" in arrays:
        text, lengths = arrays["token_text"].tobytes().decode("utf-8", "surrogatepass"), arrays["token_lengths"]
        if lengths.min(initial=0) < 0 or lengths.sum() != len(text):
            raise InputError("the lengths of its tokens do not fit their text")
        ends = [0, *np.cumsum(lengths).tolist()]
        tokens = [text[begin:end] for begin, end in pairwise(ends)]
    return Vocabulary.from_dict({**_json(metadata, "vocabulary", dict), "tokens": tokens})


def _json(metadata: Mapping[str, str], name: str, kind: type) -> Any:
    """A part of the metadata that must be a JSON object or array, without deep nesting."""
    value = json.loads(metadata[name])
    if not isinstance(value, kind) or _depth(value) > MAX_DEPTH:
        raise InputError(f"{name!r} is not {'an object' if kind is dict else 'a list'}, or is nested too deeply")
    return value


def _depth(value: Any) -> int:
    """How deeply lists and objects are nested; small, for the parser has its own limit."""
    if isinstance(value, Mapping):
        value = list(value.values())
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0
