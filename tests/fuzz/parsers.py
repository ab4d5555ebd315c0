"""What is fuzzed: for each parser sound files to begin with, how to change them, and what is done with the result.

`use` may return, or raise an error of our own tree in one line. Anything else is a finding: another exception, a crash,
more time or memory than allowed, or an answer that cannot be (a probability above one).
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import json
import random
import runpy
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from tests.fuzz import folders
from tests.fuzz.mutations import Mutation, arrays_changed, bytes_changed, json_changed, lines_changed, one_of

import lidstone as ld
from lidstone.hf.stored_teacher import load_teacher
from lidstone.ngram.formats.safetensors import save
from lidstone.ngram.smoothers.registry import OWN, get_smoother
from lidstone.text.raw import raw_text

TESTS = Path(__file__).parents[1]
RAW = ["the cat sat", "", " na\u00efve \u2028 \ufeff x", "y" * 300]
TEXT = "the cat sat on the mat\nthe dog sat\na cat and a dog\n\nthe end of the mat\non and on the cat sat\n" * 2


@dataclass(frozen=True)
class Parser:
    """One parser under attack."""

    seeds: Callable[[], list[bytes]]
    mutate: Mutation
    use: Callable[[Path], object]
    suffix: str = ""


@functools.cache
def counted(order: int = 3) -> ld.Counts:
    return ld.count_text(io.BytesIO(TEXT.encode()), order=order)


@functools.cache
def fitted() -> ld.BackoffTable:
    return ld.ModifiedKneserNey(fallback=(0.5, 1.0, 1.5)).fit(counted())


def saved(thing: ld.Counts | ld.BackoffTable) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        save(thing, Path(folder) / "x.safetensors")
        return (Path(folder) / "x.safetensors").read_bytes()


def tables() -> list[bytes]:
    table = fitted()
    return [
        saved(each) for each in (table, table.compact(16), table.compact(8, pack=True), table.compact(32, pack=True))
    ]


def restructured(data: bytes, rng: random.Random) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return arrays_changed(data, rng, Path(folder))


def use_table(path: Path) -> None:
    table = ld.load(path)
    if isinstance(table, ld.Counts):
        return use_counts_of(table)
    ids = np.arange(min(table.vocab.size, 6), dtype=np.int64)
    rows = table.prob([(), (table.vocab.bos,), tuple(int(word) for word in ids[:2])])
    assert np.isfinite(rows).all()
    ids = ids[table.vocab.events[ids]]
    if len(ids):
        table.logprob(ids, [(table.vocab.bos,)] * len(ids))
        table.perplexity([ids[:2]])
    return None


def use_counts(path: Path) -> None:
    loaded = ld.load(path)
    if isinstance(loaded, ld.Counts):
        use_counts_of(loaded)


def use_counts_of(counts: ld.Counts) -> None:
    for name in OWN:
        try:
            table = get_smoother(name).fit(counts)
        except ld.LidstoneError:
            continue
        rows = table.prob([(), (counts.vocab.bos,)])
        assert np.isfinite(rows).all() and (rows > -1e-9).all() and (rows < 1 + 1e-9).all(), name


def arpa() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        ld.write_arpa(fitted(), Path(folder) / "x.arpa")
        return [(Path(folder) / "x.arpa").read_bytes()]


def use_arpa(path: Path) -> None:
    table = ld.read_arpa(path)
    table.prob([(), (table.vocab.bos,)])


def use_recipe(path: Path) -> None:
    from lidstone.lab.recipe.recipe import load_recipe

    json.dumps(load_recipe(path).to_dict(), allow_nan=False)


def use_override(path: Path) -> None:
    from lidstone.lab.recipe.recipe import load_recipe

    text = path.read_bytes().decode("utf-8", "replace")
    json.dumps(load_recipe("demo", [text]).to_dict(), allow_nan=False)


def recipes() -> list[bytes]:
    from lidstone.lab.recipe.recipe import RECIPES

    return [path.read_bytes() for path in sorted(RECIPES.glob("*.yaml"))]


@functools.cache
def run_tree() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(TESTS / "run_trees.py")))


def records() -> list[bytes]:
    trees = run_tree()
    return [json.dumps(trees.record(name, 1, task=task)).encode() for name, task in (("katz", "lm"), ("none", "mt"))]


def use_record(path: Path) -> None:
    from lidstone.lab.report import Report
    from lidstone.lab.report.page import page
    from lidstone.lab.run.record import read_record

    with contextlib.suppress(ld.LidstoneError):
        read_record(path.parent)
    report = Report.from_runs(path)
    report.to_json(), report.to_latex(), report.to_markdown(), report.to_csv(), report.to_text(), page(report)


def sentences() -> list[bytes]:
    text = json.dumps({"nll": [1.0, 2.0], "tokens": [3, 4], "bleu_statistics": [[1] * 10] * 2})
    return [text.encode(), gzip.compress(text.encode())]


def use_sentences(path: Path) -> None:
    from lidstone.lab.report.runs import Run

    replace(Run.from_dict(run_tree().record("katz", 1)), sentences_file=path).sentences()


def codes() -> list[bytes]:
    return [b"#version: 0.2\nt h\nth e</w>\nc a\nca t</w>\na t</w>\n"]


def use_codes(path: Path) -> None:
    from lidstone.text.bpe import BPE

    BPE.load(path).encode_lines(["the cat sat"])


def tokenizers() -> list[bytes]:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    made = []
    for model, trainer in (
        (models.BPE(unk_token="<unk>"), trainers.BpeTrainer(vocab_size=60, special_tokens=["<unk>"])),
        (models.Unigram(), trainers.UnigramTrainer(vocab_size=40, unk_token="<unk>", special_tokens=["<unk>"])),
        (models.WordPiece(unk_token="<unk>"), trainers.WordPieceTrainer(vocab_size=60, special_tokens=["<unk>"])),
    ):
        tokenizer = Tokenizer(model)
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
        tokenizer.train_from_iterator(TEXT.splitlines(), trainer)
        made.append(tokenizer.to_str().encode())
    return made


def vocabulary_changed(data: bytes, rng: random.Random) -> bytes:
    """A tokenizer with other pieces, ids, scores or merges."""
    value = json.loads(data)
    name = rng.choice([name for name in ("vocab", "merges") if name in value["model"]])
    value["model"][name] = json.loads(json_changed(json.dumps(value["model"][name]).encode(), rng))
    return json.dumps(value).encode()


def use_tokenizer(path: Path) -> None:
    raw_text(tokenizer=str(path)).words(RAW)


def pieces() -> list[bytes]:
    import sentencepiece

    made = []
    for kind in ("unigram", "bpe"):
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT.splitlines()), model_writer=out, vocab_size=30, model_type=kind,
            minloglevel=2, hard_vocab_limit=False, num_threads=1,
        )  # fmt: skip
        made.append(out.getvalue())
    return made


def use_pieces(path: Path) -> None:
    raw_text(sentencepiece=str(path)).words(RAW)


def columns() -> list[bytes]:
    axolotl = {"input_ids": [5, 6], "target_token_ids": [[5, 7], [6]], "target_logprobs": [[-0.5, -2.0], [-0.1]]}
    vllm = {"prompt_token_ids": [5, 6], "prompt_logprobs": [None, {"6": {"logprob": -0.25}, "7": {"logprob": -3.0}}]}
    return [
        b"\n".join([json.dumps(row).encode()] * 3) for row in (axolotl, axolotl | {"target_mask": [[1, 0], [1]]}, vllm)
    ]


def row_changed(data: bytes, rng: random.Random) -> bytes:
    first, *rest = data.split(b"\n")
    return b"\n".join([*rest, json_changed(first, rng)])


def use_columns(path: Path) -> None:
    folders.use_stored(load_teacher(path))


def use_text(path: Path) -> None:
    counts = ld.count_text(path, order=2)
    ld.read_words(path, counts.vocab)
    for vocab in (fitted().vocab, ld.Vocabulary(size=5, eos=0, tokens=("</s>", "the", "cat", "sat", "on"))):
        with contextlib.suppress(ld.LidstoneError):
            ld.read_words(path, vocab)


def texts() -> list[bytes]:
    return [TEXT.encode(), "naïve café \u2028 \u00a0 x\nthe \x0c cat\n".encode(), gzip.compress(TEXT.encode())]


def archives() -> list[bytes]:
    made = []
    for mode in ("w:gz", "w:xz", "w:bz2", "w"):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode=mode) as tar:
            info = tarfile.TarInfo("a.txt")
            info.size = len(TEXT)
            tar.addfile(info, io.BytesIO(TEXT.encode()))
        made.append(out.getvalue())
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as archive:
            archive.writestr("a.txt", TEXT)
        made.append(out.getvalue())
    return made


def use_archive(path: Path) -> None:
    from lidstone.lab.corpus.download import extract

    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        extract(path, Path(folder), {"a.txt": "a.txt"})


def kenlm_binaries() -> list[bytes]:
    files = sorted((TESTS / "golden" / "files" / "kenlm").glob("*.bin"))
    return [path.read_bytes() for path in files if not path.name.startswith("wordless")]


def use_kenlm(path: Path) -> None:
    from lidstone import kenlm

    model = kenlm.Model(str(path))
    assert model.score("the cat sat") < np.inf  # -inf: a probability of 0


PARSERS = {
    "arpa": Parser(arpa, one_of(bytes_changed, lines_changed), use_arpa, ".arpa"),
    "table": Parser(tables, one_of(bytes_changed, restructured, restructured), use_table),
    "counts": Parser(lambda: [saved(counted())], one_of(bytes_changed, restructured, restructured), use_counts),
    "recipe": Parser(recipes, one_of(bytes_changed, lines_changed), use_recipe, ".yaml"),
    "override": Parser(
        lambda: [b"training.seed=3", b"methods.jelinek-mercer.gamma_plus=0.5", b"sweep.axes={training.epochs: [1, 2]}",
                 b"corpus.fraction=0.5", b"model.options={a: [1]}"], bytes_changed, use_override),
    "run.json": Parser(records, one_of(bytes_changed, json_changed, json_changed), use_record),
    "sentences": Parser(sentences, one_of(bytes_changed, json_changed), use_sentences),
    "bpe codes": Parser(codes, one_of(bytes_changed, lines_changed, folders.merges_changed), use_codes),
    "tokenizer": Parser(tokenizers, one_of(bytes_changed, json_changed, vocabulary_changed), use_tokenizer, ".json"),
    "sentencepiece": Parser(pieces, bytes_changed, use_pieces, ".model"),
    "text": Parser(texts, one_of(bytes_changed, lines_changed), use_text),
    "archive": Parser(archives, one_of(bytes_changed, folders.archive_made), use_archive),
    "kenlm binary": Parser(kenlm_binaries, bytes_changed, use_kenlm),
    "prepared": Parser(
        lambda: [folders.trained()[0]], folders.corpus_changed, folders.in_folder(folders.use_corpus), ".zip"),
    "model": Parser(
        lambda: [folders.trained()[1]], folders.model_changed, folders.in_folder(folders.use_model), ".zip"),
    "teacher": Parser(
        lambda: [folders.taught()], folders.teacher_changed, folders.in_folder(folders.use_teacher), ".zip"),
    "teacher columns": Parser(columns, one_of(bytes_changed, row_changed, row_changed), use_columns, ".jsonl"),
    "checkpoint": Parser(
        lambda: [folders.interrupted()], folders.checkpoint_changed, folders.in_folder(folders.use_checkpoint), ".zip"),
    "filter state": Parser(
        lambda: [folders.unfinished()], folders.state_changed, folders.in_folder(folders.continue_filter), ".zip"),
}  # fmt: skip
