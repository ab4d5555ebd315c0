"""Temperature, calibration error and Brier score against their definitions on whole distributions."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from lidstone.errors import InputError  # noqa: E402
from lidstone.hf.calibration import calibration, calibration_error, fit_temperature  # noqa: E402
from lidstone.hf.perplexity import score_sentences, text_batches  # noqa: E402

EOS, SIZE = 0, 7


class Bigram(torch.nn.Module):
    """Logits that depend on the last token alone."""

    def __init__(self, sharpness: float = 1.0) -> None:
        super().__init__()
        rows = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(3)) * 2 * sharpness
        self.rows = torch.nn.Parameter(rows)

    def forward(self, input_ids):
        return SimpleNamespace(logits=self.rows[input_ids])


@pytest.fixture
def sentences():
    """Drawn from the model itself, so that its own temperature is about one."""
    rng, rows = np.random.default_rng(5), Bigram().rows.softmax(-1).detach().double().numpy()
    found = []
    for _ in range(200):
        words, last = [], EOS
        while (last := int(rng.choice(SIZE, p=rows[last] / rows[last].sum()))) != EOS:
            words.append(last)
        found.append(np.array(words, np.int64))
    return found


def positions(model, sentences, temperature):
    """The distribution and the token of every position, one sentence at a time."""
    for sentence in sentences:
        whole = [EOS, *sentence.tolist(), EOS]
        for last, word in itertools.pairwise(whole):
            yield (model.rows[last].double() / temperature).softmax(-1).detach().numpy(), word


@pytest.mark.parametrize("temperature", [1.0, 1.7])
def test_measures_are_those_of_whole_distributions(sentences, temperature):
    model = Bigram()
    found = calibration(model, lambda: text_batches(sentences, EOS, 4, batch_tokens=50), temperature)
    rows, words = zip(*positions(model, sentences, temperature), strict=True)
    rows, onehot = np.array(rows), np.eye(SIZE)[list(words)]
    assert found.perplexity == pytest.approx(math.exp(-np.log((rows * onehot).sum(1)).mean()))
    assert found.brier == pytest.approx(((rows - onehot) ** 2).sum(1).mean())
    right = rows.argmax(1) == np.array(words)
    assert found.ece == pytest.approx(calibration_error(rows.max(1), right.astype(float)))


def test_the_perplexity_is_that_of_scoring(sentences):
    model = Bigram()
    found = calibration(model, lambda: text_batches(sentences, EOS, None))
    assert found.perplexity == pytest.approx(score_sentences(model, sentences, eos=EOS).perplexity, rel=1e-6)


@pytest.mark.parametrize("sharpness", [0.2, 1.0, 3.0])
def test_the_temperature_is_the_best_of_a_fine_grid(sentences, sharpness):
    model = Bigram(sharpness)

    def batches():
        return text_batches(sentences, EOS, None)

    found = fit_temperature(model, batches)
    best = calibration(model, batches, found).perplexity
    assert best <= min(calibration(model, batches, found * factor).perplexity for factor in (0.97, 0.99, 1.01, 1.03))
    assert found == pytest.approx(sharpness, rel=0.15)  # the text was drawn at sharpness 1


def test_a_temperature_stays_within_its_bounds():
    text = [np.array([word], np.int64) for word in (1, 2, 3)]
    certain = Bigram()
    certain.rows.data = torch.eye(SIZE).roll(1, 1) * 0.0  # all words alike: no temperature is better than another
    assert fit_temperature(certain, lambda: text_batches(text, EOS, None)) == 1.0
    certain.rows.data = torch.full((SIZE, SIZE), 0.0)
    certain.rows.data[:, EOS] = -1.0  # but half of the tokens are ends: the flatter the distribution, the better
    assert fit_temperature(certain, lambda: text_batches(text, EOS, None)) == pytest.approx(10.0)


def test_masked_words_have_no_part_in_it(sentences):
    model = Bigram()
    without = [sentence[sentence != 6] for sentence in sentences]
    model.rows.data[:, 6] = -math.inf
    found = fit_temperature(model, lambda: text_batches(without, EOS, None))
    assert math.isfinite(found) and math.isfinite(calibration(model, lambda: text_batches(without, EOS, None)).brier)


def test_nan_is_refused(sentences):
    model = Bigram()
    model.rows.data[1, 1] = math.nan
    with pytest.raises(InputError, match="not finite"):
        fit_temperature(model, lambda: text_batches(sentences, EOS, None))
