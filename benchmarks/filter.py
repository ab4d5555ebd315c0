"""How fast a corpus is filtered by perplexity, beside the Python loop over the kenlm module that pipelines use today.

    python benchmarks/filter.py            # five minutes; --quick for one round on less text, nothing kept

The corpus is WikiText-2 (train, ten times, so that the loop runs for several seconds), as lines of text and as JSON
documents of about 40 lines; the model is modified Kneser-Ney of the same text, for kenlm as a probing binary (made by
build_binary where that is on the PATH, else ARPA). Both sides read a file and write every line or document with its
perplexity. Times are medians of interleaved rounds, by the wall clock; ratios above 1 say that lidstone is faster.
Results go to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _timing import interleaved, write_results

import lidstone as ld
from lidstone.lab.corpus.named import data_root
from lidstone.ngram.filter.filter import filter_documents
from lidstone.ngram.scorer.models import load_scorer
from lidstone.text.reader import read_lines

ORDERS = (3, 5)
DOCUMENT_LINES = 40
REPEATS = 10


def corpus(folder: Path, repeats: int) -> dict[str, Path]:
    """The text as lines, and as JSON documents."""
    root = data_root()
    if root is None:
        raise SystemExit("set LIDSTONE_DATA to the folder of the corpora")
    lines = [line.strip() for line in read_lines(root / "wikitext-2" / "wiki.train.tokens.xz") if line.strip()]
    files = {"train": folder / "train.txt", "text": folder / "corpus.txt", "jsonl": folder / "corpus.jsonl"}
    files["train"].write_text("\n".join(lines) + "\n", encoding="utf-8")
    files["text"].write_text(("\n".join(lines) + "\n") * repeats, encoding="utf-8")
    documents = ["\n".join(lines[i : i + DOCUMENT_LINES]) for i in range(0, len(lines), DOCUMENT_LINES)]
    rows = [json.dumps({"id": i, "text": text}) for i, text in enumerate(documents)]
    files["jsonl"].write_text(("\n".join(rows) + "\n") * repeats, encoding="utf-8")
    return files


def model_files(folder: Path, text: Path, order: int) -> tuple[Path, Path]:
    """A table for lidstone, and what the kenlm module loads fastest."""
    table = ld.ModifiedKneserNey().fit(ld.count_text(text, order))
    ours, arpa, binary = (folder / f"{order}.{kind}" for kind in ("table", "arpa", "binary"))
    table.save(ours)
    ld.write_arpa(table, arpa)
    if not shutil.which("build_binary"):
        return ours, arpa
    subprocess.run(["build_binary", "probing", arpa, binary], check=True, capture_output=True)
    return ours, binary


def loop_over_text(model: Any, source: Path, target: Path) -> None:
    """What one writes with the kenlm module, CCNet's definition."""
    with source.open(encoding="utf-8") as lines, target.open("w", encoding="utf-8") as out:
        for line in lines:
            text = line.rstrip("\n")
            perplexity = 10 ** (-model.score(text) / (len(text.split()) + 1))
            out.write(f"{perplexity:.4f}\t{text}\n")


def loop_over_documents(model: Any, source: Path, target: Path) -> None:
    """The same for JSON lines, as CCNet's DocLM does it."""
    with source.open(encoding="utf-8") as lines, target.open("w", encoding="utf-8") as out:
        for line in lines:
            record = json.loads(line)
            log10, length = 0.0, 0
            for sentence in record["text"].splitlines():
                log10 += model.score(sentence)
                length += len(sentence.split()) + 1
            record["perplexity"] = round(10 ** (-log10 / length), 4)
            out.write(json.dumps(record, ensure_ascii=False) + "\n")


def check_equal(kind: str, ours: Path, theirs: Path) -> None:
    """Both wrote the same perplexities, or the comparison is worth nothing."""
    for one, other in zip(ours.open(encoding="utf-8"), theirs.open(encoding="utf-8"), strict=True):
        if kind == "text":
            values = [float(line.split("\t", 1)[0]) for line in (one, other)]
        else:
            values = [json.loads(line)["perplexity"] for line in (one, other)]
        assert abs(values[0] - values[1]) <= 1e-4 * values[1] + 1e-3, (values, one[:80])


def bench(files: dict[str, Path], folder: Path, rounds: int) -> dict[str, Any]:
    import kenlm

    figures: dict[str, Any] = {}
    for order in ORDERS:
        ours, theirs = model_files(folder, files["train"], order)
        scorer, model = load_scorer(ours), kenlm.Model(str(theirs))
        for kind, loop in (("text", loop_over_text), ("jsonl", loop_over_documents)):
            source, out, other = files[kind], folder / f"ours.{kind}", folder / f"theirs.{kind}"
            methods: dict[str, Callable[[], Any]] = {
                "lidstone filter": lambda s=scorer, i=source, o=out: filter_documents(s, i, o),
                "lidstone filter, one thread": lambda s=scorer, i=source, o=out: filter_documents(s, i, o, jobs=1),
                "kenlm module, loop": lambda f=loop, m=model, i=source, o=other: f(m, i, o),
            }
            seconds = interleaved(methods, rounds)
            check_equal(kind, out, other)
            found = {name: {"seconds": value} for name, value in seconds.items()}
            for name in ("lidstone filter", "lidstone filter, one thread"):
                found[name]["ratio"] = seconds["kenlm module, loop"] / seconds[name]
                found[name]["megabytes_per_second"] = source.stat().st_size / 1e6 / seconds[name]
            figures[f"{kind}, order {order}"] = found
            show(f"{kind}, order {order}, {source.stat().st_size / 1e6:.0f} MB", found)
    return figures


def show(title: str, figures: dict[str, dict[str, float]]) -> None:
    print(f"\n{title}")
    for name, values in figures.items():
        print(f"  {name:30} {'   '.join(f'{value:.3g} {key}' for key, value in values.items())}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round on the text once")
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is repeated (3)")
    arguments = parser.parse_args()
    rounds = 1 if arguments.quick else arguments.rounds
    with tempfile.TemporaryDirectory() as name:
        files = corpus(Path(name), 1 if arguments.quick else REPEATS)
        figures = {
            "rounds": rounds,
            "cores": len(os.sched_getaffinity(0)),
            "build_binary": shutil.which("build_binary") is not None,
            "load_average_at_start": os.getloadavg()[0],
            "filter": bench(files, Path(name), rounds),
            "load_average_at_end": os.getloadavg()[0],
        }
    if not arguments.quick:
        print(f"\nwritten to {write_results('filter', figures)}")


if __name__ == "__main__":
    main()
