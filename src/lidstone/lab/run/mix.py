"""A saved model beside an n-gram model: mixtures for evaluation and generation, and minimal pairs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lidstone.errors import InputError, LidstoneError
from lidstone.hf.mixture import Mixture, ThreeScores
from lidstone.hf.perplexity import score_sentences, window_of
from lidstone.lab.evaluation.minimal_pairs import pair_scores, parse_pairs, summarize
from lidstone.lab.run.saved import SavedModel
from lidstone.ngram.table import BackoffTable
from lidstone.text.reader import read_lines
from lidstone.text.sequences import Ids
from lidstone.text.source import Source, name_of


def make_mixture(
    saved: SavedModel, table: BackoffTable, weight: float | None = None, valid: Source | None = None
) -> Mixture:
    """Mix a saved language model with a table; the weight as given, or by EM on validation text."""
    table.require(saved.target.vocabulary)
    if (weight is None) == (valid is None):
        raise InputError("a mixture needs one weight", hint="use --weight, or validation text with --fit-weight")
    mixture = Mixture(saved.model, table, 0.5 if weight is None else weight)
    return mixture if valid is None else mixture.fit(encoded(saved, read_lines(valid)))


def own_ngram(run: str | Path) -> tuple[BackoffTable, float]:
    """The n-gram model of a run's own training text and the weight of the mixture, as its `run.json` has them."""
    from lidstone.lab.corpus.prepare import prepare_corpus
    from lidstone.lab.recipe.recipe import load_recipe
    from lidstone.lab.run.ngram_baseline import fit_ngram
    from lidstone.lab.run.record import read_record

    folder = Path(run).parent if Path(run).is_file() else Path(run)
    record = read_record(folder) if folder.is_dir() else None
    if record is None or "ngram" not in record:
        raise InputError(f"{run} has no n-gram model of its training text", hint="pass a table instead of 'train'")
    try:
        prepared = prepare_corpus(load_recipe(folder))
    except LidstoneError as error:
        hint = "run this where it was trained: paths of a recipe are relative"
        raise InputError(f"the training text of {run} cannot be read again: {error.message}", hint=hint) from error
    table = fit_ngram(prepared, int(record["ngram"]["order"]))
    if table.signature["counts"] != record["ngram"]["table"]["counts"]:
        raise InputError(f"the training text of {run} has changed", hint="put it back, or pass a table and --weight")
    return table, float(record["mixture"]["weight"])


def mixed_perplexities(mixture: Mixture, ids: Sequence[Ids], words: int) -> dict[str, Any]:
    """Perplexities of the n-gram model and of the mixture, in addition to those of the network."""
    scores = mixture.score(ids)
    return {
        **scores.network.summary(words),
        "ngram": {"order": mixture.table.order, **scores.ngram.summary(words)},
        "mixture": {"weight": mixture.weight, **scores.mixture.summary(words)},
    }


def evaluate_pairs(saved: SavedModel, file: Source, mixture: Mixture | None = None) -> dict[str, Any]:
    """The share of minimal pairs whose good sentence is likelier; with a mixture for all three models."""
    lines = list(read_lines(file))
    pairs = parse_pairs(lines, name_of(file))
    good, bad = (encoded(saved, [getattr(p, side) for p in pairs], keep_blank=True) for side in ("good", "bad"))
    if mixture is None:
        eos = saved.target.vocabulary.eos
        scores = pair_scores(good, bad, lambda ids: score_sentences(saved.model, ids, eos=eos).nll)
        return {**summarize(pairs, scores), "signature": signature_of(saved, lines)}
    three: list[ThreeScores] = []

    def network(ids: Sequence[Ids]) -> Any:
        three.append(mixture.score(ids))
        return three[0].network.nll

    result = summarize(pairs, pair_scores(good, bad, network))
    result["ngram"] = summarize(pairs, pair_scores(good, bad, lambda ids: three[0].ngram.nll))
    result["mixture"] = summarize(pairs, pair_scores(good, bad, lambda ids: three[0].mixture.nll))
    return {**result, "signature": signature_of(saved, lines, mixture)}


def encoded(saved: SavedModel, lines: Iterable[str], *, keep_blank: bool = False) -> list[Ids]:
    """Lines as ids, read as the training text was; lines without words are left out, or are empty."""
    ids: list[Ids] = [np.asarray(found, dtype=np.int64) for found in saved.target.encode(list(lines))]
    return ids if keep_blank else [found for found in ids if len(found)]


def signature_of(saved: SavedModel, lines: Sequence[str], mixture: Mixture | None = None) -> str:
    """What a result was made from: the model, its vocabulary, the text and, where there is one, the mixture."""
    from lidstone import __version__

    mixed = ""
    if mixture is not None:
        table = _hash(json.dumps(mixture.table.signature, sort_keys=True, default=str))
        mixed = f"|mix:{table}|weight:{mixture.weight:.4g}"
    model = f"model:{saved.name}|vocab:{saved.target.vocabulary.fingerprint}"
    if saved.task == "lm":
        model += f"|window:{window_of(saved.model)}"
    return f"{model}|text:{_hash(chr(10).join(lines))}{mixed}|lidstone:{__version__}"


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
