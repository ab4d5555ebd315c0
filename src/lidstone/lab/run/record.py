"""What reports read: `run.json`, everything of one run, the id that names it, and `explorer.json`.

The id is the start of a hash of everything that the result depends on: the recipe, the checksums of the data, the seed.
So a complete run is found and not computed again. The explorer shows p, p~, p+ and p- of a recipe's smoothers after
frequent histories, from the tables that the runs were trained with; it is written once per folder of runs.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lidstone import __version__
from lidstone.errors import LidstoneError, RunError
from lidstone.files import atomic_write, jsonable, read_object, try_lock, write_json
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.corpus.prepared import Prepared
from lidstone.lab.recipe.recipe import Recipe
from lidstone.lab.run.setup import checkpoint_source, table_source, training_text

if TYPE_CHECKING:
    from lidstone.ngram.counts import Counts


Done = TypeVar("Done")
SCHEMA = 1
CHECKPOINTS = "checkpoints"
SENTENCES = "sentences.json.gz"
EXPLORER = "explorer.json"
HISTORIES = 40
"""How many histories the explorer has."""
_IRRELEVANT = ("sweep", "methods", "name")  # keys of a recipe that do not change what is trained


class RunBusy(RunError):
    """Another process computes this run."""


def run_id(recipe: Recipe, prepared: Prepared) -> str:
    """The first 12 hex digits of the hash of recipe, data and seed."""
    source, checkpoint = table_source(prepared, recipe.regularizer), checkpoint_source(recipe)
    return identity(recipe, prepared.signature, prepared.vocab.token_fingerprint, source, checkpoint)


def identity(
    recipe: Recipe,
    corpus: Mapping[str, Any],
    vocabulary: str,
    source: Mapping[str, Any] | None = None,
    checkpoint: Mapping[str, str] | None = None,
) -> str:
    """The id of a run, from values that its record has: the checksums of the corpus and the vocabulary's hash.

    `source` is the text or the file of the table, if it is not the training text: its content counts, not its path;
    and the ids of a teacher's runs. So it is with the weights of the `checkpoint` that is trained further.
    """
    config, given = recipe.to_dict(), dict(source or {})
    for key in {"text", "table"} & set(config["regularizer"]):
        config["regularizer"][key] = given["sha256"]
    if "teacher" in given:
        config["regularizer"]["teacher"]["runs"] = given["teacher"]
    if checkpoint:
        config["model"]["checkpoint"] = dict(checkpoint)
    for section in _IRRELEVANT:
        config.pop(section, None)
    for key in ("threads", "report_to"):
        config["training"].pop(key, None)
    config["corpus"] = {split: corpus[split] for split in ("train", "valid", "test")}
    if recipe.task == "mt" and recipe.corpus.tokenization == "done":  # the same tokens, other references than with none
        config["corpus"]["detokenized"] = recipe.corpus.target_language
    config["regularizer"].pop("name")
    hashed = json.dumps([SCHEMA, config, vocabulary], sort_keys=True)
    return hashlib.sha256(hashed.encode()).hexdigest()[:12]


def versions() -> dict[str, str]:
    """The versions of the software and the platform."""
    from importlib.metadata import version

    packages = {name: version(name) for name in ("torch", "transformers", "numpy")}
    return {"lidstone": __version__, **packages, "python": sys.version.split()[0], "platform": platform.platform()}


def peak_memory() -> int | None:
    """Peak memory of this process in bytes: main memory, or the GPU's where there is one; None on Windows."""
    import torch

    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    status = Path("/proc/self/status")  # on Linux, `ru_maxrss` of a new process starts at its parent's
    found = re.search(r"VmHWM:\s+(\d+)", status.read_text()) if status.exists() else None
    if found:
        return int(found[1]) * 1024
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def find_or_compute(folder: Path, find: Callable[[], Done | None], compute: Callable[[], Done]) -> Done:
    """What `find` gives for a run's folder; if that is None, `compute` it while holding the folder's lock.

    A run that another process completes in the meantime is found; one that it is still computing is a `RunBusy`.
    """
    found = find()
    if found is not None:
        return found
    with try_lock(folder.parent, folder.name) as mine:
        if not mine:
            raise RunBusy(f"another process is training {folder}", hint="wait until it has finished, or stop it")
        found = find()
        return compute() if found is None else found


def write_record(folder: Path, record: dict[str, Any], sentences: dict[str, Any]) -> None:
    """Write the sentences, then `run.json`: a folder that has it is a complete run."""
    with atomic_write(folder / SENTENCES) as temporary:
        temporary.write_bytes(
            gzip.compress(json.dumps(jsonable(sentences), ensure_ascii=False, allow_nan=False).encode(), mtime=0)
        )
    _write(folder, record)


def claim(folder: Path, record: dict[str, Any], name: str) -> None:
    """Take a complete run as a method's own: checkpoints that an end left are removed, and its record has the name.

    Reports show a run under each of its names.
    """
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    if name in names_of(record):
        return
    with try_lock(folder.parent, f"{folder.name}.names", wait=True):
        record = read_record(folder) or record
        _write(folder, {**record, "names": [*names_of(record), name]})


def names_of(record: dict[str, Any]) -> list[str]:
    """The methods that a run belongs to, the one that was trained first."""
    return list(record.get("names", [record["name"]]))


def _write(folder: Path, record: dict[str, Any]) -> None:
    write_json(folder / "run.json", record, indent=1)


def read_record(folder: Path) -> dict[str, Any] | None:
    """The record of a complete run, None if there is none."""
    file = folder / "run.json"
    if not file.is_file():
        return None
    record = read_object(file, "run", hint="delete the folder and train again")
    return dict(record) if record.get("status") == "complete" else None


def write_explorer(recipe: Recipe, output: str | Path, prepared: Prepared | None = None) -> Path | None:
    """Write `explorer.json` into the folder of runs; None if no method has a smoother that is defined."""
    from lidstone.loss.split import explorer_data

    methods = [method for method in recipe.methods or (recipe.regularizer,) if method.smoother]
    if not methods:
        return None
    prepared, order = prepared or prepare_corpus(recipe), methods[0].order
    text = training_text(prepared)
    counts = text.count(order)
    tables = {}
    for method in (method for method in methods if method.order == order and not method.table_origin):
        with contextlib.suppress(LidstoneError):  # training that method reports it
            tables[method.name] = text.table(method, counts)
    if not tables:
        return None
    data = explorer_data(tables, counts, frequent_histories(counts), prepared.vocab.tokens)
    data["vocabulary"] = prepared.vocab.token_fingerprint  # as in run.json
    path = Path(output) / EXPLORER
    write_json(path, data)
    return path


def frequent_histories(counts: Counts, number: int = HISTORIES) -> Iterable[tuple[int, ...]]:
    """The sentence start, then the longest histories, those that occur most often first.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> list(frequent_histories(count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)))
    [(3,), (1,), (2,)]
    """
    if counts.order == 1:
        return [()]
    level = counts.trie.level(counts.order - 1)
    often = level.start + np.argsort(-counts.totals[level], kind="stable")[:number]
    found = [counts.trie.ngram(int(node)) for node in often if counts.totals[node]]
    start = (counts.vocab.bos,)
    return [start, *(history for history in found if history != start)]
