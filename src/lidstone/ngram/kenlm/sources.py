"""Scorers from ARPA files and from tables."""

from __future__ import annotations

import numpy as np

from lidstone.errors import FileFormatError, InputError
from lidstone.ngram.arpa.lines import Section, read_sections
from lidstone.ngram.kenlm.build import pack
from lidstone.ngram.kenlm.compiled.step import BOS, EOS, UNK
from lidstone.ngram.kenlm.levels import levels_of_sections, levels_of_table
from lidstone.ngram.kenlm.scorer import Scorer
from lidstone.ngram.table import BackoffTable
from lidstone.text.source import Source, name_of
from lidstone.text.tokens import hash_words

UNKNOWN = ("<unk>", "<UNK>")
"""How models spell the unknown word."""


def scorer_of_arpa(source: Source) -> Scorer:
    """Read an ARPA file, plain or compressed, with its numbers as they are."""
    words, sections = read_sections(source)
    return scorer_of_sections(words, sections, name_of(source))


def scorer_of_sections(words: list[str], sections: list[Section], name: str) -> Scorer:
    """The words of a model and its n-grams, by the places of their words in the list."""
    places = {word: place for place, word in enumerate(words)}
    unknown = next((places[word] for word in UNKNOWN if word in places), len(words))
    for word in ("<s>", "</s>"):
        if word not in places:
            raise FileFormatError(f"{name} has no {word}", hint="a model of sentences lists <s> and </s> as unigrams")
    levels = levels_of_sections(sections, extra=unknown == len(words))
    known = np.array([place for place in range(len(words)) if words[place] not in UNKNOWN])
    hashes = hash_words([words[place].encode() for place in known])
    return Scorer(pack(hashes, known, levels, {UNK: unknown, BOS: places["<s>"], EOS: places["</s>"]}))


def scorer_of_table(table: BackoffTable) -> Scorer:
    """A scorer of the same probabilities in float32; the table's vocabulary must have strings."""
    vocab = table.vocab
    if vocab.tokens is None:
        raise InputError(
            "the table knows ids but no words, so it cannot score text",
            hint="make its vocabulary with tokens=, or use table.advance and table.logprob with ids",
        )
    strings = [*vocab.tokens, "<s>"]
    strings[vocab.eos] = "</s>"
    unknown = vocab.bos + 1 if vocab.unk is None else vocab.unk
    levels = levels_of_table(table, extra=vocab.unk is None)
    never = {unknown, *vocab.unpredictable}
    known = [number for number in range(len(strings)) if number not in never]
    hashes = hash_words([strings[number].encode("utf-8", "surrogatepass") for number in known])
    return Scorer(pack(hashes, np.array(known), levels, {UNK: unknown, BOS: vocab.bos, EOS: vocab.eos}))
