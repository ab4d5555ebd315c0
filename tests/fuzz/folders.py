"""Hostile folders, archives and states: parts changed with knowledge of their structure, and checksums made again.

A folder is a seed as a zip archive of its files; a mutation changes one of them and whatever vouches for it.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import random
import tarfile
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz.mutations import _array_change, arrays_changed, bytes_changed, json_changed
from tests.fuzz.works import TEXT
from tests.tiny import lm_values, recipe, write_texts

from lidstone.errors import LidstoneError
from lidstone.files import with_checksum
from lidstone.hf.stored_teacher import StoredTeacher, load_teacher
from lidstone.lab.run.checkpoints import last_checkpoint, summarize_training, trained_seconds, write_checksums

NAMES = (
    "a.txt",
    "../a.txt",
    "/a.txt",
    "a/../../b",
    "./a.txt",
    "C:\\a",
    "a.txt b",
    "\u2028",
    "x" * 5000,
    "",
    ".",
    "d/",
)
KINDS = (tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, b"Z",
         tarfile.GNUTYPE_SPARSE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME)  # fmt: skip
CHECKPOINT = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")
Files = dict[str, bytes]


def packed(folder: Path) -> bytes:
    """The files of a folder as a zip archive."""
    return zipped({str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()})


def zipped(files: Files) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def unzipped(data: bytes) -> Files:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def in_folder(use: Callable[[Path], object]) -> Callable[[Path], None]:
    """What is done with a folder, for the archive of one."""

    def unpacked(path: Path) -> None:
        with tempfile.TemporaryDirectory(dir=path.parent) as home:
            for name, data in unzipped(path.read_bytes()).items():
                target = Path(home) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
            use(Path(home))

    return unpacked


@functools.cache
def trained() -> tuple[bytes, bytes]:
    """A prepared corpus and a saved model, each of a run of two steps."""
    import os

    from lidstone.lab.run.run import train

    with tempfile.TemporaryDirectory() as home:
        before, os.environ["LIDSTONE_CACHE"] = os.environ.get("LIDSTONE_CACHE"), f"{home}/cache"
        try:
            values = lm_values(write_texts(Path(home), (40, 8, 8)), max_steps=2, eval_every=2, accumulation=1)
            run = train(recipe(values), Path(home) / "runs")
        finally:
            del os.environ["LIDSTONE_CACHE"]
            os.environ |= {} if before is None else {"LIDSTONE_CACHE": before}
        (corpus,) = (Path(home) / "cache" / "prepared").glob("*")
        return packed(corpus), packed(run.folder / "model")


def corpus_changed(data: bytes, rng: random.Random) -> bytes:
    """A prepared corpus whose manifest vouches for what was changed."""
    files = unzipped(data)
    name = rng.choice(("manifest.json", "target.json", "ids.npz", "ids.npz"))
    files[name] = _npz_changed(files[name], rng) if name == "ids.npz" else json_changed(files[name], rng)
    manifest = json.loads(files["manifest.json"])
    if isinstance(manifest, dict):
        if isinstance(manifest.get("files"), dict):
            manifest["files"] |= {name: hashlib.sha256(files[name]).hexdigest() for name in ("ids.npz", "target.json")}
        files["manifest.json"] = json.dumps(with_checksum(manifest)).encode()
    return zipped(files)


def _npz_changed(data: bytes, rng: random.Random) -> bytes:
    with np.load(io.BytesIO(data)) as stored:
        arrays = dict(stored)
    name, out = rng.choice(list(arrays)), io.BytesIO()
    kind = rng.randrange(6)
    if kind == 0:
        arrays[name] = np.array([{"a": 1}, None], dtype=object)  # a pickle
    elif kind == 1:
        arrays[name] = arrays[name].reshape(-1, 1)
    else:
        changed = _array_change(arrays[name].copy(), rng)
        arrays = {key: value for key, value in {**arrays, name: changed}.items() if value is not None}
    np.savez(out, **arrays)
    return out.getvalue()


def use_corpus(folder: Path) -> None:
    from lidstone.lab.corpus.prepared import load

    found = load(folder)
    assert isinstance(found.key, str) and found.manifest["settings"]["corpus"] and found.signature["name"] == found.name
    for split in (found.train, found.valid, found.test):
        assert all(((ids >= 0) & (ids < found.vocab.size)).all() for ids in split.target)


def model_changed(data: bytes, rng: random.Random) -> bytes:
    """A model folder whose `lidstone.json` vouches for what was changed."""
    files = unzipped(data)
    name = rng.choice([name for name in files if name.endswith(".json")] * 3 + ["model.safetensors"])
    change = bytes_changed if name == "model.safetensors" or rng.random() < 0.1 else json_changed
    files[name] = change(files[name], rng)
    try:
        facts = json.loads(files["lidstone.json"])
        facts["files"] = {name: f"{zlib.crc32(files[name]):08x}" for name in facts["files"] if name in files}
        files["lidstone.json"] = json.dumps(with_checksum(facts)).encode()
    except (ValueError, LookupError, TypeError):
        pass  # changed too much for that
    return zipped(files)


def use_model(folder: Path) -> None:
    from lidstone.lab.run.saved import load_saved

    load_saved(folder)


@functools.cache
def interrupted() -> bytes:
    """The checkpoints of a training, as far as they are read without the weights."""
    args = {"should_training_stop": False}
    lines = [{"step": 2, "epoch": 1.0, "eval_loss": 3.0, "eval_perplexity": 20.1, "eval_seconds": 1.5}]
    with tempfile.TemporaryDirectory() as home:
        for step in (2, 4):
            folder = Path(home) / f"checkpoint-{step}"
            folder.mkdir()
            for name in CHECKPOINT[:-1]:
                (folder / name).write_bytes(f"{name} {step}".encode())
            state = {"global_step": step, "max_steps": 9, "best_global_step": 2, "log_history": lines}
            control = {"stateful_callbacks": {"TrainerControl": {"args": args, "attributes": {}}}}
            (folder / "trainer_state.json").write_text(json.dumps(state | control))
            write_checksums(folder)
        return packed(Path(home))


def checkpoint_changed(data: bytes, rng: random.Random) -> bytes:
    """A checkpoint whose checksums vouch for what was changed."""
    files = unzipped(data)
    home = rng.choice(("checkpoint-2", "checkpoint-4", "checkpoint-4"))
    name = f"{home}/{rng.choice(('trainer_state.json',) * 4 + ('checksums.json',))}"
    files[name] = json_changed(files[name], rng)
    sums = json.loads(files[f"{home}/checksums.json"])
    if isinstance(sums, dict):
        if isinstance(sums.get("files"), dict):
            sums["files"] = {each: f"{zlib.crc32(files[f'{home}/{each}']):08x}" for each in CHECKPOINT}
        files[f"{home}/checksums.json"] = json.dumps(with_checksum(sums)).encode()
    return zipped(files)


def use_checkpoint(folder: Path) -> None:
    found = last_checkpoint(folder)
    if found is None or found.step < 4:
        raise LidstoneError("the newest checkpoint is not used")
    assert found.path.parent == found.best.parent == folder and found.finished in (True, False)
    summarize_training(found.state, "perplexity", trained_seconds(found.state["log_history"]))


def archive_made(data: bytes, rng: random.Random) -> bytes:
    """A sound archive of hostile members."""
    out, text = io.BytesIO(), TEXT[: rng.randrange(200)].encode()
    if rng.random() < 0.5:
        with tarfile.open(fileobj=out, mode=rng.choice(("w", "w:gz", "w:xz")), errors="surrogatepass") as tar:
            for name in _names(rng):
                info = tarfile.TarInfo(name)
                info.type, info.linkname = rng.choice(KINDS[:1] * 8 + KINDS), rng.choice(NAMES)
                info.size, info.mode = len(text), rng.choice((0o644, 0o4777, 0))
                tar.addfile(info, io.BytesIO(text))
    else:
        with zipfile.ZipFile(out, "w") as archive:
            for name in _names(rng):
                made = zipfile.ZipInfo(name.encode(errors="replace").decode())
                made.external_attr = rng.choice((0o100644, 0o120777, 0o010644, 0)) << 16
                made.compress_type = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
                warnings.simplefilter("ignore")  # of names that occur twice
                archive.writestr(made, rng.choice((text, b"\0" * 80_000_000 if rng.random() < 0.01 else text)))
    return bytes_changed(out.getvalue(), rng) if rng.random() < 0.2 else out.getvalue()


def _names(rng: random.Random) -> list[str]:
    return ["a.txt", *rng.choices(NAMES, k=rng.randrange(3))] if rng.random() < 0.8 else rng.choices(NAMES, k=2)


def merges_changed(data: bytes, rng: random.Random) -> bytes:
    """Merges of pieces that are there, are not there yet, repeat, or end a word twice."""
    pieces = ["t", "h", "e</w>", "th", "the</w>", "a", "</w>", "e", "", "\u00e9", "t</w></w>", " ", "x" * 300]
    lines = [f"{rng.choice(pieces)} {rng.choice(pieces)}" for _ in range(rng.randrange(12))]
    header = rng.choice(("#version: 0.2", "#version: 0.1", "#version: 9", "", "#version: 0.2 x"))
    return "\n".join([header, *lines, ""]).encode()


@functools.cache
def unfinished() -> bytes:
    """The folder of a filter that was interrupted, with its text and its model."""
    from lidstone.ngram.filter import checkpoint

    with tempfile.TemporaryDirectory() as home, _every_chunk():
        folder = Path(home)
        (folder / "in.txt").write_text("the cat sat on the mat\na dog and a cat\nthe end\n" * 12)
        done, stop = checkpoint.FilterFiles.done, iter([False] * 4 + [True])

        def stopped(files: Any, *arguments: Any) -> None:
            done(files, *arguments)
            if next(stop):
                raise KeyboardInterrupt

        checkpoint.FilterFiles.done = stopped  # type: ignore[method-assign]
        try:
            continue_filter(folder)
        except KeyboardInterrupt:
            pass
        finally:
            checkpoint.FilterFiles.done = done  # type: ignore[method-assign]
        assert (folder / "out.state").exists()
        return packed(folder)


class _every_chunk:
    def __enter__(self) -> None:
        from lidstone.ngram.filter import checkpoint

        self.before, checkpoint.SECONDS = checkpoint.SECONDS, 0.0

    def __exit__(self, *_: object) -> None:
        from lidstone.ngram.filter import checkpoint

        checkpoint.SECONDS = self.before


def continue_filter(folder: Path) -> None:
    import os

    from tests.fuzz.parsers import fitted

    from lidstone.ngram.filter.filter import filter_documents

    before = Path.cwd()
    os.chdir(folder)
    try:
        filter_documents(fitted(), "in.txt", "out", keep=0.5, jobs=1, chunk_bytes=100)
    finally:
        os.chdir(before)


def state_changed(data: bytes, rng: random.Random) -> bytes:
    """A state with other values and a new checksum, or other parts."""
    files = unzipped(data)
    name = rng.choice(("out.state", "out.state", "out.state", "out.scores", "out.partial"))
    files[name] = bytes_changed(files[name], rng) if name != "out.state" else json_changed(files[name], rng)
    state = json.loads(files["out.state"])
    if isinstance(state, dict):
        files["out.state"] = json.dumps(with_checksum(state)).encode()
    return zipped(files)


@functools.cache
def taught() -> bytes:
    """A teacher of one shard."""
    from lidstone.hf.stored_teacher import save_manifest, teacher_of

    words = [[(5, -0.5)], [(0, -0.25), (5, -2.0), (7, -3.0)]]
    with tempfile.TemporaryDirectory() as home:
        (shard,) = teacher_of([([5, 0], words), ([5, 6, 0], [*words, words[0]])]).shards
        shard.save(Path(home) / "shard-00000.safetensors", {})
        save_manifest(Path(home), {"vocabulary": "x"}, ["shard-00000.safetensors"])
        return packed(Path(home))


def teacher_changed(data: bytes, rng: random.Random) -> bytes:
    """A teacher whose manifest vouches for its shard."""
    files = unzipped(data)
    name = rng.choice(("teacher.json", "shard-00000.safetensors", "shard-00000.safetensors"))
    if name == "teacher.json":
        files[name] = json_changed(files[name], rng)
    else:
        with tempfile.TemporaryDirectory() as home:
            files[name] = arrays_changed(files[name], rng, Path(home))
    manifest = json.loads(files["teacher.json"])
    if isinstance(manifest, dict):
        if isinstance(manifest.get("files"), dict):
            manifest["files"] |= {name: f"{zlib.crc32(files[name]):08x}" for name in manifest["files"] if name in files}
        files["teacher.json"] = json.dumps(with_checksum(manifest)).encode()
    return zipped(files)


def use_teacher(folder: Path) -> None:
    use_stored(load_teacher(folder))


def use_stored(teacher: StoredTeacher) -> None:
    for number in range(len(teacher)):
        found = teacher[number]
        assert not (found.logprobs > 0).any()  # ids outside the vocabulary are refused by the loss
