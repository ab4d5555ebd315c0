"""The methods that a recipe can train, one file each, named after the `kind` of its `regularizer` section.

A method owns its settings, its loss or noise or change of the model, and what `run.json` says of it. This registry says
what reports need, and imports nothing heavy: the labels, and by the order of its lines the place in tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lidstone.lab.methods.base import TrainingMethod


@dataclass(frozen=True)
class MethodLabel:
    """How tables show a method."""

    short: str
    long: str
    stands_alone: bool = True
    """False if the trained network needs an n-gram model at test time, too, and is not ranked among the others"""


METHODS = {
    "none": MethodLabel("None", "None"),
    "confidence_penalty": MethodLabel("CP", "Confidence penalty"),
    "label_smoothing": MethodLabel("LS", "Label smoothing"),
    "unigram_label_smoothing": MethodLabel("unigram LS", "Unigram label smoothing"),
    "noising": MethodLabel("Noising", "Data noising"),
    "reverse_kl": MethodLabel("Reverse KL", "Reverse KL to the n-gram model"),
    "ndp": MethodLabel("NDP", "Next-distribution prediction"),
    "residual": MethodLabel("Residual", "N-gram residual", stands_alone=False),
    "smoother": MethodLabel("smoother", "Smoother"),  # runs are named after the smoother instead
}


@cache
def load_method(kind: str) -> TrainingMethod:
    """The method of this kind, from its file.

    >>> load_method("noising").kind
    'noising'
    """
    method: TrainingMethod = import_module(f"lidstone.lab.methods.{kind}").METHOD
    return method
