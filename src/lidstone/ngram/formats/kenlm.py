r"""KenLM's binary files: the header of all kinds, and tries, decoded into the sections of an ARPA file.

The header says what kind of model follows, and how many n-grams of each order:

    magic text            56 bytes, "mmap lm http://kheafield.com/code format version 5\n" and zeros
    test values           32 bytes: floats 0, 1, -0.5; 1, 2^32 - 1, 0 as uint32; 1 as uint64
    order, multiplier     uint8 and 3 bytes of padding, float32: buckets per n-gram in probing models
    kind, has words       uint32; uint8 and 3 bytes of padding
    version of the kind   uint32
    counts                uint64 per order; then zeros up to a multiple of 8 bytes

A trie runs from the newest word to the oldest: the children of (b c) are the n-grams (a b c).

    vocabulary    the number of words but `<unk>`, uint64; their hashes, sorted. The id of `<unk>` is 0
    bins          of quantised tries: values that the n-grams refer to by number
    unigrams      by id: log10 p, log10 of the backoff, float32; where their bigrams begin, uint64
    orders 2...   packed bit by bit: a word, the values, and, below the top order, where the longer n-grams begin
    words         in the order of their ids, a zero byte after each, if they were asked for

Probing models keep hashes of their n-grams only: `scorer/models.py` uses them in place.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lidstone.errors import InputError, format_error
from lidstone.ngram.formats.arpa import table_of_sections
from lidstone.ngram.formats.arpa_reader import NgramSection
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import MAX_ORDER
from lidstone.text.memory import address_of, load_u64
from lidstone.text.tokens import hash_words
from lidstone.text.vocabulary import Vocabulary

MAGIC = b"mmap lm http://kheafield.com/code"
_VERSION = MAGIC + b" format version "
_TESTS = struct.pack("<fff3IQ", 0.0, 1.0, -0.5, 1, 0xFFFFFFFF, 0, 1)
_FIXED = struct.Struct("<B3xfIB3xI")
_SANITY = 56 + len(_TESTS)

KINDS = (
    "probing",
    "probing with rest costs",
    "trie",
    "quantised trie",
    "trie with array-compressed pointers",
    "quantised trie with array-compressed pointers",
)
PROBING, REST, TRIE, QUANT_TRIE, ARRAY_TRIE, QUANT_ARRAY_TRIE = range(6)


def is_kenlm_binary(head: bytes) -> bool:
    """Whether a file that begins with these bytes (33 are enough) is a binary of KenLM, of any version.

    >>> is_kenlm_binary(b"mmap lm http://kheafield.com/code format version 5"), is_kenlm_binary(b"no")
    (True, False)
    """
    return head.startswith(MAGIC)


@dataclass(frozen=True)
class Header:
    """What the header says; the counts are not yet compared with the size of the file."""

    kind: int
    order: int
    multiplier: float
    has_words: bool
    counts: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many bytes it takes: what follows begins there."""
        return align8(_SANITY + _FIXED.size + 8 * self.order)


def read_header(data: NDArray[np.uint8], path: str | Path) -> Header:
    """Read the header, and refuse files of other versions and machines."""
    head = data[: _SANITY + _FIXED.size + 8 * 256].tobytes()
    _check_magic(head, path)
    order, multiplier, kind, has_words, version = _FIXED.unpack_from(head, _SANITY)
    if kind >= len(KINDS) or version != (1 if kind >= TRIE else 0):
        raise format_error(path, f"it holds kind {kind} of models in version {version}, which lidstone does not know")
    if not 2 <= order <= MAX_ORDER:
        raise format_error(path, f"its header says order {order}; lidstone reads orders from 2 to {MAX_ORDER}")
    if not 1 <= multiplier < 1e6 or len(head) < _SANITY + _FIXED.size + 8 * order:
        raise format_error(path, "its header is damaged or cut off")
    counts = struct.unpack_from(f"<{order}Q", head, _SANITY + _FIXED.size)
    if counts[0] < 1 or any(count > len(data) for count in counts):  # no n-gram takes less than a byte
        raise format_error(path, f"its header says {counts} n-grams, which {len(data)} bytes cannot hold")
    return Header(kind, order, multiplier, bool(has_words), counts)


def align8(size: int) -> int:
    """The next multiple of eight."""
    return -(-size // 8) * 8


def _check_magic(head: bytes, path: str | Path) -> None:
    if not is_kenlm_binary(head):
        raise format_error(path, "it is not a binary of KenLM")
    if head.startswith(MAGIC + b" incomplete"):
        raise format_error(path, "build_binary did not finish writing it")
    if len(head) < _SANITY + _FIXED.size:
        raise format_error(path, "its header is cut off")
    if not head.startswith(_VERSION + b"5\n"):
        version = head[len(_VERSION) :].split(b"\n")[0][:12].decode("latin-1")
        raise format_error(path, f"it has version {version} of the format; lidstone reads version 5")
    if head[_SANITY - len(_TESTS) : _SANITY] != _TESTS:
        raise format_error(path, "it was written on a machine with another byte order or number format, or is damaged")


def open_binary(path: str | Path) -> tuple[NDArray[np.uint8], Header]:
    """The bytes of a binary, mapped into memory, and its header."""
    try:
        with Path(path).open("rb") as file:
            data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", hint="check the path") from error
    except ValueError as error:  # an empty file cannot be mapped
        raise format_error(path, "it is empty") from error
    return data, read_header(data, path)


def table_of_binary(path: str | Path, vocab: Vocabulary | None = None) -> BackoffTable:
    """A trie binary as a table; `vocab` as in `read_arpa`. A probing binary has only hashes of its n-grams, no rows."""
    data, header = open_binary(path)
    if header.kind < TRIE:
        raise InputError(
            f"{path} is a {KINDS[header.kind]} model of KenLM, which keeps hashes of its n-grams and cannot give rows",
            hint="score with lidstone.kenlm.Model, or give the ARPA file or a trie (build_binary trie)",
        )
    trie = read_trie(data, header, path)
    if trie.words is None:
        raise InputError(f"{path} was built without its words (build_binary -v)", hint="build it again with them")
    return table_of_sections(trie.words, trie.sections, str(path), vocab, kind="kenlm")


_UNIGRAM = np.dtype([("logprob", "<f4"), ("backoff", "<f4"), ("next", "<u8")])


@dataclass(frozen=True)
class DecodedTrie:
    """The arrays of a KenLM trie, unpacked."""

    hashes: NDArray[np.uint64]
    """of the words with ids 1, 2, ...; 0 is `<unk>`"""
    words: list[str] | None
    """the words, `<unk>` first, where the file has them"""
    sections: list[NgramSection]
    begins: list[NDArray[np.int64]]
    """per order below the top: the n-grams of the next order that end in n-gram i are begins[i]:begins[i+1]"""


def read_trie(data: NDArray[np.uint8], header: Header, path: str | Path) -> DecodedTrie:
    """Decode all, checking that every n-gram is there once and made of known words."""
    reader = _TrieReader(data, header, path)
    hashes = reader.read_hashes()
    reader.read_bins()
    sections, begins = reader.read_sections()
    words = reader.read_words(hashes) if header.has_words else None
    return DecodedTrie(hashes, words, sections, begins)


class _TrieReader:
    """The file, and how far it has been read."""

    def __init__(self, data: NDArray[np.uint8], header: Header, path: str | Path) -> None:
        self.data, self.header, self.path = data, header, path
        self.at = header.size
        self.quantised = header.kind in (QUANT_TRIE, QUANT_ARRAY_TRIE)
        self.arrays = header.kind in (ARRAY_TRIE, QUANT_ARRAY_TRIE)
        self.word_bits = bits_for(header.counts[0])
        self.bins: list[tuple[NDArray[np.float32], ...]] = []

    def take(self, size: int) -> NDArray[np.uint8]:
        """The next bytes."""
        if self.at + size > len(self.data):
            due = self.at + size
            raise format_error(
                self.path, f"it is cut off: {due} bytes are due at least, and {len(self.data)} are there"
            )
        self.at += size
        return self.data[self.at - size : self.at]

    def read_hashes(self) -> NDArray[np.uint64]:
        count = self.header.counts[0]
        block = self.take(8 + 8 * count).view("<u8")
        if block[0] != count - 1 or (block[2:count] <= block[1 : count - 1]).any():
            raise format_error(self.path, "its vocabulary is damaged")
        return np.array(block[1:count], np.uint64)

    def read_bins(self) -> None:
        """For orders 2..n-1 the bins of log10 p and of the backoffs, for order n those of log10 p."""
        if not self.quantised:
            return
        version, prob_bits, backoff_bits = (int(byte) for byte in self.take(8)[:3])
        if version != 2 or not 1 <= prob_bits <= 25 or not 1 <= backoff_bits <= 25:
            raise format_error(self.path, f"its bins have version {version}, {prob_bits} and {backoff_bits} bits")
        for _ in range(self.header.order - 2):
            self.bins.append((self._floats(1 << prob_bits), self._floats(1 << backoff_bits)))
        self.bins.append((self._floats(1 << prob_bits),))

    def read_sections(self) -> tuple[list[NgramSection], list[NDArray[np.int64]]]:
        section, begins = self._read_unigrams()
        sections, all_begins = [section], [begins]
        for order in range(2, self.header.order + 1):
            section, begins = self._read_order(order, section, begins)
            sections.append(section)
            all_begins.append(begins)
        return sections, all_begins[:-1]

    def read_words(self, hashes: NDArray[np.uint64]) -> list[str]:
        text = self.data[self.at :].tobytes()
        words = text.split(b"\0")[: self.header.counts[0]]
        if words[0] != b"<unk>" or not np.array_equal(hash_words(words[1:]), hashes):
            raise format_error(self.path, "its words are cut off or do not fit its vocabulary")
        try:
            return [word.decode() for word in words]
        except UnicodeDecodeError as error:
            raise format_error(self.path, f"a word is not valid UTF-8 ({error})") from error

    def _floats(self, count: int) -> NDArray[np.float32]:
        return np.array(self.take(4 * count).view("<f4"))

    def _read_unigrams(self) -> tuple[NgramSection, NDArray[np.int64]]:
        count = self.header.counts[0]
        block = self.take((count + 2) * _UNIGRAM.itemsize).view(_UNIGRAM)
        section = self._section(np.arange(count)[:, None], block["logprob"][:count], block["backoff"][:count])
        return section, self._check_begins(np.array(block["next"][: count + 1]), 2)

    def _read_order(self, order: int, below: NgramSection, begins: NDArray[Any]) -> tuple[NgramSection, NDArray[Any]]:
        """The n-grams of one order, and where the longer ones of each begin."""
        count, top = self.header.counts[order - 1], order == self.header.order
        value_bits = self._value_bits(top)
        offsets, next_bits = (np.zeros(1, np.uint64), 0) if top else self._pointers(order)
        width = self.word_bits + value_bits + next_bits
        block = self.take(((1 + count) * width + 7) // 8 + 8)
        words = read_bits(block, 0, width, self.word_bits, count)
        parents = parents_of(begins)
        self._check_words(words, begins)
        logprobs, backoffs = self._values(block, order, width, count)
        ngrams = np.column_stack([words.astype(np.int32), below.ngrams[parents]])
        section = self._section(ngrams, logprobs, backoffs)
        if top:
            return section, begins
        low = read_bits(block, self.word_bits + value_bits, width, next_bits, count + 1)
        high = np.searchsorted(offsets, np.arange(count + 1, dtype=np.uint64), side="right").astype(np.uint64) - 1
        return section, self._check_begins(high << np.uint64(next_bits) | low, order + 1)

    def _value_bits(self, top: bool) -> int:
        if not self.quantised:
            return 31 if top else 63
        return sum(bits_for(len(bins) - 1) for bins in self.bins[-1 if top else 0])

    def _values(self, block: NDArray[Any], order: int, width: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """log10 p and backoffs: 31 bits of a float whose sign is known, then 32; or the backoff's bin, then p's."""
        at, top = self.word_bits, order == self.header.order
        none = np.zeros(count, np.float32)
        if not self.quantised:
            bits = read_bits(block, at, width, 31, count).astype(np.uint32) | np.uint32(1 << 31)
            more = none if top else read_bits(block, at + 31, width, 32, count).astype(np.uint32).view(np.float32)
            return bits.view(np.float32), more
        bins = self.bins[order - 2]
        prob_bits = bits_for(len(bins[0]) - 1)
        if top:
            return bins[0][read_bits(block, at, width, prob_bits, count)], none
        backoff_bits = bits_for(len(bins[1]) - 1)
        numbers = read_bits(block, at, width, backoff_bits, count)
        return bins[0][read_bits(block, at + backoff_bits, width, prob_bits, count)], bins[1][numbers]

    def _pointers(self, order: int) -> tuple[NDArray[np.uint64], int]:
        """For each value of the upper bits of pointers the first n-gram that has it; how many lower bits there are."""
        entries, longest = self.header.counts[order - 1] + 1, self.header.counts[order]
        bits = bits_for(longest)
        if not self.arrays:
            return np.zeros(1, np.uint64), bits
        start = self.at
        version, most = (int(byte) for byte in self.take(2))
        if version != 0:
            raise format_error(self.path, f"its pointers have version {version}, and lidstone reads version 0")
        upper = _upper_bits(entries, longest, most)
        size = (longest >> (bits - upper)) + 1
        self.at = start
        block = self.take(8 * (1 + size) + 7)
        skip = align8(start) - start + 8
        offsets = np.array(block[skip : skip + 8 * size].view("<u8"))
        if offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any():
            raise format_error(self.path, "its pointers are damaged")
        return offsets, bits - upper

    def _check_begins(self, begins: NDArray[np.uint64], order: int) -> NDArray[np.int64]:
        rising = (begins[1:] >= begins[:-1]).all()
        if begins[0] != 0 or begins[-1] != self.header.counts[order - 1] or not rising:
            raise format_error(self.path, f"its {order}-grams do not form a trie")
        return begins.astype(np.int64)

    def _check_words(self, words: NDArray[np.uint64], begins: NDArray[np.int64]) -> None:
        """The children of a node have known and rising words."""
        rising = words[1:] > words[:-1]
        firsts = begins[1:-1]
        rising[firsts[(firsts > 0) & (firsts < len(words))] - 1] = True
        if not rising.all() or (words >= self.header.counts[0]).any():
            raise format_error(self.path, "its n-grams have unknown or repeated words")

    def _section(
        self, ngrams: NDArray[Any], logprobs: NDArray[np.float32], backoffs: NDArray[np.float32]
    ) -> NgramSection:
        if not (logprobs <= 0).all() or not (backoffs < 100).all():  # nor NaN
            raise format_error(self.path, "its probabilities are damaged")
        lines = np.zeros(len(ngrams), np.int64)
        return NgramSection(ngrams.astype(np.int32), logprobs.astype(np.float64), backoffs.astype(np.float64), lines)


def parents_of(begins: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each n-gram the place of the shorter one that it ends in.

    >>> parents_of(np.array([0, 2, 2, 3])).tolist()
    [0, 0, 2]
    """
    return np.repeat(np.arange(len(begins) - 1), begins[1:] - begins[:-1])


def _upper_bits(entries: int, longest: int, most: int) -> int:
    """How many upper bits of pointers up to `longest` KenLM keeps in an array: what makes the file smallest."""
    bits = bits_for(longest)
    costs = [(longest >> (bits - upper)) * 64 - entries * upper for upper in range(min(bits, most) + 1)]
    return int(np.argmin(costs))


def bits_for(largest: int) -> int:
    """How many bits numbers up to this one take.

    >>> [bits_for(n) for n in (0, 1, 255, 256)]
    [0, 1, 8, 9]
    """
    return largest.bit_length()


def read_bits(block: NDArray[np.uint8], start: int, stride: int, width: int, count: int) -> NDArray[np.uint64]:
    """`count` numbers of `width` bits (57 at most), the first at bit `start`, each `stride` bits after the last.

    Eight bytes must follow the last number, as they do in KenLM's files.

    >>> block = np.array([0b1_0101_001, 0b000000_01, *[0] * 8], np.uint8)
    >>> read_bits(block, 0, 3, 2, 3).tolist()
    [1, 1, 2]
    """
    if count and (start + (count - 1) * stride) // 8 + 8 > len(block):
        raise ValueError("the block is too short")
    numbers = np.empty(count, np.uint64)
    _read_bits(block, start, stride, width, numbers)
    return numbers


@njit(cache=True, nogil=True)
def _read_bits(block, start, stride, width, numbers):  # type: ignore[no-untyped-def]
    address, mask = address_of(block), (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    for i in range(len(numbers)):
        bit = start + i * stride
        numbers[i] = (load_u64(address + (bit >> 3)) >> np.uint64(bit & 7)) & mask
