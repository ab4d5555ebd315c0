"""Models at other places than the disk: any file system that fsspec knows, and repositories of the Hugging Face hub.

    s3://bucket/ken.safetensors, gs://..., memory://...      through fsspec and the package that serves the protocol
    hf://user/repo/ken.safetensors, hf://user/repo@v2/...    through huggingface_hub and its cache

What is read is copied to disk first and mapped from there; the copy has no name and goes with the last array. What is
written is made on disk and sent when it is whole, to the hub together with a model card, in one commit.

The model card says what each file of the repository is and how to load it. Each file has a section between two
comments, which is replaced when the file is written again; whatever else a README.md says stays.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lidstone.errors import DataError, InputError, LidstoneError

if TYPE_CHECKING:
    from lidstone.ngram.counts import Counts
    from lidstone.ngram.table import BackoffTable

Thing = TypeVar("Thing")
_KINDS = {"models": None, "datasets": "dataset", "spaces": "space"}


def read_remote(url: str, read: Callable[[Path], Thing]) -> Thing:
    """Read an address with a function that reads files; errors name the address."""
    with _copy(url) as file:
        try:
            return read(file)
        except LidstoneError as error:
            error.message = error.message.replace(str(file), url)
            error.args = (error.message,)
            raise


def write_remote(url: str, write: Callable[[Path], None], card: Callable[[str, str | None], str] | None = None) -> None:
    """Write to an address with a function that writes files; `card` makes the model card of a hub repository."""
    with tempfile.TemporaryDirectory(prefix="lidstone-") as folder:
        file = Path(folder) / url.rsplit("/", 1)[-1]
        if not file.name or file == Path(folder):
            raise InputError(f"{url} names no file", hint="end the address with the name of a file")
        write(file)
        with _named(url, "write"):
            _commit(HubFile.parse(url), file, url, card) if url.startswith("hf://") else _send(file, url)


@dataclass(frozen=True)
class HubFile:
    """A file in a repository of the Hugging Face hub.

    >>> HubFile.parse("hf://user/repo@v2/models/ken.safetensors")
    HubFile(repo='user/repo', file='models/ken.safetensors', revision='v2', kind=None)
    """

    repo: str
    file: str
    revision: str | None = None
    kind: str | None = None

    @classmethod
    def parse(cls, url: str) -> HubFile:
        """Take hf://[datasets/]user/repo[@revision]/file apart."""
        parts = url.removeprefix("hf://").split("/")
        kind = _KINDS[parts.pop(0)] if parts[0] in _KINDS else None
        if len(parts) < 3 or not all(parts):
            raise InputError(f"{url} is not the address of a file", hint="write hf://user/repo/file")
        name, _, revision = parts[1].partition("@")
        return cls(f"{parts[0]}/{name}", "/".join(parts[2:]), revision or None, kind)


@contextmanager
def _copy(url: str) -> Iterator[Path]:
    """The contents of an address as a file, which is gone afterwards unless the hub's cache keeps it."""
    if url.startswith("hf://"):
        with _named(url, "read"):
            file = _from_hub(HubFile.parse(url))
        yield file
        return
    with tempfile.TemporaryDirectory(prefix="lidstone-") as folder:
        file = Path(folder) / url.rsplit("/", 1)[-1]
        with _named(url, "read"):
            _fetch(url, file)
        yield file


def _fetch(url: str, file: Path) -> None:
    import fsspec

    system, path = fsspec.core.url_to_fs(url)
    with system.open(path, "rb") as source, file.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)


def _send(file: Path, url: str) -> None:
    """Write in a transaction, which shows the file when it is whole, where the file system has them."""
    import fsspec

    system, path = fsspec.core.url_to_fs(url)
    with system.transaction, file.open("rb") as source, system.open(path, "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)


def _from_hub(place: HubFile) -> Path:
    from huggingface_hub import hf_hub_download

    found = hf_hub_download(place.repo, place.file, repo_type=place.kind, revision=place.revision)
    return Path(str(found))


def _commit(place: HubFile, file: Path, url: str, card: Callable[[str, str | None], str] | None) -> None:
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi()
    api.create_repo(place.repo, repo_type=place.kind, exist_ok=True)
    operations = [CommitOperationAdd(place.file, str(file))]
    if card is not None:
        text = card(url, _readme(place))
        operations.append(CommitOperationAdd("README.md", text.encode()))
    message = f"Add {place.file}"
    api.create_commit(place.repo, operations, commit_message=message, repo_type=place.kind, revision=place.revision)


def _readme(place: HubFile) -> str | None:
    """The repository's README.md, if it has one."""
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        return _from_hub(HubFile(place.repo, "README.md", place.revision, place.kind)).read_text(encoding="utf-8")
    except LocalEntryNotFoundError:  # no connection, which says nothing about the README
        raise
    except EntryNotFoundError:
        return None


@contextmanager
def _named(url: str, verb: str) -> Iterator[None]:
    """Say which address could not be read or written, and what may help."""
    try:
        yield
    except ImportError as error:
        package = "huggingface_hub" if url.startswith("hf://") else "fsspec and the package of the protocol"
        raise InputError(f"cannot {verb} {url}: {error}", hint=f"install {package}") from error
    except LidstoneError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"cannot {verb} {url}: there is no such file ({error})", hint="check the address") from error
    except (OSError, ValueError) as error:
        hint = "check the address, the connection and your credentials"
        raise DataError(f"cannot {verb} {url}: {error}", hint=hint) from error


_HEAD = """---
library_name: lidstone
tags:
- lidstone
- n-gram
- language-model
---

# n-gram models

Files of lidstone: `pip install lidstone`.
"""


def model_card(thing: BackoffTable | Counts, url: str, readme: str | None = None) -> str:
    """README.md with a section about this file, in place of its earlier section if there was one."""
    name = url.rsplit("/", 1)[-1]
    begin, end = f"<!-- lidstone: {name} -->", f"<!-- end of {name} -->"
    section = f"{begin}\n{_section(thing, name, url)}\n{end}"
    text = _HEAD if readme is None else readme
    before = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
    if before.search(text):
        return before.sub(lambda _: section, text, count=1)
    return f"{text.rstrip()}\n\n{section}\n"


def _section(thing: BackoffTable | Counts, name: str, url: str) -> str:
    from lidstone.ngram.counts import Counts

    trie = thing.trie
    if isinstance(thing, Counts):
        variable = kind = "counts"
        made: dict[str, Any] = {"counts": thing.fingerprint, "vocabulary": thing.vocab.fingerprint}
        made["thresholds"] = list(thing.thresholds)
    else:
        variable, kind, made = "table", thing.signature["smoother"], thing.signature
    facts = {
        "model": kind,
        "order": trie.order,
        "events": f"{thing.vocab.event_count:,}",
        "n-grams": ", ".join(f"{size:,}" for size in (trie.levels[1:] - trie.levels[:-1]).tolist()),
    }
    rows = "\n".join(f"| {key} | {value} |" for key, value in facts.items())
    signature = json.dumps(made, indent=2, ensure_ascii=False, default=str)
    return (
        f"## {name}\n\n| | |\n|---|---|\n{rows}\n\n"
        f'```python\nimport lidstone as ld\n\n{variable} = ld.load("{url}")\n```\n\n'
        f"Signature:\n\n```json\n{signature}\n```"
    )
