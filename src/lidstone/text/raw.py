"""Raw text to words: normalization, then the pieces of SentencePiece or of a tokenizer of Hugging Face.

    texts -> CCNet's normalization -> pieces -> one line of words for each text

This is what models of pieces expect whose training text went the same way: CCNet's, and those for speech decoders. A
text becomes one line: line feeds in it are removed by the normalization, and blanks without it.

The normalization `ccnet` is that of datatrove, where `3,75` becomes one 0; `ccnet-digits` is that of CCNet's own
program, where it becomes `0,00`.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lidstone.errors import InputError
from lidstone.parallel import bounded_lookahead, cores
from lidstone.text.ccnet import normalized
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
    offset: int | None = None
    """pieces are written as the characters of their ids and this, as NeMo does with 100; None: as they are"""

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
        if self.normalize:
            lines = normalized(texts, whole_numbers=self.normalize == "ccnet")
        else:
            lines = list(map(_encoded, texts))
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
        return type(self), (self.normalize, self.sentencepiece, self.tokenizer, self.offset)

    @cached_property
    def identity(self) -> list[Any]:
        """Equal for equal rules and equal files."""
        file = self.sentencepiece or self.tokenizer
        rules = [self.normalize, zlib.crc32(Path(file).read_bytes()) if file and Path(file).is_file() else file]
        return rules if self.offset is None else [*rules, self.offset]

    @cached_property
    def _split(self) -> Split:
        if self.sentencepiece is not None:
            return _split_by_sentencepiece(self.sentencepiece, self.offset)
        return list if self.tokenizer is None else _split_by_tokenizer(self.tokenizer, self.offset)


def raw_text(
    normalize: str | None = None,
    sentencepiece: str | None = None,
    tokenizer: str | None = None,
    offset: int | None = None,
) -> RawText | None:
    """The rules, with their files loaded; None if there are none: the text is words already."""
    if normalize is None and sentencepiece is None and tokenizer is None:
        return None
    rules = RawText(normalize, sentencepiece, tokenizer, offset)
    rules.words([""])  # errors of files come before any work
    return rules


MOST_IDS = 1 << 22
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


def _split_by_sentencepiece(path: str, offset: int | None) -> Split:
    sentencepiece = _needed("sentencepiece")
    if not Path(path).is_file():
        raise InputError(f"cannot read {path}: there is no such file", hint="name a model file of SentencePiece")
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.load(str(path))
    except (OSError, RuntimeError) as error:
        raise InputError(f"{path} is not a model of SentencePiece", hint="it is made by spm_train, *.model") from error
    # This thread does the work: others are at other texts.
    if offset is None:
        return lambda lines: [b" ".join(pieces) for pieces in processor.encode(lines, out_type=bytes, num_threads=1)]
    names = _characters(processor.get_piece_size(), offset)
    return lambda lines: [_named(names, ids) for ids in processor.encode(lines, out_type=int, num_threads=1)]


def is_sentencepiece(name: str) -> bool:
    """Whether a tokenizer is the file of a SentencePiece model; those of Hugging Face are JSON, folders or names."""
    if not Path(name).is_file():
        return False
    with Path(name).open("rb") as file:
        return not file.read(64).lstrip().startswith(b"{")


def _split_by_tokenizer(name: str, offset: int | None) -> Split:
    if Path(name).is_dir() and not (Path(name) / "tokenizer.json").is_file():
        return _split_by_transformers(name, offset)
    tokenizer = load_tokenizer(name)
    size = max(tokenizer.get_vocab().values(), default=-1) + 1
    if size > MOST_IDS:
        raise InputError(f"{name} has the id {size - 1}", hint=f"lidstone reads tokenizers of up to {MOST_IDS:,} ids")
    names = _names([tokenizer.id_to_token(number) or "" for number in range(size)], offset)

    def split(lines: Sequence[bytes]) -> list[bytes]:
        with _one_line(f"{name} cannot split the text", "give it an unknown token"):
            found = tokenizer.encode_batch_fast(list(map(_decoded, lines)), add_special_tokens=False)
        return [_named(names, one.ids) for one in found]

    return split


def _split_by_transformers(folder: str, offset: int | None) -> Split:
    """By a tokenizer that transformers has in Python only, as that of Wav2Vec2: a folder without tokenizer.json."""
    transformers = _needed("transformers")
    try:
        options = {"local_files_only": True, "trust_remote_code": False}
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
        names = _names(tokenizer.convert_ids_to_tokens(range(len(tokenizer))), offset)
    except InputError:
        raise
    except Exception as error:  # whatever transformers raises
        raise InputError(
            f"{folder} has no tokenizer", hint="name a folder with tokenizer.json or vocab.json"
        ) from error
    return lambda lines: [
        _named(names, tokenizer.convert_tokens_to_ids(tokenizer.tokenize(_decoded(line)))) for line in lines
    ]


def _names(pieces: Sequence[str], offset: int | None) -> list[bytes]:
    """How each piece is written; blanks in pieces are not those between them."""
    if offset is not None:
        return _characters(len(pieces), offset)
    blanks = str.maketrans(dict.fromkeys(" \t\r\n\v\f", "\u2581"))
    return [piece.translate(blanks).encode() for piece in pieces]


def _characters(size: int, offset: int) -> list[bytes]:
    """One character for each piece, as NeMo's decoders read them.

    >>> _characters(3, offset=100)
    [b'd', b'e', b'f']
    """
    if size + offset > 0xD800:
        raise InputError(
            f"{size:,} tokens cannot be written as one character each: the limit is {0xD800 - offset:,}",
            hint="write them as they are",
        )
    return [chr(number + offset).encode() for number in range(size)]


def _named(names: Sequence[bytes], ids: Sequence[int]) -> bytes:
    return b" ".join(map(names.__getitem__, ids))


def load_tokenizer(name: str) -> Any:
    """A tokenizer of Hugging Face from a file, a folder or the hub, that neither cuts nor pads nor finds `</s>`."""
    tokenizers = _needed("tokenizers")
    file = Path(name) / "tokenizer.json" if Path(name).is_dir() else Path(name)
    with _one_line(f"{name} is not a tokenizer", "name a tokenizer.json, or its folder"):
        if file.is_file():
            tokenizer = tokenizers.Tokenizer.from_file(str(file))
        elif file.suffix or file.is_absolute():
            raise InputError(f"cannot read {file}: there is no such file", hint="name a tokenizer.json or its folder")
        else:
            tokenizer = tokenizers.Tokenizer.from_pretrained(name)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


@contextlib.contextmanager
def _one_line(what: str, hint: str) -> Iterator[None]:
    """Turn whatever the package raises into one line; its panics are no `Exception`."""
    try:
        yield
    except (InputError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{what}: {reason}", hint=hint) from error


def _needed(package: str) -> Any:
    """A package of the extra `raw`, or transformers."""
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError as error:
        extra = "train" if package == "transformers" else "raw"
        raise InputError(f"{package} is not installed", hint=f"pip install 'lidstone[{extra}]'") from error
