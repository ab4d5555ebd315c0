"""What `ld.count` makes of training data as people have it: padded, packed, documents, data sets, text."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import ClassVar

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


class TestChats:
    """Chat templates mark the ends of turns with the tokenizer's eos; what follows the last one is no sentence."""

    TEMPLATES: ClassVar = {
        "chatml": "<|im_start|> {} \n {} <|im_end|> \n ",
        "qwen": "<|im_start|> {} \n <think> \n \n </think> {} <|im_end|> \n ",
        "llama-3": "<|start_header_id|> {} <|end_header_id|> \n\n {} <|eot_id|> ",
    }

    def rows(self, name, turns):
        template = self.TEMPLATES[name]
        text = [[template.format(*turn).split(" ")[:-1] for turn in chat] for chat in turns]
        words = sorted({word for chat in text for turn in chat for word in turn} - {self.eos(name)})
        vocab = ld.Vocabulary(len(words) + 2, eos=0, unpredictable=(1,), tokens=(self.eos(name), "<pad>", *words))
        return [[int(i) for turn in chat for i in vocab.encode(turn)] for chat in text], vocab

    def eos(self, name):
        return "<|eot_id|>" if name == "llama-3" else "<|im_end|>"

    @pytest.mark.parametrize("name", TEMPLATES)
    @pytest.mark.parametrize("whole", [True, False])
    def test_every_end_that_is_counted_stands_in_the_rows(self, name, whole):
        dice = random.Random(3)

        def says(role):
            return role, " ".join(dice.choices("abcdefg", k=dice.randint(1, 5)))

        chats = [[says("user"), says("assistant")] * dice.randint(1, 3) for _ in range(40)]
        rows, vocab = self.rows(name, chats if whole else [chat[-1:] for chat in chats])
        counts = ld.count(rows, vocab, order=3)
        assert counts.of([vocab.eos]) == sum(row.count(vocab.eos) for row in rows)
        assert (
            counts.of([vocab.bos])
            == sum(  # a row begins a sentence, and so does what follows an eos
                1 + sum(token == vocab.eos for token in row[:-1]) for row in rows
            )
        )
        inside = Counter(pair for row in rows for pair in pairwise(row))
        assert {pair: counts.of(pair) for pair in inside if vocab.eos not in pair} == {
            pair: number for pair, number in inside.items() if vocab.eos not in pair
        }
        if name != "llama-3":  # "\n" after the end of a turn is never followed by an end
            after = ld.WittenBell().fit(counts)
            newline = int(vocab.encode(["\n"])[0])
            assert counts.of([vocab.bos, newline, vocab.eos]) == 0
            assert after.prob([[vocab.bos, newline]])[0, vocab.eos] < 0.02

    def test_padding_and_masks_change_nothing(self):
        rows, vocab = self.rows("chatml", [[("user", "a b")], [("user", "a")], [("user", "a b c")]])
        truth = ld.count(rows, vocab, 2).fingerprint
        width = max(map(len, rows))
        assert ld.count([row + [1] * (width + 1 - len(row)) for row in rows], vocab, 2).fingerprint == truth
        masked = [
            {"input_ids": [5] * (9 - len(row)) + row, "attention_mask": [0] * (9 - len(row)) + [1] * len(row)}
            for row in rows
        ]
        assert ld.count(masked, vocab, 2).fingerprint == truth

    def test_packed_chats_with_lengths(self):
        rows, vocab = self.rows("chatml", [[("user", "a b")], [("user", "a")], [("user", "a b c")]])
        packed = [{"input_ids": [*rows[0], *rows[1]], "seq_lengths": [len(rows[0]), len(rows[1])]}, rows[2]]
        assert ld.count(packed, vocab, 2).fingerprint == ld.count(rows, vocab, 2).fingerprint

    def test_a_table_scores_the_same_tokens(self):
        rows, vocab = self.rows("chatml", [[("user", "a b")], [("user", "a")], [("user", "a b c")]])
        table = ld.WittenBell().fit(ld.count(rows, vocab, 2))
        assert table.perplexity(rows).tokens == sum(map(len, rows))
        assert ld.JelinekMercer.learn(ld.count(rows, vocab, 2), rows).weights

    def test_an_id_outside_the_vocabulary_is_refused_beside_open_rows(self):
        with pytest.raises(InputError, match="id 20 at position 4 is outside the vocabulary of 20 ids"):
            ld.count([[3, EOS, 4], [5, VOCAB.bos]], VOCAB, 2)


class TestBlocksWithoutEos:
    """`group_texts` of run_clm with a tokenizer that adds no eos: blocks of one length, cut anywhere."""

    STREAM: ClassVar = [token for words in TEXT for token in words]

    @pytest.mark.parametrize("length", [8, 32])
    @pytest.mark.parametrize("rest", [True, False])
    def test_no_end_is_counted_and_a_warning_says_how_to_mark_documents(self, length, rest):
        whole = len(self.STREAM) // length * length
        rows = [self.STREAM[i : i + length] for i in range(0, len(self.STREAM) if rest else whole, length)]
        with pytest.warns(UserWarning, match=f"one length, {length}, have no eos.*Put eos after every document"):
            counts = ld.count([{"input_ids": row, "attention_mask": [1] * len(row)} for row in rows], VOCAB, 3)
        assert counts.of([EOS]) == 0 and counts.of([VOCAB.bos]) == 1
        assert counts.fingerprint == ld.count(np.array([i for row in rows for i in row]), VOCAB, 3).fingerprint
        assert ld.KneserEssenNey(discount=0.5).fit(counts).normalisation_error() < 1e-9

    def test_the_keyword_decides_without_a_warning(self):
        rows = [self.STREAM[i : i + 8] for i in range(0, 80, 8)]
        assert ld.count(rows, VOCAB, 2, append_eos=True).of([EOS]) == 10
        assert ld.count(rows, VOCAB, 2, append_eos=False).of([EOS]) == 0

    def test_padded_or_marked_or_short_rows_are_no_such_blocks(self):
        sentence = list(range(3, 11))
        for rows, ends in (([sentence, sentence[:-1]] * 4, 8), ([[*sentence, EOS]] * 4, 4), ([sentence] * 3, 3)):
            assert ld.count(rows, VOCAB, 2).of([EOS]) == ends


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({f"<{token}>": token for token in range(VOCAB.size)}, unk_token="<3>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=f"<{EOS}>", pad_token=f"<{PAD}>")
