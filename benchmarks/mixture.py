"""What mixing with an n-gram model costs when text is scored, and what the residual costs.

    python benchmarks/mixture.py [--quick]        writes into benchmarks/results/

Target: scoring with the mixture / scoring with the network <= 1.1. The network is that of the demo, untrained; its
speed does not depend on its weights. Ratios are of medians of the processor time of one thread.
"""

from __future__ import annotations

import argparse

import torch
from _timing import wall_and_cpu, write_results

from lidstone.hf.mixture import Mixture
from lidstone.hf.perplexity import score_sentences
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.methods.residual import NgramResidual
from lidstone.lab.recipe.recipe import load_recipe
from lidstone.lab.run.run import quiet_transformers
from lidstone.lab.run.scoring import fit_ngram
from lidstone.lab.run.setup import make_model


def main(quick: bool) -> None:
    """Measure and write."""
    quiet_transformers()
    torch.set_num_threads(1)
    recipe = load_recipe("demo")
    prepared = prepare_corpus(recipe)
    sentences = list(prepared.test.target)[: 60 if quick else None]
    table, eos, limit = fit_ngram(prepared, 5), prepared.vocab.eos, recipe.model.max_positions
    model, added = (make_model(recipe, prepared).eval() for _ in range(2))
    NgramResidual(table, 0.5).attach(added)
    mixture = Mixture(model, table, 0.5)
    times = wall_and_cpu(
        {
            "network": lambda: score_sentences(model, sentences, eos=eos, limit=limit),
            "mixture": lambda: mixture.score(sentences),
            "residual": lambda: score_sentences(added, sentences, eos=eos, limit=limit),
        },
        rounds=2 if quick else 11,
    )
    plain = times["network"]["cpu_seconds"]
    ratios = {name: times[name]["cpu_seconds"] / plain for name in ("mixture", "residual")}
    print(f"mixture / network {ratios['mixture']:.3f} (target <= 1.1), residual / network {ratios['residual']:.3f}")
    if not quick:
        write_results("mixture", {"over_network": ratios, "times": times, "sentences": len(sentences)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few sentences, nothing written")
    main(parser.parse_args().quick)
