"""`lidstone score`: perplexity of a text, with scores by line or by word on request, in constant memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from lidstone.cli.console import print_json, say, table_signature
from lidstone.cli.inputs import BLANK, JSON, MODEL, TEXTS, check_blank, read_table
from lidstone.errors import InputError

if TYPE_CHECKING:
    from lidstone.ngram.scoring import LineScores, Totals
    from lidstone.ngram.table import BackoffTable
    from lidstone.text.words import Batch, Blank

Record = dict[str, Any]


def score(
    table: MODEL,
    texts: TEXTS,
    sentences: Annotated[
        bool, Option("--sentences", help="A record per line: log10 probability, tokens, OOV, perplexity.")
    ] = False,
    words: Annotated[
        bool, Option("--words", help="A record per line, as KenLM's query -v word prints it: every word, then the sum.")
    ] = False,
    blank: BLANK = "skip",
    as_json: JSON = False,
) -> None:
    """Perplexity of a text under a model; ends of sentences count as tokens.

    With --sentences or --words, stdout has one record for each line of the text, blank lines included; the summary
    goes to stderr.
    """
    from lidstone.ngram.scoring import Totals

    if sentences and words:
        raise InputError("--sentences and --words cannot be combined", hint="use one of them")
    treatment = check_blank(blank)
    model, totals, digest = read_table(table), Totals(), _Digest(treatment)
    kept: list[Record] = []
    for batch, scores in _scored(model, texts, treatment, totals, digest):
        records = list(_records(model, batch, scores, treatment, words)) if sentences or words else []
        if as_json:
            kept += records
        else:
            print("".join(_line(record) for record in records), end="")
    facts = summary(model, totals, digest.hexdigest())
    if as_json:
        print_json({**facts, **({"sentences": kept} if sentences or words else {})})
    else:
        _print(facts, say if sentences or words else print)


def summary(table: BackoffTable, totals: Totals, text: str) -> Record:
    """Perplexity, its denominator and its signature; `text` is a hash of the text's words."""
    return {
        "perplexity": totals.perplexity,
        "tokens": totals.tokens,
        "oov": totals.oov,
        "vocabulary": table.vocab.event_count,
        "signature": f"{table_signature(table)}|text:{text}",
    }


def _scored(
    table: BackoffTable, texts: list[str], blank: Blank, totals: Totals, digest: _Digest
) -> Iterator[tuple[Batch, LineScores]]:
    from lidstone.ngram.scoring import score_lines
    from lidstone.text.words import read_batches

    for batch in read_batches(texts, table.vocab, show=True):
        scores = score_lines(table, batch.ids, blank)
        digest.update(batch.text)
        totals.add(scores)
        yield batch, scores


class _Digest:
    """A hash of the words of each line; it does not depend on the number of spaces or on skipped lines."""

    def __init__(self, blank: Blank) -> None:
        import hashlib

        self._skip, self._hash = blank == "skip", hashlib.blake2b(digest_size=8)
        self.hexdigest = self._hash.hexdigest

    def update(self, text: bytes) -> None:
        to_spaces = bytes.maketrans(b"\t\r", b"  ")
        lines = (line.split(b" ") for line in text.removesuffix(b"\n").translate(to_spaces).split(b"\n"))
        for line in lines:
            words = b" ".join(filter(None, line))
            if words or not self._skip:
                self._hash.update(words + b"\n")


def _records(table: BackoffTable, batch: Batch, scores: LineScores, blank: Blank, words: bool) -> Iterator[Record]:
    """A record per line; with `words`, each word with its id, the length of the n-gram that matched and its log10."""
    by_word = _by_word(table, batch, scores, blank) if words else None
    for log, tokens, oov in zip(*(column.tolist() for column in scores), strict=True):
        log10 = log / math.log(10)
        perplexity = 10 ** (-log10 / tokens) if tokens and log10 > -300 * tokens else math.inf if tokens else None
        record = {"log10": log10, "tokens": tokens, "oov": oov, "perplexity": perplexity}
        yield {**record, "words": next(by_word)} if by_word else record


def _by_word(table: BackoffTable, batch: Batch, scores: LineScores, blank: Blank) -> Iterator[list[Record]]:
    from lidstone.ngram.scoring import score_tokens
    from lidstone.text.vocabulary import EOS
    from lidstone.text.words import split_words

    found = score_tokens(table, batch.ids, blank)
    columns = zip((found.logprobs / math.log(10)).tolist(), found.lengths.tolist(), strict=True)
    lines = batch.text.decode().removesuffix("\n").split("\n")
    for line, tokens in zip(lines, scores.tokens.tolist(), strict=True):
        names = [*split_words(line), EOS] if tokens else []
        ids = [*table.vocab.encode(names[:-1]).tolist(), table.vocab.eos]
        yield [
            {"word": name, "id": number, "length": length, "log10": log}
            for name, number, (log, length) in zip(names, ids, columns, strict=False)
        ]


def _line(record: Record) -> str:
    if "words" in record:
        words = "".join(f"{w['word']}={w['id']} {w['length']} {w['log10']:.7g}\t" for w in record["words"])
        return f"{words}Total: {record['log10']:.7g} OOV: {record['oov']}\n"
    perplexity = "-" if record["perplexity"] is None else f"{record['perplexity']:.4f}"
    return f"{record['log10']:.6f}\t{record['tokens']}\t{record['oov']}\t{perplexity}\n"


def _print(facts: Record, out: Any) -> None:
    counted = f"{facts['tokens']:,} tokens, {facts['oov']:,} OOV, vocabulary {facts['vocabulary']:,}"
    out(f"perplexity {facts['perplexity']:.4f}  ({counted})")
    out(facts["signature"])
