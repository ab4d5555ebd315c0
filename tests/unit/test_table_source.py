"""`regularizer.text` and `regularizer.table`: tables of other text than the training text, and the ids of such runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pydantic")

from tests.tiny import lm_values, mt_values, recipe, write_texts

import lidstone as ld
from lidstone.errors import InputError, LidstoneError, RecipeError, VocabularyMismatch
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.recipe.recipe import load_recipe, make_recipe
from lidstone.lab.run.record import identity, run_id
from lidstone.lab.run.run import train
from lidstone.lab.run.setup import table_source, table_text, training_text

MORE = ("the old dog sees the old tree", "the small child sees", "the green cat sees the river")
WB = {"smoother": "witten-bell", "gamma": 0.2, "order": 2}


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    found = write_texts(tmp_path)
    (tmp_path / "more.txt").write_text("\n".join(MORE) + "\n")
    return found


def with_regularizer(files, **settings):
    made = recipe({**lm_values(files, max_steps=4), "regularizer": settings})
    return made, prepare_corpus(made)


def test_the_table_is_that_of_the_other_text(files, tmp_path):
    made, prepared = with_regularizer(files, **WB, text=str(tmp_path / "more.txt"))
    encoded = [prepared.vocab.encode(line.split()) for line in MORE]  # green and cat are unknown words
    expected = ld.WittenBell().fit(ld.count(encoded, prepared.vocab, order=2))
    table = training_text(prepared, made.regularizer).table(made.regularizer)
    histories = [[prepared.vocab.bos], [prepared.vocab.index["old"]], [prepared.vocab.unk]]
    np.testing.assert_array_equal(table.prob(histories), expected.prob(histories))


def test_sentences_of_validation_and_test_are_left_out(files, tmp_path):
    held_out = Path(files["test"]["target"]).read_text().splitlines()[0]
    (tmp_path / "leak.txt").write_text(f"{held_out}\n{MORE[0]}\n\n")
    _, prepared = with_regularizer(files, **WB)
    assert len(table_text(prepared, [str(tmp_path / "leak.txt")])) == 1
    (tmp_path / "leak.txt").write_text(f"{held_out}\n")
    with pytest.raises(LidstoneError, match="no sentence is left of the 1"):
        table_text(prepared, [str(tmp_path / "leak.txt")])


def test_files_globs_and_names_of_corpora_are_read(files, tmp_path):
    (tmp_path / "more2.txt").write_text("the red house\n")
    _, prepared = with_regularizer(files, **WB)
    assert len(table_text(prepared, [str(tmp_path / "more*.txt")])) == 4
    assert len(table_text(prepared, ["embedded", str(tmp_path / "more.txt")])) > 1000


def test_the_id_depends_on_the_content_and_not_on_the_path(files, tmp_path):
    plain = run_id(*with_regularizer(files, **WB))
    ids = {}
    for name, text in (("a", MORE[:2]), ("b", MORE[:2]), ("c", MORE)):
        (tmp_path / f"{name}.txt").write_text("\n".join(text))
        ids[name] = run_id(*with_regularizer(files, **WB, text=str(tmp_path / f"{name}.txt")))
    assert ids["a"] == ids["b"] and len({plain, *ids.values()}) == 3


def test_a_run_is_trained_with_it_and_records_it(files, tmp_path):
    made, prepared = with_regularizer(files, **WB, text=str(tmp_path / "more.txt"))
    record = train(made, tmp_path / "runs").record
    signature = record["signature"]
    assert signature["table_source"] == table_source(prepared, made.regularizer)
    assert signature["table_source"]["sentences"] == 3
    again = make_recipe(record["config"])
    source = signature["table_source"]
    assert identity(again, signature["corpus"], signature["vocabulary"], source) == record["id"]
    assert record["method"]["parameters"] == {"text": "more.txt"}


def test_translation_regularizes_with_more_text_of_its_target(files, tmp_path):
    values = mt_values(files, max_steps=4)
    values["regularizer"]["text"] = str(tmp_path / "more.txt")
    record = train(recipe(values), tmp_path / "runs").record
    assert record["signature"]["table_source"]["sentences"] == 3


@pytest.mark.parametrize("ending", ["table", "arpa"])
def test_a_table_of_a_file_gets_the_ids_of_the_run(files, tmp_path, ending):
    _, prepared = with_regularizer(files, **WB)
    words = [token for token in prepared.vocab.tokens[2:] if token not in ("</s>", "<unk>")]
    own = ld.Vocabulary.from_words(sorted(words))  # the same words, other ids
    table = ld.WittenBell().fit(ld.count([own.encode(line.split()) for line in MORE], own, order=2))
    path = tmp_path / f"more.{ending}"
    ld.write_arpa(table, str(path)) if ending == "arpa" else table.save(path)
    made, _ = with_regularizer(files, table=str(path), gamma=0.2, order=2)
    assert made.regularizer.kind == "smoother" and made.regularizer.name == "table"
    found = training_text(prepared, made.regularizer).table(made.regularizer)
    assert found.vocab.fingerprint == prepared.vocab.fingerprint
    for history, word in (("old", "dog"), ("sees", "the"), ("house", "tree")):
        expected = table.prob([[own.index[history]]])[0, own.index[word]]
        assert found.prob([[prepared.vocab.index[history]]])[0, prepared.vocab.index[word]] == pytest.approx(expected)
    assert train(made, tmp_path / "runs").record["signature"]["table_source"]["sha256"]


def test_a_table_of_other_words_or_another_order_is_refused_in_one_line(files, tmp_path):
    other = ld.Vocabulary.from_words(["the", "zebra"])
    path = tmp_path / "zebra.table"
    ld.WittenBell().fit(ld.count([[2, 3]], other, order=2)).save(path)
    made, prepared = with_regularizer(files, table=str(path), gamma=0.2, order=2)
    with pytest.raises(VocabularyMismatch, match="1 of the table's 4 words are not in the vocabulary, such as zebra"):
        training_text(prepared, made.regularizer)
    small = ld.WittenBell().fit(ld.count([[4, 5]], prepared.vocab, order=2))
    small.save(tmp_path / "small.table")
    made, _ = with_regularizer(files, table=str(tmp_path / "small.table"), gamma=0.2, order=3)
    with pytest.raises(InputError, match=r"has order 2, but regularizer\.order is 3"):
        training_text(prepared, made.regularizer)
    made, _ = with_regularizer(files, table=str(tmp_path / "none.table"), gamma=0.2)
    with pytest.raises(LidstoneError, match="there is no table"):
        run_id(made, prepared)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "label_smoothing", "gamma": 0.1, "text": "a.txt"}, "kind label_smoothing has none"),
        ({"smoother": "katz", "gamma": 0.1, "table": "a.arpa"}, "either a table or a smoother"),
        ({"kind": "residual", "smoother": "katz", "gamma": 1, "folds": 2, "text": "a.txt"}, "leave out text and table"),
        ({"kind": "label_smoothing", "gamma": 0.1, "table": "a.arpa"}, "contradict"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(RecipeError, match=message):
        make_recipe({"task": "lm", "corpus": {"name": "embedded"}, "regularizer": settings})


def test_paths_are_relative_to_the_recipe_and_names_of_corpora_stay(tmp_path):
    (tmp_path / "more.txt").write_text("a\n")
    method = "{smoother: katz, gamma: 0.1, text: [more*.txt, tatoeba]}"
    (tmp_path / "my.yaml").write_text(f"task: lm\ncorpus: {{name: embedded}}\nmethods: [{method}]\n")
    found = load_recipe(tmp_path / "my.yaml").methods[0]
    assert found.text == (str(tmp_path / "more*.txt"), "tatoeba")
