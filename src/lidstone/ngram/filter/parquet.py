"""Parquet for the filter: a row is a document, and the output has all columns of the input and those of the scores.

A chunk is a batch of rows as an Arrow stream, in bytes. The part that a run leaves behind when it is interrupted is
such streams, one after the other; only the finished output is Parquet, which cannot be continued.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lidstone.errors import InputError, TextError
from lidstone.files import atomic_write
from lidstone.ngram.filter.documents import Bad, Columns, Documents
from lidstone.text.reader import Chunk, Place
from lidstone.text.source import Source

ROWS = 1024


@dataclass(frozen=True)
class ParquetForm:
    """Documents in a column of Parquet files."""

    name: str
    """the column"""

    def check(self, sources: Sequence[Source], names: Sequence[str]) -> None:
        """Refuse files with different columns."""
        for _ in self._files(sources, names):
            pass

    def chunks(
        self, sources: Sequence[Source], names: Sequence[str], chunk_bytes: int, prompt: bool, bounds: Any = None
    ) -> Iterator[Chunk]:
        """All rows, some at a time; a file without rows gives its columns. It is not cut."""
        document = 0
        for number, (file, name) in enumerate(self._files(sources, names)):
            for begin, batch in _batches(file, name):
                end = begin + len(batch)
                before, after = (Place(number, row, row, document + row) for row in (begin, end))
                yield Chunk(_stream(batch), name, before, after)
            document += file.metadata.num_rows

    def documents(self, chunk: Chunk) -> Documents:
        """The texts of a batch; rows without text are bad."""
        texts = _batch(chunk.data).column(self.name).to_pylist()
        why = f"the field {self.name!r} is null, not a string"
        first = chunk.begin.line + 1
        bad = [Bad(chunk.name, row, why, b"") for row, text in enumerate(texts, first) if text is None]
        numbers = [number for number, text in enumerate(texts) if text is not None]
        return Documents.of_texts(numbers, [texts[number] for number in numbers], bad)

    def rows(self, chunk: Chunk, numbers: Sequence[int], names: Sequence[str], columns: Columns) -> bytes:
        """These rows with the scores as columns; a column of that name is replaced."""
        import pyarrow

        batch = _batch(chunk.data).take(pyarrow.array(numbers, pyarrow.int64()))
        fields = {name: batch.column(name) for name in batch.schema.names}
        for name, column in zip(names, columns, strict=True):
            kind = pyarrow.string() if name == "bucket" else pyarrow.float64()
            fields[name] = pyarrow.array(column, kind)
        kept = [batch.schema.field(name) for name in batch.schema.names if name not in names]
        fields = {field.name: fields[field.name] for field in kept} | {name: fields[name] for name in names}
        made = pyarrow.record_batch(list(fields.values()), names=list(fields))
        schema = pyarrow.schema([*kept, *(made.schema.field(name) for name in names)], batch.schema.metadata)
        return _stream(pyarrow.record_batch(list(fields.values()), schema=schema))

    def _files(self, sources: Sequence[Source], names: Sequence[str]) -> Iterator[tuple[Any, str]]:
        schema = None
        for source, name in zip(sources, names, strict=True):
            file = self._open(source, name)
            schema = schema or file.schema_arrow
            if file.schema_arrow.remove_metadata() != schema.remove_metadata():
                hint = f"filter them one by one: {names[0]} has {', '.join(schema.names)}"
                raise InputError(f"{name} has other columns than {names[0]}", hint=hint)
            yield file, name

    def _open(self, source: Source, name: str) -> Any:
        import pyarrow
        import pyarrow.parquet as parquet

        if name == "<stdin>" or not isinstance(source, (str, Path)):
            raise InputError("Parquet is not read from standard input", hint="name a file")
        try:
            file = parquet.ParquetFile(source)
        except FileNotFoundError as error:
            raise TextError(f"cannot read {name}: no such file", hint="check the path") from error
        except (OSError, pyarrow.ArrowException) as error:
            raise _damaged(name, error) from error
        columns = file.schema_arrow
        if self.name not in columns.names:
            hint = f"name one with --field: {', '.join(columns.names)}"
            raise InputError(f"{name} has no column {self.name!r}", hint=hint)
        kind = columns.field(self.name).type
        if "string" not in str(kind):
            raise InputError(f"the column {self.name!r} of {name} is {kind}, not text", hint="name the one with text")
        return file


def assemble(part: Path, target: Path) -> None:
    """Make a Parquet file of Arrow streams, one after the other, and remove them."""
    import pyarrow
    import pyarrow.parquet as parquet

    with atomic_write(target) as file, pyarrow.OSFile(str(part)) as source:
        first = pyarrow.ipc.open_stream(source)
        with parquet.ParquetWriter(file, first.schema) as writer:
            writer.write_table(first.read_all())
            while source.tell() < source.size():
                writer.write_table(pyarrow.ipc.open_stream(source).read_all())
    part.unlink()


def _batches(file: Any, name: str) -> Iterator[tuple[int, Any]]:
    """Batches with their first rows; one without rows if there are none."""
    import pyarrow

    begin = 0
    try:
        for batch in file.iter_batches(ROWS):
            yield begin, batch
            begin += len(batch)
    except (OSError, pyarrow.ArrowException) as error:
        raise _damaged(name, error) from error
    if not begin:
        yield 0, pyarrow.RecordBatch.from_pylist([], schema=file.schema_arrow)


def _damaged(name: str, error: Exception) -> TextError:
    return TextError(f"{name} is damaged, or not a Parquet file: {error}", hint="copy the file again")


def _stream(batch: Any) -> bytes:
    import pyarrow

    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _batch(data: bytes) -> Any:
    import pyarrow

    return pyarrow.ipc.open_stream(data).read_next_batch()
