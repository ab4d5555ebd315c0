"""Distillation in recipes and on the command line: what a batch holds, the id of a run, resuming, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny import lm_values, recipe, write_texts
from typer.testing import CliRunner

import lidstone as ld
from lidstone.cli.main import app
from lidstone.errors import LidstoneError, RecipeError
from lidstone.hf.stored_teacher import IDS, LOGPROBS
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.recipe.recipe import load_recipe, make_recipe
from lidstone.lab.run.record import run_id
from lidstone.lab.run.run import train
from lidstone.lab.run.saved import load_saved
from lidstone.lab.run.setup import set_up
from lidstone.lab.run.teaching import without_fold
from lidstone.lab.sweep.grid import search_cells
from lidstone.loss.reference import dense_loss, taught_target
from lidstone.text.history import histories_of

TABLE = {"smoother": "witten-bell", "order": 3, "folds": 3}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """One for all tests, which so share their teachers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIDSTONE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def made(files, teacher, **settings):
    values = lm_values(files, max_steps=6, eval_every=6)
    return recipe({**values, "regularizer": {"kind": "distillation", "gamma": 0.5, "teacher": teacher, **settings}})


@pytest.fixture(scope="module")
def plain(files, tmp_path_factory):
    """A finished run without a regularizer."""
    values = {**lm_values(files, max_steps=6, eval_every=6), "regularizer": {}}
    return train(recipe(values), tmp_path_factory.mktemp("runs")).folder


def stepped(setup):
    """The first batch as the loss gets it, random logits, and the parts of the loss."""
    batch = setup.batch_change(setup.batches[0], 1.0)
    torch.manual_seed(2)
    logits = torch.randn(*batch["labels"].shape, setup.model.config.vocab_size, requires_grad=True)
    given = {"ids": batch[IDS], "logprobs": batch[LOGPROBS], "histories": batch["input_ids"], "folds": batch["folds"]}
    return batch, logits, setup.loss(logits, batch["labels"], **given)


@pytest.mark.parametrize("block", [None, 8])
def test_the_target_is_the_dense_one_with_tables_of_other_folds(files, plain, block):
    """Teacher: 0.7 network + 0.3 table of the other folds; its 3 words are completed by the same table."""
    own = made(files, {"runs": [str(plain)], "weight": 0.3, "k": 3, "tail": "table"}, **TABLE)
    own = own.model_copy(update={"training": own.training.model_copy(update={"block_length": block})})
    prepared = prepare_corpus(own)
    vocab, sentences, model = prepared.vocab, list(prepared.train.target), load_saved(plain).model
    setup = set_up(own, prepared)
    batch, logits, parts = stepped(setup)
    tables = [
        ld.WittenBell().fit(ld.count([s for i, s in enumerate(sentences) if i % 3 != fold], vocab, order=3))
        for fold in range(3)
    ]
    lengths = prepared.train.target.lengths
    owner = np.repeat(np.arange(len(sentences)), lengths)
    within = np.concatenate([np.arange(length) for length in lengths])
    positions, total = setup.batches[0]["positions"], torch.zeros((), dtype=torch.float64)
    for row, at in (batch["labels"] != -100).nonzero().tolist():
        number, time = (int(each[int(positions[row, at])]) for each in (owner, within))
        words = [vocab.eos, *sentences[number].tolist()]
        table = tables[number % 3]
        with torch.no_grad():
            network = model(input_ids=torch.tensor([words])).logits[0, time].double().softmax(-1)
        top = (0.7 * network + 0.3 * torch.tensor(table.prob([histories_of(words, vocab, 3)[time]])[0])).topk(3)
        seen = histories_of(batch["input_ids"][row].tolist(), vocab, 3)[at]  # of a block: from its start
        named = top.indices.tolist(), top.values.log().tolist(), int(batch["labels"][row, at])
        target, _ = taught_target(*named, torch.tensor(table.prob([seen])[0]), gamma=0.5, size=vocab.size)
        total = total + dense_loss(logits[row, at][None], target[None])
    expected = total / (batch["labels"] != -100).sum()
    assert parts.total.item() == pytest.approx(expected.item(), rel=2e-4)  # probabilities have 16 bits


def test_a_run_is_trained_recorded_and_found_again(files, plain, tmp_path):
    own = made(files, {"runs": [1, str(plain)], "weight": "em", "k": None, "tail": "unigram"}, **TABLE)
    done = train(own, tmp_path)
    facts = {"folds": 3, "teachers": 2, "tail": "unigram", "k": "V", "weight": "em"}
    assert done.record["method"]["parameters"] == facts
    facts = done.record["signature"]["teacher"]
    assert facts["k"] == facts["size"] == prepare_corpus(own).vocab.size
    assert facts["models"][0] == facts["models"][1]  # the run of seed 1 is that of the recipe's network
    assert facts["bytes_per_position"] == pytest.approx(4 * facts["k"] + 4, abs=1)
    assert 0 <= facts["weight"] <= 1
    assert not train(load_recipe(done.folder), tmp_path).computed


def test_the_id_depends_on_the_run_and_not_on_its_path(files, plain, tmp_path):
    moved = tmp_path / "elsewhere"
    moved.symlink_to(plain)
    one, other = (made(files, {"runs": [str(path)]}) for path in (plain, moved))
    prepared = prepare_corpus(one)
    assert run_id(one, prepared) == run_id(other, prepared)
    assert run_id(one, prepared) != run_id(made(files, {"runs": [str(plain)], "k": 5}), prepared)


def test_networks_of_folds_do_not_see_what_they_teach(files):
    own = made(files, {"runs": [1, 2], "cross_fit": True, "k": 2})
    prepared = prepare_corpus(own)
    facts = set_up(own, prepared).teacher.facts
    assert facts["cross_fit"] and len(set(facts["models"])) == 2
    half = without_fold(prepared, 1, 2)
    assert [ids.tolist() for ids in half.train.target] == [ids.tolist() for ids in list(prepared.train.target)[::2]]
    assert len(half.train.words) == len(half.train) and half.signature["train"] != prepared.signature["train"]


def test_another_text_at_the_positions_is_refused(files, plain):
    own = made(files, {"runs": [str(plain)], "k": 2})
    setup = set_up(own, prepare_corpus(own))
    batch = setup.batches[0]
    batch["labels"] = batch["labels"].clamp(min=0) + 1
    with pytest.raises(LidstoneError, match="the teacher was made of other text"):
        setup.batch_change(batch, 1.0)


def test_sweeps_vary_the_teacher():
    values = {"task": "lm", "corpus": {"name": "embedded"}}
    values["methods"] = [{"kind": "distillation", "gamma": 0.5, "teacher": {"runs": [1]}}]
    values["sweep"] = {"by_method": {"distillation": {"regularizer.teacher.k": [4, 16]}}}
    cells = search_cells(make_recipe(values), "distillation")
    assert [cell.settings for cell in cells] == [{"regularizer.teacher.k": 4}, {"regularizer.teacher.k": 16}]


def test_the_recipe_of_the_study_is_sound():
    """The teachers' own settings are fixed, so that no axis of the search trains them again."""
    study = load_recipe(Path(__file__).parents[2] / "results" / "distillation.yaml")
    taught = [method for method in study.methods if method.kind == "distillation"]
    assert len(taught) == 10
    axes = {key for method in study.method_names for cell in search_cells(study, method) for key in cell.settings}
    changed = {key for key in {*axes, *study.sweep.refine} if not key.startswith("regularizer.")}
    assert all(set(method.teacher.set) == changed for method in taught if method.teacher)


MISTAKES = [
    ({"teacher": None}, "kind distillation needs a teacher"),
    ({"kind": "none", "gamma": None}, "no other kind has one"),
    ({"gamma": 1.5}, "gamma is 1.5, but it is the teacher's share"),
    ({"gamma": None}, "distillation needs gamma"),
    ({"teacher": {"runs": []}}, "runs"),
    ({"teacher": {"runs": [1], "tail": "tables"}}, "tail must be one of"),
    ({"teacher": {"runs": [1], "tail": "table"}}, "a smoother or table belongs to"),
    ({"smoother": "katz"}, "a smoother or table belongs to"),
    ({"teacher": {"runs": [1], "k": 0}}, "k"),
    ({"teacher": {"runs": [1], "weights": [1, 2]}}, "one number for each of teacher.runs"),
    ({"teacher": {"runs": [1], "cross_fit": True}}, "cross_fit needs two runs"),
    ({"schedule": {"kind": "linear"}}, "does not follow a schedule"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES)
def test_mistakes(change, message):
    settings = {"kind": "distillation", "gamma": 0.5, "teacher": {"runs": [1]}, **change}
    with pytest.raises(RecipeError, match=message):
        make_recipe({"task": "lm", "corpus": {"name": "embedded"}, "regularizer": settings})


def test_a_missing_run_is_one_line(files):
    own = made(files, {"runs": ["runs/nothing"]})
    with pytest.raises(LidstoneError, match=r"there is no run runs/nothing.*teacher\.runs"):
        run_id(own, prepare_corpus(own))


def call(*arguments):
    found = CliRunner().invoke(app, ["teach", *map(str, arguments)])
    return found.exit_code, found.stdout, found.stderr


def test_the_command_line(files, plain, tmp_path):
    text, output = files["train"]["target"], tmp_path / "t"
    code, out, _ = call(plain, text, "--top", "4", "--output", output, "--parquet", tmp_path / "t.parquet", "--json")
    facts = json.loads(out)
    assert code == 0 and facts["k"] == 4 and facts["weight"] == 0
    teacher = ld.load_teacher(output)
    assert len(teacher) == facts["sentences"] == 200 == len(ld.load_teacher(tmp_path / "t.parquet"))
    again = call(plain, "train", "--top", "4", "--output", output)
    assert again[0] == 0 and again[1].startswith("sentences  200")  # the same text


@pytest.mark.filterwarnings("ignore:modified-kneser-ney uses its fallback")
def test_the_command_line_with_an_ngram_model(plain, tmp_path):
    options = ("--ngram", "2", "--folds", "4", "--top", "4", "--sample")
    code, out, _ = call(plain, "train", *options, "--output", tmp_path / "t", "--json")
    facts = json.loads(out)
    assert code == 0 and len(facts["signature"]["tables"]) == 4 and 0 < facts["weight"] < 1


WRONG = [
    (("TEXT",), "a teacher needs a model and a text"),
    (("RUN", "TEXT", "--mix", "a", "--ngram", "2"), "--mix and --ngram are two n-gram models"),
    (("RUN", "TEXT", "--weight", "0.5"), "a weight needs --mix TABLE or --ngram N"),
    (("RUN", "TEXT", "--ngram", "2"), "an n-gram model needs a weight"),
    (("RUN", "TEXT", "--top", "99"), "99 words of a vocabulary of"),
    (("RUN", "TEXT", "--weights", "em"), "--weights em is for n-gram models"),
    (("RUN", "nothing.txt"), "cannot read nothing.txt"),
    (("nothing", "TEXT"), "there is no run or model nothing"),
    (("RUN", "TEXT", "--temperature", "0"), "the temperature 0.0"),
]


@pytest.mark.filterwarnings("ignore:modified-kneser-ney uses its fallback")
@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_mistakes_on_the_command_line(arguments, message, files, plain, tmp_path):
    names = {"RUN": plain, "TEXT": files["train"]["target"]}
    code, out, err = call(*(names.get(part, part) for part in arguments), "--output", tmp_path / "t")
    assert code == 1 and not out
    assert message in err and "hint:" in err and "Traceback" not in err
