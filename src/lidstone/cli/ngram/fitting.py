"""How `lidstone fit` fits counts that do not fit in memory: on disk, or on a cluster."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lidstone.cli.inputs import is_arpa, write_table
from lidstone.errors import InputError

if TYPE_CHECKING:
    from lidstone.ngram.table import BackoffTable


class Where(NamedTuple):
    """The options of the command line that say where the work is done."""

    memory: str | None
    temporary: Path | None
    engine: str | None
    address: str | None


def fit_on_disk(
    counts: str, output: Path, name: str, smoother: Any, where: Where, held_out: list[str] | None
) -> BackoffTable:
    """Fit in limited memory or on a cluster, and map the table into memory."""
    from lidstone.ngram.cluster.counting import DEFAULT_MEMORY
    from lidstone.ngram.cluster.parted import gathered
    from lidstone.ngram.disk.memory import parse_size
    from lidstone.ngram.smoothers.plan import require_plan

    if where.engine not in (None, "ray"):
        raise InputError(f"there is no engine {where.engine!r}", hint="use --engine ray")
    if held_out:
        option = "--memory" if where.memory else "--engine"
        hint = "learn the weights from a part of the counts, then give them with --set weights="
        raise InputError(f"--held-out cannot be combined with {option}", hint=hint)
    require_plan(smoother, name)
    memory = DEFAULT_MEMORY if where.memory is None else parse_size(where.memory)
    return _fit(str(gathered(counts, memory=memory)), output, name, smoother, where, memory)


def _fit(counts: str, output: Path, name: str, smoother: Any, where: Where, memory: int) -> BackoffTable:
    """ARPA is written from a table that is made first, in the folder for temporary files."""
    from lidstone.ngram.disk.pages import PAGE_SHARE, limit_pages
    from lidstone.ngram.formats.safetensors import load_table

    if not is_arpa(output):
        _fit_table(counts, output, name, smoother, where, memory)
        return load_table(output, verify=False)
    place = where.temporary or (Path() if str(output) == "-" else output.parent)
    with tempfile.TemporaryDirectory(prefix=".fitting-", dir=place) as folder:
        table = Path(folder) / "model.table"
        _fit_table(counts, table, name, smoother, where, memory)
        loaded = load_table(table, verify=False)
        with limit_pages(int(memory * PAGE_SHARE), loaded.rows):
            write_table(loaded, output)
        return loaded


def _fit_table(counts: str, output: Path, name: str, smoother: Any, where: Where, memory: int) -> None:
    from lidstone.ngram.disk.fitting.engine import RayTasks
    from lidstone.ngram.disk.fitting.to_file import fit_to_file
    from lidstone.ray_cluster import connect

    if where.engine is None:
        fit_to_file(counts, output, smoother, name=name, memory=memory, temporary=where.temporary, show=True)
        return
    ray = connect(where.address)
    try:
        engine = RayTasks()
        options: dict[str, Any] = {"name": name, "temporary": where.temporary, "engine": engine, "show": True}
        fit_to_file(counts, output, smoother, memory=memory, **options)
    finally:
        ray.shutdown()
