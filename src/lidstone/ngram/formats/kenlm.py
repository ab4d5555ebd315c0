r"""KenLM's binary files: the header of all kinds, where the parts of a trie stand, and all that is in one, read.

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

The header, the parts and the packing serve the scorer too, which uses both kinds in place (`scorer/models.py`) and
writes them (`scorer/write.py`). Probing models keep hashes of their n-grams only, and so cannot be read here.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError, format_error
from lidstone.jit import kernel
from lidstone.ngram.formats.arpa import table_of_sections
from lidstone.ngram.formats.arpa_reader import NgramSection
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import MAX_ORDER
from lidstone.text.memory import address_of, load_u64, store_u64
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

    @property
    def data(self) -> bytes:
        """The header itself."""
        version = 1 if self.kind >= TRIE else 0
        fixed = _FIXED.pack(self.order, self.multiplier, self.kind, self.has_words, version)
        text = (_VERSION + b"5\n").ljust(_SANITY - len(_TESTS), b"\0")
        return (text + _TESTS + fixed + struct.pack(f"<{self.order}Q", *self.counts)).ljust(self.size, b"\0")


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
    words, sections = read_trie_sections(path)
    return table_of_sections(words, sections, str(path), vocab, kind="kenlm")


def read_trie_sections(path: str | Path) -> tuple[list[str], list[NgramSection]]:
    """The words of a trie binary in the order of their ids, and its n-grams, as `read_sections` gives those of ARPA."""
    data, header = open_binary(path)
    if header.kind < TRIE:
        raise InputError(
            f"{path} is a {KINDS[header.kind]} model of KenLM, which keeps hashes of its n-grams and cannot give rows",
            hint="score with lidstone.kenlm.Model, or give the ARPA file or a trie (build_binary trie)",
        )
    if not header.has_words:
        raise InputError(f"{path} was built without its words (build_binary -v)", hint="build it again with them")
    reader = _TrieReader(data, trie_parts(data, header, path), path)
    return reader.words(), reader.sections()


UNIGRAM = np.dtype([("logprob", "<f4"), ("backoff", "<f4"), ("next", "<u8")])


@dataclass(frozen=True)
class PackedOrder:
    """Where the n-grams of one order stand, packed bit by bit: each a word, its values, its pointer."""

    count: int
    start: int
    """the first byte of the entries"""
    offsets: int
    """where the array of the upper bits of pointers begins"""
    offsets_size: int
    """0 where the pointers are whole"""
    word_bits: int
    value_bits: int
    next_bits: int

    @property
    def stride(self) -> int:
        """The bits of an entry."""
        return self.word_bits + self.value_bits + self.next_bits

    @property
    def end(self) -> int:
        """After the entries, one more for the last pointer, and the eight bytes that a reader touches."""
        return self.start + ((1 + self.count) * self.stride + 7) // 8 + 8


@dataclass(frozen=True)
class TrieParts:
    """Where everything of a trie stands, counted in bytes from the beginning of the file."""

    header: Header
    bits: tuple[int, int] | None = None
    """how many bits the bins of p and of backoffs have in a quantised trie"""
    most: int | None = None
    """how many upper bits of pointers may be in an array, where they are array-compressed"""

    @property
    def hashes(self) -> int:
        """After the number of words."""
        return self.header.size + 8

    @property
    def bins(self) -> int:
        """Versions and bits, and from the eighth byte on bins, those of p before those of backoffs."""
        return self.header.size + 8 * (1 + self.header.counts[0])

    def bins_of(self, order: int) -> tuple[int, int]:
        """Where the bins of p and of the backoff of an order begin; 0 where there are none."""
        if self.bits is None:
            return 0, 0
        start = self.bins + 8 + (order - 2) * ((4 << self.bits[0]) + (4 << self.bits[1]))
        return start, start + (4 << self.bits[0])

    @property
    def unigrams(self) -> int:
        """After the bins, of which the highest order has those of p only."""
        return self.bins if self.bits is None else self.bins_of(self.header.order)[1]

    @property
    def bigrams(self) -> int:
        """After the unigrams, one more for a missing `<unk>`, and the end of the last."""
        return self.unigrams + (self.header.counts[0] + 2) * UNIGRAM.itemsize

    @property
    def orders(self) -> list[PackedOrder]:
        """Orders 2, 3, ..."""
        found: list[PackedOrder] = []
        for order in range(2, self.header.order + 1):
            found.append(self._packed(order, found[-1].end if found else self.bigrams))
        return found

    def _packed(self, order: int, start: int) -> PackedOrder:
        counts, top = self.header.counts, order == self.header.order
        longest = 0 if top else counts[order]
        prob_bits, backoff_bits = self.bits or (31, 32)
        next_bits, offsets, size = bits_for(longest), 0, 0
        if self.most is not None and not top:
            upper = _upper_bits(counts[order - 1] + 1, longest, self.most)
            offsets, size = align8(start) + 8, (longest >> (next_bits - upper)) + 1
            start, next_bits = start + 8 * (1 + size) + 7, next_bits - upper
        value_bits = prob_bits + (0 if top else backoff_bits)
        return PackedOrder(counts[order - 1], start, offsets, size, bits_for(counts[0]), value_bits, next_bits)


def trie_parts(data: NDArray[np.uint8], header: Header, path: str | Path) -> TrieParts:
    """The parts of a file, after a check that they are inside of it."""
    parts = TrieParts(header)
    if header.kind in (QUANT_TRIE, QUANT_ARRAY_TRIE):
        version, prob_bits, backoff_bits = _bytes(data, parts.bins, 3, path)
        if version != 2 or not 1 <= prob_bits <= 25 or not 1 <= backoff_bits <= 25:
            raise format_error(path, f"its bins have version {version}, {prob_bits} and {backoff_bits} bits")
        parts = replace(parts, bits=(prob_bits, backoff_bits))
    if header.kind in (ARRAY_TRIE, QUANT_ARRAY_TRIE) and header.order > 2:
        version, most = _bytes(data, parts.bigrams, 2, path)
        if version != 0:
            raise format_error(path, f"its pointers have version {version}, and lidstone reads version 0")
        parts = replace(parts, most=most)
    end = parts.orders[-1].end
    if end > len(data):
        raise format_error(path, f"it is cut off: {end} bytes are due, and {len(data)} are there")
    if data[header.size : header.size + 8].view("<u8")[0] != header.counts[0] - 1:
        raise format_error(path, "its vocabulary is damaged")
    return parts


def _bytes(data: NDArray[np.uint8], start: int, size: int, path: str | Path) -> list[int]:
    if start + size > len(data):
        raise format_error(path, f"it is cut off: {start + size} bytes are due at least, and {len(data)} are there")
    found: list[int] = data[start : start + size].tolist()
    return found


class _TrieReader:
    """All of a trie, with the checks that scoring in place leaves out: every n-gram is there once, of known words."""

    def __init__(self, data: NDArray[np.uint8], parts: TrieParts, path: str | Path) -> None:
        self.data, self.parts, self.path = data, parts, path
        self.counts = parts.header.counts

    def words(self) -> list[str]:
        hashes = self._numbers(self.parts.hashes, self.counts[0] - 1, "<u8")
        if (hashes[1:] <= hashes[:-1]).any():
            raise format_error(self.path, "its vocabulary is damaged")
        words = self.data[self.parts.orders[-1].end :].tobytes().split(b"\0")[: self.counts[0]]
        if words[0] != b"<unk>" or not np.array_equal(hash_words(words[1:]), hashes):
            raise format_error(self.path, "its words are cut off or do not fit its vocabulary")
        try:
            return [word.decode() for word in words]
        except UnicodeDecodeError as error:
            raise format_error(self.path, f"a word is not valid UTF-8 ({error})") from error

    def sections(self) -> list[NgramSection]:
        count = self.counts[0]
        block = self._numbers(self.parts.unigrams, count + 2, UNIGRAM)
        ngrams, begins = np.arange(count)[:, None], self._check_begins(block["next"][: count + 1], 2)
        sections = [self._section(ngrams, block["logprob"][:count], block["backoff"][:count])]
        for order, packed in enumerate(self.parts.orders, start=2):
            words = self._bits(packed, 0, packed.word_bits)
            self._check_words(words, begins)
            ngrams = np.column_stack([words.astype(np.int32), ngrams[parents_of(begins)]])
            sections.append(self._section(ngrams, *self._values(packed, order)))
            if order < len(self.counts):
                begins = self._check_begins(self._pointers(packed), order + 1)
        return sections

    def _numbers(self, start: int, count: int, kind: Any) -> NDArray[Any]:
        return self.data[start : start + count * np.dtype(kind).itemsize].view(kind)

    def _bits(self, packed: PackedOrder, at: int, width: int, more: int = 0) -> NDArray[np.uint64]:
        """The numbers that begin at a bit of each entry, and of `more` after the last."""
        block = self.data[packed.start : packed.end]
        return read_bits(block, at, packed.stride, width, packed.count + more)

    def _values(self, packed: PackedOrder, order: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """log10 p and backoffs: 31 bits of a float whose sign is known, then 32; or the backoff's bin, then p's."""
        at, top = packed.word_bits, order == len(self.counts)
        none = np.zeros(packed.count, np.float32)
        if self.parts.bits is None:
            bits = self._bits(packed, at, 31).astype(np.uint32) | np.uint32(1 << 31)
            more = none if top else self._bits(packed, at + 31, 32).astype(np.uint32).view(np.float32)
            return bits.view(np.float32), more
        prob_bits, backoff_bits = self.parts.bits
        probs, backoffs = self.parts.bins_of(order)
        bins = self._numbers(probs, 1 << prob_bits, "<f4")
        if top:
            return bins[self._bits(packed, at, prob_bits)], none
        numbers = self._bits(packed, at, backoff_bits)
        chosen = bins[self._bits(packed, at + backoff_bits, prob_bits)]
        return chosen, self._numbers(backoffs, 1 << backoff_bits, "<f4")[numbers]

    def _pointers(self, packed: PackedOrder) -> NDArray[np.uint64]:
        low = self._bits(packed, packed.stride - packed.next_bits, packed.next_bits, more=1)
        if packed.offsets_size == 0:
            return low
        offsets = self._numbers(packed.offsets, packed.offsets_size, "<u8")
        if offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any():
            raise format_error(self.path, "its pointers are damaged")
        high = np.searchsorted(offsets, np.arange(len(low), dtype=np.uint64), side="right").astype(np.uint64) - 1
        return high << np.uint64(packed.next_bits) | low

    def _check_begins(self, begins: NDArray[np.uint64], order: int) -> NDArray[np.int64]:
        rising = (begins[1:] >= begins[:-1]).all()
        if begins[0] != 0 or begins[-1] != self.counts[order - 1] or not rising:
            raise format_error(self.path, f"its {order}-grams do not form a trie")
        return begins.astype(np.int64)

    def _check_words(self, words: NDArray[np.uint64], begins: NDArray[np.int64]) -> None:
        """The children of a node have known and rising words."""
        rising = words[1:] > words[:-1]
        firsts = begins[1:-1]
        rising[firsts[(firsts > 0) & (firsts < len(words))] - 1] = True
        if not rising.all() or (words >= self.counts[0]).any():
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


@kernel
def _read_bits(block, start, stride, width, numbers):  # type: ignore[no-untyped-def]
    address, mask = address_of(block), (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    for i in range(len(numbers)):
        bit = start + i * stride
        numbers[i] = (load_u64(address + (bit >> 3)) >> np.uint64(bit & 7)) & mask


def write_bits(block: NDArray[np.uint8], start: int, stride: int, width: int, numbers: NDArray[np.integer]) -> None:
    """Write numbers to where `read_bits` finds them, into bits that are zero.

    >>> block = np.zeros(10, np.uint8)
    >>> write_bits(block, 0, 3, 2, np.array([1, 1, 2]))
    >>> [f"{byte:b}" for byte in block[:2]]
    ['10001001', '0']
    """
    if len(numbers) and (start + (len(numbers) - 1) * stride) // 8 + 8 > len(block):
        raise ValueError("the block is too short")
    _write_bits(block, start, stride, numbers.astype(np.uint64) & np.uint64((1 << width) - 1))


@kernel
def _write_bits(block, start, stride, numbers):  # type: ignore[no-untyped-def]
    address = address_of(block)
    for i in range(len(numbers)):
        at, shift = address + ((start + i * stride) >> 3), np.uint64((start + i * stride) & 7)
        store_u64(at, load_u64(at) | numbers[i] << shift)
