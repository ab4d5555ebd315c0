"""Raw text to words: normalization, then the pieces of SentencePiece or of a tokenizer of Hugging Face.

    texts -> CCNet's normalization -> pieces -> one line of words for each text

This is what models of pieces expect whose training text went the same way: CCNet's, and those for speech decoders. A
text becomes one line: line feeds in it are removed by the normalization, and blanks without it.

CCNet's rules, in their order: lower case; every number becomes 0; accents are taken off; blanks at both ends go;
Unicode punctuation becomes ASCII; control characters go. `ccnet` is what datatrove computes, where `3,75` is one 0;
`ccnet-digits` is CCNet's own program, where it is `0,00`.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from lidstone.errors import InputError
from lidstone.parallel import bounded_lookahead, cores
from lidstone.text.reader import read_chunks
from lidstone.text.source import ByteStream, Source, name_of

NORMALIZATIONS = ("ccnet", "ccnet-digits")
BATCH = 1 << 18
"""Characters that a thread takes at a time"""
Split = Callable[[Sequence[bytes]], list[bytes]]


@dataclass(frozen=True)
class RawText:
    """How texts become lines of words.

    >>> RawText("ccnet").words(["Ça coûte 3,75 – «net»"])
    [b'ca coute 0 - "net"']
    """

    normalize: str | None = None
    """one of `NORMALIZATIONS`"""
    sentencepiece: str | None = None
    """a model file of SentencePiece"""
    tokenizer: str | None = None
    """a tokenizer of Hugging Face: its file, its folder, or its name on the hub"""

    def __post_init__(self) -> None:
        if self.normalize not in (None, *NORMALIZATIONS):
            raise InputError(
                f"there is no normalization {self.normalize!r}", hint=f"choose one of {', '.join(NORMALIZATIONS)}"
            )
        if self.sentencepiece is not None and self.tokenizer is not None:
            raise InputError("text is split by SentencePiece or by a tokenizer, not by both", hint="give one of them")

    def words(self, texts: Sequence[str | bytes]) -> list[bytes]:
        """The words of each text, with spaces between."""
        if not texts:
            return []
        lines = _normalized(texts, self.normalize) if self.normalize else list(map(_encoded, texts))
        return [line.replace(b"\n", b" ") if b"\n" in line else line for line in self._split(lines)]

    def words_in_parallel(self, texts: Sequence[str | bytes], threads: int | None = None) -> list[bytes]:
        """The same on all cores, for many texts."""
        self._split([])  # loads its file, once
        jobs = threads or cores()
        with ThreadPoolExecutor(jobs) as pool:
            started = (pool.submit(self.words, batch) for batch in _batches(texts))
            return [line for future in bounded_lookahead(started, 2 * jobs) for line in future.result()]

    def source(self, source: Source, *, prompt: bool = False) -> Source:
        """A text as the words of its lines, for all readers of text; `prompt` if each line is answered as it comes."""
        return ByteStream(self._blocks(source, prompt), name_of(source))  # type: ignore[return-value]

    def _blocks(self, source: Source, prompt: bool) -> Iterator[bytes]:
        self._split([])
        jobs = 1 if prompt else cores()
        with ThreadPoolExecutor(jobs) as pool:
            chunks = read_chunks(source, chunk_bytes=BATCH, watch=not prompt, prompt=prompt)
            started = (pool.submit(self.words, chunk.lines) for chunk in chunks)
            for future in bounded_lookahead(started, 0 if prompt else 2 * jobs):
                yield b"".join([line + b"\n" for line in future.result()])

    def __reduce__(self) -> Any:
        return type(self), (self.normalize, self.sentencepiece, self.tokenizer)

    @cached_property
    def identity(self) -> list[Any]:
        """Equal for equal rules and equal files."""
        file = self.sentencepiece or self.tokenizer
        return [self.normalize, zlib.crc32(Path(file).read_bytes()) if file and Path(file).is_file() else file]

    @cached_property
    def _split(self) -> Split:
        if self.sentencepiece is not None:
            return _split_by_sentencepiece(self.sentencepiece)
        return list if self.tokenizer is None else _split_by_tokenizer(self.tokenizer)


def raw_text(
    normalize: str | None = None, sentencepiece: str | None = None, tokenizer: str | None = None
) -> RawText | None:
    """The rules, with their files loaded; None if there are none: the text is words already."""
    if normalize is None and sentencepiece is None and tokenizer is None:
        return None
    rules = RawText(normalize, sentencepiece, tokenizer)
    rules.words([""])  # errors of files come before any work
    return rules


UNKNOWN_SHARE, TOKENS = 0.5, 500
"""From this share of unknown tokens on, of so many at least, the pieces are not those of the model."""


def foreign_pieces(unknown: float, tokens: float) -> str | None:
    """What to tell if most tokens of raw text are unknown to the model.

    >>> foreign_pieces(80, 1000), foreign_pieces(870, 1000)
    (None, '87.0 % of 1,000 tokens are unknown to the model: ...')
    """
    if tokens < TOKENS or unknown < UNKNOWN_SHARE * tokens:
        return None
    return (
        f"{100 * unknown / tokens:.1f} % of {tokens:,.0f} tokens are unknown to the model: it was not made of text "
        "with these pieces and this normalization"
    )


def _batches(texts: Sequence[str | bytes]) -> Iterator[Sequence[str | bytes]]:
    """The texts, some at a time."""
    start = size = 0
    for end, text in enumerate(texts, start=1):
        size += len(text)
        if size >= BATCH:
            yield texts[start:end]
            start, size = end, 0
    if start < len(texts):
        yield texts[start:]


def _encoded(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode(errors="replace")


def _decoded(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode(errors="replace")


_SEPARATORS = ".,\u060c\u066b\u2396\u2397\u2398"
_NEW_DIGITS = (0x10D40, 0x116D0, 0x116DA, 0x11BF0, 0x11DE0, 0x11F50, 0x16130, 0x16D70, 0x1CCF0, 0x1E4F0, 0x1E5F1)
"""The zeros of decimal digits that Python's own table of characters does not have in all versions."""
_ASTRAL = re.compile("[\U00010000-\U0010ffff]+")
_C0 = bytes([*range(10), *range(11, 32), 127])
_C1 = re.compile(b"\xc2[\x80-\x9f]")
PUNCTUATION = {
    **dict.fromkeys("„“”«»「」《》", '"'),
    **dict.fromkeys("´’", "'"),
    **dict.fromkeys("，、", ","),
    **dict.fromkeys("：∶", ":"),
    **dict.fromkeys("–━►", "-"),
    **dict(zip("。；？！（）～〈〉【】％", ".;?!()~<>[]%", strict=True)),
    "—": " - ",
    "．": ". ",
    "…": "...",
}
"""Unicode punctuation and its ASCII"""


def _normalized(texts: Sequence[str | bytes], rules: str) -> list[bytes]:
    """All texts at once, with line feeds between, which no rule looks beyond."""
    whole = "\n".join(map(_decoded, texts))
    if whole.count("\n") >= len(texts):  # those inside of a text are control characters, as carriage returns are
        whole = "\n".join([_decoded(text).replace("\n", "\r") for text in texts])
    whole, is_ascii = whole.lower(), whole.isascii()
    is_astral = not is_ascii and len(whole.encode("utf-16-le", "surrogatepass")) != 2 * len(whole)
    whole = _numbers(rules == "ccnet", is_astral).sub("0", whole)
    if not is_ascii:
        whole = _without_accents(whole, is_astral)
    whole = "\n".join([text.strip() for text in whole.split("\n")])
    if not is_ascii:
        for character, plain in PUNCTUATION.items():
            whole = whole.replace(character, plain)
    data = whole.encode(errors="replace").translate(None, _C0)
    return (data if is_ascii else _C1.sub(b"", data)).split(b"\n")


def _without_accents(text: str, is_astral: bool) -> str:
    """Characters taken apart, without their nonspacing marks."""
    marks, astral_marks = _marks()
    text = marks.sub("", unicodedata.normalize("NFD", text))
    return _ASTRAL.sub(lambda run: run[0].translate(astral_marks), text) if is_astral else text


@cache
def _numbers(whole: bool, is_astral: bool) -> re.Pattern[str]:
    """Numbers, or their digits. A class of characters beyond 16 bits is slow, and few texts need it."""
    digit = rf"[\d{''.join(f'{chr(zero)}-{chr(zero + 9)}' for zero in _NEW_DIGITS)}]" if is_astral else r"\d"
    return re.compile(rf"{digit}+(?:[{_SEPARATORS}]{digit}+)?" if whole else digit)


@cache
def _marks() -> tuple[re.Pattern[str], dict[int, None]]:
    """Nonspacing marks: those of 16 bits as an expression, which is fast, and the others as a table."""
    places = chain(range(0x20000), range(0xE0000, 0xE1000))
    found = [place for place in places if unicodedata.category(chr(place)) == "Mn"]
    near = "".join(f"{chr(place)}" for place in found if place < 0x10000)
    return re.compile(f"[{near}]+"), dict.fromkeys(place for place in found if place >= 0x10000)


def _split_by_sentencepiece(path: str) -> Split:
    sentencepiece = _needed("sentencepiece")
    if not Path(path).is_file():
        raise InputError(f"cannot read {path}: there is no such file", hint="name a model file of SentencePiece")
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.load(str(path))
    except (OSError, RuntimeError) as error:
        raise InputError(f"{path} is not a model of SentencePiece", hint="it is made by spm_train, *.model") from error
    # This thread does the work: others are at other texts.
    return lambda lines: [b" ".join(pieces) for pieces in processor.encode(lines, out_type=bytes, num_threads=1)]


def _split_by_tokenizer(name: str) -> Split:
    tokenizer = load_tokenizer(name)
    size = max(tokenizer.get_vocab().values(), default=-1) + 1
    blanks = str.maketrans(dict.fromkeys(" \t\r\n\v\f", "\u2581"))
    pieces = [(tokenizer.id_to_token(number) or "").translate(blanks).encode() for number in range(size)]

    def split(lines: Sequence[bytes]) -> list[bytes]:
        found = tokenizer.encode_batch_fast(list(map(_decoded, lines)), add_special_tokens=False)
        return [b" ".join(map(pieces.__getitem__, one.ids)) for one in found]

    return split


def load_tokenizer(name: str) -> Any:
    """A tokenizer of Hugging Face from a file, a folder or the hub, that neither cuts nor pads nor finds `</s>`."""
    tokenizers = _needed("tokenizers")
    file = Path(name) / "tokenizer.json" if Path(name).is_dir() else Path(name)
    try:
        if file.is_file():
            tokenizer = tokenizers.Tokenizer.from_file(str(file))
        elif file.suffix or file.is_absolute():
            raise InputError(f"cannot read {file}: there is no such file", hint="name a tokenizer.json or its folder")
        else:
            tokenizer = tokenizers.Tokenizer.from_pretrained(name)
    except InputError:
        raise
    except Exception as error:  # the package raises no other class
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{name} is not a tokenizer: {reason}", hint="name a tokenizer.json, or its folder") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _needed(package: str) -> Any:
    """A package of the extra `raw`."""
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise InputError(f"{package} is not installed", hint="pip install 'lidstone[raw]'") from error
