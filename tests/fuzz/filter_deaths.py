"""The end of `filter` at every file event: death, Ctrl-C, a full disk, a file too large; then the same command again.

    python -m tests.fuzz.filter_deaths                   every event, every way; prints a table
    python -m tests.fuzz.filter_deaths --every 9

Events are opened, renamed, removed and locked files below the work's folder, flushes to the disk, and writes: before,
in the middle of the block, after. Each happens in a fork, with a state after every chunk. The command is given again,
sometimes with another end at a later event, until it ends well: then the bytes must be those of an undisturbed run.
"""

from __future__ import annotations

import argparse
import errno
import gzip
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lidstone.errors import LidstoneError

WAYS: dict[str, BaseException | None] = {
    "death": None,
    "Ctrl-C": KeyboardInterrupt(),
    "ENOSPC": OSError(errno.ENOSPC, "No space left on device"),
    "EFBIG": OSError(errno.EFBIG, "File too large"),
}
SETTINGS: dict[str, dict[str, Any]] = {"one pass": {}, "two passes": {"keep": 0.5}}
AUDITED = ("open", "os.rename", "os.remove", "fcntl.flock", "test.write", "test.fsync")
DEAD, REFUSED, STOPPED = 9, 1, 130


def forked(work: Callable[[], object], folder: Path, number: int, way: str) -> tuple[int, int, str]:
    """Do the work in a fork that meets this end at the event of this number: exit code, events, what went wrong."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        code, said = _child(work, folder, number, way)
        os.write(tell, json.dumps(said).encode())
        os._exit(code)
    os.close(tell)
    _, status = os.waitpid(child, 0)
    with os.fdopen(told, "rb") as stream:
        said = stream.read()
    return os.waitstatus_to_exitcode(status), *(json.loads(said) if said else (0, ""))


def _child(work: Callable[[], object], folder: Path, number: int, way: str) -> tuple[int, tuple[int, str]]:
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event not in AUDITED or (event in AUDITED[:3] and not str(arguments[0]).startswith(str(folder))):
            return
        seen += 1
        if seen == number:
            if way == "death":
                os._exit(DEAD)
            raise WAYS[way]  # type: ignore[misc]

    _audit_writes()
    sys.addaudithook(hook)
    try:
        work()
    except LidstoneError:
        return REFUSED, (seen, "")
    except OSError as error:  # the command line makes it one line
        return REFUSED, (seen, str(error))
    except KeyboardInterrupt:
        return STOPPED, (seen, "")
    except BaseException:
        return 99, (seen, traceback.format_exc()[-1500:])
    return 0, (seen, "")


def _audit_writes() -> None:
    """Writes and flushes become events, and a block is written in two halves."""
    from lidstone.ngram.filter import checkpoint

    checkpoint.SECONDS = 0.0
    write, fsync = checkpoint.FilterFiles.write, os.fsync

    def in_halves(files: checkpoint.FilterFiles, name: str, block: bytes) -> None:
        sys.audit("test.write")
        write(files, name, block[: len(block) // 2])
        files.flush()
        sys.audit("test.write")
        write(files, name, block[len(block) // 2 :])
        sys.audit("test.write")

    def audited(file: int) -> None:
        sys.audit("test.fsync")
        fsync(file)

    checkpoint.FilterFiles.write = in_halves  # type: ignore[method-assign]
    os.fsync = audited


def serve(every: int, way: str, kind: str) -> tuple[int, list[str]]:
    """Let every n-th event be the end; returns the number of ends and what was lost."""
    from lidstone.ngram.counts import count_text
    from lidstone.ngram.filter.filter import filter_documents
    from lidstone.ngram.smoothers.witten_bell import WittenBell

    with tempfile.TemporaryDirectory() as root:
        folder = Path(root).resolve()
        text = folder / "in.txt"
        text.write_bytes(b"the cat sat on the mat\nnul\0\na dog and a cat\nthe end\n" * 12)
        table = WittenBell().fit(count_text([folder / _model(folder)], 2))

        def work() -> None:
            filter_documents(table, text, folder / "out.gz", chunk_bytes=200, jobs=1, **SETTINGS[kind])

        work()
        expected = {name: (folder / name).read_bytes() for name in ("out.gz", "out.gz.bad")}
        assert gzip.decompress(expected["out.gz"])
        code, events, said = forked(work, folder, 0, way)
        assert code == 0 and events > 50, said
        lost, ends = [], 0
        for number in range(1, events + 1, every):
            for name in expected:
                (folder / name).write_bytes(b"old")
            codes = [forked(work, folder, number, way)]
            for again in (number // 2 + 3, 0):  # the second end is somewhere else
                codes.append(forked(work, folder, again, way))
            ends += sum(code != 0 for code, _, _ in codes)
            wrong = [said for code, _, said in codes if code not in (0, REFUSED, STOPPED, DEAD)]
            if wrong or codes[-1][0] != 0:
                lost.append(f"{kind}, {way} at event {number}: {codes}")
            if {name: (folder / name).read_bytes() for name in expected} != expected:
                lost.append(f"{kind}, {way} at event {number}: other bytes")
            lost += [f"{kind}, {way} at event {number}: left {name}" for name in _left(folder)]
        return ends, lost


def _model(folder: Path) -> str:
    (folder / "model.txt").write_text("the cat sat\na dog sat on the mat\n")
    return "model.txt"


def _left(folder: Path) -> list[str]:
    known = {"in.txt", "model.txt", "out.gz", "out.gz.bad"}
    return [file.name for file in folder.iterdir() if file.name not in known]


def main() -> int:
    """Let it end, print, and fail if anything was lost."""
    reader = argparse.ArgumentParser(prog="python -m tests.fuzz.filter_deaths")
    reader.add_argument("--every", type=int, default=1, help="only every n-th event")
    given = reader.parse_args()
    failed = False
    for kind in SETTINGS:
        for way in WAYS:
            ends, lost = serve(given.every, way, kind)
            failed |= bool(lost)
            print(f"{kind:10} {way:8} {ends:5} ends {len(lost):4} losses", flush=True)
            print(*(f"  {loss}\n" for loss in lost), sep="", end="", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
