"""The values that the operators exchange: a table as tensors, the coefficients of a batch, the losses of its positions.

Write q for the model, y for the label, h for the history. All four combinations of form and empirical distribution are

    loss = mass * lse(z) - label * z[y] - plus * <sparse part + base part of the smoothed rows, z> - minus * <Z p-, z>

so a batch is planned once: the node of each history, and the four numbers `mass`, `label`, `plus`, `minus`.

    empirical   Z           mass                  label                          rows      p-
    token       1 - p~(y)   1 + (g+ +- g-) Z      1 - g+ p~(y) +- g- Z           p~        (in `label`)
    ngram       Z(h)        1 + (g+ +- g-) Z      1                              Z p+      Z p-

with + for the published form and - for the exact one. A label that the table never predicts has plain NLL: mass 1,
label 1, plus and minus 0.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from torch import Tensor

Empirical = Literal["token", "ngram"]
Form = Literal["exact", "published"]


class Table(NamedTuple):
    """A table as tensors, in the order in which the operators take them.

    Node -1, "no history", reads the last element of `suffixes`, `rows`, `backoffs` and `zs`, which stands for it.
    """

    first: Tensor
    """children of node i are first[i]:first[i+1]"""
    words: Tensor
    """the last word of each node"""
    suffixes: Tensor
    """the history without its oldest word"""
    rows: Tensor
    """the sparse part of p~; ngram: of the orders below the top only"""
    backoffs: Tensor
    base: Tensor
    """the dense part of p~; (V,)"""
    tokens: Tensor
    """each id as a token of a history: boundaries are `<s>`; the last element stands for an unknown token"""
    predicted: Tensor
    """which words the table predicts at all; others, as labels, have plain NLL"""
    plus: Tensor
    """ngram: the sparse part of Z p+, one per slot"""
    minus: Tensor
    """ngram: Z p-, one per slot"""
    dense_minus: Tensor
    """ngram at order 1: Z p-, (V,)"""
    zs: Tensor
    """ngram: Z of each node that is a whole history, -1 of others"""
    levels: Tensor
    """ngram: the first node of each order"""
    shifts: Tensor
    """ngram: node - shift is the slot of a follower of a whole history, by the history's length"""
    strengths: Tensor
    """gamma_plus, and gamma_minus with its sign, at this step of the schedule"""


class Facts(NamedTuple):
    """What the operators need of a table besides its tensors."""

    order: int
    ngram: bool
    """is the empirical distribution that of the n-grams?"""
    steps: int
    """how many halvings find a word among the children of any node"""


class Plan(NamedTuple):
    """The coefficients of a batch; every tensor is (positions,)."""

    states: Tensor
    """the node of the history's longest known suffix, or -1"""
    shifts: Tensor
    """ngram: node - shift is the slot of a follower; -1 where the history is not whole"""
    mass: Tensor
    label: Tensor
    plus: Tensor
    minus: Tensor
    z: Tensor
    """Z, the mass that smoothing moves"""
    label_smoothed: Tensor
    """token: p~(y); ngram: 0"""


class Saved(NamedTuple):
    """What the gradient needs of the forward pass; every tensor is (positions,).

    Logits enter every sum less `shift`, about the largest of their row, so that a common offset cannot drown the loss.
    """

    shift: Tensor
    lse: Tensor
    """log sum exp of the logits less `shift`"""
    base_weight: Tensor
    """how much of the base is left under the sparse rows"""


class Losses(NamedTuple):
    """Per position; `total` is the sum of the three parts."""

    total: Tensor
    nll: Tensor
    plus: Tensor
    minus: Tensor
    saved: Saved | Tensor
    """plain tensor code saves (3, positions) of its own"""


class Rows(NamedTuple):
    """The dense rows of a batch's distinct histories, for plain tensor code."""

    which: Tensor
    """(positions,): the row of each position"""
    values: Tensor
    """(histories, V, 1): p~; ngram: (histories, V, 2), Z p+ and Z p-"""
    known: Tensor
    """(positions,): 1 where the label and the history are in the table, else 0"""
    z: Tensor
    """(positions,): ngram: Z; else empty"""
