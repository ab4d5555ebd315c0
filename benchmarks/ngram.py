"""The n-gram toolkit against KenLM, NLTK and collections.Counter: `python benchmarks/ngram.py [--quick]`.

From text file to fitted modified Kneser-Ney, warm; scoring; full rows; loading; memory; the start of the command line.
Methods take turns and medians are compared, wall clock and processor time. lmplz is measured where it is on the PATH
(it writes its ARPA text to /dev/null meanwhile); figures that were recorded elsewhere are marked as such.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _timing import PEAK, interleaved, wall_and_cpu, write_results

import lidstone as ld
from lidstone.ngram.formats.safetensors import load_table
from lidstone.text.reader import read_lines
from lidstone.text.words import read_words

ORDERS = (2, 3, 5)
RECORDED_LMPLZ = {2: 0.98, 3: 1.64, 5: 4.07}
"""CPU-seconds on WikiText-2, recorded earlier on another machine of this kind (2 cores); not measured here"""
NLTK_LINES = 1_000


def data_folder() -> Path:
    folder = Path(os.environ.get("LIDSTONE_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "wikitext-2").is_dir():
        sys.exit("error: the corpora are not here\nhint: set LIDSTONE_DATA to the folder that holds them")
    return folder


def lines_of(path: Path) -> Iterator[str]:
    for line in read_lines(path):
        for part in line.replace("<unk>", "UNK_").split("\t"):  # lmplz reserves <unk>; Tatoeba has two columns
            if part.strip():
                yield part


def write_corpora(folder: Path) -> dict[str, Path]:
    """WikiText-2, and all corpora one after the other, as plain text files; and held-out text."""
    data = data_folder()
    patterns = (
        "wikitext-2/*",
        "wikitext-2-raw/*",
        "iwslt14-de-en/t*.[de][en].xz",
        "multi30k-de-en/*",
        "tatoeba-de-en/*tsv*",
    )
    everything = sorted(path for pattern in patterns for path in data.glob(pattern) if ".bpe." not in path.name)
    files = {
        "wikitext-2": [data / "wikitext-2" / "wiki.train.tokens.xz"],
        "all corpora": everything,
        "held out": [data / "wikitext-2" / "wiki.valid.tokens.xz"],
    }
    written = {}
    for name, sources in files.items():
        written[name] = folder / f"{name.replace(' ', '-')}.txt"
        text = "".join(f"{line}\n" for source in sources for line in lines_of(source))
        written[name].write_text(text, encoding="utf-8")
    return written


def estimate(path: Path, order: int) -> ld.BackoffTable:
    return ld.ModifiedKneserNey().fit(ld.count_text(path, order))


def run_lmplz(path: Path, order: int) -> None:
    with tempfile.TemporaryDirectory() as folder, path.open("rb") as text:
        command = ["lmplz", "-o", str(order), "-S", "4G", "-T", folder]
        subprocess.run(command, stdin=text, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def run_counter(path: Path, order: int) -> None:
    """What one writes first: a Counter of tuples per order; counting alone."""
    counts = [Counter() for _ in range(order)]
    for line in path.open(encoding="utf-8"):
        words = ["<s>", *line.split(), "</s>"]
        for size, counter in enumerate(counts, start=1):
            counter.update(zip(*(words[i:] for i in range(size)), strict=False))


def run_nltk(path: Path, order: int, lines: int) -> None:
    """NLTK's fit of its Kneser-Ney on the first lines."""
    from nltk.lm import KneserNeyInterpolated
    from nltk.lm.preprocessing import padded_everygram_pipeline

    with path.open(encoding="utf-8") as file:
        sentences = [line.split() for _, line in zip(range(lines), file, strict=False)]
    KneserNeyInterpolated(order).fit(*padded_everygram_pipeline(order, sentences))


def bench_estimation(corpora: dict[str, Path], rounds: int) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name in ("wikitext-2", "all corpora"):
        for order in ORDERS:
            methods: dict[str, Callable[[], Any]] = {"lidstone": lambda n=name, k=order: estimate(corpora[n], k)}
            if shutil.which("lmplz"):
                methods["lmplz"] = lambda n=name, k=order: run_lmplz(corpora[n], k)
            found = wall_and_cpu(methods, rounds)
            if name == "wikitext-2":
                found |= once("counter", lambda n=name, k=order: run_counter(corpora[n], k))
                found |= nltk_figures(corpora[name], order)
                found["lmplz, recorded elsewhere"] = {"cpu_seconds": RECORDED_LMPLZ[order]}
            figures[f"{name}, order {order}"] = found
            show(f"text -> modified Kneser-Ney, {name}, order {order}", found)
    return figures


def once(name: str, method: Callable[[], Any]) -> dict[str, dict[str, float]]:
    start, busy = time.perf_counter(), time.process_time()
    method()
    return {name: {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - busy}}


def nltk_figures(path: Path, order: int) -> dict[str, dict[str, float]]:
    try:
        import nltk.lm  # noqa: F401
    except ImportError:
        return {}
    with path.open(encoding="utf-8") as file:
        sizes = [len(line) for line in file]
    factor = sum(sizes) / sum(sizes[:NLTK_LINES])
    found = once("nltk", lambda: run_nltk(path, order, NLTK_LINES))["nltk"]
    return {f"nltk, extrapolated from {NLTK_LINES} lines": {key: value * factor for key, value in found.items()}}


def bench_scoring(corpora: dict[str, Path], folder: Path, rounds: int) -> dict[str, Any]:
    """Tokens per second of held-out text: by the wall clock, and per second of processor time."""
    figures: dict[str, Any] = {}
    lines = corpora["held out"].read_text(encoding="utf-8").splitlines()
    for order in (3, 5):
        table = estimate(corpora["wikitext-2"], order)
        ids, _ = read_words(corpora["held out"], table.vocab)
        stream = np.tile(ids, 10)
        methods = {
            "lidstone, ids": lambda t=table, s=stream: t.token_logprobs(s),
            "lidstone, from text": lambda t=table: t.token_logprobs(read_words([corpora["held out"]] * 10, t.vocab)[0]),
        }
        if model := kenlm_model(table, folder / "scoring.arpa"):
            methods["kenlm module, model.score"] = lambda m=model: [m.score(line) for line in lines]
            methods["kenlm module, model.full_scores"] = lambda m=model: [list(m.full_scores(line)) for line in lines]
        sizes = {name: len(stream if name.startswith("lidstone") else ids) for name in methods}
        taken = wall_and_cpu(methods, rounds)
        found = {
            name: {
                "tokens_per_second": sizes[name] / taken[name]["seconds"],
                "tokens_per_cpu_second": sizes[name] / taken[name]["cpu_seconds"],
            }
            for name in methods
        }
        figures[f"order {order}"] = found
        show(f"scoring held-out text, order {order}", found)
    return figures


def kenlm_model(table: ld.BackoffTable, path: Path) -> Any:
    try:
        import kenlm
    except ImportError:
        return None
    ld.write_arpa(table, path)
    return kenlm.Model(str(path))


def bench_rows(corpora: dict[str, Path], rounds: int, size: int = 160_000) -> dict[str, Any]:
    """p(.|h) for histories as they occur in text, with a vocabulary of 160,000."""
    ids, vocab = read_words(corpora["all corpora"])
    words = [*vocab.tokens, *(f"filler{i}" for i in range(size))][:size]
    vocab = ld.Vocabulary.from_words(words[2:])
    ids, _ = read_words(corpora["all corpora"], vocab)
    table = ld.ModifiedKneserNey().fit(ld.count(ids, vocab, 3))
    places = np.random.default_rng(0).integers(2, len(ids), 200)
    histories = [tuple(ids[place - 2 : place].tolist()) for place in places]
    seconds = interleaved({str(i): (lambda h=h: table.prob([h])) for i, h in enumerate(histories)}, rounds)
    values = np.array(list(seconds.values())) * 1e3
    found = {
        "median": {"milliseconds": float(np.median(values))},
        "95 %": {"milliseconds": float(np.quantile(values, 0.95))},
    }
    show(f"a full row p(.|h), V = {size:,}, order 3", found)
    return found


def bench_loading(corpora: dict[str, Path], folder: Path, rounds: int) -> dict[str, Any]:
    table, path = estimate(corpora["all corpora"], 5), folder / "table.safetensors"
    table.save(path)
    methods = {"verified": lambda: load_table(path), "unverified": lambda: load_table(path, verify=False)}
    found = {name: {"seconds": value} for name, value in interleaved(methods, rounds).items()}
    gigabytes = path.stat().st_size / 1e9
    found["per gigabyte, verified"] = {"seconds": found["verified"]["seconds"] / gigabytes}
    show(f"loading a table of {gigabytes:.2f} GB", found)
    return {"gigabytes": gigabytes, **found}


def bench_lines(corpora: dict[str, Path], rounds: int, calls: int = 1_000) -> dict[str, Any]:
    """One short line at a time: what a caller pays per call of `perplexity`."""
    table = estimate(corpora["wikitext-2"], 3)
    line = [
        int(word) for word in table.vocab.encode(["the", "cat", "sat", "on", "the", "mat", "and", "looked", "at", "it"])
    ]
    stream = np.array([*line, table.vocab.eos], np.int32)
    methods = {
        "perplexity([ids])": lambda: [table.perplexity([line]) for _ in range(calls)],
        "perplexity(array)": lambda: [table.perplexity(stream) for _ in range(calls)],
        "token_logprobs(array)": lambda: [table.token_logprobs(stream) for _ in range(calls)],
    }
    found = {name: {"milliseconds": 1e3 * value / calls} for name, value in interleaved(methods, rounds).items()}
    show("one line of 10 words", found)
    return found


SCORE = """
import contextlib, io, sys
from lidstone.cli.main import app
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    app(["score", *sys.argv[1:], "--json"], standalone_mode=False)
print(peak())
"""


def bench_score_memory(corpora: dict[str, Path], folder: Path) -> dict[str, Any]:
    """Peak of `lidstone score` for a text, and for one eight times as long: the memory does not grow with the text."""
    table = folder / "score.table"
    estimate(corpora["wikitext-2"], 3).save(table)
    found = {}
    for times in (1, 8):
        texts = [str(corpora["wikitext-2"])] * times
        command = [sys.executable, "-c", PEAK + SCORE, str(table), *texts]
        peak = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        found[f"{times} x WikiText-2"] = {"megabytes": peak / 1e6}
    show("peak memory of lidstone score", found)
    return found


MEMORY = """
import io, sys, warnings
import numpy as np
import lidstone as ld
warnings.simplefilter("ignore")
draw = np.random.default_rng(0).integers(0, 9, (300, 9))
small = "\\n".join(" ".join(map(str, line)) for line in draw).encode()
fit = ld.ModifiedKneserNey(fallback=(0.5, 1.0, 1.5)).fit
fit(ld.count_text(io.BytesIO(small), int(sys.argv[2])))
before = peak()
counts = ld.count_text(sys.argv[1], int(sys.argv[2]))
table = fit(counts)
print(peak() - before, counts.trie.size, counts.tokens)
"""


def bench_memory(corpora: dict[str, Path]) -> dict[str, Any]:
    """Peak of a fresh process, beyond what it had after imports and warm kernels; ids are 4 bytes per token."""
    found = {}
    for name in ("wikitext-2", "all corpora"):
        for order in ORDERS:
            command = [sys.executable, "-c", PEAK + MEMORY, str(corpora[name]), str(order)]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            growth, ngrams, tokens = map(int, output.split())
            found[f"{name}, order {order}"] = {
                "bytes_per_ngram_beside_ids": (growth - 4 * tokens) / ngrams,
                "megabytes": growth / 1e6,
                "ngrams": ngrams,
                "tokens": tokens,
            }
    show("peak memory, text -> modified Kneser-Ney", found)
    return found


def bench_help(rounds: int) -> dict[str, Any]:
    script = Path(sys.executable).with_name("lidstone")
    methods = {"lidstone --help": lambda: subprocess.run([script, "--help"], capture_output=True, check=True)}
    found = {name: {"seconds": value} for name, value in interleaved(methods, rounds).items()}
    show("the command line", found)
    return found


def show(title: str, figures: dict[str, dict[str, float]]) -> None:
    print(f"\n{title}")
    for name, values in figures.items():
        shown = (f"{value:,.0f} {key}" if abs(value) >= 1000 else f"{value:.3g} {key}" for key, value in values.items())
        print(f"  {name:42} {'   '.join(shown)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of everything")
    parser.add_argument("--rounds", type=int, default=5, help="how often everything is repeated (5)")
    arguments = parser.parse_args()
    rounds = 1 if arguments.quick else arguments.rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpora = write_corpora(folder)
        figures = {
            "rounds": rounds,
            "lmplz": shutil.which("lmplz") is not None,
            "load_average_at_start": os.getloadavg()[0],
            "estimation": bench_estimation(corpora, rounds),
            "scoring": bench_scoring(corpora, folder, rounds),
            "rows": bench_rows(corpora, min(rounds, 3)),
            "loading": bench_loading(corpora, folder, rounds),
            "lines": bench_lines(corpora, rounds),
            "score_memory": bench_score_memory(corpora, folder),
            "memory": bench_memory(corpora),
            "help": bench_help(rounds),
            "load_average_at_end": os.getloadavg()[0],
        }
    print(f"\nwritten to {write_results('ngram', figures)}")


if __name__ == "__main__":
    main()
