"""Files that nobody would write by accident: each is refused in one line, in no time, by an error of our own."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from lidstone.errors import DataError, FileFormatError, LidstoneError, RecipeError
from lidstone.lab.corpus.download import extract
from lidstone.lab.corpus.named import cache_root
from lidstone.lab.recipe.recipe import load_recipe, make_recipe
from lidstone.lab.recipe.yaml import parse_yaml
from lidstone.lab.report.runs import read_run
from lidstone.lab.run.record import read_record

RECIPE = {"task": "lm", "corpus": {"name": "embedded"}}
ALIASES = "\n".join(["a0: &a0 [1]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)])
MERGES = "\n".join(
    ["a0: &a0 {k: 1}"] + [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 12)]
)
BAD_YAML = {
    "hexadecimal without digits": "name: 0x_",
    "no timestamp": "name: !!timestamp x",
    "a date": "name: 2024-01-01",
    "no integer": "name: !!int x",
    "no float": "name: !!float x",
    "bytes": "name: !!binary aGVsbG8=",
    "a set": "name: !!set {a, b}",
    "a python object": "name: !!python/object/apply:os.system [ls]",
    "5,000 digits": f"name: {'9' * 5000}",
    "4,000 digits": f"name: {'9' * 4000}",
    "3,000 brackets": "name: " + "[" * 3000,
    "3,000 closed brackets": "name: " + "[" * 3000 + "]" * 3000,
    "a list in itself": "name: &a [*a]",
    "an alias bomb": ALIASES,
    "a merge bomb": MERGES,
    "a lone surrogate": 'name: "\\ud800"',
    "a list as key": "? [a, b]\n: 1",
    "a number as key": "1: 2",
    "null as key": "~: 2",
    "a control character": "name: \x07",
}


@pytest.mark.parametrize("text", BAD_YAML.values(), ids=list(BAD_YAML))
def test_hostile_yaml_is_refused_at_once(text: str, tmp_path: Path) -> None:
    began = time.process_time()
    with pytest.raises(RecipeError) as caught:
        parse_yaml(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600
    file = tmp_path / "r.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError):
        load_recipe(file)
    assert time.process_time() - began < 10


@pytest.mark.parametrize("value", ["0x_", "!!timestamp x", "[" * 3000, "9" * 5000], ids=lambda value: value[:12])
def test_hostile_overrides_are_refused(value: str) -> None:
    with pytest.raises(RecipeError):
        load_recipe("demo", [f"name={value}"])


def test_ordinary_aliases_and_merge_keys_still_work() -> None:
    text = "a: &a {k: 1, l: [1, 2]}\nb: {<<: *a, k: 2}\nc: *a"
    assert parse_yaml(text) == {"a": {"k": 1, "l": [1, 2]}, "b": {"k": 2, "l": [1, 2]}, "c": {"k": 1, "l": [1, 2]}}
    assert make_recipe(RECIPE).task == "lm"


BAD_RECORDS = {
    "100,000 brackets": "[" * 100_000,
    "nested objects": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "a lone surrogate": '{"schema": 1, "name": "\\ud800"}',
    "half a pair": '{"schema": 1, "name": "\\uDFFF\\uD800"}',
    "no object": "[1, 2]",
    "5,000 digits": f'{{"schema": {"9" * 5000}}}',
    "nothing": "",
}


@pytest.mark.parametrize("text", BAD_RECORDS.values(), ids=list(BAD_RECORDS))
def test_hostile_records_of_runs_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text, encoding="utf-8")
    for read in (lambda: read_run(tmp_path / "run.json"), lambda: read_record(tmp_path)):
        with pytest.raises(FileFormatError) as caught:
            read()
        assert "\n" not in str(caught.value)


def test_a_pair_of_surrogates_is_a_letter(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"status": "complete", "name": "\\ud83d\\ude00"}', encoding="utf-8")
    assert read_record(tmp_path)["name"] == "\N{GRINNING FACE}"  # type: ignore[index]


def tar_gz(data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        info = tarfile.TarInfo("a.txt")
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zip_of(data: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytearray:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("a.txt", data)
    return bytearray(out.getvalue())


def patched(archive: bytearray, local: int, central: int, value: int) -> bytes:
    """A zip with a 16-bit field of its only member changed in both of its headers."""
    directory = archive.index(b"PK\x01\x02")
    struct.pack_into("<H", archive, local, value)
    struct.pack_into("<H", archive, directory + central, value)
    return bytes(archive)


TEXT = b"a line of text\n" * 2000


def damaged_deflate() -> bytes:
    archive = zip_of(TEXT)
    archive[45:60] = bytes(15)
    return bytes(archive)


def wrong_crc() -> bytes:
    """A .tgz whose last bytes, its checksum, are wrong: the text inside is unpacked before they are read."""
    archive = bytearray(tar_gz(TEXT))
    archive[-8:-4] = b"\0\1\2\3"
    return bytes(archive)


BAD_ARCHIVES = {
    "encrypted": lambda: patched(zip_of(TEXT), 6, 8, 1),
    "unknown method": lambda: patched(zip_of(TEXT), 8, 10, 77),
    "damaged deflate": damaged_deflate,
    "wrong checksum": wrong_crc,
    "cut": lambda: tar_gz(TEXT)[:-40],
    "a zip bomb": lambda: bytes(zip_of(bytes(1 << 27))),
    "a tar bomb": lambda: tar_gz(bytes(1 << 27)),
    "gzip of nothing": lambda: gzip.compress(b""),
}


@pytest.mark.parametrize("make", BAD_ARCHIVES.values(), ids=list(BAD_ARCHIVES))
def test_hostile_archives_are_refused(make, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(make())
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError) as caught:
        extract(tmp_path / "a.bin", tmp_path / "out", {"a.txt": "a.txt"})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("archive", [tar_gz(TEXT), bytes(zip_of(TEXT))], ids=["tgz", "zip"])
def test_sound_archives_are_unpacked(archive: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(archive)
    extract(tmp_path / "a.bin", tmp_path, {"a.txt": "b.txt"})
    assert (tmp_path / "b.txt").read_bytes() == TEXT


def test_a_cache_that_cannot_be_made_is_one_line_and_env_needs_none(tmp_path, monkeypatch) -> None:
    from lidstone.cli.env import environment

    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "file" / "cache"))
    assert json.dumps(environment()["folders"]["cache"])
    with pytest.raises(LidstoneError, match="cannot create the cache"):
        cache_root()
