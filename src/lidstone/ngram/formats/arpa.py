"""ARPA files as tables and tables as ARPA files.

ARPA gives p(w|h) in full for the n-grams it lists, and for the rest p(w|h) = bow(h) p(w|h'). So
    rows[hw] = p(w|h) - bow(h) p(w|h'),    backoffs[h] = bow(h),
and an n-gram that is inserted to close the trie (`closure.py`) has rows 0. `arpa_reader.py` reads the text.

A table is written as text that KenLM, SRILM and OpenGrm read. Every n-gram of the trie is listed with log10 of its
probability, and so is its prefix, as KenLM requires. `<s>` and all that cannot happen stand at -99, SRILM's zero. A
backoff of one is left out. N-grams are written block by block, without arrays of the table's size, so a table that is
mapped into memory can be larger than it.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError, VocabularyMismatch, format_error
from lidstone.files import as_url, atomic_write
from lidstone.jit import kernel
from lidstone.ngram.access import at, full_prob
from lidstone.ngram.closure import ClosedLevel, build, close
from lidstone.ngram.formats.arpa_reader import NgramSection, read_sections
from lidstone.ngram.formats.remote import read_remote, write_remote
from lidstone.ngram.formats.validate import check_probabilities
from lidstone.ngram.query import rows_of
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import Trie, chunks
from lidstone.text.source import Source, name_of, stamp
from lidstone.text.vocabulary import BOS, EOS, UNK, Vocabulary

MISSING_UNK = 1e-100
"""p of an unknown word where the file has no `<unk>`; KenLM's choice too"""


def read_arpa(source: Source, vocab: Vocabulary | None = None) -> BackoffTable:
    r"""Read an ARPA file, plain or compressed, `-` for standard input.

    Without `vocab` the words of the file are the vocabulary. With it, they are looked up there; words that it lacks are
    an error, and words that the file lacks have probability zero. N-grams in which `<s>` is not the first word, or
    with an id that cannot be predicted, are left out: no sentence has them. A model whose probabilities do not sum to
    one is reported on the logger `lidstone`.

    >>> import io
    >>> text = rb"\data\|ngram 1=3|ngram 2=1|\1-grams:|-.3 a -.2|-.4 </s>|-1 <unk>|\2-grams:|-.1 a a|\end\ "
    >>> table = read_arpa(io.BytesIO(text.replace(b"|", b"\n")))
    >>> (table.logprob([2, 1], [[2], [2]]) / np.log(10)).round(6).tolist()      # a a: listed; a </s>: -.2 - .4
    [-0.1, -0.6]
    """
    if url := as_url(source):
        return read_remote(url, lambda file: read_arpa(file, vocab))
    words, sections = read_sections(source)
    return table_of_sections(words, sections, name_of(source), vocab)


def table_of_sections(
    words: list[str], sections: list[NgramSection], name: str, vocab: Vocabulary | None = None, *, kind: str = "arpa"
) -> BackoffTable:
    """A table of the n-grams of a model, which are numbers of its words; `kind` goes into the signature."""
    vocab = vocab or Vocabulary.from_words(word for word in words if word not in (BOS, _unknown(words)))
    ids = _ids(words, vocab)
    sections = [_renumbered(section, ids, vocab.bos) for section in sections]
    levels = close([section.ngrams for section in sections[1:]])
    _refuse_repeated(levels, sections[1:], name)
    trie, nodes = build(levels, vocab.size)
    nodes[0] = sections[0].ngrams[:, 0].astype(np.int64)
    given = [at[: len(section.lines)] for at, section in zip(nodes, sections, strict=True)]
    base, rows, backoffs = _values(trie, sections, given, vocab.unk)
    signature = _signature(kind, name, vocab, trie, trie.words, base, rows)
    table = BackoffTable(vocab, trie, base, rows, backoffs, signature)
    check_probabilities(table, name)
    return table


def _unknown(words: list[str]) -> str:
    """How the file spells the unknown word; `<UNK>` beside `<unk>` is a word like any other."""
    return "<UNK>" if UNK not in words else UNK


def _ids(words: list[str], vocab: Vocabulary) -> NDArray[np.int32]:
    """The id of each word of the file; -1 for one that cannot be predicted."""
    special = {BOS: vocab.bos, EOS: vocab.eos, UNK: vocab.unk, _unknown(words): vocab.unk}
    ids = [special[word] if word in special else vocab.index.get(word, -2) for word in words]
    unknown = [word for word, number in zip(words, ids, strict=True) if number == -2]
    if unknown:
        raise VocabularyMismatch(
            f"{len(unknown)} words of the ARPA file are not in the vocabulary, such as {', '.join(unknown[:3])}",
            hint="give the vocabulary that the model was made with, or none",
        )
    known = np.array([-1 if number is None else number for number in ids], np.int32)
    known[np.isin(known, vocab.unpredictable)] = -1
    if len(np.unique(known[known >= 0])) < (known >= 0).sum():
        raise VocabularyMismatch(
            "two words of the ARPA file have the same id in the vocabulary",
            hint="</s> is the vocabulary's eos and <unk> its unk: the file must not list them under other names too",
        )
    return known


def _renumbered(section: NgramSection, ids: NDArray[np.int32], bos: int) -> NgramSection:
    """With the vocabulary's ids, and without n-grams that no sentence has."""
    ngrams = ids[section.ngrams]
    keep = (ngrams >= 0).all(axis=1) & (ngrams[:, 1:] != bos).all(axis=1)
    return NgramSection(ngrams[keep], section.logprobs[keep], section.backoffs[keep], section.lines[keep])


def _refuse_repeated(levels: list[ClosedLevel], sections: list[NgramSection], name: str) -> None:
    for order, (level, section) in enumerate(zip(levels, sections, strict=True), start=2):
        if level.repeated >= 0:
            line = int(section.lines[level.repeated])
            raise format_error(name, f"this {order}-gram was listed before", line=line)


def _values(
    trie: Trie, sections: list[NgramSection], given: list[NDArray[np.int64]], unk: int | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Base, rows and backoffs; `given` are the nodes of each section's n-grams."""
    probs, backoffs = np.zeros(trie.size), np.ones(trie.size)
    if unk is not None:
        probs[unk] = MISSING_UNK
    for order, (section, nodes) in enumerate(zip(sections, given, strict=True), start=1):
        backoffs[nodes] = 10.0**section.backoffs
        if order > 1:  # what closure inserted backs off
            level = trie.level(order)
            probs[level] = backoffs[trie.parents[level]] * probs[trie.suffixes[level]]
        probs[nodes] = 10.0**section.logprobs
    of_histories = backoffs[: trie.num_histories].copy()
    return probs[: trie.vocab_size].copy(), rows_of(trie, probs, of_histories), of_histories


def _signature(kind: str, name: str, vocab: Vocabulary, trie: Trie, *arrays: NDArray[Any]) -> dict[str, Any]:
    digest = hashlib.blake2b(vocab.fingerprint.encode(), digest_size=8)
    for array in arrays:
        digest.update(array.data)
    return {
        "smoother": kind,
        "parameters": {"file": Path(name).name, "content": digest.hexdigest()},
        "order": trie.order,
        "vocabulary": vocab.fingerprint,
    }


LOG_ZERO = -99.0
_BLOCK = 1 << 16


Tokens = Sequence[str] | Callable[[int], str]
Block = tuple[int, int, int]
"""Order, and the range of n-grams"""


@dataclass(frozen=True)
class StoredTable:
    """A table in a file, for tasks that write its n-grams."""

    path: str
    changed: tuple[str, int, int] | None

    @classmethod
    def of(cls, path: str | Path) -> StoredTable:
        """The file as it is now."""
        return cls(str(path), stamp(path))

    def open(self) -> tuple[BackoffTable, list[str]]:
        """The table, mapped into memory, and its words; an error if the file has changed."""
        if stamp(self.path) != self.changed:
            raise InputError(f"{self.path} changed while it was written as ARPA", hint="wait until it is written")
        return _opened(self)


@lru_cache(maxsize=1)
def _opened(stored: StoredTable) -> tuple[BackoffTable, list[str]]:
    from lidstone.ngram.formats.safetensors import load_table

    table = load_table(stored.path, verify=False)
    return table, _strings(table.vocab, None)


def write_arpa(
    table: BackoffTable,
    path: str | Path,
    tokens: Tokens | None = None,
    *,
    run: Callable[[Iterable[Block]], Iterator[bytes]] | None = None,
) -> None:
    r"""Write a table as ARPA, compressed if the name ends in .gz, .bz2, .xz or .zst; `-` is standard output.

    `tokens` are the strings of the ids, where the vocabulary has none or others are wanted: one per id, or a function
    of the id, such as `lambda number: chr(number + 100)` for the token-level models of NeMo. eos is written as `</s>`,
    the unknown word as `<unk>`, ids that cannot be predicted not at all, a probability of zero as -99. `run` gives the
    lines of blocks of n-grams, where others compute them (`block_lines`).

    >>> import tempfile
    >>> from lidstone import Vocabulary, WittenBell, count
    >>> table = WittenBell().fit(count([[1, 2]], Vocabulary(size=3, eos=0, tokens=("</s>", "tea", "milk")), order=2))
    >>> file = Path(tempfile.mkdtemp()) / "tea.arpa"
    >>> write_arpa(table, file)
    >>> file.read_text().splitlines()[:3]
    ['\\data\\', 'ngram 1=4', 'ngram 2=3']
    """
    if url := as_url(path):
        return write_remote(url, lambda file: write_arpa(table, file, tokens, run=run))
    strings = _strings(table.vocab, tokens)
    run = run or (lambda blocks: (block_lines((table, strings), *block) for block in blocks))
    with _open_for_writing(path) as file:
        file.write(_head(table))
        for order in range(1, table.order + 1):
            file.write(f"\n\\{order}-grams:\n".encode())
            parts = chunks(table.trie.level(order), _BLOCK)
            for lines in run((order, part.start, part.stop) for part in parts):
                file.write(lines)
        file.write(b"\n\\end\\\n")


def block_lines(opened: tuple[BackoffTable, list[str]], order: int, start: int, stop: int) -> bytes:
    """The lines of some n-grams of one order; not of words that cannot be predicted."""
    table, strings = opened
    nodes = np.arange(start, stop)
    return _lines(table, strings, nodes[np.append(table.vocab.events, True)[nodes]] if order == 1 else nodes, order)


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


Nodes = NDArray[np.int64]


def words_of(trie: Trie, nodes: Nodes, order: int) -> list[NDArray[np.int64]]:
    """The words of n-grams, a column for each place, oldest first.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> trie = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2).trie
    >>> [column.tolist() for column in words_of(trie, np.arange(4, 8), 2)]      # 3 is <s>
    [[1, 1, 2, 3], [0, 2, 0, 1]]
    """
    columns = []
    for length in range(order, 0, -1):
        columns.append(read(trie.links[1], nodes))
        nodes = parents_of(trie, nodes, length) if length > 1 else nodes
    return columns[::-1]


def parents_of(trie: Trie, nodes: Nodes, order: int) -> Nodes:
    """The nodes without their newest words, for ascending nodes of one order from 2 on."""
    out, histories = np.empty(len(nodes), np.int64), trie.level(order - 1)
    if len(nodes):
        _find_parents(trie.links[0], nodes, histories.start, histories.stop, out)
    return out


def probs_of(table: BackoffTable, nodes: Nodes, order: int) -> NDArray[np.float64]:
    """p(w | h) of n-grams; 0 for `<s>`."""
    if order == 1:
        return np.append(table.base, 0.0)[nodes]
    out = np.empty(len(nodes))
    links, parents = table.trie.links, parents_of(table.trie, nodes, order)
    _fill_probs(table.scored_values, *links, table.stored_backoffs, parents, nodes, out)
    return out


def read(array: Any, nodes: Nodes) -> NDArray[Any]:
    """The numbers at some places of an array, plain, packed or quantised."""
    if isinstance(array, np.ndarray):
        return array[nodes]
    out: NDArray[Any] = _read_at(array, nodes)
    return out


@kernel
def _find_parents(first, nodes, low, high, out):  # type: ignore[no-untyped-def]
    """Search for the parent of the first node; from there on, parents are ascending too."""
    parent = low
    while parent + 1 < high:
        middle = (parent + high) >> 1
        if at(first, middle) <= nodes[0]:
            parent = middle
        else:
            high = middle
    for i in range(len(nodes)):
        while at(first, parent + 1) <= nodes[i]:
            parent += 1
        out[i] = parent


@kernel
def _fill_probs(values, first, words, suffixes, backoffs, parents, nodes, out):  # type: ignore[no-untyped-def]
    for i in range(len(nodes)):
        out[i] = full_prob(values, first, words, suffixes, backoffs, parents[i], nodes[i])


@kernel
def _read_at(array, nodes):  # type: ignore[no-untyped-def]
    return np.array([at(array, node) for node in nodes])
