"""The mixture of a network and an n-gram model: weight, whole rows, scores and generation against dense judges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

import lidstone as ld
from lidstone.errors import InputError, VocabularyMismatch
from lidstone.hf.mixture import mixed_nll, mixture_weight, ngram_nll
from lidstone.lab.recipe.sections import ModelSpec
from lidstone.lab.run.models import build_model

SIZE, EOS = 12, 2
VOCAB = ld.Vocabulary(size=SIZE, eos=EOS, unpredictable=(0, 1))
RNG = np.random.default_rng(5)
TEXT = [RNG.integers(3, SIZE, size=RNG.integers(1, 9)) for _ in range(60)]


@pytest.fixture(scope="module")
def table():
    return ld.WittenBell().fit(ld.count(TEXT, VOCAB, order=3))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return build_model(ModelSpec(layers=1, width=8, heads=2, ffn=16, dropout=0.1, max_positions=8), SIZE).eval()


def dense_rows(model, table, sentence, weight):
    """(1 - w) softmax + w p~ at every position of one sentence, written out; the model reads eos first."""
    read = [EOS, *map(int, sentence)]
    with torch.no_grad():
        network = torch.softmax(model(input_ids=torch.tensor([read])).logits[0].double(), -1).numpy()
    histories = [[VOCAB.bos, *read[1 : end + 1]][-2:] for end in range(len(read))]  # trigrams: two words
    return (1 - weight) * network + weight * table.prob(histories)


def test_the_weight_is_worked_out_by_hand():
    # q = (1/2, 1/8), p = (1/4, 1/4): the derivative of log(1/2 - w/4) + log(1/8 + w/8) is zero where
    # (1/4) (1/8 + w/8) = (1/8) (1/2 - w/4), so 1/32 + w/32 = 1/16 - w/32, w = 1/2
    assert mixture_weight(np.log([2.0, 8.0]), np.log([4.0, 4.0])) == pytest.approx(0.5, abs=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_em_finds_what_a_general_optimizer_finds(seed):
    random = np.random.default_rng(seed)
    network, ngram = random.exponential(2, size=(2, 500)) + 0.01
    best = minimize_scalar(lambda w: mixed_nll(network, ngram, w).sum(), bounds=(0, 1), method="bounded")
    found = mixture_weight(network, ngram)
    assert found == pytest.approx(best.x, abs=1e-3)
    assert mixed_nll(network, ngram, found).sum() <= best.fun + 1e-6


def test_a_model_that_is_always_worse_gets_no_weight():
    network = np.full(50, 1.0)
    assert mixture_weight(network, network + 1) < 1e-4
    assert mixture_weight(network + 1, network) > 1 - 1e-4


def test_the_ends_of_the_scale_are_the_models_themselves():
    network, ngram = np.array([1.0, 2.0]), np.array([3.0, 0.5])
    assert mixed_nll(network, ngram, 0.0).tolist() == network.tolist()
    assert mixed_nll(network, ngram, 1.0).tolist() == ngram.tolist()


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_whole_rows_are_exact_and_sum_to_one(model, table, weight):
    mixture = ld.Mixture(model, table, weight)
    for sentence in TEXT[:5]:
        read = torch.tensor([[EOS, *map(int, sentence)]])[:, :8]
        rows = mixture.log_rows(read).exp()
        assert rows.dtype == torch.float64
        assert torch.allclose(rows.sum(-1), torch.ones(1, read.shape[1], dtype=torch.float64), atol=1e-12)
        np.testing.assert_allclose(rows[0], dense_rows(model, table, read[0, 1:], weight), atol=1e-12)


def test_scores_are_the_gold_entries_of_whole_rows(model, table):
    sentences = [sentence[:6] for sentence in TEXT[:8]]
    scores = ld.Mixture(model, table, 0.3).score(sentences)
    for weight, found in ((0.0, scores.network), (1.0, scores.ngram), (0.3, scores.mixture)):
        expected = [
            -np.log(dense_rows(model, table, sentence, weight)[range(len(sentence) + 1), [*sentence, EOS]]).sum()
            for sentence in sentences
        ]
        np.testing.assert_allclose(found.nll, expected, atol=1e-5)  # the network computes in float32
        assert found.tokens == sum(map(len, sentences)) + len(sentences)


def test_a_sentence_longer_than_the_model_keeps_every_token_once(model, table):
    long = [np.resize(np.arange(3, SIZE), 30), TEXT[0]]
    scores = ld.Mixture(model, table, 0.5).score(long)
    tokens = scores.network.token_nll
    assert len(tokens) == scores.network.tokens == len(scores.ngram.token_nll)
    assert (tokens > 0).all()
    np.testing.assert_allclose([tokens[:31].sum(), tokens[31:].sum()], scores.network.nll)


def test_fit_returns_a_better_mixture_and_leaves_the_old_one(model, table):
    valid = [RNG.integers(3, SIZE, size=5) for _ in range(30)]
    mixture = ld.Mixture(model, table)
    fitted = mixture.fit(valid)
    assert mixture.weight == 0.5 != fitted.weight
    before, after = mixture.score(valid), fitted.score(valid)
    assert after.mixture.loss < min(before.mixture.loss, after.network.loss, after.ngram.loss)


def test_a_processor_turns_logits_into_the_mixture(model, table):
    mixture = ld.Mixture(model, table, 0.4)
    for prompt in ([EOS], [EOS, 5], [EOS, 5, 6, 7], [5, 6, EOS, 4]):  # the last one: a sentence ended before
        ids = torch.tensor([prompt])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[:, -1]
        history = [VOCAB.bos, *prompt[len(prompt) - prompt[::-1].index(EOS) :]][-2:]
        expected = 0.6 * torch.softmax(logits[0].double(), -1).numpy() + 0.4 * table.prob([history])[0]
        np.testing.assert_allclose(mixture.process(ids, logits)[0].double().exp(), expected, atol=1e-6)


def test_generation_draws_from_the_mixture(model, table):
    """With all weight on the n-gram model, a greedy sentence is the table's own, whatever the network says."""
    made = model.generate(
        torch.tensor([[EOS]]),
        attention_mask=torch.ones(1, 1, dtype=torch.long),
        logits_processor=ld.Mixture(model, table, 1.0).logits_processor(),
        do_sample=False,
        max_new_tokens=6,
        pad_token_id=EOS,
    )[0].tolist()
    expected, history = [EOS], [VOCAB.bos]
    while len(expected) < 7 and (len(expected) == 1 or expected[-1] != EOS):
        expected.append(int(table.prob([history[-2:]])[0].argmax()))
        history.append(expected[-1])
    assert made == expected


def test_what_cannot_be_mixed_is_refused(model, table):
    with pytest.raises(InputError, match="weight"):
        ld.Mixture(model, table, 1.5)
    other = ld.WittenBell().fit(ld.count([[3]], ld.Vocabulary(size=5, eos=2), order=2))
    with pytest.raises(VocabularyMismatch):
        ld.Mixture(model, other, 0.5).log_rows(torch.tensor([[EOS, 3]]))
    with pytest.raises(InputError, match="cannot be mixed"):
        mixture_weight(np.ones(3), np.ones(2))


def test_ngram_scores_are_the_tables(table):
    words, histories = [3, 4, EOS], [[VOCAB.bos], [VOCAB.bos, 3], [3, 4]]
    np.testing.assert_allclose(ngram_nll(table, [np.array([3, 4])]), -table.logprob(words, histories))


def test_words_that_generation_excludes_stay_excluded(model, table):
    mixture = ld.Mixture(model, table, 0.9)
    ids, scores = torch.tensor([[EOS, 5]]), torch.randn(1, SIZE)
    scores[0, [0, 1, EOS, 7]] = -torch.inf
    found = mixture.process(ids, scores)[0].double().exp().numpy()
    whole = np.exp(mixture.process(ids, torch.where(scores.isneginf(), -1e9, scores))[0].double().numpy())
    expected = np.where(scores[0].isneginf(), 0, whole)
    np.testing.assert_allclose(found, expected / expected.sum(), atol=1e-6)
    made = model.generate(
        torch.tensor([[EOS]] * 20),
        attention_mask=torch.ones(20, 1, dtype=torch.long),
        logits_processor=mixture.logits_processor(),
        do_sample=True,
        max_new_tokens=6,
        min_new_tokens=6,
        bad_words_ids=[[5]],
        pad_token_id=EOS,
    )[:, 1:]
    assert not (made == EOS).any() and not (made == 5).any()


def test_padding_in_front_changes_nothing(model, table):
    """The first token of a row begins a sentence, with padding, eos or nothing before it."""
    mixture = ld.Mixture(model, table, 0.5)
    for prompt in ([7], [7, 4], [7, 4, 5]):
        expected = [VOCAB.bos, *prompt][-2:]
        for front in ([], [EOS], [1, 1], [1, EOS]):
            assert mixture.history([*front, *prompt]) == expected


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ([[0, 5, 6]], "sentence 1 has the id 0, which is no word"),
        ([[5], [5, EOS, 6]], "sentence 2 has the id 2"),
        ([[5, SIZE]], "outside the vocabulary"),
        ([5, 6, 7], "not a list of ids"),
    ],
)
def test_only_words_can_be_scored(model, table, sentences, message):
    with pytest.raises(InputError, match=message):
        ld.Mixture(model, table).score(sentences)


def test_an_empty_sentence_is_its_end(model, table):
    scores = ld.Mixture(model, table, 0.5).score([[], [5, 6]])
    assert scores.mixture.lengths.tolist() == [1, 3]
    assert scores.ngram.nll[0] == pytest.approx(-table.logprob([EOS], [[VOCAB.bos]])[0])


def test_models_that_do_not_fit_are_refused(model, table):
    other = ld.WittenBell().fit(ld.count([[3]], ld.Vocabulary(size=40, eos=2), order=2))
    with pytest.raises(VocabularyMismatch):
        ld.Mixture(model, other, 0.5).score([[3]])
    twice = replace(table, base=2 * table.base)
    with pytest.raises(InputError, match="not normalised"):
        ld.Mixture(model, twice)
    assert ld.Mixture(model, twice, allow_unnormalised=True).weight == 0.5
    assert ld.Mixture(model, table.compact(bits=8)).weight == 0.5
    with pytest.raises(InputError, match="needs a table"):
        ld.Mixture(model, ld.count(TEXT, VOCAB, order=2))
    broken = build_model(ModelSpec(layers=1, width=8, heads=2, ffn=16, max_positions=8), SIZE).eval()
    with torch.no_grad():
        next(broken.parameters()).fill_(torch.nan)
    with pytest.raises(InputError, match="not finite"):
        ld.Mixture(broken, table).fit([[3]])
