"""`lidstone score`: perplexity of a text, with scores by line or by word on request, in constant memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from typer import Option

from lidstone.cli.console import print_json, say, table_signature
from lidstone.cli.filter import read_scorer
from lidstone.cli.inputs import (
    BLANK,
    JSON,
    LINE_BUFFERED,
    MODEL,
    NORMALIZE,
    SENTENCEPIECE,
    TEXTS,
    TOKENIZER,
    check_blank,
    read_table,
)
from lidstone.errors import InputError

if TYPE_CHECKING:
    from lidstone.ngram.scoring import LineScores, Totals
    from lidstone.ngram.table import BackoffTable
    from lidstone.text.source import Source
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
    normalize: NORMALIZE = None,
    sentencepiece: SENTENCEPIECE = None,
    tokenizer: TOKENIZER = None,
    line_buffered: LINE_BUFFERED = False,
    as_json: JSON = False,
) -> None:
    """Perplexity of a text under a model; ends of sentences count as tokens.

    With --sentences or --words, stdout has one record for each line of the text, blank lines included; the summary
    goes to stderr.
    """
    from lidstone.ngram.scoring import Totals
    from lidstone.text.inputs import Input
    from lidstone.text.raw import foreign_pieces, raw_text

    if sentences and words:
        raise InputError("--sentences and --words cannot be combined", hint="use one of them")
    if line_buffered and (as_json or not (sentences or words)):
        raise InputError("--line-buffered answers with records of lines", hint="add --sentences, and leave out --json")
    treatment, raw = check_blank(blank), raw_text(normalize, sentencepiece, tokenizer)
    sources = texts if raw is None else [Input(text, raw=raw).open(prompt=line_buffered) for text in texts]
    model, totals, digest = _model(table), Totals(), _Digest(treatment)
    kept: list[Record] = []
    for batch in model.batches(sources, line_buffered):
        scores = model.lines(batch, treatment)
        digest.update(batch.text)
        totals.add(scores)
        by_word = model.words(batch, scores, treatment) if words else None
        records = list(_records(scores, by_word)) if sentences or words else []
        if as_json:
            kept += records
        else:
            print("".join(_line(record) for record in records), end="", flush=line_buffered)
    if raw is not None and (told := foreign_pieces(totals.oov, totals.tokens)):
        say(f"warning: {told}")
    facts = summary(model, totals, digest.hexdigest())
    if as_json:
        print_json({**facts, **({"sentences": kept} if sentences or words else {})})
    else:
        _print(facts, say if sentences or words else print)


def summary(model: _Model, totals: Totals, text: str) -> Record:
    """Perplexity, its denominator and its signature; `text` is a hash of the text's words."""
    return {
        "perplexity": totals.perplexity,
        "tokens": totals.tokens,
        "oov": totals.oov,
        "vocabulary": model.vocabulary,
        "signature": f"{model.signature}|text:{text}",
    }


class _Model(Protocol):
    """What scores lines: a table, or a binary of KenLM that has no rows."""

    @property
    def vocabulary(self) -> int: ...

    @property
    def signature(self) -> str: ...

    def batches(self, texts: Sequence[Source], prompt: bool) -> Iterator[Batch]: ...

    def lines(self, batch: Batch, blank: Blank) -> LineScores: ...

    def words(self, batch: Batch, scores: LineScores, blank: Blank) -> Iterator[list[Record]]: ...


def _model(path: str) -> _Model:
    from lidstone.files import as_url
    from lidstone.ngram.formats.kenlm import TRIE, open_binary
    from lidstone.ngram.formats.remote import read_remote
    from lidstone.text.interning import compile_ahead
    from lidstone.text.source import kind_of_file

    if url := as_url(path):
        return read_remote(url, lambda file: _model(str(file)))
    binary = Path(path).is_file() and kind_of_file(path)[0] == "kenlm"
    if binary and open_binary(path)[1].kind < TRIE:
        return _Probing(path)
    compile_ahead()
    return _Rows(read_table(path))


@dataclass(frozen=True)
class _Rows:
    """A table, in float64."""

    table: BackoffTable

    @property
    def vocabulary(self) -> int:
        return self.table.vocab.event_count

    @property
    def signature(self) -> str:
        return table_signature(self.table)

    def batches(self, texts: Sequence[Source], prompt: bool) -> Iterator[Batch]:
        from lidstone.text.words import read_batches

        return read_batches(texts, self.table.vocab, show=True, prompt=prompt)

    def lines(self, batch: Batch, blank: Blank) -> LineScores:
        from lidstone.ngram.scoring import score_lines

        return score_lines(self.table, batch.ids, blank)

    def words(self, batch: Batch, scores: LineScores, blank: Blank) -> Iterator[list[Record]]:
        from lidstone.ngram.scoring import score_tokens

        found = score_tokens(self.table, batch.ids, blank)
        columns = zip((found.logprobs / math.log(10)).tolist(), found.lengths.tolist(), strict=True)
        for line, tokens in _lines(batch, scores):
            names = line if tokens else []
            ids = [*self.table.vocab.encode(names[:-1]).tolist(), self.table.vocab.eos]
            yield [
                {"word": name, "id": number, "length": length, "log10": log}
                for name, number, (log, length) in zip(names, ids, columns, strict=False)
            ]


class _Probing:
    """A probing model of KenLM, which keeps hashes of its n-grams: float32, as KenLM scores."""

    def __init__(self, path: str) -> None:
        from lidstone.ngram.formats.kenlm import open_binary

        self.scorer, self.signature = read_scorer(path)
        self.vocabulary = open_binary(path)[1].counts[0] - 1  # without <s>

    def batches(self, texts: Sequence[Source], prompt: bool) -> Iterator[Batch]:
        import numpy as np

        from lidstone.text.reader import read_chunks
        from lidstone.text.words import Batch

        for chunk in read_chunks(texts, prompt=prompt):
            yield Batch(np.empty(0, np.int32), chunk.data)

    def lines(self, batch: Batch, blank: Blank) -> LineScores:
        import numpy as np

        from lidstone.ngram.scoring import LineScores

        found = self.scorer.score_text(batch.text.removesuffix(b"\n"), reserved=True)
        some = (found.words > 0) | (blank == "count")
        return LineScores(np.where(some, found.log10 * math.log(10), 0.0), (found.words + 1) * some, found.oov)

    def words(self, batch: Batch, scores: LineScores, blank: Blank) -> Iterator[list[Record]]:
        for line, tokens in _lines(batch, scores):
            found = self.scorer.score_words(" ".join(line[:-1])) if tokens else []
            yield [
                {"word": name, "id": self.scorer.index(name), "length": length, "log10": log}
                for name, (log, length, _) in zip(line, found, strict=False)
            ]


def _lines(batch: Batch, scores: LineScores) -> Iterator[tuple[list[str], int]]:
    """The words and the end of each line, and how many tokens of it have a score."""
    from lidstone.text.vocabulary import EOS
    from lidstone.text.words import split_words

    lines = batch.text.decode().removesuffix("\n").split("\n")
    for line, tokens in zip(lines, scores.tokens.tolist(), strict=True):
        yield [*split_words(line), EOS], tokens


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


def _records(scores: LineScores, by_word: Iterator[list[Record]] | None) -> Iterator[Record]:
    """A record per line; with `by_word`, each word with its id, the length of the n-gram that matched and its log10."""
    for log, tokens, oov in zip(*(column.tolist() for column in scores), strict=True):
        log10 = log / math.log(10)
        perplexity = 10 ** (-log10 / tokens) if tokens and log10 > -300 * tokens else math.inf if tokens else None
        record = {"log10": log10, "tokens": tokens, "oov": oov, "perplexity": perplexity}
        yield {**record, "words": next(by_word)} if by_word else record


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
