"""What the regularizer costs: output projection and loss, forward and backward, on real text.

    python benchmarks/loss.py [--quick] [--teacher] [--extremes [--against SRC]]

WikiText-2 words -> BPE with 16,000 merges, real consecutive positions, d = 512. Each method runs once per round, rounds
repeat, medians are compared. The dense way is the paper's: rows of a V x V matrix gathered for every position.
`--teacher` measures a teacher of 64 words, with each tail, alone. `--extremes --against SRC` compares with another
version, whose src folder is SRC: child processes run both in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from _timing import interleaved, peak_memory, wall_and_cpu, write_results

import lidstone as ld
from lidstone.lab.corpus.pipeline import build_vocabulary
from lidstone.ngram.counts import count
from lidstone.text.bpe import learn_bpe
from lidstone.text.reader import read_lines

WIDTH = 512


def bpe_ids(merges: int = 16_000) -> tuple[np.ndarray, ld.Vocabulary]:
    """WikiText-2 train as one stream of BPE ids, eos after each line; cached beside the results."""
    folder = os.environ.get("LIDSTONE_DATA", str(Path(__file__).parents[2] / "shared" / "data"))
    source = Path(folder) / "wikitext-2" / "wiki.train.tokens.xz"
    if not source.exists():
        sys.exit("error: WikiText-2 is not here\nhint: set LIDSTONE_DATA to the folder with the corpora")
    lines = [line for line in read_lines(source) if line.strip()]
    encoded = learn_bpe(lines, merges).encode_lines(lines)
    vocab = build_vocabulary(encoded)
    eos = np.array([vocab.eos], np.int32)
    return np.concatenate([part for line in encoded for part in (vocab.encode(line), eos)]), vocab


class Problem:
    """Hidden states, output matrix and labels of consecutive real positions, and every way to their loss."""

    def __init__(self, ids: np.ndarray, vocab: ld.Vocabulary, positions: int, tables: dict[int, Any]) -> None:
        torch.manual_seed(0)
        stream = torch.tensor(ids[50_000 : 50_000 + positions + 1].astype(np.int64))
        self.inputs, self.labels = stream[None, :-1], stream[None, 1:]
        self.hidden = torch.randn(1, positions, WIDTH, requires_grad=True)
        self.weight = (torch.randn(vocab.size, WIDTH) * 0.05).requires_grad_()
        self.tables = tables

    def step(self, loss: Callable[[], torch.Tensor]) -> Callable[[], None]:
        """Forward and backward of one way."""

        def run() -> None:
            self.hidden.grad = self.weight.grad = None
            loss().backward()

        return run

    def methods(self) -> dict[str, Callable[[], None]]:
        from transformers.trainer_pt_utils import LabelSmoother

        smoother, flat = LabelSmoother(epsilon=0.1), self.labels[0]
        ways: dict[str, Callable[[], torch.Tensor]] = {
            "F.cross_entropy": lambda: F.cross_entropy(self.logits()[0], flat),
            "F.cross_entropy(label_smoothing)": lambda: F.cross_entropy(self.logits()[0], flat, label_smoothing=0.1),
            "transformers LabelSmoother": lambda: smoother({"logits": self.logits()}, self.labels),
            "ours, no table": lambda: ld.SmoothedCrossEntropy()(self.logits(), self.labels).total,
        }
        for order, (table, counts) in self.tables.items():
            ways |= self.smoothed(order, table, counts)
        return {name: self.step(way) for name, way in ways.items()}

    def smoothed(self, order: int, table: Any, counts: Any) -> dict[str, Callable[[], torch.Tensor]]:
        token = ld.SmoothedCrossEntropy(table, counts, gamma=0.1)
        published = {"form": "published", "empirical": "ngram", "gamma_plus": 0.1, "gamma_minus": 0.5}
        ngram = ld.SmoothedCrossEntropy(table, counts, **published)
        linear = ld.LinearSmoothedCrossEntropy(table, counts, gamma=0.1)
        return {
            f"ours, order {order}, exact/token": lambda: token(self.logits(), self.labels, self.inputs).total,
            f"ours, order {order}, published/ngram": lambda: ngram(self.logits(), self.labels, self.inputs).total,
            f"ours, order {order}, linear": lambda: linear(self.hidden, self.weight, self.labels, self.inputs).total,
        }

    def logits(self) -> torch.Tensor:
        return self.hidden @ self.weight.T

    def dense(self, table: ld.BackoffTable) -> Callable[[], None]:
        """The paper's way, bigrams: a dense V x V matrix of smoothed rows, gathered into a (tokens, V) target."""
        matrix = torch.from_numpy(table.prob([[word] for word in range(table.vocab.size)])).float()

        def loss() -> torch.Tensor:
            logs = torch.log_softmax(self.logits()[0], -1)
            target = matrix[self.inputs[0]]
            return F.nll_loss(logs, self.labels[0]) - 0.1 * (target * logs).sum(-1).mean()

        return self.step(loss)


def tables_of(ids: np.ndarray, vocab: ld.Vocabulary, orders: tuple[int, ...]) -> tuple[dict[int, Any], dict[str, Any]]:
    """Count, fit and split each order twice; the second, warm, is timed."""
    tables, setup = {}, {}
    for order in orders:
        for _ in range(2):
            start = time.perf_counter()
            counts = count(ids, vocab, order)
            table = ld.KneserEssenNey().fit(counts)
            ngram = ld.SmoothedCrossEntropy(
                table, counts, gamma_plus=0.1, gamma_minus=0.5, form="published", empirical="ngram"
            )
            seconds = time.perf_counter() - start
        token = ld.SmoothedCrossEntropy(table, counts, gamma=0.1)
        tables[order] = (table, counts)
        setup[str(order)] = {
            "setup_seconds": seconds,
            "distinct_ngrams": table.trie.size,
            "bytes_per_ngram_token": token.targets.resident_bytes / table.trie.size,
            "bytes_per_ngram_ngram": ngram.targets.resident_bytes / table.trie.size,
        }
    return tables, setup


def report(title: str, medians: dict[str, float]) -> None:
    smoothing, plain = medians["F.cross_entropy(label_smoothing)"], medians["F.cross_entropy"]
    print(f"\n{title}\n{'':36} {'ms':>8} {'/ smoothing':>12} {'/ plain':>9}")
    for name, seconds in medians.items():
        print(f"{name:36} {seconds * 1e3:8.1f} {seconds / smoothing:12.3f} {seconds / plain:9.3f}")


def full_step(ids: np.ndarray, vocab: ld.Vocabulary, tables: dict[int, Any], rounds: int) -> dict[str, float]:
    """A whole training step of the paper's language model (6 layers, d 512, ffn 2048), plain and regularized."""
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        vocab_size=vocab.size,
        hidden_size=512,
        ffn_dim=2048,
        num_hidden_layers=6,
        num_attention_heads=8,
        word_embed_proj_dim=512,
        max_position_embeddings=512,
        do_layer_norm_before=False,
        dropout=0.1,
    )
    model = OPTForCausalLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    block = torch.tensor(ids[50_000 : 50_000 + 1025].astype(np.int64))
    inputs, labels = block[:-1].view(4, 256), block[1:].view(4, 256)
    losses = {"plain": None, **{f"order {n}": ld.SmoothedCrossEntropy(*tables[n], gamma=0.1) for n in tables}}

    def step(loss: Any) -> Callable[[], None]:
        def run() -> None:
            optimizer.zero_grad()
            logits = model(inputs).logits
            value = (
                F.cross_entropy(logits.flatten(0, 1), labels.flatten())
                if loss is None
                else loss(logits, labels, inputs).total
            )
            value.backward()
            optimizer.step()

        return run

    return interleaved({name: step(loss) for name, loss in losses.items()}, rounds)


MEMORY = """
import sys; sys.path.insert(0, {here!r})
import numpy as np, torch, lidstone as ld
from loss import Problem
from lidstone.ngram.counts import count
ids = np.load({cache!r}); vocab = ld.Vocabulary(size={size}, eos={eos}, unpredictable={unpredictable})
counts = count(ids, vocab, 2); table = ld.KneserEssenNey().fit(counts)
problem = Problem(ids, vocab, {positions}, {{2: (table, counts)}})
name = {name!r}
if name: problem.methods()[name]()
"""


def memory(ids: np.ndarray, vocab: ld.Vocabulary, positions: int) -> dict[str, int]:
    """Peak bytes that each way adds to an interpreter that holds the problem alone."""
    with tempfile.TemporaryDirectory() as folder:
        cache = str(Path(folder) / "ids.npy")
        np.save(cache, ids)
        facts = {
            "here": str(Path(__file__).parent),
            "cache": cache,
            "size": vocab.size,
            "eos": vocab.eos,
            "unpredictable": vocab.unpredictable,
            "positions": positions,
        }
        names = [
            "",
            "F.cross_entropy",
            "F.cross_entropy(label_smoothing)",
            "ours, order 2, exact/token",
            "ours, order 2, linear",
        ]
        peaks = {name: peak_memory(MEMORY.format(**facts, name=name)) for name in names}
    return {name: peak - peaks[""] for name, peak in peaks.items() if name}


def growth(ids: np.ndarray, rounds: int) -> list[dict[str, Any]]:
    """Cost beside label smoothing as order, batch and vocabulary grow; the vocabulary by capping rare ids."""
    rows = []
    for size in (2_000, 8_000, 15_000):
        small = np.minimum(ids, size - 1)
        vocab = ld.Vocabulary(size=size, eos=2, unpredictable=(0,))
        for order in (2, 3, 4) if size == 8_000 else (2,):
            counts = count(small, vocab, order)
            tables = {order: (ld.KneserEssenNey(discount=0.75).fit(counts), counts)}  # capped ids have no rare words
            for positions in (256, 1024, 4096) if order == 2 and size == 8_000 else (1024,):
                problem = Problem(small, vocab, positions, tables)
                ways = problem.methods()
                names = ["F.cross_entropy(label_smoothing)", f"ours, order {order}, exact/token"]
                label, ours = interleaved({name: ways[name] for name in names}, rounds).values()
                rows.append({"vocabulary": size, "order": order, "positions": positions, "ratio": ours / label})
    return rows


def extremes(
    ids: np.ndarray,
    vocab: ld.Vocabulary,
    tables: dict[int, Any],
    rounds: int,
    small: int = 256,
    large_batch: int = 4096,
) -> list[dict[str, Any]]:
    """A small batch, and a large one with 50,000 ids (some of which the text has not): ratios to label smoothing.

    A step of the small one takes a tenth of a second, so it has five times the rounds; one of the large one takes ten
    seconds and four gigabytes, so it has a third of them.
    """
    large = ld.Vocabulary(size=50_000, eos=vocab.eos, unpredictable=tuple(np.flatnonzero(~vocab.events).tolist()))
    counts = count(ids, large, 3)
    found = []
    for words, positions, chosen, turns in (
        (vocab, small, tables, 5 * rounds),
        (large, large_batch, {3: (ld.KneserEssenNey().fit(counts), counts)}, max(2, rounds // 3)),
    ):
        ways = Problem(ids, words, positions, chosen).methods()
        names = ["F.cross_entropy(label_smoothing)", *(name for name in ways if "exact/token" in name)]
        times = wall_and_cpu({name: ways[name] for name in names}, turns)
        first = times[names[0]]
        for name in names[1:]:
            ratios = {kind: times[name][kind] / first[kind] for kind in ("seconds", "cpu_seconds")}
            case = {"vocabulary": words.size, "positions": positions, "way": name}
            found.append({**case, "ratios": ratios, "seconds": times[name]["seconds"], "rounds": turns})
            print(found[-1], file=sys.stderr)
    return found


def taught(
    ids: np.ndarray, vocab: ld.Vocabulary, tables: dict[int, Any], rounds: int, positions: int = 1024, k: int = 64
) -> list[dict[str, Any]]:
    """A teacher of k words, completed by each tail: ratios to label smoothing."""
    problem = Problem(ids, vocab, positions, tables)
    logprobs, words = torch.log_softmax(3 * torch.randn(1, positions, vocab.size), -1).topk(k)
    teacher = problem.labels, words, logprobs, problem.inputs
    ways = {"F.cross_entropy(label_smoothing)": problem.methods()["F.cross_entropy(label_smoothing)"]}
    table, counts = tables[max(tables)]
    for name, tail in (("drop", "drop"), ("uniform", "uniform"), ("unigram", "unigram"), ("table", table)):
        loss = ld.SparseTargetCrossEntropy(tail, counts=counts if tail == "unigram" else None)
        linear = ld.LinearSparseTargetCrossEntropy(tail, counts=counts if tail == "unigram" else None)
        ways[name] = problem.step(lambda loss=loss: loss(problem.logits(), *teacher).total)
        ways[f"{name}, linear"] = problem.step(
            lambda linear=linear: linear(problem.hidden, problem.weight, *teacher).total
        )
    times = wall_and_cpu(ways, rounds)
    first = times.pop("F.cross_entropy(label_smoothing)")
    return [
        {"way": f"teacher of {k}, {name}", "positions": positions, "vocabulary": vocab.size, "rounds": rounds,
         "ratios": {kind: found[kind] / first[kind] for kind in first}}
        for name, found in times.items()
    ]  # fmt: skip


def against(
    ids: np.ndarray, vocab: ld.Vocabulary, other: str, arguments: list[str], turns: int = 3
) -> list[dict[str, Any]]:
    """The extremes of this version and of another, each in processes of its own, in turn: medians of the ratios."""
    sources = {"this": str(Path(ld.__file__).parents[1]), "other": str(Path(other).resolve())}
    runs: dict[str, list[Any]] = {name: [] for name in sources}
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/ids.npz", ids=ids, size=vocab.size, eos=vocab.eos, unpredictable=vocab.unpredictable)
        command = [sys.executable, __file__, "--extremes", "--ids", f"{folder}/ids.npz", *arguments]
        for _ in range(turns):
            for name, source in sources.items():
                environment = {**os.environ, "PYTHONPATH": source}
                done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
                runs[name].append(json.loads(done.stdout.splitlines()[-1]))
    cases = range(len(runs["this"][0]))
    return [compared({name: [run[case] for run in each] for name, each in runs.items()}) for case in cases]


def compared(case: dict[str, Any]) -> dict[str, Any]:
    """One case in all runs of both versions: median ratios to label smoothing, by wall clock and processor time."""
    facts = {name: case["this"][0][name] for name in ("vocabulary", "positions", "way")}
    kinds = ("seconds", "cpu_seconds")
    medians = {v: {k: statistics.median(run["ratios"][k] for run in runs) for k in kinds} for v, runs in case.items()}
    return {**facts, **medians}


def saved_ids(path: str) -> tuple[np.ndarray, ld.Vocabulary]:
    """What `against` wrote for its children."""
    with np.load(path) as saved:
        unpredictable = tuple(saved["unpredictable"].tolist())
        return saved["ids"], ld.Vocabulary(int(saved["size"]), int(saved["eos"]), unpredictable)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Three small panels: the ratio to label smoothing over vocabulary, order and batch, all else at its middle."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    middle = {"vocabulary": 8_000, "order": 2, "positions": 1024}
    figure, panels = plt.subplots(1, 3, figsize=(9, 2.6), sharey=True, layout="constrained")
    for panel, axis in zip(panels, middle, strict=True):
        others = {key: value for key, value in middle.items() if key != axis}
        points = sorted((row[axis], row["ratio"]) for row in rows if all(row[k] == v for k, v in others.items()))
        panel.plot(*zip(*points, strict=True), marker="o", color="#0072B2")
        panel.axhline(1.0, color="#888888", linewidth=1, linestyle="--")
        panel.set_xlabel(axis)
        panel.set_xticks([value for value, _ in points], [f"{value:,}" for value, _ in points])
    panels[0].set_ylabel("time / label smoothing")
    panels[0].set_ylim(bottom=0)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smallest batch only")
    parser.add_argument("--extremes", action="store_true", help="256 positions, and 50,000 ids, alone")
    parser.add_argument("--against", metavar="SRC", help="with --extremes: the src folder of another version")
    parser.add_argument(
        "--positions", type=int, nargs=2, default=(256, 4096), help="with --extremes: of the small and the large batch"
    )
    parser.add_argument("--teacher", action="store_true", help="a teacher of 64 words, alone")
    parser.add_argument("--ids", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    ids, vocab = saved_ids(options.ids) if options.ids else bpe_ids()
    if options.against:
        arguments = ["--rounds", str(options.rounds), "--positions", *map(str, options.positions)]
        found = against(ids, vocab, options.against, arguments)
        print(*found, "written:", write_results("loss-extremes", {"versions": found}), sep="\n")
        return
    tables, setup = tables_of(ids, vocab, (2, 3))
    if options.ids:
        print(json.dumps(extremes(ids, vocab, tables, options.rounds, *options.positions)))
        return
    if options.teacher:
        found = taught(ids, vocab, tables, options.rounds)
        print(*found, "written:", write_results("loss-teacher", {"ratios": found}), sep="\n")
        return
    if options.extremes:
        print(
            "written:",
            write_results(
                "loss-extremes", {"ratios": extremes(ids, vocab, tables, options.rounds, *options.positions)}
            ),
        )
        return
    figures: dict[str, Any] = {
        "corpus": "WikiText-2 train, BPE 16,000 merges",
        "vocabulary": vocab.size,
        "width": WIDTH,
        "rounds": options.rounds,
        "setup": setup,
        "projection_and_loss": [],
    }
    for order, facts in setup.items():
        print(f"order {order}: " + ", ".join(f"{name} {value:,.2f}" for name, value in facts.items()))
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for positions in (1024,) if options.quick else (1024, 4096):
            problem = Problem(ids, vocab, positions, tables)
            methods = problem.methods()
            if positions == 1024:
                methods["dense V x V, order 2"] = problem.dense(tables[2][0])
            medians = interleaved(methods, options.rounds if positions == 1024 else max(3, options.rounds // 2))
            report(f"{positions} positions, {threads} threads", medians)
            figures["projection_and_loss"].append({"positions": positions, "threads": threads, "seconds": medians})
    if not options.quick:
        figures["full_step_seconds"] = full_step(ids, vocab, tables, options.rounds)
        plain = figures["full_step_seconds"]["plain"]
        print("\nfull step / plain: ", {n: round(s / plain, 3) for n, s in figures["full_step_seconds"].items()})
        figures["peak_bytes_added_4096_positions"] = memory(ids, vocab, 4096)
        print("peak bytes added:", figures["peak_bytes_added_4096_positions"])
        figures["growth"] = growth(ids, max(3, options.rounds // 2))
        for row in figures["growth"]:
            print(row)
        figures["teacher"] = taught(ids, vocab, tables, options.rounds)
        figures["extremes"] = extremes(ids, vocab, tables, options.rounds)
        print("\nwritten:", write_results("loss", figures))
        draw(figures["growth"], Path(__file__).parents[1] / "docs" / "images" / "loss-cost.svg")


if __name__ == "__main__":
    main()
