"""The public names and their modules, listed once: `__init__.py` and type checkers read this file."""

from lidstone.errors import LidstoneError as LidstoneError
from lidstone.errors import SmoothingUndefined as SmoothingUndefined
from lidstone.errors import VocabularyMismatch as VocabularyMismatch
from lidstone.hf.automatic import smoothed_trainer as smoothed_trainer
from lidstone.hf.hook import trainer_loss as trainer_loss
from lidstone.hf.mixin import SmoothedLossMixin as SmoothedLossMixin
from lidstone.hf.mixture import Mixture as Mixture
from lidstone.lab.report import Report as Report
from lidstone.lab.report.comparisons import compare_runs as compare_runs
from lidstone.loss.explain import explain as explain
from lidstone.loss.losses import LinearSmoothedCrossEntropy as LinearSmoothedCrossEntropy
from lidstone.loss.losses import SmoothedCrossEntropy as SmoothedCrossEntropy
from lidstone.loss.parallel import VocabularyParallelCrossEntropy as VocabularyParallelCrossEntropy
from lidstone.loss.schedule import Schedule as Schedule
from lidstone.loss.split import SignedSplit as SignedSplit
from lidstone.loss.split import signed_split as signed_split
from lidstone.loss.teacher import LinearSparseTargetCrossEntropy as LinearSparseTargetCrossEntropy
from lidstone.loss.teacher import SparseTargetCrossEntropy as SparseTargetCrossEntropy
from lidstone.ngram.counts import Counts as Counts
from lidstone.ngram.counts import count as count
from lidstone.ngram.counts import count_text as count_text
from lidstone.ngram.filter.filter import filter_documents as filter_documents
from lidstone.ngram.formats.arpa import read_arpa as read_arpa
from lidstone.ngram.formats.arpa import write_arpa as write_arpa
from lidstone.ngram.formats.safetensors import load as load
from lidstone.ngram.mixing import mix as mix
from lidstone.ngram.prune import prune as prune
from lidstone.ngram.scorer.write import write_kenlm as write_kenlm
from lidstone.ngram.smoothers.absolute_discounting import AbsoluteDiscounting as AbsoluteDiscounting
from lidstone.ngram.smoothers.add_lambda import AddLambda as AddLambda
from lidstone.ngram.smoothers.good_turing import GoodTuring as GoodTuring
from lidstone.ngram.smoothers.jelinek_mercer import JelinekMercer as JelinekMercer
from lidstone.ngram.smoothers.katz import Katz as Katz
from lidstone.ngram.smoothers.kneser_essen_ney import KneserEssenNey as KneserEssenNey
from lidstone.ngram.smoothers.label_smoothing import LabelSmoothing as LabelSmoothing
from lidstone.ngram.smoothers.modified_kneser_ney import ModifiedKneserNey as ModifiedKneserNey
from lidstone.ngram.smoothers.registry import get_smoother as get_smoother
from lidstone.ngram.smoothers.registry import smoother_names as smoother_names
from lidstone.ngram.smoothers.witten_bell import WittenBell as WittenBell
from lidstone.ngram.table import BackoffTable as BackoffTable
from lidstone.text.vocabulary import Vocabulary as Vocabulary
from lidstone.text.words import read_words as read_words

__version__: str
