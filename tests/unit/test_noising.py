"""Data noising (Xie et al. 2017): probabilities and draws worked out by hand, and what must stay as it is."""

from __future__ import annotations

import pytest
import torch

import lidstone as ld
from lidstone.errors import InputError
from lidstone.lab.methods.noising import Noising, blank_id
from lidstone.lab.recipe.sections import ModelSpec
from lidstone.lab.run.models import build_model

BOS, PAD, EOS = 0, 1, 2
VOCAB = ld.Vocabulary(size=7, eos=EOS, unpredictable=(BOS, PAD))
#           <s> 3 4 </s>    <s> 3 5 </s>    <s> 3 4 </s>    <s> 6 4 </s>
COUNTS = ld.count([[3, 4], [3, 5], [3, 4], [6, 4]], VOCAB, order=2)
MANY = 20_000


def noising(scheme, gamma=0.6):
    return Noising(COUNTS, gamma=gamma, scheme=scheme, blank=PAD)


def batch(token, label=4):
    labels = torch.full((1, MANY), label)
    return {"input_ids": torch.full((1, MANY), token), "labels": labels, "shift_labels": labels}


def shares(ids):
    return (torch.bincount(ids.reshape(-1), minlength=7) / ids.numel()).tolist()


def test_kneser_ney_rates_are_distinct_followers_over_occurrences():
    # after 3: 4, 5, 4 -> 2 distinct of 3; after 4: </s> three times -> 1 of 3; after 5 and 6: 1 of 1
    rates = noising("kneser-ney").rates
    assert rates[3:].tolist() == pytest.approx([0.6 * 2 / 3, 0.6 / 3, 0.6, 0.6])


def test_kneser_ney_draws_by_distinct_histories():
    # before 3: <s>; before 4: 3, 6; before 5: 3; before 6: <s>; before </s>: 4, 5
    assert noising("kneser-ney").target_draws.tolist() == [0, 0, 2, 1, 2, 1, 1]
    assert noising("kneser-ney").input_draws.tolist() == [0, 0, 0, 1, 2, 1, 1]  # no sentence start in the middle


def test_blank_and_unigram_rates_are_the_same_for_every_word():
    for scheme in ("blank", "unigram"):
        assert noising(scheme, 0.2).rates.tolist() == [0, 0, 0, 0.2, 0.2, 0.2, 0.2]


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [  # after 3 with gamma0 = 0.6
        ("blank", [0, 0.6, 0, 0.4, 0, 0, 0]),
        # unigram counts without </s>: 3, 4, 5, 6 occur 3, 3, 1, 1 times of 8
        ("unigram", [0, 0, 0, 0.4 + 0.6 * 3 / 8, 0.6 * 3 / 8, 0.6 / 8, 0.6 / 8]),
        # gamma(3) = 0.4; N1+ of 3, 4, 5, 6 is 1, 2, 1, 1 of 5
        ("kneser-ney", [0, 0, 0, 0.6 + 0.4 / 5, 0.4 * 2 / 5, 0.4 / 5, 0.4 / 5]),
    ],
)
def test_what_an_input_becomes(scheme, expected):
    torch.manual_seed(1)
    assert shares(noising(scheme)(batch(3))["input_ids"]) == pytest.approx(expected, abs=0.015)


def test_targets_change_with_their_inputs_in_kneser_ney_only():
    torch.manual_seed(1)
    for scheme in ("blank", "unigram"):
        assert noising(scheme)(batch(3))["labels"].eq(4).all()
    # gamma(3) = 0.4; N1+ of </s>, 3, 4, 5, 6 is 2, 1, 2, 1, 1 of 7
    noised = noising("kneser-ney")(batch(3))
    found = shares(noised["labels"])
    assert found == pytest.approx([0, 0, 0.8 / 7, 0.4 / 7, 0.6 + 0.8 / 7, 0.4 / 7, 0.4 / 7], abs=0.015)
    assert torch.equal(noised["labels"], noised["shift_labels"])
    changed = noised["labels"] != 4
    assert (noised["input_ids"][changed] != 3).float().mean() > 0.75  # 4 of 5 draws for such an input are not 3


def test_what_is_never_replaced():
    torch.manual_seed(1)
    for scheme in ("blank", "unigram", "kneser-ney"):
        assert noising(scheme, 1.0)(batch(EOS))["input_ids"].eq(EOS).all()  # the sentence start
        ignored = noising(scheme, 1.0)(batch(5, label=-100))
        assert ignored["labels"].eq(-100).all()  # padding stays unpredicted
        assert noising(scheme)(batch(3), strength=0.0)["input_ids"].eq(3).all()


def test_a_translation_model_reads_its_source_as_it_is():
    torch.manual_seed(1)
    inputs = {"input_ids": torch.full((1, 50), 3), "decoder_input_ids": torch.full((1, 50), 3)}
    noised = noising("blank", 1.0)(inputs)
    assert noised["input_ids"].eq(3).all()
    assert noised["decoder_input_ids"].eq(PAD).all()


def test_the_generator_decides_and_nothing_else():
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(noising("unigram")(batch(3))["input_ids"])
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_strengths_are_probabilities():
    with pytest.raises(InputError, match="strength of noising"):
        noising("blank", 1.5)
    with pytest.raises(InputError, match="bigram"):
        Noising(ld.count([[3]], VOCAB, order=1), gamma=0.1, scheme="blank", blank=PAD)


def test_an_unknown_scheme_is_refused():
    with pytest.raises(InputError, match="no scheme 'bigram'"):
        noising("bigram")


def test_the_blank_has_an_embedding_that_is_trained():
    """The embedding of padding gets no gradient, so the blank is another id that is never predicted."""
    assert blank_id(VOCAB, PAD) == BOS
    model = build_model(ModelSpec(layers=1, width=8, heads=2, ffn=16, max_positions=8), VOCAB.size)
    rows = model.get_input_embeddings()
    assert model.config.pad_token_id == rows.padding_idx == PAD
    ids = torch.tensor([[EOS, blank_id(VOCAB, PAD), 3]])
    rows(ids).sum().backward()
    assert rows.weight.grad[blank_id(VOCAB, PAD)].abs().sum() > 0
    with pytest.raises(InputError, match="no id that can be the blank"):
        blank_id(ld.Vocabulary(size=3, eos=2, unpredictable=(1,)), pad=1)
