"""The n-gram residual (Li et al. 2022): the network learns what an n-gram model does not predict.

    logits' = logits + alpha (log p~(.|h) + const)        in training and at test time alike

A constant per position cancels in the softmax, and in log space p~ is again sparse corrections on one dense row. For a
word w that does not follow h, log p~(w|h) = log backoff(h) + log p~(w|h'), and the first term is the same for all such
words. So with

    excess[hw] = log p~(w|h) - log backoff(h) - log p~(w|h')          for each n-gram hw of the table

log p~(w|h) = const(h) + log base(w) + the sum of excess over the suffixes of h that w follows: the walk of a smoothed
row with every backoff equal to one, done by the kernels that add such rows to logits. No row of p~ is ever built.

A table that was fitted on the training text predicts this text better than other text. With folds, each training
sentence uses a table that was fitted without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lidstone.errors import InputError
from lidstone.files import read_json, write_json
from lidstone.lab.methods.base import BatchChange, Regularizer, StrengthMethod, TrainingText, residual_of
from lidstone.loss.targets import Targets
from lidstone.ngram.formats.safetensors import load, save
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import Trie

if TYPE_CHECKING:
    from lidstone.hf.mixture import Mixture

TABLE, FACTS = "residual.safetensors", "residual.json"


class ResidualMethod(StrengthMethod):
    """Plain cross-entropy of a network whose logits have the residual added."""

    kind = "residual"
    tasks = ("lm",)
    has_smoother = True
    has_folds = True
    has_order = True
    takes_hidden_states = False  # it is added to logits

    def check(self, settings: Regularizer) -> None:
        super().check(settings)
        if not settings.gamma:
            raise ValueError("a residual needs gamma above 0")
        if settings.schedule.kind != "constant":
            raise ValueError("the strength of a residual is part of the model: it cannot follow a schedule")

    def change_model(self, settings: Regularizer, text: TrainingText, model: Any) -> None:
        folds = text.fold_tables(settings, settings.folds) if settings.folds else []
        NgramResidual(text.table(settings), settings.strengths[0], folds).attach(model)

    def batch_change(self, settings: Regularizer, text: TrainingText, model: Any) -> BatchChange | None:
        return residual_of(model).take_folds if settings.folds else None


def log_table(table: BackoffTable) -> BackoffTable:
    """The same n-grams with rows of log-space corrections, backoffs of one, and the log of the base.

    Ids that are never predicted have -inf.
    """
    trie, vocab = table.trie, table.vocab
    followers = np.diff(trie.first)
    backs_off = (followers > 0) & (followers < vocab.event_count)  # words are left to back off to
    backoffs = np.where(backs_off, table.backoffs, 1.0)
    if (
        min(table.base[vocab.events].min(), backoffs.min(initial=1), table.ngram_probs[_ngrams(trie)].min(initial=1))
        <= 0
    ):
        raise InputError(
            "log p~ needs a table that gives every word a probability above 0 after every history",
            hint="use a smoother such as modified-kneser-ney or witten-bell",
        )
    with np.errstate(divide="ignore"):
        logs, base = np.log(table.ngram_probs), np.log(table.base)
    rows = np.zeros(trie.size)
    nodes = _ngrams(trie)
    rows[nodes] = logs[nodes] - np.log(backoffs)[trie.parents[nodes]] - logs[trie.suffixes[nodes]]
    return replace(table, base=base, rows=rows, backoffs=np.ones(len(table.backoffs)))


def _ngrams(trie: Trie) -> slice:
    """The nodes above the unigrams."""
    return slice(int(trie.levels[1]), trie.size)


class NgramResidual(nn.Module):
    """Adds alpha log p~ to the logits of a causal language model, through a hook on its forward pass.

    `attach` it to the model; then every call of the model (training, scoring) returns the sum. In generation with a
    cache the model reads one token at a time, so the hook is switched off and `process` adds the residual.
    """

    def __init__(self, table: BackoffTable, alpha: float, folds: Sequence[BackoffTable] = ()) -> None:
        """`folds`: tables for training, one per fold, each fitted without the sentences of its fold."""
        super().__init__()
        if alpha <= 0:
            raise InputError(f"the strength of the residual is {alpha}", hint="use alpha > 0; 1 adds log p~ itself")
        self.alpha, self.table, self.signature = alpha, table, table.signature
        self.tables = nn.ModuleList(Targets(log_table(one), None, "token") for one in (table, *folds))
        self.fold_of: Tensor | None = None
        """the fold of each position of the batch that is trained on, (batch, time); None: the whole table"""
        self.disabled = False

    def attach(self, model: Any) -> None:
        """Make it part of a model; it is not saved with the weights."""
        model.add_module("ngram_residual", self)
        model.register_forward_hook(self._hook, with_kwargs=True)

    def save(self, folder: Path) -> None:
        """Write the table and its strength beside the weights of the model."""
        save(self.table, folder / TABLE)
        write_json(folder / FACTS, {"alpha": self.alpha})

    def forward(self, logits: Tensor, contexts: Tensor) -> Tensor:
        """Logits (batch, time, V) with the residual; contexts (batch, time) hold the token before each label."""
        found: Tensor = _Add.apply(logits, contexts, self)  # type: ignore[no-untyped-call]
        return found

    def process(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """A logits processor: scores of the next token (batch, V), renormalised since a beam search adds them up."""
        recent = input_ids[:, max(input_ids.shape[1] - self.table.order, 0) :]
        wide = scores.new_zeros(*recent.shape, scores.shape[-1])
        wide[:, -1] = scores
        return torch.log_softmax(self(wide, recent)[:, -1], -1)

    def take_folds(self, batch: dict[str, Any], strength: float = 1.0) -> dict[str, Any]:
        """Remember the folds of a training batch; the batch without them, as the model reads it."""
        rest = dict(batch)
        self.fold_of = rest.pop("folds")
        return rest

    def parts(self) -> list[tuple[Targets, Tensor | None]]:
        """The tables in use, and the positions of each; None: all. In eval mode it is the table of the whole text."""
        tables = [table for table in self.tables if isinstance(table, Targets)]
        if not self.training or self.fold_of is None or len(tables) == 1:
            return [(tables[0], None)]
        folds = self.fold_of.reshape(-1).to(tables[0].base.device)
        return [(table, torch.nonzero(folds == fold)[:, 0]) for fold, table in enumerate(tables[1:])]

    def _hook(self, model: Any, args: Any, kwargs: dict[str, Any], outputs: Any) -> Any:
        if self.disabled:
            return outputs
        contexts = kwargs.get("input_ids", args[0] if args else None)
        cache = kwargs.get("past_key_values")
        if contexts is None or not hasattr(outputs, "logits"):
            raise InputError(
                "an n-gram residual needs ids and named outputs", hint="pass input_ids and return_dict=True"
            )
        if cache is not None and cache.get_seq_length() > contexts.shape[1]:  # the cache has the inputs by now
            raise InputError(
                "an n-gram residual needs the whole text, not a cache and its last token",
                hint="generate with use_cache=False, or with lidstone generate",
            )
        kept = outputs.logits.shape[1]
        wide = nn.functional.pad(outputs.logits, (0, 0, contexts.shape[1] - kept, 0))  # logits_to_keep gives the last
        outputs.logits = self(wide, contexts)[:, -kept:]
        if outputs.loss is not None:  # the model's own, of the logits without the residual
            size = outputs.logits.shape[-1]
            outputs.loss = model.loss_function(logits=outputs.logits, labels=kwargs["labels"], vocab_size=size)
        return outputs


class _Add(torch.autograd.Function):
    """Logits plus the residual; the gradient passes through."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, contexts: Tensor, residual: NgramResidual) -> Tensor:
        total = logits.to(torch.float32, copy=True).view(-1, logits.shape[-1])
        for table, positions in residual.parts():
            part = total if positions is None else total[positions]
            part.add_(table.base, alpha=residual.alpha)
            _add_corrections(part, table, contexts, positions, residual.alpha)
            if positions is not None:
                total[positions] = part
        return total.view(logits.shape).to(logits.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return gradients[0], None, None


def _add_corrections(total: Tensor, table: Targets, contexts: Tensor, positions: Tensor | None, alpha: float) -> None:
    """Add alpha times the sparse corrections to logits (positions, V), in place."""
    states, shifts = table.histories(contexts)
    if positions is not None:
        states, shifts = states[positions], shifts[positions]
    table.add_sparse_rows(total, states, shifts, torch.full((len(states),), alpha, device=total.device))


@contextmanager
def generating(model: Any, mixture: Mixture | None = None) -> Iterator[Any]:
    """The logits processors for `generate`: the mixture, or the residual, which the forward pass then leaves out."""
    from transformers import LogitsProcessorList

    residual = residual_of(model)
    mixing = [] if mixture is None else mixture.logits_processor()
    if residual is None:
        yield LogitsProcessorList(mixing)
        return
    residual.disabled = True
    try:
        yield LogitsProcessorList([residual.process, *mixing])
    finally:
        residual.disabled = False


def load_residual(model: Any, folder: Path) -> None:
    """Attach the residual that was saved with a model."""
    table, alpha = load(folder / TABLE), read_json(folder / FACTS)["alpha"]
    assert isinstance(table, BackoffTable)
    NgramResidual(table, float(alpha)).attach(model)


METHOD = ResidualMethod()
