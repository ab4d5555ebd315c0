"""The set of n-grams of a text, as a trie stored breadth first in three flat arrays.

Nodes 0..V are the unigrams (node = word id, node V is `<s>`); then come all 2-grams sorted by (parent, word), all
3-grams likewise, and so on. So the children of a node stand side by side, sorted by their word, and a `first` array
of offsets is all the structure there is. Everything else (counts, probabilities) is an array with one value per node.

The set is closed: with an n-gram, its prefix (the parent) and its suffix (without the oldest word) are nodes too.
N-grams that begin with `<s>` are the last of their level, for `<s>` has the largest id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.jit import kernel
from lidstone.ngram.access import find_child as find_child
from lidstone.parallel import over_ranges

if TYPE_CHECKING:
    from lidstone.ngram.compact import PackedLinks

MAX_ORDER = 8


@dataclass(frozen=True, eq=False)
class Trie:
    """The n-grams of orders 1..n.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> trie = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2).trie
    >>> [trie.ngram(node) for node in range(4, trie.size)]      # 3 is <s>
    [(1, 0), (1, 2), (2, 0), (3, 1)]
    """

    levels: NDArray[np.int64]
    """nodes of order k are levels[k-1]:levels[k]"""
    words: NDArray[np.int32]
    """the last word of each node"""
    suffixes: NDArray[np.int32]
    """the node without its oldest word; -1 for unigrams"""
    first: NDArray[np.int32]
    """children of node i are first[i]:first[i+1]; one entry per node below the top order, and one more"""
    packed: PackedLinks | None = field(default=None, init=False)
    """the three arrays in fewer bits, where they are stored so; then they are decoded when they are used"""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Decode `words`, `suffixes` or `first` of a packed trie."""
            if name not in ("words", "suffixes", "first") or self.packed is None:
                raise AttributeError(name)
            self.__dict__[name] = self.packed.decode(name)
            return self.__dict__[name]

    @property
    def links(self) -> tuple[Any, Any, Any]:
        """`first`, `words` and `suffixes` as compiled code reads them (`access.py`): plain or packed."""
        return (self.first, self.words, self.suffixes) if self.packed is None else self.packed.links

    @property
    def node_type(self) -> np.dtype[Any]:
        """The type of a node's number: int32, or int64 for very large tries."""
        return self.first.dtype if self.packed is None else self.packed.node_type

    @property
    def order(self) -> int:
        """The longest n-gram's length."""
        return len(self.levels) - 1

    @property
    def vocab_size(self) -> int:
        """V; also the id and the node of `<s>`."""
        return int(self.levels[1]) - 1

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return int(self.levels[-1])

    @property
    def num_histories(self) -> int:
        """How many nodes can be histories: all below the top order."""
        return int(self.levels[-2])

    def level(self, order: int) -> slice:
        """The nodes of one order, as a slice."""
        return slice(int(self.levels[order - 1]), int(self.levels[order]))

    def children(self, node: int) -> slice:
        """The nodes that extend `node` by one word, as a slice; the top order has none."""
        return slice(int(self.first[node]), int(self.first[node + 1])) if node < self.num_histories else slice(0, 0)

    @cached_property
    def parents(self) -> NDArray[np.int32]:
        """The node without its newest word; -1 for unigrams."""
        unigrams, nodes = (
            np.full(self.levels[1], -1, self.first.dtype),
            np.arange(self.num_histories, dtype=self.first.dtype),
        )
        return np.concatenate([unigrams, np.repeat(nodes, np.diff(self.first))])

    def sentence_starts(self, order: int) -> slice:
        """The nodes of one order that begin with `<s>`: a block at the end of the level."""
        level = self.level(order)
        start = self.vocab_size
        for _ in range(order - 1):
            start = int(self.first[start])
        return slice(start, level.stop)

    def whole_histories(self) -> list[slice]:
        """The histories that are whole: those that begin with `<s>`, by length, and all of n-1 words."""
        return [*map(self.sentence_starts, range(1, self.order - 1)), self.level(self.order - 1)]

    def after_whole_histories(self) -> list[slice]:
        """The n-grams that follow whole histories, by order from 2 on."""
        return [*map(self.sentence_starts, range(2, self.order)), self.level(self.order)]

    def find(self, ngram: Sequence[int]) -> int:
        """The node of an n-gram given as ids, or -1."""
        if not 0 < len(ngram) <= self.order or not all(0 <= word <= self.vocab_size for word in ngram):
            return -1
        node = int(ngram[0])
        first, words, _ = self.links
        for word in ngram[1:]:
            node = find_child(first, words, node, word)
            if node < 0:
                return -1
        return node

    def ngram(self, node: int) -> tuple[int, ...]:
        """The ids of a node's words, oldest first."""
        ids: list[int] = []
        while node >= 0:
            ids.append(int(self.words[node]))
            node = int(self.parents[node])
        return tuple(reversed(ids))


def restrict(trie: Trie, keep: NDArray[np.bool_]) -> Trie:
    """The trie of the kept nodes; `keep` must be closed under prefixes and suffixes."""
    number = np.cumsum(keep) - 1
    suffixes = trie.suffixes[keep]
    suffixes[trie.vocab_size + 1 :] = number[suffixes[trie.vocab_size + 1 :]]
    before = np.concatenate([[0], np.cumsum(keep)])  # how many kept nodes precede
    first = before[trie.first][np.append(keep[: trie.num_histories], True)]
    nodes = trie.first.dtype
    return Trie(before[trie.levels], trie.words[keep], suffixes.astype(nodes), first.astype(nodes))


def check_order(order: int) -> int:
    """Refuse an order that is not 1..8."""
    if not 1 <= order <= MAX_ORDER:
        raise InputError(f"the order must be from 1 to {MAX_ORDER}, not {order}", hint="2 or 3 is usual")
    return order


def chunks(part: slice, size: int) -> Iterator[slice]:
    """A slice in pieces of at most `size`.

    >>> list(chunks(slice(3, 8), 4))
    [slice(3, 7, None), slice(7, 8, None)]
    """
    for start in range(part.start, part.stop, size):
        yield slice(start, min(start + size, part.stop))


def sum_children(first: NDArray[np.integer], values: NDArray[Any]) -> NDArray[Any]:
    """For each node that can be a history, the sum of `values` (one per node) over its children."""
    sums = np.empty(len(first) - 1, values.dtype)  # made here, not in the kernel: numpy asks for large pages
    over_ranges(lambda start, stop: _sum_children(first[start : stop + 1], values, sums[start:stop]), len(sums))
    return sums


@kernel
def _sum_children(first, values, sums):  # type: ignore[no-untyped-def]
    """Compensated (Kahan): a history may have a million followers, and its probabilities must still sum to one."""
    for node in range(len(sums)):
        total, carry = values.dtype.type(0), values.dtype.type(0)
        for child in range(first[node], first[node + 1]):
            term = values[child] - carry
            carry = (total + term - total) - term
            total += term
        sums[node] = total
