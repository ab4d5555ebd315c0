"""A scorer from any model: an ARPA file, a table, or a binary of KenLM.

KenLM's probing models are hash tables that are used in place, in the mapped file:

    vocabulary       version and number of words, uint32 each; a hash table from the hash of a word to its id
    unigrams         by id: log10 p, log10 of the backoff, with rest costs a third number; float32
    orders 2 to n-1  hash tables from the key of an n-gram to the same numbers
    order n          a hash table from the key of an n-gram to log10 p
    words            in the order of their ids, a zero byte after each; not needed here
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import FileFormatError, InputError, format_error
from lidstone.files import as_url
from lidstone.ngram.formats.arpa import read_arpa
from lidstone.ngram.formats.arpa_reader import NgramSection, read_sections
from lidstone.ngram.formats.kenlm import (
    REST,
    TRIE,
    DecodedTrie,
    Header,
    is_kenlm_binary,
    open_binary,
    read_trie,
    table_of_binary,
)
from lidstone.ngram.formats.remote import read_remote
from lidstone.ngram.formats.safetensors import load_table
from lidstone.ngram.mixing import on_vocabulary
from lidstone.ngram.scorer.blocks import index_word
from lidstone.ngram.scorer.build import Packed, levels_of_sections, levels_of_table, levels_of_trie, pack
from lidstone.ngram.scorer.scorer import Scorer
from lidstone.ngram.scorer.step import (
    BOS,
    EOS,
    LONGEST_VALUE,
    MIDDLE_VALUE,
    ORDER,
    TABLES,
    UNIGRAM_BYTES,
    UNIGRAMS,
    UNK,
    VOCAB,
    VOCAB_BUCKETS,
    VOCAB_VALUE,
)
from lidstone.ngram.table import BackoffTable
from lidstone.text.source import KIND_NAMES, Kind, Source, kind_of_file, name_of
from lidstone.text.tokens import PADDING, hash_words
from lidstone.text.vocabulary import Vocabulary


def load_scorer(path: str | Path) -> Scorer:
    """Load any model for scoring."""
    head = _head(path)
    if is_kenlm_binary(head):
        return scorer_of_binary(path)
    return scorer_of_table(load_table(path)) if _is_safetensors(head) else scorer_of_arpa(path)


def load_any_table(path: str | Path, vocab: Vocabulary | None = None) -> BackoffTable:
    """Load any model as a table: ARPA (`-` is standard input), a table, or a trie of KenLM, here or at an address.

    With `vocab` its words get the ids of that vocabulary; one that is not there is a `VocabularyMismatch`.
    """
    if url := as_url(path):
        return read_remote(url, lambda file: load_any_table(file, vocab))
    kind = kind_of_file(path)[0] if Path(path).is_file() else "arpa"
    if kind in _NO_MODELS:
        raise InputError(f"{path} is {KIND_NAMES[kind]}, not a model", hint=_NO_MODELS[kind])
    is_arpa = kind in ("arpa", "binary") and Path(path).suffix != ".safetensors"
    if is_arpa or kind == "kenlm":
        return read_arpa(str(path), vocab) if is_arpa else table_of_binary(path, vocab)
    return load_table(path) if vocab is None else on_vocabulary(load_table(path), vocab)


_NO_MODELS: dict[Kind, str] = {
    "text": "count it and fit a smoother: lidstone count, lidstone fit",
    "zip": "unpack it first",
}


def _head(path: str | Path) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(64)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", hint="check the path") from error


def _is_safetensors(head: bytes) -> bool:
    """A length in eight bytes, then a JSON object."""
    return head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 40


UNKNOWN = ("<unk>", "<UNK>")
"""How models spell the unknown word."""


def scorer_of_arpa(source: Source) -> Scorer:
    """Read an ARPA file, plain or compressed, with its numbers as they are."""
    words, sections = read_sections(source)
    return scorer_of_sections(words, sections, name_of(source))


def scorer_of_sections(words: list[str], sections: list[NgramSection], name: str) -> Scorer:
    """The words of a model and its n-grams, by the places of their words in the list."""
    places = {word: place for place, word in enumerate(words)}
    unknown = next((places[word] for word in UNKNOWN if word in places), len(words))
    for word in ("<s>", "</s>"):
        if word not in places:
            raise FileFormatError(f"{name} has no {word}", hint="a model of sentences lists <s> and </s> as unigrams")
    levels = levels_of_sections(sections, extra=unknown == len(words))
    known = np.array([place for place in range(len(words)) if words[place] not in UNKNOWN])
    hashes = hash_words([words[place].encode() for place in known])
    return Scorer(pack(hashes, known, levels, {UNK: unknown, BOS: places["<s>"], EOS: places["</s>"]}))


def scorer_of_table(table: BackoffTable) -> Scorer:
    """A scorer of the same probabilities in float32; the table's vocabulary must have strings."""
    vocab = table.vocab
    if vocab.tokens is None:
        raise InputError(
            "the table knows ids but no words, so it cannot score text",
            hint="make its vocabulary with tokens=, or use table.advance and table.logprob with ids",
        )
    strings = [*vocab.tokens, "<s>"]
    strings[vocab.eos] = "</s>"
    unknown = vocab.bos + 1 if vocab.unk is None else vocab.unk
    levels = levels_of_table(table, extra=vocab.unk is None)
    never = {unknown, *vocab.unpredictable}
    known = [number for number in range(len(strings)) if number not in never]
    hashes = hash_words([strings[number].encode("utf-8", "surrogatepass") for number in known])
    return Scorer(pack(hashes, np.array(known), levels, {UNK: unknown, BOS: vocab.bos, EOS: vocab.eos}))


def scorer_of_binary(path: str | Path) -> Scorer:
    """Any binary for scoring; a probing one is mapped into memory and used in place."""
    data, header = open_binary(path)
    if header.kind < TRIE:
        return Scorer(map_probing(data, header, path))
    return _scorer_of_trie(read_trie(data, header, path), path)


def _scorer_of_trie(trie: DecodedTrie, path: str | Path) -> Scorer:
    bos, eos = (np.flatnonzero(trie.hashes == key) + 1 for key in hash_words([b"<s>", b"</s>"]))
    if not len(bos) or not len(eos):
        raise format_error(path, "it has no <s> or no </s>")
    ids = np.arange(1, len(trie.hashes) + 1)
    special = {UNK: 0, BOS: int(bos[0]), EOS: int(eos[0])}
    return Scorer(pack(trie.hashes, ids, levels_of_trie(trie), special))


_CHUNK = 1 << 20
_ENTRY = np.dtype([("key", "<u8"), ("id", "<u4")])


def map_probing(data: NDArray[np.uint8], header: Header, path: str | Path) -> Packed:
    """The positions of all parts, after a check that they are inside the file."""
    values = 12 if header.kind == REST else 8
    layout = np.zeros(TABLES + 2 * header.order, np.int64)
    layout[[ORDER, UNIGRAM_BYTES, MIDDLE_VALUE]] = header.order, values, values
    buckets = [_buckets(count, header.multiplier) for count in header.counts]
    layout[[VOCAB, VOCAB_BUCKETS]] = header.size + 8, buckets[0]
    layout[UNIGRAMS] = end = header.size + 8 + buckets[0] * (8 + VOCAB_VALUE)
    end += (header.counts[0] + 1) * values
    for k in range(header.order - 1):
        layout[TABLES + 2 * k : TABLES + 2 * k + 2] = end, buckets[k + 1]
        end += buckets[k + 1] * (8 + (LONGEST_VALUE if k == header.order - 2 else values))
    if end > len(data):
        raise format_error(path, f"it is cut off: {end} bytes are due, and {len(data)} are there")
    _check_words(data, header, layout, path)
    _check_numbers(data, header, layout, path)
    layout[[VOCAB, UNIGRAMS]] += data.ctypes.data
    layout[TABLES::2] += data.ctypes.data
    return Packed(data, _with_specials(layout, path))


def _buckets(count: int, multiplier: float) -> int:
    return max(count + 1, int(np.float32(multiplier) * np.float32(count)))


def _check_words(data: NDArray[np.uint8], header: Header, layout: NDArray[np.int64], path: str | Path) -> None:
    """All ids must be unigrams, also in empty slots: a word whose hash is 0 finds these, and scoring follows them."""
    version = data[header.size : header.size + 4].view("<u4")[0]
    if version != 0:
        raise format_error(path, f"its vocabulary has version {version}, and lidstone reads version 0")
    start = layout[VOCAB]
    entries = data[start : start + layout[VOCAB_BUCKETS] * (8 + VOCAB_VALUE)].view(_ENTRY)
    wrong = entries["id"] > header.counts[0]
    if wrong.any():
        raise format_error(path, f"its vocabulary has the id {entries['id'][wrong][0]} among {header.counts[0]} words")


def _check_numbers(data: NDArray[np.uint8], header: Header, layout: NDArray[np.int64], path: str | Path) -> None:
    """Every number must be finite, in empty slots too; one pass over the file, which is then in the page cache."""
    width = int(layout[UNIGRAM_BYTES])
    tables = [(int(layout[UNIGRAMS]), header.counts[0] + 1, width, 0)]
    for k in range(header.order - 1):
        start, buckets = (int(value) for value in layout[TABLES + 2 * k : TABLES + 2 * k + 2])
        tables.append((start, buckets, 8 + (LONGEST_VALUE if k == header.order - 2 else width), 8))
    for order, (start, count, size, key) in enumerate(tables, start=1):
        rows = data[start : start + count * size].reshape(count, size)
        for first in range(0, count, _CHUNK):
            if not np.isfinite(rows[first : first + _CHUNK, key:].view("<f4")).all():
                raise format_error(path, f"an n-gram of order {order} has a probability or backoff that is not finite")


def _with_specials(layout: NDArray[np.int64], path: str | Path) -> NDArray[np.int64]:
    for place, word in ((BOS, b"<s>"), (EOS, b"</s>")):
        layout[place] = index_word(layout, word + PADDING)
        if layout[place] == 0:
            raise format_error(path, f"it has no {word.decode()}")
    return layout
