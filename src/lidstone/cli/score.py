"""`lidstone score`: perplexity of a text, with scores by line or by word on request, in constant memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol

from typer import Option

from lidstone.cli.console import print_json, say, table_signature
from lidstone.cli.filter import read_scorer
from lidstone.cli.inputs import (
    ADDRESS,
    BLANK,
    COLUMN,
    ENGINE,
    JSON,
    LINE_BUFFERED,
    MODEL,
    NORMALIZE,
    SENTENCEPIECE,
    TEXTS,
    TOKENIZER,
    check_blank,
    check_engine,
    ray_cluster,
    read_table,
)
from lidstone.errors import InputError

if TYPE_CHECKING:
    from lidstone.ngram.scorer.scorer import Scorer
    from lidstone.ngram.scoring import LineScores, Totals
    from lidstone.ngram.table import BackoffTable
    from lidstone.text.inputs import Input
    from lidstone.text.reader import Place
    from lidstone.text.source import Source
    from lidstone.text.splits import TextSplit
    from lidstone.text.words import Batch, Blank

Record = dict[str, Any]
CHUNK_BYTES = 1 << 20


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
    column: COLUMN = None,
    line_buffered: LINE_BUFFERED = False,
    engine: ENGINE = None,
    address: ADDRESS = None,
    as_json: JSON = False,
) -> None:
    """Perplexity of a text under a model; ends of sentences count as tokens.

    With --sentences or --words, stdout has one record for each line of the text, blank lines included; the summary
    goes to stderr.
    """
    from lidstone.ngram.scoring import Totals
    from lidstone.text.inputs import expand
    from lidstone.text.raw import foreign_pieces, raw_text

    if sentences and words:
        raise InputError("--sentences and --words cannot be combined", hint="use one of them")
    if line_buffered and (as_json or engine or not (sentences or words)):
        hint = "add --sentences, and leave out --json and --engine"
        raise InputError("--line-buffered answers with records of lines", hint=hint)
    check_engine(engine, address)
    raw = raw_text(normalize, sentencepiece, tokenizer)
    inputs, options = expand(texts, column, raw), Wanted(check_blank(blank), sentences, words, as_json)
    with ray_cluster(engine, address):
        model, totals, digest = _model(table), Totals(), Digest()
        kept: list[Record] = []
        if engine is None:
            found = _scored(model, [item.open(prompt=line_buffered) for item in inputs], options, prompt=line_buffered)
        else:
            found = _scored_on_ray(model, inputs, options)
        for scores in found:
            digest = digest.followed_by(scores.digest)
            totals.add(scores.totals)
            kept += scores.records
            if scores.lines:
                print(scores.lines, end="", flush=line_buffered)
    if raw is not None and (told := foreign_pieces(totals.oov, totals.tokens)):
        say(f"warning: {told}")
    facts = summary(model, totals, digest.hexdigest)
    if as_json:
        print_json({**facts, **({"sentences": kept} if sentences or words else {})})
    else:
        _print(facts, say if sentences or words else print)


class Wanted(NamedTuple):
    """What is wanted of each line."""

    blank: Blank
    sentences: bool
    words: bool
    as_json: bool


class Scored(NamedTuple):
    """Some lines with their scores."""

    totals: Totals
    digest: Digest
    records: list[Record]
    """of the lines, where they are wanted as JSON"""
    lines: str
    """or as text"""


def _scored(
    model: _Model,
    texts: Sequence[Source],
    wanted: Wanted,
    *,
    prompt: bool = False,
    begin: Place | None = None,
    stop: int | None = None,
) -> Iterator[Scored]:
    from lidstone.ngram.scoring import Totals

    for batch in model.batches(texts, prompt, begin, stop):
        scores = model.lines(batch, wanted.blank)
        by_word = model.words(batch, scores, wanted.blank) if wanted.words else None
        records = list(_records(scores, by_word)) if wanted.sentences or wanted.words else []
        lines = "" if wanted.as_json else "".join(map(_line, records))
        digest = Digest.of(batch.text, wanted.blank)
        yield Scored(Totals.of(scores), digest, records if wanted.as_json else [], lines)


def _scored_on_ray(model: _Model, inputs: list[Input], wanted: Wanted) -> Iterator[Scored]:
    """Parts of the texts, scored by the workers of a cluster, in order."""
    from lidstone.ngram.disk.executors import RayExecutor, portable
    from lidstone.text.splits import cut

    executor = RayExecutor()
    splits = cut(inputs, workers=executor.workers, chunk_bytes=CHUNK_BYTES)
    shared = executor.put(portable(model, executor))
    task = functools.partial(score_split, wanted)
    for found in executor.run(task, shared, model, ((split,) for split in splits)):
        yield from found


def score_split(wanted: Wanted, model: _Model, split: TextSplit) -> list[Scored]:
    """Score a part of a text."""
    return split.read(lambda text, begin, stop: list(_scored(model, [text], wanted, begin=begin, stop=stop)))


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

    @property
    def file(self) -> str | None: ...

    def by_value(self) -> _Model: ...

    def batches(
        self, texts: Sequence[Source], prompt: bool, begin: Place | None, stop: int | None
    ) -> Iterator[Batch]: ...

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
        return _Probing(*read_scorer(path), open_binary(path)[1].counts[0] - 1)  # without <s>
    compile_ahead()
    is_mapped = Path(path).is_file() and kind_of_file(path) == ("table", False)
    return _Rows(read_table(path), str(Path(path).resolve()) if is_mapped else None)


@dataclass(frozen=True)
class _Rows:
    """A table, in float64. One in a file of lidstone is pickled by its path."""

    table: BackoffTable
    file: str | None = None

    def __reduce__(self) -> Any:
        return (_rows_of_file, (self.file,)) if self.file else (_Rows, (self.table,))

    def by_value(self) -> _Rows:
        return _Rows(self.table)

    @property
    def vocabulary(self) -> int:
        return self.table.vocab.event_count

    @property
    def signature(self) -> str:
        return table_signature(self.table)

    def batches(self, texts: Sequence[Source], prompt: bool, begin: Place | None, stop: int | None) -> Iterator[Batch]:
        from lidstone.text.words import read_batches

        options: dict[str, Any] = {"prompt": prompt, "begin": begin, "stop": stop}
        return read_batches(texts, self.table.vocab, show=True, chunk_bytes=CHUNK_BYTES, **options)

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


def _rows_of_file(file: str) -> _Rows:
    from lidstone.ngram.formats.safetensors import load_table

    return _Rows(load_table(file, verify=False), file)  # it was verified where it was loaded first


@dataclass(frozen=True)
class _Probing:
    """A probing model of KenLM, which keeps hashes of its n-grams: float32, as KenLM scores."""

    scorer: Scorer
    signature: str
    vocabulary: int

    @property
    def file(self) -> str | None:
        return self.scorer.file

    def by_value(self) -> _Probing:
        return replace(self, scorer=self.scorer.by_value())

    def batches(self, texts: Sequence[Source], prompt: bool, begin: Place | None, stop: int | None) -> Iterator[Batch]:
        import numpy as np

        from lidstone.text.reader import read_chunks
        from lidstone.text.words import Batch

        for chunk in read_chunks(texts, begin, stop=stop, chunk_bytes=CHUNK_BYTES, prompt=prompt):
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


class Digest(NamedTuple):
    r"""A hash of the words of each line; it does not depend on the number of spaces or on skipped lines.

    It is two CRC-32, of the words as they are and with other bytes, so that of a text is known from those of its parts.

    >>> of = lambda text: Digest.of(text, "skip")
    >>> of(b"a b\nc\n") == of(b"a  b\n").followed_by(of(b"\nc"))
    True
    """

    size: int = 0
    plain: int = 0
    mixed: int = 0

    @classmethod
    def of(cls, text: bytes, blank: Blank) -> Digest:
        """The hash of some lines."""
        import zlib

        lines = text.removesuffix(b"\n").translate(_TO_SPACES).split(b"\n")
        spaced = [b" ".join(filter(None, line.split(b" "))) for line in lines]
        words = b"".join([line + b"\n" for line in spaced if line or blank != "skip"])
        return cls(len(words), zlib.crc32(words), zlib.crc32(words.translate(_MIXED)))

    def followed_by(self, other: Digest) -> Digest:
        """The hash of both texts, one after the other."""
        from lidstone.ngram.formats.checked_tensors import join_checksums

        pairs = zip(self[1:], other[1:], strict=True)
        return Digest(self.size + other.size, *(join_checksums(one, two, other.size) for one, two in pairs))

    @property
    def hexdigest(self) -> str:
        """The hash as text."""
        return f"{self.plain:08x}{self.mixed:08x}"


_TO_SPACES = bytes.maketrans(b"\t\r", b"  ")
_MIXED = bytes(pow(3, byte, 257) % 256 for byte in range(256))
"""Each byte once, in an order that is not linear, as CRC-32 is"""


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
