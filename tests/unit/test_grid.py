"""The cells of a sweep: which there are, what recipes they make, and which axes are refused."""

from __future__ import annotations

import pytest
from tests.tiny import SIX_METHODS

from lidstone.errors import RecipeError
from lidstone.lab.recipe.recipe import load_recipe
from lidstone.lab.sweep.grid import Cell, axes_of, check_axes, sample_cells, search_cells, seed_cells
from lidstone.lab.sweep.sweep import MethodState
from lidstone.lab.sweep.work import Outcome

GAMMAS = [0.005, 0.01, 0.05, 0.1, 0.5]


def test_the_papers_grid_has_its_size() -> None:
    recipe = load_recipe("wikitext2")
    check_axes(recipe)
    sizes = {method: len(search_cells(recipe, method)) for method in recipe.method_names}
    # 5 x 5 strengths, times 3 lambdas, 3 weights or 3 thresholds k
    assert sizes == {
        "none": 1,
        "add-lambda": 75,
        "good-turing": 25,
        "jelinek-mercer": 75,
        "katz": 75,
        "kneser-essen-ney": 25,
    }


def test_the_papers_axes_reach_the_recipe() -> None:
    recipe = load_recipe("wikitext2")
    made = [cell.recipe(recipe).regularizer for cell in search_cells(recipe, "katz")]
    assert {one.parameters["k"] for one in made} == {5, 7, 10}
    assert {one.strengths for one in made} == {(plus, minus) for plus in GAMMAS for minus in GAMMAS}


def test_every_cell_of_a_method_is_another() -> None:
    cells = search_cells(load_recipe("wikitext2"), "jelinek-mercer")
    assert len({cell.key for cell in cells}) == len({str(cell) for cell in cells}) == 75


def test_any_other_axis_varies_every_method() -> None:
    recipe = load_recipe(SIX_METHODS, ["sweep.axes={training.learning_rate: [1e-3, 2e-3], model.layers: [1, 2]}"])
    rates = [cell.recipe(recipe) for cell in search_cells(recipe, "none")]
    assert [(one.training.learning_rate, one.model.layers) for one in rates] == [
        (1e-3, 1),
        (1e-3, 2),
        (2e-3, 1),
        (2e-3, 2),
    ]


@pytest.mark.parametrize(
    ("method", "axes"),
    [("plain", []), ("ls", ["regularizer.gamma"]), ("katz", ["regularizer.gamma", "regularizer.order"])],
)
def test_strengths_vary_what_has_them(method: str, axes: list[str]) -> None:
    methods = "[{name: plain}, {name: ls, kind: label_smoothing, gamma: 0.1}, {smoother: katz, gamma: 0.1}]"
    common = "sweep.axes={regularizer.gamma: [0.1, 0.2], regularizer.order: [2, 3]}"
    assert list(axes_of(load_recipe(SIX_METHODS, [f"methods={methods}", common]), method)) == axes


def test_an_axis_of_one_strength_keeps_the_other() -> None:
    recipe = load_recipe(SIX_METHODS, ["methods=[{smoother: katz, gamma: 0.3}]"])
    assert Cell("katz", {"regularizer.gamma_plus": 0.1}).recipe(recipe).regularizer.strengths == (0.1, 0.3)


def test_an_axis_of_both_strengths_replaces_single_ones() -> None:
    recipe = load_recipe(SIX_METHODS, ["methods=[{smoother: katz, gamma_plus: 0.1, gamma_minus: 0.2}]"])
    assert Cell("katz", {"regularizer.gamma": 0.5}).recipe(recipe).regularizer.strengths == (0.5, 0.5)


def test_seeds_keep_the_setting() -> None:
    recipe = load_recipe(SIX_METHODS, ["sweep.seeds=[3, 4, 3]"])
    cells = seed_cells(recipe, Cell("katz", {"regularizer.gamma_plus": 0.1}, 3))
    assert [cell.seed for cell in cells] == [3, 4]
    assert {cell.recipe(recipe).regularizer.gamma_plus for cell in cells} == {0.1}
    assert [cell.recipe(recipe).training.seed for cell in cells] == [3, 4]


def test_without_seeds_the_recipes_own_is_used() -> None:
    recipe = load_recipe(SIX_METHODS, ["sweep.seeds=[]", "training.seed=9"])
    assert [cell.seed for cell in search_cells(recipe, "none")] == [9]


def test_sample_cells_have_every_value() -> None:
    recipe = load_recipe("wikitext2")
    found = {value for cell in sample_cells(recipe, "katz") for value in cell.settings.items()}
    assert found == {(key, value) for key, values in axes_of(recipe, "katz").items() for value in values}


@pytest.mark.parametrize(
    ("axes", "message", "hint"),
    [
        ("{regularizr.gamma: [1]}", "unknown axis regularizr.gamma", "did you mean regularizer?"),
        ("{regularizer.gama_plus: [1]}", "unknown axis regularizer.gama_plus", "did you mean gamma_plus?"),
        ("{regularizer.schedule.knd: [constant]}", "unknown axis regularizer.schedule.knd", "did you mean kind?"),
        ("{training: [1]}", "the axis training is a section", "learning_rate"),
        ("{training.epochs: []}", "the axis training.epochs has no values", "write a list"),
        ("{training.epochs: [1, 2, 1]}", "has a value twice", "once"),
        ("{training.seed: [1, 2]}", "training.seed cannot be an axis", "docs"),
        ("{training.threads: [1, 2]}", "does not change what is trained", "docs"),
        ("{sweep.trials: [1, 2]}", "a sweep cannot vary itself", "docs"),
    ],
)
def test_useless_axes_are_refused(axes: str, message: str, hint: str) -> None:
    only_plain = "methods=[{name: none}]"  # which none of the axes of the regularizer would concern
    with pytest.raises(RecipeError) as caught:
        check_axes(load_recipe(SIX_METHODS, [f"sweep.axes={axes}", only_plain]))
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_axes_of_an_unknown_method_are_refused() -> None:
    recipe = load_recipe(SIX_METHODS, ["sweep.by_method={katzz: {regularizer.parameters.k: [5]}}"])
    with pytest.raises(RecipeError, match=r"has 'katzz', which is not a method of demo\. hint: did you mean katz\?"):
        check_axes(recipe)


def test_impossible_values_name_the_cell() -> None:
    recipe = load_recipe(SIX_METHODS, ["sweep.axes={training.learning_rate: [-1]}"])
    with pytest.raises(RecipeError, match=r"cell none learning_rate=-1 seed=1: training.learning_rate must be > 0"):
        search_cells(recipe, "none")[0].recipe(recipe)


def test_both_ways_of_giving_strengths_contradict_each_other() -> None:
    recipe = load_recipe(SIX_METHODS, ["sweep.axes={regularizer.gamma: [0.1], regularizer.gamma_plus: [0.2]}"])
    with pytest.raises(RecipeError, match="either gamma or gamma_plus and gamma_minus"):
        search_cells(recipe, "katz")[0].recipe(recipe)


def test_a_tie_is_compute_onced_alike_whatever_ended_first() -> None:
    record = {"metrics": {"valid": {"perplexity": 7.0}}}
    cells = [Cell("katz", {"regularizer.gamma_plus": value}) for value in (0.1, 0.5)]
    ended = {cell.key: (cell, Outcome("complete", record)) for cell in cells}
    orders = [dict(ended.items()), dict(reversed(ended.items()))]
    first, second = (MethodState("katz", 2, outcomes=outcomes).scores("perplexity") for outcomes in orders)
    assert first == second == [(7.0, cell) for cell in cells]


def test_a_best_strength_at_the_edge_of_those_tried_is_named() -> None:
    from lidstone.cli.sweep import _edges
    from lidstone.lab.sweep.sweep import MethodState
    from lidstone.lab.sweep.work import Outcome

    tried = [Cell("katz", {"regularizer.gamma": gamma, "training.learning_rate": 0.1}) for gamma in (0.1, 0.3, 0.5)]
    outcomes = {cell.key: (cell, Outcome("complete")) for cell in tried}
    assert _edges(MethodState("katz", 3, outcomes=outcomes, best=tried[2])) == {"regularizer.gamma": "highest of 3"}
    assert _edges(MethodState("katz", 3, outcomes=outcomes, best=tried[1])) == {}
