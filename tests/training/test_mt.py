"""The translation pipeline: pairs, beam search against plain loops, one run end to end."""

from __future__ import annotations

import gzip
import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from sacrebleu.metrics import BLEU
from tests.tiny import mt_values, recipe, write_texts

from lidstone.errors import DataError, InputError
from lidstone.hf.perplexity import score_pairs
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.evaluation.translation import translate_ids
from lidstone.lab.recipe.recipe import load_recipe
from lidstone.lab.recipe.sections import Beam, ModelSpec
from lidstone.lab.recipe.template import write_recipe
from lidstone.lab.run.batches import BatchSize, pair_batches
from lidstone.lab.run.models import build_model
from lidstone.lab.run.run import train
from lidstone.lab.run.saved import load_saved
from lidstone.lab.run.scoring import CorpusScorer, translation_metrics
from lidstone.lab.run.use import evaluate_files, translate_lines
from lidstone.text.vocabulary import Vocabulary

EOS, PAD, SIZE = 2, 1, 14
VOCAB = Vocabulary(size=SIZE, eos=EOS, unpredictable=(0, PAD), unk=3)
SOURCES = [np.array([5, 6, 7]), np.array([8]), np.array([9, 10, 11, 12, 4]), np.array([6, 6])]
TARGETS = [np.array([4, 5]), np.array([6, 7, 8]), np.array([9]), np.array([10, 11, 12, 13])]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    spec = ModelSpec(kind="transformer-mt", layers=1, width=16, heads=2, ffn=32, dropout=0.0, max_positions=24)
    built = build_model(spec, SIZE, source_vocab_size=SIZE).eval()
    with torch.no_grad():  # sharpen the untrained distribution, so that searches differ
        for weight in built.parameters():
            if weight.requires_grad:
                weight.mul_(2.0)
    return built


def test_pairs_are_labels_once_and_the_padding_is_masked():
    size = BatchSize(tokens=8)
    batches = pair_batches(SOURCES, TARGETS, eos=EOS, pad=PAD, limit=24, size=size, seed=1)
    rows = [row for b in batches for row in b["labels"].tolist()]
    assert sorted(tuple(t for t in row if t != -100) for row in rows) == sorted((*t, EOS) for t in TARGETS)
    for batch in batches:
        assert torch.equal(batch["attention_mask"] == 0, batch["input_ids"] == PAD)
        assert (batch["decoder_input_ids"][:, 0] == EOS).all()


def test_a_pair_longer_than_the_model_is_refused_with_its_number():
    with pytest.raises(InputError, match="training pair 3 has 6 source tokens, but the model reads at most 5"):
        pair_batches(SOURCES, TARGETS, eos=EOS, pad=PAD, limit=5, size=BatchSize(8), seed=1)


def test_scores_do_not_depend_on_the_batches(model):
    together = score_pairs(model, SOURCES, TARGETS, eos=EOS, pad=PAD)
    alone = [score_pairs(model, [s], [t], eos=EOS, pad=PAD).total for s, t in zip(SOURCES, TARGETS, strict=True)]
    assert together.nll == pytest.approx(alone, rel=1e-5)
    assert together.lengths.tolist() == [3, 4, 2, 5]
    for sources, targets in ((SOURCES, TARGETS[:3]), (SOURCES[:1], TARGETS), ([], [])):
        with pytest.raises(InputError, match="cannot be scored"):
            score_pairs(model, sources, targets, eos=EOS, pad=PAD)


def greedy(model, source, limit):
    """The obvious twin of a beam of one."""
    read, written = torch.tensor([[*source, EOS]]), [EOS]
    while len(written) <= limit:
        with torch.no_grad():
            logits = model(input_ids=read, decoder_input_ids=torch.tensor([written])).logits[0, -1]
        logits[list(VOCAB.unpredictable)] = -torch.inf
        word = int(logits.argmax()) if len(written) - 1 < limit else EOS
        if word == EOS:
            break
        written.append(word)
    return written[1:]


def test_a_beam_of_one_is_greedy_search_with_a_limit_of_its_own_per_sentence(model):
    beam = Beam(beam=1, max_length_factor=1.0, max_length_extra=2)
    found = translate_ids(model, SOURCES, VOCAB, beam)
    assert found == [greedy(model, source, beam.limit(len(source) + 1) - 1) for source in SOURCES]


def test_a_beam_finds_the_same_whatever_else_is_in_the_batch(model):
    together = translate_ids(model, SOURCES, VOCAB, Beam(beam=4, batch_size=4))
    alone = [translate_ids(model, [source], VOCAB, Beam(beam=4))[0] for source in SOURCES]
    assert together == alone
    assert not {0, PAD} & {word for row in together for word in row}


def test_a_wider_beam_is_never_less_likely_without_a_length_penalty(model):
    likelihoods = []
    for beams in (1, 6):
        search = Beam(beam=beams, length_penalty=0.0, max_length_factor=1.0, max_length_extra=1)
        found = [np.array(row, np.int64) for row in translate_ids(model, SOURCES, VOCAB, search)]
        likelihoods.append(-score_pairs(model, SOURCES, found, eos=EOS, pad=PAD).total)
    assert likelihoods[1] >= likelihoods[0] - 1e-6


def test_a_source_longer_than_the_model_is_refused(model):
    with pytest.raises(InputError, match="sentence 1 has 31 tokens, but the model reads at most 24"):
        translate_ids(model, [np.full(30, 5)], VOCAB, Beam())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIDSTONE_CACHE", str(folder / "cache"))
        files = write_texts(folder)
        values = mt_values(files, max_steps=200, eval_every=100, schedule="linear", warmup_steps=20)
        yield files, train(recipe(values), folder / "runs"), values


def test_validation_may_translate_only_the_first_sentences(trained):
    _, run, values = trained
    limited = recipe({**values, "evaluation": {**values.get("evaluation", {}), "metric": "bleu", "valid_limit": 3}})
    scorer = CorpusScorer(limited, prepare_corpus(limited))
    model, valid = load_saved(run.folder).model, scorer.prepared.valid
    first = translation_metrics(scorer.hypotheses(model, valid)[:3], valid.references[:3])
    whole = translation_metrics(scorer.hypotheses(model, valid), valid.references)
    assert scorer.validate(model)["bleu"] == pytest.approx(first["bleu"])
    assert first["bleu"] != pytest.approx(whole["bleu"])


def test_a_translation_run_learns_and_records(trained):
    _, run, _ = trained
    test = run.record["metrics"]["test"]
    assert test["bleu"] > 20  # from about 0: the grammar is tiny
    assert run.record["signature"]["metric"] == test["bleu_signature"]
    assert run.record["curve"][-1]["valid_bleu"] == run.record["metrics"]["valid"]["bleu"]
    kept = json.loads(gzip.decompress((run.folder / "sentences.json.gz").read_bytes()))
    assert len(kept["hypotheses"]) == len(kept["bleu_statistics"]) == 30
    assert all("@@" not in line for line in kept["hypotheses"])


def test_a_run_keeps_what_its_bleu_is_made_of_and_no_reference(trained):
    _, run, _ = trained
    kept = json.loads(gzip.decompress((run.folder / "sentences.json.gz").read_bytes()))
    sums = np.array(kept["bleu_statistics"]).sum(0).tolist()
    bleu = BLEU.compute_bleu(sums[2:6], sums[6:], sums[0], sums[1]).score
    assert bleu == pytest.approx(run.record["metrics"]["test"]["bleu"])
    assert set(kept) == {"nll", "tokens", "hypotheses", "bleu_statistics"}


def test_the_saved_model_translates_and_scores_as_the_run_did(trained):
    files, run, _ = trained
    saved = load_saved(run.folder)
    kept = json.loads(gzip.decompress((run.folder / "sentences.json.gz").read_bytes()))
    facts = evaluate_files(saved, [files["test"]["source"], files["test"]["target"]])
    assert facts["bleu"] == pytest.approx(run.record["metrics"]["test"]["bleu"])
    lines = Path(files["test"]["source"]).read_text(encoding="utf-8").splitlines()
    assert translate_lines(saved, ["", *lines]) == ["", *kept["hypotheses"]]


def test_parallel_files_of_different_length_are_refused_with_the_line(trained, tmp_path):
    files, run, values = trained
    short = tmp_path / "short.en"
    short.write_text("the old house\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 2 has no partner"):
        evaluate_files(load_saved(run.folder), [files["test"]["source"], str(short)])
    corpus = {**values["corpus"], "train": {"source": files["train"]["source"], "target": str(short)}}
    with pytest.raises(DataError, match=r"200 lines but .*short\.en has 1"):
        train(recipe({**values, "corpus": corpus}), tmp_path / "runs")


def test_one_file_is_not_enough_to_evaluate_a_translation_model(trained):
    files, run, _ = trained
    with pytest.raises(InputError, match="two files, not 1"):
        evaluate_files(load_saved(run.folder), [files["test"]["source"]])


def test_a_validation_pair_longer_than_the_model_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    files = write_texts(tmp_path)
    for side in ("source", "target"):
        path = Path(files["valid"][side])
        path.write_text(" ".join(["haus"] * 40) + "\n" + path.read_text())
    with pytest.raises(InputError, match="validation pair 1 has"):
        train(recipe(mt_values(files)), tmp_path / "runs")


def test_a_long_line_is_named_by_its_number_in_the_file(trained):
    saved = load_saved(trained[1].folder)
    lines = ["das haus", "", "", " ".join(["haus"] * 80)]
    with pytest.raises(InputError, match="sentence 4 has"):
        translate_lines(saved, lines)
    with pytest.raises(InputError, match="sentence 1028 has"):
        translate_lines(saved, lines, first=1025)


def test_a_translation_has_room_for_one_token():
    assert Beam(max_length_factor=0, max_length_extra=0).limit(7) == 1
    with pytest.raises(ValueError, match="length_penalty"):
        Beam(length_penalty=float("nan"))


def test_early_stopping_watches_the_loss_and_waits_for_the_end_of_the_warm_up(tmp_path, monkeypatch):
    losses = iter([5.0, 5.5, 4.0, 4.5, 4.6, 1.0])  # after 2, 4, ... updates; the warm-up ends at the fourth
    bleus = iter([0.9, 0.1, 0.2, 3.0, 0.3, 0.0])

    def validate(scorer, model):
        return {"loss": (loss := next(losses)), "perplexity": 2.0**loss, "bleu": next(bleus)}

    monkeypatch.setattr("lidstone.lab.run.run.CorpusScorer.validate", validate)
    values = mt_values(write_texts(tmp_path), max_steps=12, eval_every=2, patience=2, warmup_steps=4)
    record = train(recipe(values), tmp_path / "runs").record
    assert record["curve"][-1]["step"] == 10  # two evaluations after the lowest loss; BLEU would have ended it at 6
    assert record["metrics"]["valid"]["bleu"] == 3.0  # weights are still chosen by BLEU


@pytest.mark.slow
def test_the_recipe_of_init_learns_to_translate_two_thousand_pairs(data_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    texts = [tmp_path / f"pairs.{language}" for language in ("de", "en")]
    for text in texts:
        with gzip.open(data_dir / "multi30k-de-en" / f"train{text.suffix}.gz", "rt", encoding="utf-8") as lines:
            text.write_text("".join(islice(lines, 2_000)), encoding="utf-8")
    write_recipe("mt", list(map(str, texts)), tmp_path / "recipe.yaml")
    shorter = ["training.threads=1", "evaluation.beam=1", "training.epochs=30"]
    made = load_recipe(tmp_path / "recipe.yaml", shorter).method("none")
    assert train(made, tmp_path / "runs").record["metrics"]["test"]["bleu"] > 5  # 0.03 when BLEU ended it
