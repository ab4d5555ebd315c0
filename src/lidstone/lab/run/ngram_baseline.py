"""The n-gram model of a run's own training text, and its mixture with the network, on the same ids.

Modified Kneser-Ney; the order by perplexity on the validation text, the weight of the mixture by EM on it. Every run
records both, to show whether the network is better than the n-gram model, and whether it adds to it.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lidstone.errors import SmoothingUndefined
from lidstone.hf.mixture import ThreeScores, mix_scores, mixture_weight
from lidstone.lab.corpus.prepared import Prepared, Split
from lidstone.lab.run.setup import training_text

if TYPE_CHECKING:
    from lidstone.hf.perplexity import SentenceScores
    from lidstone.ngram.table import BackoffTable

SMOOTHER = "modified-kneser-ney"
FALLBACK = (0.5, 1.0, 1.5)  # lmplz --discount_fallback


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


def choose_ngram(prepared: Prepared, orders: Sequence[int]) -> NgramChoice | None:
    """Fit modified Kneser-Ney of every order to the training text; None where no order can be fitted."""
    tables: dict[int, BackoffTable] = {}
    for order in orders:
        with contextlib.suppress(SmoothingUndefined):
            tables[order] = fit_ngram(prepared, order)
    found = {order: table.perplexity(prepared.valid.target.stream).value for order, table in tables.items()}
    return NgramChoice(tables[min(found, key=found.__getitem__)], found) if found else None


def fit_ngram(prepared: Prepared, order: int) -> BackoffTable:
    """Modified Kneser-Ney of the training text; where the text is too small for it, with lmplz's fallback discounts."""
    from lidstone.ngram.smoothers.base import FallbackUsed
    from lidstone.ngram.smoothers.modified_kneser_ney import ModifiedKneserNey

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackUsed)  # the table's signature names the orders
        text = training_text(prepared)
        return text.fit(SMOOTHER, ModifiedKneserNey(FALLBACK), text.count(order))


def compare_with_ngram(
    prepared: Prepared, choice: NgramChoice, valid: SentenceScores, test: SentenceScores
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The entries `ngram` and `mixture` of `run.json`, and those of the sentence file, from the network's scores."""
    assert valid.token_nll is not None
    weight = mixture_weight(valid.token_nll, _ngram_nll(choice, prepared.valid))
    on_valid = mix_scores(valid, _ngram_nll(choice, prepared.valid), weight)
    on_test = mix_scores(test, _ngram_nll(choice, prepared.test), weight)
    record = {
        "ngram": {**_describe(choice), **_both(prepared, on_valid, on_test, "ngram")},
        "mixture": {"weight": weight, **_both(prepared, on_valid, on_test, "mixture")},
    }
    kept = {f"{name}_nll": getattr(on_test, name).nll.round(4).tolist() for name in ("ngram", "mixture")}
    return record, kept


def _describe(choice: NgramChoice) -> dict[str, Any]:
    perplexities = {str(order): value for order, value in choice.perplexities.items()}
    return {"order": choice.order, "valid_by_order": perplexities, "table": choice.table.signature}


def _both(prepared: Prepared, valid: ThreeScores, test: ThreeScores, name: str) -> dict[str, Any]:
    parts = ((prepared.valid, valid), (prepared.test, test))
    summaries = [getattr(scores, name).summary(int(split.words.sum())) for split, scores in parts]
    return dict(zip(("valid", "test"), summaries, strict=True))


def _ngram_nll(choice: NgramChoice, split: Split) -> Any:
    return -choice.table.token_logprobs(split.target.stream)
