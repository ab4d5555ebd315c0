"""`lidstone explain`: what smoothing adds and takes after one history, word by word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lidstone.cli.console import print_json, print_table, table_signature
from lidstone.cli.inputs import JSON, MODEL, read_table
from lidstone.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lidstone.ngram.counts import Counts
    from lidstone.ngram.table import BackoffTable
    from lidstone.text.vocabulary import Vocabulary

COLUMNS = ("p", "p~", "p+", "p-")


def explain(
    table: MODEL,
    counts: Annotated[str, typer.Option(help="The counts that the table was fitted to.")],
    history: Annotated[str, typer.Option(help="The words before, such as 'of the'; <s> starts a sentence.")],
    number: Annotated[int, typer.Option("--number", "-N", min=1, help="How many words to show.")] = 10,
    as_json: JSON = False,
) -> None:
    """Show p, the smoothed p~, and the two parts of their difference: p~ - p = Z (p+ - p-).

    Words come in the order of the larger of p and p~.
    """
    from lidstone.ngram.storage import load_counts

    model, counted = read_table(table), load_counts(counts)
    check_pair(model, counted)
    ids = encode_history(history, model.vocab, model.order)
    facts = explanation(model, counted, ids, number)
    facts = {"history": history, **facts, "signature": table_signature(model)}
    print_json(facts) if as_json else _print(facts)


def check_pair(table: BackoffTable, counts: Counts) -> None:
    """Refuse counts of another vocabulary, and counts that no longer give the empirical distribution."""
    table.require(counts.vocab)
    if any(counts.thresholds):
        raise InputError(
            f"counts with thresholds {list(counts.thresholds)} do not give the empirical distribution",
            hint="count again without --threshold; the table may be fitted with them",
        )


def encode_history(text: str, vocab: Vocabulary, order: int) -> list[int]:
    """The ids of a history; `<s>` may open it, unknown words become `<unk>`."""
    words = text.split()
    if len(words) >= order:
        raise InputError(
            f"the history has {len(words)} words, but a model of order {order} sees {order - 1}",
            hint=f"give the last {order - 1}" if order > 1 else "give an empty history: ''",
        )
    if "<s>" in words[1:]:
        raise InputError("<s> is only possible as the first word of a history", hint="leave out what is before it")
    start = [vocab.bos] if words[:1] == ["<s>"] else []
    return [*start, *map(int, vocab.encode(words[len(start) :]))]


def explanation(table: BackoffTable, counts: Counts, history: list[int], number: int) -> dict[str, Any]:
    """Z and the leading words with their c, p, p~, p+ and p-; of an unseen history only p~ is defined."""
    import numpy as np

    followers = followers_of(counts, history)
    smoothed = table.prob([history])[0]
    total = int(followers.sum())
    empirical = followers / max(total, 1)
    plus, minus = np.maximum(smoothed - empirical, 0), np.maximum(empirical - smoothed, 0)
    z = float(minus.sum()) if total else None
    columns = [empirical, smoothed, plus / z if z else plus, minus / z if z else minus]
    leading = np.argsort(-np.maximum(empirical, smoothed), kind="stable")[:number]
    words = [_row(counts.vocab, int(word), followers, columns, total > 0) for word in leading]
    return {"count": total, "z": z, "words": words}


def followers_of(counts: Counts, history: list[int]) -> NDArray[np.int64]:
    """How often each word follows a history: (V,)."""
    import numpy as np

    if not history:
        return counts.counts[: counts.vocab.size]
    followers = np.zeros(counts.vocab.size, np.int64)
    node = counts.trie.find(history)
    if node >= 0:
        children = counts.trie.children(node)
        followers[counts.trie.words[children]] = counts.counts[children]
    return followers


def _row(
    vocab: Vocabulary, word: int, followers: NDArray[np.int64], columns: list[NDArray[np.float64]], seen: bool
) -> dict[str, Any]:
    values: dict[str, float | None] = {name: float(column[word]) for name, column in zip(COLUMNS, columns, strict=True)}
    if not seen:
        values |= {"p": None, "p+": None, "p-": None}
    return {"word": vocab.tokens[word] if vocab.tokens else str(word), "c": int(followers[word]), **values}


def _print(facts: dict[str, Any]) -> None:
    seen = f"seen {facts['count']:,} times" if facts["count"] else "never seen: only p~ is defined"
    moved = "" if facts["z"] is None else f"; Z = {facts['z']:.6f} of the mass is moved"
    print(f"after '{facts['history']}' ({seen}{moved})")
    rows = [
        [row["word"], str(row["c"]), *("-" if row[name] is None else f"{row[name]:.6f}" for name in COLUMNS)]
        for row in facts["words"]
    ]
    print_table(["word", "c", *COLUMNS], rows)
    print(facts["signature"])
