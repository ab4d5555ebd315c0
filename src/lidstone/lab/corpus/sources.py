"""Download addresses of the named corpora, with checksums and licences.

Every download has a checksum that was published elsewhere, so that no host has to be trusted: SHA-256 where
there is one, else MD5, which detects damage and changes, but does not protect against an attacker (docs/data.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field

_MULTI30K = (
    "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/"
)
_PYTORCH = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2/"
_STATMT = ("https://www.statmt.org/", "https://statmt.org/")


@dataclass(frozen=True)
class Download:
    """One file to download: a file of the corpus, or an archive to unpack."""

    urls: tuple[str, ...]
    """Mirrors, tried in this order."""
    file: str
    """The name of the file in the corpus folder, or of the archive."""
    checksum: str
    """Of the file as downloaded: SHA-256 in hex, or `md5:` and MD5 in hex."""
    members: tuple[tuple[str, str], ...] = ()
    """For archives: (path inside, name in the corpus folder). Nothing else is unpacked."""


@dataclass(frozen=True)
class Dataset:
    """A corpus that `lidstone data get` can fetch."""

    name: str
    folder: str
    """Its folder below the cache, named as in a folder of corpora (LIDSTONE_DATA)."""
    licence: str
    downloads: tuple[Download, ...]
    contents: dict[str, str] = field(default_factory=dict)
    """sha256 of files in the corpus folder, where known."""


def _plain(base: str, files: dict[str, tuple[str, str]]) -> tuple[Download, ...]:
    return tuple(Download((base + path,), file, sha256) for file, (path, sha256) in files.items())


WIKITEXT2 = Dataset(
    "wikitext2",
    "wikitext-2",
    "CC BY-SA 3.0 (Wikipedia); corpus by Merity et al. 2016",
    _plain(
        _PYTORCH,
        {
            "wiki.train.tokens": (
                "train.txt",
                "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
            ),
            "wiki.valid.tokens": (
                "valid.txt",
                "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            ),
            "wiki.test.tokens": (
                "test.txt",
                "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
            ),
        },
    ),
)

WIKITEXT2_RAW = Dataset(
    "wikitext2-raw",
    "wikitext-2-raw",
    "CC BY-SA 3.0 (Wikipedia); corpus by Merity et al. 2016",
    (
        Download(
            (
                "https://wikitext.smerity.com/wikitext-2-raw-v1.zip",
                "https://huggingface.co/datasets/ggml-org/ci/resolve/main/wikitext-2-raw-v1.zip",
            ),
            "wikitext-2-raw-v1.zip",
            "ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11",
            tuple((f"wikitext-2-raw/wiki.{part}.raw", f"wiki.{part}.raw") for part in ("train", "valid", "test")),
        ),
    ),
    {
        "wiki.valid.raw": "4cd0f6876d07a413aa911261ff6d363c72d757d47f0fdd6015702014c89cb9c7",
        "wiki.test.raw": "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08",
    },
)

IWSLT14_XML = {
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

IWSLT14 = Dataset(
    "iwslt14",
    "iwslt14-de-en",
    "TED Conference LLC, CC BY-NC-ND 3.0",
    (
        Download(
            ("https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz",),
            "de-en.tgz",
            "md5:10936dfdf616504ddbd844e91b94ef4a",
            tuple((f"de-en/{name}", name) for name in ("train.tags.de-en.de", "train.tags.de-en.en", *IWSLT14_XML)),
        ),
    ),
    IWSLT14_XML,
)

MULTI30K = Dataset(
    "multi30k",
    "multi30k-de-en",
    "research use (Flickr30K captions; German by Elliott et al. 2016)",
    _plain(
        _MULTI30K,
        {
            name: (name, sha256)
            for name, sha256 in {
                "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
                "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
                "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
                "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
                "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
                "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
            }.items()
        },
    ),
)


def _statmt(path: str, members: tuple[str, ...], checksum: str) -> Download:
    pairs = tuple((member, member.rpartition("/")[2]) for member in members)
    return Download(tuple(host + path for host in _STATMT), path.rpartition("/")[2], checksum, pairs)


WMT14 = Dataset(
    "wmt14",
    "wmt14-en-de",
    "see statmt.org/wmt14: research use; Europarl is free of copyright restrictions known to its authors",
    (
        _statmt(
            "wmt13/training-parallel-europarl-v7.tgz",
            ("training/europarl-v7.de-en.de", "training/europarl-v7.de-en.en"),
            "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
        ),
        _statmt(
            "wmt13/training-parallel-commoncrawl.tgz",
            ("commoncrawl.de-en.de", "commoncrawl.de-en.en"),
            "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
        ),
        Download(
            ("https://data.statmt.org/wmt17/translation-task/training-parallel-nc-v12.tgz",),
            "training-parallel-nc-v12.tgz",
            "2b45f30ef1d550d302fd17dd3a5cbe19134ccc4c2cf50c2dae534aee600101a2",
            tuple(
                (f"training/news-commentary-v12.de-en.{side}", f"news-commentary-v12.de-en.{side}")
                for side in ("de", "en")
            ),
        ),
        _statmt(
            "wmt14/test-full.tgz",
            (
                "test-full/newstest2014-deen-src.en.sgm",
                "test-full/newstest2014-deen-ref.de.sgm",
                "test-full/newstest2014-deen-src.de.sgm",
                "test-full/newstest2014-deen-ref.en.sgm",
            ),
            "md5:a8cd784e006feb32ac6f3d9ec7eb389a",  # sacreBLEU's
        ),
    ),
)

DATASETS = {data.name: data for data in (WIKITEXT2, WIKITEXT2_RAW, IWSLT14, MULTI30K, WMT14)}
