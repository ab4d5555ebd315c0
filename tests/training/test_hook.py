"""The two ways into the Trainer: what they log, what they evaluate, what they refuse."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_training import (
    BOS,
    COUNTS,
    EOS,
    PAD,
    SIZE,
    TABLE,
    VOCAB,
    Gradients,
    Pad,
    Smoothed,
    arguments,
    examples,
    judge,
    make_loss,
    make_model,
    make_trainer,
    one_step,
    same,
    targets,
)
from torch.nn import functional as F
from transformers import Trainer
from transformers.modeling_outputs import CausalLMOutput, Seq2SeqLMOutput

import lidstone as ld
from lidstone.errors import InputError
from lidstone.loss.reference import dense_loss
from lidstone.loss.schedule import Schedule


def random_logits(rows: int, time: int) -> torch.Tensor:
    return torch.randn(rows, time, SIZE, generator=torch.manual_seed(0)).requires_grad_()


def test_hook_shifts_a_causal_model_and_cuts_histories_at_masked_labels() -> None:
    # logits at 2, 3, 4 score 5, 8, eos; before 5 stands a masked prompt, so its history is unknown
    labels, logits = torch.tensor([[EOS, -100, -100, 5, 8, EOS]]), random_logits(1, 6)
    loss = ld.trainer_loss(make_loss("token"))(CausalLMOutput(logits=logits), labels)
    expected = dense_loss(logits[0, 2:5], targets("token", [(), (5,), (5, 8)], [5, 8, EOS])) / 3
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-6)


def test_hook_takes_an_encoder_decoder_as_it_stands() -> None:
    labels, logits = torch.tensor([[5, 8, EOS, -100]]), random_logits(1, 4)
    outputs = Seq2SeqLMOutput(logits=logits, encoder_last_hidden_state=torch.zeros(1, 1, 1))
    with pytest.warns(UserWarning, match="nobody checks that batches have decoder_input_ids"):
        loss = ld.trainer_loss(make_loss("token"))(outputs, labels, num_items_in_batch=torch.tensor(6))
    histories = [(VOCAB.bos,), (VOCAB.bos, 5), (5, 8)]
    expected = dense_loss(logits[0, :3], targets("token", histories, [5, 8, EOS])) / 6
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-6)


def test_shift_can_be_said() -> None:
    logits, labels = random_logits(2, 5), torch.randint(3, SIZE, (2, 5), generator=torch.manual_seed(1))
    hook = {shift: ld.trainer_loss(make_loss("plain"), shift=shift)((logits,), labels) for shift in (True, False)}
    torch.testing.assert_close(hook[True], F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()))
    torch.testing.assert_close(hook[False], F.cross_entropy(logits.flatten(0, 1), labels.flatten()))
    with pytest.raises(InputError, match="shift=True or False"):
        ld.trainer_loss(make_loss("plain"))((logits,), labels)


@pytest.mark.parametrize("way", ["hook", "mixin"])
@pytest.mark.parametrize("kind", ["opt", "gpt2", "marian"])
def test_evaluation_reports_the_plain_negative_log_likelihood(way: str, kind: str, tmp_path: Path) -> None:
    data = examples(kind)
    trainer = make_trainer(kind, way, make_loss("token"), tmp_path, eval_data=data, per_device_eval_batch_size=8)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(judge(kind, "plain")[0], rel=1e-5)
    assert trainer.state.log_history == [] or "nll" not in trainer.state.log_history[-1]


@pytest.mark.parametrize("way", ["hook", "mixin"])
@pytest.mark.parametrize("training", [True, False])
def test_evaluation_and_training_leave_the_mode_of_the_loss(way: str, training: bool, tmp_path: Path) -> None:
    loss = make_loss("token").train(training)
    trainer = make_trainer("opt", way, loss, tmp_path, eval_data=examples("opt"), max_steps=1)
    trainer.train()
    assert trainer.state.log_history[0].get("plus", 0) > 0 or not training
    assert loss.training is training
    trainer.evaluate()
    assert loss.training is training


@pytest.mark.parametrize("way", ["hook", "mixin"])
def test_the_log_holds_the_parts_averaged_since_the_last_line(way: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"max_steps": 4, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    changes = {**settings, "eval_strategy": "steps", "eval_steps": 1}
    every = make_trainer("opt", way, make_loss("token"), tmp_path, eval_data=examples("opt"), **changes)
    every.train()
    other = make_trainer("opt", way, make_loss("token"), tmp_path, **settings, logging_steps=2)
    other.train()
    single, double = ([line for line in t.state.log_history if "loss" in line] for t in (every, other))
    assert [line["step"] for line in single] == [1, 2, 3, 4]
    assert [line["step"] for line in double] == [2, 4]
    for line in single + double:
        assert line["nll"] + line["plus"] + line["minus"] == pytest.approx(line["loss"], rel=1e-5)
        assert line["plus"] > 0 > line["minus"]
    for name in ("nll", "plus", "minus"):
        assert double[0][name] == pytest.approx((single[0][name] + single[1][name]) / 2, rel=1e-4)


@pytest.mark.parametrize("way", ["hook", "mixin"])
def test_labels_that_the_table_never_predicts_are_plain_and_counted(way: str, tmp_path: Path) -> None:
    """BOS between two documents of a row, and 49, a marker that the counted text never had."""
    row = [EOS, 5, 8, BOS, 4, 49, 7, EOS]
    data = [{"input_ids": row, "labels": row}] * 8
    log, _ = one_step("opt", way, make_loss("token"), tmp_path, data=data)
    assert log["never_predicted"] == 16
    logits = make_model("opt")(torch.tensor([row])).logits[0, :-1]
    histories = [(VOCAB.bos,), (VOCAB.bos, 5), (5, 8), (VOCAB.bos,), (VOCAB.bos, 4), (4, 49), (49, 7)]
    wanted = targets("token", histories, row[1:])
    assert wanted[2].max() == wanted[4].max() == 1  # the judge leaves them plain too
    assert log["loss"] == pytest.approx((dense_loss(logits, wanted) / 7).item(), rel=1e-5)
    assert "never_predicted" not in one_step("opt", way, make_loss("token"), tmp_path)[0]


@pytest.mark.parametrize("way", ["hook", "mixin"])
def test_a_schedule_follows_the_steps(way: str, tmp_path: Path) -> None:
    loss = ld.SmoothedCrossEntropy(TABLE, COUNTS, gamma=0.3, schedule=Schedule("linear", start=1.0, end=0.0))
    trainer = make_trainer("opt", way, loss, tmp_path, max_steps=4, learning_rate=0.0)
    trainer.train()
    lines = [line for line in trainer.state.log_history if "loss" in line]
    # the same batch and the same model at each step: plus shrinks as 1, 3/4, 2/4, 1/4
    assert [line["plus"] / lines[0]["plus"] for line in lines] == pytest.approx([1, 0.75, 0.5, 0.25], rel=1e-4)


def test_a_schedule_without_the_callback_is_noticed() -> None:
    loss = ld.SmoothedCrossEntropy(TABLE, gamma=0.3, schedule=Schedule("cosine"))
    with pytest.warns(UserWarning, match="schedule does not move"):
        ld.trainer_loss(loss)(CausalLMOutput(logits=random_logits(1, 3)), torch.tensor([[3, 4, 5]]))


@pytest.mark.parametrize("way", ["hook", "mixin"])
def test_a_model_that_was_patched_with_a_loss_of_its_own_still_gets_ours(way: str, tmp_path: Path) -> None:
    """As fused kernels do: forward is replaced, and its loss would win if labels reached it."""
    model = make_model("opt")
    original = model.forward

    @functools.wraps(original)
    def forward(*args: Any, labels: torch.Tensor | None = None, **kwargs: Any) -> CausalLMOutput:
        outputs = original(*args, **kwargs)
        return CausalLMOutput(loss=None if labels is None else outputs.logits.sum(), logits=outputs.logits)

    model.forward = forward
    log, _ = one_step("opt", way, make_loss("token"), tmp_path, model=model)
    assert log["loss"] == pytest.approx(judge("opt", "token")[0], rel=1e-5)
    assert {"nll", "plus", "minus"} <= log.keys()


def test_a_model_without_logits_is_refused() -> None:
    with pytest.raises(InputError, match="returned no logits"):
        ld.trainer_loss(make_loss("token"), shift=True)(CausalLMOutput(), torch.tensor([[1, 2]]))


def test_labels_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no labels"):
        ld.trainer_loss(make_loss("token"))(CausalLMOutput(logits=random_logits(1, 3)), None)
    trainer = make_trainer("opt", "mixin", make_loss("token"), tmp_path)
    with pytest.raises(InputError, match="no labels"):
        trainer.compute_loss(trainer.model, {"input_ids": torch.tensor([[3, 4]])})


def test_a_loss_given_to_the_trainer_as_it_is_says_what_to_do(tmp_path: Path) -> None:
    trainer = Trainer(
        make_model("opt"), arguments(tmp_path), data_collator=Pad(), train_dataset=examples("opt"),
        compute_loss_func=make_loss("token"),
    )  # fmt: skip
    with pytest.raises(InputError, match=r"compute_loss_func=ld\.trainer_loss\(loss\)"):
        trainer.train()


@pytest.mark.parametrize("name", ["Marian", "T5", "Bart"])
def test_a_collator_without_the_model_says_what_to_do(name: str, tmp_path: Path) -> None:
    """Marian and T5 would fail with a message of their own; BART would decode the source in silence."""
    model = make_model("marian") if name == "Marian" else encoder_decoder(name)
    trainer = make_trainer("marian", "hook", make_loss("token"), tmp_path, model=model, collator=Pad())
    with pytest.raises(
        InputError, match=r"no decoder_input_ids. hint: .*DataCollatorForSeq2Seq\(tokenizer, model=model"
    ):
        trainer.train()
    with pytest.raises(InputError, match="no decoder_input_ids"):
        trainer.evaluate(trainer.train_dataset)
    ids = torch.tensor([[5, 8, EOS]])
    assert model.to("cpu")(input_ids=ids, labels=ids).loss.isfinite()  # outside of the Trainer it is as it was
    outputs = Seq2SeqLMOutput(logits=random_logits(1, 4), encoder_last_hidden_state=torch.zeros(1, 1, 1))
    with pytest.raises(InputError, match=r"it did not read the labels. hint: give the collator the model"):
        ld.trainer_loss(make_loss("token"))(outputs, torch.tensor([[5, 8, EOS]]))


def encoder_decoder(name: str) -> Any:
    if name == "T5":
        config = transformers.T5Config(
            vocab_size=SIZE, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2,
            pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=PAD,
        )  # fmt: skip
        return transformers.T5ForConditionalGeneration(config)
    config = transformers.BartConfig(
        vocab_size=SIZE, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=64,
        pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=EOS, forced_eos_token_id=None,
    )  # fmt: skip
    return transformers.BartForConditionalGeneration(config)


@pytest.mark.parametrize("way", ["hook", "mixin"])
def test_a_masked_language_model_is_refused(way: str, tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=SIZE, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    with pytest.raises(InputError, match="BertForMaskedLM is a masked language model"):
        make_trainer("opt", way, make_loss("token"), tmp_path, model=transformers.BertForMaskedLM(config))


def test_shifted_labels_are_counted_as_labels_are(tmp_path: Path) -> None:
    trainer = make_trainer("opt", "mixin", make_loss("token"), tmp_path)
    labels = torch.tensor([[5, 8, EOS, -100]])
    ids = torch.tensor([[EOS, 5, 8, EOS]])
    found = trainer._get_num_items_in_batch([{"input_ids": ids, "shift_labels": labels}] * 2, torch.device("cpu"))
    assert int(found) == 6


def test_the_parts_of_a_second_training_are_its_own(tmp_path: Path) -> None:
    trainer = make_trainer("opt", "mixin", make_loss("token"), tmp_path, logging_steps=100)
    trainer.train()
    trainer.args.logging_steps = trainer.state.logging_steps = 1
    trainer.train()
    line = next(line for line in trainer.state.log_history if "nll" in line)
    assert line["nll"] + line["plus"] + line["minus"] == pytest.approx(line["loss"], abs=2e-3)


@pytest.mark.parametrize("way", ["hook", "mixin"])
def test_labels_outside_the_vocabulary_are_one_clear_error(way: str, tmp_path: Path) -> None:
    trainer = make_trainer("opt", way, make_loss("token"), tmp_path)
    batch = {"input_ids": torch.tensor([[EOS, 5, 8]]), "labels": torch.tensor([[EOS, 5, SIZE + 7]])}
    with pytest.raises(InputError, match=f"hold the id {SIZE + 7}"):
        trainer.compute_loss(trainer.model, batch)


@pytest.mark.parametrize("way", ["hook", "mixin"])
def test_a_padded_output_matrix_says_what_to_do(way: str, tmp_path: Path) -> None:
    model = make_model("opt")
    model.resize_token_embeddings(64, mean_resizing=False)
    trainer = make_trainer("opt", way, make_loss("token"), tmp_path, model=model)
    with pytest.raises(InputError, match=r"the table has 50 ids, the logits 64. hint: .*from_tokenizer\(.*, size=64\)"):
        trainer.train()


def test_losses_that_the_trainer_would_scale_wrongly_are_refused() -> None:
    with pytest.raises(InputError, match="ignores the label -100, the loss 0"):
        ld.trainer_loss(ld.SmoothedCrossEntropy(ignore_index=0))
    with pytest.raises(InputError, match="reduction='none'"):
        ld.trainer_loss(ld.SmoothedCrossEntropy(reduction="none"))
    with pytest.raises(InputError, match="needs hidden states"):
        ld.trainer_loss(ld.LinearSmoothedCrossEntropy())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="DataParallel"):
        ld.trainer_loss(make_loss("plain"))(
            CausalLMOutput(logits=random_logits(1, 3)), torch.tensor([[3, 4, 5]]), torch.tensor([[2], [2]])
        )


@pytest.mark.parametrize("way", ["hook", "mixin"])
def test_label_smoothing_of_the_trainer_is_refused(way: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"label_smoothing_factor=0\.1"):
        make_trainer("opt", way, make_loss("token"), tmp_path, label_smoothing_factor=0.1).train()


def test_two_losses_are_refused(tmp_path: Path) -> None:
    loss = make_loss("token")
    with pytest.raises(InputError, match="exclude each other"):
        Smoothed(make_model("opt"), arguments(tmp_path), smoothed_loss=loss, compute_loss_func=ld.trainer_loss(loss))


def test_checkpoints_hold_nothing_of_the_loss(tmp_path: Path) -> None:
    from safetensors import safe_open

    trainer = make_trainer("opt", "mixin", make_loss("token"), tmp_path, save_strategy="steps", save_steps=1)
    trainer.train()
    with safe_open(tmp_path / "checkpoint-1" / "model.safetensors", "pt") as saved:
        assert set(saved.keys()) <= set(trainer.model.state_dict())


def test_the_loss_follows_the_logits_to_their_device() -> None:
    """The meta device stands for an accelerator: arrays arrive there once, and stay float32."""
    from lidstone.hf.hook import move_to

    loss = make_loss("token").to(torch.bfloat16)
    move_to(loss, torch.empty(1, device="meta"))
    assert {tensor.device.type for tensor in loss.targets.constants().values()} == {"meta"}
    assert loss.targets.base.dtype == torch.float32


def test_linear_loss_takes_one_position_through_the_output_matrix(tmp_path: Path) -> None:
    trainer = make_trainer("opt", "mixin", make_loss("token", linear=True), tmp_path)
    batch = Pad()(examples("opt"))
    trainer.model.train()
    _, outputs = trainer.compute_loss(trainer.model, batch, return_outputs=True)
    assert outputs.logits.shape == (8, 1, SIZE)
    trainer.model.eval()
    with torch.no_grad():  # evaluation may want predictions
        loss, outputs = trainer.compute_loss(trainer.model, batch, return_outputs=True)
    assert outputs.logits.shape == (*batch["input_ids"].shape, SIZE)
    assert loss.item() == pytest.approx(judge("opt", "plain")[0], rel=1e-5)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("Cohere", {"logit_scale": 0.25}),
        ("Gemma2", {"final_logit_softcapping": 30.0, "head_dim": 8}),
    ],  # 30 is far off
)
def test_linear_loss_refuses_models_that_change_their_logits(name: str, change: dict[str, Any], tmp_path: Path) -> None:
    config = getattr(transformers, f"{name}Config")(
        vocab_size=SIZE, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, bos_token_id=BOS, pad_token_id=PAD, eos_token_id=EOS, **change,
    )  # fmt: skip
    model = getattr(transformers, f"{name}ForCausalLM")(config)
    trainer = make_trainer("opt", "mixin", make_loss("token", linear=True), tmp_path, model=model)
    with pytest.raises(InputError, match=f"{name}ForCausalLM: it changes its logits"):
        trainer.train()


def test_embeddings_without_ids_fall_back_to_histories_from_labels() -> None:
    from lidstone.hf.alignment import align_causal

    labels = torch.tensor([[-100, 5, 6]])
    assert align_causal(labels).histories.tolist() == [[-1, 5, 6]]
    shifted = torch.tensor([[5, 6, -100]])
    assert align_causal(shifted, shifted=True).histories.tolist() == [[-1, 5, 6]]
    assert align_causal(shifted, shifted=True).labels is shifted


@pytest.mark.slow
def test_trl_sft_trainer_with_prompt_and_completion(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    from datasets import Dataset

    class SmoothedSFT(ld.SmoothedLossMixin, trl.SFTTrainer):
        pass

    items = examples("gpt2", prompt=2)
    args = trl.SFTConfig(
        **{**arguments(tmp_path).to_dict(), "gradient_checkpointing": False, "bf16": False},
        max_length=None, eos_token=None, pad_token=None,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = SmoothedSFT(
            make_model("gpt2"), args, train_dataset=Dataset.from_list(items), data_collator=Pad(),
            processing_class=tokenizer(), smoothed_loss=make_loss("token"),
        )  # fmt: skip
        trainer.train()
    log = trainer.state.log_history[0]
    assert log["loss"] == pytest.approx(judge("gpt2", "token", prompt=2)[0], rel=1e-5)
    assert {"nll", "plus", "minus"} <= log.keys()


@pytest.mark.slow
@pytest.mark.parametrize("linear", [False, True])
def test_trl_sft_trainer_with_packing(linear: bool, tmp_path: Path) -> None:
    """TRL's own packing, collator and fused output layer as they come; the judge sees every sentence alone."""
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    from datasets import Dataset

    class SmoothedSFT(ld.SmoothedLossMixin, trl.SFTTrainer):
        pass

    changes = arguments(tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=2).to_dict()
    args = trl.SFTConfig(**{**changes, "bf16": False}, packing=True, max_length=24, eos_token=None, pad_token=None)
    data = Dataset.from_list([{"input_ids": item["input_ids"]} for item in examples("gpt2")])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = SmoothedSFT(
            make_model("gpt2"), args, train_dataset=data, processing_class=tokenizer(),
            smoothed_loss=make_loss("token", linear=linear),
        )  # fmt: skip
        packed = [row["seq_lengths"] for row in trainer.train_dataset]
        assert sum(map(len, packed)) == 8 and 2 < len(packed) <= 4  # one step has all, in two micro-batches
        keeper = Gradients()
        trainer.add_callback(keeper)
        trainer.train()
    expected, truth = judge("gpt2", "token")
    assert trainer.state.log_history[0]["loss"] == pytest.approx(expected, rel=1e-5)
    assert {"nll", "plus", "minus"} <= trainer.state.log_history[0].keys()
    assert same(keeper.found, truth)


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {f"w{token}": token for token in range(SIZE)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w3")),
        eos_token=f"w{EOS}", pad_token=f"w{PAD}",
    )  # fmt: skip


def test_plain_trainer_agrees_on_the_unregularised_loss(tmp_path: Path) -> None:
    """The Trainer's own loss of a model that counts tokens rightly, for the same step."""
    trainer = Trainer(make_model("opt"), arguments(tmp_path), data_collator=Pad(), train_dataset=examples("opt"))
    trainer.train()
    log, _ = one_step("opt", "mixin", make_loss("plain"), tmp_path)
    assert log["loss"] == pytest.approx(trainer.state.log_history[0]["loss"], rel=1e-5)
