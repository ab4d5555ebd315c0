"""How fast raw text is filtered by perplexity, beside datatrove's `get_perplexity`.

    python benchmarks/raw.py            # five minutes; --quick for one round on less text, nothing kept

The text is web-like: Wikipedia, talks and sentences in English, German, French, Igbo, Swahili and Yoruba. Both sides
read a file, normalize each line, split it with one SentencePiece model of 16,000 pieces, score it with one 5-gram
model, a probing binary of KenLM and then a quantized trie, and write it with its perplexity; the rounded perplexities
must be the same on every line. Times are medians of interleaved turns, by the wall clock and by the processors' clock:
on a busy machine the second is the one to compare. datatrove's loop has one process; two of them on two cores are at
best twice as fast. Results go to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _timing import wall_and_cpu, write_results

import lidstone as ld
from lidstone.lab.corpus.named import data_root
from lidstone.ngram.filter.filter import filter_documents
from lidstone.ngram.scorer.models import load_scorer
from lidstone.text.raw import RawText
from lidstone.text.reader import read_lines

TEXTS = (
    "wikitext-2-raw/wiki.train.first3279.raw.xz",
    "wikitext-2-raw/wiki.valid.raw.xz",
    "iwslt14-de-en/train.subset.de.xz",
    "lafand-mt/en-yor.train.yor.xz",
    "lafand-mt/fr-wol.train.fr.xz",
    "lafand-mt/en-swa.train.swa.xz",
    "lafand-mt/en-ibo.train.ibo.xz",
)
PIECES, ORDER = 16_000, 5


def corpus(folder: Path, lines: int) -> Path:
    root = data_root()
    if root is None:
        raise SystemExit("set LIDSTONE_DATA to the folder of the corpora")
    found = [line.strip() for name in TEXTS for line in read_lines(root / name) if line.strip()]
    random.Random(1).shuffle(found)
    file = folder / "web.txt"
    file.write_text("\n".join(found[:lines]) + "\n", encoding="utf-8")
    return file


def models(folder: Path, text: Path) -> tuple[Path, dict[str, Path]]:
    """A model of SentencePiece and binaries of its pieces, all made of the text itself."""
    import sentencepiece

    lines = RawText("ccnet").words(list(read_lines(text)))
    (folder / "normalized").write_bytes(b"\n".join(lines))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "normalized"),
        model_prefix=str(folder / "web"),
        vocab_size=PIECES,
        character_coverage=0.9995,
        minloglevel=2,
    )
    pieces, binaries = folder / "web.model", {kind: folder / kind for kind in ("probing", "trie")}
    table = ld.ModifiedKneserNey().fit(ld.count_text(RawText("ccnet", str(pieces)).source(text), ORDER))
    ld.write_kenlm(table, binaries["probing"], "probing")
    ld.write_kenlm(table, binaries["trie"], "trie", bits=8, backoff_bits=8, array_bits=22)
    return pieces, binaries


def judge(pieces: Path, binary: Path) -> Any:
    """datatrove's model, with files of ours instead of those that it would download."""
    import kenlm
    import sentencepiece
    from datatrove.utils.perplexity import KenlmModel, SentencePiece

    model = KenlmModel("none", "none")
    model._model = kenlm.Model(str(binary))
    model._tokenizer = SentencePiece("none", "none")
    model._tokenizer._model = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    return model


def loop(model: Any, source: Path, target: Path) -> None:
    """datatrove, line by line."""
    with source.open(encoding="utf-8", newline="\n") as lines, target.open("w", encoding="utf-8", newline="\n") as out:
        for line in lines:
            text = line.rstrip("\n")
            out.write(f"{model.get_perplexity(text):.1f}\t{text}\n")


def check_equal(ours: Path, theirs: Path) -> int:
    """How many lines were compared; a value near the middle of two decimals may be printed as either."""
    count = 0
    for one, other in zip(read_lines(ours), read_lines(theirs), strict=True):
        value, expected = (float(line.split("\t", 1)[0]) for line in (one, other))
        assert abs(value - expected) <= 0.0501, (value, expected, one[:80])
        count += 1
    return count


def where_time_goes(raw: RawText, scorer: Any, source: Path) -> dict[str, float]:
    """Processor seconds of each step, one after the other on one thread."""
    lines = source.read_bytes().split(b"\n")[:-1]
    seconds, values = {}, [lines]
    steps: dict[str, Callable[[Any], Any]] = {
        "normalization": RawText("ccnet").words,
        "pieces": RawText(None, raw.sentencepiece).words,
        "scores": lambda words: scorer.score_text(b"\n".join(words), reserved=True),
    }
    for name, step in steps.items():
        step(values[-1][:100])
        start = time.process_time()
        values.append(step(values[-1]))
        seconds[name] = time.process_time() - start
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round on less text")
    parser.add_argument("--lines", type=int, default=100_000, help="of the text (100000)")
    parser.add_argument("--rounds", type=int, default=5, help="how often everything is repeated (5)")
    arguments = parser.parse_args()
    rounds, load = 1 if arguments.quick else arguments.rounds, os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        source = corpus(Path(name), 20_000 if arguments.quick else arguments.lines)
        pieces, binaries = models(Path(name), source)
        figures: dict[str, Any] = {
            "cores": len(os.sched_getaffinity(0)),
            "megabytes": source.stat().st_size / 1e6,
            "load_average_at_start": load,
            **{kind: bench(pieces, binary, source, rounds) for kind, binary in binaries.items()},
            "load_average_at_end": os.getloadavg()[0],
        }
    if not arguments.quick:
        print(f"\nwritten to {write_results('raw', figures)}")


def bench(pieces: Path, binary: Path, source: Path, rounds: int) -> dict[str, Any]:
    raw, scorer, model = RawText("ccnet", str(pieces)), load_scorer(binary), judge(pieces, binary)
    ours, theirs = source.with_name("ours"), source.with_name("theirs")
    methods: dict[str, Callable[[], Any]] = {
        "lidstone filter": lambda: filter_documents(scorer, source, ours, raw=raw),
        "lidstone filter, one thread": lambda: filter_documents(scorer, source, ours, raw=raw, jobs=1),
        "datatrove get_perplexity, loop": lambda: loop(model, source, theirs),
    }
    found = wall_and_cpu(methods, rounds)
    print(f"\n{binary.name}: {check_equal(ours, theirs):,} lines; load average {os.getloadavg()[0]:.1f}")
    slowest = found["datatrove get_perplexity, loop"]
    for method, values in found.items():
        values["ratio"] = slowest["seconds"] / values["seconds"]
        values["cpu_ratio"] = slowest["cpu_seconds"] / values["cpu_seconds"]
        print(f"  {method:32} {'   '.join(f'{value:.3g} {key}' for key, value in values.items())}")
    steps = where_time_goes(raw, scorer, source)
    print("  processor seconds of each step:", ", ".join(f"{step} {value:.3f}" for step, value in steps.items()))
    return {**found, "steps": steps}


if __name__ == "__main__":
    main()
