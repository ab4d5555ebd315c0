"""The files of a run that may end at any moment, and the record with which it goes on.

Beside OUTPUT stand its parts, OUTPUT.partial, OUTPUT.bad.partial, OUTPUT.scores and OUTPUT.perplexities, and
OUTPUT.state: the place in the text, a checksum of the text before it, and how many bytes of each part belong to that
text. The state is replaced in one step, between two chunks, after the parts are on the disk. To go on, the parts are
cut to these sizes and the text is read again up to the place and compared. The last state is saved before the parts get
their final names, so that this step, too, can be done again. OUTPUT.lock is held all the time.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from lidstone.errors import RunError
from lidstone.files import (
    CHECKSUM,
    parse_json,
    place_of_output,
    verify_checksum,
    with_checksum,
    write_errors,
    write_text,
)
from lidstone.ngram.formats.checked_tensors import join_checksums
from lidstone.text.reader import Chunk, Place

Item = TypeVar("Item")
SECONDS = 2.0
"""Between two records of the state."""
FINISHED = 3
"""The phase in which only names remain to be changed."""
PARTS = {"output": ".partial", "bad": ".bad.partial", "scores": ".scores", "perplexities": ".perplexities"}
AGAIN = "begin again with --restart"


@dataclass(frozen=True)
class FilterState:
    """How far a run has come."""

    phase: int = 1
    """the first or second pass, or `FINISHED`"""
    place: Place = field(default_factory=Place)
    text: int = 0
    """the checksum of the text before the place"""
    whole: int = 0
    """that of the whole text, in the second pass"""
    totals: dict[str, float] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTS, 0))

    def __post_init__(self) -> None:
        whole_numbers = (self.phase, self.text, self.whole, *asdict(self.place).values(), *self.sizes.values())
        if any(type(number) is not int or number < 0 for number in whole_numbers) or self.phase > FINISHED:
            raise ValueError("a number is impossible")
        if set(self.sizes) != set(PARTS) or any(type(total) not in (int, float) for total in self.totals.values()):
            raise ValueError("a size or a total is impossible")
        log10, *others = self.totals.get("log10", 0.0), *(v for k, v in self.totals.items() if k != "log10")
        if log10 != log10 or not all(0 <= number < 2**63 for number in others):
            raise ValueError("a total is impossible")


class FilterFiles:
    """The open files of a run, and its state."""

    def __init__(
        self,
        output: str,
        identity: Mapping[str, Any],
        *,
        restart: bool = False,
        assemble: Callable[[Path, Path], None] | None = None,
    ) -> None:
        self.output, self.identity, self.assemble = output, json.loads(json.dumps(identity)), assemble
        self.is_stream = output == "-" or (Path(output).exists() and not Path(output).is_file())
        self.state, self.saved = FilterState(), time.monotonic()
        self.streams: dict[str, BinaryIO] = {}
        with ExitStack() as stack:
            self._open_stream(stack) if self.is_stream else self._open(stack, restart)
            self.stack = stack.pop_all()  # all went well: they stay open

    def path(self, name: str) -> Path:
        """The path of one of the parts."""
        return Path(self.stem + PARTS[name])

    def write(self, name: str, block: bytes) -> None:
        """Append to one of the parts."""
        if name in self.streams:
            with self._errors():
                self.streams[name].write(block)

    def flush(self) -> None:
        """Hand everything to the system."""
        with self._errors():
            for stream in self.streams.values():
                stream.flush()

    def done(self, place: Place, text: int, totals: dict[str, float]) -> None:
        """All up to this place is written; the state is saved now and then."""
        self.state = replace(self.state, place=place, text=text, totals=totals)
        if time.monotonic() - self.saved >= SECONDS:
            self._save()

    def next_phase(self) -> None:
        """Read from the start once more."""
        self.flush()
        self.state = replace(self.state, phase=2, place=Place(), text=0, whole=self.state.text)
        self._save()

    def finish(self) -> None:
        """Give the finished files their names, and remove the rest."""
        self.flush()
        if self.is_stream:
            return
        if self.state.phase != FINISHED:
            self.state = replace(self.state, phase=FINISHED)
            self._save()
        with self._errors():
            self._publish("bad", self.stem + ".bad")
            self._publish("output", self.stem, self.assemble)
            if not self.state.sizes["bad"]:
                Path(self.stem + ".bad").unlink(missing_ok=True)
            for name in ("scores", "perplexities"):
                self.path(name).unlink(missing_ok=True)
            self._state_file.unlink()

    def _publish(self, name: str, target: str, assemble: Callable[[Path, Path], None] | None = None) -> None:
        """Give a part its final name, or make the final file of it, unless that was done before."""
        part, size = self.path(name), self.state.sizes[name]
        file = part if part.exists() or not size else Path(target)
        is_made = assemble is not None and file == Path(target)  # of another size than its part
        if size and not (file.exists() and (is_made or file.stat().st_size == size)):
            raise RunError(f"{file} is not as its run left it", hint=AGAIN)
        if part.exists():
            assemble(part, Path(target)) if assemble else part.replace(target)

    def close(self) -> None:
        """Close the files; those with which a run can go on stay."""
        for stream in self.streams.values():
            with suppress(OSError):  # all that counts has been flushed before
                stream.flush() if self.is_stream else stream.close()
        if not self.is_stream and not self._state_file.exists():
            for name in PARTS:
                self.path(name).unlink(missing_ok=True)
        self.stack.close()

    @property
    def _state_file(self) -> Path:
        return Path(self.stem + ".state")

    def _errors(self) -> AbstractContextManager[None]:
        return nullcontext() if self.is_stream else write_errors(Path(self.output))

    def _open_stream(self, stack: ExitStack) -> None:
        self.stem = str(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lidstone-filter-"))) / "run")
        self.streams["output"] = sys.stdout.buffer
        if self.output != "-":  # a pipe or a device
            self.streams["output"] = stack.enter_context(Path(self.output).open("wb"))  # noqa: SIM115
        for name in ("scores", "perplexities"):
            self.streams[name] = stack.enter_context(self.path(name).open("wb"))

    def _open(self, stack: ExitStack, restart: bool) -> None:
        with write_errors(Path(self.output)):
            self.stem = str(place_of_output(self.output))  # a link stays a link
        stack.enter_context(_locked(Path(self.stem + ".lock")))
        with self._errors():
            if restart:
                self._state_file.unlink(missing_ok=True)
            elif self._state_file.exists():
                self.state = self._read()
            for name in PARTS if self.state.phase != FINISHED else ():
                self.streams[name] = stack.enter_context(self.path(name).open("ab"))
                self._cut(name)

    def _cut(self, name: str) -> None:
        """Drop what was written after the state."""
        stream, size = self.streams[name], self.state.sizes[name]
        if os.fstat(stream.fileno()).st_size < size:
            raise RunError(f"{self.path(name)} is shorter than its run left it", hint=AGAIN)
        stream.truncate(size)

    def _save(self) -> None:
        if self.is_stream:
            return
        with self._errors():
            for stream in self.streams.values():
                stream.flush()
                os.fsync(stream.fileno())
            sizes = {name: os.fstat(stream.fileno()).st_size for name, stream in self.streams.items()}
        self.state = replace(self.state, sizes=sizes)
        write_text(self._state_file, json.dumps(with_checksum({**asdict(self.state), "identity": self.identity})))
        self.saved = time.monotonic()

    def _read(self) -> FilterState:
        try:
            record = parse_json(self._state_file.read_bytes())
            verify_checksum(record)
            del record[CHECKSUM]
            before = dict(record.pop("identity"))
            state = FilterState(**{**record, "place": Place(**record["place"])})
            if asdict(state) != record:
                raise ValueError("a value is missing")
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise RunError(f"{self._state_file} cannot be read: it is damaged", hint=AGAIN) from error
        if before != self.identity:
            changed = sorted(key for key in {*before, *self.identity} if before.get(key) != self.identity.get(key))
            raise RunError(
                f"an unfinished run to {self.output} was begun with other {', '.join(changed)}",
                hint=f"give what it was begun with, or {AGAIN}",
            )
        return state


class Seen(NamedTuple):
    """A chunk that was read, without its text."""

    begin: Place
    end: Place
    size: int
    checksum: int

    @classmethod
    def of(cls, chunk: Chunk) -> Seen:
        """What is kept of a chunk."""
        return cls(chunk.begin, chunk.end, len(chunk.data), zlib.crc32(chunk.data))


def unread(
    chunks: Iterable[tuple[Seen, Item]], state: FilterState, skipped: Callable[[int], None]
) -> Iterator[tuple[Seen, int, Item]]:
    """The chunks after the state's place, each with the checksum of the text up to its end.

    Those before are read again: what was done with them holds only if they are the same.
    """
    text, is_known = 0, not state.place.document
    for seen, item in chunks:
        text = zlib.crc32(b"%d %d" % (seen.begin.source, seen.size), text)
        text = join_checksums(text, seen.checksum, seen.size)
        if is_known:
            yield seen, text, item
            continue
        is_known = (seen.end, text) == (state.place, state.text)
        if not is_known and seen.end.document >= state.place.document:
            break
        skipped(seen.size)
    if not is_known:
        raise changed_text()


def changed_text() -> RunError:
    """The error for a text that is not the one that was read before."""
    return RunError("the text is not the one that the unfinished run has read", hint=f"give that text, or {AGAIN}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file that no other process holds, and remove it in the end.

    Another process may remove it between opening and locking: then the lock is on a file without a name.
    """
    while True:
        with write_errors(path):
            stream = path.open("ab")
        try:
            import fcntl

            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                break
        except ImportError:  # a system without such locks
            break
        except FileNotFoundError:
            pass
        except OSError as error:
            stream.close()
            output = path.with_suffix("")
            raise RunError(
                f"another process is writing {output}", hint="wait for it, or name another output"
            ) from error
        stream.close()
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        stream.close()
