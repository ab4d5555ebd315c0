"""The corpora known by name, one entry each: licence, files, download addresses with checksums.

Every download has a checksum that was published elsewhere, so that no host has to be trusted: SHA-256 where
there is one, else MD5, which detects damage and changes, but does not protect against an attacker (docs/data.md).
A user's own files are read here too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from lidstone.errors import RecipeError
from lidstone.lab.corpus.named import Download, NamedCorpus, RawCorpus, Sample
from lidstone.lab.recipe.sections import Corpus, SplitFiles
from lidstone.lab.recipe.yaml import nearest
from lidstone.text.corpora import aligned, embedded_corpus, split_sentences
from lidstone.text.reader import read_lines


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


EMBEDDED = NamedCorpus("embedded", "comes with Python (PSF licence)", reader=_embedded)

_PYTORCH = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2/"
WIKITEXT2 = NamedCorpus(
    "wikitext2",
    "CC BY-SA 3.0 (Wikipedia); corpus by Merity et al. 2016",
    "wikitext-2",
    {part: (f"wiki.{part}.tokens",) for part in ("train", "valid", "test")},
    languages=("en",),
    tokenized=True,
    downloads=tuple(
        Download((f"{_PYTORCH}{part}.txt",), f"wiki.{part}.tokens", checksum)
        for part, checksum in {
            "train": "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
            "valid": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            "test": "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
        }.items()
    ),
)

WIKITEXT2_RAW = NamedCorpus(
    "wikitext2-raw",
    "CC BY-SA 3.0 (Wikipedia); corpus by Merity et al. 2016",
    "wikitext-2-raw",
    {part: (f"wiki.{part}.raw",) for part in ("train", "valid", "test")},
    languages=("en",),
    tokenized=True,
    downloads=(
        Download(
            (
                "https://wikitext.smerity.com/wikitext-2-raw-v1.zip",
                "https://huggingface.co/datasets/ggml-org/ci/resolve/main/wikitext-2-raw-v1.zip",
            ),
            "wikitext-2-raw-v1.zip",
            "ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11",
            tuple(f"wikitext-2-raw/wiki.{part}.raw" for part in ("train", "valid", "test")),
        ),
    ),
    contents={
        "wiki.valid.raw": "4cd0f6876d07a413aa911261ff6d363c72d757d47f0fdd6015702014c89cb9c7",
        "wiki.test.raw": "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08",
    },
)

_IWSLT14_SETS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")  # fairseq's order
_IWSLT14_XML = {
    "IWSLT14.TED.dev2010.de-en.de.xml": "6bb2e8272bc49a4f19df2150a482a1b856fa6a2d6b289d3a80ac6b4ff66070fe",
    "IWSLT14.TED.dev2010.de-en.en.xml": "5c860ebb64d4ecdc65800c7ba59732d27cff8b296fa7eeafbcd4614a2c572700",
    "IWSLT14.TED.tst2010.de-en.de.xml": "5648c0a3a6e5eb3ab6fbdfbdeca69a20a1637a37361e337ab47418d71972880d",
    "IWSLT14.TED.tst2010.de-en.en.xml": "fa9ce190959320cb5a5a68358ad793e5863621f87a28e9f4312110ac5b842efc",
    "IWSLT14.TED.tst2011.de-en.de.xml": "a70163216273ab5622cbbb19fea6dfde42ab6d3ad70374444323e65f71837735",
    "IWSLT14.TED.tst2011.de-en.en.xml": "d350eac4cb6f0cf3e787c9e82b8074bdc7e58c4ca7d650c9b97de8a677068695",
    "IWSLT14.TED.tst2012.de-en.de.xml": "edf69bd9e41acd93e13d01f55a2906b7be0f69cd90a46e343294dfd3190db952",
    "IWSLT14.TED.tst2012.de-en.en.xml": "cd73e997ce078699863278daef06b9a226d1adbec4c3cac91a0894d7eab5c1f8",
    "IWSLT14.TEDX.dev2012.de-en.de.xml": "e818a77a43e18ec4726a698e5aa9c438e0cd4b82d4edd27286163bee44e85604",
    "IWSLT14.TEDX.dev2012.de-en.en.xml": "a5de03e0e18cf5ad4b2b4ba66f11510a8576fa1a7c172190860cabfd17bff99a",
}
IWSLT14 = NamedCorpus(
    "iwslt14",
    "TED Conference LLC, CC BY-NC-ND 3.0",
    "iwslt14-de-en",
    {"train": ("train.tags.de-en.{}",), "test": tuple(f"IWSLT14.{name}.de-en.{{}}.xml" for name in _IWSLT14_SETS)},
    downloads=(
        Download(
            ("https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz",),
            "de-en.tgz",
            "md5:10936dfdf616504ddbd844e91b94ef4a",
            tuple(f"de-en/{name}" for name in ("train.tags.de-en.de", "train.tags.de-en.en", *_IWSLT14_XML)),
        ),
    ),
    contents=_IWSLT14_XML,
    reader=_iwslt14_subset,
)

_MULTI30K = (
    "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/"
)
MULTI30K = NamedCorpus(
    "multi30k",
    "research use (Flickr30K captions; German by Elliott et al. 2016)",
    "multi30k-de-en",
    {"train": ("train.{}",), "valid": ("val.{}",), "test": ("test_2016_flickr.{}",)},
    downloads=tuple(
        Download((_MULTI30K + file,), file, checksum)
        for file, checksum in {
            "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
            "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
            "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
            "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
            "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
            "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
        }.items()
    ),
)


def _statmt(path: str, checksum: str, *members: str) -> Download:
    urls = tuple(f"https://{host}/{path}" for host in ("www.statmt.org", "statmt.org"))
    return Download(urls, path.rpartition("/")[2], checksum, members)


WMT14 = NamedCorpus(
    "wmt14",
    "see statmt.org/wmt14: research use; Europarl is free of copyright restrictions known to its authors",
    "wmt14-en-de",
    {
        "train": ("europarl-v7.de-en.{}", "commoncrawl.de-en.{}", "news-commentary-v12.de-en.{}"),
        "test": ("newstest2014-deen-{role}.{}.sgm",),
    },
    downloads=(
        _statmt(
            "wmt13/training-parallel-europarl-v7.tgz",
            "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
            "training/europarl-v7.de-en.de",
            "training/europarl-v7.de-en.en",
        ),
        _statmt(
            "wmt13/training-parallel-commoncrawl.tgz",
            "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
            "commoncrawl.de-en.de",
            "commoncrawl.de-en.en",
        ),
        Download(
            ("https://data.statmt.org/wmt17/translation-task/training-parallel-nc-v12.tgz",),
            "training-parallel-nc-v12.tgz",
            "2b45f30ef1d550d302fd17dd3a5cbe19134ccc4c2cf50c2dae534aee600101a2",
            ("training/news-commentary-v12.de-en.de", "training/news-commentary-v12.de-en.en"),
        ),
        _statmt(
            "wmt14/test-full.tgz",
            "md5:a8cd784e006feb32ac6f3d9ec7eb389a",  # sacreBLEU's
            *(f"test-full/newstest2014-deen-{side}.sgm" for side in ("src.en", "ref.de", "src.de", "ref.en")),
        ),
    ),
)

TATOEBA = NamedCorpus(
    "tatoeba",
    "CC BY 2.0 (tatoeba.org)",
    "tatoeba-de-en",
    {"train": ("deu-eng.2018-05-13.tsv",)},
    languages=("de", "en"),
    reader=_tatoeba,
)


def _lafand(pair: str) -> NamedCorpus:
    """News in African languages (Masakhane); free for non-commercial use only, so it is not part of the package."""
    splits = {"train": (f"{pair}.train.{{}}",), "valid": (f"{pair}.dev.{{}}",), "test": (f"{pair}.test.{{}}",)}
    return NamedCorpus(
        f"lafand-{pair}", "CC BY-NC 4.0 (Masakhane)", "lafand-mt", splits, languages=tuple(pair.split("-"))
    )


CORPORA = {
    corpus.name: corpus
    for corpus in (
        EMBEDDED,
        WIKITEXT2,
        WIKITEXT2_RAW,
        IWSLT14,
        MULTI30K,
        TATOEBA,
        WMT14,
        *map(_lafand, ("en-ibo", "en-swa", "en-yor", "fr-wol")),
    )
}
"""Every corpus that a recipe may name."""
