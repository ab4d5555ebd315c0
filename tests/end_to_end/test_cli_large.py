"""`count --memory`, `--column`, `--skip-bad`, globs, and `merge`, as a user calls them."""

from __future__ import annotations

import gzip
import json

import pytest
from typer.testing import CliRunner

from lidstone.cli.main import app
from lidstone.ngram.formats.safetensors import load_counts

LINES = ["the cat sat", "a dog saw the cat", "the dog sat"]


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.txt").write_text(f"{LINES[0]}\n")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(f"{LINES[1]}\n{LINES[2]}\n".encode()))
    return tmp_path


def counted(folder, *arguments):
    """The file that counting writes."""
    run("count", *arguments, "-n", 3, "-o", folder / "counts")
    return (folder / "counts").read_bytes()


def test_on_disk_and_in_memory_write_the_same_file(folder):
    texts = [folder / "a.txt", folder / "b.txt.gz"]
    assert counted(folder, *texts, "--memory", "2G", "--temporary", folder / "tmp") == counted(folder, *texts)
    assert not list((folder / "tmp").iterdir())


def test_a_glob_is_the_files_in_the_order_of_their_names(folder):
    assert counted(folder, folder / "*.txt*") == counted(folder, folder / "a.txt", folder / "b.txt.gz")
    result = run("count", folder / "*.csv", "-n", 2, "-o", folder / "x", code=1)
    assert "no file matches" in result.output


def test_columns_of_parquet_and_json_lines(folder):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"text": [*LINES, None], "n": [1, 2, 3, 4]}), folder / "rows.parquet")
    rows = "".join(json.dumps({"text": line}) + "\n" for line in LINES)
    (folder / "rows.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    expected = counted(folder, folder / "*.txt*")
    for name in ("rows.parquet", "rows.jsonl.gz"):
        assert counted(folder, folder / name, "--column", "text") == expected
        assert counted(folder, folder / name, "--column", "text", "--memory", "2G") == expected


def test_an_address_of_another_file_system(folder):
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    for number, line in enumerate(LINES):
        files.pipe(f"/corpus/{number}.txt", f"{line}\n".encode())
    assert counted(folder, "memory://corpus/*.txt") == counted(folder, folder / "*.txt*")
    files.rm("/corpus", recursive=True)


BAD = {
    "rows.parquet": (b"PAR1 no", ("--column", "text"), "rows.parquet is damaged, or not a Parquet file"),
    "rows.jsonl": (b'{"text": "a"}\n{', ("--column", "text"), "line 2 is not JSON"),
    "other.jsonl": (b'{"body": "a"}\n', ("--column", "text"), "has no column 'text'"),
    "number.jsonl": (b'{"text": 3}\n', ("--column", "text"), "row 1 is int, not text"),
    "c.txt.gz": (gzip.compress(b"a b c\n" * 99)[:-12], (), "c.txt.gz is cut off"),
    "latin.txt": (b"caf\xe9\n", (), "latin.txt is not UTF-8"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("memory", [(), ("--memory", "2G")])
def test_bad_files_are_named_or_skipped(folder, name, memory):
    content, options, message = BAD[name]
    (folder / name).write_bytes(content)
    texts = [folder / "a.txt", folder / name, folder / "b.txt.gz"]
    result = run("count", *texts, "-n", 3, "-o", folder / "counts", *options, *memory, code=1)
    assert message in result.output and not (folder / "counts").exists()
    result = run("count", *texts, "-n", 3, "-o", folder / "counts", "--skip-bad", "--json", *options, *memory)
    assert "skipped: " in result.output and message in result.output and '"skipped": 1' in result.output
    kept = (folder / "counts").read_bytes()
    assert kept == counted(folder, folder / "a.txt", folder / "b.txt.gz")


def test_parquet_needs_a_column(folder):
    (folder / "rows.parquet").write_bytes(b"PAR1")
    result = run("count", folder / "rows.parquet", "-n", 2, "-o", folder / "x", code=1)
    assert "--column text" in result.output


def test_merge_adds_and_refuses(folder):
    run("count", folder / "*.txt*", "-n", 3, "-o", folder / "all")
    for name in ("a.txt", "b.txt.gz"):
        run("count", folder / name, "-n", 3, "--vocab", folder / "all", "-o", folder / f"{name}.counts")
    result = run("merge", folder / "a.txt.counts", folder / "b.txt.gz.counts", "-o", folder / "sum", "--json")
    assert json.loads(result.stdout)["tokens"] == load_counts(folder / "all").tokens
    assert (folder / "sum").read_bytes() == (folder / "all").read_bytes()
    run("count", folder / "a.txt", "-n", 3, "-o", folder / "other")
    result = run("merge", folder / "all", folder / "other", "-o", folder / "sum2", code=1)
    assert "different vocabularies" in result.output and not (folder / "sum2").exists()


def test_a_wrong_amount_of_memory(folder):
    assert (
        "'lots' is not an amount"
        in run("count", folder / "a.txt", "-n", 2, "-o", folder / "x", "--memory", "lots", code=1).output
    )
