"""Options that several verbs share, and functions that read and write files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from lidstone.errors import LidstoneError
from lidstone.text.reading.kinds import NAMES, Kind, kind_of_file
from lidstone.text.reading.streams import COMPRESSED

if TYPE_CHECKING:
    from lidstone.ngram.table import BackoffTable
    from lidstone.text.vocabulary import Vocabulary
    from lidstone.text.words import Blank

TEXTS: TypeAlias = Annotated[
    list[str],
    typer.Argument(metavar="TEXT", help="Text files, plain or compressed; - is standard input."),
]
MODEL: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="TABLE", help="A table made by fit, an ARPA file, or a KenLM trie (filter: any KenLM binary)."
    ),
]
OUTPUT: TypeAlias = Annotated[Path, typer.Option("--output", "-o", help="The file to write.")]
MODEL_FILE = "*.arpa, *.arpa.gz (bz2, xz, zst) or - write ARPA; *.table or *.safetensors, a table."
BLANK: TypeAlias = Annotated[
    str, typer.Option(metavar="skip|count", help="Lines without words: skip them, or count them as sentences (KenLM).")
]
JSON: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]


def read_table(path: str) -> BackoffTable:
    """The model in a file: a table of lidstone, ARPA, or a trie of KenLM; `-` is ARPA on standard input."""
    if "://" in path:
        from lidstone.ngram.formats.remote import read_remote

        return read_remote(path, lambda file: read_table(str(file)))
    from lidstone.ngram.arpa.read_write import read_arpa
    from lidstone.ngram.formats.safetensors import load_table

    kind = kind_of_file(path)[0] if Path(path).is_file() else "arpa"
    if kind in ("text", "zip"):
        raise LidstoneError(f"{path} is {NAMES[kind]}, not a model", hint=_HINTS[kind])
    ours = kind in ("table", "counts", "safetensors", "kenlm") or path.endswith(".safetensors")
    return load_table(path) if ours else read_arpa(path)


_HINTS: dict[Kind, str] = {
    "text": "count it and fit a smoother: lidstone count, lidstone fit",
    "zip": "unpack it first",
}


def write_table(table: BackoffTable, output: str | Path) -> None:
    """Write a model in the format of its file name: as ARPA, or as a table of lidstone."""
    from lidstone.ngram.arpa.read_write import write_arpa

    write_arpa(table, str(output)) if is_arpa(output) else table.save(output)


def read_vocabulary(path: Path) -> Vocabulary:
    """A vocabulary from a file with one word per line, or that of a file made by count or fit."""
    if is_table(str(path)):
        from lidstone.ngram.formats.safetensors import load

        return load(path).vocab
    from lidstone.text.corpora import read_lines
    from lidstone.text.vocabulary import Vocabulary

    words = [line.strip(" \t\r") for line in read_lines(path)]
    for number, word in enumerate(words, start=1):
        if " " in word or "\t" in word:
            raise LidstoneError(f"{path}, line {number}: {word!r} is not one word", hint="write one word per line")
    if not any(words):
        raise LidstoneError(f"{path} has no words", hint="use a file with one word per line")
    return Vocabulary.from_words(filter(None, words))


def is_arpa(name: str | Path) -> bool:
    """Whether a name is that of an ARPA file, compressed or not; `-` is one too.

    >>> [is_arpa(name) for name in ("a.arpa", "b.ARPA.gz", "c.arpa.safetensors", "-")]
    [True, True, False, True]
    """
    path = Path(str(name).lower())
    plain = path.with_suffix("") if path.suffix in COMPRESSED else path
    return str(name) == "-" or plain.suffix == ".arpa"


def is_table(path: str) -> bool:
    """Whether a file is a table or counts."""
    return Path(path).is_file() and kind_of_file(path)[0] in ("table", "counts", "safetensors")


def check_model_output(output: str | Path) -> None:
    """Raise an error, before any long work, if a model cannot be written under this name."""
    check_output(output, (".table",), "*.arpa, *.arpa.gz and so on write ARPA; *.table, *.safetensors, a table")


def check_counts_output(output: str | Path, *, folder: bool = False) -> None:
    """The same for a file of counts, or for a folder of them."""
    check_output(output, (".counts",), "name it *.counts or *.safetensors", folder=folder)


def check_output(output: str | Path, suffixes: tuple[str, ...], hint: str, *, folder: bool = False) -> None:
    """Raise an error for an unknown suffix; what begins with a digit, as in jm-0.75, is not a suffix."""
    suffix = Path(output).suffix.lower()
    named = suffix in (".safetensors", *suffixes) or (is_arpa(output) and ".table" in suffixes)
    if suffix[1:2].isalpha() and not named:
        raise LidstoneError(f"cannot write {output}: the suffix {suffix} is unknown", hint=hint)
    if str(output) != "-":
        check_folder(Path(output), folder=folder)


def check_folder(output: Path, *, folder: bool = False) -> None:
    """Raise an error if the output's folder does not exist, or if the output is a folder and `folder` is False."""
    from lidstone.ngram.formats.remote import as_url

    if as_url(output):
        return
    if not output.parent.is_dir():
        raise LidstoneError(f"cannot write {output}: there is no folder {output.parent}", hint="create it first")
    if output.is_dir() and not folder:
        raise LidstoneError(f"cannot write {output}: it is a folder", hint="use the name of a file")


def check_blank(blank: str) -> Blank:
    """Check that `blank` is skip or count."""
    if blank not in ("skip", "count"):
        raise LidstoneError(f"--blank {blank} is unknown", hint="choose skip or count")
    return blank  # type: ignore[return-value]


def check_address(engine: str | None, address: str | None) -> None:
    """Refuse the address of a cluster that nothing would use."""
    if address is not None and engine is None:
        raise LidstoneError("--address is that of a Ray cluster, and none was asked for", hint="add --engine ray")
