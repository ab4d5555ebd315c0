"""Modified Kneser-Ney against figures of KenLM's `lmplz` and `query`, on WikiText-2 and on a text of ten words."""

from __future__ import annotations

import lzma
import math
from pathlib import Path

import numpy as np
import pytest

from lidstone.ngram.counts import Counts, count
from lidstone.ngram.smoothers.base import FallbackUsed
from lidstone.ngram.smoothers.modified_kneser_ney import ModifiedKneserNey, chen_goodman
from lidstone.text.vocabulary import Vocabulary

slow = pytest.mark.slow


def sentences(path: Path) -> list[list[str]]:
    """The lines that have words; lmplz reserves `<unk>`, so the text's own is spelt otherwise."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [line.replace("<unk>", "UNK_").split() for line in lines if line.strip()]


@pytest.fixture(scope="module")
def train(data_dir: Path) -> tuple[Vocabulary, np.ndarray]:
    """The vocabulary in order of first appearance, as lmplz numbers it, and the text as ids."""
    text = sentences(data_dir / "wikitext-2" / "wiki.train.tokens.xz")
    vocab = Vocabulary.from_words(dict.fromkeys(word for sentence in text for word in sentence))
    return vocab, vocab.encode([word for sentence in text for word in [*sentence, "</s>"]])


@pytest.fixture(scope="module")
def valid(data_dir: Path, train: tuple[Vocabulary, np.ndarray]) -> list[np.ndarray]:
    return [train[0].encode(sentence) for sentence in sentences(data_dir / "wikitext-2" / "wiki.valid.tokens.xz")]


@pytest.fixture(scope="module")
def trigrams(train: tuple[Vocabulary, np.ndarray]) -> Counts:
    return count(train[1], train[0], 3)


@slow
def test_distinct_ngrams(train: tuple[Vocabulary, np.ndarray]) -> None:
    levels = count(train[1], train[0], 5).trie.levels
    assert np.diff(levels)[1:].tolist() == [619_591, 1_398_959, 1_794_725, 1_914_265]


@slow
def test_discounts(trigrams: Counts) -> None:
    found = ModifiedKneserNey().fit(trigrams).signature["discounts"]
    assert found[1] == pytest.approx([0.729716, 1.15964, 1.49569], abs=5e-6)
    assert found[2] == pytest.approx([0.837583, 1.25118, 1.44388], abs=5e-6)


@slow
def test_unigram_discounts_differ_by_one_word_that_lmplz_misplaces(trigrams: Counts) -> None:
    """lmplz puts its very last n-gram into the counts of counts by raw count.

    At order 1 that is the last new word of the text, "gallinae": it occurs 3 times, after 2 distinct words. Put it
    where lmplz puts it, and its discounts come out; ours are those of the definition.
    """
    last = trigrams.vocab.size - 1
    raw, adjusted = int(trigrams.counts[last]), int(trigrams.derived.adjusted[last])
    assert (trigrams.vocab.tokens[last], raw, adjusted) == ("gallinae", 3, 2)
    histogram = trigrams.counts_of_counts(1, adjusted=True).copy()
    assert chen_goodman(histogram) == pytest.approx([0.1820866, 1.0136427, 2.5377755], abs=1e-7)
    histogram[adjusted] -= 1
    histogram[raw] += 1
    assert chen_goodman(histogram) == pytest.approx([0.182131, 1.01294, 2.53774], abs=5e-6)


@slow
@pytest.mark.parametrize(("order", "expected"), [(3, 247.656), (2, 291.277)])
def test_perplexity(
    order: int, expected: float, train: tuple[Vocabulary, np.ndarray], trigrams: Counts, valid: list[np.ndarray]
) -> None:
    counts = trigrams if order == 3 else count(train[1], train[0], order)
    found = ModifiedKneserNey().fit(counts).perplexity(valid)
    assert found.tokens == 216_347
    assert found.value == pytest.approx(expected, abs=5e-4)


def test_ten_words_with_the_fallback() -> None:
    """`lmplz -o 3 --discount_fallback` on a b c | a b | b c a | a c.

    Unigrams after how many words: a 2, b 2, c 2, </s> 3, in all 9. No t_1, so D = 0.5, 1, 1.5:
        p(<unk>) = (3*1 + 1.5)/9 / 5 = 0.1        p(a) = (2 - 1)/9 + 0.1 = 0.2111
    Here, too, lmplz misplaces its last word (c: raw 3, adjusted 2), but t_1 = 0 in either case.
    """
    vocab = Vocabulary.from_words("abc")
    text = [vocab.encode(sentence.split()) for sentence in ("a b c", "a b", "b c a", "a c")]
    with pytest.warns(FallbackUsed, match=r"modified-kneser-ney uses its fallback \(0.5, 1.0, 1.5\) for order 1, 3"):
        table = ModifiedKneserNey(fallback=(0.5, 1.0, 1.5)).fit(count(text, vocab, 3))
    a, b = vocab.encode(["a", "b"])
    log10 = table.logprob([a, 0, b], [(), (), (vocab.bos, a)]) / math.log(10)
    assert log10 == pytest.approx([-0.6754889, -1, -0.33410645], abs=1e-7)
    assert math.log10(1 / 9 + 0.1) == pytest.approx(log10[0])
