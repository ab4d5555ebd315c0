"""What `ld.count` makes of training data as people have it: padded, packed, documents, data sets, text."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

import lidstone as ld
from lidstone.errors import InputError

EOS, PAD = 2, 1
VOCAB = ld.Vocabulary(size=20, eos=EOS, unpredictable=(PAD,))


def sentences(number=100, seed=1):
    dice = random.Random(seed)
    return [[dice.randint(3, 19) for _ in range(dice.randint(1, 9))] for _ in range(number)]


TEXT = sentences()
TRUTH = ld.count(TEXT, VOCAB, order=3)
PAIRS = Counter(pair for words in TEXT for pair in zip([VOCAB.bos, *words], [*words, EOS], strict=True))


def bigrams(counts):
    return {pair: counts.of(pair) for pair in PAIRS}


def test_the_expected_counts_are_those_of_a_dictionary():
    assert bigrams(TRUTH) == PAIRS


def blocks(length):
    """The text as language-model scripts pack it: every document ends with eos, the stream is cut anywhere."""
    stream = [token for words in TEXT for token in [*words, EOS]]
    return [stream[start : start + length] for start in range(0, len(stream), length)]


@pytest.mark.parametrize("length", [4, 8, 64])
@pytest.mark.parametrize("as_arrays", [False, True])
def test_packed_blocks_end_sentences_at_eos_alone(length, as_arrays):
    rows = [np.array(row) for row in blocks(length)] if as_arrays else blocks(length)
    counts = ld.count(rows, VOCAB, order=3)
    assert counts.of([EOS]) == 100  # as many as the text has, not one more per block
    assert bigrams(counts) == PAIRS
    assert counts.fingerprint == TRUTH.fingerprint


def test_a_matrix_of_blocks_is_packed_too():
    whole = [row for row in blocks(8) if len(row) == 8]
    assert ld.count(np.array(whole), VOCAB, 2).of([EOS]) == sum(row.count(EOS) for row in whole)


@pytest.mark.parametrize("pad", [PAD, EOS])
@pytest.mark.parametrize("start", [(), (EOS,)])
def test_padded_rows_are_one_sentence_each(pad, start):
    width = 11
    rows = [[*start, *words, EOS] for words in TEXT]
    assert ld.count([row + [pad] * (width - len(row)) for row in rows], VOCAB, 3).fingerprint == TRUTH.fingerprint


def test_a_mask_hides_padding_of_any_id_on_either_side():
    rows = [{"input_ids": [7] * (9 - len(w)) + w, "attention_mask": [0] * (9 - len(w)) + [1] * len(w)} for w in TEXT]
    assert ld.count(rows, VOCAB, 3).fingerprint == TRUTH.fingerprint


def test_sentences_of_one_length_are_no_blocks():
    rows = [[3, 4, 5], [6, 7, 8], [9, 3, 4]]
    assert ld.count(rows, VOCAB, 2).of([EOS]) == 3
    assert ld.count([[3, 4, EOS], [5, 6, EOS]], VOCAB, 2).of([EOS]) == 2


def test_what_is_said_goes():
    rows = [[3, EOS, 4], [5, 6, 7]]
    assert ld.count(rows, VOCAB, 2).of([EOS]) == 1
    assert ld.count(rows, VOCAB, 2, append_eos=True).of([EOS]) == 3


def test_documents_of_a_packed_data_set_are_kept_apart():
    """TRL's packing: whole documents in a row, their lengths beside it, perhaps without any eos."""
    rows = [
        {"input_ids": [*a, *b], "seq_lengths": [len(a), len(b)]} for a, b in zip(TEXT[::2], TEXT[1::2], strict=True)
    ]
    assert ld.count(rows, VOCAB, 3).fingerprint == TRUTH.fingerprint


class TestDataSets:
    def test_a_data_set_its_column_and_its_rows(self):
        datasets = pytest.importorskip("datasets")
        data = datasets.Dataset.from_dict({"input_ids": TEXT, "labels": TEXT, "note": ["x"] * 100})
        for given in (data, data["input_ids"], data.with_format("numpy"), data.with_format("torch"), list(data)):
            assert ld.count(given, VOCAB, order=3).fingerprint == TRUTH.fingerprint
        assert ld.count(data.to_iterable_dataset(), VOCAB, order=3).fingerprint == TRUTH.fingerprint

    def test_text_with_a_tokenizer(self):
        datasets = pytest.importorskip("datasets")
        lines = [" ".join(f"<{word}>" for word in words) for words in TEXT]
        data = datasets.Dataset.from_dict({"text": lines, "label": [0] * 100})
        for given in (data, data["text"], lines):
            assert ld.count(given, VOCAB, order=3, tokenizer=tokenizer()).fingerprint == TRUTH.fingerprint
        renamed = data.rename_column("text", "article")
        found = ld.count(renamed, VOCAB, order=3, tokenizer=tokenizer(), column="article")
        assert found.fingerprint == TRUTH.fingerprint

    def test_what_cannot_be_counted(self):
        datasets = pytest.importorskip("datasets")
        data = datasets.Dataset.from_dict({"text": ["a"], "label": [0]})
        with pytest.raises(InputError, match=r"columns text, label, but no input_ids. hint: tokenize it first"):
            ld.count(data, VOCAB, order=2)
        with pytest.raises(InputError, match=r"choose a split: data\['train'\]"):
            ld.count(datasets.DatasetDict(train=data, test=data), VOCAB, order=2)
        with pytest.raises(InputError, match=r"a row is text: 'a'. hint: pass tokenizer="):
            ld.count(data["text"], VOCAB, order=2)
        with pytest.raises(InputError, match="a row has 'label', but no input_ids"):
            ld.count([{"label": 0}], VOCAB, order=2)
        with pytest.raises(InputError, match=r"where a vocabulary is expected. hint: ld\.Vocabulary\.from_tokenizer"):
            ld.count(TEXT, tokenizer(), order=2)


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({f"<{token}>": token for token in range(VOCAB.size)}, unk_token="<3>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=f"<{EOS}>", pad_token=f"<{PAD}>")
