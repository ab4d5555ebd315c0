"""Modified Kneser-Ney against a live `lmplz`, where KenLM's programs are installed."""

from __future__ import annotations

import dataclasses
import math
import shutil
import subprocess
from pathlib import Path

import pytest

from lidstone.ngram.counts import Counts, count
from lidstone.ngram.smoothers.modified_kneser_ney import ModifiedKneserNey
from lidstone.text.vocabulary import Vocabulary

LMPLZ = shutil.which("lmplz")
pytestmark = pytest.mark.skipif(LMPLZ is None, reason="lmplz is not on the PATH")


def estimate(text: str, order: int, folder: Path) -> dict[tuple[str, ...], tuple[float, float]]:
    """n-gram -> log10 probability and back-off, as lmplz writes them."""
    command = [str(LMPLZ), "-o", str(order), "-S", "64M", "-T", str(folder)]
    arpa = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    entries = {}
    for line in arpa.splitlines():
        fields = line.split("\t")
        if len(fields) >= 2:
            entries[tuple(fields[1].split())] = (float(fields[0]), float(fields[2]) if len(fields) > 2 else 0.0)
    return entries


def binned_as_lmplz_does(counts: Counts) -> Counts:
    """lmplz puts the last new word of the text into the counts of counts by its raw count."""
    derived, last = counts.derived, counts.vocab.size - 1
    unigrams = derived.adjusted_histograms[0].copy()
    unigrams[derived.adjusted[last]] -= 1
    unigrams[counts.counts[last]] += 1
    moved = dataclasses.replace(derived, adjusted_histograms=(unigrams, *derived.adjusted_histograms[1:]))
    return dataclasses.replace(counts, stored=moved)


@pytest.mark.parametrize("order", [2, 3, 5])
def test_every_ngram_of_a_real_text(order: int, tmp_path: Path) -> None:
    from lidstone.text.corpora import embedded_corpus

    sentences = [sentence for sentence in embedded_corpus() if sentence]
    vocab = Vocabulary.from_words(dict.fromkeys(word for sentence in sentences for word in sentence))
    counts = count([vocab.encode(sentence) for sentence in sentences], vocab, order)
    table = ModifiedKneserNey().fit(binned_as_lmplz_does(counts))
    text = "".join(f"{' '.join(sentence)}\n" for sentence in sentences)  # lmplz drops a last line without its end
    entries = estimate(text, order, tmp_path)
    ids = {**vocab.index, "<s>": vocab.bos}
    ngrams = [ngram for ngram in entries if ngram[-1] != "<s>"]
    assert len(ngrams) == counts.trie.size - 1
    found = table.logprob([ids[g[-1]] for g in ngrams], [[ids[w] for w in g[:-1]] for g in ngrams]) / math.log(10)
    assert found == pytest.approx([entries[ngram][0] for ngram in ngrams], abs=1e-4)
