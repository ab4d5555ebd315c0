"""The event space, and what becomes of Hugging Face's special tokens."""

from types import SimpleNamespace

import numpy as np
import pytest

from lidstone.errors import InputError
from lidstone.text.vocabulary import Vocabulary


def tokenizer(size, **specials):
    """What `from_tokenizer` asks of a tokenizer; ids without a special are words."""
    return SimpleNamespace(get_vocab=lambda: {f"t{number}": number for number in range(size)}, **specials)


def test_the_events_are_all_ids_but_the_unpredictable():
    vocab = Vocabulary(size=5, eos=2, unpredictable=(4, 0, 4))
    assert vocab.events.tolist() == [False, True, True, True, False]
    assert vocab.event_count == 3 and vocab.bos == 5 and vocab.unpredictable == (0, 4)
    with pytest.raises(ValueError, match="read-only"):
        vocab.events[0] = True


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": 0, "eos": 0}, "at least one id"),
        ({"size": 3, "eos": 3}, "eos id 3 is outside 0 to 2"),
        ({"size": 3, "eos": -1}, "eos id -1"),
        ({"size": 3, "eos": None}, "not None"),
        ({"size": 3.5, "eos": 0}, "whole number"),
        ({"size": 3, "eos": 0, "unk": 5}, "unk id 5"),
        ({"size": 3, "eos": 0, "unpredictable": (9,)}, "unpredictable id 9"),
        ({"size": 3, "eos": 0, "unpredictable": (0,)}, "eos id 0 is listed as unpredictable"),
        ({"size": 3, "eos": 0, "tokens": ("a", "b")}, "2 tokens given for 3 ids"),
        ({"size": 3, "eos": 0, "tokens": ("a", "b", "a")}, "'a' occurs twice"),
    ],
)
def test_impossible_vocabularies_are_refused(values, message):
    with pytest.raises(InputError, match=message) as caught:
        Vocabulary(**values)
    assert caught.value.hint


def test_numpy_integers_become_plain_ones():
    vocab = Vocabulary(size=np.int64(3), eos=np.int32(1), unpredictable=np.array([0]))
    assert vocab == Vocabulary(3, 1, (0,)) and type(vocab.size) is int


def test_words_and_their_ids():
    vocab = Vocabulary.from_words(["<unk>", "b", "a", "</s>"])
    assert vocab.tokens == ("<unk>", "</s>", "b", "a")
    assert vocab.encode(["a", "new", "b"]).tolist() == [3, 0, 2]
    assert vocab.encode([]).dtype == np.int32
    with pytest.raises(InputError, match="<s>"):
        Vocabulary.from_words(["<s>"])


def test_encoding_needs_strings_and_an_unknown_word():
    with pytest.raises(InputError, match="no strings"):
        Vocabulary(2, 0).encode(["a"])
    with pytest.raises(InputError, match="'b' is not in the vocabulary"):
        Vocabulary(2, 0, tokens=("</s>", "a")).encode(["a", "b"])


def test_ids_outside_are_named():
    vocab = Vocabulary(size=3, eos=0, unpredictable=(2,))
    assert vocab.check_ids([0, 2]).tolist() == [0, 2]
    assert vocab.check_ids([3], bos=True).tolist() == [3]
    assert vocab.check_ids([]).size == 0
    for bad in ([0, 3], [0, -1]):
        with pytest.raises(InputError, match=f"id {bad[1]} at position 1 is outside the vocabulary of 3 ids"):
            vocab.check_ids(bad)
    with pytest.raises(InputError, match="whole numbers"):
        vocab.check_ids([0.5])


def test_the_fingerprint_tells_vocabularies_apart_and_survives_a_round_trip():
    variants = [
        Vocabulary(4, 0),
        Vocabulary(5, 0),
        Vocabulary(4, 1),
        Vocabulary(4, 0, (1,)),
        Vocabulary(4, 0, tokens=tuple("abcd")),
        Vocabulary(4, 0, tokens=tuple("abdc")),
    ]
    assert len({vocab.fingerprint for vocab in variants}) == len(variants)
    for vocab in variants:
        assert Vocabulary.from_dict(vocab.to_dict()).fingerprint == vocab.fingerprint


def test_gpt2_where_every_special_is_one_id():
    vocab = Vocabulary.from_tokenizer(tokenizer(10, eos_token_id=9, bos_token_id=9, pad_token_id=9, unk_token_id=9))
    assert vocab.eos == 9 and vocab.unpredictable == () and vocab.unk is None and vocab.size == 10


def test_bos_and_pad_are_unpredictable_and_unk_is_not():
    vocab = Vocabulary.from_tokenizer(tokenizer(10, bos_token_id=0, pad_token_id=1, eos_token_id=2, unk_token_id=3))
    assert vocab.unpredictable == (0, 1) and vocab.eos == 2 and vocab.unk == 3


def test_padding_with_the_unknown_word_leaves_it_predictable():
    vocab = Vocabulary.from_tokenizer(tokenizer(10, pad_token_id=3, eos_token_id=2, unk_token_id=3))
    assert vocab.unpredictable == ()


def test_bert_ends_sentences_with_sep():
    specials = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    vocab = Vocabulary.from_tokenizer(
        tokenizer(10, eos_token_id=None, **{f"{name}_token_id": number for name, number in specials.items()})
    )
    assert vocab.eos == 3 and vocab.unpredictable == (0, 2, 4)
    with pytest.raises(InputError, match="neither eos nor sep"):
        Vocabulary.from_tokenizer(tokenizer(10))


def test_a_padded_embedding_matrix_adds_unpredictable_ids():
    vocab = Vocabulary.from_tokenizer(tokenizer(10, eos_token_id=2), size=12)
    assert vocab.size == 12 and vocab.unpredictable == (10, 11)
    with pytest.raises(InputError, match="size=9 is too small"):
        Vocabulary.from_tokenizer(tokenizer(10, eos_token_id=2), size=9)


def test_a_real_fast_tokenizer():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    model = Tokenizer(models.WordLevel({"[UNK]": 0, "</s>": 1, "a": 2}, unk_token="[UNK]"))
    fast = PreTrainedTokenizerFast(tokenizer_object=model, unk_token="[UNK]", eos_token="</s>", pad_token="[PAD]")
    vocab = Vocabulary.from_tokenizer(fast)  # the pad token was added behind the words
    assert vocab.tokens == ("[UNK]", "</s>", "a", "[PAD]")
    assert vocab.eos == 1 and vocab.unk == 0 and vocab.unpredictable == (3,)


@pytest.mark.parametrize("text", ["the cat", "", b"the cat"])
def test_a_text_is_not_a_sequence_of_words(text):
    with pytest.raises(InputError, match="encode takes a sequence of words") as caught:
        Vocabulary.from_words(["the", "cat"]).encode(text)
    assert "text.split()" in caught.value.hint
