"""Tables and counts as files: `save` and `load`.

A file holds the arrays of the trie and the values on its nodes, the strings of the vocabulary, and as metadata the
format's version, what kind of thing it is, the vocabulary's specials and the signature. `checked_tensors.py` looks
after the bytes. Loading maps the arrays into memory, so a large table is ready as fast as its checksum is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from lidstone.errors import FileFormatError, InputError
from lidstone.ngram.checked_tensors import Arrays, damaged, read_arrays, write_arrays
from lidstone.ngram.counts import Counts, Derived
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import MAX_ORDER, Trie
from lidstone.text.vocabulary import Vocabulary

FORMAT = "lidstone"
VERSION = 1
_TRIE = ("levels", "words", "suffixes", "first")


def save(thing: BackoffTable | Counts, path: str | Path) -> None:
    """Write a table or counts as safetensors; whole or not at all.

    >>> import tempfile
    >>> from lidstone.ngram.counts import count
    >>> file = Path(tempfile.mkdtemp()) / "counts.safetensors"
    >>> save(count([[1, 2]], Vocabulary(size=3, eos=0), order=2), file)
    >>> load(file).of([1, 2])
    1
    """
    kind, values, facts = _table_parts(thing) if isinstance(thing, BackoffTable) else _counts_parts(thing)
    strings, vocabulary = vocabulary_parts(thing.vocab)
    facts = {"format": FORMAT, "version": VERSION, "kind": kind, "vocabulary": vocabulary, **facts}
    write = json.JSONEncoder(default=np.generic.item).encode  # settings may be numpy's numbers
    metadata = {name: fact if isinstance(fact, str) else write(fact) for name, fact in facts.items()}
    trie = {name: getattr(thing.trie, name) for name in _TRIE}
    write_arrays(path, {**trie, **values, **strings}, metadata)


def load(path: str | Path, *, verify: bool = True) -> BackoffTable | Counts:
    """Map what `save` wrote back into memory.

    `verify=False` skips checksums and structure, and so the reading of the whole file: for files that nobody else
    could have touched.
    """
    arrays, metadata = read_arrays(path, verify=verify)
    _check_version(path, metadata)
    read = _READERS.get(metadata["kind"])
    if read is None:
        raise damaged(path, f"it holds {metadata['kind']!r}, neither a table nor counts")
    try:
        thing = read(arrays, metadata)
        sound = not verify or _is_sound(thing, arrays)
    except (KeyError, TypeError, ValueError, InputError) as error:
        raise damaged(path, f"its parts do not fit together ({error})") from error
    if not sound:
        raise damaged(path, "its n-grams do not form a trie")
    return thing


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
        raise damaged(path, "it is a safetensors file of another program")
    if metadata.get("version") != str(VERSION):
        raise FileFormatError(
            f"{path} has version {metadata.get('version')} of the format; this lidstone reads version {VERSION}",
            hint="update lidstone, or make the file again",
        )


def _table_parts(table: BackoffTable) -> tuple[str, Arrays, dict[str, Any]]:
    values = {"base": table.base, "rows": table.rows, "backoffs": table.backoffs}
    return "table", values, {"signature": table.signature}


def _read_table(arrays: Arrays, metadata: Mapping[str, str]) -> BackoffTable:
    base, rows, backoffs = (arrays[name] for name in ("base", "rows", "backoffs"))
    signature = json.loads(metadata["signature"])
    return BackoffTable(_vocabulary(arrays, metadata), _trie(arrays), base, rows, backoffs, signature)


def _counts_parts(counts: Counts) -> tuple[str, Arrays, dict[str, Any]]:
    values = {"counts": counts.counts}
    if counts.stored is not None:
        stored = counts.stored
        values |= {name: getattr(stored, name) for name in ("totals", "adjusted", "adjusted_totals")}
        for name in ("histograms", "adjusted_histograms"):
            values |= {f"{name}.{order}": array for order, array in enumerate(getattr(stored, name), start=1)}
    return "counts", values, {"thresholds": counts.thresholds}


def _read_counts(arrays: Arrays, metadata: Mapping[str, str]) -> Counts:
    trie, stored = _trie(arrays), None
    if "totals" in arrays:
        plain, adjusted = (
            tuple(arrays[f"{name}.{order}"] for order in range(1, trie.order + 1))
            for name in ("histograms", "adjusted_histograms")
        )
        stored = Derived(arrays["totals"], arrays["adjusted"], arrays["adjusted_totals"], plain, adjusted)
    thresholds = tuple(json.loads(metadata["thresholds"]))
    return Counts(_vocabulary(arrays, metadata), trie, arrays["counts"], thresholds, stored)


_READERS: dict[str, Callable[[Arrays, Mapping[str, str]], BackoffTable | Counts]] = {
    "table": _read_table,
    "counts": _read_counts,
}


def _trie(arrays: Arrays) -> Trie:
    return Trie(*(arrays[name] for name in _TRIE))


def vocabulary_parts(vocab: Vocabulary) -> tuple[Arrays, dict[str, Any]]:
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
        text = arrays["token_text"].tobytes().decode("utf-8", "surrogatepass")
        ends = [0, *np.cumsum(arrays["token_lengths"]).tolist()]
        tokens = [text[begin:end] for begin, end in pairwise(ends)]
    return Vocabulary.from_dict({**json.loads(metadata["vocabulary"]), "tokens": tokens})


def _is_sound(thing: BackoffTable | Counts, arrays: Arrays) -> bool:
    """Whether no walk over the arrays can leave them, whoever wrote them."""
    trie = thing.trie
    levels = trie.levels
    if not 1 <= trie.order <= MAX_ORDER or levels[0] != 0 or levels[1] != thing.vocab.size + 1:
        return False
    if (np.diff(levels) < 0).any():
        return False
    sizes = {"words": trie.size, "suffixes": trie.size, "first": trie.inner + 1}
    sizes |= {"base": thing.vocab.size, "rows": trie.size, "backoffs": trie.inner}
    sizes |= {"counts": trie.size, "totals": trie.inner, "adjusted": trie.size, "adjusted_totals": trie.inner}
    if any(len(arrays[name]) != size for name, size in sizes.items() if name in arrays):
        return False
    return bool(_is_closed(levels, trie.words, trie.suffixes, trie.first))


@njit(cache=True, nogil=True)
def _is_closed(levels, words, suffixes, first):  # type: ignore[no-untyped-def]
    """Children lie one level up, suffixes one level down, words in the vocabulary; children in the words' order."""
    bos = levels[1] - 1
    for node in range(levels[1]):
        if words[node] != node or suffixes[node] != -1:
            return False
    for level in range(1, len(levels) - 1):
        if first[levels[level - 1]] != levels[level] or first[levels[level]] != levels[level + 1]:
            return False
        for node in range(levels[level - 1], levels[level]):
            if first[node] > first[node + 1]:
                return False
    for level in range(1, len(levels) - 1):
        for node in range(levels[level], levels[level + 1]):
            if not levels[level - 1] <= suffixes[node] < levels[level] or not 0 <= words[node] < bos:
                return False
    return True
