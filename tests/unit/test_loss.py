"""SmoothedCrossEntropy as a user meets it: arguments, reductions, modes, precision, mistakes."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from tests.smoothing_cases import TEXT, VOCAB, counted, fitted

from lidstone.errors import InputError, VocabularyMismatch
from lidstone.loss.kernels.protocol import using
from lidstone.loss.losses import LinearSmoothedCrossEntropy, SmoothedCrossEntropy
from lidstone.loss.reference import dense_target
from lidstone.loss.schedule import Schedule
from lidstone.ngram.counts import count
from lidstone.ngram.smoothers.kneser_essen_ney import KneserEssenNey
from lidstone.text.vocabulary import Vocabulary

TABLE, COUNTS = fitted("kneser-essen-ney", 2), counted(2)
LABELS = torch.tensor([[2, 3, 4, 1], [5, 6, 1, -100]])


def make_logits(shape=(2, 4), seed=0, scale=2.0):
    return scale * torch.randn(*shape, VOCAB.size, generator=torch.Generator().manual_seed(seed))


def total(loss, *arguments, **options):
    return loss(make_logits().requires_grad_(), LABELS, *arguments, **options).total.item()


class TestReductions:
    def test_mean_is_over_the_positions_that_count(self):
        each = SmoothedCrossEntropy(TABLE, gamma=0.3, reduction="none")(make_logits().requires_grad_(), LABELS)
        assert each.total.shape == LABELS.shape
        assert each.total[1, 3] == 0
        assert total(SmoothedCrossEntropy(TABLE, gamma=0.3)) == pytest.approx(each.total.sum().item() / 7)
        assert total(SmoothedCrossEntropy(TABLE, gamma=0.3, reduction="sum")) == pytest.approx(each.total.sum().item())

    @pytest.mark.parametrize("number", [14, 14.0, torch.tensor(14)])
    def test_num_items_divides_the_sum_whatever_the_reduction(self, number):
        expected = total(SmoothedCrossEntropy(TABLE, gamma=0.3, reduction="sum")) / 14
        for reduction in ("mean", "sum", "none"):
            loss = SmoothedCrossEntropy(TABLE, gamma=0.3, reduction=reduction)
            assert total(loss, num_items=number) == pytest.approx(expected)

    def test_halves_of_a_batch_add_up_with_num_items(self):
        loss, logits = SmoothedCrossEntropy(TABLE, gamma=0.3), make_logits().requires_grad_()
        whole = torch.autograd.grad(loss(logits, LABELS, num_items=7).total, logits)[0]
        for row in (0, 1):
            loss(logits[row : row + 1], LABELS[row : row + 1], num_items=7).total.backward()
        torch.testing.assert_close(logits.grad, whole)

    def test_a_weighted_sum_of_positions(self):
        """reduction="none" in a loop that weighs positions, some of them negatively."""
        weights = torch.tensor([[1.0, -2.0, 0.5, 0.0], [3.0, -0.1, 1.0, 1.0]])
        loss = SmoothedCrossEntropy(TABLE, gamma=0.3, reduction="none")
        logits = make_logits().requires_grad_()
        found = torch.autograd.grad((loss(logits, LABELS).total * weights).sum(), logits)[0]
        single = torch.autograd.grad(loss(logits, LABELS).total.sum(), logits)[0]
        torch.testing.assert_close(found, single * weights[..., None], rtol=1e-5, atol=1e-7)


class TestShapesAndHistories:
    def test_rows_sentences_and_single_positions(self):
        loss, logits = SmoothedCrossEntropy(TABLE, gamma=0.3, reduction="none"), make_logits().requires_grad_()
        whole = loss(logits, LABELS).total
        torch.testing.assert_close(loss(logits[:1], LABELS[:1]).total, whole[:1])
        torch.testing.assert_close(loss(logits[0, 0], LABELS[0, 0]).total, whole[0, 0])
        torch.testing.assert_close(loss(logits[None], LABELS[None]).total, whole[None])

    def test_flattened_labels_need_histories(self):
        """Two rows in one: only the token before each label says where the second begins."""
        loss, logits = SmoothedCrossEntropy(TABLE, gamma=0.3), make_logits().requires_grad_()
        with pytest.raises(
            InputError, match=r"labels of shape \(8,\) do not say where a sequence begins.*\(batch, time"
        ):
            loss(logits.flatten(0, 1), LABELS.flatten())
        contexts = torch.tensor([[VOCAB.bos, 2, 3, 4], [VOCAB.bos, 5, 6, 1]])
        found = loss(logits.flatten(0, 1), LABELS.flatten(), contexts.flatten()).total
        torch.testing.assert_close(found, loss(logits, LABELS).total)
        plain = SmoothedCrossEntropy()(logits.flatten(0, 1), LABELS.flatten()).total  # without a table it is no matter
        torch.testing.assert_close(plain, SmoothedCrossEntropy()(logits, LABELS).total)
        unigram = SmoothedCrossEntropy(fitted("kneser-essen-ney", 1), gamma=0.3)  # nor without histories
        torch.testing.assert_close(unigram(logits.flatten(0, 1), LABELS.flatten()).total, unigram(logits, LABELS).total)

    def test_labels_that_the_table_never_predicts_are_plain(self):
        """Padding has no probability, and 7 is a word that the text never had."""
        labels = torch.tensor([[2, 0, 7, 3]])
        for empirical, form in (("token", "exact"), ("ngram", "published")):
            loss = SmoothedCrossEntropy(TABLE, COUNTS, gamma=0.3, form=form, empirical=empirical, reduction="none")
            logits = make_logits((1, 4)).requires_grad_()
            parts = loss(logits, labels)
            plain = F.cross_entropy(logits[0], labels[0], reduction="none")
            assert (parts.plus[0, 1:3] == 0).all() and (parts.minus[0, 1:3] == 0).all()
            torch.testing.assert_close(parts.total[0, 1:3], plain[1:3])
            assert parts.plus[0, 0] != 0
            assert loss.never_predicted(labels).tolist() == [[False, True, True, False]]

    def test_histories_are_the_tokens_before(self):
        contexts = torch.tensor([[VOCAB.bos, 2, 3, 4], [VOCAB.bos, 5, 6, 1]])
        loss = SmoothedCrossEntropy(TABLE, gamma=0.3)
        assert total(loss, contexts) == total(loss)
        assert total(loss, torch.full_like(contexts, -1)) != pytest.approx(total(loss), rel=1e-4)

    def test_a_masked_prompt_serves_as_history_when_it_is_given(self):
        table = fitted("kneser-essen-ney", 3)
        loss, logits = SmoothedCrossEntropy(table, gamma=0.5), make_logits((1, 3)).requires_grad_()
        labels, inputs = torch.tensor([[-100, -100, 4]]), torch.tensor([[VOCAB.bos, 2, 3]])
        target = dense_target(
            table, TEXT, (2, 3), 4, gamma_plus=0.5, gamma_minus=0.5, form="exact", empirical="token"
        ).float()
        expected = -(target * torch.log_softmax(logits[0, 2], -1)).sum()
        torch.testing.assert_close(loss(logits, labels, inputs).total, expected)
        assert loss(logits, labels).total.item() != pytest.approx(expected.item(), rel=1e-4)

    @pytest.mark.parametrize("ignored", [-1, 0, 7, 1000])
    def test_any_id_can_mark_what_is_ignored(self, ignored):
        loss = SmoothedCrossEntropy(TABLE, gamma=0.3, ignore_index=ignored)
        labels = torch.where(LABELS == -100, ignored, LABELS)
        found = loss(make_logits().requires_grad_(), labels).total.item()
        assert found == pytest.approx(total(SmoothedCrossEntropy(TABLE, gamma=0.3)))

    def test_an_ignored_label_in_the_middle_cuts_the_history_whatever_its_id(self):
        logits = make_logits((1, 3)).requires_grad_()
        found = [
            SmoothedCrossEntropy(TABLE, gamma=0.9, ignore_index=mark)(logits, torch.tensor([[2, mark, 4]])).total.item()
            for mark in (-100, 3)
        ]
        assert found[0] == found[1]

    def test_an_empty_batch(self):
        for shape in ((0, 4), (2, 0)):
            logits = torch.zeros(*shape, VOCAB.size, requires_grad=True)
            value = SmoothedCrossEntropy(TABLE, gamma=0.3)(logits, torch.zeros(shape, dtype=torch.long)).total
            value.backward()
            assert value.item() == 0


class TestModes:
    def test_evaluation_is_plain_nll(self):
        loss, logits = SmoothedCrossEntropy(TABLE, gamma=0.3), make_logits().requires_grad_()
        plain = F.cross_entropy(logits.reshape(-1, VOCAB.size), LABELS.reshape(-1)).item()
        assert loss(logits, LABELS).total.item() != pytest.approx(plain, rel=1e-4)
        with torch.no_grad():
            assert loss(logits, LABELS).total.item() == pytest.approx(plain)
        loss.eval()
        parts = loss(logits, LABELS)
        assert parts.total.item() == parts.nll.item() == pytest.approx(plain)
        assert parts.plus.item() == parts.minus.item() == 0

    def test_the_parts_add_up_and_have_their_signs(self):
        logits = make_logits().requires_grad_()
        plain = F.cross_entropy(logits.reshape(-1, VOCAB.size), LABELS.reshape(-1)).item()
        for form, sign in (("exact", -1), ("published", 1)):
            parts = SmoothedCrossEntropy(TABLE, gamma=0.3, form=form)(logits, LABELS)
            assert parts.total.item() == pytest.approx((parts.nll + parts.plus + parts.minus).item())
            assert parts.nll.item() == pytest.approx(plain)
            assert parts.plus.item() > 0
            assert parts.minus.item() * sign > 0
            assert not parts.nll.requires_grad

    def test_a_schedule_scales_both_strengths(self):
        loss = SmoothedCrossEntropy(TABLE, gamma=0.4, schedule=Schedule("linear", start=1.0, end=0.5))
        loss.progress = 0.5
        assert total(loss) == pytest.approx(total(SmoothedCrossEntropy(TABLE, gamma=0.3)))

    @pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
    def test_a_compiled_loop(self):
        loss, logits = SmoothedCrossEntropy(TABLE, gamma=0.3), make_logits().requires_grad_()
        step = torch.compile(lambda z: loss(2 * z, LABELS).total * 3, backend="eager")
        torch.testing.assert_close(step(logits), loss(2 * logits, LABELS).total * 3)

    def test_signature_and_repr_say_what_it_is(self):
        loss = SmoothedCrossEntropy(TABLE, gamma_plus=0.1, gamma_minus=0.5, form="published")
        assert loss.signature["table"]["smoother"] == "kneser-essen-ney"
        assert (loss.signature["gamma_plus"], loss.signature["gamma_minus"]) == (0.1, 0.5)
        assert loss.signature["form"] == "published"
        assert "gamma_plus=0.1, gamma_minus=0.5, form=published, empirical=token" in repr(loss)


class TestConstantTensors:
    def model(self):
        model = torch.nn.Linear(2, 2)
        model.loss = SmoothedCrossEntropy(TABLE, gamma=0.3)
        return model

    def test_nothing_is_saved_with_the_model(self):
        assert set(self.model().state_dict()) == {"weight", "bias"}

    def test_they_stay_float32_in_a_half_precision_model(self):
        before = total(SmoothedCrossEntropy(TABLE, gamma=0.3))
        for cast in ("half", "bfloat16", "double"):
            model = getattr(self.model(), cast)()
            floats = [t.dtype for t in model.loss.targets.constants().values() if t.is_floating_point()]
            assert set(floats) == {torch.float32}
            assert total(model.loss) == before

    def test_they_move_with_the_model(self):
        model = self.model().to("meta")
        assert {tensor.device.type for tensor in model.loss.targets.constants().values()} == {"meta"}

    def test_a_copy_is_a_loss_that_shares_the_table(self):
        model = self.model()
        other = copy.deepcopy(model)
        assert total(other.loss) == total(model.loss)
        assert other.loss.targets.words.data_ptr() == model.loss.targets.words.data_ptr()
        other.to("meta")
        assert model.loss.targets.words.device.type == "cpu"

    def test_they_survive_the_meta_device(self):
        before = total(SmoothedCrossEntropy(TABLE, gamma=0.3))
        with torch.device("meta"):
            model = self.model()
        assert total(model.to_empty(device="cpu").loss) == before
        assert total(model.to("meta").to_empty(device="cpu").loss) == before

    def test_an_averaged_model_leaves_them_alone(self):
        model = self.model()
        averaged = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
        for _ in range(3):
            averaged.update_parameters(model)
        assert total(averaged.module.loss) == total(model.loss)

    def test_there_are_few_bytes_per_ngram(self):
        targets = SmoothedCrossEntropy(fitted("katz", 4), gamma=0.3).targets
        ngrams = targets.words.numel()
        assert targets.resident_bytes <= 16 * ngrams + 4 * VOCAB.size + 2 * VOCAB.size + 1 + 8


class TestMistakes:
    def test_a_strength_in_the_place_of_the_counts(self):
        with pytest.raises(
            InputError, match=r"0\.25 was given where counts are expected. hint: name the strength: gamma=0\.25"
        ):
            SmoothedCrossEntropy(TABLE, 0.25)

    @pytest.mark.parametrize("arguments", [(COUNTS,), (COUNTS, TABLE), (VOCAB,), ("ken.safetensors",)])
    def test_something_else_in_the_place_of_the_table(self, arguments):
        with pytest.raises(InputError, match=r"where a table is expected. hint: .*(fit\(counts\)|ld\.load)"):
            SmoothedCrossEntropy(*arguments, gamma=0.25)

    def test_given_to_the_trainer_as_it_is(self):
        with pytest.raises(InputError, match=r"not logits. hint: .*compute_loss_func=ld\.trainer_loss\(loss\)"):
            SmoothedCrossEntropy(TABLE, gamma=0.25)({"logits": make_logits()}, LABELS, num_items_in_batch=7)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, "the strength is missing"),
            ({"gamma_plus": 0.1}, "the strength is missing"),
            ({"gamma": 0.1, "gamma_plus": 0.1}, "gamma sets both strengths"),
            ({"gamma": -0.1}, "gamma_plus must not be negative: -0.1"),
            ({"gamma_plus": 0.1, "gamma_minus": -1}, "gamma_minus must not be negative: -1"),
            ({"gamma": float("nan")}, "gamma_plus must not be negative: nan"),
            ({"gamma": 1.5}, "gamma_minus = 1.5 > 1 in the exact form makes the target of the label negative"),
            ({"gamma": 0.1, "form": "exakt"}, "form='exakt' is unknown. hint: choose from exact, published"),
            ({"gamma": 0.1, "empirical": "word"}, "empirical='word' is unknown. hint: choose from token, ngram"),
            ({"gamma": 0.1, "reduction": "max"}, "reduction='max' is unknown"),
            ({"gamma": 0.1, "empirical": "ngram"}, 'empirical="ngram" needs the counts'),
        ],
    )
    @pytest.mark.parametrize("kind", [SmoothedCrossEntropy, LinearSmoothedCrossEntropy])
    def test_of_the_settings(self, kind, options, message):
        with pytest.raises(InputError, match=message):
            kind(TABLE, **options)

    def test_a_strength_above_one_is_fine_where_nothing_is_taken(self):
        assert SmoothedCrossEntropy(TABLE, gamma=1.5, form="published").gamma_minus == 1.5
        assert SmoothedCrossEntropy(TABLE, gamma_plus=1.5, gamma_minus=0.5).gamma_plus == 1.5

    def test_strengths_without_a_table(self):
        with pytest.raises(InputError, match="without a table have nothing to act on"):
            SmoothedCrossEntropy(gamma=0.1)

    def test_strengths_of_zero_are_noticed(self):
        with pytest.warns(UserWarning, match="both strengths are 0: this is plain cross-entropy"):
            SmoothedCrossEntropy(TABLE, gamma=0.0)

    def test_a_loss_without_lower_bound_is_announced(self):
        with pytest.warns(UserWarning, match="no lower bound"):
            SmoothedCrossEntropy(TABLE, COUNTS, gamma=0.1, empirical="ngram")

    def test_the_usual_settings_make_no_noise(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            SmoothedCrossEntropy(TABLE, COUNTS, gamma=0.1)
            SmoothedCrossEntropy(TABLE, COUNTS, gamma=0.1, form="published", empirical="ngram")

    def test_orders_that_differ(self):
        with pytest.raises(InputError, match="the table has order 2, the counts have order 3"):
            SmoothedCrossEntropy(TABLE, counted(3), gamma=0.1)

    def test_a_table_of_another_tokenizer(self):
        other = Vocabulary(size=VOCAB.size, eos=2)
        table = KneserEssenNey(discount=0.5).fit(count([[3, 4], [4]], other, 2))
        with pytest.raises(VocabularyMismatch, match=f"another vocabulary .*{other.fingerprint}.*{VOCAB.fingerprint}"):
            SmoothedCrossEntropy(table, COUNTS, gamma=0.1)

    def test_logits_of_another_size(self):
        logits = torch.zeros(2, 4, 9, requires_grad=True)
        message = r"the table has 8 ids, the logits 9.*, size=9\).*read_arpa\(path, vocab\)"
        with pytest.raises(VocabularyMismatch, match=message):
            SmoothedCrossEntropy(TABLE, gamma=0.1)(logits, LABELS)

    @pytest.mark.parametrize("wrong", [8, 50257, -1])
    def test_labels_out_of_range(self, wrong):
        labels = LABELS.clone()
        labels[0, 2] = wrong
        for loss in (SmoothedCrossEntropy(TABLE, gamma=0.1), SmoothedCrossEntropy()):
            with pytest.raises(InputError, match=f"labels hold the id {wrong}, which is outside 0 to 7"):
                loss(make_logits().requires_grad_(), labels)

    @pytest.mark.parametrize("loss", [SmoothedCrossEntropy(TABLE, gamma=0.1), SmoothedCrossEntropy()])
    def test_transposed_logits_are_recognised(self, loss):
        """(batch, V, time), as F.cross_entropy takes them."""
        with pytest.raises(InputError, match=r"\(2, 8, 4\) are transposed.*hint: pass logits\.transpose\(1, 2\)"):
            loss(make_logits().transpose(1, 2), LABELS)

    @pytest.mark.parametrize("number", [float("nan"), float("inf"), -3, torch.tensor(-3), torch.tensor(float("nan"))])
    def test_numbers_of_items_that_divide_nothing(self, number):
        with pytest.raises(InputError, match=r"num_items is .*hint: give the number of labels"):
            SmoothedCrossEntropy(TABLE, gamma=0.1)(make_logits().requires_grad_(), LABELS, num_items=number)

    @pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own, on the first dual number
    def test_counts_of_another_text(self):
        other = count([[2, 3, 4, 5, 6]], VOCAB, 2)
        with pytest.raises(InputError, match=f"other counts .* than these .{other.fingerprint}"):
            SmoothedCrossEntropy(TABLE, other, gamma=0.1, form="published", empirical="ngram")
        SmoothedCrossEntropy(TABLE, other, gamma=0.1)  # the token form does not use them

    def test_second_derivatives(self):
        logits = make_logits().requires_grad_()
        (first,) = torch.autograd.grad(
            SmoothedCrossEntropy(TABLE, gamma=0.1)(logits, LABELS).total, logits, create_graph=True
        )
        with pytest.raises(InputError, match="the loss has no second derivative"):
            first.sum().backward()

    @pytest.mark.parametrize("kernels", ["cpu", "tensors"])
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"form": "published", "empirical": "ngram"},
            {"reduction": "none"},
            {"weight": range(1, VOCAB.size + 1)},
            {"inplace_gradient": True},
        ],
    )
    def test_gradcheck_passes_with_its_default_settings(self, kernels, options):
        """Its steps of 1e-6 and its second backward pass need losses in float64 that leave their logits as they are."""
        logits, loss = (
            make_logits().double().requires_grad_(),
            SmoothedCrossEntropy(TABLE, COUNTS, gamma=0.3, **options),
        )
        hidden, weight = logits.detach()[..., :3].requires_grad_(), logits.detach()[0, :3].T.clone().requires_grad_()
        with using(kernels):
            assert torch.autograd.gradcheck(lambda z: loss(z, LABELS).total, logits)
            if "reduction" not in options:
                linear = LinearSmoothedCrossEntropy(TABLE, COUNTS, gamma=0.3, **options)
                bias = logits.detach()[0, 0].clone().requires_grad_()
                given = hidden, weight, bias
                assert torch.autograd.gradcheck(lambda h, w, b: linear(h, w, LABELS, bias=b).total, given)

    def test_triton_says_that_it_is_too_coarse_for_gradcheck(self):
        logits = make_logits().double().requires_grad_()
        with using("triton"), pytest.warns(UserWarning, match=r"too coarse for gradcheck: .* LIDSTONE_KERNELS=tensors"):
            SmoothedCrossEntropy()._gold_of_logits(logits, LABELS, {}, "")

    def test_float64_logits_give_a_float64_loss(self):
        logits = make_logits().requires_grad_()
        loss = SmoothedCrossEntropy(TABLE, gamma=0.3)
        coarse, fine = (loss(z, LABELS).total for z in (logits, logits.double()))
        assert (coarse.dtype, fine.dtype) == (torch.float32, torch.float64)
        assert abs(coarse.item() - fine.item()) < 1e-6

    @pytest.mark.parametrize("name", ["kneser-essen-ney", "katz"])
    @pytest.mark.parametrize(
        ("form", "empirical"), [("exact", "token"), ("published", "ngram"), ("published", "token")]
    )
    def test_a_logit_of_minus_infinity_is_an_infinite_loss_where_the_target_is_not_zero(self, name, form, empirical):
        loss = SmoothedCrossEntropy(
            fitted(name, 2), COUNTS, gamma=0.3, form=form, empirical=empirical, reduction="none"
        )
        for word in range(2, 7):
            logits = make_logits()
            logits[..., word] = -torch.inf
            with pytest.warns(UserWarning, match="not finite"):
                found = loss(logits.requires_grad_(), LABELS)
            assert not found.total.isnan().any()
            found.total.sum().backward()
            target = -logits.grad[..., word]  # softmax is 0 there
            assert (found.total == torch.where(target > 0, torch.inf, found.total)).all()
            assert (target[0] > 0).any()

    @pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
    def test_forward_mode_and_the_meta_device(self):
        loss, forward = SmoothedCrossEntropy(TABLE, gamma=0.1), torch.autograd.forward_ad
        with forward.dual_level(), pytest.raises(InputError, match="no forward-mode derivative"):
            loss(forward.make_dual(make_logits(), make_logits()), LABELS)
        with pytest.raises(InputError, match="the meta device, which holds no numbers"):
            loss(make_logits().to("meta"), LABELS.to("meta"))
        for given in ((make_logits(), LABELS.to("meta")), (make_logits(), LABELS, LABELS.to("meta"))):
            with pytest.raises(InputError, match="the meta device, which holds no numbers"):
                loss(*given)

    @pytest.mark.parametrize("sizes", [(0, 8, 1), (8, 3, 1)], ids=["expanded", "unfolded"])
    def test_logits_that_share_memory_and_a_gradient_in_place(self, sizes):
        gradients = []
        for inplace in (True, False):
            logits = make_logits().requires_grad_()
            loss = SmoothedCrossEntropy(TABLE, gamma=0.1, inplace_gradient=inplace)
            loss((logits * 1).as_strided((2, 4, 8), sizes), LABELS).total.backward()
            gradients.append(logits.grad)
        torch.testing.assert_close(*gradients)

    def test_shapes_that_do_not_fit(self):
        loss = SmoothedCrossEntropy(TABLE, gamma=0.1)
        with pytest.raises(InputError, match=r"logits of shape \(2, 4, 8\) do not fit labels of shape \(2, 3\)"):
            loss(make_logits(), LABELS[:, :3])
        with pytest.raises(InputError, match=r"histories of shape \(2, 3\) do not fit labels of shape \(2, 4\)"):
            loss(make_logits().requires_grad_(), LABELS, LABELS[:, :3])

    def test_histories_out_of_range(self):
        contexts = torch.full_like(LABELS, VOCAB.bos + 1)
        with pytest.raises(InputError, match="histories hold the id 9, which is outside 0 to 8"):
            SmoothedCrossEntropy(TABLE, gamma=0.1)(make_logits().requires_grad_(), LABELS, contexts)
