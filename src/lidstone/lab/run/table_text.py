"""What a recipe's table is made from where it is not the training text: `regularizer.text` and `regularizer.table`.

More text is read as the training text was: tokenized, cleaned and cut into tokens by the run's own pipeline. Its
sentences that are also in the validation or test text are left out, since the table would know them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lidstone.errors import DataError, InputError
from lidstone.files import hash_file
from lidstone.lab.corpus.named import CORPORA
from lidstone.lab.corpus.pipeline import Ids, TextPipeline, encode_pieces
from lidstone.lab.corpus.prepare import is_clean
from lidstone.lab.corpus.prepared import Prepared, Sentences
from lidstone.lab.methods.base import Regularizer
from lidstone.lab.recipe.sections import Corpus
from lidstone.text.inputs import expand
from lidstone.text.reader import read_lines

if TYPE_CHECKING:
    from lidstone.ngram.table import BackoffTable

Lines = tuple[list[str], bool]
"""The lines of a text, and whether they are tokenized already."""
_HELD: dict[str, Sentences] = {}


def table_source(prepared: Prepared, settings: Regularizer) -> dict[str, Any] | None:
    """The content of the text or file of a recipe's table, for run.json; None for the training text."""
    if settings.table:
        return {"sha256": hash_file(_existing(settings.table))}
    if not settings.text:
        return None
    text = table_text(prepared, settings.text)
    checksum = hashlib.sha256(text.stream.astype("<i4").tobytes()).hexdigest()
    return {"sha256": checksum, "sentences": len(text), "tokens": len(text.stream)}


def table_text(prepared: Prepared, names: Sequence[str]) -> Sentences:
    """The text of files, globs and named corpora in the tokens of a prepared corpus; the last one stays in memory."""
    corpus = Corpus.model_validate(prepared.manifest["settings"]["corpus"])
    parts = [_read(name, corpus.target_language) for name in names]
    digest = hashlib.sha256(prepared.key.encode())
    for lines, tokenized in parts:
        digest.update("\n".join([str(tokenized), *lines, ""]).encode())
    key = digest.hexdigest()
    if key not in _HELD:
        _HELD.clear()
        _HELD[key] = _encode(prepared, parts, corpus)
    return _HELD[key]


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


def _read(name: str, language: str) -> Lines:
    if name in CORPORA and not Path(name).exists():
        found = CORPORA[name].read((language,))
        return [sample[-1] for sample in found.train], found.tokenized
    return [line for item in expand([name]) for line in read_lines(item.open())], False


def _encode(prepared: Prepared, parts: Sequence[Lines], corpus: Corpus) -> Sentences:
    words = [line for lines, tokenized in parts for line in _pipeline(prepared, tokenized).words(lines)]
    kept = [line for line in words if is_clean((line,), corpus)]
    ids = _ids(prepared.target, list(dict.fromkeys(kept)) if corpus.distinct else kept)
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


def _ids(pipeline: TextPipeline, words: list[str]) -> list[Ids]:
    if pipeline.checkpoint is not None:
        return pipeline.encode(words)
    return [np.asarray(encode_pieces(pieces, pipeline.vocabulary), np.int32) for pieces in pipeline.pieces(words)]
