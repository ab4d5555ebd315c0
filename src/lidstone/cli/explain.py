"""`lidstone explain`: what smoothing adds and subtracts after one history, word by word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lidstone.cli.console import print_json, print_table, say, table_signature
from lidstone.cli.inputs import JSON, MODEL, check_counts_input, read_table
from lidstone.errors import InputError

if TYPE_CHECKING:
    from lidstone.loss.explain import Explanation
    from lidstone.ngram.counts import Counts
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

    Words are sorted by the larger of p and p~.
    """
    from lidstone.loss.explain import explain as explain_history
    from lidstone.ngram.formats.safetensors import load_counts

    check_counts_input(counts)
    model, counted = read_table(table), load_counts(counts)
    found = explain_history(model, counted, encode_history(history, model.vocab, model.order))
    facts = {"history": history, **explanation(found, counted, number), "signature": table_signature(model)}
    print_json(facts) if as_json else _print(facts)


def encode_history(text: str, vocab: Vocabulary, order: int) -> list[int]:
    """The ids of a history; `<s>` may open it, unknown words become `<unk>`."""
    words = text.split()
    if len(words) >= order:
        raise InputError(
            f"the history has {len(words)} words, but a model of order {order} sees {order - 1}",
            hint=f"use the last {order - 1}" if order > 1 else "use an empty history: ''",
        )
    if "<s>" in words[1:]:
        raise InputError("<s> is only possible as the first word of a history", hint="remove the words before it")
    start = [vocab.bos] if words[:1] == ["<s>"] else []
    return [*start, *map(int, vocab.encode(words[len(start) :]))]


def explanation(found: Explanation, counts: Counts, number: int) -> dict[str, Any]:
    """Z and the leading words with their c, p, p~, p+ and p-; of an unseen history only p~ is defined."""
    from lidstone.loss.explain import followers_of

    seen, vocab = found.count > 0, counts.vocab
    followers = followers_of(counts, found.history)
    words = []
    for word in found.leading(number).tolist():
        values = {"p": found.p[word], "p~": found.smoothed[word], "p+": found.plus[word], "p-": found.minus[word]}
        numbers = {name: float(value) if seen or name == "p~" else None for name, value in values.items()}
        string = vocab.tokens[word] if vocab.tokens else str(word)
        words.append({"word": string, "c": int(followers[word]), **numbers})
    note = {"note": found.note} if found.note else {}
    return {"count": found.count, "z": found.z if seen else None, "words": words, **note}


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
    if "note" in facts:
        say(f"note: {facts['note']}")
