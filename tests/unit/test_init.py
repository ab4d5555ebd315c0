"""`lidstone init` and `lidstone data` as a user meets them."""

import json

import pytest
from typer.testing import CliRunner

pytest.importorskip("pydantic")

from lidstone.cli.main import app
from lidstone.errors import DataError, RecipeError, TextError
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.recipe.recipe import load_recipe
from lidstone.lab.recipe.template import choose, recipe_text, write_recipe


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LIDSTONE_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, lines):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_a_recipe_for_own_text_can_be_prepared_at_once(home):
    text = write(home / "text" / "mine.txt", ["some words of text"] * 100)
    path = home / "recipe.yaml"
    write_recipe("lm", [text], path, name='mine: a "test" # x')
    recipe = load_recipe(path)
    assert recipe.name == 'mine: a "test" # x'
    assert recipe.method_names == ("none", "label-smoothing", "modified-kneser-ney")
    assert recipe.corpus.train.target == (str(home / "text" / "mine.txt"),)
    prepared = prepare_corpus(load_recipe(path, ["tokenizer.merges=10"]))
    # 100 lines in blocks of three: of every ten blocks the ninth is for validation, the tenth for test
    assert [len(prepared.train), len(prepared.valid), len(prepared.test)] == [82, 9, 9]


def test_paths_in_the_recipe_are_relative_to_it(home):
    write(home / "text" / "mine.txt", ["a b"])
    (home / "recipes").mkdir()
    write_recipe("lm", ["text/mine.txt"], home / "recipes" / "r.yaml")
    assert '"../text/mine.txt"' in (home / "recipes" / "r.yaml").read_text()


def test_a_recipe_for_translation_reads_languages_off_the_names(home):
    files = [write(home / name, ["ein Satz"] * 40) for name in ("t.fr", "t.en.txt")]
    write_recipe("mt", files, home / "r.yaml")
    recipe = load_recipe(home / "r.yaml")
    assert (recipe.corpus.source_language, recipe.corpus.target_language) == ("fr", "en")
    assert (recipe.model.kind, recipe.corpus.max_ratio) == ("transformer-mt", 1.5)
    assert len(prepare_corpus(load_recipe(home / "r.yaml", ["tokenizer.merges=3"])).train) > 25


@pytest.mark.parametrize(
    ("names", "codes"),
    [(("t.en", "t.no"), ("en", "no")), (("t.v1", "t.v2"), ("de", "en")), (("t.fr.gz", "t.on"), ("fr", "on"))],
)
def test_language_codes_that_look_like_something_else(home, names, codes):
    files = [write(home / name, [line] * 40) for name, line in zip(names, ("ein Satz", "the cat"), strict=True)]
    write_recipe("mt", files, home / "r.yaml")
    recipe = load_recipe(home / "r.yaml")
    assert (recipe.corpus.source_language, recipe.corpus.target_language) == codes


def test_more_text_gets_a_larger_network(home):
    little = recipe_text(choose("lm", [write(home / "a.txt", ["a b c"])]))
    much = recipe_text(choose("lm", [write(home / "b.txt", ["a b c d e f g h i j"] * 40_000)]))
    assert ("width: 128" in little, "width: 256" in much) == (True, True)


def test_every_line_of_the_recipe_that_sets_a_value_is_yaml_and_the_rest_comment(home):
    text = recipe_text(choose("lm", [write(home / "a.txt", ["a b c"])]))
    assert text.count("#") > 15
    assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize(
    ("task", "files", "error", "message"),
    [
        ("mt", {"a.de": ["x"]}, RecipeError, "translation needs two files, not 1"),
        ("mt", {"a.de": ["x", "y"], "a.en": ["x"]}, DataError, "has 2 lines but .* has 1: line 2 has no partner"),
        ("lm", {"a.txt": []}, DataError, "has no text"),
        ("lm", {}, RecipeError, "no text given"),
        ("asr", {"a.txt": ["x"]}, RecipeError, "no task 'asr'"),
    ],
)
def test_files_that_make_no_recipe(home, task, files, error, message):
    paths = [write(home / name, lines) for name, lines in files.items()]
    with pytest.raises(error, match=message):
        write_recipe(task, paths, home / "r.yaml")
    assert not (home / "r.yaml").exists()


def test_a_missing_file(home):
    with pytest.raises(TextError, match=r"cannot read nowhere\.txt"):
        write_recipe("lm", ["nowhere.txt"], home / "r.yaml")


def test_an_existing_recipe_is_not_replaced_unasked(home):
    text = write(home / "a.txt", ["a b"])
    (home / "r.yaml").write_text("precious")
    with pytest.raises(RecipeError, match="exists already"):
        write_recipe("lm", [text], home / "r.yaml")
    assert (home / "r.yaml").read_text() == "precious"
    write_recipe("lm", [text], home / "r.yaml", force=True)
    assert load_recipe(home / "r.yaml").task == "lm"


# ---- the command line


def test_init_prints_the_path_and_what_to_do_next(home):
    text = write(home / "a.txt", ["a b"])
    result = run("init", text)
    assert (result.exit_code, result.stdout) == (0, "recipe.yaml\n")
    assert "next: lidstone train recipe.yaml" in result.stderr
    assert "next: lidstone train 'my recipe.yaml', or" in run("init", text, "--output", "my recipe.yaml").stderr
    again = run("init", text)
    assert (again.exit_code, again.stdout) == (1, "")
    assert "error: recipe.yaml exists already\nhint: " in again.stderr


@pytest.mark.parametrize(
    ("line", "tokenization", "language"),
    [
        ("Der Hund ist nicht groß, und die Katze auch nicht.", "moses", "de"),
        ("the dog is not big , and the cat is not either .", "none", "en"),  # tokenized: left as it is
        ("the dog is not big", "none", "en"),
    ],
)
def test_init_guesses_and_says_so(home, line, tokenization, language):
    text = write(home / "animals.txt", [line] * 40)
    result = run("init", text)
    recipe = load_recipe("recipe.yaml")
    assert (recipe.name, recipe.corpus.tokenization, recipe.corpus.target_language) == (
        "animals",
        tokenization,
        language,
    )
    for said in (
        "name: animals",
        f"tokenization: {tokenization}, because",
        f"language: {language}",
        "Kneser-Ney trigrams",
    ):
        assert said in result.stderr


def test_init_follows_the_recommendation(home):
    run("init", write(home / "a.txt", ["a b"]))
    recipe = load_recipe("recipe.yaml")
    best = recipe.method("modified-kneser-ney").regularizer
    assert (best.order, best.form, best.empirical) == (3, "exact", "token")
    assert {0.1, 0.25, 0.6} == set(recipe.sweep.axes["regularizer.gamma"])


def test_tokenized_text_of_a_translation_is_detokenized(home):
    files = [write(home / name, ["ein Satz ."] * 40) for name in ("t.de", "t.en")]
    write_recipe("mt", files, home / "r.yaml")
    assert load_recipe(home / "r.yaml").corpus.tokenization == "done"


def test_init_to_stdout_and_as_json(home):
    text = write(home / "a.txt", ["a b"])
    assert "task: lm" in run("init", text, "-o", "-").stdout
    assert json.loads(run("init", text, "--json").stdout) == {
        "recipe": "recipe.yaml",
        "task": "lm",
        "name": "a",
        "tokenization": "none",
    }


def test_init_with_a_wrong_task_is_a_usage_error(home):
    assert run("init", write(home / "a.txt", ["a b"]), "--task", "asr").exit_code == 2


def test_prepare_shows_the_splits_and_the_folder(home):
    result = run("data", "prepare", "demo", "--set", "corpus.limit=50", "-o", str(home / "out"))
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["split", "samples", "dropped", "longest", "target", "tokens"]
    assert lines[1].split()[:2] == ["train", "50"]
    assert lines[-1] == str(home / "out")
    assert (home / "out" / "manifest.json").exists()


def test_prepare_as_json(home):
    answer = json.loads(run("data", "prepare", "demo", "--set", "corpus.limit=50", "--json").stdout)
    assert answer["splits"]["train"]["samples"] == 50
    assert answer["name"] == "embedded"


def test_prepare_without_the_corpus_says_how_to_get_it(home):
    result = run("data", "prepare", "wikitext2_small")
    assert result.exit_code == 1
    assert "error: the corpus wikitext2 is not on this machine" in result.stderr
    assert "hint: run: lidstone data get wikitext2" in result.stderr


def test_get_an_unknown_corpus(home):
    result = run("data", "get", "wikitext3")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "hint: did you mean wikitext2" in result.stderr


def test_list_shows_what_can_be_fetched(home):
    rows = json.loads(run("data", "list", "--json").stdout)
    here = {row["name"]: row["here"] for row in rows}
    assert [name for name in here if here[name]] == ["embedded"]
    assert here["multi30k"] is here["lafand-en-yor"] is False
    assert "multi30k" in run("data", "list").stdout


def test_a_translation_gets_epochs_by_its_updates(home):
    def epochs(lines):
        files = [write(home / f"{lines}.{side}", ["ein kurzer Satz von sechs Worten"] * lines) for side in ("de", "en")]
        write_recipe("mt", files, home / "r.yaml", force=True)
        return load_recipe(home / "r.yaml").training.epochs

    # 1,500 updates of 1,024 tokens; 1.2 tokens for each of the 6 words
    assert [epochs(lines) for lines in (2_000, 10_000, 100)] == [100, 22, 100]
