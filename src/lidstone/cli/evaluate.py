"""Verbs that use a trained model: `evaluate` on text or minimal pairs, `translate` and `generate`.

A language model is alone or mixed with an n-gram model.
"""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from typer import Argument, Option

from lidstone.cli.console import print_json
from lidstone.cli.inputs import JSON, complete_runs, read_table
from lidstone.errors import InputError

if TYPE_CHECKING:
    from lidstone.hf.mixture import Mixture
    from lidstone.lab.run.saved import SavedModel

RUN = Annotated[
    str,
    Argument(
        metavar="RUN",
        autocompletion=complete_runs,
        help="The folder of a run, such as runs/ID, a model folder, or a checkpoint.",
    ),
]
MIX: TypeAlias = Annotated[
    str | None,
    Option(metavar="TABLE", help="Mix with an n-gram model over the same ids; train: that of the run's own text."),
]
WEIGHT: TypeAlias = Annotated[
    float | None,
    Option(min=0, max=1, help="The weight of the n-gram model; with --mix train by default that in run.json."),
]
WINDOW: TypeAlias = Annotated[
    int | None,
    Option(
        min=2, help="The longest row a language model reads; default: the longest it was trained on, if that is known."
    ),
]
CHUNK = 1024
"""Lines searched before the first of them is translated."""
FIT_WEIGHT: TypeAlias = Annotated[str | None, Option(metavar="TEXT", help="Choose the weight on this text instead.")]


def evaluate(
    run: RUN,
    texts: Annotated[
        list[str] | None, Argument(metavar="TEXT", help="Text files, plain or compressed; - is standard input.")
    ] = None,
    mix: MIX = None,
    weight: WEIGHT = None,
    fit_weight: FIT_WEIGHT = None,
    pairs: Annotated[
        str | None, Option(metavar="FILE", help="Minimal pairs, JSON lines as BLiMP's, instead of text.")
    ] = None,
    window: WINDOW = None,
    as_json: JSON = False,
) -> None:
    """Perplexity of text under a language model; BLEU and chrF of SOURCE REFERENCE under a translation model.

    With --pairs, the share of minimal pairs whose good sentence is likelier, by phenomenon; ties count half.
    """
    from lidstone.lab.run.use import evaluate_files, evaluate_pairs

    if bool(texts) == (pairs is not None):
        raise InputError("pass either TEXT or --pairs FILE", hint="lidstone evaluate RUN TEXT")
    if fit_weight == "-" and "-" in (*(texts or ()), pairs):
        raise InputError("standard input cannot be both the text and that of --fit-weight", hint="put one into a file")
    saved = load_quietly(run, task="lm" if mix or pairs else None, window=window)
    mixture = read_mixture(saved, run, mix, weight, fit_weight)
    if pairs is not None:
        facts = evaluate_pairs(saved, pairs, mixture)
    else:
        facts = evaluate_files(saved, texts or [], mixture=mixture)
    if as_json:
        print_json(facts)
    else:
        _print_pairs(facts) if pairs is not None else _print(facts)


def translate(
    run: RUN,
    text: Annotated[str, Argument(metavar="[TEXT]", help="Lines to translate; - is standard input.")] = "-",
    beam: Annotated[int | None, Option(min=1, help="Hypotheses kept at each step; 1 is greedy.")] = None,
    length_penalty: Annotated[float | None, Option(help="Scores are divided by length to this power.")] = None,
    as_json: JSON = False,
) -> None:
    """Translate text line by line with the model of a run."""
    from lidstone.lab.run.use import translate_lines
    from lidstone.text.reader import read_lines

    saved = load_quietly(run, task="mt")
    changes: dict[str, Any] = {"beam": beam, "length_penalty": length_penalty}
    given = {name: value for name, value in changes.items() if value is not None}
    search = saved.beam.model_validate({**saved.beam.model_dump(), **given})
    lines, first = iter(read_lines(text)), 1
    while chunk := list(islice(lines, CHUNK)):
        for source, target in zip(chunk, translate_lines(saved, chunk, search, first), strict=True):
            print_json({"source": source, "translation": target}) if as_json else print(target, flush=True)
        first += len(chunk)


def generate(
    run: RUN,
    text: Annotated[
        str | None,
        Argument(metavar="[TEXT]", help="Prompts, one per line; - is standard input, the default in a pipe."),
    ] = None,
    number: Annotated[int, Option("--number", "-N", min=1, help="Sentences per prompt.")] = 1,
    seed: Annotated[int, Option(min=0, help="The same seed draws the same sentences.")] = 0,
    temperature: Annotated[float, Option(min=0.01, help="Below 1: likelier tokens; above 1: more variety.")] = 1.0,
    top_k: Annotated[int, Option(min=0, help="Draw among the k most probable tokens; 0: all.")] = 0,
    limit: Annotated[int, Option(min=1, help="The largest number of new tokens.")] = 100,
    mix: MIX = None,
    weight: WEIGHT = None,
    fit_weight: FIT_WEIGHT = None,
    window: WINDOW = None,
    as_json: JSON = False,
) -> None:
    """Continue each prompt to the end of its sentence; without prompts, draw whole sentences."""
    from lidstone.lab.run.use import continue_prompt

    saved = load_quietly(run, task="lm", window=window)
    mixture = read_mixture(saved, run, mix, weight, fit_weight)
    for prompt in _prompts(text):
        options = {"number": number, "seed": seed, "temperature": temperature, "top_k": top_k, "limit": limit}
        found = continue_prompt(saved, prompt, mixture=mixture, **options)  # type: ignore[arg-type]
        if as_json:
            mixed = {} if mixture is None else {"mix": mix, "weight": mixture.weight}
            print_json({"prompt": prompt, "sentences": found, **options, **mixed})
        else:
            print("\n".join(found))


def _prompts(text: str | None) -> list[str]:
    from lidstone.text.reader import read_lines

    if text is None and sys.stdin.isatty():
        return [""]
    return list(read_lines(text or "-")) or [""]


def load_quietly(run: str, task: str | None, window: int | None = None) -> SavedModel:
    """The model of a run; what transformers says of it is left out."""
    from lidstone.lab.run.run import quiet_transformers
    from lidstone.lab.run.saved import load_saved

    quiet_transformers()
    return load_saved(run, task=task, window=window)


def read_mixture(
    saved: SavedModel, run: str, mix: str | None, weight: float | None, valid: str | None
) -> Mixture | None:
    """The mixture that the options describe; None without --mix."""
    from lidstone.lab.run.use import make_mixture, own_ngram

    if mix is None:
        if weight is not None or valid is not None:
            raise InputError("a weight needs --mix TABLE", hint="add --mix with the n-gram model")
        return None
    if mix == "train" and not Path(mix).exists():
        table, own = own_ngram(run)
        weight = own if weight is None and valid is None else weight
    else:
        table = read_table(mix)
    return make_mixture(saved, table, weight, valid)


def _print(facts: dict[str, Any]) -> None:
    if "bleu" in facts:
        print(f"BLEU {facts['bleu']:.2f}  ({facts['bleu_signature']})")
        print(f"chrF {facts['chrf']:.2f}  ({facts['chrf_signature']})")
        print(f"{facts['sentences']:,} sentences")
    else:
        unknown = f"{facts['oov']:,} OOV, vocabulary {facts['vocabulary']:,}"
        print(f"perplexity {facts['perplexity']:.4f} per token  ({facts['tokens']:,} tokens, {unknown})")
        print(f"perplexity {facts['word_perplexity']:.4f} per word   ({facts['words']:,} words and ends)")
        for name, about in _other_models(facts):
            print(f"{about}: {facts[name]['perplexity']:.4f} per token, {facts[name]['word_perplexity']:.4f} per word")
    print(facts["signature"])


def _other_models(facts: dict[str, Any]) -> list[tuple[str, str]]:
    if "mixture" not in facts:
        return []
    order, weight = facts["ngram"]["order"], facts["mixture"]["weight"]
    return [("ngram", f"{order}-gram model alone"), ("mixture", f"mixture, weight {weight:.3f}")]


def _print_pairs(facts: dict[str, Any]) -> None:
    models: dict[str, Any] = {"network": facts}
    models.update((name, facts[name]) for name in ("ngram", "mixture") if name in facts)
    print("  ".join([f"{'phenomenon':32}", *(f"{name:>9}" for name in models), f"{'pairs':>7}"]))
    rows = [*facts["phenomena"], None]
    for row in rows:
        parts = [model if row is None else model["phenomena"][row] for model in models.values()]
        shares = (f"{100 * part['accuracy']:9.2f}" for part in parts)
        print("  ".join([f"{row or 'all':32}", *shares, f"{parts[0]['pairs']:7,}"]))
    ties = ", ".join(f"{model['ties']:,}" + (f" ({name})" if len(models) > 1 else "") for name, model in models.items())
    print(f"percentage of pairs whose good sentence is likelier; ties count half: {ties}")
    print(facts["signature"])
