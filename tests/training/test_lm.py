"""The language-model pipeline: batches, scores, one run end to end, and that seeds decide everything."""

from __future__ import annotations

import gzip
import json
import os
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.tiny import lm_values, recipe, write_texts

from lidstone.errors import DataError, InputError, RunError
from lidstone.hf.perplexity import score_sentences
from lidstone.lab.methods.confidence_penalty import ConfidencePenalty
from lidstone.lab.methods.label_smoothing import uniform_table
from lidstone.lab.methods.unigram_label_smoothing import unigram_table
from lidstone.lab.recipe.sections import ModelSpec
from lidstone.lab.run.batches import BatchSize, block_batches, sentence_batches
from lidstone.lab.run.models import build_model
from lidstone.lab.run.run import train
from lidstone.lab.run.saved import load_saved
from lidstone.lab.run.setup import make_batches, make_model
from lidstone.lab.run.use import continue_prompt, evaluate_files, make_mixture, own_ngram
from lidstone.text.datasets import IGNORED, length_batches, pieces

EOS = 2


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    return write_texts(tmp_path)


def tiny_model(limit=8, size=12, dropout=0.0):
    torch.manual_seed(0)
    spec = ModelSpec(layers=1, width=8, heads=2, ffn=16, dropout=dropout, max_positions=limit)
    return build_model(spec, size).eval()


def test_every_token_is_a_label_once_whatever_the_batches():
    sentences = [np.arange(4, 4 + n) for n in (1, 3, 7, 20, 5)]  # 20 + eos is longer than the limit of 8
    batches = sentence_batches(sentences, eos=EOS, limit=8, size=BatchSize(tokens=16), seed=3)
    labels = np.concatenate([batch["labels"].numpy().ravel() for batch in batches])
    expected = np.concatenate([np.append(sentence, EOS) for sentence in sentences])
    assert sorted(labels[labels != IGNORED]) == sorted(expected)
    assert max(batch["input_ids"].shape[1] for batch in batches) <= 8
    assert all(batch["input_ids"].numel() <= 16 for batch in batches)


def test_a_packed_text_is_read_in_blocks_that_continue_each_other():
    stream = np.array([5, 6, EOS, 7, 8, 9, EOS])
    batches = block_batches(stream, eos=EOS, block=3, size=BatchSize(sequences=1), seed=1)
    rows = {tuple(b["input_ids"][0].tolist()): tuple(b["labels"][0].tolist()) for b in batches}
    assert rows == {(EOS, 5, 6): (5, 6, EOS), (EOS, 7, 8): (7, 8, 9), (9,): (EOS,)}


def test_batches_depend_on_the_seed_and_on_nothing_else():
    sentences = [np.array([4 + n % 5]) for n in range(40)]
    groups = [
        [group.tolist() for group in sentence_batches(sentences, eos=EOS, limit=8, size=BatchSize(8), seed=s).groups]
        for s in (1, 1, 2)
    ]
    assert groups[0] == groups[1] != groups[2]


def test_length_batches_hold_each_sequence_once():
    lengths = np.random.default_rng(0).integers(1, 30, 100)
    batches = length_batches(lengths, tokens=64)
    assert sorted(np.concatenate(batches)) == list(range(100))
    assert all(len(batch) * lengths[batch].max() <= 64 for batch in batches)


@pytest.mark.parametrize(("length", "limit", "overlap"), [(1, 4, 2), (4, 4, 2), (5, 4, 2), (23, 6, 3), (23, 6, 0)])
def test_pieces_cover_every_position_once(length, limit, overlap):
    found = pieces(length, limit, overlap)
    new = [position for _, first, end in found for position in range(first, end)]
    assert new == list(range(length))
    assert all(end - start <= limit for start, _, end in found)
    assert all(first - start == overlap for start, first, _ in found[1:])


def test_scores_equal_a_loop_over_single_sentences():
    model = tiny_model()
    sentences = [np.array([4, 5, 6]), np.array([7]), np.array([8, 9, 10, 11, 4])]
    scores = score_sentences(model, sentences, eos=EOS, limit=8, batch_tokens=12)
    for sentence, nll in zip(sentences, scores.nll, strict=True):
        whole = torch.tensor([[EOS, *sentence, EOS]])
        with torch.no_grad():
            logs = model(input_ids=whole[:, :-1]).logits.log_softmax(-1)
        expected = -logs[0, torch.arange(len(sentence) + 1), whole[0, 1:]].sum().item()
        assert nll == pytest.approx(expected, rel=1e-5)
    assert scores.tokens == 3 + 1 + 5 + 3  # tokens and one end per sentence
    assert scores.word_perplexity(words=9) == pytest.approx(scores.perplexity)  # every token was a word


def test_a_model_left_in_training_mode_is_scored_without_dropout_and_left_so():
    model, sentences = tiny_model(dropout=0.5), [np.array([4, 5, 6])]
    expected = score_sentences(model, sentences, eos=EOS).total
    model.train()
    assert score_sentences(model, sentences, eos=EOS).total == expected
    assert model.training


def test_a_sentence_longer_than_the_model_is_scored_with_half_its_reach_as_context():
    model, sentence = tiny_model(limit=4), np.array([4, 5, 6, 7, 8, 9])
    scores = score_sentences(model, [sentence], eos=EOS, limit=4)
    whole = torch.tensor([EOS, *sentence, EOS])
    total = 0.0
    for start, new, end in [(0, 0, 4), (2, 4, 6), (4, 6, 7)]:  # inputs 0..6 in stretches of 4, two of them context
        with torch.no_grad():
            logs = model(input_ids=whole[None, start:end]).logits.log_softmax(-1)[0]
        total -= sum(logs[position - start, whole[position + 1]].item() for position in range(new, end))
    assert scores.total == pytest.approx(total, rel=1e-5)
    assert scores.tokens == 7


@pytest.mark.parametrize(("block", "window"), [(5, 5), (None, 8)])  # the longest training sentence has 7 words
def test_no_token_is_scored_at_a_position_that_was_not_trained(files, tmp_path, monkeypatch, block, window):
    """Trained on rows of at most L: validation, test, mixing, pairs and generation never read a row of more than L."""
    values = lm_values(files, max_steps=4, eval_every=2, block_length=block)
    (tmp_path / "long.txt").write_text("a b c d e f g h " * 12 + "\n")
    values["corpus"]["valid"] = values["corpus"]["test"] = str(tmp_path / "long.txt")
    trained, scored = [], []

    def watched(forward):
        def call(self, input_ids=None, **others):
            (trained if self.training else scored).append(input_ids.shape[1])
            return forward(self, input_ids=input_ids, **others)

        return call

    from transformers import OPTForCausalLM

    monkeypatch.setattr(OPTForCausalLM, "forward", watched(OPTForCausalLM.forward))
    run = train(recipe(values), tmp_path / "runs")
    assert run.record["signature"]["window"] == max(scored) == window and set(trained) <= {*range(window + 1)}
    scored.clear()
    saved = load_saved(run.folder)
    evaluate_files(saved, [tmp_path / "long.txt"])
    table, weight = own_ngram(run.folder)
    evaluate_files(saved, [tmp_path / "long.txt"], mixture=make_mixture(saved, table, weight))
    assert max(scored) == window
    prompt = "a b c"
    assert all(len(line.split()) < window for line in continue_prompt(saved, prompt, number=20, limit=50))
    assert load_saved(run.folder, window=3).model.config.trained_window == 3
    with pytest.raises(InputError, match="a window of 99 tokens is not possible"):
        load_saved(run.folder, window=99)


def test_label_smoothing_is_the_uniform_table(files):
    from lidstone import SmoothedCrossEntropy, Vocabulary, count

    counts = count([[1, 2, 3]], Vocabulary(size=5, eos=0), order=1)
    logits, labels = torch.randn(2, 4, 5, requires_grad=True), torch.randint(0, 5, (2, 4))
    ours = SmoothedCrossEntropy(uniform_table(counts), gamma=0.1)(logits, labels).total
    torchs = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1)
    assert ours.item() == pytest.approx(torchs.item(), rel=1e-6)
    assert unigram_table(counts).prob([()])[0].tolist() == [0.25, 0.25, 0.25, 0.25, 0.0]


def test_the_confidence_penalty_rewards_entropy_and_is_gone_in_evaluation():
    loss = ConfidencePenalty(0.3)
    logits, labels = torch.randn(2, 3, 7, requires_grad=True), torch.tensor([[1, 2, -100], [3, 4, 5]])
    logs = logits.log_softmax(-1)
    kept = labels != -100
    nll = -logs.gather(-1, labels.clamp(min=0)[..., None])[..., 0][kept].mean()
    entropy = -(logs.exp() * logs).sum(-1)[kept].mean()
    assert loss(logits, labels).total.item() == pytest.approx((nll - 0.3 * entropy).item(), rel=1e-5)
    with torch.no_grad():
        assert loss(logits, labels).total.item() == pytest.approx(nll.item(), rel=1e-5)


def test_the_confidence_penalty_stands_masked_words_and_nan_where_nothing_is_predicted():
    loss, labels = ConfidencePenalty(0.3), torch.tensor([[1, 2, -100]])
    logits = torch.randn(1, 3, 7)
    logits[..., 6] = -torch.inf
    logits[0, 2] = torch.nan
    logits.requires_grad_()
    total = loss(logits, labels).total
    total.backward()
    assert total.item() == pytest.approx(loss(logits[:, :2, :6].detach().requires_grad_(), labels[:, :2]).total.item())
    assert logits.grad.isfinite().all()
    with pytest.raises(InputError, match="do not fit labels"):
        loss(logits, labels[:, :2])
    with pytest.raises(InputError, match="sums over positions"):
        ConfidencePenalty(0.3, reduction="none")(logits, labels)


def test_a_run_is_recorded_whole_and_not_computed_again(files, tmp_path):
    chosen = recipe(lm_values(files))
    run = train(chosen, tmp_path / "runs")
    record = json.loads((run.folder / "run.json").read_text())
    assert record["id"] == run.folder.name and record["status"] == "complete"
    assert [point["step"] for point in record["curve"]] == [4, 8, 12]
    test = record["metrics"]["test"]
    sentences = json.loads(gzip.decompress((run.folder / "sentences.json.gz").read_bytes()))
    assert sum(sentences["nll"]) == pytest.approx(test["nll"]) and sum(sentences["tokens"]) == test["tokens"]
    assert test["perplexity"] == pytest.approx(np.exp(test["nll"] / test["tokens"]))
    best = min(point["valid_perplexity"] for point in record["curve"])
    assert record["metrics"]["valid"]["perplexity"] == best
    assert record["signature"]["table"]["smoother"] == "kneser-essen-ney"
    assert not (run.folder / "checkpoints").exists()
    before = (run.folder / "run.json").stat().st_mtime_ns
    again = train(chosen, tmp_path / "runs")
    assert not again.computed and again.record == record
    assert (run.folder / "run.json").stat().st_mtime_ns == before


def test_the_same_seed_gives_the_same_run_and_another_seed_another(files, tmp_path):
    runs = [
        train(recipe(lm_values(files, seed=seed, max_steps=6, eval_every=3)), tmp_path / folder).record
        for seed, folder in ((1, "a"), (1, "b"), (2, "c"))
    ]
    assert runs[0]["metrics"] == runs[1]["metrics"]
    without = [[{k: v for k, v in point.items() if k != "seconds"} for point in run["curve"]] for run in runs]
    assert without[0] == without[1]
    assert runs[0]["metrics"]["test"]["nll"] != runs[2]["metrics"]["test"]["nll"]
    assert runs[0]["id"] == runs[1]["id"] != runs[2]["id"]


def test_accumulated_batches_train_like_one_large_batch(files, tmp_path):
    values = lm_values(files, max_steps=4, eval_every=2, schedule="constant", batch_tokens=256)
    values["model"]["dropout"] = 0.0
    count = len(make_batches(recipe(values), _prepared(values)))
    assert count > 3
    curves = []
    for accumulation, tokens in ((1, 100_000), (count, 256)):  # the whole text at once, or in small batches
        changed = {**values["training"], "accumulation": accumulation, "batch_tokens": tokens}
        record = train(recipe({**values, "training": changed}), tmp_path / str(tokens)).record
        curves.append([point[name] for point in record["curve"] for name in ("valid_loss", "train_loss")])
    assert curves[0] == pytest.approx(curves[1], rel=1e-4)


def _prepared(values):
    from lidstone.lab.corpus.prepare import prepare_corpus

    return prepare_corpus(recipe(values))


@pytest.mark.filterwarnings("ignore:the loss is not finite")
def test_a_loss_that_is_not_a_number_stops_with_step_and_hint_and_keeps_the_checkpoint(files, tmp_path, monkeypatch):
    from lidstone.loss.losses import LinearSmoothedCrossEntropy

    forward, calls = LinearSmoothedCrossEntropy.forward, []

    def spoilt(self, hidden, *args, **more):
        calls.append(1)
        return forward(self, hidden * (float("nan") if len(calls) == 7 else 1), *args, **more)

    monkeypatch.setattr(LinearSmoothedCrossEntropy, "forward", spoilt)
    with pytest.raises(RunError, match="nan at step 7") as error:
        train(recipe(lm_values(files)), tmp_path / "runs")
    assert "learning_rate" in error.value.hint
    (kept,) = (tmp_path / "runs").glob("*/checkpoints/checkpoint-4")
    assert (kept / "model.safetensors").is_file()
    with pytest.raises(RunError, match="interrupted at step 4"):
        train(recipe(lm_values(files)), tmp_path / "runs")


def test_a_full_disk_is_one_line_and_the_last_checkpoint_stays(files, tmp_path, monkeypatch):
    from lidstone.lab.run import trainer

    saved = []

    def full(self, folder):
        if saved:
            raise OSError(28, "No space left on device")
        saved.append(folder)
        return original(self, folder)

    original = trainer.Trainer._save_optimizer_and_scheduler
    monkeypatch.setattr(trainer.Trainer, "_save_optimizer_and_scheduler", full)
    with pytest.raises(RunError, match="No space left") as error:
        train(recipe(lm_values(files)), tmp_path / "runs")
    assert "--resume" in error.value.hint
    monkeypatch.setattr(trainer.Trainer, "_save_optimizer_and_scheduler", original)
    assert train(recipe(lm_values(files)), tmp_path / "runs", resume=True).record["status"] == "complete"


def test_the_newest_checkpoint_stays_when_the_clock_is_set_back(files, tmp_path):
    kept = []

    def set_back(scores):
        """From now on new files are older than those that are there, and scores become worse."""
        scores["perplexity"] = 10.0 + len(kept)
        checkpoints = sorted((tmp_path / "runs").glob("*/checkpoints/checkpoint-*"))
        kept.append([int(path.name[-1]) for path in checkpoints])
        for path in checkpoints:
            os.utime(path, (4e9, 4e9))

    train(recipe(lm_values(files, max_steps=8, eval_every=2)), tmp_path / "runs", watch=set_back)
    assert kept == [[], [2], [2, 4], [2, 6]]  # the best and the newest


@pytest.mark.parametrize("interrupted", ["validation", "test"])
def test_the_cost_of_a_resumed_run_includes_the_time_before_the_interruption(files, tmp_path, monkeypatch, interrupted):
    calls = []

    def stop(*scores):
        calls.append(1)
        if interrupted == "test" or len(calls) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if interrupted == "test":
            patch.setattr("lidstone.lab.run.run.CorpusScorer.test", stop)
        train(recipe(lm_values(files)), tmp_path / "runs", watch=stop if interrupted == "validation" else None)
    monkeypatch.setattr("lidstone.lab.run.trainer.trained_seconds", lambda history: 1000.0)
    cost = train(recipe(lm_values(files)), tmp_path / "runs", resume=True).record["cost"]
    assert 1000 <= cost["train_seconds"] < cost["total_seconds"] < 1500


def test_early_stopping_keeps_the_best_weights(files, tmp_path):
    values = lm_values(files, max_steps=60, eval_every=2, patience=2, learning_rate=0.5, schedule="constant")
    run = train(recipe(values), tmp_path / "runs")
    curve = run.record["curve"]
    assert curve[-1]["step"] < 60  # it stopped early
    best = min(curve, key=lambda point: point["valid_perplexity"])
    assert curve.index(best) == len(curve) - 3  # two evaluations without a better one
    from lidstone.lab.run.saved import load_saved
    from lidstone.lab.run.scoring import CorpusScorer

    saved = load_saved(run.folder)
    scores = CorpusScorer(recipe(values), _prepared(values)).validate(saved.model)
    assert scores["perplexity"] == pytest.approx(best["valid_perplexity"], rel=1e-6)


def test_weights_before_training_depend_on_the_seed_alone(files):
    chosen = recipe(lm_values(files))
    first, second = (make_model(chosen, _prepared(lm_values(files))) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


@pytest.mark.parametrize("kind", ["none", "label_smoothing", "unigram_label_smoothing", "confidence_penalty"])
def test_baselines_train(files, tmp_path, kind):
    values = lm_values(files, max_steps=2, eval_every=2)
    values["regularizer"] = {"kind": kind} | ({} if kind == "none" else {"gamma": 0.1})
    record = train(recipe(values), tmp_path / "runs").record
    assert record["name"] == kind.replace("_", "-") and record["metrics"]["test"]["perplexity"] > 1


def test_any_causal_model_can_be_trained_and_trained_further(files, tmp_path):
    values = lm_values(files, max_steps=2, eval_every=2)
    values["model"] = {"kind": "auto", "checkpoint": "gpt2",
                       "options": {"n_layer": 1, "n_head": 2, "n_embd": 16, "n_positions": 12}}  # fmt: skip
    first = train(recipe(values), tmp_path / "runs")
    values["model"] = {"kind": "auto", "checkpoint": str(first.folder / "model")}
    second = train(recipe(values), tmp_path / "runs")
    assert second.record["metrics"]["test"]["perplexity"] < first.record["metrics"]["test"]["perplexity"]
    with pytest.raises(InputError, match="blocks of 13 tokens are longer than the model reads, 12"):
        train(recipe({**values, "training": {**values["training"], "block_length": 13}}), tmp_path / "runs")


def test_a_run_is_trained_further_on_other_text_with_its_own_tokens(files, tmp_path):
    values = lm_values(files, max_steps=2, eval_every=2)
    values["tokenizer"] = {"kind": "bpe", "merges": 20}
    values["corpus"]["lowercase"] = True
    first = train(recipe(values), tmp_path / "runs")
    other = tmp_path / "other.txt"
    other.write_text("The dog sees a new tree\nA zebra and the DOG\n" * 10, encoding="utf-8")
    values["corpus"] = {**values["corpus"], "train": str(other)}
    values["tokenizer"] = {"kind": "checkpoint"}
    values["model"] = {"kind": "auto", "checkpoint": str(first.folder)}
    tuned = train(recipe(values), tmp_path / "runs")
    before, after = (load_saved(run.folder).target for run in (first, tuned))
    assert after.vocabulary.tokens == before.vocabulary.tokens and after.bpe.merges == before.bpe.merges
    assert after.encode(["The NEW dog"])[0].tolist() == before.encode(["the new dog"])[0].tolist()

    copied = tmp_path / "copy"
    shutil.copytree(first.folder / "model", copied)
    values["model"]["checkpoint"] = str(copied)
    assert train(recipe(values), tmp_path / "runs").folder == tuned.folder  # what counts is the content
    state = load_file(copied / "model.safetensors")
    save_file({name: weight + 1e-3 for name, weight in state.items()}, copied / "model.safetensors", {"format": "pt"})
    assert train(recipe(values), tmp_path / "runs").folder != tuned.folder

    values["corpus"]["tokenization"] = "moses"
    with pytest.raises(DataError, match=r"corpus.tokenization is moses, but .* was trained with none"):
        train(recipe(values), tmp_path / "runs")


def test_packed_blocks_bf16_and_schedules_train(files, tmp_path):
    values = lm_values(files, max_steps=3, eval_every=3, block_length=8, precision="bf16")
    values["regularizer"]["schedule"] = {"kind": "linear", "final": 0.0, "steps": 2}
    record = train(recipe(values), tmp_path / "runs", tensorboard=True).record
    assert 1 < record["metrics"]["test"]["perplexity"] < 100
    assert list((tmp_path / "runs" / record["id"] / "tensorboard").rglob("events*"))
