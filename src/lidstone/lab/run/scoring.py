"""Scores of a model on the parts of a prepared corpus: perplexity for both tasks, BLEU and chrF for translation.

Under torchrun each process scores every n-th sentence, and all get the result for all sentences. Beside a language
model stands its n-gram baseline, on the same ids: modified Kneser-Ney of the training text, the order by perplexity on
the validation text, and its mixture with the network, the weight by EM. Every run records both, to show whether the
network is better than the n-gram model, and whether it adds to it.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lidstone.errors import SmoothingUndefined
from lidstone.hf.calibration import Batches, calibration, fit_temperature
from lidstone.hf.mixture import mix_scores, mixture_weight
from lidstone.hf.perplexity import (
    SentenceScores,
    pair_batches,
    score_pairs,
    score_sentences,
    text_batches,
    window_of,
)
from lidstone.lab.corpus.prepared import CorpusSplit, Prepared
from lidstone.lab.evaluation.translation import translate_ids
from lidstone.lab.recipe.recipe import Recipe
from lidstone.lab.run.setup import process_count, process_rank, training_text
from lidstone.progress import progress_bar

if TYPE_CHECKING:
    from lidstone.lab.methods.base import Regularizer
    from lidstone.ngram.table import BackoffTable

SMOOTHER = "modified-kneser-ney"


@dataclass(frozen=True)
class RunScores:
    """The test scores that a run records."""

    metrics: dict[str, Any]
    """of the network"""
    sentences: dict[str, Any]
    """values of each sentence, without text of the corpus"""
    further: dict[str, Any]
    """further entries of `run.json`: `calibration`; of language models `ngram` and `mixture`"""


@dataclass(frozen=True)
class CorpusScorer:
    """Scores models on the splits of one corpus."""

    recipe: Recipe
    prepared: Prepared

    def validate(self, model: Any) -> dict[str, float]:
        """The validation during training: the loss, and the metric for early stopping."""
        found = self._shared_likelihood(model, self.prepared.valid)
        values = {"loss": found.loss, "perplexity": found.perplexity}
        if self.recipe.evaluation.metric == "bleu":
            values["bleu"] = self._shared_bleu(model, self.prepared.valid)
        return values

    def test(self, model: Any) -> RunScores:
        """Score the test part; a language model's n-gram model and their mixture as well."""
        split = self.prepared.test
        scores = self.likelihood(model, split, show=True)
        metrics = scores.summary(int(split.words.sum()))
        kept: dict[str, Any] = {"nll": scores.nll.round(4).tolist(), "tokens": scores.lengths.tolist()}
        further: dict[str, Any] = {"calibration": self.calibration(model)}
        if self.recipe.task == "lm":
            choice = choose_ngram(self.prepared, self.recipe.evaluation.ngram_orders)
            if choice is not None:
                valid = self.likelihood(model, self.prepared.valid)
                baseline, more = compare_with_ngram(self.prepared, choice, valid, scores)
                further |= baseline
                kept |= more
        else:
            from lidstone.lab.evaluation.translation import bleu_statistics

            hypotheses = self.hypotheses(model, split, show=True)
            metrics |= translation_metrics(hypotheses, split.references)
            kept |= {"hypotheses": hypotheses, "bleu_statistics": bleu_statistics(hypotheses, split.references)}
        return RunScores(metrics, kept, further)

    def calibration(self, model: Any) -> dict[str, Any]:
        """The temperature that fits the validation text best, and the calibration of the test text before and after."""
        temperature = fit_temperature(model, self._batches(model, self.prepared.valid))
        test = self._batches(model, self.prepared.test)
        before, after = calibration(model, test), calibration(model, test, temperature)
        return {"temperature": temperature, "before": before.to_dict(), "after": after.to_dict()}

    def _batches(self, model: Any, split: CorpusSplit) -> Batches:
        eos, targets = self.prepared.vocab.eos, list(split.target)
        if split.source is None:
            return lambda: text_batches(targets, eos, window_of(model))
        sources, pad = list(split.source), model.config.pad_token_id
        return lambda: pair_batches(sources, targets, eos, pad)

    def likelihood(
        self, model: Any, split: CorpusSplit, every: slice = slice(None), show: bool = False
    ) -> SentenceScores:
        """Negative log-likelihoods of the sentences of a split, or of every n-th."""
        eos, targets = self.prepared.vocab.eos, list(split.target)[every]
        with progress_bar(None, "scoring", show=show) as advance:
            if split.source is None:
                return score_sentences(model, targets, eos=eos, advance=advance)
            sources, pad = list(split.source)[every], model.config.pad_token_id
            return score_pairs(model, sources, targets, eos=eos, pad=pad, advance=advance)

    def hypotheses(self, model: Any, split: CorpusSplit, every: slice = slice(None), show: bool = False) -> list[str]:
        """Translations as text, with subwords and tokenization undone."""
        assert split.source is not None
        sources = list(split.source)[every]
        with progress_bar(len(sources), "translating", show=show) as advance:
            found = translate_ids(model, sources, self.prepared.vocab, self.recipe.evaluation, advance=advance)
        return [self.prepared.target.decode(ids) for ids in found]

    def _shared_likelihood(self, model: Any, split: CorpusSplit) -> SentenceScores:
        own = self.likelihood(model, split, self._share(split))
        parts = _gathered((own.nll, own.lengths))
        return SentenceScores(np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))

    def _shared_bleu(self, model: Any, split: CorpusSplit) -> float:
        count = self.validated(split)
        lines: list[str] = [""] * count
        own = self.hypotheses(model, split, self._share(split))
        for rank, part in enumerate(_gathered(own)):
            lines[rank :: process_count()] = part
        return float(translation_metrics(lines, split.references[:count])["bleu"])

    def _share(self, split: CorpusSplit) -> slice:
        """The sentences that this process scores during training."""
        return slice(process_rank(), self.validated(split), process_count())

    def validated(self, split: CorpusSplit) -> int:
        """How many sentences of the validation part are scored during training."""
        return min(self.recipe.evaluation.valid_limit or len(split), len(split))


def translation_metrics(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """BLEU and chrF with their signatures."""
    from lidstone.lab.evaluation.translation import score_translation

    return asdict(score_translation(hypotheses, references))


def _gathered(value: Any) -> list[Any]:
    """The value of each process, in order of rank."""
    from torch import distributed

    if process_count() == 1 or not distributed.is_initialized():
        return [value]
    parts: list[Any] = [None] * process_count()
    distributed.all_gather_object(parts, value)
    return parts


@dataclass(frozen=True)
class NgramChoice:
    """The n-gram model with the lowest validation perplexity, and the perplexities of all orders."""

    table: BackoffTable
    perplexities: dict[int, float]
    """on the validation text, by order"""

    @property
    def order(self) -> int:
        """The chosen n."""
        return self.table.order


def choose_ngram(prepared: Prepared, orders: Sequence[int], settings: Regularizer | None = None) -> NgramChoice | None:
    """Fit modified Kneser-Ney of every order to the training text, or to the text of a table; None where none fits."""
    tables: dict[int, BackoffTable] = {}
    for order in orders:
        with contextlib.suppress(SmoothingUndefined):
            tables[order] = fit_ngram(prepared, order, settings)
    found = {order: table.perplexity(prepared.valid.target.stream).value for order, table in tables.items()}
    return NgramChoice(tables[min(found, key=found.__getitem__)], found) if found else None


def fit_ngram(prepared: Prepared, order: int, settings: Regularizer | None = None) -> BackoffTable:
    """Modified Kneser-Ney of a text; where the text is too small for it, with lmplz's fallback discounts."""
    from lidstone.ngram.smoothers.base import FallbackUsed
    from lidstone.ngram.smoothers.modified_kneser_ney import FALLBACK, ModifiedKneserNey

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackUsed)  # the table's signature names the orders
        text = training_text(prepared, settings)
        return text.fit(SMOOTHER, ModifiedKneserNey(FALLBACK), text.count(order, text.more))


def compare_with_ngram(
    prepared: Prepared, choice: NgramChoice, valid: SentenceScores, test: SentenceScores
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The entries `ngram` and `mixture` of `run.json`, and those of the sentence file, from the network's scores."""
    assert valid.token_nll is not None
    weight = mixture_weight(valid.token_nll, _ngram_nll(choice, prepared.valid))
    scores = {"valid": (prepared.valid, valid), "test": (prepared.test, test)}
    mixed = {name: mix_scores(own, _ngram_nll(choice, split), weight) for name, (split, own) in scores.items()}
    ngram, mixture = (
        {name: getattr(mixed[name], model).summary(int(split.words.sum())) for name, (split, _) in scores.items()}
        for model in ("ngram", "mixture")
    )
    orders = {str(order): value for order, value in choice.perplexities.items()}
    about = {"order": choice.order, "valid_by_order": orders, "table": choice.table.signature}
    kept = {f"{name}_nll": getattr(mixed["test"], name).nll.round(4).tolist() for name in ("ngram", "mixture")}
    return {"ngram": about | ngram, "mixture": {"weight": weight, **mixture}}, kept


def _ngram_nll(choice: NgramChoice, split: CorpusSplit) -> Any:
    return -choice.table.token_logprobs(split.target.stream)
