"""The public names: what is here stays."""

from __future__ import annotations

import inspect

import pytest

import lidstone as ld

NAMES = [
    "AbsoluteDiscounting",
    "AddLambda",
    "BackoffTable",
    "BlockFit",
    "BlockSmoother",
    "Counts",
    "FoldedCrossEntropy",
    "GoodTuring",
    "JelinekMercer",
    "Katz",
    "KneserEssenNey",
    "LabelSmoothing",
    "LidstoneError",
    "LinearSmoothedCrossEntropy",
    "LinearSparseTargetCrossEntropy",
    "LossParts",
    "Mixture",
    "ModifiedKneserNey",
    "NGramModule",
    "Report",
    "Schedule",
    "SignedSplit",
    "SmoothedCrossEntropy",
    "SmoothedLossMixin",
    "SmoothingUndefined",
    "SparseTargetCrossEntropy",
    "StoredTeacher",
    "Sweep",
    "TeacherCollator",
    "TeacherModel",
    "TeacherParts",
    "Vocabulary",
    "VocabularyMismatch",
    "VocabularyParallelCrossEntropy",
    "WittenBell",
    "align",
    "compare_runs",
    "count",
    "count_text",
    "embedded_corpus",
    "explain",
    "filter_documents",
    "get_smoother",
    "holm",
    "load",
    "load_recipe",
    "load_scorer",
    "load_teacher",
    "mix",
    "paired_bootstrap",
    "paired_permutations",
    "prepare_corpus",
    "prune",
    "rank_sum",
    "read_arpa",
    "read_words",
    "signed_split",
    "smoothed_trainer",
    "smoother_names",
    "split_sentences",
    "teach",
    "train",
    "trainer_loss",
    "write_arpa",
    "write_kenlm",
]
PARAMETERS = {
    "Vocabulary": "size eos unpredictable unk tokens",
    "count": "sentences vocab order",
    "count_text": "sources order vocab thresholds blank show",
    "read_words": "sources vocab blank show seen",
    "read_arpa": "source vocab",
    "write_arpa": "table path tokens",
    "write_kenlm": "model path format multiplier bits backoff_bits array_bits unknown words",
    "load": "path verify",
    "smoothed_trainer": "trainer tokenizer train_dataset order gamma smoother",
    "explain": "table counts history",
    "signed_split": "table counts",
    "AbsoluteDiscounting": "discount fallback",
    "AddLambda": "lam",
    "GoodTuring": "confidence fallback",
    "JelinekMercer": "weights base",
    "Katz": "k unigrams fallback",
    "KneserEssenNey": "discount fallback",
    "LabelSmoothing": "gamma epsilon",
    "ModifiedKneserNey": "fallback",
    "WittenBell": "",
    "SmoothedCrossEntropy": "table counts gamma gamma_plus gamma_minus form empirical ignore_index reduction schedule",
    "SparseTargetCrossEntropy": "tail gamma temperature counts ignore_index reduction",
    "teach": "models sentences output vocab top sample as_rows",
    "load_teacher": "path verify",
    "TeacherCollator": "collator teacher",
    "FoldedCrossEntropy": "tables make",
    "TeacherModel": "models vocab weights temperature",
    "NGramModule": "table dtype",
    "align": "table counts",
    "load_recipe": "source overrides",
    "load_scorer": "path",
    "prepare_corpus": "recipe output",
    "train": "recipe output prepared resume tensorboard watch",
    "Sweep": "recipe output methods processes threads",
    "rank_sum": "system baseline exact names",
    "paired_permutations": "systems baseline permutations seed name",
    "paired_bootstrap": "systems baseline references samples seed name",
    "holm": "comparisons",
    "LinearSmoothedCrossEntropy": "table counts gamma gamma_plus gamma_minus form empirical",
}
MEMBERS = {
    "Vocabulary": "bos encode events event_count fingerprint from_tokenizer from_words index",
    "Counts": "counts_of_counts drop fingerprint of order save stored thresholds tokens totals trie vocab",
    "StoredTeacher": "add_columns at find k require save_parquet signature",
    "BackoffTable": "base backoffs logprob ngram_probs normalisation_error order perplexity prob require rows sample "
    "save signature token_logprobs vocab",
}


def test_every_name_is_there_and_documented():
    assert [name for name in NAMES if name not in ld.__all__] == []
    for name in NAMES:
        assert inspect.getdoc(getattr(ld, name)), name


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_keep_their_names(name):
    found = list(inspect.signature(getattr(ld, name)).parameters)
    assert [parameter for parameter in PARAMETERS[name].split() if parameter not in found] == []


@pytest.mark.parametrize("name", MEMBERS)
def test_members_keep_their_names(name):
    kind = getattr(ld, name)
    found = {*dir(kind), *kind.__dataclass_fields__}
    assert [member for member in MEMBERS[name].split() if member not in found] == []
