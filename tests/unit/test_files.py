"""Files appear whole or not at all, under any name, and what killed processes leave is removed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from unittest.mock import Mock

import pytest

from lidstone.errors import LidstoneError
from lidstone.files import atomic_write, new_folder, reserve, write_text

WRITER = """
import sys, time
from lidstone.files import atomic_write
with atomic_write(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


def names(folder):
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.unix
def test_what_a_killed_process_leaves_is_removed_by_the_next_writing(tmp_path):
    target = tmp_path / "model.arpa"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(target)], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"writing\n"
        write_text(target, "other")  # a process that still writes is left alone
        assert len(names(tmp_path)) == 2
        process.send_signal(signal.SIGKILL)
    assert len(names(tmp_path)) == 2
    write_text(target, "whole")
    assert names(tmp_path) == ["model.arpa"]
    assert target.read_text() == "whole"


def test_so_are_folders_of_killed_processes(tmp_path):
    code = """
import os, sys
from pathlib import Path
from lidstone.files import new_folder
with new_folder(Path(sys.argv[1])) as made:
    (made / "half").write_text("half")
    os._exit(9)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "corpus")], check=False)
    assert len(names(tmp_path)) == 1
    with new_folder(tmp_path / "corpus") as made:
        (made / "whole").write_text("whole")
    assert names(tmp_path) == ["corpus"] and names(tmp_path / "corpus") == ["whole"]


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "a b", "x" * 245 + ".arpa"])
def test_any_name_that_the_file_system_allows_can_be_written(tmp_path, name):
    write_text(tmp_path / name, "text")
    assert names(tmp_path) == [name]


def test_a_name_that_is_too_long_is_an_error_of_ours(tmp_path):
    with pytest.raises(LidstoneError, match="cannot write"):
        write_text(tmp_path / ("x" * 256), "text")
    assert names(tmp_path) == []


def test_links_stay_links_wherever_they_lead(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/new")  # not there yet
    (tmp_path / "chain").symlink_to("link")
    write_text(tmp_path / "chain", "text")
    assert (tmp_path / "there" / "new").read_text() == "text"
    assert names(tmp_path) == ["chain", "link", "there"] and (tmp_path / "link").is_symlink()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(LidstoneError, match="cannot write"):
        write_text(tmp_path / "loop", "text")


def test_a_file_that_is_replaced_while_it_is_mapped_keeps_its_values(tmp_path):
    """Writing makes a new file under the old name: who has mapped the old one goes on reading it."""
    import numpy as np

    from lidstone.ngram.formats.checked_tensors import read_arrays, write_arrays

    write_arrays(tmp_path / "a", {"x": np.arange(5000)}, {})
    mapped, _ = read_arrays(tmp_path / "a", verify=False)
    write_arrays(tmp_path / "a", {"x": np.zeros(3, np.int64)}, {})
    assert (mapped["x"] == np.arange(5000)).all()


def test_an_error_inside_leaves_the_old_file(tmp_path):
    write_text(tmp_path / "a", "old")
    with pytest.raises(RuntimeError), atomic_write(tmp_path / "a") as temporary:
        temporary.write_text("new")
        raise RuntimeError
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


@pytest.mark.parametrize("problem", [AttributeError(), OSError(errno.EOPNOTSUPP, "not here"), None])
def test_a_file_gets_its_size_whether_or_not_space_can_be_reserved(tmp_path, monkeypatch, problem):
    if problem is not None:
        monkeypatch.setattr(os, "posix_fallocate", Mock(side_effect=problem))
    with (tmp_path / "file").open("wb") as file:
        reserve(file, 1000)
    assert (tmp_path / "file").read_bytes() == bytes(1000)


def test_space_that_is_not_there_is_not_reserved(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with (tmp_path / "file").open("wb") as file, pytest.raises(OSError, match="No space"):
        reserve(file, 1000)
