r"""Writing a table as ARPA text that KenLM, SRILM and OpenGrm read.

Every n-gram of the trie is listed with log10 of its probability, and so is its prefix, as KenLM requires.
`<s>` and all that cannot happen stand at -99, SRILM's zero. A backoff of one is left out. N-grams are written block by
block, so a table that is mapped into memory can be larger than it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.files import atomic_write
from lidstone.ngram.arpa.blocks import blocks_of, probs_of, read, words_of
from lidstone.ngram.formats.remote import as_url, write_remote
from lidstone.ngram.table import BackoffTable
from lidstone.text.vocabulary import BOS, EOS, UNK, Vocabulary

LOG_ZERO = -99.0
_BLOCK = 1 << 16


Tokens = Sequence[str] | Callable[[int], str]


def write_arpa(table: BackoffTable, path: str | Path, tokens: Tokens | None = None) -> None:
    """Write a table as ARPA, compressed if the name ends in .gz, .bz2, .xz or .zst; `-` is standard output.

    `tokens` are the strings of the ids, where the vocabulary has none or others are wanted: one per id, or a function
    of the id, such as `lambda number: chr(number + 100)` for the token-level models of NeMo. eos is written as `</s>`,
    the unknown word as `<unk>`, ids that cannot be predicted not at all, a probability of zero as -99.
    """
    if url := as_url(path):
        return write_remote(url, lambda file: write_arpa(table, file, tokens))
    strings = _strings(table.vocab, tokens)
    with _open_for_writing(path) as file:
        file.write(_head(table))
        for order in range(1, table.order + 1):
            file.write(f"\n\\{order}-grams:\n".encode())
            for nodes in blocks_of(table, order, _BLOCK):
                file.write(_lines(table, strings, nodes, order))
        file.write(b"\n\\end\\\n")


def _strings(vocab: Vocabulary, tokens: Tokens | None) -> list[str]:
    """What each id, `<s>` included, is called in the file."""
    if callable(tokens):
        tokens = [tokens(number) for number in range(vocab.size)]
    given = vocab.tokens if tokens is None else tokens
    if given is None:
        raise InputError("the vocabulary has no strings to write", hint="pass tokens=, one string per id")
    if len(given) != vocab.size:
        raise InputError(f"{len(given)} tokens given for {vocab.size} ids", hint="give one string per id")
    strings = [*given, BOS]
    strings[vocab.eos] = EOS
    if vocab.unk is not None:
        strings[vocab.unk] = UNK
    written = [strings[word] for word in (*np.flatnonzero(vocab.events), vocab.bos)]
    if len(set(written)) < len(written):
        twice = next(word for word in written if written.count(word) > 1)
        raise InputError(f"two ids would both be written as {twice!r}", hint="give each id a string of its own")
    for word in written:
        if not word or set(word) & set(" \t\r\n\0") or not _is_unicode(word):
            raise InputError(f"the token {word!r} cannot be a word of an ARPA file", hint="pass tokens= without spaces")
    return strings


def _is_unicode(word: str) -> bool:
    return word.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in word)


def _head(table: BackoffTable) -> bytes:
    sizes = np.diff(table.trie.levels)
    sizes[0] -= len(table.vocab.unpredictable)
    counts = "".join(f"ngram {order}={size}\n" for order, size in enumerate(sizes, start=1))
    return f"\\data\\\n{counts}".encode()


def _lines(table: BackoffTable, strings: list[str], nodes: NDArray[np.int64], order: int) -> bytes:
    columns = [map(strings.__getitem__, column.tolist()) for column in words_of(table.trie, nodes, order)]
    ngrams = map(" ".join, zip(*columns, strict=True))
    logprobs = map("%.7g".__mod__, _log10(probs_of(table, nodes, order)).clip(max=0.0).tolist())
    if order == table.order:
        lines = map("\t".join, zip(logprobs, ngrams, strict=True))
    else:
        backoffs = (f"\t{bow:.7g}" if bow else "" for bow in _log10(read(table.stored_backoffs, nodes)).tolist())
        lines = map("%s\t%s%s".__mod__, zip(logprobs, ngrams, backoffs, strict=True))
    return "".join(f"{line}\n" for line in lines).encode()


def _log10(values: NDArray[np.float64]) -> NDArray[np.float64]:
    logs = np.full(len(values), LOG_ZERO)
    return np.log10(values, out=logs, where=values > 0)


@contextmanager
def _open_for_writing(path: str | Path) -> Iterator[BinaryIO]:
    if str(path) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    suffix = Path(path).suffix
    with atomic_write(path) as temporary, temporary.open("wb") as below, _compressor(below, suffix) as file:
        yield file


def _compressor(below: BinaryIO, suffix: str) -> Any:
    """A binary file that compresses, as the suffix of the final name says, into another."""
    import bz2
    import gzip
    import lzma

    import zstandard

    kinds: dict[str, Callable[..., Any]] = {
        ".gz": partial(gzip.GzipFile, "", "wb", 6, mtime=0, fileobj=below),
        ".bz2": partial(bz2.BZ2File, below, "wb"),
        ".xz": partial(lzma.LZMAFile, below, "wb", preset=1),
        ".zst": partial(zstandard.ZstdCompressor().stream_writer, below, closefd=False),
    }
    return kinds.get(suffix, partial(nullcontext, below))()
