"""Random texts, vocabularies and histories for the laws."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from lidstone.ngram.counts import Counts, count
from lidstone.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Case:
    """A small text: ids 0 (eos), words, perhaps a padding id, perhaps words that never occur."""

    sentences: list[list[int]]
    vocab: Vocabulary
    order: int
    thresholds: tuple[int, ...]

    @property
    def counts(self) -> Counts:
        return count(self.sentences, self.vocab, self.order, append_eos=True, thresholds=self.thresholds or None)


@st.composite
def vocabularies(draw: st.DrawFn) -> tuple[Vocabulary, int]:
    """A vocabulary whose words 1..n may occur; above them are unseen ones, and the last id may be padding."""
    words, unseen, padded = draw(st.integers(1, 5)), draw(st.integers(0, 3)), draw(st.booleans())
    size = 1 + words + unseen + padded
    return Vocabulary(size=size, eos=0, unpredictable=(size - 1,) if padded else ()), words


@st.composite
def cases(draw: st.DrawFn, max_order: int = 8, thresholds: bool = True) -> Case:
    """A text of one to eight sentences and an order; with count thresholds now and then."""
    vocab, words = draw(vocabularies())
    sentence = st.lists(st.integers(1, words), min_size=1, max_size=9)
    sentences = draw(st.lists(sentence, min_size=1, max_size=8))
    order = draw(st.integers(1, max_order))
    limits: tuple[int, ...] = ()
    if thresholds and order > 1 and draw(st.booleans()):
        limits = (0, *sorted(draw(st.lists(st.integers(0, 2), min_size=order - 1, max_size=order - 1))))
    return Case(sentences, vocab, order, limits)


def histories(case: Case) -> list[list[int]]:
    """One history of each kind, and every history of the text."""
    vocab, order = case.vocab, case.order
    fixed = [[], [vocab.bos], [0], [vocab.size - 1], [vocab.size - 1] * order, [1] * (order + 3), [vocab.bos, 1, 1]]
    seen = {
        tuple([vocab.bos, *sentence][max(end - order + 1, 0) : end])
        for sentence in case.sentences
        for end in range(1, len(sentence) + 2)
    }
    return fixed + [list(history) for history in sorted(seen)]
