"""What a recipe trains: the untrained model, the training text in batches, the loss, and what its method changes.

A table may be made from other text than that of training (`regularizer.text`) or be given (`regularizer.table`). More
text is read as the training text was: tokenized, cleaned and cut into tokens by the run's own pipeline. Its sentences
that are also in the validation or test text are left out, since the table would know them.

Corpora are kept in memory: many runs on the same text read it once. Under torchrun every process sets up the same; the
first one fills the caches.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lidstone.errors import DataError, InputError, RunError
from lidstone.files import hash_file, read_json
from lidstone.lab.corpus.named import CORPORA, cache_root
from lidstone.lab.corpus.pipeline import TextPipeline, model_folder
from lidstone.lab.corpus.prepare import is_clean, prepare_corpus
from lidstone.lab.corpus.prepared import Prepared, Sentences
from lidstone.lab.methods.base import BatchChange, Regularizer, TrainingText
from lidstone.lab.recipe.recipe import Recipe
from lidstone.lab.recipe.sections import Corpus
from lidstone.lab.run.batches import Batches, BatchSize
from lidstone.lab.run.models import PAD
from lidstone.text.inputs import expand
from lidstone.text.reader import read_lines

if TYPE_CHECKING:
    from lidstone.hf.stored_teacher import StoredTeacher
    from lidstone.loss.losses import SmoothedLoss
    from lidstone.ngram.table import BackoffTable


KEPT = 4
"""How many corpora are kept in memory: a sweep may vary the text, for instance corpus.fraction."""
_HELD: dict[str, Prepared] = {}
_HELD_TEXT: dict[str, Sentences] = {}


@dataclass(frozen=True)
class Setup:
    """Everything that `fit` needs in addition to its settings."""

    model: Any
    batches: Batches
    loss: SmoothedLoss
    batch_change: BatchChange | None = None
    """what the method does to the batches of training"""
    teacher: StoredTeacher | None = None


def set_up(recipe: Recipe, prepared: Prepared) -> Setup:
    """Build the model, the batches and the loss of a recipe, and set the number of CPU threads."""
    import torch

    if recipe.training.threads is not None:
        torch.set_num_threads(recipe.training.threads)
    model, settings = make_model(recipe, prepared), recipe.regularizer
    text = training_text(prepared, settings)
    if settings.teacher is not None:
        from lidstone.lab.run.teaching import recipe_teacher

        text = replace(text, teacher=recipe_teacher(recipe, prepared, text))
    with first_process_first():
        settings.method.change_model(settings, text, model)
        batch_change = settings.method.batch_change(settings, text, model)
    batches = make_batches(recipe, prepared, getattr(model.config, "max_position_embeddings", None))
    if recipe.task == "lm" and not _pretrained(recipe):
        model.config.trained_window = batches.longest  # saved with the model; see `window_of`
    steps = recipe.training.steps(len(batches), process_count())
    with first_process_first():
        loss = make_loss(settings, text, steps, linear=_takes_hidden_states(recipe))
    return Setup(model, batches, loss, batch_change, text.teacher)


def training_text(prepared: Prepared, settings: Regularizer | None = None) -> TrainingText:
    """The text of a prepared corpus as a method reads it; counts and tables are cached beside the corpora."""
    train, settings = prepared.train.target, settings or Regularizer()
    more = table_text(prepared, settings.text).stream if settings.text else None
    given = table_of_file(prepared, settings) if settings.table else None
    return TrainingText(
        prepared.vocab, train.stream, train.lengths, prepared.valid.target.stream, cache_root(), more, given
    )


def table_source(prepared: Prepared, settings: Regularizer) -> dict[str, Any] | None:
    """The content of the text or file of a recipe's table, and its teacher's runs; None for the training text alone."""
    found: dict[str, Any] = {}
    if settings.table:
        found = {"sha256": hash_file(_existing(settings.table))}
    elif settings.text:
        text = table_text(prepared, settings.text)
        checksum = hashlib.sha256(text.stream.astype("<i4").tobytes()).hexdigest()
        found = {"sha256": checksum, "sentences": len(text), "tokens": len(text.stream)}
    if settings.teacher is not None and any(isinstance(run, str) for run in settings.teacher.runs):
        found["teacher"] = [run if isinstance(run, int) else _id_of(run) for run in settings.teacher.runs]
    return found or None


def _id_of(folder: str) -> str:
    """The id of a finished run."""
    record = Path(folder) / "run.json"
    if not record.is_file():
        raise DataError(f"there is no run {folder}", hint="check regularizer.teacher.runs: folders with run.json")
    return str(read_json(record)["id"])


def table_text(prepared: Prepared, names: Sequence[str]) -> Sentences:
    """The text of files, globs and named corpora in the tokens of a prepared corpus; the last one stays in memory."""
    corpus = Corpus.model_validate(prepared.manifest["settings"]["corpus"])
    parts = [_read(name, corpus.target_language) for name in names]
    digest = hashlib.sha256(prepared.key.encode())
    for lines, tokenized in parts:
        digest.update("\n".join([str(tokenized), *lines, ""]).encode())
    key = digest.hexdigest()
    if key not in _HELD_TEXT:
        _HELD_TEXT.clear()
        _HELD_TEXT[key] = _encode(prepared, parts, corpus)
    return _HELD_TEXT[key]


def table_of_file(prepared: Prepared, settings: Regularizer) -> BackoffTable:
    """The table of `regularizer.table`, with the ids of the run."""
    from lidstone.ngram.scorer.models import load_any_table

    table = load_any_table(_existing(str(settings.table)), prepared.vocab)
    if table.order != settings.order:
        raise InputError(
            f"{settings.table} has order {table.order}, but regularizer.order is {settings.order}",
            hint=f"set regularizer.order to {table.order}",
        )
    return table


def _existing(name: str) -> Path:
    if not Path(name).is_file():
        raise DataError(f"there is no table {name}", hint="check regularizer.table: the path of a file")
    return Path(name)


def _read(name: str, language: str) -> tuple[list[str], bool]:
    """The lines of a text, and whether they are tokenized already."""
    if name in CORPORA and not Path(name).exists():
        found = CORPORA[name].read((language,))
        return [sample[-1] for sample in found.train], found.tokenized
    return [line for item in expand([name]) for line in read_lines(item.open())], False


def _encode(prepared: Prepared, parts: Sequence[tuple[list[str], bool]], corpus: Corpus) -> Sentences:
    words = [line for lines, tokenized in parts for line in _pipeline(prepared, tokenized).words(lines)]
    kept = [line for line in words if is_clean((line,), corpus)]
    ids = prepared.target.encode_words(list(dict.fromkeys(kept)) if corpus.distinct else kept)
    held_out = {sentence.tobytes() for split in (prepared.valid, prepared.test) for sentence in split.target}
    fresh = [sentence for sentence in ids if len(sentence) and sentence.tobytes() not in held_out]
    if not fresh:
        raise DataError(
            f"no sentence is left of the {len(words)} in regularizer.text",
            hint="check the files; sentences of the validation and test text are left out",
        )
    return Sentences.pack(fresh, prepared.vocab.eos)


def _pipeline(prepared: Prepared, tokenized: bool) -> TextPipeline:
    """The pipeline of the training text, without Moses tokenization for text that has it."""
    target = prepared.target
    return replace(target, tokenization="done") if tokenized and target.tokenization == "moses" else target


def make_loss(settings: Regularizer, text: TrainingText, steps: int, *, linear: bool = False) -> SmoothedLoss:
    """The loss of one method; `steps` is the length of the training, for schedules.

    `linear` takes hidden states instead of logits, if the method allows: faster, and without storing all logits.
    """
    from lidstone.loss.losses import LinearSmoothedCrossEntropy, SmoothedCrossEntropy

    make: type[SmoothedLoss] = LinearSmoothedCrossEntropy if linear else SmoothedCrossEntropy
    return settings.method.loss(settings, text, make, settings.schedule.over(steps))


def _pretrained(recipe: Recipe) -> bool:
    """Whether training continues a checkpoint, which has seen longer rows than this run may have."""
    return recipe.model.kind == "auto" and Path(str(recipe.model.checkpoint)).is_dir()


def checkpoint_source(recipe: Recipe) -> dict[str, str]:
    """The content of the checkpoint that is trained further, by file; empty without one."""
    if not _pretrained(recipe):
        return {}
    folder = model_folder(str(recipe.model.checkpoint))
    return {path.name: hash_file(path) for path in sorted(folder.glob("*.safetensors"))}


def _takes_hidden_states(recipe: Recipe) -> bool:
    """Whether the loss may take hidden states: our own networks, whose logits are one matrix product, in float32."""
    import torch

    from lidstone.lab.run.trainer import use_bf16

    if not recipe.regularizer.method.takes_hidden_states:
        return False
    return recipe.model.kind != "auto" and not use_bf16(recipe.training.precision, torch.cuda.is_available())


def make_model(recipe: Recipe, prepared: Prepared) -> Any:
    """The untrained model, whose weights depend on the seed alone."""
    import torch

    from lidstone.lab.run.models import build_model

    torch.manual_seed(recipe.training.seed)
    source = prepared.source.vocabulary.size if prepared.source else None
    return build_model(
        recipe.model,
        prepared.vocab.size,
        source_vocab_size=source,
        shared_vocabulary=recipe.tokenizer.shared_vocabulary,
    )


def make_batches(recipe: Recipe, prepared: Prepared, reach: int | None = None) -> Batches:
    """The training text in batches: sentences, blocks or pairs; `reach` is the longest sequence the model reads."""
    from lidstone.lab.run.batches import block_batches, check_pair_lengths, pair_batches, sentence_batches

    training, eos, split = recipe.training, prepared.vocab.eos, prepared.train
    size, seed = BatchSize(training.batch_tokens, training.batch_size), training.seed
    limit = reach or recipe.model.max_positions
    if split.source is not None:
        for name, other in (("validation", prepared.valid), ("test", prepared.test)):
            check_pair_lengths(list(other.source or ()), list(other.target), limit, name)
        sources, targets = list(split.source), list(split.target)
        return pair_batches(sources, targets, eos=eos, pad=PAD, limit=limit, size=size, seed=seed)
    marks = recipe.regularizer.method.marks(recipe.regularizer, split.target.lengths)
    if training.block_length is None:
        return sentence_batches(list(split.target), eos=eos, limit=limit, size=size, seed=seed, marks=marks)
    if training.block_length > limit:
        raise InputError(
            f"blocks of {training.block_length} tokens are longer than the model reads, {limit}",
            hint="set training.block_length lower",
        )
    return block_batches(split.target.stream, eos=eos, block=training.block_length, size=size, seed=seed, marks=marks)


def cached_corpus(recipe: Recipe, key: str | None = None) -> Prepared:
    """The prepared corpus of a recipe; with its key (`Prepared.key`), from memory if it is there.

    The key is a hash of the text and the settings, so a corpus in memory is never out of date. Without a key the text
    is read again.
    """
    if key is not None and key in _HELD:
        return _HELD[key]
    prepared = prepare_corpus(recipe)
    if key not in (None, prepared.key):
        raise RunError(
            f"the corpus of {recipe.name} is not the one that the sweep was started with",
            hint="was a text file changed, or does this machine have other files? Start the sweep again",
        )
    while len(_HELD) >= KEPT:
        _HELD.pop(next(iter(_HELD)))
    _HELD[prepared.key] = prepared
    return prepared


def process_count() -> int:
    """How many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def process_rank() -> int:
    """Which of them this is."""
    return int(os.environ.get("RANK", "0"))


@contextlib.contextmanager
def first_process_first() -> Iterator[None]:
    """Under torchrun the first process fills the caches; the others wait, then read them."""
    if process_count() == 1:
        yield
        return
    import torch
    from accelerate import PartialState

    with PartialState(cpu=not torch.cuda.is_available()).main_process_first():
        yield
