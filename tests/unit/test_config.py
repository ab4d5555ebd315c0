"""Recipes: what is accepted, what is refused and in which words."""

import json
from pathlib import Path

import pytest
from tests.tiny import SIX_METHODS

pytest.importorskip("pydantic")

from lidstone.errors import RecipeError
from lidstone.lab.recipe.recipe import load_recipe, make_recipe, recipe_names

LM = {"task": "lm", "corpus": {"name": "embedded"}}
MT = {"task": "mt", "corpus": {"name": "iwslt14"}}


def with_(base, **sections):
    return make_recipe({**base, **sections})


def test_the_packaged_recipes_are_all_there():
    full = {"wikitext2", "iwslt14_deen", "wmt14_ende"}
    assert set(recipe_names()) == full | {f"{name}_small" for name in full} | {"demo"}


@pytest.mark.parametrize("name", ["wikitext2", "wikitext2_small", SIX_METHODS])
def test_language_recipes_compare_the_papers_rows_with_its_best_strengths(name):
    recipe = load_recipe(name)
    rows = {method.name: (*method.strengths, *method.parameters.values()) for method in recipe.methods}
    assert rows == {
        "none": (0, 0),
        "add-lambda": (0.1, 0.05, 0.01),
        "good-turing": (0.1, 0.05),
        "jelinek-mercer": (0.1, 0.5, 0.75, "unigram"),
        "katz": (0.1, 0.01, 5, "ml"),
        "kneser-essen-ney": (0.1, 0.1),
    }
    assert {(m.order, m.form, m.empirical) for m in recipe.methods} == {(2, "published", "ngram")}


@pytest.mark.parametrize("name", ["iwslt14_deen", "iwslt14_deen_small", "wmt14_ende", "wmt14_ende_small"])
def test_translation_recipes_compare_the_papers_rows_with_its_best_strengths(name):
    rows = {m.name: (*m.strengths, *m.parameters.values()) for m in load_recipe(name).methods}
    expected = {
        "none": (0, 0),
        "add-lambda": (0.1, 0.01, 0.01),
        "good-turing": (0.05, 0.5),
        "jelinek-mercer": (0.1, 0.5, 0.5, "unigram"),
        "katz": (0.1, 0.1, 5, "ml"),
        "kneser-essen-ney": (0.1, 0.1),
    }
    assert rows == {key: expected[key] for key in rows}
    assert len(rows) == (3 if name.startswith("wmt") else 6)


def test_the_full_recipes_say_what_the_paper_says():
    lm, mt = load_recipe("wikitext2"), load_recipe("iwslt14_deen")
    assert (lm.tokenizer.merges, lm.model.dropout, lm.corpus.name) == (16_000, 0.1, "wikitext2-raw")
    assert (mt.tokenizer.merges, mt.model.dropout, mt.evaluation.beam) == (10_000, 0.3, 5)
    grid = [0.005, 0.01, 0.05, 0.1, 0.5]
    for recipe in (lm, mt):
        assert recipe.sweep.axes == {"regularizer.gamma_plus": grid, "regularizer.gamma_minus": grid}
        assert recipe.sweep.by_method["katz"] == {"regularizer.parameters.k": [5, 7, 10]}
        assert len(recipe.sweep.seeds) == 5


def test_defaults_follow_the_task():
    lm, mt = make_recipe(LM), make_recipe(MT)
    assert (lm.model.kind, lm.model.heads, lm.model.ffn, lm.evaluation.metric) == (
        "transformer-lm",
        8,
        2048,
        "perplexity",
    )
    assert (mt.model.kind, mt.model.heads, mt.model.ffn, mt.evaluation.metric) == (
        "transformer-mt",
        4,
        1024,
        "bleu",
    )
    assert (mt.training.batch_tokens, mt.training.accumulation, mt.training.weight_decay) == (4096, 1, 1e-4)


def test_a_section_of_the_user_keeps_the_other_defaults_of_the_task():
    assert with_(MT, model={"layers": 2}).model.ffn == 1024


def test_a_schedule_that_the_loss_would_refuse_is_refused_in_the_recipe():
    with pytest.raises(RecipeError, match=r"schedule\.final must be >= 0 and <= 1, not 2"):
        with_(LM, regularizer={"schedule": {"kind": "linear", "final": 2}})


@pytest.mark.parametrize(
    ("sections", "message", "hint"),
    [
        ({"trainin": {}}, "unknown key trainin", "did you mean training?"),
        ({"training": {"learnin_rate": 1}}, "unknown key training.learnin_rate", "did you mean learning_rate?"),
        ({"methods": [{"gama": 1}]}, "unknown key methods.0.gama", "did you mean gamma?"),
        ({"regularizer": {"schedule": {"knd": 1}}}, "regularizer.schedule.knd", "did you mean kind?"),
        ({"corpus": {"train": {"sorce": "a"}}}, "unknown key corpus.train.sorce", "did you mean source?"),
        ({"model": {"zzz": 1}}, "unknown key model.zzz", "known: kind, layers"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest_name(sections, message, hint):
    with pytest.raises(RecipeError, match=message) as caught:
        with_(LM, **sections)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"dropout": 1.5}}, "model.dropout must be >= 0 and < 1, not 1.5"),
        ({"training": {"seed": -1}}, "training.seed must be >= 0 and < 4.29497e+09, not -1"),
        ({"training": {"patience": 0}}, "training.patience must be >= 1, not 0"),
        ({"corpus": {"name": "embedded", "fraction": 0}}, "corpus.fraction must be > 0 and <= 1, not 0"),
        ({"regularizer": {"order": 9}}, "regularizer.order must be >= 1 and <= 8, not 9"),
        ({"methods": [{"smoother": "katz", "gamma": -1}]}, "methods.0.gamma must be >= 0, not -1"),
        ({"training": {"precision": "fp8"}}, "training.precision must be one of 'auto', 'fp32' or 'bf16'"),
        ({"training": {"seed": "x"}}, "training.seed should be a valid integer"),
        ({"training": {"learning_rate": float("nan")}}, "training.learning_rate"),
        ({"task": "asr"}, "task must be one of 'lm' or 'mt', not 'asr'"),
        ({"training": {"epochs": None, "max_steps": None}}, "training needs an end"),
        ({"training": {"batch_size": 4}}, "set either batch_tokens or batch_size"),
        ({"training": {"block_length": 600}}, "training.block_length: 600 is more than model.max_positions, 512"),
        ({"model": {"width": 10, "heads": 3}}, "model: a width of 10 cannot be split over 3 heads"),
        ({"model": {"kind": "transformer-mt"}}, "model.kind: transformer-mt needs task mt"),
        ({"model": {"kind": "auto"}}, "model: kind auto needs a checkpoint"),
        ({"tokenizer": {"kind": "checkpoint"}}, "tokenizer.kind: checkpoint needs model.kind auto"),
        ({"corpus": {}}, "corpus: give either a name or train files"),
        ({"corpus": {"name": "embedded", "train": "a"}}, "corpus: give either a name or train files"),
        ({"corpus": {"train": {"source": "a"}}}, "corpus.train: needs a target file"),
        ({"corpus": {"train": {"source": "a", "target": "b"}}}, "a language model has no source"),
        ({"task": "mt", "corpus": {"train": "a"}}, "corpus.train: translation needs source and target"),
        ({"methods": [{"name": "a"}, {"name": "a"}]}, "methods: two have the same name"),
        (
            {"regularizer": {"smoother": "kats", "gamma": 1}},
            "regularizer: there is no smoother 'kats'. hint: did you mean",
        ),
        (
            {"methods": [{"smoother": "katz", "gamma": 1, "parameters": {"K": 5}}]},
            "methods.0: katz has no setting 'K'. hint: did you mean k?",
        ),
        ({"regularizer": {"smoother": "katz"}}, "a smoother needs gamma"),
        ({"regularizer": {"smoother": "katz", "gamma": 1, "gamma_plus": 1}}, "give either gamma or"),
        ({"regularizer": {"smoother": "katz", "gamma": 1.5}}, "the exact form allows 0 to 1"),
        ({"regularizer": {"kind": "label_smoothing"}}, "label_smoothing needs gamma"),
        ({"regularizer": {"kind": "none", "smoother": "katz", "gamma": 0.1}}, "contradict"),
    ],
)
def test_impossible_values_are_refused_with_the_allowed_range(sections, message):
    with pytest.raises(RecipeError) as caught:
        with_(LM, **sections)
    assert message in str(caught.value)


def test_all_mistakes_are_told_at_once():
    with pytest.raises(RecipeError, match=r"model.dropout .*; training.seed"):
        with_(LM, model={"dropout": 2}, training={"seed": -1})


def test_a_missing_section_is_named():
    with pytest.raises(RecipeError, match="the key corpus is missing"):
        make_recipe({"task": "lm"})


def test_methods_inherit_what_the_regularizer_section_shares_unless_they_say_otherwise():
    shared = {"order": 3, "form": "published", "empirical": "ngram", "smoother": "katz", "gamma": 0.1}
    recipe = with_(LM, regularizer=shared, methods=[{"name": "none"}, {"smoother": "katz", "gamma": 2, "order": 4}])
    none, katz = recipe.methods
    assert (none.order, none.form, none.smoother) == (3, "published", None)
    assert (katz.order, katz.empirical, katz.strengths) == (4, "ngram", (2, 2))


@pytest.mark.parametrize("kind", ["label_smoothing", "unigram-label-smoothing", "confidence_penalty"])
def test_baselines_are_chosen_by_kind(kind):
    chosen = with_(LM, regularizer={"kind": kind, "gamma": 0.1}).regularizer
    assert chosen.kind == kind.replace("-", "_")
    assert chosen.name == kind.replace("_", "-")


def test_one_method_of_a_recipe_is_a_recipe():
    katz = load_recipe(SIX_METHODS).method("katz")
    assert (katz.regularizer.smoother, katz.method_names) == ("katz", ("katz",))
    with pytest.raises(RecipeError, match="no method 'kats'") as caught:
        load_recipe(SIX_METHODS).method("kats")
    assert caught.value.hint == "did you mean katz?"


def test_a_recipe_survives_json():
    for name in recipe_names():
        recipe = load_recipe(name)
        assert make_recipe(recipe.to_dict()) == recipe


def test_a_run_keeps_its_recipe(tmp_path):
    recipe, record = load_recipe(SIX_METHODS).method("katz"), tmp_path / "run.json"
    record.write_text(json.dumps({"config": recipe.to_dict()}), encoding="utf-8")
    assert load_recipe(tmp_path) == load_recipe(record) == recipe
    assert load_recipe(tmp_path, ["training.seed=7"]).training.seed == 7


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"config": 3}'])
def test_a_damaged_record_is_no_recipe(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RecipeError, match="not the record of a run"):
        load_recipe(tmp_path)


def test_recipes_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        make_recipe(LM).training.seed = 2


def test_overrides_reach_every_depth(tmp_path):
    overrides = [
        "training.learning_rate=1e-3",
        "methods.katz.parameters.k=7",
        "methods.0.name=plain",
        "training.patience=null",
        "regularizer.schedule={kind: linear, final: 0.5}",
    ]
    recipe = load_recipe(SIX_METHODS, overrides)
    assert recipe.training.learning_rate == 1e-3
    assert recipe.training.patience is None
    assert recipe.method("katz").regularizer.parameters == {"k": 7, "unigrams": "ml"}
    assert recipe.method_names[0] == "plain"
    assert recipe.methods[1].schedule.final == 0.5
    values = ["methods=[{kind: label_smoothing, gamma: 0.1}]", "methods.label-smoothing.gamma=0.2"]
    assert load_recipe("demo", values).methods[0].gamma == 0.2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.seed", "cannot understand"),
        ("=3", "cannot understand"),
        ("training.sed=3", "unknown key training.sed"),
        ("methods.zz.gamma=3", "the list has no item zz"),
        ("name.x=3", "below a value that has no keys"),
        ("training.seed={", "not valid YAML"),
    ],
)
def test_overrides_that_cannot_be_applied(override, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe("demo", [override])


def write(folder, text):
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


def test_paths_are_relative_to_the_recipe_file_but_overrides_are_not(tmp_path):
    path = write(tmp_path, "task: mt\ncorpus: {train: {source: a.de, target: a.en}, test: {source: b.de}}\n")
    with pytest.raises(RecipeError, match=r"corpus\.test: needs a target file"):
        load_recipe(path)
    path = write(tmp_path, "task: lm\ncorpus: {train: [a.txt, /abs/b.txt]}\n")
    recipe = load_recipe(path, ["corpus.valid=c.txt"])
    assert recipe.corpus.train.target == (str(tmp_path / "a.txt"), "/abs/b.txt")
    assert recipe.corpus.valid.target == ("c.txt",)


def test_numbers_without_a_point_are_numbers(tmp_path):
    path = write(
        tmp_path,
        "task: lm\ncorpus: {name: embedded}\nregularizer: {smoother: add-lambda, gamma: 1, parameters: {lam: 1e-2}}\n",
    )
    assert load_recipe(path).regularizer.parameters == {"lam": 0.01}


def test_a_method_may_take_over_what_another_says(tmp_path):
    methods = "[&ken {smoother: kneser-essen-ney, gamma: 0.1}, {<<: *ken, name: twice, gamma: 0.2}]"
    path = write(tmp_path, f"task: lm\ncorpus: {{name: embedded}}\nmethods: {methods}\n")
    regularizer = load_recipe(path).method("twice").regularizer
    assert (regularizer.smoother, regularizer.gamma) == ("kneser-essen-ney", 0.2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task: lm\ntask: mt\n", "given twice"),
        ("a: [", "not valid YAML"),
        ("- a", "no keys in it"),
        ("", "no keys in it"),
        ("!!python/object/apply:os.system ['true']", "not valid YAML"),
    ],
)
def test_files_that_are_no_recipes(tmp_path, text, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe(write(tmp_path, text))


def test_an_unknown_recipe_is_answered_with_the_nearest_name():
    with pytest.raises(RecipeError, match="no recipe wikitext3") as caught:
        load_recipe("wikitext3")
    assert caught.value.hint.startswith("did you mean wikitext2")


def test_packaged_recipes_go_by_either_spelling():
    assert load_recipe("wikitext2-small.yaml") == load_recipe("wikitext2_small")


def test_the_documentation_has_every_recipe():
    text = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert [name for name in recipe_names() if f"| `{name}` |" not in text] == []


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"name": "katz", "gamma": 0.1}, "kind none has no gamma"),
        ({"name": "plain", "parameters": {"k": 5}}, "kind none has no gamma and no parameters"),
        ({"name": "katz"}, "katz is a smoother; write smoother: katz"),
    ],
)
def test_the_name_of_a_smoother_alone_does_not_train_without_it(method, message):
    with pytest.raises(RecipeError, match=message):
        make_recipe({"task": "lm", "corpus": {"name": "embedded"}, "methods": [{"name": "none"}, method]})


def test_language_models_are_not_scored_by_bleu():
    with pytest.raises(RecipeError, match="bleu needs task mt"):
        make_recipe({"task": "lm", "corpus": {"name": "embedded"}, "evaluation": {"metric": "bleu"}})


def test_a_repeated_key_is_named_with_its_line(tmp_path):
    path = write(tmp_path, "task: lm\ncorpus: {name: embedded}\ntask: mt\n")
    with pytest.raises(RecipeError, match="the key task is given twice, again in line 3"):
        load_recipe(path)
