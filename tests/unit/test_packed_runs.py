"""Packed studies: the same runs, the same report, the same bytes; nothing in one is trusted."""

from __future__ import annotations

import bz2
import gzip
import json
import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from tests.fuzz.test_damage import survives
from tests.sweep_cells import CELLS, CutShort, begun, sweep
from typer.testing import CliRunner

from lidstone.cli.main import app
from lidstone.errors import FileFormatError, InputError
from lidstone.lab.report import Report, load_runs
from lidstone.lab.report.comparisons import CompareRuns
from lidstone.lab.report.packed import is_file, read_bytes, records_in, unpack
from lidstone.lab.report.runs import pack_runs

trees = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[1] / "run_trees.py")))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return trees.write_tree(tmp_path / "runs", seeds=3, names=("none", "add-lambda", "katz"), explorer=True)


@pytest.fixture
def study(tree: Path, tmp_path: Path) -> Path:
    assert pack_runs([tree], tmp_path / "study.runs") == (9, 9)
    return tmp_path / "study.runs"


def call(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def contents(folder: Path) -> dict[str, Any]:
    """Every file of a folder, without its compression."""
    raw = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: gzip.decompress(data) if name.endswith(".gz") else data for name, data in raw.items()}


def test_unpacking_gives_back_every_file_that_was_packed(tree: Path, study: Path, tmp_path: Path) -> None:
    assert unpack(study, tmp_path / "again") == (9, 0)
    assert contents(tmp_path / "again") == contents(tree)


@pytest.mark.parametrize("task", ["lm", "mt"])
def test_a_packed_study_has_the_report_of_its_folder(tmp_path: Path, task: str) -> None:
    folder = trees.write_tree(tmp_path / "runs", task=task, seeds=3, names=("none", "add-lambda", "katz"))
    (folder / "explorer.json").write_text(json.dumps(trees.explorer_data()))
    pack_runs([folder], tmp_path / "study.runs")
    tests = CompareRuns(permutations=100, samples=100)
    one, other = (Report.from_runs(source, compare=tests) for source in (folder, tmp_path / "study.runs"))
    assert one.to_json() == other.to_json() and one.comparisons
    assert one.to_html(tmp_path / "a.html").read_text() == other.to_html(tmp_path / "b.html").read_text()


def test_the_same_runs_give_the_same_bytes_however_they_came_together(tree: Path, study: Path, tmp_path: Path) -> None:
    runs = sorted(file.parent for file in tree.glob("*/run.json"))
    pack_runs(runs[4:], tmp_path / "late.runs")
    pack_runs(reversed(runs[:4]), tmp_path / "early.runs")
    pack_runs([tmp_path / "late.runs", tmp_path / "early.runs", tree], tmp_path / "merged.runs")
    assert pack_runs([tree], tmp_path / "late.runs") == (9, 4)
    before = study.read_bytes()
    assert pack_runs([tree], study) == (9, 0)
    assert study.read_bytes() == before == (tmp_path / "merged.runs").read_bytes()
    assert (tmp_path / "late.runs").read_bytes() == before


def test_a_run_that_changed_replaces_the_packed_one(tree: Path, study: Path) -> None:
    file = next(tree.glob("*/run.json"))
    file.write_text(json.dumps({**json.loads(file.read_text()), "name": "renamed"}))
    assert pack_runs([file.parent], study) == (9, 0)
    assert "renamed" in {run.name for run in load_runs(study).runs} and len(load_runs(study).runs) == 9


def test_files_in_a_study_have_paths(tree: Path, study: Path, tmp_path: Path) -> None:
    inside = records_in(study)
    assert [file.parent.name for file in inside] == sorted(file.parent.name for file in tree.glob("*/run.json"))
    assert records_in(inside[3].parent) == records_in(inside[3]) == [inside[3]]
    assert is_file(inside[0]) and not is_file(study / "no" / "run.json") and is_file(study)
    assert read_bytes(inside[0]) == (tree / inside[0].parent.name / "run.json").read_bytes()
    assert records_in(tree) == [] and records_in(tmp_path / "none.runs") == []
    with pytest.raises(FileNotFoundError):
        read_bytes(study / "no" / "run.json")


def test_only_finished_runs_are_packed_and_missing_sentences_stay_missing(tmp_path: Path) -> None:
    trees.write_run(tmp_path / "runs", trees.record("katz", 1), with_sentences=False)
    trees.write_run(tmp_path / "runs", trees.record("katz", 2, status="failed"))
    assert pack_runs([tmp_path / "runs"], tmp_path / "a.runs") == (1, 1)
    (run,) = load_runs(tmp_path / "a.runs").runs
    with pytest.raises(FileFormatError, match=r"a\.runs/.*/sentences.json.gz cannot be read: No such file"):
        run.sentences()


def test_unpacking_leaves_runs_alone_that_are_there(tree: Path, study: Path) -> None:
    kept, gone = sorted(file.parent for file in tree.glob("*/run.json"))[:2]
    (kept / "run.json").write_text("mine")
    shutil.rmtree(gone)
    assert unpack(study, tree) == (1, 8)
    assert (kept / "run.json").read_text() == "mine" and (gone / "sentences.json.gz").is_file()


def test_a_sweep_continues_in_an_unpacked_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    first, second = tmp_path / "first", tmp_path / "second"
    with pytest.raises(KeyboardInterrupt):
        sweep(first).run(CutShort(6))
    for file in first.glob("*/run.json"):  # what a pretended training leaves out of its record
        file.write_text(json.dumps({**trees.record("katz", 1), **json.loads(file.read_text())}))
    pack_runs([first], tmp_path / "study.runs")
    unpack(tmp_path / "study.runs", second)
    sweep(second).run(CutShort(CELLS))
    assert len(begun(first)) == 6 and len(begun(second)) == CELLS - 6
    assert len(list(second.glob("*/run.json"))) == CELLS


def test_the_verbs(tree: Path, study: Path, tmp_path: Path) -> None:
    assert call("report", tree, "--json").stdout == call("report", study, "--json").stdout
    assert call("compare", tree, "--json").stdout == call("compare", study, "--json").stdout
    one, two = (file.parent for file in records_in(study)[:2])
    single = [call("compare", folder / one.name, folder / two.name, "--json").stdout for folder in (tree, study)]
    assert single[0] == single[1] and len(json.loads(single[0])["comparisons"]) == 1
    packed = call("pack", one, two, "--output", tmp_path / "two.runs")
    assert packed.exit_code == 0 and packed.stderr == f"{tmp_path / 'two.runs'} has 2 runs, 2 of them new\n"
    told = json.loads(call("pack", study, "--output", tmp_path / "two.runs", "--json").stdout)
    assert told == {"study": str(tmp_path / "two.runs"), "runs": 9, "new": 7, "bytes": study.stat().st_size}
    assert "wrote 9 runs into" in call("unpack", study, "--output", tmp_path / "out").stderr
    told = json.loads(call("unpack", study, "--output", tmp_path / "out", "--json").stdout)
    assert told == {"output": str(tmp_path / "out"), "written": 0, "kept": 9}


def test_what_is_no_study_is_refused(tree: Path, study: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a name for a packed study") as caught:
        pack_runs([tree], tmp_path / "study.zip")
    assert caught.value.hint == "end it in .runs"
    for what in (tree, tmp_path / "none.runs"):
        with pytest.raises(InputError, match="is not a packed study"):
            unpack(what, tmp_path / "out")
    with pytest.raises(InputError, match=r"there is no .*none\.runs"):
        load_runs(tmp_path / "none.runs")


@pytest.mark.parametrize("id", ["../up", "/etc", "a/b", "", ".hidden", "a\nb", "x" * 101, "ü", "c:b", "Con"])
def test_an_id_that_is_no_plain_name_cannot_be_packed(tmp_path: Path, id: str) -> None:
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(trees.record("katz", 1, id=id)))
    with pytest.raises(InputError, match="is not a name for a file in a packed study"):
        pack_runs([folder], tmp_path / "a.runs")
    assert not (tmp_path / "a.runs").exists()


def write_zip(path: Path, members: dict[str, bytes], **options: Any) -> Path:
    with ZipFile(path, "w", **options) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def record_of(**changes: Any) -> bytes:
    return bz2.compress(json.dumps(trees.record("katz", 1, **changes)).encode())


@pytest.mark.parametrize(
    "name", ["../run.json.bz2", "/etc/run.json.bz2", "a/../run.json.bz2", "a/b/run.json.bz2", "a\\b/run.json.bz2",
             "a/run.json", ".a/run.json.bz2", "a/run.json.bz2\n", "C:/run.json.bz2", "a/run.json.bz2\0.txt",
             "NUL/run.json.bz2", "com1.x/run.json.bz2", "a/aux.json.bz2"],
)  # fmt: skip
def test_hostile_names_are_refused(tmp_path: Path, name: str) -> None:
    study = write_zip(tmp_path / "a.runs", {name: record_of()})
    data = study.read_bytes()
    if "\0" in name:  # which the writer cuts off
        study.write_bytes(data.replace(b".bz2", b".bz\0"))
    for action in (load_runs, lambda path: unpack(path, tmp_path / "out"), lambda path: pack_runs([tmp_path], path)):
        with pytest.raises((FileFormatError, InputError)):
            action(study)
    assert {path.name for path in tmp_path.iterdir()} == {"a.runs"}


def test_two_members_of_one_name_and_other_compressions_are_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"), ZipFile(tmp_path / "a.runs", "w") as archive:
        archive.writestr("a/run.json.bz2", record_of())
        archive.writestr("a/run.json.bz2", record_of())
    with pytest.raises(FileFormatError, match=r"a\.runs is damaged: two of its files have one name"):
        load_runs(tmp_path / "a.runs")
    write_zip(tmp_path / "b.runs", {"a/run.json.bz2": record_of()}, compression=ZIP_DEFLATED)
    with pytest.raises(FileFormatError, match="is not a file of a packed study"):
        load_runs(tmp_path / "b.runs")


@pytest.mark.parametrize("file", ["../../secret.json", "/tmp/secret.json", "sub/secret.json", "..", "run.json", 5])
def test_a_record_cannot_name_files_elsewhere(tmp_path: Path, file: object) -> None:
    (tmp_path / "secret.json").write_text("{}")
    made = {"a/run.json.bz2": record_of(sentences={"file": file}), "a/secret.json.bz2": bz2.compress(b"{}")}
    (tmp_path / "in").mkdir()
    unpack(write_zip(tmp_path / "in" / "a.runs", made), tmp_path / "out")
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {"secret.json", "in/a.runs", "out/a/run.json"}


def test_a_member_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    bomb = bz2.compress(b" " * 50_000_000 + b"{}")
    assert len(bomb) < 1000
    write_zip(tmp_path / "a.runs", {"a/run.json.bz2": bomb})
    with pytest.raises(FileFormatError, match=r"a\.runs is damaged: a/run\.json\.bz2 is cut off, or much larger"):
        load_runs(tmp_path / "a.runs")


def test_a_damaged_run_in_a_study_is_named_and_skipped_on_request(tree: Path, study: Path, tmp_path: Path) -> None:
    data = bytearray(study.read_bytes())
    with ZipFile(study) as archive:
        bad = next(info for info in archive.infolist() if info.filename.endswith("run.json.bz2"))
    data[bad.header_offset + 200] ^= 1
    study.write_bytes(data)
    with pytest.raises(FileFormatError, match=r"study\.runs is damaged: Bad CRC-32 for file '\w+/run\.json") as caught:
        load_runs(study)
    assert "--skip-damaged" in caught.value.hint
    assert len(load_runs(study, skip_damaged=True).runs) == 8
    with pytest.raises(FileFormatError, match=r"study\.runs is damaged: Bad CRC-32"):
        pack_runs([tree], study)
    assert study.read_bytes() == data  # what can be read of it is not lost


def test_a_study_that_is_cut_off_or_no_archive_is_one_line(study: Path, tmp_path: Path) -> None:
    whole = study.read_bytes()
    for data in (b"", b"PK", whole[:-1], whole[: len(whole) // 2], b"{}", whole[1000:]):
        study.write_bytes(data)
        for action in (load_runs, lambda path: unpack(path, tmp_path / "out")):
            with pytest.raises(FileFormatError, match=r"study\.runs is damaged") as caught:
                action(study)
            assert caught.value.hint and "\n" not in caught.value.message


def test_any_damage_is_refused_or_does_no_harm(study: Path) -> None:
    def values() -> Any:
        loaded = load_runs(study)
        return [(vars(run), run.sentences()) for run in loaded.runs], loaded.explorer

    assert survives(study, values) > 30
