"""Progress bars on standard error; silent where that is not a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

Item = TypeVar("Item")


@contextlib.contextmanager
def progress_bar(
    total: float | None, description: str, *, show: bool = True, unit: str = ""
) -> Iterator[Callable[[float], None]]:
    """Show a bar and give the function that moves it on; `total=None` is for work of unknown length.

    >>> with progress_bar(3, "counting") as advance:
    ...     advance(3)
    """
    if not (show and sys.stderr.isatty()):
        yield lambda amount: None
        return
    with _rich_bar(unit) as bar:
        task = bar.add_task(description, total=total)
        yield lambda amount: bar.update(task, advance=amount)


def progress(
    items: Iterable[Item], description: str, total: float | None = None, *, show: bool = True
) -> Iterator[Item]:
    """Pass `items` on, with a bar.

    >>> list(progress([1, 2], "counting"))
    [1, 2]
    """
    length = len(items) if total is None and isinstance(items, Sized) else total
    with progress_bar(length, description, show=show) as advance:
        for item in items:
            yield item
            advance(1)


def _rich_bar(unit: str):  # type: ignore[no-untyped-def]  # rich is imported only where a bar is drawn
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    amount = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
