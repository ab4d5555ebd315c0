"""What the verbs take: options that several share, values of `--set`, completion in the shell, files of models."""

from __future__ import annotations

import ast
import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer
from typer import Argument, Option

from lidstone.errors import LidstoneError
from lidstone.text.source import COMPRESSED, kind_of_file

if TYPE_CHECKING:
    from lidstone.ngram.table import BackoffTable
    from lidstone.text.vocabulary import Vocabulary
    from lidstone.text.words import Blank

TEXTS: TypeAlias = Annotated[
    list[str], Argument(metavar="TEXT", help="Text files, plain or compressed; - is standard input.")
]
MODEL: TypeAlias = Annotated[
    str,
    Argument(
        metavar="TABLE", help="A table made by fit, an ARPA file, or a KenLM trie (score, filter: any KenLM binary)."
    ),
]


def not_stdout(path: Path | None) -> Path | None:
    """Refuse `-` for what needs a name."""
    if str(path) == "-":
        raise LidstoneError("this output is not written to standard output", hint="name a file or folder")
    return path


OUTPUT: TypeAlias = Annotated[Path, Option("--output", "-o", help="The file to write.")]
KENLM_FILES = (".bin", ".binary", ".klm", ".mmap", ".trie", ".probing")
"""suffixes of the binaries of KenLM"""
MODEL_FILES = "*.arpa, *.arpa.gz (bz2, xz, zst) or - write ARPA; *.table or *.safetensors, a table."
MODEL_OUTPUT: TypeAlias = Annotated[Path, Option("--output", "-o", help=MODEL_FILES)]
TEMPORARY: TypeAlias = Annotated[
    Path | None, Option(help="The folder for temporary files; by default that of the output.")
]
COLUMN: TypeAlias = Annotated[str | None, Option(help="The column of Parquet or JSON lines files to read.")]
ENGINE: TypeAlias = Annotated[str | None, Option(help="ray: let the workers of a Ray cluster read and score.")]
ADDRESS: TypeAlias = Annotated[str | None, Option(help="Address of the Ray cluster; by default a new one.")]
RUNS_FOLDER: TypeAlias = Annotated[Path, Option("--output", "-o", callback=not_stdout, help="The folder of runs.")]
BLANK: TypeAlias = Annotated[
    str, Option(metavar="skip|count", help="Lines without words: skip them, or count them as sentences (KenLM).")
]
NORMALIZE: TypeAlias = Annotated[
    str | None, Option(metavar="ccnet|ccnet-digits", help="Normalize raw text first, as CCNet and datatrove do.")
]
SENTENCEPIECE: TypeAlias = Annotated[
    str | None, Option(metavar="FILE", help="Split raw text into pieces with this model of SentencePiece.")
]
TOKENIZER: TypeAlias = Annotated[
    str | None, Option(metavar="NAME|FILE", help="Split raw text into pieces with this tokenizer of Hugging Face.")
]
JSON: TypeAlias = Annotated[bool, Option("--json", help="One JSON object instead of text.")]
LINE_BUFFERED: TypeAlias = Annotated[
    bool, Option("--line-buffered", help="Answer every line of - before the next one comes.")
]


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """Read `name=value` pairs; a value is a Python or JSON literal, or else a string.

    >>> parse_settings(["k=5", "weights=[0.2, 0.6]", "base=uniform", "closed-form=true"])
    {'k': 5, 'weights': [0.2, 0.6], 'base': 'uniform', 'closed_form': True}
    """
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name.isidentifier():
            raise typer.BadParameter(f"'{pair}' is not of the form name=value", param_hint="--set")
        if name in settings:
            raise typer.BadParameter(f"'{name}' is given twice", param_hint="--set")
        settings[name] = parse_literal(value)
    return settings


def parse_literal(text: str) -> Any:
    """The value of a Python or JSON literal; other text is a string.

    >>> [parse_literal(text) for text in ("0.5", "(1, 2)", "null", "None", "uniform")]
    [0.5, (1, 2), None, None, 'uniform']
    """
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # all that literal_eval may raise
            continue
    return text.strip()


def complete_smoothers(incomplete: str) -> list[str]:
    """Names of smoothers.

    >>> complete_smoothers("ka")
    ['katz']
    """
    from lidstone.ngram.smoothers.registry import smoother_names

    return [name for name in smoother_names() if name.startswith(incomplete)]


def complete_recipes(incomplete: str) -> list[str]:
    """Names of lidstone's own recipes, and recipe files.

    >>> complete_recipes("wikitext2_")
    ['wikitext2_small']
    """
    folder = Path(__file__).parents[1] / "lab" / "recipe" / "recipes"
    names = sorted(path.stem for path in folder.glob("*.yaml") if path.stem.startswith(incomplete))
    files = [path for path in _paths(incomplete) if path.suffix in (".yaml", ".yml")]
    return names + [str(path) for path in files] + [f"{path}/" for path in _folders(incomplete)]


def complete_runs(incomplete: str) -> list[tuple[str, str]]:
    """Folders of runs, with the method and seed of each, in folders whose names begin with the typed text."""
    near = [path for path in _folders(incomplete) if (path / "run.json").is_file()]
    inside = [file.parent for folder in _folders(incomplete) for file in sorted(folder.glob("*/run.json"))]
    return [(str(path), _title(path)) for path in [*near, *inside]]


def _paths(incomplete: str) -> Iterator[Path]:
    """Files and folders whose names begin with the typed text."""
    typed = Path(incomplete)
    folder, start = (typed, "") if incomplete.endswith("/") or not incomplete else (typed.parent, typed.name)
    if folder.is_dir():
        yield from (path for path in sorted(folder.iterdir()) if path.name.startswith(start))


def _folders(incomplete: str) -> list[Path]:
    return [path for path in _paths(incomplete) if path.is_dir() and not path.name.startswith(".")]


def _title(run: Path) -> str:
    try:
        record = json.loads((run / "run.json").read_text(encoding="utf-8"))
        return f"{record['name']}, seed {record['seed']}"
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def read_table(path: str) -> BackoffTable:
    """The model in a file of any format; `-` is ARPA on standard input."""
    from lidstone.ngram.scorer.models import load_any_table

    return load_any_table(path)


def write_table(table: BackoffTable, output: str | Path) -> None:
    """Write a model in the format of its file name: as ARPA, or as a table of lidstone."""
    from lidstone.ngram.formats.arpa import write_arpa

    write_arpa(table, str(output)) if is_arpa(output) else table.save(output)


def read_vocabulary(path: Path) -> Vocabulary:
    """A vocabulary from a file with one word per line, or that of a file made by count or fit."""
    if path.is_file() and kind_of_file(path)[0] in ("table", "counts", "safetensors"):
        from lidstone.ngram.formats.safetensors import load

        return load(path).vocab
    from lidstone.text.reader import read_lines
    from lidstone.text.vocabulary import Vocabulary

    words = [line.strip(" \t\r") for line in read_lines(path)]
    for number, word in enumerate(words, start=1):
        if " " in word or "\t" in word:
            raise LidstoneError(f"{path}, line {number}: {word!r} is not one word", hint="write one word per line")
    if not any(words):
        raise LidstoneError(f"{path} has no words", hint="use a file with one word per line")
    return Vocabulary.from_words(filter(None, words))


def kenlm_format(name: str | Path) -> Literal["probing", "trie"] | None:
    """The kind of KenLM's binaries that a file name asks for, if any.

    >>> [kenlm_format(name) for name in ("a.bin", "b.trie", "c.arpa")]
    ['probing', 'trie', None]
    """
    suffix = Path(name).suffix.lower()
    return ("trie" if suffix == ".trie" else "probing") if suffix in KENLM_FILES else None


def is_arpa(name: str | Path) -> bool:
    """Whether a name is that of an ARPA file, compressed or not; `-` is one too.

    >>> [is_arpa(name) for name in ("a.arpa", "b.ARPA.gz", "c.arpa.safetensors", "-")]
    [True, True, False, True]
    """
    path = Path(str(name).lower())
    plain = path.with_suffix("") if path.suffix in COMPRESSED else path
    return str(name) == "-" or plain.suffix == ".arpa"


def check_model_output(output: str | Path) -> None:
    """Raise an error, before any long work, if a model cannot be written under this name."""
    check_output(output, (".table",), "*.arpa, *.arpa.gz and so on write ARPA; *.table, *.safetensors, a table")


def check_counts_output(output: str | Path) -> None:
    """The same for a file of counts."""
    if str(output) == "-":
        raise LidstoneError("counts are not written to standard output", hint="name a file: --output text.counts")
    check_output(output, (".counts",), "name it *.counts or *.safetensors")


def check_counts_input(*paths: str | Path) -> None:
    """Raise an error for counts on standard input: their file is mapped into memory."""
    if "-" in map(str, paths):
        raise LidstoneError("counts are not read from standard input", hint="name a file that count has written")


def check_output(output: str | Path, suffixes: tuple[str, ...], hint: str) -> None:
    """Raise an error for an unknown suffix; what begins with a digit, as in jm-0.75, is not a suffix."""
    suffix = Path(output).suffix.lower()
    named = suffix in (".safetensors", *suffixes) or (is_arpa(output) and ".table" in suffixes)
    if suffix[1:2].isalpha() and not named:
        raise LidstoneError(f"cannot write {output}: the suffix {suffix} is unknown", hint=hint)
    if str(output) != "-":
        check_folder(Path(output))


def check_folder(output: Path) -> None:
    """Raise an error if the output's folder does not exist, or if the output is a folder."""
    from lidstone.files import as_url

    if as_url(output):
        return
    if not output.parent.is_dir():
        raise LidstoneError(f"cannot write {output}: there is no folder {output.parent}", hint="create it first")
    if output.is_dir():
        raise LidstoneError(f"cannot write {output}: it is a folder", hint="use the name of a file")


def check_blank(blank: str) -> Blank:
    """Check that `blank` is skip or count."""
    if blank not in ("skip", "count"):
        raise LidstoneError(f"--blank {blank} is unknown", hint="choose skip or count")
    return blank  # type: ignore[return-value]


def check_engine(engine: str | None, address: str | None) -> None:
    """Raise an error for an unknown engine, and for the address of a cluster that nothing would use."""
    if engine not in (None, "ray"):
        raise LidstoneError(f"there is no engine {engine!r}", hint="use --engine ray")
    if address is not None and engine is None:
        raise LidstoneError("--address is that of a Ray cluster, and none was asked for", hint="add --engine ray")


@contextlib.contextmanager
def ray_cluster(engine: str | None, address: str | None) -> Iterator[None]:
    """A connection to a Ray cluster while the block runs, if `--engine ray` was given."""
    if engine is None:
        yield
        return
    from lidstone.ray_cluster import connect

    ray = connect(address)
    try:
        yield
    finally:
        ray.shutdown()
