"""The files of a run that may be killed: what is written so far, and how far that is.

Beside OUTPUT stand OUTPUT.partial, OUTPUT.bad.partial, OUTPUT.scores and, written last and in one step, OUTPUT.state:
where reading stands and how many bytes of each file belong to what was read. After a kill the files are cut to these
sizes and the run goes on. At the end partial files take their names and the rest is removed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from lidstone.errors import InputError, RunError
from lidstone.files import write_text
from lidstone.text.reader import Place

SECONDS = 2.0
"""Between two records of the state."""
NAMES = {"output": ".partial", "bad": ".bad.partial", "scores": ".scores", "perplexities": ".perplexities"}


class FilterFiles:
    """The open files of a run, and its state."""

    def __init__(self, output: str, identity: Mapping[str, Any], *, restart: bool = False) -> None:
        self.output, self.identity = output, json.loads(json.dumps(identity))
        self.saved = time.monotonic()
        self.state: dict[str, Any] = {"phase": 1, "place": asdict(Place()), "sizes": {}, "totals": {}}
        self.streams: dict[str, BinaryIO] = {}
        with ExitStack() as stack:
            self._open(stack, restart)
            self.stack = stack.pop_all()  # all went well: they stay open

    def _open(self, stack: ExitStack, restart: bool) -> None:
        if self.output == "-":
            self.stem = str(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lidstone-filter-"))) / "run")
            self.streams["output"] = sys.stdout.buffer
        else:
            self.stem = self.output
            self.streams["output"] = stack.enter_context(_locked(self.path("output")))
            self._resume(restart)
        for name in NAMES:
            if name not in self.streams:
                self.streams[name] = stack.enter_context(self.path(name).open("ab"))
        if self.output != "-":
            self._cut()

    @property
    def place(self) -> Place:
        """The position of the reader."""
        return Place(**self.state["place"])

    @property
    def resumed(self) -> bool:
        """Whether an earlier run did part of the work."""
        return bool(self.state["sizes"])

    def path(self, name: str) -> Path:
        """The path of one of the files while the run goes on."""
        return Path(self.stem + NAMES[name])

    def write(self, name: str, block: bytes) -> None:
        """Append to one of the files."""
        self.streams[name].write(block)

    def done(self, place: Place, totals: Mapping[str, Any], *, now: bool = False) -> None:
        """All up to this place is written; the state is saved now and then."""
        self.state |= {"place": asdict(place), "totals": dict(totals)}
        if self.output != "-" and (now or time.monotonic() - self.saved > SECONDS):
            self._save()

    def next_phase(self) -> None:
        """Read from the start once more."""
        for stream in self.streams.values():
            stream.flush()
        self.state |= {"phase": 2, "place": asdict(Place())}
        if self.output != "-":
            self._save()

    def finish(self) -> None:
        """Give the finished files their names, and remove the rest."""
        for stream in self.streams.values():
            stream.flush()
        if self.output == "-":
            return
        bad = self.path("bad")
        if bad.stat().st_size:
            _sync(self.streams["bad"])
            bad.replace(self.output + ".bad")
        else:
            Path(self.output + ".bad").unlink(missing_ok=True)  # of a run before
        _sync(self.streams["output"])
        self.path("output").replace(self.output)
        for name in ("bad", "scores", "perplexities"):
            self.path(name).unlink(missing_ok=True)
        Path(self.output + ".state").unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files; what is in them stays for the next run."""
        sys.stdout.flush()
        self.stack.close()

    def _save(self) -> None:
        for stream in self.streams.values():
            _sync(stream)
        self.state["sizes"] = {name: stream.tell() for name, stream in self.streams.items()}
        write_text(self.output + ".state", json.dumps({**self.state, "identity": self.identity}))
        self.saved = time.monotonic()

    def _resume(self, restart: bool) -> None:
        file = Path(self.output + ".state")
        if restart or not file.exists():
            return
        try:
            state = json.loads(file.read_text(encoding="utf-8"))
            before = state.pop("identity")
            Place(**state["place"])
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{file} cannot be read ({error})", hint="begin again with --restart") from error
        if before != self.identity:
            changed = sorted(key for key in {*before, *self.identity} if before.get(key) != self.identity.get(key))
            raise RunError(
                f"an unfinished run to {self.output} was begun with other {', '.join(changed)}",
                hint="give what it was begun with, or begin again with --restart",
            )
        self.state = state

    def _cut(self) -> None:
        """Drop what was written after the state."""
        for name, stream in self.streams.items():
            size = self.state["sizes"].get(name, 0)
            if os.fstat(stream.fileno()).st_size < size:
                raise RunError(f"{self.path(name)} is shorter than its run left it", hint="begin again with --restart")
            stream.truncate(size)
            stream.seek(size)


def _locked(path: Path) -> BinaryIO:
    """The file, held by this process alone; a system without `fcntl` has no such locks."""
    try:
        stream = path.open("ab")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}", hint="check the folder") from error
    try:
        import fcntl

        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        return stream
    except OSError as error:
        stream.close()
        raise RunError(f"another process is writing {path}", hint="wait for it, or name another output") from error
    return stream


def _sync(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())
