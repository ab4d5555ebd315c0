"""lidstone: classical n-gram smoothing as regularizers for neural language models.

The public names are listed here and imported when first used: `import lidstone` is quick and needs no torch.

>>> import lidstone as ld
>>> vocab = ld.Vocabulary(size=4, eos=3)
>>> counts = ld.count([[0, 1], [0, 2]], vocab, order=2)
>>> table = ld.AddLambda(lam=1.0).fit(counts)
>>> table.prob([(0,)])[0].round(3).tolist()  # after 0 came 1 and 2, once each: (c + 1) / (2 + 4)
[0.167, 0.333, 0.333, 0.167]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lidstone.kernel_cache import ensure_kernel_cache as _ensure_kernel_cache

if TYPE_CHECKING:  # the same names as in `_MODULES`, for editors and type checkers
    from lidstone.errors import LidstoneError, SmoothingUndefined, VocabularyMismatch
    from lidstone.hf.hook import trainer_loss
    from lidstone.hf.mixin import SmoothedLossMixin
    from lidstone.hf.mixture import Mixture
    from lidstone.lab.report import Report
    from lidstone.lab.report.comparisons import compare_runs
    from lidstone.loss.columns.vocabulary_parallel import VocabularyParallelCrossEntropy
    from lidstone.loss.explain import explain
    from lidstone.loss.linear_loss import LinearSmoothedCrossEntropy
    from lidstone.loss.loss import SmoothedCrossEntropy
    from lidstone.loss.schedule import Schedule
    from lidstone.loss.split import SignedSplit, signed_split
    from lidstone.ngram.arpa.read_write import read_arpa, write_arpa
    from lidstone.ngram.combine.mixing import mix
    from lidstone.ngram.combine.pruning import prune
    from lidstone.ngram.counts import Counts, count, count_text
    from lidstone.ngram.filter.filter import filter_documents
    from lidstone.ngram.smoothers.absolute_discounting import AbsoluteDiscounting
    from lidstone.ngram.smoothers.add_lambda import AddLambda
    from lidstone.ngram.smoothers.good_turing import GoodTuring
    from lidstone.ngram.smoothers.jelinek_mercer import JelinekMercer
    from lidstone.ngram.smoothers.katz import Katz
    from lidstone.ngram.smoothers.kneser_essen_ney import KneserEssenNey
    from lidstone.ngram.smoothers.label_smoothing import LabelSmoothing
    from lidstone.ngram.smoothers.modified_kneser_ney import ModifiedKneserNey
    from lidstone.ngram.smoothers.registry import get_smoother, smoother_names
    from lidstone.ngram.smoothers.witten_bell import WittenBell
    from lidstone.ngram.storage.files import load
    from lidstone.ngram.table import BackoffTable
    from lidstone.text.vocabulary import Vocabulary
    from lidstone.text.words import read_words

__version__ = "0.1.0"

_MODULES = {
    "AbsoluteDiscounting": "ngram.smoothers.absolute_discounting",
    "AddLambda": "ngram.smoothers.add_lambda",
    "BackoffTable": "ngram.table",
    "Counts": "ngram.counts",
    "GoodTuring": "ngram.smoothers.good_turing",
    "JelinekMercer": "ngram.smoothers.jelinek_mercer",
    "Katz": "ngram.smoothers.katz",
    "KneserEssenNey": "ngram.smoothers.kneser_essen_ney",
    "LabelSmoothing": "ngram.smoothers.label_smoothing",
    "LidstoneError": "errors",
    "LinearSmoothedCrossEntropy": "loss.linear_loss",
    "Mixture": "hf.mixture",
    "ModifiedKneserNey": "ngram.smoothers.modified_kneser_ney",
    "Report": "lab.report",
    "Schedule": "loss.schedule",
    "SignedSplit": "loss.split",
    "SmoothedCrossEntropy": "loss.loss",
    "SmoothedLossMixin": "hf.mixin",
    "SmoothingUndefined": "errors",
    "Vocabulary": "text.vocabulary",
    "VocabularyMismatch": "errors",
    "VocabularyParallelCrossEntropy": "loss.columns.vocabulary_parallel",
    "WittenBell": "ngram.smoothers.witten_bell",
    "compare_runs": "lab.report.comparisons",
    "count": "ngram.counts",
    "count_text": "ngram.counts",
    "explain": "loss.explain",
    "filter_documents": "ngram.filter.filter",
    "get_smoother": "ngram.smoothers.registry",
    "load": "ngram.storage.files",
    "mix": "ngram.combine.mixing",
    "prune": "ngram.combine.pruning",
    "read_arpa": "ngram.arpa.read_write",
    "read_words": "text.words",
    "signed_split": "loss.split",
    "smoother_names": "ngram.smoothers.registry",
    "trainer_loss": "hf.hook",
    "write_arpa": "ngram.arpa.read_write",
}

__all__ = [
    "AbsoluteDiscounting",
    "AddLambda",
    "BackoffTable",
    "Counts",
    "GoodTuring",
    "JelinekMercer",
    "Katz",
    "KneserEssenNey",
    "LabelSmoothing",
    "LidstoneError",
    "LinearSmoothedCrossEntropy",
    "Mixture",
    "ModifiedKneserNey",
    "Report",
    "Schedule",
    "SignedSplit",
    "SmoothedCrossEntropy",
    "SmoothedLossMixin",
    "SmoothingUndefined",
    "Vocabulary",
    "VocabularyMismatch",
    "VocabularyParallelCrossEntropy",
    "WittenBell",
    "__version__",
    "compare_runs",
    "count",
    "count_text",
    "explain",
    "filter_documents",
    "get_smoother",
    "load",
    "mix",
    "prune",
    "read_arpa",
    "read_words",
    "signed_split",
    "smoother_names",
    "trainer_loss",
    "write_arpa",
]


_ensure_kernel_cache()


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'lidstone' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"lidstone.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(__all__) | set(globals()))
