"""Scores of a model on the parts of a prepared corpus: perplexity for both tasks, BLEU and chrF for translation.

Under torchrun each process scores every n-th sentence, and all get the result for all sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lidstone.hf.perplexity import SentenceScores, score_pairs, score_sentences
from lidstone.lab.corpus.prepared import Prepared, Split
from lidstone.lab.evaluation.translation import translate_ids
from lidstone.lab.recipe.recipe import Recipe
from lidstone.lab.run.processes import process_count, process_rank
from lidstone.progress import progress_bar


@dataclass(frozen=True)
class RunScores:
    """The test scores that a run records."""

    metrics: dict[str, Any]
    """of the network"""
    sentences: dict[str, Any]
    """values of each sentence, without text of the corpus"""
    beside: dict[str, Any]
    """language models: the scores of the n-gram model and of the mixture, under `ngram` and `mixture`"""


@dataclass(frozen=True)
class Scorer:
    """Scores models on the splits of one corpus."""

    recipe: Recipe
    prepared: Prepared

    def validation(self) -> Callable[[Any], dict[str, float]]:
        """The validation during training: the loss, and the metric for early stopping."""

        def score(model: Any) -> dict[str, float]:
            found = self._shared_likelihood(model, self.prepared.valid)
            values = {"loss": found.loss, "perplexity": found.perplexity}
            if self.recipe.evaluation.metric == "bleu":
                values["bleu"] = self._shared_bleu(model, self.prepared.valid)
            return values

        return score

    def test(self, model: Any) -> RunScores:
        """Score the test part; a language model's n-gram model and their mixture as well."""
        split = self.prepared.test
        scores = self.likelihood(model, split, show=True)
        metrics = scores.summary(int(split.words.sum()))
        kept: dict[str, Any] = {"nll": scores.nll.round(4).tolist(), "tokens": scores.lengths.tolist()}
        beside: dict[str, Any] = {}
        if self.recipe.task == "lm":
            beside, more = self.beside_ngram(model, scores)
            kept |= more
        else:
            from lidstone.lab.evaluation.translation import bleu_statistics

            hypotheses = self.hypotheses(model, split, show=True)
            metrics |= translation_metrics(hypotheses, split.references)
            kept |= {"hypotheses": hypotheses, "bleu_statistics": bleu_statistics(hypotheses, split.references)}
        return RunScores(metrics, kept, beside)

    def beside_ngram(self, model: Any, test: SentenceScores) -> tuple[dict[str, Any], dict[str, Any]]:
        """The n-gram model of the training text and the mixture: for `run.json`, and for the sentence file."""
        from lidstone.lab.run.ngram_baseline import choose_ngram, compare_with_ngram

        choice = choose_ngram(self.prepared, self.recipe.evaluation.ngram_orders)
        if choice is None:
            return {}, {}
        return compare_with_ngram(self.prepared, choice, self.likelihood(model, self.prepared.valid), test)

    def likelihood(self, model: Any, split: Split, every: slice = slice(None), show: bool = False) -> SentenceScores:
        """Negative log-likelihoods of the sentences of a split, or of every n-th."""
        eos, targets = self.prepared.vocab.eos, list(split.target)[every]
        with progress_bar(None, "scoring", show=show) as advance:
            if split.source is None:
                return score_sentences(model, targets, eos=eos, advance=advance)
            sources, pad = list(split.source)[every], model.config.pad_token_id
            return score_pairs(model, sources, targets, eos=eos, pad=pad, advance=advance)

    def hypotheses(self, model: Any, split: Split, every: slice = slice(None), show: bool = False) -> list[str]:
        """Translations as text, with subwords and tokenization undone."""
        assert split.source is not None
        sources = list(split.source)[every]
        with progress_bar(len(sources), "translating", show=show) as advance:
            found = translate_ids(model, sources, self.prepared.vocab, self.recipe.evaluation, advance=advance)
        return [self.prepared.target.decode(ids) for ids in found]

    def _shared_likelihood(self, model: Any, split: Split) -> SentenceScores:
        own = self.likelihood(model, split, self._share(split))
        parts = _gathered((own.nll, own.lengths))
        return SentenceScores(np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))

    def _shared_bleu(self, model: Any, split: Split) -> float:
        count = self.validated(split)
        lines: list[str] = [""] * count
        own = self.hypotheses(model, split, self._share(split))
        for rank, part in enumerate(_gathered(own)):
            lines[rank :: process_count()] = part
        return float(translation_metrics(lines, split.references[:count])["bleu"])

    def _share(self, split: Split) -> slice:
        """The sentences that this process scores during training."""
        return slice(process_rank(), self.validated(split), process_count())

    def validated(self, split: Split) -> int:
        """How many sentences of the validation part are scored during training."""
        return min(self.recipe.evaluation.valid_limit or len(split), len(split))


def translation_metrics(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """BLEU and chrF with their signatures."""
    from lidstone.lab.evaluation.translation import score_translation

    score = score_translation(hypotheses, references)
    return {
        "bleu": score.bleu,
        "chrf": score.chrf,
        "bleu_signature": score.bleu_signature,
        "chrf_signature": score.chrf_signature,
    }


def _gathered(value: Any) -> list[Any]:
    """The value of each process, in order of rank."""
    from torch import distributed

    if process_count() == 1 or not distributed.is_initialized():
        return [value]
    parts: list[Any] = [None] * process_count()
    distributed.all_gather_object(parts, value)
    return parts
