"""Tables without some n-grams of their text: thresholds and pruning must not take words of the text from the loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import lidstone as ld
from lidstone.errors import InputError

VOCAB = ld.Vocabulary(size=6, eos=0)
COUNTS = ld.count([[1, 2], [1, 2], [1, 2], [3, 4]], VOCAB, order=2)
DROPPED = ld.WittenBell().fit(COUNTS.drop([0, 1]))  # 3 and 4 are words of the text, but in no n-gram that is left


@pytest.mark.parametrize("table", [DROPPED, ld.prune(ld.WittenBell().fit(COUNTS), entropy=0.1)])
def test_words_of_the_text_keep_their_targets(table):
    loss = ld.SmoothedCrossEntropy(table, gamma=0.5)
    assert not loss.never_predicted(torch.arange(6)[None]).any()
    logits = torch.randn(1, 1, 6, requires_grad=True)
    for word in (3, 4):
        target = 0.5 * torch.eye(6)[word] + 0.5 * torch.tensor(table.prob([[VOCAB.bos]])[0])
        expected = -(target * logits[0, 0].double().log_softmax(-1)).sum()
        assert loss(logits, torch.tensor([[word]])).total.item() == pytest.approx(expected.item(), abs=1e-5)


def test_words_that_the_text_never_had_are_known_where_all_ngrams_are_kept():
    whole = ld.SmoothedCrossEntropy(ld.WittenBell().fit(COUNTS), gamma=0.5)
    assert whole.never_predicted(torch.arange(6)[None]).tolist() == [[False, False, False, False, False, True]]


@pytest.mark.parametrize("form", ["exact", "published"])
@pytest.mark.filterwarnings("ignore:.*no lower bound")
def test_weights_of_one_change_nothing_where_ngrams_were_dropped(form):
    options = {"gamma": 0.5, "form": form, "empirical": "ngram"}
    logits, labels = torch.randn(1, 2, 6, requires_grad=True), torch.tensor([[3, 4]])
    plain = ld.SmoothedCrossEntropy(DROPPED, COUNTS, **options)(logits, labels).total
    weighted = ld.SmoothedCrossEntropy(DROPPED, COUNTS, weight=torch.ones(6), **options)(logits, labels).total
    torch.testing.assert_close(weighted, plain, atol=1e-5, rtol=1e-5)


def test_dropping_twice_keeps_both_thresholds():
    three = ld.count([[1, 2, 3], [1, 2, 3], [1, 2], [3, 4, 5]], VOCAB, order=3)
    twice = three.drop([0, 1, 1]).drop([0, 0, 2])
    assert twice.thresholds == (0, 1, 2)
    assert twice.fingerprint == three.drop([0, 1, 2]).fingerprint
    with pytest.raises(InputError):
        ld.signed_split(ld.WittenBell().fit(three), three.drop([0, 1, 1]).drop([0, 0, 0]))


@pytest.mark.parametrize("offset", [1e4, -1e5])
def test_a_large_offset_of_the_logits_costs_no_digits(offset):
    table = ld.WittenBell().fit(COUNTS)
    logits, labels = torch.randint(-3, 4, (2, 5, 6)).float(), torch.randint(0, 5, (2, 5))
    found = []
    for moved in (logits, logits + offset):
        moved = moved.clone().requires_grad_()
        total = ld.SmoothedCrossEntropy(table, gamma=0.3, weight=torch.ones(6))(moved, labels).total
        total.backward()
        found.append((total.item(), moved.grad))
    assert found[1][0] == pytest.approx(found[0][0], abs=1e-6)
    torch.testing.assert_close(found[1][1], found[0][1], atol=1e-6, rtol=0)


def test_rows_are_read_as_counting_reads_them():
    stream = np.array([1, 2, 0, 3, 1, 0, 2, 2, 4, 0, 1, 1, 0, 3, 4, 0])
    blocks = [stream[start : start + 4] for start in range(0, 16, 4)]
    table = ld.WittenBell().fit(ld.count(blocks, VOCAB, order=2))
    for data in (blocks, [{"input_ids": block} for block in blocks]):
        assert table.perplexity(data).value == table.perplexity(stream).value
        assert table.perplexity(data).tokens == 16
    learnt = [ld.JelinekMercer.learn(COUNTS, data).weights for data in (blocks, stream)]
    assert learnt[0] == learnt[1]


def test_small_things_are_refused_or_done():
    table = ld.WittenBell().fit(COUNTS)
    with pytest.raises(InputError, match="not lists of ids"):
        table.prob([1, 2])
    assert ld.mix([table, table], np.array([0.5, 0.5])).order == 2
    with pytest.raises(InputError, match="0 weights for 2 models"):
        ld.mix([table, table], [])
    assert ld.count([[1, 2]], VOCAB, 2, thresholds=np.array([0, 1])).thresholds == (0, 1)
    loss = ld.SmoothedCrossEntropy(table, gamma=0.3)
    logits, labels = torch.randn(2, 3, 6, requires_grad=True), torch.randint(0, 5, (2, 3))
    whole = ld.SmoothedCrossEntropy(table, gamma=0.3, reduction="sum")(logits, labels).total
    torch.testing.assert_close(loss(logits, labels, num_items=0.5).total, 2 * whole)
    weighted = ld.SmoothedCrossEntropy(table, gamma=0.3, weight=torch.ones(6))
    torch.testing.assert_close(weighted(logits, labels.short()).total, loss(logits, labels).total)
    assert weighted(torch.zeros(0, 5, 6, requires_grad=True), torch.zeros(0, 5, dtype=torch.long)).total == 0
    assert loss.never_predicted(labels.short()).shape == labels.shape
    for wrong, message in ((torch.full((2, 3), 50), "50"), (torch.rand(2, 3), "not ids")):
        with pytest.raises(InputError, match=message):
            weighted(logits, labels, wrong)
    linear = ld.LinearSmoothedCrossEntropy(table, gamma=0.3, weight=torch.ones(6))
    hidden = torch.randn(2, 3, 4, dtype=torch.bfloat16, requires_grad=True)
    linear(hidden, torch.randn(6, 4, requires_grad=True), labels).total.backward()
    assert hidden.grad.isfinite().all()


def test_a_half_precision_batch_without_labels_has_gradients_of_zero():
    from lidstone.loss.kernels.protocol import using

    loss = ld.LinearSmoothedCrossEntropy(ld.WittenBell().fit(COUNTS), gamma=0.3)
    parts = [torch.randn(*shape).half().requires_grad_() for shape in ((2, 5, 4), (6, 4), (6,))]
    with using("tensors"):
        loss(parts[0], parts[1], torch.full((2, 5), -100), bias=parts[2]).total.backward()
    assert all((part.grad == 0).all() for part in parts)


def test_signatures_have_all_of_a_schedule():
    from lidstone.loss.schedule import Schedule

    told = [Schedule(), Schedule("constant", start=0.5), Schedule("linear"), Schedule("linear", share=0.1)]
    assert len({str(schedule) for schedule in told}) == 4
