"""The corpora known by name: their files, and how to read them as samples.

The files are searched in the folders of `corpus_roots()`, plain or compressed. A user's own files are read here too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lidstone.errors import DataError, RecipeError
from lidstone.lab.corpus.cache import corpus_roots
from lidstone.lab.corpus.cleaning import Sample
from lidstone.lab.corpus.sources import DATASETS
from lidstone.lab.recipe.sections import Corpus, SplitFiles
from lidstone.lab.recipe.yaml import nearest
from lidstone.text.corpora import aligned, embedded_corpus, split_sentences
from lidstone.text.reader import read_lines
from lidstone.text.source import COMPRESSED

_ENDINGS = ("", *COMPRESSED)


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


def read_corpus(corpus: Corpus, task: str) -> RawCorpus:
    """Read a named corpus or the user's own files."""
    if corpus.name is None:
        return _read_own(corpus)
    if corpus.name not in READERS:
        raise RecipeError(f"there is no corpus {corpus.name!r}", hint=nearest(corpus.name, READERS))
    languages = (corpus.target_language,) if task == "lm" else (corpus.source_language, corpus.target_language)
    found = READERS[corpus.name](languages)
    if found.train and len(found.train[0]) != len(languages):
        raise RecipeError(f"the corpus {corpus.name} has no translations", hint="use task: lm, or another corpus")
    return found


def find_file(folder: str, name: str) -> Path | None:
    """The file in the first folder of corpora that has it, plain or compressed."""
    candidates = (root / folder / (name + ending) for root in corpus_roots() for ending in _ENDINGS)
    return next((path for path in candidates if path.is_file()), None)


def _required(data: str, folder: str, name: str) -> Path:
    path = find_file(folder, name)
    if path is None:
        fetch = f"run: lidstone data get {data}; or " if data in DATASETS else ""
        raise DataError(
            f"the corpus {data} is not on this machine: {folder}/{name} was not found",
            hint=f"{fetch}set LIDSTONE_DATA to a folder of corpora",
        )
    return path


def _read_own(corpus: Corpus) -> RawCorpus:
    splits = {split: _read_files(getattr(corpus, split)) for split in ("train", "valid", "test")}
    return RawCorpus(splits["train"] or [], splits["valid"], splits["test"], edition="own files")


def _read_files(files: SplitFiles | None) -> list[Sample] | None:
    if files is None:
        return None
    groups = zip(files.source, files.target, strict=True) if files.source else ((file,) for file in files.target)
    return [sample for names in groups for sample in aligned([read_lines(name) for name in names], names)]


def _parallel(data: str, folder: str, stems: Sequence[str], languages: Sequence[str]) -> list[Sample]:
    samples: list[Sample] = []
    for stem in stems:
        paths = [_required(data, folder, stem.format(language)) for language in languages]
        samples += aligned([read_lines(path) for path in paths], [path.name for path in paths])
    return samples


def _embedded(languages: Sequence[str]) -> RawCorpus:
    train, valid, test = split_sentences([(" ".join(words),) for words in embedded_corpus()])
    return RawCorpus(list(train), list(valid), list(test), tokenized=True)


def _wikitext(data: str, folder: str, ending: str) -> Callable[[Sequence[str]], RawCorpus]:
    def read(languages: Sequence[str]) -> RawCorpus:
        train, valid, test = (
            _parallel(data, folder, [f"wiki.{part}.{ending}"], ["en"]) for part in ("train", "valid", "test")
        )
        return RawCorpus(train, valid, test, tokenized=True)

    return read


def _multi30k(languages: Sequence[str]) -> RawCorpus:
    stems = ("train.{}", "val.{}", "test_2016_flickr.{}")
    train, valid, test = (_parallel("multi30k", "multi30k-de-en", [stem], languages) for stem in stems)
    return RawCorpus(train, valid, test)


def _iwslt14(languages: Sequence[str]) -> RawCorpus:
    """The original distribution if available; else tokenized files, whose training part is a subset."""
    folder = "iwslt14-de-en"
    if find_file(folder, "train.tags.de-en.de") is None and find_file(folder, "train.subset.de"):
        stems = ("train.subset.{}", "valid.{}", "test.{}")
        train, valid, test = (_parallel("iwslt14", folder, [stem], languages) for stem in stems)
        return RawCorpus(train, valid, test, True, f"tokenized, {len(train):,} training pairs only")
    paths = [_required("iwslt14", folder, f"train.tags.de-en.{language}") for language in languages]
    train = aligned([talk_lines(read_lines(path)) for path in paths], [path.name for path in paths])
    return RawCorpus(train, test=_iwslt14_test(languages))


def _iwslt14_test(languages: Sequence[str]) -> list[Sample]:
    sets = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")  # fairseq's order
    names = [[f"IWSLT14.{name}.de-en.{language}.xml" for language in languages] for name in sets]
    return [sample for pair in names for sample in _segments("iwslt14", "iwslt14-de-en", pair)]


def _wmt14(languages: Sequence[str]) -> RawCorpus:
    folder = "wmt14-en-de"
    stems = ("europarl-v7.de-en.{}", "commoncrawl.de-en.{}", "news-commentary-v12.de-en.{}")
    roles = ("ref",) if len(languages) == 1 else ("src", "ref")
    test = [f"newstest2014-deen-{role}.{language}.sgm" for role, language in zip(roles, languages, strict=True)]
    return RawCorpus(_parallel("wmt14", folder, stems, languages), test=_segments("wmt14", folder, test))


def _segments(data: str, folder: str, names: Sequence[str]) -> list[Sample]:
    paths = [_required(data, folder, name) for name in names]
    return aligned([segment_lines(read_lines(path)) for path in paths], names)


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


def _tatoeba(languages: Sequence[str]) -> RawCorpus:
    """English TAB German; all translations of one English sentence go to the same split."""
    _check_languages("tatoeba", languages, ("de", "en"))
    path = _required("tatoeba", "tatoeba-de-en", "deu-eng.2018-05-13.tsv")
    parts: dict[str, list[Sample]] = {"train": [], "valid": [], "test": []}
    for line in read_lines(path):
        sides = dict(zip(("en", "de"), line.split("\t"), strict=True))
        bucket = int(hashlib.sha256(sides["en"].encode()).hexdigest()[:8], 16) % 50
        part = {0: "valid", 1: "test"}.get(bucket, "train")
        parts[part].append(tuple(sides[language] for language in languages))
    return RawCorpus(parts["train"], parts["valid"], parts["test"])


def _check_languages(name: str, languages: Sequence[str], known: Sequence[str]) -> None:
    if unknown := [language for language in languages if language not in known]:
        hint = f"set corpus.source_language and corpus.target_language to {' and '.join(known)}"
        raise RecipeError(f"the corpus {name} has no {unknown[0]}", hint=hint)


def _lafand(pair: str) -> Callable[[Sequence[str]], RawCorpus]:
    """News in African languages (Masakhane); free for non-commercial use only, so it is not part of the package."""

    def read(languages: Sequence[str]) -> RawCorpus:
        _check_languages(f"lafand-{pair}", languages, pair.split("-"))
        parts = ("train", "dev", "test")
        train, valid, test = (
            _parallel(f"lafand-{pair}", "lafand-mt", [f"{pair}.{part}.{{}}"], languages) for part in parts
        )
        return RawCorpus(train, valid, test)

    return read


LAFAND = ("en-ibo", "en-swa", "en-yor", "fr-wol")
READERS: dict[str, Callable[[Sequence[str]], RawCorpus]] = {
    "embedded": _embedded,
    "wikitext2": _wikitext("wikitext2", "wikitext-2", "tokens"),
    "wikitext2-raw": _wikitext("wikitext2-raw", "wikitext-2-raw", "raw"),
    "iwslt14": _iwslt14,
    "multi30k": _multi30k,
    "tatoeba": _tatoeba,
    "wmt14": _wmt14,
    **{f"lafand-{pair}": _lafand(pair) for pair in LAFAND},
}
