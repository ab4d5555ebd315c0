"""Numbers in hand-written pages: each stands before a comment that says where it comes from.

    25.39<!-- tatoeba: none -->                             mean test score of the setting that validation chose
    22.34<!-- tatoeba: none + n-gram -->                    the same networks mixed with the n-gram model
    29.83<!-- tatoeba: n-gram -->                           the n-gram model alone
    5.4<!-- tatoeba: label-smoothing below none -->         by how many per cent the first mean is below the second
    0.31<!-- tatoeba: p of residual against none -->        the exact rank-sum test over seeds, uncorrected
    5<!-- tatoeba: seeds of none -->
    27.19<!-- lafand_en_ibo: chrf of none -->               another metric
    18.5<!-- fine_tuning: none + n-gram of X -->            the networks mixed with n-grams of the text of X's table
    19.5<!-- fine_tuning: n-gram of X -->                   that n-gram model alone
    57.0<!-- tatoeba: blimp of none -->                     minimal pairs, in per cent
    16.6<!-- all_captions: none -->                         runs of a study with other settings, see `OTHER_SETTINGS`

`fill` replaces the numbers by those of the runs, with as many decimals as they have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from statistics import mean

from lidstone.errors import InputError
from lidstone.lab.evaluation.significance import rank_sum
from results import BLIMP, MIXTURES, NGRAMS
from results.study import Study

OTHER_SETTINGS = {
    "all_captions": (
        "fine_tuning",
        *("corpus.limit=null", "training.epochs=null", "training.max_steps=585", "training.eval_every=39"),
        *('sweep.by_method={"none": {"training.learning_rate": [5e-4, 1e-3]}}', "sweep.refine={}"),
    )
}
"""Names for the runs of a study with other settings: its recipe, and what was set."""

NUMBER = re.compile(r"(?P<value>[−+]?\d[\d,]*(?:\.\d+)?)(?P<mark><!-- (?P<study>\w+): (?P<what>[^>]+?) -->)")
NGRAM = "n-gram"
METRICS = ("perplexity", "bleu", "chrf", "blimp")


def fill(text: str) -> str:
    """The text with the numbers of the runs."""
    return NUMBER.sub(
        lambda found: _as_written(_value(found["study"], found["what"]), found["value"]) + found["mark"], text
    )


def _as_written(value: float, before: str) -> str:
    """A number in the form of another one: its decimals, and a sign if it has one.

    >>> _as_written(-0.126, "+1.00"), _as_written(26004, "1,000")
    ('−0.13', '26,004')
    """
    decimals = len(before.partition(".")[2])
    sign = "+" if before[0] in "−+" else ""
    return f"{value:{sign},.{decimals}f}".replace("-", "−")


@cache
def _value(study: str, what: str) -> float:
    recipe, *overrides = OTHER_SETTINGS.get(study, (study,))
    kept = Study.of(recipe, *overrides)
    for word, change in CHANGES.items():
        first, found, second = what.partition(f" {word} ")
        if found:
            return change(mean(scores(kept, first)), mean(scores(kept, second)))
    verb, found, names = what.partition(" of ")
    if verb == "seeds" and found:
        return len(scores(kept, names))
    if verb == "p" and found:
        first, _, second = names.partition(" against ")
        p = rank_sum(scores(kept, first), scores(kept, second)).p_value
        if p is None:
            raise InputError(f"{study}: {what}: too few seeds for a test")
        return p
    return mean(scores(kept, what))


CHANGES: dict[str, Callable[[float, float], float]] = {
    "below": lambda first, second: 100 * (1 - first / second),
    "above": lambda first, second: 100 * (first / second - 1),
}


def scores(study: Study, what: str) -> list[float]:
    """The test scores of each seed of a method, of its mixture with the n-gram model, or of that model alone."""
    if what == NGRAM:
        return [float(json.loads(NGRAMS.read_text())[study.recipe.name]["perplexity"])]
    first, found, source = what.partition(f"{NGRAM} of ")
    if found:
        return _with_ngrams_of(study, first.removesuffix(" + "), source)
    metric, _, name = what.partition(" of ")
    metric, name = (metric, name) if metric in METRICS else (study.metric, what)
    name, mixed, _ = name.partition(f" + {NGRAM}")
    runs = study.runs(name)
    if not runs:
        raise InputError(f"{study.file.name} has no runs of {name!r}", hint="look at the methods of its recipe")
    if metric == "blimp":
        measured = json.loads(BLIMP.read_text())
        return [100 * measured[run.id]["accuracy"] for run in runs if run.id in measured]
    return [run.value("test", metric, "mixture" if mixed else "network") for run in runs]


def _with_ngrams_of(study: Study, name: str, source: str) -> list[float]:
    """Each seed of a method mixed with n-grams of the text of another method; without a name those n-grams alone."""
    measured = json.loads(MIXTURES.read_text())
    found = (measured[run.id][source] for run in study.runs(name or "none"))
    return [both["mixture" if name else "ngram"]["test"][study.metric] for both in found]
