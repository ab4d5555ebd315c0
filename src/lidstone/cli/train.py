"""`lidstone train`: from a recipe to `runs/<id>/run.json`."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from lidstone.cli.console import print_json, print_table, say
from lidstone.cli.inputs import JSON, RUNS_FOLDER, complete_recipes

if TYPE_CHECKING:
    from lidstone.lab.recipe.recipe import Recipe
    from lidstone.lab.run.run import TrainedRun


def train(
    recipe: Annotated[
        str,
        Argument(
            metavar="RECIPE",
            autocompletion=complete_recipes,
            help="A recipe file, one of lidstone's by name, or a run to repeat.",
        ),
    ],
    settings: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="Override a key: training.seed=2.")
    ] = None,
    method: Annotated[list[str] | None, Option(help="Train only this method of the recipe; may be repeated.")] = None,
    seed: Annotated[int | None, Option(help="The seed, as --set training.seed=N.")] = None,
    output: RUNS_FOLDER = Path("runs"),
    resume: Annotated[bool, Option("--resume", help="Continue a training that was interrupted.")] = False,
    tensorboard: Annotated[
        bool, Option("--tensorboard", help="Write TensorBoard files into the run's folder.")
    ] = False,
    as_json: JSON = False,
) -> None:
    """Train a recipe's methods, one after the other, and record the runs; complete runs are not trained again."""
    from lidstone.lab.recipe.recipe import load_recipe
    from lidstone.lab.run.record import write_explorer
    from lidstone.lab.run.run import train as run_recipe
    from lidstone.lab.run.setup import cached_corpus, first_process_first, process_rank

    overrides = [*(settings or ()), *([f"training.seed={seed}"] if seed is not None else ())]
    of_method = [text for text in overrides if method and "=" in text and text.startswith("regularizer.")]
    loaded = load_recipe(recipe, [text for text in overrides if text not in of_method])
    if of_method and (len(method or ()) > 1 or not loaded.methods):
        loaded, of_method = _of_all(recipe, overrides, method or []), []
    if process_rank() == 0:
        for note in loaded.notes:
            say(f"note: {note}")
    with first_process_first():
        prepared = cached_corpus(loaded)
    runs = []
    with _evaluations_on_stderr():
        for one in chosen(loaded, method or (), of_method):
            done = run_recipe(one, output, prepared=prepared, resume=resume, tensorboard=tensorboard)
            if process_rank() == 0:
                runs.append(done)
                print_json(summary(done)) if as_json else _print_state(done)
    if runs:
        write_explorer(loaded, output, prepared)
    if runs and not as_json:
        _print(runs)
    _warn(runs)


@contextlib.contextmanager
def _evaluations_on_stderr() -> Iterator[None]:
    """Print the log of evaluations, which is empty on a terminal; after Ctrl-C say how to continue."""
    logger, handler = logging.getLogger("lidstone.lab.run"), logging.StreamHandler()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    except KeyboardInterrupt as error:
        say(f"{error}; continue with --resume" if error.args else "interrupted")
        raise typer.Exit(130) from None
    finally:
        logger.removeHandler(handler)


def _of_all(recipe: str, overrides: list[str], names: list[str]) -> Recipe:
    """The recipe with keys of the regularizer that hold for several methods; those of one method are an error."""
    from lidstone.errors import InputError
    from lidstone.lab.recipe.recipe import SHARED, load_recipe

    for key in (text.partition("=")[0] for text in overrides):
        if len(names) > 1 and key.startswith("regularizer.") and key.split(".")[1] not in SHARED:
            wanted = key.replace("regularizer", f"methods.{names[0]}", 1)
            raise InputError(f"{key} is for one method, and {len(names)} are named", hint=f"name one, or set {wanted}")
    return load_recipe(recipe, overrides)


def chosen(
    recipe: Recipe, names: list[str] | tuple[str, ...], of_method: list[str] | tuple[str, ...] = ()
) -> list[Recipe]:
    """The recipes to train: the named methods; else the regularizer, if one is set; else all methods.

    `of_method` overrides keys of the regularizer, such as `regularizer.gamma=0.6`, of the one method that is named.
    """
    if of_method:
        from lidstone.lab.recipe.yaml import parse_yaml
        from lidstone.lab.sweep.grid import Cell

        settings = {key: parse_yaml(value, key) for key, _, value in (text.partition("=") for text in of_method)}
        return [Cell(names[0], settings, recipe.training.seed).recipe(recipe)]
    if not names and recipe.regularizer.is_set:
        return [recipe.model_copy(update={"methods": ()})]
    return [recipe.method(name) for name in names or recipe.method_names]


def summary(run: TrainedRun) -> dict[str, Any]:
    """The main results for a line of JSON; everything is in run.json."""
    keys = ("id", "task", "name", "method", "seed", "signature", "metrics", "cost")
    shown = {key: run.record[key] for key in keys}
    return {"run": str(run.folder), "computed": run.computed, **shown, "shortcomings": shortcomings(run)}


def shortcomings(run: TrainedRun) -> tuple[str, ...]:
    """Why the score of a run may say little about its method."""
    from lidstone.lab.report.runs import Run

    return Run.from_dict(run.record).shortcomings


def _print_state(run: TrainedRun) -> None:
    say(f"{run.record['name']}: {'trained' if run.computed else 'complete already'}, {run.folder}")


def _print(runs: list[TrainedRun]) -> None:
    score = {"lm": "perplexity", "mt": "bleu"}[runs[0].record["task"]]
    rows = [_row(run.record, score) for run in runs]
    headers = ["method", "run", "seed", f"valid {score}", f"test {score}", "seconds"]
    notes = [", ".join(shortcomings(run)) for run in runs]
    if any(notes):
        headers, rows = [*headers, "note"], [[*row, note] for row, note in zip(rows, notes, strict=True)]
    print_table(headers, rows)
    print(f"{runs[0].record['signature']['metric']}; {_denominator(runs[0].record)}")


def _warn(runs: list[TrainedRun]) -> None:
    """A line for each reason why scores may say little, with the methods that it holds for."""
    from lidstone.lab.report.runs import SHORTCOMINGS

    for reason, advice in SHORTCOMINGS.items():
        if names := [run.record["name"] for run in runs if reason in shortcomings(run)]:
            say(f"warning: {reason}: {', '.join(names)}; {advice}")


def _row(record: dict[str, Any], score: str) -> list[str]:
    values = [record["metrics"][split].get(score) for split in ("valid", "test")]
    shown = ["-" if value is None else f"{value:.2f}" for value in values]
    return [record["name"], record["id"], str(record["seed"]), *shown, f"{record['cost']['train_seconds']:.0f}"]


def _denominator(record: dict[str, Any]) -> str:
    test = record["metrics"]["test"]
    return f"test: {record['signature']['test_sentences']:,} sentences, {test['tokens']:,} tokens"
