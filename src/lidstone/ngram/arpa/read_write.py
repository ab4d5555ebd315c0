"""ARPA files as tables and tables as ARPA files.

ARPA gives p(w|h) in full for the n-grams it lists, and for the rest p(w|h) = bow(h) p(w|h'). So
    rows[hw] = p(w|h) - bow(h) p(w|h'),    backoffs[h] = bow(h),
and an n-gram that is inserted to close the trie has rows 0. `lines.py` reads the text, `trie.py` closes the trie,
`text.py` writes.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import VocabularyMismatch, format_error
from lidstone.ngram.arpa.lines import Section, read_sections
from lidstone.ngram.arpa.text import write_arpa
from lidstone.ngram.closure import ClosedLevel, build, close
from lidstone.ngram.formats.remote import as_url, read_remote
from lidstone.ngram.formats.validate import report_normalisation
from lidstone.ngram.query import rows_of
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import Trie
from lidstone.text.source import Source, name_of
from lidstone.text.vocabulary import BOS, EOS, UNK, Vocabulary

__all__ = ["read_arpa", "write_arpa"]

MISSING_UNK = 1e-100
"""p of an unknown word where the file has no `<unk>`; KenLM's choice too"""


def read_arpa(source: Source, vocab: Vocabulary | None = None) -> BackoffTable:
    r"""Read an ARPA file, plain or compressed, `-` for standard input.

    Without `vocab` the words of the file are the vocabulary. With it, they are looked up there; words that it lacks are
    an error, and words that the file lacks have probability zero. N-grams in which `<s>` is not the first word, or
    with an id that cannot be predicted, are left out: no sentence has them. A model whose probabilities do not sum to
    one is reported on the logger `lidstone`.

    >>> import io
    >>> text = rb"\data\|ngram 1=3|ngram 2=1|\1-grams:|-.3 a -.2|-.4 </s>|-1 <unk>|\2-grams:|-.1 a a|\end\ "
    >>> table = read_arpa(io.BytesIO(text.replace(b"|", b"\n")))
    >>> (table.logprob([2, 1], [[2], [2]]) / np.log(10)).round(6).tolist()      # a a: listed; a </s>: -.2 - .4
    [-0.1, -0.6]
    """
    if url := as_url(source):
        return read_remote(url, lambda file: read_arpa(file, vocab))
    words, sections = read_sections(source)
    return table_of_sections(words, sections, name_of(source), vocab)


def table_of_sections(
    words: list[str], sections: list[Section], name: str, vocab: Vocabulary | None = None, *, kind: str = "arpa"
) -> BackoffTable:
    """A table of the n-grams of a model, which are numbers of its words; `kind` goes into the signature."""
    vocab = vocab or Vocabulary.from_words(word for word in words if word not in (BOS, _unknown(words)))
    ids = _ids(words, vocab)
    sections = [_renumbered(section, ids, vocab.bos) for section in sections]
    levels = close([section.ngrams for section in sections[1:]])
    _refuse_repeated(levels, sections[1:], name)
    trie, nodes = build(levels, vocab.size)
    nodes[0] = sections[0].ngrams[:, 0].astype(np.int64)
    given = [at[: len(section.lines)] for at, section in zip(nodes, sections, strict=True)]
    base, rows, backoffs = _values(trie, sections, given, vocab.unk)
    signature = _signature(kind, name, vocab, trie, trie.words, base, rows)
    table = BackoffTable(vocab, trie, base, rows, backoffs, signature)
    report_normalisation(table, name)
    return table


def _unknown(words: list[str]) -> str:
    """How the file spells the unknown word; `<UNK>` beside `<unk>` is a word like any other."""
    return "<UNK>" if UNK not in words else UNK


def _ids(words: list[str], vocab: Vocabulary) -> NDArray[np.int32]:
    """The id of each word of the file; -1 for one that cannot be predicted."""
    special = {BOS: vocab.bos, EOS: vocab.eos, UNK: vocab.unk, _unknown(words): vocab.unk}
    ids = [special[word] if word in special else vocab.index.get(word, -2) for word in words]
    unknown = [word for word, number in zip(words, ids, strict=True) if number == -2]
    if unknown:
        raise VocabularyMismatch(
            f"{len(unknown)} words of the ARPA file are not in the vocabulary, such as {', '.join(unknown[:3])}",
            hint="give the vocabulary that the model was made with, or none",
        )
    known = np.array([-1 if number is None else number for number in ids], np.int32)
    known[np.isin(known, vocab.unpredictable)] = -1
    if len(np.unique(known[known >= 0])) < (known >= 0).sum():
        raise VocabularyMismatch(
            "two words of the ARPA file have the same id in the vocabulary",
            hint="</s> is the vocabulary's eos and <unk> its unk: the file must not list them under other names too",
        )
    return known


def _renumbered(section: Section, ids: NDArray[np.int32], bos: int) -> Section:
    """With the vocabulary's ids, and without n-grams that no sentence has."""
    ngrams = ids[section.ngrams]
    keep = (ngrams >= 0).all(axis=1) & (ngrams[:, 1:] != bos).all(axis=1)
    return Section(ngrams[keep], section.logprobs[keep], section.backoffs[keep], section.lines[keep])


def _refuse_repeated(levels: list[ClosedLevel], sections: list[Section], name: str) -> None:
    for order, (level, section) in enumerate(zip(levels, sections, strict=True), start=2):
        if level.repeated >= 0:
            line = int(section.lines[level.repeated])
            raise format_error(name, f"this {order}-gram was listed before", line=line)


def _values(
    trie: Trie, sections: list[Section], given: list[NDArray[np.int64]], unk: int | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Base, rows and backoffs; `given` are the nodes of each section's n-grams."""
    probs, backoffs = np.zeros(trie.size), np.ones(trie.size)
    if unk is not None:
        probs[unk] = MISSING_UNK
    for order, (section, nodes) in enumerate(zip(sections, given, strict=True), start=1):
        backoffs[nodes] = 10.0**section.backoffs
        if order > 1:  # what closure inserted backs off
            level = trie.level(order)
            probs[level] = backoffs[trie.parents[level]] * probs[trie.suffixes[level]]
        probs[nodes] = 10.0**section.logprobs
    of_histories = backoffs[: trie.num_histories].copy()
    return probs[: trie.vocab_size].copy(), rows_of(trie, probs, of_histories), of_histories


def _signature(kind: str, name: str, vocab: Vocabulary, trie: Trie, *arrays: NDArray[Any]) -> dict[str, Any]:
    digest = hashlib.blake2b(vocab.fingerprint.encode(), digest_size=8)
    for array in arrays:
        digest.update(array.data)
    return {
        "smoother": kind,
        "parameters": {"file": Path(name).name, "content": digest.hexdigest()},
        "order": trie.order,
        "vocabulary": vocab.fingerprint,
    }
