"""`lidstone evaluate`: a trained model on other text."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lidstone.cli.console import print_json
from lidstone.cli.inputs import JSON, TEXTS

RUN = Annotated[str, typer.Argument(metavar="RUN", help="A folder of runs/, a model folder, or a checkpoint.")]


def evaluate(
    run: RUN,
    texts: TEXTS,
    as_json: JSON = False,
) -> None:
    """Perplexity of text under a language model; BLEU and chrF of SOURCE REFERENCE under a translation model."""
    from lidstone.experiment.run import quiet_transformers
    from lidstone.experiment.saved import load_saved
    from lidstone.experiment.use import evaluate_files

    quiet_transformers()
    saved = load_saved(run)
    facts = evaluate_files(saved, texts)
    print_json(facts) if as_json else _print(facts)


def _print(facts: dict[str, Any]) -> None:
    if "bleu" in facts:
        print(f"BLEU {facts['bleu']:.2f}  ({facts['bleu_signature']})")
        print(f"chrF {facts['chrf']:.2f}  ({facts['chrf_signature']})")
        print(f"{facts['sentences']:,} sentences")
    else:
        unknown = f"{facts['oov']:,} OOV, vocabulary {facts['vocabulary']:,}"
        print(f"perplexity {facts['perplexity']:.4f} per token  ({facts['tokens']:,} tokens, {unknown})")
        print(f"perplexity {facts['word_perplexity']:.4f} per word   ({facts['words']:,} words and ends)")
    print(facts["signature"])
