"""The registry of methods: each kind is a file, and reports need nothing heavy of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pydantic")

from tests.tiny import lm_values, recipe, write_texts

from lidstone.errors import RecipeError
from lidstone.lab import methods
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.methods.base import METHODS, load_method
from lidstone.lab.recipe.recipe import make_recipe
from lidstone.lab.run.setup import training_text

SETTINGS = {
    "none": {},
    "smoother": {"smoother": "katz", "gamma": 0.1},
    "residual": {"smoother": "witten-bell", "gamma": 0.5},
    "reverse_kl": {"smoother": "witten-bell", "gamma": 0.1},
    "distillation": {"gamma": 0.5, "teacher": {"runs": [1]}},
}
LM = {"task": "lm", "corpus": {"name": "embedded"}}


def regularizer(kind):
    return make_recipe({**LM, "regularizer": {"kind": kind, **SETTINGS.get(kind, {"gamma": 0.1})}}).regularizer


def test_every_file_of_a_method_is_registered():
    files = {path.stem for path in Path(methods.__path__[0]).glob("*.py")}
    assert files - {"__init__", "base"} == set(METHODS)


@pytest.mark.parametrize("kind", METHODS)
def test_a_method_describes_itself_for_reports(kind):
    settings = regularizer(kind)
    assert load_method(kind).kind == kind
    found = settings.method.describe(settings)
    assert found["kind"] == kind
    assert set(found) == {
        *("kind", "smoother", "parameters", "order", "gamma_plus", "gamma_minus"),
        *("form", "empirical", "schedule"),
    }
    assert settings.name == {"smoother": "katz"}.get(kind, kind.replace("_", "-"))


def test_an_unknown_kind_is_an_error_that_lists_the_known_ones():
    with pytest.raises(RecipeError, match=r"regularizer\.kind must be one of 'none', 'confidence_penalty'"):
        make_recipe({**LM, "regularizer": {"kind": "nonsense"}})


def test_labels_need_neither_torch_nor_pydantic():
    code = "import sys, lidstone.lab.methods; print([name for name in ('torch', 'pydantic') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_the_weights_of_jelinek_mercer_can_be_learned_from_validation_text(tmp_path, monkeypatch):
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    settings = {"smoother": "jelinek-mercer", "parameters": {"weights": "em"}, "gamma": 0.1}
    made = recipe({**lm_values(write_texts(tmp_path)), "regularizer": settings})
    table = training_text(prepare_corpus(made)).table(made.regularizer)
    weights = table.signature["parameters"]["weights"]
    assert len(weights) == 2 and all(0 <= weight <= 1 for weight in weights) and list(weights) != [0.75, 0.75]
