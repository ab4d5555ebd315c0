"""Teachers made of runs: that of a recipe, in the cache; and those of `lidstone teach`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lidstone.errors import InputError, RunError, VocabularyMismatch
from lidstone.files import try_lock
from lidstone.hf.stored_teacher import StoredTeacher
from lidstone.hf.teach import TeacherModel, fingerprint_of, teach
from lidstone.lab.corpus.named import cache_root
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.corpus.prepared import Prepared, Sentences
from lidstone.lab.methods.base import Regularizer, TeacherSettings, TrainingText, folds_of
from lidstone.lab.recipe.recipe import Recipe, apply_overrides, load_recipe, make_recipe
from lidstone.lab.run.saved import SavedModel, load_saved
from lidstone.lab.run.setup import process_count
from lidstone.lab.run.use import encoded
from lidstone.text.reader import read_lines

if TYPE_CHECKING:
    from lidstone.ngram.table import BackoffTable


def recipe_teacher(recipe: Recipe, prepared: Prepared, text: TrainingText) -> StoredTeacher:
    """The teacher of a recipe for its training text; its networks and its columns are made if they are not cached."""
    settings, given = recipe.regularizer, recipe.regularizer.teacher
    assert given is not None
    root = cache_root() / "teachers"
    root.mkdir(parents=True, exist_ok=True)
    models = [_network(recipe, prepared, given, number, root) for number in range(len(given.runs))]
    for saved in models:
        _check_vocabulary(saved, prepared.vocab.fingerprint, "the recipe's")
    tables = _tables(text, settings) if given.weight != 0 else []
    networks = [saved.model for saved in models]
    weight = given.weight
    if weight == "em":
        valid = list(prepared.valid.target)
        weight = TeacherModel(networks, prepared.vocab, given.weights).fit_weight(text.table(settings), valid)
    options: dict[str, Any] = {"weights": given.weights, "cross_fit": given.cross_fit, "temperature": given.temperature}
    facts = [[fingerprint_of(model) for model in networks], [table.signature for table in tables], weight, options]
    k = min(given.k or prepared.vocab.size, prepared.vocab.size)
    key = json.dumps([*facts, k, given.sample, prepared.key, len(text.stream)], default=str)
    folder = root / hashlib.sha256(key.encode()).hexdigest()[:16]
    with try_lock(root, folder.name, wait=True):
        return teach(
            networks, list(prepared.train.target), folder, vocab=prepared.vocab, top=k, sample=given.sample,
            tables=tables, weight=weight, **options,
        )  # fmt: skip


def _tables(text: TrainingText, settings: Regularizer) -> list[BackoffTable]:
    return text.fold_tables(settings, settings.folds) if settings.folds else [text.table(settings)]


def _network(recipe: Recipe, prepared: Prepared, given: TeacherSettings, number: int, root: Path) -> SavedModel:
    """The network of one of the runs; that of a seed is trained if it is not there."""
    from lidstone.lab.run.record import read_record, run_id
    from lidstone.lab.run.run import train

    run = given.runs[number]
    if isinstance(run, str):
        return load_saved(run, task="lm")
    plain = recipe.model_copy(update={"regularizer": Regularizer(), "methods": ()}).to_dict()
    own = make_recipe(apply_overrides(plain, [f"{key}={json.dumps(value)}" for key, value in given.set.items()]))
    own = own.model_copy(update={"training": own.training.model_copy(update={"seed": run})})
    text = without_fold(prepared, number, len(given.runs)) if given.cross_fit else prepared
    folder = root / "runs" / run_id(own, text)
    if process_count() > 1 and read_record(folder) is None:
        raise RunError("a teacher cannot be trained by several processes", hint="train the recipe in one process first")
    folder.parent.mkdir(exist_ok=True)
    with try_lock(root, folder.name, wait=True):
        train(own, folder.parent, prepared=text, resume=True)
    return load_saved(folder, task="lm")


def without_fold(prepared: Prepared, fold: int, folds: int) -> Prepared:
    """The corpus without the training sentences of a fold; sentence i belongs to fold i mod `folds`."""
    split = prepared.train
    kept = folds_of(np.ones(len(split), np.int64), folds) != fold
    target = Sentences.pack([ids for ids, keep in zip(split.target, kept, strict=True) if keep], prepared.vocab.eos)
    sha256 = hashlib.sha256(f"{split.sha256} without {fold} of {folds}".encode()).hexdigest()
    train = replace(split, target=target, words=split.words[kept], sha256=sha256)
    manifest = {**prepared.manifest, "key": f"{prepared.key}-{fold}-{folds}"}
    return replace(prepared, train=train, manifest=manifest)


def teach_text(
    runs: Sequence[str],
    text: str,
    output: str | Path,
    *,
    table: BackoffTable | None = None,
    ngram: Regularizer | None = None,
    weight: float | None = None,
    valid: str | None = None,
    **options: Any,
) -> StoredTeacher:
    """The teacher that runs or models are for a text; `train`: the training text of the first.

    `table` is mixed in, or the n-gram model of the text itself that `ngram` describes, with its folds. The weight is
    given, or fitted on the text `valid`, by default on the validation text of the first run.
    """
    models = [load_saved(run, task="lm") for run in runs]
    vocab = models[0].target.vocabulary
    for saved in models[1:]:
        _check_vocabulary(saved, vocab.fingerprint, f"{runs[0]}'s")
    own = prepare_corpus(load_recipe(runs[0])) if text == "train" and not Path(text).exists() else None
    sentences: Any = encoded(models[0], read_lines(text)) if own is None else list(own.train.target)
    held_out: Any = list(own.valid.target) if own else []
    if valid is not None:
        held_out = encoded(models[0], read_lines(valid))
    tables, whole = [] if table is None else [table], table
    if ngram is not None and sentences:
        packed = Sentences.pack(sentences, int(vocab.eos or 0))
        counted = TrainingText(vocab, packed.stream, packed.lengths, packed.stream, cache_root())
        tables, whole = _tables(counted, ngram), counted.table(ngram)
    networks = [saved.model for saved in models]
    if whole is not None and weight is None:
        if not held_out:
            raise InputError(
                "an n-gram model needs a weight", hint="use --weight, or validation text with --fit-weight"
            )
        model = TeacherModel(networks, vocab, options.get("weights") or ())
        weight = model.fit_weight(whole, held_out)
    return teach(networks, sentences, output, vocab=vocab, tables=tables, weight=weight or 0.0, **options)


def _check_vocabulary(saved: SavedModel, expected: str, whose: str) -> None:
    found = saved.target.vocabulary.fingerprint
    if found != expected:
        raise VocabularyMismatch(
            f"the vocabulary of {saved.name} ({found}) is not {whose} ({expected})",
            hint="teachers need the tokenizer of the network that learns from them",
        )
