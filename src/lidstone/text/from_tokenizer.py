"""Which ids of a Hugging Face tokenizer can be predicted, and which one ends a sentence.

eos is predicted even if it is also bos or pad (GPT-2). Tokenizers without eos end sentences with sep
(BERT). bos, pad, cls and mask are not predicted, unless they are eos or unk. unk is predicted like a word;
if it is eos (GPT-2, whose bytes cover every text) there is no unknown word. Ids without a
string, which exist if the model's matrix is larger than the tokenizer, are not predicted either.
"""

from __future__ import annotations

from typing import Any

from lidstone.errors import InputError


def strings_of(tokenizer: Any, size: int | None) -> tuple[str, ...]:
    """The string of each id; `<unused-ID>` where the tokenizer has none."""
    strings = {number: string for string, number in tokenizer.get_vocab().items()}
    needed = max(strings, default=-1) + 1
    if size is not None and size < needed:
        raise InputError(
            f"size={size} is too small for a tokenizer with ids up to {needed - 1}",
            hint="pass the number of rows of the model's embedding matrix",
        )
    return tuple(strings.get(number, f"<unused-{number}>") for number in range(size or needed))


def specials_of(tokenizer: Any) -> tuple[int, tuple[int, ...], int | None]:
    """The ids (eos, unpredictable, unk)."""
    eos = _first_of(tokenizer, "eos_token_id", "sep_token_id")
    if eos is None:
        raise InputError("the tokenizer has neither eos nor sep", hint="set tokenizer.eos_token")
    unk = getattr(tokenizer, "unk_token_id", None)
    others = {getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "pad", "cls", "mask")}
    unpredictable = sorted(token for token in others - {eos, unk} if token is not None)
    return eos, tuple(unpredictable), None if unk == eos else unk


def _first_of(tokenizer: Any, *names: str) -> int | None:
    values = (getattr(tokenizer, name, None) for name in names)
    return next((value for value in values if value is not None), None)
