"""What training costs: the regularizer, the pipeline, preparing data, searching translations.

    python benchmarks/training.py [--quick]        writes into benchmarks/results/

Targets: regularised / plain tokens per second >= 0.97; pipeline over a bare PyTorch loop <= 1.05; WikiText-2 prepared
in < 20 s. An update is timed from the reading of its batch to the reading of the next, so that set-up and checkpoint
drop out. Short trainings take turns; ratios are of medians of the processor time of one thread, which other programs on
the machine disturb least.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from _timing import wall_and_cpu, write_results

from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.evaluation.translation import translate_ids
from lidstone.lab.methods.base import Regularizer
from lidstone.lab.recipe.recipe import Recipe, load_recipe
from lidstone.lab.recipe.sections import Beam
from lidstone.lab.run.models import build_model
from lidstone.lab.run.run import quiet_transformers
from lidstone.lab.run.setup import Setup, make_batches, make_loss, make_model, training_text
from lidstone.lab.run.trainer import PipelineTrainer, fit

METHOD = "kneser-essen-ney"
SIZE = ["corpus.fraction=0.05", "training.threads=1"]
SHOWN = ("", "paper", "exact", "exact trigrams", "exact 4-grams")
STUDIES = Path(__file__).parents[1] / "results"


class Stamped:
    """Batches that note the processor time whenever one is read."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches
        self.times: list[float] = []

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> Any:
        self.times.append(time.process_time())
        return self.batches[number]

    def updates(self) -> list[float]:
        """Seconds of each update but the first two, which warm up."""
        return [later - earlier for earlier, later in pairwise(self.times)][2:]


def step_costs(rounds: int, steps: int) -> dict[str, Any]:
    """Processor seconds per update: a bare loop, the pipeline without and with a regularizer."""
    recipe = load_recipe("wikitext2_small", SIZE)
    prepared = prepare_corpus(recipe)
    methods = (recipe.method(name).regularizer for name in ("none", METHOD))
    plain, regular = (make_loss(method, training_text(prepared), 100, linear=True) for method in methods)
    batches = make_batches(recipe, prepared)
    ways: dict[str, Callable[[Any, Any], None]] = {
        "bare loop": lambda model, stamped: bare_loop(model, stamped, recipe, steps),
        "pipeline, plain": lambda model, stamped: pipeline(model, plain, stamped, recipe, steps),
        "pipeline, regularised": lambda model, stamped: pipeline(model, regular, stamped, recipe, steps),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            stamped = Stamped(batches)
            way(make_model(recipe, prepared), stamped)
            seconds[name] += stamped.updates()
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    bare, without, with_ = medians.values()
    tokens = recipe.training.batch_tokens or 0
    return {
        "cpu_seconds_per_update": medians,
        "quartiles": {name: statistics.quantiles(values, n=4) for name, values in seconds.items()},
        "updates": {name: len(values) for name, values in seconds.items()},
        "tokens_per_cpu_second": {name: tokens / value for name, value in medians.items()},
        "regularised_over_plain": without / with_,
        "pipeline_over_bare_loop": without / bare,
        "vocabulary": prepared.vocab.size,
        "method": METHOD,
        "batch_tokens": tokens,
    }


def alternating(recipe: Recipe, method: str, steps: int) -> dict[str, Any]:
    """One training whose updates are regularised and plain in turn: what drifts on the machine hits both alike."""
    prepared = prepare_corpus(recipe)
    methods = {"regularised": recipe.method(method).regularizer, "plain": Regularizer()}
    losses = {
        name: make_loss(regularizer, training_text(prepared), 100, linear=True) for name, regularizer in methods.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in losses}
    whole_step = PipelineTrainer.training_step

    def timed_step(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        name = "regularised" if trainer.state.global_step % 4 in (0, 3) else "plain"  # r p p r: neither always leads
        trainer.smoothed_loss = losses[name]
        began = time.process_time()
        result = whole_step(trainer, *args, **kwargs)
        seconds[name].append(time.process_time() - began)
        return result

    PipelineTrainer.training_step = timed_step
    try:
        pipeline(make_model(recipe, prepared), losses["plain"], make_batches(recipe, prepared), recipe, steps)
    finally:
        PipelineTrainer.training_step = whole_step
    ratios = [plain / regular for plain, regular in zip(seconds["plain"], seconds["regularised"], strict=True)][2:]
    return {
        "median_seconds": {name: statistics.median(values) for name, values in seconds.items()},
        "updates": steps,
        "quartiles_of_ratios_of_neighbours": statistics.quantiles(ratios, n=4),
        "regularised_over_plain": statistics.median(ratios),
    }


def method_costs(steps: int) -> dict[str, Any]:
    """Speed of each method of the studies over plain training."""
    speeds: dict[str, dict[str, float]] = {}
    for file in sorted(STUDIES.glob("*.yaml")):
        recipe = load_recipe(file, ["training.threads=1"])
        names = [name for name in recipe.method_names if recipe.method(name).regularizer.kind != "none"]
        shown = [name for name in names if name.partition(", ")[2] in SHOWN]
        speeds[file.stem] = {name: alternating(recipe, name, steps)["regularised_over_plain"] for name in shown}
    return {"updates": steps, "regularised_over_plain": speeds}


def bare_loop(model: Any, batches: Any, recipe: Any, steps: int) -> None:
    """What one would write by hand: the same batches, optimizer and clipping."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    loss_of = torch.nn.CrossEntropyLoss()
    model.train()
    for number in range(steps):
        batch = batches[number % len(batches)]
        logits = model(input_ids=batch["input_ids"]).logits
        loss_of(logits.flatten(0, 1), batch["labels"].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.training.clip)
        optimizer.step()
        optimizer.zero_grad()


def pipeline(model: Any, loss: Any, batches: Any, recipe: Any, steps: int) -> None:
    changes = {"epochs": None, "max_steps": steps, "eval_every": steps, "patience": None}
    settings = recipe.training.model_copy(update=changes)
    with tempfile.TemporaryDirectory() as folder:
        fit(Setup(model, batches, loss), lambda _: {"loss": 1.0, "perplexity": 2.7}, settings, Path(folder))


def preparation(quick: bool) -> dict[str, Any]:
    """From the compressed files of WikiText-2 to ids, 16,000 merges learnt on the way; then from the cache."""
    overrides = ["corpus.fraction=1.0", f"tokenizer.merges={1000 if quick else 16_000}"]
    recipe, kept = load_recipe("wikitext2_small", overrides), os.environ.get("LIDSTONE_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LIDSTONE_CACHE"] = folder
        try:
            found = {}
            for name in ("first", "again"):
                wall, busy = time.perf_counter(), sum(os.times()[:4])
                prepare_corpus(recipe)
                found[name] = {"seconds": time.perf_counter() - wall, "cpu_seconds": sum(os.times()[:4]) - busy}
        finally:
            os.environ.pop("LIDSTONE_CACHE")
            if kept is not None:
                os.environ["LIDSTONE_CACHE"] = kept
    return {"merges": recipe.tokenizer.merges, **found}


def beam_search(rounds: int, sentences: int) -> dict[str, Any]:
    """Beam 5 over a batch of sentences against one sentence after the other, with the CPU recipe's network."""
    recipe = load_recipe("iwslt14_deen_small", ["corpus.limit=2000", "tokenizer.merges=1000"])
    prepared = prepare_corpus(recipe)
    torch.manual_seed(1)
    model = build_model(
        recipe.model.spec(), prepared.vocab.size, source_vocab_size=prepared.source.vocabulary.size
    ).eval()
    sources = [ids for ids in list(prepared.valid.source)[: 4 * sentences] if 5 <= len(ids) <= 30][:sentences]
    times = wall_and_cpu(
        {
            "batched": lambda: translate_ids(model, sources, prepared.vocab, Beam(batch_size=64)),
            "one by one": lambda: [translate_ids(model, [ids], prepared.vocab, Beam()) for ids in sources],
        },
        rounds,
    )
    speeds = {name: len(sources) / value["cpu_seconds"] for name, value in times.items()}
    return {"sentences": len(sources), "sentences_per_cpu_second": speeds, "times": times}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a minute instead of several")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    quiet_transformers()
    rounds = 2 if quick else 4
    results = {
        "torch": torch.__version__,
        "threads": 1,
        "steps": step_costs(rounds, 5 if quick else 10),
        "alternating": alternating(load_recipe("wikitext2_small", SIZE), METHOD, 12 if quick else 240),
        "beam": beam_search(1, 8 if quick else 48),
        "preparation": preparation(quick),
    }
    show(results)
    if not quick:
        write_results("training", results)
        write_results("methods", method_costs(60))


def show(results: dict[str, Any]) -> None:
    steps = results["steps"]
    for name, value in steps["cpu_seconds_per_update"].items():
        print(f"{name:24} {1000 * value:8.1f} ms per update")
    print(f"regularised / plain, tokens/s   {steps['regularised_over_plain']:.3f}  (target >= 0.97)")
    print(f"  updates in turn, one training {results['alternating']['regularised_over_plain']:.3f}")
    print(f"pipeline / bare loop, time      {steps['pipeline_over_bare_loop']:.3f}  (target <= 1.05)")
    speeds = results["beam"]["sentences_per_cpu_second"]
    print(f"beam 5: {speeds['batched']:.1f} sentences/s batched, {speeds['one by one']:.1f} one by one")
    print(f"preparing WikiText-2: {results['preparation']['first']['cpu_seconds']:.1f} CPU s (target < 20)")


if __name__ == "__main__":
    main()
