r"""Training data of any kind (lists, arrays, Hugging Face data sets, text and a tokenizer): rows of ids, or one stream.

There are four kinds of rows:

    whole      a sentence or document per row, perhaps padded; a row ends its sentence
    chats      as a template writes them: eos ends every turn, and perhaps the same few ids (`\n`) follow the last one
    packed     the text in blocks of one length, cut anywhere; eos alone ends a sentence
    documents  several whole documents per row, with their lengths in a column `seq_lengths` (TRL's packing)

And rows of ids as models read them: batches of similar length, padding, and pieces of long sentences.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.text.history import UNKNOWN, sentence_stream

if TYPE_CHECKING:
    from lidstone.text.vocabulary import Vocabulary

Ids = NDArray[np.integer]
Row = NDArray[Any]
Sentences = Iterable[Sequence[int] | NDArray[np.integer]]
IDS, MASK, LENGTHS = "input_ids", "attention_mask", "seq_lengths"
IGNORED = -100  # the label of a position that is not predicted, as everywhere in PyTorch
_BATCH = 1000  # texts that the tokenizer gets at once
_BLOCKS, _BLOCK_LENGTH = 4, 8  # rows of one length without eos: at least so many, so long, are blocks
_TAIL = 4  # ids at most that a chat template writes after the last end


def id_stream(
    data: Any,
    vocab: Vocabulary,
    *,
    append_eos: bool | None = None,
    tokenizer: Any = None,
    column: str | None = None,
) -> NDArray[np.int32]:
    """Any kind of data as one stream with `<s>` before each sentence; in an array of one dimension eos ends them.

    `append_eos`: True closes every row with eos, False reads rows as blocks of one stream. None closes rows unless they
    are blocks or chats. Chats are left as they are, and the next row begins a sentence all the same.

    >>> from lidstone.text.vocabulary import Vocabulary
    >>> id_stream([[3, 0, 5], [4, 3, 0, 5]], Vocabulary(size=9, eos=0)).tolist()
    [9, 3, 0, 9, 5, 9, 4, 3, 0, 9, 5]
    """
    if isinstance(data, np.ndarray) and data.ndim == 1:
        return sentence_stream(np.ascontiguousarray(vocab.check_ids(data), np.int32), vocab)
    rows = id_rows(data, tokenizer, column)
    blocks = is_packed(rows, vocab) if append_eos is None else not append_eos
    if append_eos is None and blocks and not any(_eos_inside(row, vocab.eos) for row in rows):
        warnings.warn(_unmarked(rows), stacklevel=3)
    close = blocks or append_eos is True or not is_chat(rows, vocab)
    ids = flatten(rows, eos=None if blocks else vocab.eos, padding=vocab.unpredictable, close=close)
    ends = ids == UNKNOWN  # of rows that stay open
    vocab.check_ids(ids[~ends])
    ids[ends] = vocab.bos
    return sentence_stream(ids, vocab)


def id_rows(data: Any, tokenizer: Any = None, column: str | None = None) -> list[Row]:
    """The rows of ids of any kind of training data; text is encoded with `tokenizer`.

    >>> [row.tolist() for row in id_rows([{"input_ids": [3, 4, 9], "attention_mask": [1, 1, 0]}, {"input_ids": [5]}])]
    [[3, 4], [5]]
    """
    if isinstance(data, dict):
        raise InputError(
            f"a dictionary with {', '.join(map(repr, data))} is not one data set", hint="choose a split: data['train']"
        )
    rows = _chosen(data, tokenizer, column)
    return [part for row in _encoded(rows, tokenizer, column) for part in _ids(row)]


def is_packed(rows: Sequence[Row], vocab: Vocabulary) -> bool:
    """Whether these are blocks of a packed stream: of one length (the last may be shorter) and unpadded.

    Two such rows are blocks if eos is inside any of them; without any eos, four rows of eight ids or more are.

    >>> from lidstone.text.vocabulary import Vocabulary
    >>> vocab = Vocabulary(size=9, eos=0)
    >>> is_packed([np.array([3, 0, 4]), np.array([5, 6, 0])], vocab)
    True
    >>> is_packed([np.array([3, 4, 0]), np.array([5, 0, 0])], vocab)           # padded with eos
    False
    >>> is_packed([np.full(8, 3)] * 4, vocab), is_packed([np.full(3, 3)] * 4, vocab)
    (True, False)
    """
    if len(rows) < 2 or any(row.ndim != 1 or len(row) != len(rows[0]) for row in rows[:-1]):
        return False
    if rows[-1].ndim != 1 or len(rows[-1]) > len(rows[0]):
        return False
    if any(np.isin(row[-2:], vocab.unpredictable).any() or (row[-2:] == vocab.eos).sum() > 1 for row in rows):
        return False
    if any(_eos_inside(row, vocab.eos) for row in rows):
        return True
    long = len(rows[0]) >= _BLOCK_LENGTH and sum(len(row) == len(rows[0]) for row in rows) >= _BLOCKS
    return long and not any((row == vocab.eos).any() for row in rows)


def is_chat(rows: Sequence[Row], vocab: Vocabulary) -> bool:
    r"""Whether most rows end with eos and then the same one to four ids, as ChatML's `<|im_end|>\n`.

    >>> from lidstone.text.vocabulary import Vocabulary
    >>> vocab = Vocabulary(size=9, eos=0)
    >>> is_chat([np.array([3, 0, 5]), np.array([4, 3, 0, 5])], vocab), is_chat([np.array([3, 4, 0])], vocab)
    (True, False)
    """
    tails = Counter(_tail(row, vocab) for row in rows)
    return 2 * max((number for tail, number in tails.items() if tail), default=0) > len(rows)


def check_vocabulary(vocab: Any) -> None:
    """Raise an error if a tokenizer is passed as a vocabulary."""
    if hasattr(vocab, "get_vocab"):
        raise InputError(
            f"{type(vocab).__name__} was given where a vocabulary is expected",
            hint="ld.Vocabulary.from_tokenizer(tokenizer, size=model.config.vocab_size)",
        )


def _tail(row: Row, vocab: Vocabulary) -> tuple[int, ...]:
    """The few ids after the last eos that a word precedes, padding left out; () where there are none or many."""
    ends = np.flatnonzero(row == vocab.eos) if row.ndim == 1 else row[:0]
    if not len(ends) or (row[: ends[-1]] == vocab.eos).all():
        return ()
    tail = row[ends[-1] + 1 :]
    tail = tail[~np.isin(tail, vocab.unpredictable)]
    return tuple(tail.tolist()) if len(tail) <= _TAIL else ()


def _unmarked(rows: Sequence[Row]) -> str:
    """The warning for blocks without any eos."""
    return (
        f"{len(rows)} rows of one length, {len(rows[0])}, have no eos: they are read as blocks of one text, in which "
        "no sentence ends. Put eos after every document before you cut the blocks; or pass append_eos=True if each row "
        "is a sentence, append_eos=False if this is intended"
    )


def _eos_inside(row: Row, eos: int) -> bool:
    """Whether eos is between words."""
    words = np.flatnonzero(row != eos)
    return bool(len(words)) and bool((row[words[0] : words[-1]] == eos).any())


def _chosen(data: Any, tokenizer: Any, column: str | None) -> Iterable[Any]:
    """The rows of `data`; those of a data set with only the columns that are used."""
    rows: Iterable[Any] = data
    names = getattr(data, "column_names", None)
    if not isinstance(names, list) or not hasattr(data, "select_columns"):
        return rows
    if column is None and tokenizer is not None and IDS not in names and "text" in names:
        column = "text"
    wanted = column or IDS
    if wanted not in names:
        raise InputError(
            f"the data set has the columns {', '.join(names)}, but no {wanted}",
            hint="tokenize it first, or name a text column: ld.count(data, ..., tokenizer=tokenizer, column='text')",
        )
    kept = [wanted] if column and column != IDS else [name for name in names if name in (IDS, MASK, LENGTHS)]
    rows = data.select_columns(kept)
    return rows


def flatten(
    sentences: Sentences, *, eos: int | None, padding: Sequence[int] = (), close: bool = True
) -> NDArray[np.int32]:
    """All sentences as one stream; each closed with `eos`, where given, unless it ends with it already.

    Without `close`, one that does not end with it is followed by -1 instead.

    >>> flatten([[2, 1], [2, 0], []], eos=0).tolist()
    [2, 1, 0, 2, 0]
    >>> flatten([[2, 0, 3], [3, 3]], eos=0, padding=[3]).tolist()      # padding after the end is no new sentence
    [2, 0]
    >>> flatten([[0, 2, 0, 0], [0]], eos=0).tolist()                   # nor is eos around one
    [2, 0, 0]
    >>> flatten([[2, 0, 3], [2]], eos=0, close=False).tolist()
    [2, 0, 3, -1, 2, -1]
    """
    parts: list[NDArray[np.int32]] = []
    end, left_open = np.array([] if eos is None else [eos], np.int32), np.array([UNKNOWN], np.int32)
    for sentence in sentences:
        array = np.asarray(sentence)
        if eos is not None and array.ndim == 1 and array.size and array[-1] in padding:
            array = array[: np.flatnonzero(np.append(True, ~np.isin(array, padding)))[-1]]
        if not array.size:
            continue
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise InputError(
                f"a sentence must be a sequence of ids, not {array.dtype} of shape {array.shape}",
                hint="encode the text first, or use count_text for words",
            )
        if array.max() > np.iinfo(np.int32).max or array.min() < 0:
            raise InputError(f"id {array.min() if array.min() < 0 else array.max()} is not an id of a vocabulary")
        closed = close or array[-1] == eos
        if array[0] == eos or array[-1] == eos:
            inside = np.flatnonzero(array != eos)
            array = array[inside[0] : inside[-1] + 1] if inside.size else array[:0]
        parts += [array.astype(np.int32), end if closed else left_open]
    return np.concatenate(parts) if parts else np.empty(0, np.int32)


def _encoded(rows: Iterable[Any], tokenizer: Any, column: str | None) -> Iterator[Any]:
    """The rows, texts among them as ids."""
    texts: list[str] = []
    for row in rows:
        value = row.get(column or "text") if isinstance(row, dict) and IDS not in row else row
        if not isinstance(value, str):
            yield value if value is not None else row
            continue
        if tokenizer is None:
            raise InputError(
                f"a row is text: {value[:30]!r}", hint="pass tokenizer=tokenizer, or ids; for words use ld.count_text"
            )
        texts.append(value)
        if len(texts) == _BATCH:
            yield from tokenizer(texts, add_special_tokens=False)[IDS]
            texts = []
    if texts:
        yield from tokenizer(texts, add_special_tokens=False)[IDS]


def _ids(row: Any) -> Iterator[Row]:
    """The ids of one row, without masked ones; one array for each of its documents."""
    if not isinstance(row, dict):
        yield _narrow(np.asarray(row))
        return
    if IDS not in row:
        raise InputError(f"a row has {', '.join(map(repr, row))}, but no {IDS}", hint="tokenize the data first")
    ids = _narrow(np.asarray(row[IDS]))
    if row.get(MASK) is not None and len(row[MASK]) == len(ids):
        ids = ids[np.asarray(row[MASK]) != 0]
    lengths = row.get(LENGTHS)
    yield from [ids] if lengths is None else np.split(ids, np.cumsum(lengths)[:-1])


def _narrow(array: Row) -> Row:
    """Ids in 32 bits, where they fit."""
    if array.dtype != np.int64 or not array.size or array.max() > np.iinfo(np.int32).max or array.min() < 0:
        return array
    return array.astype(np.int32)


def length_batches(
    lengths: Sequence[int] | NDArray[np.integer], *, tokens: int | None = None, size: int | None = None
) -> list[NDArray[np.int64]]:
    """Indices of sequences in batches of similar length: at most `size` of them, or `tokens` with padding.

    A sequence longer than `tokens` is a batch of its own. Sequences of one length stay in their order.

    >>> [batch.tolist() for batch in length_batches([3, 1, 2, 9], tokens=6)]
    [[1, 2], [0], [3]]
    """
    if not (tokens or size):
        raise InputError("a batch needs a limit", hint="pass tokens= or size=")
    lengths = np.asarray(lengths)
    order = np.argsort(lengths, kind="stable")
    starts, first = [0], 0
    for place, length in enumerate(lengths[order]):
        count = place - first + 1
        if count > 1 and ((tokens and count * length > tokens) or (size and count > size)):
            starts.append(place)
            first = place
    return np.split(order, starts[1:]) if len(order) else []


def padded(rows: Sequence[Ids], fill: int) -> NDArray[np.int64]:
    """Rows of different length as one array, filled up on the right.

    >>> padded([np.array([1, 2, 3]), np.array([4])], fill=0).tolist()
    [[1, 2, 3], [4, 0, 0]]
    """
    array = np.full((len(rows), max(map(len, rows), default=0)), fill, dtype=np.int64)
    for row, ids in zip(array, rows, strict=True):
        row[: len(ids)] = ids
    return array


def pair_inputs(
    sources: Sequence[Ids], targets: Sequence[Ids], eos: int, pad: int
) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.int64]]:
    """What a translation model reads for some pairs, and the labels at the positions of its decoder.

    >>> inputs, labels = pair_inputs([np.array([5])], [np.array([7, 8])], eos=2, pad=1)
    >>> inputs["input_ids"].tolist(), inputs["decoder_input_ids"].tolist(), labels.tolist()
    ([[5, 2]], [[2, 7, 8]], [[7, 8, 2]])
    """
    read = padded([np.append(source, eos) for source in sources], pad)
    start = np.array([eos])
    inputs = {
        "input_ids": read,
        "attention_mask": padded([np.ones(len(source) + 1, np.int64) for source in sources], 0),
        "decoder_input_ids": padded([np.append(start, target) for target in targets], pad),
    }
    return inputs, padded([np.append(target, eos) for target in targets], IGNORED)


def pieces(length: int, limit: int, overlap: int) -> list[tuple[int, int, int]]:
    """Cut 0..length into pieces of at most `limit`: (start, first new position, end).

    Every position is new in exactly one piece; the `overlap` positions before it are context only.

    >>> pieces(10, limit=6, overlap=2)
    [(0, 0, 6), (4, 6, 10)]
    >>> pieces(5, limit=6, overlap=2)
    [(0, 0, 5)]
    """
    if not 0 <= overlap < limit:
        raise InputError(f"an overlap of {overlap} does not fit a limit of {limit}", hint="use 0 <= overlap < limit")
    found = [(0, 0, min(length, limit))]
    while found[-1][2] < length:
        done = found[-1][2]
        found.append((done - overlap, done, min(done - overlap + limit, length)))
    return found
