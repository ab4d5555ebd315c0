"""Translations: beam search, and their quality by sacreBLEU, with signatures and its paired bootstrap.

The search is `generate` of transformers, over batches of sentences. Every sentence has its own limit on the length of
its translation, so the result does not depend on what else is in the batch. Ids that are never predicted (padding,
unused rows) are excluded.

Text must be detokenized: the caller undoes BPE and tokenization. The bootstrap needs no text, only BLEU's statistics of
each sentence, which can be stored and published even if the references cannot.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.lab.evaluation.effect import Effect
from lidstone.lab.evaluation.significance import Comparison, same_length, warnings_for
from lidstone.text.datasets import Ids, length_batches, padded

if TYPE_CHECKING:
    from torch import Tensor

    from lidstone.lab.recipe.sections import Beam
    from lidstone.text.vocabulary import Vocabulary


SACREBLEU_SEED = 12345
Statistics: TypeAlias = Sequence[Sequence[int]]
"""What BLEU counts in each sentence"""


@dataclass(frozen=True)
class TranslationScore:
    """Corpus scores with their signatures."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


def score_translation(hypotheses: Sequence[str], references: Sequence[str]) -> TranslationScore:
    """Corpus BLEU and chrF of detokenized text, as `sacrebleu -m bleu chrf` prints them.

    >>> score = score_translation(["the cat sat on the mat ."], ["the cat sat on the mat ."])
    >>> round(score.bleu, 2), score.bleu_signature.split("|version")[0]
    (100.0, 'nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp')
    """
    from sacrebleu.metrics import BLEU, CHRF

    check_aligned(hypotheses, references)
    bleu, chrf = BLEU(force=True), CHRF()  # force: no advice on text that looks tokenized
    scores = [float(m.corpus_score(list(hypotheses), [list(references)]).score) for m in (bleu, chrf)]
    signatures = [str(m.get_signature()) for m in (bleu, chrf)]
    return TranslationScore(scores[0], scores[1], signatures[0], signatures[1])


def check_aligned(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raise an error if hypotheses and references do not correspond line by line."""
    if not references:
        raise InputError("there are no references", hint="pass one reference for each hypothesis")
    if len(hypotheses) != len(references):
        raise InputError(
            f"{len(hypotheses)} hypotheses for {len(references)} references",
            hint="write one line for each sentence, empty lines included",
        )


def paired_bootstrap(
    systems: Mapping[str, Sequence[str]],
    baseline: Sequence[str],
    references: Sequence[str],
    *,
    samples: int = 1_000,
    seed: int = SACREBLEU_SEED,
    name: str = "baseline",
) -> list[Comparison]:
    """Paired bootstrap resampling on BLEU, by sacreBLEU's own `PairedTest(..., test_type="bs")`.

    The p-values are sacreBLEU's. The difference's interval comes from the same resamples, by percentiles.

    >>> good, bad, gold = ["a b c d e"] * 9, ["a b x d e"] * 9, ["a b c d e"] * 9
    >>> paired_bootstrap({"good": good}, bad, gold, samples=99)[0].p_value  # 1 / (99 + 1)
    0.01
    """
    counted = {key: bleu_statistics(hypotheses, references) for key, hypotheses in systems.items()}
    base = bleu_statistics(baseline, references)
    return paired_bootstrap_counted(counted, base, samples=samples, seed=seed, name=name)


def bleu_statistics(hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
    """What BLEU sums over sentences: lengths of hypothesis and reference, matching n-grams, n-grams; orders 1 to 4.

    >>> bleu_statistics(["a b c x"], ["a b c d e"])
    [[4, 5, 3, 2, 1, 0, 4, 3, 2, 1]]
    """
    from sacrebleu.metrics import BLEU

    check_aligned(hypotheses, references)
    found: Statistics = BLEU(force=True)._extract_corpus_statistics(list(hypotheses), [list(references)])
    return found


def paired_bootstrap_counted(
    systems: Mapping[str, Statistics],
    baseline: Statistics,
    *,
    samples: int = 1_000,
    seed: int = SACREBLEU_SEED,
    name: str = "baseline",
) -> list[Comparison]:
    """`paired_bootstrap` on the counts of `bleu_statistics`."""
    for key, counted in systems.items():
        same_length(key, len(counted), name, len(baseline))
    if seed < 1:
        raise InputError(f"seed is {seed}", hint="for sacreBLEU 0 means 'no seed': use 1 or more")
    if samples < 1:
        raise InputError(f"samples is {samples}, but must be at least 1", hint="1,000 are usual")
    if not systems:
        return []
    results, signature = _sacrebleu_paired(systems, baseline, samples, seed, name)
    effects = _differences(systems, baseline, samples, seed)
    n, test = (len(baseline), len(baseline)), "paired-bootstrap"
    return [
        Comparison(
            test, key, name, "BLEU difference", effect.difference, p, n, effect, permutations=samples,
            seed=seed, adjusted_p=p, metric=signature, warnings=warnings_for(test, n, samples),
        )
        for key, p, effect in zip(systems, map(_corrected, results, effects), effects, strict=True)
    ]  # fmt: skip


def _corrected(p: float | None, effect: Effect) -> float | None:
    """SacreBLEU's p-value, but 1 for identical translations, for which it gives 1/(samples + 1)."""
    return 1.0 if p is not None and effect.difference == effect.low == effect.high == 0 else p


def _sacrebleu_paired(
    systems: Mapping[str, Statistics], baseline: Statistics, samples: int, seed: int, name: str
) -> tuple[list[float | None], str]:
    from sacrebleu.significance import PairedTest

    named = [(name, baseline), *systems.items()]
    with _sacrebleu_seed(seed):
        signatures, scores = PairedTest(named, {"BLEU": _counted_bleu()}, None, test_type="bs", n_samples=samples)()
    p_values = [result.p_value if len(baseline) > 1 else None for result in scores["BLEU"][1:]]
    return p_values, str(signatures["BLEU"])


def _counted_bleu() -> Any:
    """SacreBLEU's BLEU, for systems that are given as statistics."""
    from sacrebleu.metrics import BLEU

    class CountedBLEU(BLEU):
        def _extract_corpus_statistics(self, hypotheses: Any, references: Any) -> Any:
            return hypotheses

    metric = CountedBLEU(force=True)
    metric.num_refs = 1
    return metric


def bleu_of(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """BLEU from sums of `bleu_statistics`; (..., 10) -> (...).

    >>> bleu_of(np.array([[7, 7, 7, 6, 5, 4, 7, 6, 5, 4]])).round(6).tolist()
    [100.0]
    """
    metric = _counted_bleu()
    rows = sums.reshape(-1, sums.shape[-1]).astype(np.int64).tolist()
    found = np.array([metric._compute_score_from_stats(row).score for row in rows])
    return found.reshape(sums.shape[:-1])


def _differences(systems: Mapping[str, Statistics], baseline: Statistics, samples: int, seed: int) -> list[Effect]:
    """BLEU differences with percentile intervals over the resamples that `PairedTest` draws."""
    drawn = np.random.default_rng(seed).choice(len(baseline), size=(samples, len(baseline)), replace=True)

    def scores(counted: Statistics) -> tuple[float, NDArray[np.float64]]:
        stats = np.array(counted, dtype=np.int64)
        return float(bleu_of(stats.sum(0))), bleu_of(np.array([stats[rows].sum(0) for rows in drawn]))

    base, base_samples = scores(baseline)
    effects = []
    for counted in systems.values():
        score, score_samples = scores(counted)
        low, high = np.percentile(score_samples - base_samples, [2.5, 97.5])
        effects.append(Effect(score - base, float(low), float(high), 0.95, "bootstrap"))
    return effects


@contextlib.contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Set the seed of sacreBLEU, which reads it from the environment."""
    before: Any = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before


def translate_ids(
    model: Any,
    sources: Sequence[Ids],
    vocab: Vocabulary,
    beam: Beam,
    *,
    source_eos: int | None = None,
    advance: Callable[[float], None] = lambda amount: None,
) -> list[list[int]]:
    """Translate sources, given without eos, in batches of similar length; the results have neither start nor eos."""
    eos = vocab.eos if source_eos is None else source_eos
    check_source_lengths(sources, model)
    found: list[list[int]] = [[] for _ in sources]
    for batch in length_batches([len(source) for source in sources], size=beam.batch_size):
        rows = _generate(model, [sources[i] for i in batch], vocab, beam, eos)
        for number, row in zip(batch, rows, strict=True):
            found[number] = row
        advance(len(batch))
    return found


def _generate(model: Any, sources: Sequence[Ids], vocab: Vocabulary, beam: Beam, eos: int) -> list[list[int]]:
    import torch

    from lidstone.hf.perplexity import evaluating

    device, pad = next(model.parameters()).device, model.config.pad_token_id
    longest = model.config.max_position_embeddings - 1
    limits = [min(beam.limit(len(source) + 1), longest) for source in sources]
    with evaluating(model):
        output = model.generate(
            input_ids=torch.from_numpy(padded([np.append(source, eos) for source in sources], pad)).to(device),
            attention_mask=torch.from_numpy(padded([np.ones(len(s) + 1, np.int64) for s in sources], 0)).to(device),
            num_beams=beam.beam,
            do_sample=False,
            length_penalty=beam.length_penalty,
            early_stopping=beam.beam > 1 or None,
            max_new_tokens=max(limits),
            suppress_tokens=list(vocab.unpredictable) or None,
            logits_processor=[_OwnLimit(limits, beam.beam, vocab.eos)],
        )
    return [_until_eos(row, vocab.eos) for row in output[:, 1:].tolist()]


class _OwnLimit:
    """Allow nothing but eos once a sentence has as many tokens as its own limit."""

    def __init__(self, limits: Sequence[int], beams: int, eos: int) -> None:
        import torch

        self.limits = torch.tensor(limits).repeat_interleave(beams)  # one per hypothesis
        self.eos = eos

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        over = (self.limits.to(scores.device) <= input_ids.shape[1])[:, None]  # the first token is the start
        end = scores[:, self.eos].clone()
        scores = scores.masked_fill(over, float("-inf"))
        scores[:, self.eos] = end
        return scores


def _until_eos(row: list[int], eos: int) -> list[int]:
    return row[: row.index(eos)] if eos in row else row


def check_source_lengths(sources: Sequence[Ids], model: Any, first: int = 1) -> None:
    """Raise an error for a source that is longer than the model reads; `first` is the number of the first one."""
    longest = model.config.max_position_embeddings
    for number, source in enumerate(sources, first):
        if len(source) + 1 > longest:
            raise InputError(
                f"sentence {number} has {len(source) + 1} tokens, but the model reads at most {longest}",
                hint="split the sentence, or train with a larger model.max_positions",
            )
