"""`lidstone train`, `evaluate`, `translate` and `generate` as commands, and what they say to bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.tiny import lm_values, mt_values, write_texts

from lidstone.cli.main import app


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("cli")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIDSTONE_CACHE", str(home / "cache"))
        yield home


@pytest.fixture(scope="module")
def files(folder):
    return write_texts(folder)


@pytest.fixture
def lidstone(capsys):
    """Run a command in this process."""

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            app(list(map(str, arguments)), prog_name="lidstone")
        captured = capsys.readouterr()
        return Result(end.value.code or 0, captured.out, captured.err)

    return run


def write_recipe(path, values):
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def recipe(folder, files):
    values = lm_values(files, max_steps=4, eval_every=2)
    values["methods"] = [{"name": "none"}, {"smoother": "add-lambda", "gamma": 0.1}]
    values["regularizer"] = {"order": 2}
    return write_recipe(folder / "lm.yaml", values)


@pytest.fixture
def run_folder(lidstone, recipe, folder):
    answer = lidstone("train", recipe, "--method", "add-lambda", "--output", folder / "runs", "--json")
    return json.loads(answer.out)["run"]


def test_a_recipe_with_methods_trains_each_of_them_once(lidstone, recipe, folder):
    answer = lidstone("train", recipe, "--output", folder / "all", "--json")
    lines = [json.loads(line) for line in answer.out.splitlines()]
    assert [line["name"] for line in lines] == ["none", "add-lambda"]
    assert all((folder / "all" / line["id"] / "run.json").is_file() for line in lines)
    again = lidstone("train", recipe, "--output", folder / "all")
    assert "complete already" in again.err and "add-lambda" in again.out and "perplexity" in again.out


@pytest.mark.parametrize("method", ["none", "add-lambda"])
def test_a_run_trained_again_is_the_same(lidstone, recipe, folder, tmp_path, method):
    first = json.loads(lidstone("train", recipe, "--method", method, "--output", folder / "runs", "--json").out)
    again = json.loads(lidstone("train", first["run"], "--output", tmp_path, "--json").out)
    assert again["computed"] and Path(again["run"]).parent == tmp_path
    assert all(again[key] == first[key] for key in ("id", "name", "seed", "signature", "metrics"))


def test_a_training_that_another_process_is_at_is_left_to_it(lidstone, recipe, folder, run_folder, tmp_path):
    from lidstone.files import try_lock

    with try_lock(tmp_path, Path(run_folder).name):
        answer = lidstone("train", recipe, "--method", "add-lambda", "--output", tmp_path, "--resume")
    assert answer.code == 1 and "another process is training" in answer.err
    assert not list(tmp_path.glob("*/run.json"))


def test_a_training_under_another_name_is_found_and_noted(lidstone, recipe, run_folder):
    settings = ["--set", "methods.add-lambda.name=mine", "--method", "mine"]
    answer = json.loads(lidstone("train", recipe, *settings, "--output", Path(run_folder).parent, "--json").out)
    assert (answer["run"], answer["computed"]) == (run_folder, False)
    assert json.loads((Path(run_folder) / "run.json").read_text())["names"] == ["add-lambda", "mine"]


def test_a_training_that_ended_too_early_is_called_that(lidstone, recipe, tmp_path):
    settings = ("--method", "none", "--set", "training.warmup_steps=400", "--output", tmp_path)
    answer = lidstone("train", recipe, *settings)
    header, row = answer.out.splitlines()[:2]
    assert header.endswith("note") and row.endswith("ended in the warm-up, still improving at the last evaluation")
    assert "warning: ended in the warm-up: none; train longer (training.epochs, training.max_steps)" in answer.err
    assert json.loads(lidstone("train", recipe, *settings, "--json").out)["shortcomings"] == row.split("  ")[-1].split(
        ", "
    )


def test_the_regularizer_is_that_of_the_one_method_that_is_named(lidstone, recipe, folder):
    def train(*arguments):
        return lidstone("train", recipe, "--output", folder / "runs", "--json", *arguments)

    plain = json.loads(train("--method", "add-lambda", "--set", "methods.add-lambda.gamma=0.6").out)
    short = json.loads(train("--method", "add-lambda", "--set", "regularizer.gamma=0.6").out)
    assert short["id"] == plain["id"] and short["method"]["gamma_plus"] == 0.6
    several = train("--method", "add-lambda", "--method", "none", "--set", "regularizer.gamma=0.6")
    assert several.code == 1 and "regularizer.gamma is for one method, and 2 are named" in several.err


def test_evaluations_are_lines_where_there_is_no_terminal(lidstone, recipe, tmp_path):
    answer = lidstone("train", recipe, "--method", "none", "--output", tmp_path)
    lines = [line for line in answer.err.splitlines() if line.startswith("none: step")]
    assert [line.split("  ")[0] for line in lines] == ["none: step 2 of 4", "none: step 4 of 4"]
    assert all("loss" in line and line.endswith(" s") for line in lines)


def test_an_interruption_says_how_to_continue(lidstone, recipe, tmp_path, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("lidstone.lab.run.run.CorpusScorer.validate", interrupt)
        answer = lidstone("train", recipe, "--method", "none", "--output", tmp_path)
    assert (answer.code, answer.err.splitlines()[-1]) == (130, "interrupted at step 2; continue with --resume")
    assert lidstone("train", recipe, "--method", "none", "--output", tmp_path, "--resume").code == 0


def test_trackers_go_to_the_trainer_and_do_not_change_the_id(lidstone, recipe, folder, tmp_path, monkeypatch):
    plain = json.loads(lidstone("train", recipe, "--method", "none", "--output", folder / "runs", "--json").out)
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    tracked = ("--method", "none", "--output", tmp_path, "--json", "--set")
    answer = lidstone("train", recipe, *tracked, "training.report_to=tensorboard")
    assert json.loads(answer.out)["id"] == plain["id"] and any((tmp_path / "board").rglob("events*"))
    missing = lidstone("train", recipe, *tracked, "training.report_to=[wandbb]", "--seed", 5)
    assert missing.code == 1 and "training.report_to: wandbb is not installed" in missing.err


def test_seed_and_set_make_other_runs(lidstone, recipe, folder):
    ids = set()
    for options in ((), ("--seed", 5), ("--set", "training.learning_rate=0.02")):
        answer = lidstone("train", recipe, "--method", "none", *options, "--output", folder / "runs", "--json")
        ids.add(json.loads(answer.out)["id"])
    assert len(ids) == 3


def test_evaluate_gives_the_figures_of_the_run_with_both_denominators(lidstone, files, run_folder):
    answer = lidstone("evaluate", run_folder, files["test"]["target"], "--json")
    facts = json.loads(answer.out)
    record = json.loads(Path(run_folder, "run.json").read_text())["metrics"]["test"]
    assert facts["perplexity"] == pytest.approx(record["perplexity"], rel=1e-5)
    assert (facts["tokens"], facts["words"]) == (record["tokens"], record["words"])
    shown = lidstone("evaluate", run_folder, files["test"]["target"])
    assert "per token" in shown.out and "per word" in shown.out and "model:" in shown.out


def test_generate_draws_the_same_with_the_same_seed(lidstone, run_folder, tmp_path):
    prompts = tmp_path / "prompts"
    prompts.write_text("the old\n\n")
    first, second = (lidstone("generate", run_folder, prompts, "-N", 2, "--seed", 3).out for _ in range(2))
    lines = first.splitlines()
    assert first == second and len(lines) == 4 and lines[0].startswith("the old")


def test_the_model_loads_without_lidstone(run_folder):
    code = (
        "import sys, torch; from transformers import AutoModelForCausalLM; "
        f"model = AutoModelForCausalLM.from_pretrained({run_folder + '/model'!r}); "
        "print(model.generate(torch.tensor([[2]]), max_new_tokens=3, do_sample=False).shape, 'lidstone' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(")")[1].strip() == "False"


def test_translate_writes_one_line_for_each(lidstone, folder, files):
    values = mt_values(files, max_steps=2, eval_every=2)
    made = lidstone("train", write_recipe(folder / "mt.yaml", values), "--output", folder / "runs", "--json")
    run = json.loads(made.out)["run"]
    answer = lidstone("translate", run, files["test"]["source"], "--beam", 1)
    assert answer.code == 0 and len(answer.out.splitlines()) == 30
    assert "is not a translation model" in lidstone("translate", _other(folder, "lm"), files["test"]["source"]).err
    assert "is not a language model" in lidstone("generate", run, files["test"]["source"]).err


def _other(folder, task):
    records = [json.loads(path.read_text()) for path in (folder / "runs").glob("*/run.json")]
    return folder / "runs" / next(record["id"] for record in records if record["task"] == task)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"corpus": {"train": "nowhere.txt"}}, "nowhere.txt"),
        ({"corpus": {"max_length": 1}}, "no train samples are left: 200 were read"),
        ({"corpus": {"name": None, "train": None}}, "give either a name or train files"),
        ({"regularizer": {"smoother": "kats", "gamma": 0.1}}, "there is no smoother 'kats'"),
        ({"training": {"learnin_rate": 1}}, "unknown key training.learnin_rate"),
        ({"model": {"kind": "auto", "checkpoint": "no-such-model"}}, "no-such-model is not a checkpoint"),
        ({"model": {"kind": "auto", "checkpoint": "t5"}}, "t5 cannot be built"),
        ({"model": {"kind": "auto", "checkpoint": "gpt2", "options": {"foo": 3}}}, "gpt2 has no option 'foo'"),
        ({"model": {"kind": "auto", "checkpoint": "gpt2", "options": {"n_head": 5}}}, "gpt2 cannot be built"),
        ({"model": {"kind": "auto", "checkpoint": "gpt2", "options": {"n_layer": "x"}}}, "gpt2 cannot be built"),
    ],
)
def test_a_mistake_is_one_line_and_a_hint(lidstone, folder, files, change, message):
    values = lm_values(files)
    for section, changes in change.items():
        values[section] = changes if section == "regularizer" else {**values[section], **changes}
    answer = lidstone("train", write_recipe(folder / "bad.yaml", values), "--output", folder / "bad")
    assert answer.code == 1 and message in answer.err
    assert answer.err.count("error:") == 1 and "hint:" in answer.err and "Traceback" not in answer.err
    assert not list((folder / "bad").glob("*/run.json"))


def test_a_checkpoint_of_another_vocabulary_is_refused(lidstone, folder, files, run_folder):
    values = lm_values(files)
    values["model"] = {"kind": "auto", "checkpoint": f"{run_folder}/model"}
    values["tokenizer"] = {"kind": "bpe", "merges": 5}
    answer = lidstone("train", write_recipe(folder / "other.yaml", values), "--output", folder / "bad")
    assert answer.code == 1 and "ids, the data's vocabulary" in answer.err and "hint:" in answer.err


def test_folders_without_a_model_are_named(lidstone, tmp_path, files):
    for path, message in ((tmp_path / "none", "there is no run or model"), (tmp_path, "has no model")):
        answer = lidstone("evaluate", path, files["test"]["target"])
        assert answer.code == 1 and message in answer.err and "hint:" in answer.err
