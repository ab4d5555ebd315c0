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

from lidstone.errors import InputError, format_error
from lidstone.files import as_url
from lidstone.ngram.formats.arpa import read_arpa
from lidstone.ngram.formats.arpa_reader import read_sections
from lidstone.ngram.formats.kenlm import (
    REST,
    TRIE,
    UNIGRAM,
    Header,
    is_kenlm_binary,
    open_binary,
    read_trie_sections,
    table_of_binary,
    trie_parts,
)
from lidstone.ngram.formats.remote import read_remote
from lidstone.ngram.formats.safetensors import load_table
from lidstone.ngram.mixing import on_vocabulary
from lidstone.ngram.scorer import tries
from lidstone.ngram.scorer.blocks import index_word
from lidstone.ngram.scorer.build import NgramModel, Packed, model_of_sections, model_of_table, pack
from lidstone.ngram.scorer.scorer import Scorer
from lidstone.ngram.scorer.step import LONGEST_VALUE, VOCAB_VALUE
from lidstone.ngram.scorer.tries import (
    BACKOFF_BITS,
    BOS,
    EOS,
    IDS,
    KIND,
    MIDDLE_VALUE,
    ORDER,
    PROB_BITS,
    SLOTS,
    TABLES,
    UNIGRAM_BYTES,
    UNIGRAMS,
    VOCAB,
    VOCAB_BUCKETS,
    WIDE,
    WORD_BITS,
)
from lidstone.ngram.table import BackoffTable
from lidstone.text.memory import address_of_bytes
from lidstone.text.source import KIND_NAMES, Kind, Source, kind_of_file, name_of
from lidstone.text.tokens import PADDING
from lidstone.text.vocabulary import Vocabulary


def load_scorer(path: str | Path) -> Scorer:
    """Load any model for scoring: a table, ARPA, or a binary of KenLM.

    >>> import tempfile
    >>> from lidstone import WittenBell, count
    >>> vocab = Vocabulary(size=4, eos=1, unk=0, tokens=("<unk>", "</s>", "tea", "milk"))
    >>> file = Path(tempfile.mkdtemp()) / "tea.safetensors"
    >>> WittenBell().fit(count([[2, 3]], vocab, order=2)).save(file)
    >>> found = load_scorer(file).score_lines(["tea milk", "tea cake"])
    >>> found.words.tolist(), found.oov.tolist()
    ([2, 2], [0, 1])
    """
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


def scorer_of_arpa(source: Source) -> Scorer:
    """Read an ARPA file, plain or compressed, with its numbers as they are."""
    return Scorer(pack(model_of_sections(*read_sections(source), name_of(source))))


def scorer_of_table(table: BackoffTable) -> Scorer:
    """A scorer of the same probabilities in float32; the table's vocabulary must have strings."""
    return Scorer(pack(model_of_table(table)))


def load_model(path: str | Path) -> NgramModel:
    """Any model that lists its n-grams, with its numbers as they are: ARPA, a trie of KenLM, or a table."""
    if str(path) == "-":
        return model_of_sections(*read_sections("-"), "-")
    head = _head(path)
    if is_kenlm_binary(head):
        return model_of_sections(*read_trie_sections(path), str(path))
    return (
        model_of_table(load_table(path))
        if _is_safetensors(head)
        else model_of_sections(*read_sections(path), name_of(path))
    )


def scorer_of_binary(path: str | Path) -> Scorer:
    """Any binary for scoring: mapped into memory and used in place, so that it is there at once and processes share it.

    Only the header and the sizes are checked: whatever the rest is, scoring stays inside the file.
    """
    data, header = open_binary(path)
    packed = (map_probing if header.kind < TRIE else map_trie)(data, header, path)
    return Scorer(packed, str(Path(path).resolve()))


def map_trie(data: NDArray[np.uint8], header: Header, path: str | Path) -> Packed:
    """The positions of all parts of a trie, after a check that they are inside the file."""
    if max(header.counts) >= tries.MOST_NGRAMS:
        raise format_error(
            path, f"it has {max(header.counts)} n-grams of one order, and lidstone reads {tries.MOST_NGRAMS}"
        )
    parts, start = trie_parts(data, header, path), data.ctypes.data
    layout = np.zeros(TABLES + WIDE * header.order, np.int64)
    layout[[ORDER, KIND, UNIGRAM_BYTES, IDS]] = header.order, tries.TRIE, UNIGRAM.itemsize, header.counts[0]
    layout[[VOCAB, VOCAB_BUCKETS, UNIGRAMS]] = start + parts.hashes, header.counts[0] - 1, start + parts.unigrams
    layout[[PROB_BITS, BACKOFF_BITS]] = parts.bits or (0, 0)
    for order, packed in enumerate(parts.orders, start=2):
        layout[WORD_BITS] = packed.word_bits
        bins = [start + at if at else 0 for at in parts.bins_of(order)]
        numbers = (start + packed.start, packed.count, packed.stride, packed.next_bits)
        table = TABLES + WIDE * (order - 2)
        layout[table : table + WIDE] = *numbers, start + packed.offsets, packed.offsets_size, *bins
    return Packed(data, _with_specials(layout, path))


def map_probing(data: NDArray[np.uint8], header: Header, path: str | Path) -> Packed:
    """The positions of all parts of a probing model, after a check that they are inside the file."""
    values = 12 if header.kind == REST else 8
    layout = np.zeros(TABLES + WIDE * header.order, np.int64)
    layout[[ORDER, KIND, UNIGRAM_BYTES, MIDDLE_VALUE]] = header.order, SLOTS, values, values
    layout[IDS] = header.counts[0] + 1
    sizes = [buckets(count, header.multiplier) for count in header.counts]
    layout[[VOCAB, VOCAB_BUCKETS]] = header.size + 8, sizes[0]
    layout[UNIGRAMS] = end = header.size + 8 + sizes[0] * (8 + VOCAB_VALUE)
    end += (header.counts[0] + 1) * values
    for k in range(header.order - 1):
        layout[TABLES + WIDE * k : TABLES + WIDE * k + 2] = end, sizes[k + 1]
        end += sizes[k + 1] * (8 + (LONGEST_VALUE if k == header.order - 2 else values))
    if end > len(data):
        raise format_error(path, f"it is cut off: {end} bytes are due, and {len(data)} are there")
    version = data[header.size : header.size + 4].view("<u4")[0]
    if version != 0:
        raise format_error(path, f"its vocabulary has version {version}, and lidstone reads version 0")
    layout[[VOCAB, UNIGRAMS]] += data.ctypes.data
    layout[TABLES::WIDE] += data.ctypes.data
    return Packed(data, _with_specials(layout, path))


def buckets(count: int, multiplier: float) -> int:
    """How many slots KenLM gives a hash table of so many entries.

    >>> buckets(10, 1.5), buckets(1, 1.5)
    (15, 2)
    """
    return max(count + 1, int(np.float32(multiplier) * np.float32(count)))


def _with_specials(layout: NDArray[np.int64], path: str | Path) -> NDArray[np.int64]:
    for place, word in ((BOS, b"<s>"), (EOS, b"</s>")):
        text = word + PADDING
        layout[place] = index_word(layout.ctypes.data, address_of_bytes(text), len(word))
        if layout[place] == 0:
            raise format_error(path, f"it has no {word.decode()}")
    return layout
