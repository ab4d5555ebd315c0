"""Corpora: those known by name, the entries of `corpora.yaml`, and a user's own files, as samples.

The files of a named corpus are searched in the folders of `corpus_roots()`, plain or compressed.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from lidstone.errors import DataError, LidstoneError, RecipeError
from lidstone.files import cache_folder
from lidstone.lab.recipe.sections import Corpus, SplitFiles
from lidstone.lab.recipe.yaml import nearest
from lidstone.text.corpora import embedded_corpus, split_sentences
from lidstone.text.reader import aligned, read_lines
from lidstone.text.source import COMPRESSED

Sample = tuple[str, ...]
"""A (source, target) pair, or (target,) for language models."""
SplitFileNames = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class RawCorpus:
    """The text of a corpus as stored on disk, in samples."""

    train: list[Sample]
    valid: list[Sample] | None = None
    test: list[Sample] | None = None
    tokenized: bool = False
    """Whether Moses tokenization (and lower case) has been applied already."""
    edition: str = "complete"
    """How this copy differs from the complete corpus."""


@dataclass(frozen=True)
class Download:
    """One file to download: a file of the corpus, or an archive to unpack."""

    urls: tuple[str, ...]
    """Mirrors, tried in this order."""
    file: str
    """The name of the file in the corpus folder, or of the archive."""
    checksum: str
    """Of the file as downloaded: SHA-256 in hex, or `md5:` and MD5 in hex."""
    members: tuple[str, ...] = ()
    """For archives: paths inside, whose last parts are the names in the corpus folder. Nothing else is unpacked."""

    @property
    def files(self) -> dict[str, str]:
        """For archives: {path inside: name in the corpus folder}."""
        return {member: member.rpartition("/")[2] for member in self.members}


@dataclass(frozen=True)
class NamedCorpus:
    """A corpus that a recipe may name."""

    name: str
    licence: str
    folder: str = ""
    """Its folder below `LIDSTONE_DATA` or the cache; empty if it comes with Python."""
    splits: SplitFileNames = field(default_factory=dict)
    """The files of each split, with `{}` for the language and `{role}` for `src` or `ref`."""
    languages: tuple[str, ...] = ()
    """All languages; a single one is not part of the files' names. Empty: any of which there are files."""
    tokenized: bool = False
    downloads: tuple[Download, ...] = ()
    """What `lidstone data get` fetches; empty for a corpus that must be on this machine already."""
    contents: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of files in the corpus folder, where known."""
    reader: str | None = None
    """The name in `READERS` of this corpus's own way to be read; None to read the files of `splits`."""

    def read(self, languages: Sequence[str]) -> RawCorpus:
        """The samples, with one text per language."""
        if len(self.languages) == 1:
            languages = self.languages
        elif unknown := [language for language in languages if self.languages and language not in self.languages]:
            hint = f"set corpus.source_language and corpus.target_language to {' and '.join(self.languages)}"
            raise RecipeError(f"the corpus {self.name} has no {unknown[0]}", hint=hint)
        found = READERS[self.reader](self, languages) if self.reader else None
        return found or self.read_splits(self.splits, languages, tokenized=self.tokenized)

    def read_splits(self, splits: SplitFileNames, languages: Sequence[str], *, tokenized: bool) -> RawCorpus:
        """The aligned lines of the files of each split."""
        roles = ["src"] * (len(languages) - 1) + ["ref"]
        parts: dict[str, list[Sample]] = {split: [] for split in splits}
        for split, stems in splits.items():
            for stem in stems:
                named = [stem.format(language, role=role) for language, role in zip(languages, roles, strict=True)]
                paths = [self.require(name) for name in named]
                parts[split] += aligned([text_lines(path) for path in paths], [path.name for path in paths])
        return RawCorpus(parts["train"], parts.get("valid"), parts.get("test"), tokenized=tokenized)

    def find(self, file: str) -> Path | None:
        """The file in the first folder of corpora that has it, plain or compressed."""
        candidates = (root / self.folder / (file + end) for root in corpus_roots() for end in ("", *COMPRESSED))
        return next((path for path in candidates if path.is_file()), None)

    def require(self, file: str) -> Path:
        """The file; an error if it is not on this machine."""
        path = self.find(file)
        if path is None:
            fetch = f"run: lidstone data get {self.name}; or " if self.downloads else ""
            raise DataError(
                f"the corpus {self.name} is not on this machine: {self.folder}/{file} was not found",
                hint=f"{fetch}set LIDSTONE_DATA to a folder of corpora",
            )
        return path

    @property
    def files(self) -> list[str]:
        """The files of the whole corpus."""
        if self.downloads:
            found = [file for item in self.downloads for file in item.files.values() or [item.file]]
            return [file.removesuffix(".gz") for file in found]
        stems = [stem for stems in self.splits.values() for stem in stems]
        return list(dict.fromkeys(stem.format(language) for stem in stems for language in self.languages))

    def locate(self) -> Located:
        """Which of its files are on this machine.

        >>> NamedCorpus("embedded", "comes with Python").locate().state
        'yes'
        """
        places = {file: self.find(file) for file in self.files}
        folders = [root / self.folder for root in corpus_roots() if self.folder and (root / self.folder).is_dir()]
        folders = [path.parent for path in places.values() if path is not None] + folders
        missing = tuple(file for file, path in places.items() if path is None)
        here = bool(folders) or not self.folder
        return Located(self.name, self.licence, folders[0] if folders else None, missing, here)


@dataclass(frozen=True)
class Located:
    """A corpus known by name, and which of its files are on this machine."""

    name: str
    licence: str
    folder: Path | None
    """Where its files are; None if there are none, or if it comes with Python."""
    missing: tuple[str, ...]
    """Files that were not found."""
    here: bool
    """Whether any of its files, or its folder, is on this machine."""

    @property
    def state(self) -> str:
        """`yes`, `no`, or `partial` with the first file that is missing."""
        if not self.here or not self.missing:
            return "yes" if self.here else "no"
        more = f" and {len(self.missing) - 1} more" if len(self.missing) > 1 else ""
        return f"partial: lacks {self.missing[0]}{more}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        folder = None if self.folder is None else str(self.folder)
        return {"name": self.name, "here": self.here, "folder": folder, "missing": list(self.missing),
                "licence": self.licence}  # fmt: skip


def read_corpus(corpus: Corpus, task: str) -> RawCorpus:
    """Read a named corpus or the user's own files."""
    if corpus.name is None:
        splits = {split: _read_files(getattr(corpus, split)) for split in ("train", "valid", "test")}
        return RawCorpus(splits["train"] or [], splits["valid"], splits["test"], edition="own files")
    if corpus.name not in CORPORA:
        raise RecipeError(f"there is no corpus {corpus.name!r}", hint=nearest(corpus.name, CORPORA))
    languages = (corpus.target_language,) if task == "lm" else (corpus.source_language, corpus.target_language)
    found = CORPORA[corpus.name].read(languages)
    if found.train and len(found.train[0]) != len(languages):
        raise RecipeError(f"the corpus {corpus.name} has no translations", hint="use task: lm, or another corpus")
    return found


def _read_files(files: SplitFiles | None) -> list[Sample] | None:
    if files is None:
        return None
    groups = zip(files.source, files.target, strict=True) if files.source else ((file,) for file in files.target)
    return [sample for names in groups for sample in aligned([read_lines(name) for name in names], names)]


def _embedded(corpus: NamedCorpus, languages: Sequence[str]) -> RawCorpus:
    train, valid, test = split_sentences([(" ".join(words),) for words in embedded_corpus()])
    return RawCorpus(list(train), list(valid), list(test), tokenized=True)


def _iwslt14_subset(corpus: NamedCorpus, languages: Sequence[str]) -> RawCorpus | None:
    """Where the original distribution is not here: tokenized files, whose training part is a subset."""
    if corpus.find("train.tags.de-en.de") is not None or corpus.find("train.subset.de") is None:
        return None
    files = {"train": ("train.subset.{}",), "valid": ("valid.{}",), "test": ("test.{}",)}
    found = corpus.read_splits(files, languages, tokenized=True)
    return replace(found, edition=f"tokenized, {len(found.train):,} training pairs only")


def _tatoeba(corpus: NamedCorpus, languages: Sequence[str]) -> RawCorpus:
    """English TAB German; all translations of one English sentence go to the same split."""
    parts: dict[str, list[Sample]] = {"train": [], "valid": [], "test": []}
    for line in read_lines(corpus.require(corpus.files[0])):
        sides = dict(zip(("en", "de"), line.split("\t"), strict=True))
        bucket = int(hashlib.sha256(sides["en"].encode()).hexdigest()[:8], 16) % 50
        part = {0: "valid", 1: "test"}.get(bucket, "train")
        parts[part].append(tuple(sides[language] for language in languages))
    return RawCorpus(parts["train"], parts["valid"], parts["test"])


READERS: dict[str, Callable[[NamedCorpus, Sequence[str]], RawCorpus | None]] = {
    "embedded": _embedded,
    "iwslt14_subset": _iwslt14_subset,
    "tatoeba": _tatoeba,
}
_ENTRIES = yaml.safe_load(Path(__file__).with_name("corpora.yaml").read_text(encoding="utf-8"))
CORPORA = {corpus.name: corpus for corpus in TypeAdapter(tuple[NamedCorpus, ...]).validate_python(_ENTRIES)}
"""Every corpus that a recipe may name."""


def text_lines(path: Path) -> Iterable[str]:
    """The lines of a file, without the mark-up that IWSLT's and WMT's files have."""
    if re.search(r"\.(xml|sgm)(\.\w+)?$", path.name):
        return segment_lines(read_lines(path))
    return talk_lines(read_lines(path)) if path.name.startswith("train.tags.") else read_lines(path)


def segment_lines(lines: Iterable[str]) -> list[str]:
    """The text of `<seg>` elements, with straight apostrophes, as fairseq's scripts read dev and test sets.

    >>> segment_lines(['<doc docid="1">', '<seg id="1"> It’s late. </seg>'])
    ["It's late."]
    """
    found = (re.search(r'<seg id="\d+">\s*(.*?)\s*</seg>', line) for line in lines)
    return [match.group(1).replace("’", "'") for match in found if match]


def talk_lines(lines: Iterable[str]) -> list[str]:
    """The text of IWSLT's training files: titles and descriptions are kept, other mark-up removed, as by fairseq.

    >>> talk_lines(["<url>http://a</url>", "<title>Bees</title>", " They fly. "])
    ['Bees', ' They fly. ']
    """
    kept = (line for line in lines if not re.search("<url>|<talkid>|<keywords>", line))
    return [re.sub("</?(?:title|description)>", "", line) for line in kept]


def corpus_roots() -> list[Path]:
    """Folders that may hold corpora, best first: `LIDSTONE_DATA`, then what `lidstone data get` fetched."""
    named = data_root()
    return [*([named] if named else []), cache_folder() / "corpora"]


def data_root() -> Path | None:
    """The folder of corpora named by the environment variable `LIDSTONE_DATA`, if it is set."""
    folder = os.environ.get("LIDSTONE_DATA")
    return Path(folder) if folder else None


def cache_root() -> Path:
    """The folder of the cache, created if missing."""
    root = cache_folder()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = "set LIDSTONE_CACHE to a folder that you may write to"
        raise LidstoneError(f"cannot create the cache {root}: {error.strerror}", hint=hint) from error
    return root
