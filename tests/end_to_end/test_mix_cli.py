"""`evaluate` and `generate` with --mix and --pairs, as commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.tiny import lm_values, recipe, write_texts

import lidstone as ld
from lidstone.cli.main import app
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.run.run import train
from lidstone.lab.run.saved import load_saved
from lidstone.lab.run.use import encoded


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    home = tmp_path_factory.mktemp("mix")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIDSTONE_CACHE", str(home / "cache"))
        files = write_texts(home)
        used = recipe({**lm_values(files), "regularizer": {}})
        made = train(used, home / "runs")
        table = ld.WittenBell().fit(ld.count(list(prepare_corpus(used).train.target), prepare_corpus(used).vocab, 2))
        table.save(home / "own.safetensors")
        yield {"run": made, "files": files, "table": home / "own.safetensors", "home": home}


@pytest.fixture
def lidstone(capsys):
    def call(*arguments):
        with pytest.raises(SystemExit) as end:
            app(list(map(str, arguments)), prog_name="lidstone")
        captured = capsys.readouterr()
        return end.value.code or 0, captured.out, captured.err

    return call


def test_the_runs_own_mixture_has_the_runs_own_figures(lidstone, run):
    text = run["files"]["test"]["target"]
    code, out, _ = lidstone("evaluate", run["run"].folder, text, "--mix", "train", "--json")
    facts, record = json.loads(out), run["run"].record
    assert code == 0
    for name in ("ngram", "mixture"):
        assert facts[name]["perplexity"] == pytest.approx(record[name]["test"]["perplexity"], rel=1e-6)
    assert facts["perplexity"] == pytest.approx(record["metrics"]["test"]["perplexity"], rel=1e-6)
    _, shown, _ = lidstone("evaluate", run["run"].folder, text, "--mix", "train")
    assert "-gram model alone" in shown and "mixture, weight" in shown


def test_a_table_is_mixed_with_a_given_or_a_fitted_weight(lidstone, run):
    text, valid = run["files"]["test"]["target"], run["files"]["valid"]["target"]
    common = ("evaluate", run["run"].folder, text, "--mix", run["table"], "--json")
    facts = json.loads(lidstone(*common, "--weight", 0.25)[1])
    assert facts["mixture"]["weight"] == 0.25
    fitted = json.loads(lidstone(*common, "--fit-weight", valid)[1])
    saved = load_saved(run["run"].folder)
    judge = ld.Mixture(saved.model, ld.load(run["table"])).fit(encoded(saved, Path(valid).read_text().splitlines()))
    assert fitted["mixture"]["weight"] == pytest.approx(judge.weight, abs=1e-6)


def test_generation_with_all_weight_on_the_table_follows_the_table(lidstone, run):
    common = ("generate", run["run"].folder, "-N", 3, "--seed", 1, "--top-k", 1, "--mix", run["table"])
    prompts = run["home"] / "prompts"
    prompts.write_text("\n")
    _, out, _ = lidstone(*common[:2], prompts, *common[2:], "--weight", 1.0)
    saved, table = load_saved(run["run"].folder), ld.load(run["table"])
    ids, history = [], [table.vocab.bos]
    window = saved.model.config.trained_window  # the longest row that was trained, `<s>` included
    while len(ids) < window - 1 and (not ids or ids[-1] != table.vocab.eos):
        ids.append(int(table.prob([history[-1:]])[0].argmax()))
        history.append(ids[-1])
    assert set(out.splitlines()) == {saved.target.decode(ids)}


def test_pairs_of_three_models(lidstone, run):
    lines = Path(run["files"]["test"]["target"]).read_text().splitlines()[:6]
    file = run["home"] / "pairs.jsonl"
    pairs = [(line, " ".join(reversed(line.split()))) for line in lines] + [(lines[0], lines[0])]
    records = [{"sentence_good": a, "sentence_bad": b, "linguistics_term": "order"} for a, b in pairs]
    file.write_text("\n".join(map(json.dumps, records)))
    _, out, _ = lidstone("evaluate", run["run"].folder, "--pairs", file, "--mix", "train", "--json")
    facts = json.loads(out)
    assert facts["pairs"] == 7 and facts["ties"] >= 1
    saved = load_saved(run["run"].folder)
    mixture = ld.Mixture(saved.model, ld.load(run["table"]))
    alone = json.loads(lidstone("evaluate", run["run"].folder, "--pairs", file, "--json")[1])
    assert alone.pop("signature") != facts["signature"]
    assert alone == {name: facts[name] for name in alone}
    scores = [mixture.score(encoded(saved, side)).network.nll for side in zip(*pairs, strict=True)]
    points = [1.0 if a < b else 0.5 if a == b else 0.0 for a, b in zip(*scores, strict=True)]
    assert facts["accuracy"] == pytest.approx(sum(points) / 7)
    _, shown, _ = lidstone("evaluate", run["run"].folder, "--pairs", file, "--mix", "train")
    assert "phenomenon" in shown and "mixture" in shown and "ties count half" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "either TEXT or --pairs"),
        (("--pairs", "no-such-file"), "no-such-file"),
        (("TEXT", "--weight", 0.5), "--mix"),
        (("TEXT", "--mix", "TABLE"), "--weight"),
        (("TEXT", "--mix", "OTHER", "--weight", 0.5), "vocabulary"),
    ],
)
def test_wrong_options_are_explained(lidstone, run, arguments, message):
    other = run["home"] / "other.safetensors"
    ld.WittenBell().fit(ld.count([[3]], ld.Vocabulary(size=5, eos=2), order=2)).save(other)
    real = {"TEXT": run["files"]["test"]["target"], "TABLE": run["table"], "OTHER": other}
    code, _, err = lidstone("evaluate", run["run"].folder, *(real.get(str(a), a) for a in arguments))
    assert code != 0
    assert message in " ".join(err.split())


def test_more_text_is_counted_as_the_run_reads_it(lidstone, run):
    home, text = run["home"], run["files"]["train"]["target"]
    assert lidstone("count", text, "-n", 2, "--vocab", run["run"].folder, "-o", home / "more.counts")[0] == 0
    options = ("--smoother", "witten-bell", "-o", home / "more.table")
    assert lidstone("fit", home / "more.counts", *options)[0] == 0
    assert ld.load(home / "more.table").signature["counts"] == ld.load(run["table"]).signature["counts"]
    valid = run["files"]["valid"]["target"]
    common = ("evaluate", run["run"].folder, run["files"]["test"]["target"], "--fit-weight", valid, "--json", "--mix")
    assert lidstone(*common, home / "more.table") == lidstone(*common, run["table"])
    code, _, err = lidstone("count", text, "-n", 2, "--vocab", run["run"].folder, "-o", home / "x", "--memory", "1G")
    assert code == 1 and "in memory only" in err


def test_signatures_tell_mixtures_apart(lidstone, run):
    text = run["files"]["test"]["target"]

    def signature(*mix):
        return json.loads(lidstone("evaluate", run["run"].folder, text, *mix, "--json")[1])["signature"]

    rounded = run["home"] / "rounded.table"
    ld.load(run["table"]).compact(bits=8).save(rounded)
    tables = [(), *(("--mix", table, "--weight", w) for table in (run["table"], rounded) for w in (0.2, 0.3))]
    assert len({signature(*mix) for mix in tables}) == 5


def test_a_changed_or_missing_training_text_is_not_mixed(lidstone, run, tmp_path, monkeypatch):
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    text, train = run["files"]["test"]["target"], Path(run["files"]["train"]["target"])
    common = ("evaluate", run["run"].folder / "run.json", text, "--mix", "train")
    assert lidstone(*common)[0] == 0
    kept = train.read_text()
    try:
        train.write_text(kept + kept)
        code, _, err = lidstone(*common)
        assert code == 1 and "has changed" in err
        train.unlink()
        code, _, err = lidstone(*common)
        assert code == 1 and "cannot be read again" in err and "hint:" in err
    finally:
        train.write_text(kept)


def test_reserved_words_are_unknown_in_every_way_of_scoring(lidstone, run, tmp_path):
    text, pairs = tmp_path / "pad.txt", tmp_path / "pairs.jsonl"
    text.write_text("the <pad> house </s> sees\n")
    pairs.write_text(json.dumps({"sentence_good": "the <pad> house", "sentence_bad": "house the"}))
    for options in ((), ("--mix", "train")):
        code, out, _ = lidstone("evaluate", run["run"].folder, text, *options, "--json")
        assert code == 0 and json.loads(out)["oov"] == 2
        assert lidstone("evaluate", run["run"].folder, "--pairs", pairs, *options)[0] == 0


def test_a_model_without_tokenizer_is_refused(lidstone, run, tmp_path):
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(run["run"].folder / "model").save_pretrained(tmp_path / "bare")
    code, _, err = lidstone("evaluate", tmp_path / "bare", run["files"]["test"]["target"])
    assert code == 1 and "has no tokenizer" in err


def test_standard_input_is_read_once(lidstone, run):
    code, _, err = lidstone("evaluate", run["run"].folder, "-", "--mix", run["table"], "--fit-weight", "-")
    assert code == 1 and "standard input" in err
