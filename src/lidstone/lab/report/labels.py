r"""The names of methods and hyper-parameters in plain text and in LaTeX, as in the paper's tables.

A `Label` is a name and its hyper-parameters, as escaped text or LaTeX; the renderers do not escape it again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lidstone.lab.methods.base import METHODS

SMOOTHERS = {
    "add-lambda": ("add-λ", "Add-λ"),
    "good-turing": ("GT", "Good–Turing"),
    "jelinek-mercer": ("JM", "Jelinek–Mercer"),
    "katz": ("Katz", "Katz"),
    "kneser-essen-ney": ("KEN", "Kneser–Essen–Ney"),
    "modified-kneser-ney": ("MKN", "Modified Kneser–Ney"),
    "witten-bell": ("WB", "Witten–Bell"),
    "absolute-discounting": ("AD", "Absolute discounting"),
}
"""The paper's abbreviations and the names in full."""
NAMES = {kind.replace("_", "-"): (label.short, label.long) for kind, label in METHODS.items()} | SMOOTHERS


def names_of(name: str) -> tuple[str, str]:
    """The short and the long form of a method's name; a name of the user's own stays as it is.

    >>> names_of("jelinek-mercer"), names_of("mine")
    (('JM', 'Jelinek–Mercer'), ('mine', 'mine'))
    """
    return NAMES.get(name.replace("_", "-"), (name, name))


SYMBOLS = {
    "gamma_plus": "γ₊",
    "gamma_minus": "γ₋",
    "gamma": "γ",
    "lam": "λ",
    "weights": "λ₁",
    "discount": "D",
    "order": "n",
    "form": "",
    "empirical": "",
    "schedule": "",
}
"""The symbol before a value; empty for values that need none."""
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "|": r"$|$",
    "λ": r"$\lambda$", "γ": r"$\gamma$", "₊": r"$_{+}$", "₋": r"$_{-}$", "₁": r"$_{1}$", "₂": r"$_{2}$",
    "₃": r"$_{3}$", "₄": r"$_{4}$", "₅": r"$_{5}$", "₆": r"$_{6}$", "₇": r"$_{7}$", "₈": r"$_{8}$",
    "±": r"$\pm$", "†": r"$\dagger$", "‡": r"$\ddagger$", "↓": r"$\downarrow$", "↑": r"$\uparrow$", "–": "--",
    "∞": r"$\infty$", "\n": " ",
}  # fmt: skip


@dataclass(frozen=True)
class Label:
    """The name of a method with the hyper-parameters to show."""

    name: str
    parameters: tuple[tuple[str, str], ...] = ()
    """Pairs of symbol and value."""

    @property
    def short(self) -> str:
        """The paper's abbreviation, e.g. `JM`."""
        return names_of(self.name)[0]

    @property
    def long(self) -> str:
        """The name in full, e.g. `Jelinek–Mercer`."""
        return names_of(self.name)[1]

    @property
    def details(self) -> str:
        """The hyper-parameters in one string: `γ₊=0.1, γ₋=0.5`."""
        return ", ".join(f"{symbol}={value}" if symbol else value for symbol, value in self.parameters)

    def text(self) -> str:
        """Plain text for a row of a table.

        >>> Label("jelinek-mercer", (("γ₊", "0.1"), ("λ₁", "0.75"))).text()
        'JM (γ₊=0.1, λ₁=0.75)'
        """
        return f"{self.short} ({self.details})" if self.parameters else self.short

    __str__ = text

    def latex(self) -> str:
        r"""LaTeX for a row of a table.

        >>> print(Label("add-lambda", (("γ₊", "0.1"), ("my_k", "5"))).latex())
        add-$\lambda$ {\small ($\gamma_{+}=0.1$, my\_k$=5$)}
        """
        name = latex_escape(self.short)
        if not self.parameters:
            return name
        pairs = (
            f"{latex_escape(symbol)}$={_latex_number(value)}$" if symbol else latex_escape(value)
            for symbol, value in self.parameters
        )
        return name + r" {\small (" + _joined(", ".join(pairs)) + ")}"


def latex_escape(text: str) -> str:
    r"""Text escaped for LaTeX, with our own symbols in math mode.

    >>> print(latex_escape("50% of a_b & γ₊"))
    50\% of a\_b \& $\gamma_{+}$
    """
    pieces = (LATEX.get(character, character) for character in text if character.isprintable() or character == "\n")
    return _joined("".join(pieces))


def _joined(latex: str) -> str:
    r"""Join neighbouring formulas to one; an escaped dollar sign, `\$`, is not the start of a formula."""
    return re.sub(r"(?<!\\)\$\$", "", latex)


def parameter_pairs(method: Mapping[str, Any], shown: tuple[str, ...] = ()) -> tuple[tuple[str, str], ...]:
    """The hyper-parameters of a run's method as pairs to print: strengths, `shown` ones, then the method's own.

    >>> parameter_pairs({"gamma_plus": 0.4, "gamma_minus": 0.4, "order": 3, "form": "exact"}, ("order", "form"))
    (('γ', '0.4'), ('n', '3'), ('', 'exact'))
    >>> parameter_pairs({"gamma_plus": 0.1, "gamma_minus": 0.05, "parameters": {"weights": [0.75, 0.5]}})
    (('γ₊', '0.1'), ('γ₋', '0.05'), ('λ₁', '0.75'), ('λ₂', '0.5'))
    """
    strengths = {key: method.get(key) for key in ("gamma_plus", "gamma_minus")}
    if not any(strengths.values()):
        strengths = {"gamma": method.get("gamma")}
    elif len(set(strengths.values())) == 1:
        strengths = {"gamma": method["gamma_plus"]}
    own = method.get("parameters") or {}
    rest = {key: method.get(key) for key in shown}
    pairs: list[tuple[str, str]] = []
    for key, value in {**strengths, **rest, **own}.items():
        pairs.extend(_pairs(key, value))
    return tuple(pairs)


def brief(value: Any) -> str:
    """A hyper-parameter in the shortest form.

    >>> brief(0.05), brief(5), brief(True), brief("uniform"), brief({"kind": "linear", "final": 0.5})
    ('0.05', '5', 'yes', 'uniform', 'kind linear final 0.5')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{key} {brief(item)}" for key, item in value.items() if item is not None)
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def _pairs(key: str, value: Any) -> list[tuple[str, str]]:
    if value is None:
        return []
    if key == "weights" and isinstance(value, (list, tuple)):
        return [("λ" + "₁₂₃₄₅₆₇₈"[i % 8], brief(weight)) for i, weight in enumerate(value)]
    return [(SYMBOLS.get(key, key), brief(value))]


def _latex_number(value: str) -> str:
    if re.fullmatch(r"-?[0-9.]+(e-?[0-9]+)?", value):
        return value
    return r"\mbox{" + latex_escape(value) + "}"
