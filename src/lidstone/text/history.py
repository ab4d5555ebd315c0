"""What a history is: the one definition that counting, scoring and the loss share.

A sentence x1..xT is read as `<s> x1 .. xT </s>`. The history of a position is the tokens before it, back to and
including `<s>`; an n-gram model sees the last n-1 of them. In a stream of ids a sentence begins where the token before
is a *boundary*: the end of the last sentence (eos), or an id that is never predicted (a model's own bos or pad).
There the token before counts as `<s>`, which has the id `vocab.size`. A token that is not known is negative, and the
history begins after it.

`histories_of` is the definition in plain Python. Compiled code that finds histories for itself (counting, the kernels
of the loss, states) is tested against it on the rows of `tests/adversarial_rows.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lidstone.jit import kernel
from lidstone.parallel import equal_ranges, over_ranges, threads_for

if TYPE_CHECKING:
    from lidstone.text.vocabulary import Vocabulary

UNKNOWN = -1
"""a token that is not known: the history begins after it"""


def boundaries(vocab: Vocabulary) -> NDArray[np.bool_]:
    """Which ids, standing before a token, make it the first of its sentence; (V + 1,), `<s>` included.

    >>> from lidstone.text.vocabulary import Vocabulary
    >>> boundaries(Vocabulary(size=4, eos=1, unpredictable=(0,))).tolist()
    [True, True, False, False, True]
    """
    mask = np.append(~vocab.events, True)
    mask[vocab.eos] = True
    return mask


def history_tokens(vocab: Vocabulary) -> NDArray[np.int64]:
    """Each id as a token of a history: a boundary is `<s>`, and -1, the last, is unknown; (V + 2,).

    >>> from lidstone.text.vocabulary import Vocabulary
    >>> history_tokens(Vocabulary(size=4, eos=1, unpredictable=(0,))).tolist()
    [4, 4, 2, 3, 4, -1]
    """
    return np.append(np.where(vocab.boundaries, vocab.bos, np.arange(vocab.size + 1)), UNKNOWN)


def history_after(tokens: Sequence[int], vocab: Vocabulary, order: int) -> tuple[int, ...]:
    """What an n-gram model sees of a row of tokens: at most the last n-1, back to the sentence start.

    >>> from lidstone.text.vocabulary import Vocabulary
    >>> history_after([2, 0, 3, 3], Vocabulary(size=4, eos=0), order=4)
    (4, 3, 3)
    """
    found: list[int] = []
    for token in reversed(recent(tokens, order)):
        if token < 0:
            break
        if vocab.boundaries[token]:
            found.append(vocab.bos)
            break
        found.append(int(token))
    return tuple(reversed(found))


def histories_of(contexts: Sequence[int], vocab: Vocabulary, order: int) -> list[tuple[int, ...]]:
    """The history of each position of one row, whose contexts are the tokens before each.

    >>> from lidstone.text.vocabulary import Vocabulary
    >>> histories_of([4, 1, 2, -1, 2], Vocabulary(size=4, eos=0), order=3)
    [(4,), (4, 1), (1, 2), (), (2,)]
    """
    return [history_after(contexts[max(end - order, 0) : end], vocab, order) for end in range(1, len(contexts) + 1)]


def recent(tokens: Sequence[int], order: int) -> Sequence[int]:
    """The last n-1 tokens.

    >>> recent([1, 2, 3], order=3), recent([1, 2, 3], order=1), recent([1], order=3)
    ([2, 3], [], [1])
    """
    return tokens[max(len(tokens) - order + 1, 0) :]


def sentence_stream(ids: NDArray[np.int32], vocab: Vocabulary) -> NDArray[np.int32]:
    """The ids with `<s>` before every sentence and without the ids that are never predicted; `<s>` may be among them.

    >>> from lidstone.text.vocabulary import Vocabulary
    >>> vocab = Vocabulary(size=4, eos=1, unpredictable=(0,))
    >>> sentence_stream(np.array([0, 2, 3, 1, 3, 1], np.int32), vocab).tolist()
    [4, 2, 3, 1, 4, 3, 1]
    """
    rules = vocab.boundaries, np.append(vocab.events, False), np.int32(vocab.bos)
    threads = threads_for(len(ids))
    parts = equal_ranges(len(ids), threads)
    sizes, nothing = [0] * threads, np.empty(0, np.int32)

    def measure(part: int, _: int) -> None:
        sizes[part] = _fill_stream(ids, *parts[part], *rules, nothing)

    over_ranges(measure, threads, threads)
    ends = np.cumsum([0, *sizes])
    stream = np.empty(ends[-1], np.int32)
    over_ranges(lambda part, _: _fill_stream(ids, *parts[part], *rules, stream[ends[part] :]), threads, threads)
    return stream


@kernel
def _fill_stream(ids, begin, end, boundary, events, bos, stream):  # type: ignore[no-untyped-def]
    """Write what a part of the ids becomes, unless the stream is empty, and return how many ids these are."""
    at, before, writes = 0, ids[begin - 1] if begin else bos, len(stream) > 0
    for i in range(begin, end):
        token = ids[i]
        if events[token]:
            if boundary[before]:
                if writes:
                    stream[at] = bos
                at += 1
            if writes:
                stream[at] = token
            at += 1
        before = token
    return at
