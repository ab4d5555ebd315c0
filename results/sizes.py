"""How results change with the size of the training text: several shares of WikiText-2."""

from __future__ import annotations

import json
from collections.abc import Sequence

from opening import NGRAMS, Text
from pages import percent
from study import Study, mean_on_test, of_common_seeds

from lidstone.lab.report.render import number, signed
from lidstone.lab.report.runs import Run

CHOSEN = "modified-kneser-ney, exact"  # the smoother that is tried at every size
PER_WORD = "word_perplexity"
FRACTIONS = (0.05, 0.1, 0.3)
SIZED = ("jelinek-mercer, paper", CHOSEN)
BY_SIZE = f'sweep.by_method={{"{CHOSEN}": {{regularizer.gamma: [0.2, 0.4]}}}}'


def texts() -> list[Text]:
    """The training texts of the language models, the studied one first."""
    sized = [
        Text(f"{percent(fraction)} of WikiText-2", sized_study(fraction), f"wikitext2 {fraction}", CHOSEN)
        for fraction in FRACTIONS
    ]
    return [studied("tatoeba"), studied("wikitext2"), *sized]


def studied(name: str) -> Text:
    """The training text of the study on Tatoeba or WikiText-2."""
    study = Study.of(name)
    corpus = {"tatoeba": "Tatoeba, English", "wikitext2": "WikiText-2"}[name]
    return Text(f"{percent(study.recipe.corpus.fraction)} of {corpus}", study, name)


def sized_study(fraction: float) -> Study:
    """The study of WikiText-2 with another share of its text."""
    return Study.of("wikitext2", f"corpus.fraction={fraction}", BY_SIZE, folder="wikitext2-sizes")


def sizes(methods: Sequence[str] = SIZED) -> str:
    """The gain over no regularization at several sizes of the training text; vocabularies differ, so per word."""
    heads = ["Training text", "Seeds", "None", *methods, "n-gram alone (order)"]
    lines = [f"| {' | '.join(heads)} |", "|:--|" + "--:|" * (len(heads) - 1)]
    ngrams = json.loads(NGRAMS.read_text())
    for fraction in FRACTIONS:
        study = sized_study(fraction)
        none, *others = of_common_seeds(*(study.runs(method) for method in ("none", *methods)))
        if none:
            plain = mean_on_test(none, PER_WORD)
            ngram = ngrams[f"wikitext2 {fraction}"]
            alone = f"{number(ngram[PER_WORD])} ({ngram['order']})"
            cells = [number(plain), *(gain(runs, plain) for runs in others), alone]
            lines.append(f"| {percent(fraction)} | {len(none)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


def gain(runs: Sequence[Run], plain: float) -> str:
    """A perplexity per word, how far it is from the plain one, and the strength where there is one for both terms."""
    gamma = runs[0].config["regularizer"]["gamma"]
    strength = f", γ = {gamma}" if gamma else ""
    value = mean_on_test(runs, PER_WORD)
    return f"{number(value)} ({signed(100 * (value / plain - 1))} %{strength})"
