"""A BPE and its vocabulary as a Hugging Face tokenizer, to be saved beside a model.

Inside it a piece within a word, `low@@` for us, is spelt `low`, and one that ends a word, `est`, is spelt `est</w>`;
the ids are those of the vocabulary. Merging passes through intermediate pieces, so these must have ids too: make the
vocabulary with `subword_vocabulary(lines, closed_under=bpe)`.
"""

from __future__ import annotations

from typing import Any

from lidstone.errors import InputError
from lidstone.text.tokenizer import BPE, PAD
from lidstone.text.vocabulary import BOS, EOS, UNK, Vocabulary


def to_transformers(bpe: BPE, vocab: Vocabulary) -> Any:
    """A `PreTrainedTokenizerFast` that gives the ids of `vocab` and ends each text with `</s>`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    ids = _inner_ids(bpe, vocab)
    model = models.BPE(ids, list(dict.fromkeys(bpe.merges)), end_of_word_suffix="</w>", unk_token=UNK)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(" ")
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {EOS}", special_tokens=[(EOS, ids[EOS])])
    names = {"pad_token": PAD, "unk_token": UNK, "bos_token": BOS, "eos_token": EOS}
    specials = {name: token for name, token in names.items() if token in ids}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **specials)


def _inner_ids(bpe: BPE, vocab: Vocabulary) -> dict[str, int]:
    specials = {PAD, UNK, BOS, EOS}
    ids = {token if token in specials else _inner(token): number for token, number in vocab.index.items()}
    missing = [piece for left, right in bpe.merges for piece in (left, right, left + right) if piece not in ids]
    if missing or UNK not in ids or EOS not in ids:
        raise InputError(
            f"the vocabulary lacks {missing[0] if missing else f'{UNK} or {EOS}'}, which the tokenizer needs",
            hint="make it with subword_vocabulary(lines, closed_under=bpe)",
        )
    return ids


def _inner(token: str) -> str:
    return token.removesuffix("@@") if token.endswith("@@") else f"{token}</w>"
