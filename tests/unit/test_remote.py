"""Models on other file systems and on the hub: in memory, on disk by address, and against a small hub of our own."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path, PureWindowsPath

import numpy as np
import pytest

import lidstone as ld
from lidstone.errors import DataError, FileFormatError, InputError
from lidstone.files import as_url
from lidstone.ngram.formats.remote import HubFile, model_card

COUNTS = ld.count_text(io.BytesIO(b"the cat sat\nthe dog sat\n"), 2)
TABLE = ld.WittenBell().fit(COUNTS)


@pytest.fixture
def memory():
    """The file system in memory, empty."""
    import fsspec

    system = fsspec.filesystem("memory")
    system.store.clear()  # it is one for the whole process
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def assert_same(one, other):
    assert one.signature == other.signature and one.vocab == other.vocab
    np.testing.assert_array_equal(one.rows, other.rows)
    np.testing.assert_array_equal(one.trie.words, other.trie.words)


def test_a_table_and_counts_in_memory(memory):
    TABLE.save("memory://models/wb.safetensors")
    assert_same(ld.load("memory://models/wb.safetensors"), TABLE)
    ld.ngram.formats.safetensors.save(COUNTS, "memory://counts")
    assert ld.load("memory://counts").fingerprint == COUNTS.fingerprint
    assert sorted(memory.find("")) == ["/counts", "/models/wb.safetensors"]


def test_a_table_on_disk_by_its_address(tmp_path):
    TABLE.save(f"file://{tmp_path}/wb.safetensors")
    assert_same(ld.load(f"file://{tmp_path}/wb.safetensors"), TABLE)
    assert [file.name for file in tmp_path.iterdir()] == ["wb.safetensors"]
    assert_same(ld.load(tmp_path / "wb.safetensors"), TABLE)


def test_the_table_stays_usable_when_the_copy_is_gone(memory):
    TABLE.save("memory://wb")
    table = ld.load("memory://wb")
    memory.rm("/wb")
    assert table.prob([()]).sum() == pytest.approx(1)


def test_arpa_by_address(memory):
    ld.write_arpa(TABLE, "memory://wb.arpa.gz")
    table = ld.read_arpa("memory://wb.arpa.gz")
    np.testing.assert_allclose(table.prob([()]), TABLE.prob([()]), rtol=1e-5)
    assert memory.cat("/wb.arpa.gz")[:2] == b"\x1f\x8b"


def test_nothing_appears_when_writing_fails(memory, monkeypatch):
    monkeypatch.setattr(shutil, "copyfileobj", lambda *_: (_ for _ in ()).throw(OSError("the line broke")))
    with pytest.raises(DataError, match=r"cannot write memory://wb: the line broke"):
        TABLE.save("memory://wb")
    assert memory.find("") == []


def test_errors_name_the_address(memory):
    memory.pipe("/broken", b"x" * 100)
    with pytest.raises(FileFormatError, match="memory://broken"):
        ld.load("memory://broken")
    with pytest.raises(DataError, match="cannot read memory://none: there is no such file"):
        ld.load("memory://none")
    with pytest.raises(DataError, match="Protocol not known: nope"):
        ld.load("nope://x")
    with pytest.raises(InputError, match="names no file"):
        TABLE.save("memory://folder/")
    with pytest.raises(InputError, match="not the address of a file"):
        ld.load("hf://user/file")


def test_addresses_survive_pathlib():
    assert as_url(Path("memory://a/b")) == "memory://a/b" and as_url(Path("/a/b")) is None
    assert as_url(PureWindowsPath("s3://bucket/x")) == "s3://bucket/x"  # whose text is s3:\bucket\x
    assert HubFile.parse("hf://datasets/u/r/f") == HubFile("u/r", "f", None, "dataset")


def test_a_drive_letter_is_no_address():
    for path in ("c:/a", "c:\\a", "C://a"):
        assert as_url(path) is None and as_url(PureWindowsPath(path)) is None


def test_the_command_line_takes_addresses(memory):
    from typer.testing import CliRunner

    from lidstone.cli.main import app

    TABLE.save("memory://wb.table")
    found = CliRunner().invoke(app, ["convert", "memory://wb.table", "memory://wb.arpa"])
    assert found.exit_code == 0, found.output
    assert memory.cat("/wb.arpa").startswith(b"\\data\\")
    found = CliRunner().invoke(app, ["prune", "memory://wb.arpa", "--size", "9", "--output", "memory://small"])
    assert found.exit_code == 0, found.output
    assert ld.load("memory://small").trie.size <= 9


class Hub:
    """What the hub's client is used for, on a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.commits = folder, []

    def download(self, repo, file, *, repo_type=None, revision=None):
        from huggingface_hub.errors import EntryNotFoundError

        path = self.folder / repo / file
        if not path.exists():
            raise EntryNotFoundError(f"no {file} in {repo}")
        return str(path)

    def create_repo(self, repo, *, repo_type=None, exist_ok=False):
        (self.folder / repo).mkdir(parents=True, exist_ok=exist_ok)

    def create_commit(self, repo, operations, *, commit_message, repo_type=None, revision=None):
        self.commits.append((repo, revision, [operation.path_in_repo for operation in operations]))
        for operation in operations:
            with operation.as_file() as source:
                (self.folder / repo / operation.path_in_repo).write_bytes(source.read())


@pytest.fixture
def hub(tmp_path, monkeypatch):
    import huggingface_hub

    made = Hub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", made.download)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: made)
    return made


def test_a_table_and_its_card_are_one_commit_on_the_hub(hub):
    TABLE.save("hf://me/ngrams@main/wb.safetensors")
    assert hub.commits == [("me/ngrams", "main", ["wb.safetensors", "README.md"])]
    assert_same(ld.load("hf://me/ngrams/wb.safetensors"), TABLE)
    card = (hub.folder / "me/ngrams/README.md").read_text()
    assert card.startswith("---\nlibrary_name: lidstone\n")
    assert 'ld.load("hf://me/ngrams@main/wb.safetensors")' in card
    signature = card.split("```json\n")[1].split("```")[0]
    assert json.loads(signature) == json.loads(json.dumps(TABLE.signature))


def test_a_card_keeps_what_others_wrote_and_one_section_per_file(hub):
    TABLE.save("hf://me/r/a")
    readme = hub.folder / "me/r/README.md"
    readme.write_text(readme.read_text() + "\nMy own words.\n")
    ld.prune(TABLE, size=8).save("hf://me/r/a")
    TABLE.save("hf://me/r/b")
    card = readme.read_text()
    assert card.count("## a\n") == card.count("## b\n") == card.count("My own words.") == 1
    assert '"size": 8' in card


def test_a_card_of_counts():
    assert COUNTS.fingerprint in model_card(COUNTS, "hf://u/r/c", "# mine\n")


def test_without_a_connection_the_error_says_so():
    """HF_HUB_OFFLINE is set for the tests: the client itself refuses."""
    with pytest.raises(DataError, match="cannot read hf://lidstone-tests/none/x"):
        ld.load("hf://lidstone-tests/none/x")


def test_token_level_arpa_for_nemo(tmp_path):
    """NeMo's decoders ask for chr(id + 100); every id of the tokenizer is an event, and eos is an id of its own."""
    kenlm = pytest.importorskip("kenlm")
    vocab = ld.Vocabulary(size=301, eos=300)  # 300 sub-words
    draw = np.random.default_rng(0)
    text = [draw.integers(0, 300, 8).tolist() for _ in range(50)]
    table = ld.WittenBell().fit(ld.count(text, vocab, 3, append_eos=True))
    ld.write_arpa(table, tmp_path / "nemo.arpa", tokens=lambda number: chr(number + 100))
    model = kenlm.Model(str(tmp_path / "nemo.arpa"))
    for ids in ([5, 33, 60], text[0], [299, 0, 28]):  # 33 and 60 become white space beyond ASCII
        line = " ".join(chr(number + 100) for number in ids)
        expected = table.token_logprobs([*ids, 300]).sum() / np.log(10)
        assert model.score(line) == pytest.approx(expected, abs=1e-4)
