"""Trees of made-up runs for the tests and benchmarks of reports: the paper's six methods, several seeds, lm or mt."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

from lidstone.lab.evaluation.translation import bleu_statistics

METHODS: dict[str, dict[str, Any]] = {
    "none": {"smoother": None, "parameters": {}, "gamma_plus": None, "gamma_minus": None},
    "add-lambda": {"smoother": "add-lambda", "parameters": {"lam": 0.01}, "gamma_plus": 0.1, "gamma_minus": 0.05},
    "good-turing": {"smoother": "good-turing", "parameters": {}, "gamma_plus": 0.1, "gamma_minus": 0.05},
    "jelinek-mercer": {
        "smoother": "jelinek-mercer",
        "parameters": {"weights": 0.75},
        "gamma_plus": 0.1,
        "gamma_minus": 0.5,
    },
    "katz": {"smoother": "katz", "parameters": {"k": 5}, "gamma_plus": 0.1, "gamma_minus": 0.01},
    "kneser-essen-ney": {"smoother": "kneser-essen-ney", "parameters": {}, "gamma_plus": 0.1, "gamma_minus": 0.1},
}
PERPLEXITY = dict(zip(METHODS, (147.1, 142.1, 141.9, 137.4, 142.7, 142.3), strict=True))
BLEU = dict(zip(METHODS, (32.86, 33.23, 33.37, 33.67, 33.23, 33.38), strict=True))
GAMMAS = (0.005, 0.01, 0.05, 0.1, 0.5)
WORDS = ("the", "a", "man", "dog", "river", "runs", "sleeps", "with", "under", "green", "old", "house")


def record(name: str, seed: int, *, task: str = "lm", method: dict[str, Any] | None = None, shift: float = 0.0,
           points: int = 12, rng: random.Random | None = None, **changes: Any) -> dict[str, Any]:  # fmt: skip
    """One run.json; `shift` moves its score, `changes` replace whole fields."""
    rng = rng or random.Random(f"{name} {seed} {shift} {method}")
    known = name if name in METHODS else "katz"
    full = (
        {"order": 2, "form": "published", "empirical": "ngram", "schedule": "constant"}
        | METHODS[known]
        | (method or {})
    )
    score = (PERPLEXITY if task == "lm" else BLEU)[known] + shift + rng.gauss(0, 0.7 if task == "lm" else 0.06)
    key = "perplexity" if task == "lm" else "bleu"
    start = 8 * score if task == "lm" else 0.1 * score
    curve = [
        {"step": 100 * i, "epoch": float(i), "train_loss": 3 + 4 / i + rng.gauss(0, 0.02),
         f"valid_{key}": score + (start - score) / i**1.3 + rng.gauss(0, abs(score) * 0.003), "seconds": 9.0 * i}
        for i in range(1, points + 1)
    ]  # fmt: skip
    seconds = 100 + 20 * list(METHODS).index(known) + rng.gauss(0, 3)
    signature = {
        "corpus": {"name": "made-up", "train": "t0", "valid": "v0", "test": "e0"}, "vocabulary": "f00d" * 4,
        "vocabulary_size": 16932, "test_sentences": 200, "model_parameters": 1_100_000, "table": None,
        "metric": "perplexity per token" if task == "lm" else "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp",
    }  # fmt: skip
    made = {
        "schema": 1, "id": f"{rng.getrandbits(48):012x}", "status": "complete", "task": task, "name": name,
        "method": full,
        "seed": seed, "config": {"seed": seed, "training": {"learning_rate": 0.001}}, "signature": signature,
        "versions": {"lidstone": "0.1.0"}, "metrics": {"valid": {key: score * 1.02}, "test": {key: score}},
        "curve": curve,
        "sentences": {"file": "sentences.json.gz"},
        "cost": {"train_seconds": seconds, "total_seconds": seconds + 9, "peak_memory_bytes": 10**9},
    }  # fmt: skip
    return made | changes


def sentences(run: dict[str, Any], count: int = 200) -> dict[str, Any]:
    """What a run keeps of its test sentences; all runs share lengths or references."""
    shared, own = random.Random(5), random.Random(run["id"])
    known = run["name"] if run["name"] in METHODS else "katz"
    if run["task"] == "lm":
        lengths = [shared.randint(5, 30) for _ in range(count)]
        hard = [shared.gauss(5, 1) for _ in range(count)]
        gain = (PERPLEXITY["none"] - PERPLEXITY[known]) / 60
        return {
            "nll": [n * (h - gain + own.gauss(0, 0.1)) for n, h in zip(lengths, hard, strict=True)],
            "tokens": lengths,
        }
    gold = [[shared.choice(WORDS) for _ in range(9)] for _ in range(count)]
    noise = 0.45 - (BLEU[known] - BLEU["none"]) * 0.2
    lines = [" ".join(word if own.random() > noise else "x" for word in line) for line in gold]
    return {"hypotheses": lines, "bleu_statistics": bleu_statistics(lines, [" ".join(line) for line in gold])}


def write_run(folder: Path, run: dict[str, Any], with_sentences: bool = True) -> Path:
    """Write a run's folder, named by its id."""
    home = folder / run["id"]
    home.mkdir(parents=True)
    (home / "run.json").write_text(json.dumps(run))
    if with_sentences:
        packed = gzip.compress(json.dumps(sentences(run)).encode(), compresslevel=1)
        (home / "sentences.json.gz").write_bytes(packed)
    return home / "run.json"


def write_tree(folder: Path, *, task: str = "lm", seeds: int = 5, grid: bool = False, explorer: bool = False,
               names: tuple[str, ...] = tuple(METHODS), points: int = 12) -> Path:  # fmt: skip
    """All methods x seeds; with `grid` also the search over both strengths, seed 1, of every smoother."""
    for name in names:
        for seed in range(1, seeds + 1):
            write_run(folder, record(name, seed, task=task, points=points))
        if grid and name != "none":
            write_grid(folder, name, task, points)
    if explorer:
        (folder / "explorer.json").write_text(json.dumps(explorer_data()))
    return folder


def write_grid(folder: Path, name: str, task: str = "lm", points: int = 12) -> None:
    """The cells of a search that were not chosen, one seed each."""
    for i, plus in enumerate(GAMMAS):
        for j, minus in enumerate(GAMMAS):
            if (plus, minus) == (METHODS[name]["gamma_plus"], METHODS[name]["gamma_minus"]):
                continue
            worse = (1 if task == "lm" else -0.1) * (1 + abs(i - 3) + 0.7 * abs(j - 3))
            cell = METHODS[name] | {"gamma_plus": plus, "gamma_minus": minus}
            write_run(folder, record(name, 1, task=task, method=cell, shift=worse, points=points), with_sentences=False)


def explorer_data() -> dict[str, Any]:
    """p, p~, p+ and p- of a few words after a few histories, consistent with p~ - p = z (p+ - p-)."""
    histories = []
    for number, history in enumerate((["of"], ["in", "the"], ["<s>"])):
        smoothers = {}
        for place, name in enumerate(("add-lambda", "jelinek-mercer", "katz")):
            rng = random.Random(number)
            seen = [rng.random() ** 3 if k < 6 else 0.0 for k in range(len(WORDS))]
            p = [value / sum(seen) for value in seen]
            flat = [1 / len(WORDS)] * len(WORDS)
            weight = 0.1 + 0.1 * place
            smoothed = [(1 - weight) * a + weight * b for a, b in zip(p, flat, strict=True)]
            up = [max(b - a, 0) for a, b in zip(p, smoothed, strict=True)]
            down = [max(a - b, 0) for a, b in zip(p, smoothed, strict=True)]
            z = sum(up)
            rows = zip(WORDS, p, smoothed, up, down, strict=True)
            words = [{"word": w, "p": a, "smoothed": b, "plus": c / z, "minus": d / z} for w, a, b, c, d in rows]
            smoothers[name] = {"z": z, "words": words}
        histories.append({"history": history, "count": 1000 // (number + 1), "smoothers": smoothers})
    return {"histories": histories}
