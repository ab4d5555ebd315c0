"""The picture of the front page: a ladder of dots, one per seed, below or above the plain network.

Each row is a method of one study: a dot for each seed, its test perplexity as a change against the mean of the plain
network, and a line for the 95 % interval of the method's change over seeds and sentences. The upper rows are one
network alone, the lower ones need the n-gram model at test time, too. It can be read on a phone, in light and in dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from lidstone.lab.evaluation.effect import hierarchical_bootstrap
from lidstone.lab.report.figures import Scale, coordinate
from lidstone.lab.report.runs import Run
from results.numbers import NGRAM, scores
from results.study import Study

WIDTH, LINE, LEFT, RIGHT = 400, 21, 176, 388
LOWEST, HIGHEST = -16.0, 2.0
"""per cent; what lies beyond is written at the edge"""
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.head { font-weight: 600 } .small { font-size: 11px; fill: #59636e }
.paper { fill: #ffffff } .grid { stroke: #d1d9e0 } .zero { stroke: #59636e; stroke-dasharray: 3 3 }
.dot { fill: #0072b2; fill-opacity: .75 } .interval { stroke: #0072b2; stroke-width: 2 }
.usual .dot { fill: #59636e } .usual .interval { stroke: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 }
  .paper { fill: #0d1117 } .grid { stroke: #30363d } .zero { stroke: #9198a1 }
  .dot { fill: #56b4e9 } .interval { stroke: #56b4e9 }
  .usual .dot { fill: #9198a1 } .usual .interval { stroke: #9198a1 }
}"""


@dataclass(frozen=True)
class Rung:
    """A row of the ladder: the name in the study, and the name that is shown."""

    name: str
    label: str
    usual: bool = False
    """whether one could use it without lidstone's regularizers"""


ALONE = (
    Rung("none", "no regularizer", True),
    Rung("noising", "noising", True),
    Rung("label-smoothing", "label smoothing", True),
    Rung("confidence-penalty", "confidence penalty", True),
    Rung("kneser-essen-ney, published", "n-gram, as published"),
    Rung("modified-kneser-ney, exact", "n-gram, exact, bigrams"),
    Rung("modified-kneser-ney, exact 4-grams", "n-gram, exact, 4-grams"),
)
MIXED = (
    Rung(NGRAM, "n-gram model alone", True),
    Rung(f"modified-kneser-ney, exact + {NGRAM}", "n-gram, exact, bigrams"),
    Rung(f"none + {NGRAM}", "no regularizer", True),
    Rung(f"confidence-penalty + {NGRAM}", "confidence penalty", True),
    Rung(f"label-smoothing + {NGRAM}", "label smoothing", True),
    Rung("residual", "n-gram residual"),
    Rung(f"residual + {NGRAM}", "residual, mixed again"),
)


def ladder(study: Study, alone: Sequence[Rung] = ALONE, mixed: Sequence[Rung] = MIXED) -> str:
    """The picture as SVG."""
    x = Scale(LOWEST, HIGHEST, LEFT, RIGHT)
    height = LINE * (len(alone) + len(mixed) + 3) + 2
    ticks = range(int(LOWEST) + 1, int(HIGHEST) + 1, 5)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{1.25 * WIDTH:g}" role="img">',
        f"<title>{escape(_title(study))}</title><style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
        *(_vertical(x(tick), LINE, height - LINE, "zero" if tick == 0 else "grid") for tick in ticks),
        *_group("One network alone", alone, study, x, 0),
        *_group("Network + n-gram model at test time", mixed, study, x, len(alone) + 1),
        *(_text(x(tick), height - 8, f"{tick} %".replace("-", "−"), "small", "middle") for tick in ticks),
        _text(6, height - 8, "perplexity, against none", "small"),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _title(study: Study) -> str:
    return f"Test perplexity of each seed against the plain network, {study.recipe.name}, with 95 % intervals"


def _group(head: str, rungs: Sequence[Rung], study: Study, x: Scale, above: int) -> list[str]:
    rows = (_row(rung, study, x, LINE * (above + 2 + number) - 4) for number, rung in enumerate(rungs))
    return [_text(6, LINE * (above + 1) - 5, head, "head"), *rows]


def _row(rung: Rung, study: Study, x: Scale, y: float) -> str:
    base = mean(scores(study, "none"))
    found = [100 * (value / base - 1) for value in scores(study, rung.name)]
    label = _text(14, y, rung.label + (", 1 seed" if len(found) == 1 and rung.name != NGRAM else ""))
    if mean(found) > HIGHEST:
        change = f"{mean(found):+.0f} % →"
        return f'<g class="usual">{label}{_text(RIGHT, y, change, "small", "end")}</g>'
    dots = "".join(f'<circle class="dot" cx="{coordinate(x(value))}" cy="{y - 4}" r="4"/>' for value in found)
    kind = "usual" if rung.usual else "ours"
    return f'<g class="{kind}">{label}{_interval(rung, study, x, y - 4)}{dots}</g>'


def _interval(rung: Rung, study: Study, x: Scale, y: float) -> str:
    """The line of the interval; none for the plain network, with which all are compared."""
    if rung.name == "none":
        return ""
    base = _statistics(study, "none")
    effect = hierarchical_bootstrap(_statistics(study, rung.name), base, _perplexity)
    low, high = (100 * value / float(_perplexity(base.sum(1)).mean()) for value in (effect.low, effect.high))
    return f'<path class="interval" d="M{coordinate(x(low))} {y}H{coordinate(x(high))}"/>'


def _statistics(study: Study, what: str) -> NDArray[np.float64]:
    """-log q and tokens of each test sentence; (seeds, sentences, 2)."""
    name, mixed, _ = what.partition(f" + {NGRAM}")
    return np.stack([_sentences(run, "mixture_nll" if mixed else "nll") for run in study.runs(name)])


def _sentences(run: Run, key: str) -> NDArray[np.float64]:
    found = run.sentences()
    return np.column_stack([found[key], found["tokens"]]).astype(np.float64)


def _perplexity(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.exp(sums[..., 0] / sums[..., 1])
    return found


def _vertical(x: float, top: float, bottom: float, kind: str) -> str:
    return f'<path class="{kind}" d="M{coordinate(x)} {top}V{bottom}"/>'


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{coordinate(x)}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'
