"""The steps that compute: n-gram models alone, minimal pairs, scores of the mixture, runs trained again."""

from __future__ import annotations

import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lidstone.errors import InputError, RunError
from lidstone.files import write_text
from lidstone.hf.mixture import ngram_nll
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.recipe.recipe import Recipe, load_recipe, make_recipe
from lidstone.lab.report.runs import read_run
from lidstone.lab.run.record import read_record, write_record
from lidstone.lab.run.run import train
from lidstone.lab.run.saved import load_saved
from lidstone.lab.run.scoring import CorpusScorer, choose_ngram, compare_with_ngram
from lidstone.lab.run.use import evaluate_pairs, make_mixture, own_ngram
from results import BLIMP, HERE, MIXTURES, NGRAMS

TEXTS = ("wikitext2", "tatoeba")
TOLERANCE = 1e-4  # nats per sentence, beyond the four digits that are kept


def ngrams(*names: str) -> None:
    """Score the n-gram models of the texts named, or of all, and keep the others as they are."""
    kept = _kept(NGRAMS)
    for name in names or TEXTS:
        kept[name] = score_ngram(load_recipe(HERE / f"{name}.yaml"))
        print(f"{name}: {kept[name]['perplexity']:.2f} (order {kept[name]['order']})", flush=True)
        _keep(NGRAMS, {name: kept[name] for name in TEXTS if name in kept})


def score_ngram(recipe: Recipe) -> dict[str, Any]:
    """Modified Kneser-Ney of a training text, order 2 to 5 by all of the validation text, as every run scores it.

    `valid_perplexity` is that of the sentences that the networks' settings were chosen on.
    """
    prepared = prepare_corpus(recipe)
    choice = choose_ngram(prepared, recipe.evaluation.ngram_orders)
    assert choice is not None
    nll = ngram_nll(choice.table, list(prepared.test.target))
    valid = ngram_nll(choice.table, list(prepared.valid.target)[: recipe.evaluation.valid_limit])
    words = int(prepared.test.words.sum()) + len(prepared.test)
    return {
        "order": choice.order,
        "valid_by_order": {str(order): value for order, value in choice.perplexities.items()},
        "valid_perplexity": math.exp(valid.mean()),
        "perplexity": choice.table.perplexity(prepared.test.target.stream).value,
        "word_perplexity": math.exp(float(nll.sum()) / words),
        "tokens": len(nll),
        "train_sentences": len(prepared.train),
        "vocabulary": prepared.vocab.fingerprint,
        "test": prepared.signature["test"],
    }


def blimp(pairs: str, *folders: str) -> None:
    """Measure the minimal pairs of every run named; what was measured before is kept."""
    kept = _kept(BLIMP)
    for folder in folders:
        run = read_run(Path(folder) / "run.json")
        saved, (table, weight) = load_saved(folder, task="lm"), own_ngram(folder)
        found = evaluate_pairs(saved, pairs, make_mixture(saved, table, weight))
        kept[run.id] = {"name": run.name, "seed": run.seed, **found}
        shown = [found["accuracy"], found["ngram"]["accuracy"], found["mixture"]["accuracy"]]
        print(run.id, run.name, *(f"{100 * value:.2f}" for value in shown), flush=True)
        _keep(BLIMP, kept)


def rescore(*folders: str) -> None:
    """Add the n-gram model and the mixture to language models; their own scores must be those recorded."""
    for folder in map(Path, folders):
        record, recipe = read_record(folder), load_recipe(folder)
        if record is None or recipe.task != "lm":
            raise InputError(f"{folder} is not a finished run of a language model", hint="give folders of such runs")
        scores = CorpusScorer(recipe, prepare_corpus(recipe)).test(load_saved(folder).model)
        kept = read_run(folder / "run.json").sentences()
        worst = max(abs(a - b) for a, b in zip(kept["nll"], scores.sentences["nll"], strict=True))
        if worst > TOLERANCE:
            raise InputError(f"the model in {folder} scores a sentence {worst} nats away from its record")
        write_record(folder, {**record, **scores.further}, {**kept, **scores.sentences, "nll": kept["nll"]})
        shown = {"network": record["metrics"], **scores.further}
        told = ", ".join(f"{name} {shown[name]['test']['perplexity']:.2f}" for name in ("network", "ngram", "mixture"))
        print(f"{record['id']} {record['name']}: {told}", flush=True)


def mixed(method: str, *folders: str) -> None:
    """Mix the networks of runs with n-grams of the text that another method of their study has its table from."""
    kept = _kept(MIXTURES)
    for folder in map(Path, folders):
        run, recipe = read_run(folder / "run.json"), load_recipe(folder)
        settings = load_recipe(HERE / f"{recipe.name}.yaml").method(method).regularizer
        prepared, network = prepare_corpus(recipe), load_saved(folder).model
        scorer = CorpusScorer(recipe, prepared)
        choice = choose_ngram(prepared, recipe.evaluation.ngram_orders, settings)
        assert choice is not None
        scores = (scorer.likelihood(network, split) for split in (prepared.valid, prepared.test))
        found, _ = compare_with_ngram(prepared, choice, *scores)
        kept.setdefault(run.id, {"name": run.name, "seed": run.seed})[method] = found
        shown = (f"{name} {found[name]['test']['perplexity']:.2f}" for name in ("ngram", "mixture"))
        print(run.id, run.name, *shown, flush=True)
        _keep(MIXTURES, kept)


def again(*runs: str) -> None:
    """Train runs again: every metric must be the same to the last digit."""
    for run in (read_run(Path(run) / "run.json") for run in runs):
        with TemporaryDirectory() as output:
            record = train(make_recipe(run.config), output).record
        same = record["id"] == run.id and record["metrics"] == run.metrics
        print(f"{run.id}, {run.name}, seed {run.seed}: {'the same' if same else 'not the same'}", flush=True)
        if not same:
            raise RunError(f"{run.id} had {run.metrics} and now has {record['metrics']}")


def _kept(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text())) if file.is_file() else {}


def _keep(file: Path, found: dict[str, Any]) -> None:
    write_text(file, json.dumps(found, indent=1) + "\n")
