"""What a history is: the one definition that counting, scoring and the loss share.

A sentence x1..xT is read as `<s> x1 .. xT </s>`. The history of a position is the tokens before it, back to and
including `<s>`; an n-gram model sees the last n-1 of them. In a stream of ids a sentence begins where the token before
is a *boundary*: the end of the last sentence (eos), or an id that is never predicted (a model's own bos or pad).
There the token before counts as `<s>`, which has the id `vocab.size`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray

if TYPE_CHECKING:
    from lidstone.text.vocabulary import Vocabulary


def boundaries(vocab: Vocabulary) -> NDArray[np.bool_]:
    """Which ids, standing before a token, make it the first of its sentence; (V + 1,), `<s>` included.

    >>> from lidstone.text.vocabulary import Vocabulary
    >>> boundaries(Vocabulary(size=4, eos=1, unpredictable=(0,))).tolist()
    [True, True, False, False, True]
    """
    mask = np.append(~vocab.events, True)
    if vocab.eos is not None:
        mask[vocab.eos] = True
    return mask


def sentence_stream(ids: NDArray[np.int32], vocab: Vocabulary) -> NDArray[np.int32]:
    """The ids with `<s>` before every sentence and without the ids that are never predicted.

    >>> from lidstone.text.vocabulary import Vocabulary
    >>> vocab = Vocabulary(size=4, eos=1, unpredictable=(0,))
    >>> sentence_stream(np.array([0, 2, 3, 1, 3, 1], np.int32), vocab).tolist()
    [4, 2, 3, 1, 4, 3, 1]
    """
    boundary, events, bos = vocab.boundaries, vocab.events, np.int32(vocab.bos)
    stream = np.empty(_stream_size(ids, boundary, events, bos), np.int32)
    _fill_stream(ids, boundary, events, bos, stream)
    return stream


@njit(cache=True, nogil=True)
def _stream_size(ids, boundary, events, bos):  # type: ignore[no-untyped-def]
    size, before = 0, bos
    for token in ids:
        size += events[token] * (1 + boundary[before])
        before = token
    return size


@njit(cache=True, nogil=True)
def _fill_stream(ids, boundary, events, bos, stream):  # type: ignore[no-untyped-def]
    end, before = 0, bos
    for token in ids:
        if events[token]:
            if boundary[before]:
                stream[end] = bos
                end += 1
            stream[end] = token
            end += 1
        before = token
