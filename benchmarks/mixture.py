"""What mixing with an n-gram model costs when text is scored or generated, and what the residual costs.

    python benchmarks/mixture.py [--quick]        writes into benchmarks/results/

Target: with the mixture / with the network alone <= 1.1. The network that scores is that of the demo; the one that
generates, 8 rows by greedy search and by 4 beams, is an OPT of 6 layers 512 wide over the same words. Both are
untrained: their speed does not depend on their weights. Ratios are of medians of the processor time of one thread.
"""

from __future__ import annotations

import argparse

import torch
from _timing import wall_and_cpu, write_results

from lidstone.hf.mixture import Mixture
from lidstone.hf.perplexity import score_sentences
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.corpus.prepared import Prepared
from lidstone.lab.methods.residual import NgramResidual
from lidstone.lab.recipe.recipe import load_recipe
from lidstone.lab.recipe.sections import ModelSpec
from lidstone.lab.run.models import build_model
from lidstone.lab.run.run import quiet_transformers
from lidstone.lab.run.scoring import fit_ngram
from lidstone.lab.run.setup import make_model
from lidstone.ngram.table import BackoffTable


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
    steps = generation(prepared, table, rounds=1 if quick else 7)
    if not quick:
        figures = {"over_network": ratios, "times": times, "sentences": len(sentences), "generation": steps}
        write_results("mixture", figures)


def generation(prepared: Prepared, table: BackoffTable, rounds: int, tokens: int = 20) -> dict[str, float]:
    """Processor time with the mixture over that of the network alone, by search."""
    spec = ModelSpec(layers=6, width=512, heads=8, ffn=2048, dropout=0.0, max_positions=64)
    model = build_model(spec, prepared.vocab.size).eval()
    rows = torch.tensor([list(sentence[:4]) for sentence in prepared.test.target if len(sentence) >= 4][:8])
    settings = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False, "pad_token_id": 0}
    ratios = {}
    for name, beams in (("greedy", 1), ("4 beams", 4)):
        processors = {"network": None, "mixture": Mixture(model, table, 0.5).logits_processor()}
        methods = {
            kind: lambda p=process, b=beams: model.generate(
                rows,
                attention_mask=torch.ones_like(rows),
                logits_processor=p,
                num_beams=b,
                eos_token_id=prepared.vocab.eos,
                **settings,
            )
            for kind, process in processors.items()
        }
        times = wall_and_cpu(methods, rounds)
        ratios[name] = times["mixture"]["cpu_seconds"] / times["network"]["cpu_seconds"]
        print(f"generating, {name}: mixture / network {ratios[name]:.3f} (target <= 1.1)")
    return ratios


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few sentences, nothing written")
    main(parser.parse_args().quick)
