"""Threads for compiled kernels, which run without Python's lock: how many, and over which ranges."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

Item = TypeVar("Item")
PARALLEL_ITEMS = 1 << 19
"""Fewer items than this are left to one thread."""
SHARES = 4
"""Shares of work per thread, where they are of unequal length: a thread that is done takes the next."""
WORTH_SHARING = 1 << 20
"""Of fewer items, a worker has too few to be worth its start."""


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_for(items: int) -> int:
    """How many threads are worth starting for so many items."""
    return cores() if items >= PARALLEL_ITEMS else 1


def num_shares(threads: int) -> int:
    """Into how many shares of unequal length work for so many threads is cut.

    >>> num_shares(1), num_shares(2)
    (1, 8)
    """
    return SHARES * threads if threads > 1 else 1


def equal_ranges(items: int, parts: int, unit: int = 1) -> list[tuple[int, int]]:
    """0..items in so many ranges of about one length, cut at multiples of `unit`.

    >>> equal_ranges(10, 3), equal_ranges(10, 3, unit=4)
    ([(0, 3), (3, 6), (6, 10)], [(0, 0), (0, 4), (4, 10)])
    """
    inner = [items * part // parts // unit * unit for part in range(parts)]
    return list(pairwise([*inner, items]))


def chunk_size(total: float, limit: int, workers: int) -> int:
    """How many of `total` items a piece of work has: at most `limit`, and so few that all workers are busy.

    >>> [chunk_size(total, 5_000_000, workers=2) for total in (8_000_000, 80_000_000)]
    [2000000, 5000000]
    """
    return min(limit, max(-(-int(total) // (2 * workers)), WORTH_SHARING)) if total else limit


def over_ranges(work: Callable[[int, int], object], items: int, threads: int | None = None) -> None:
    """Call work(start, stop) on equal ranges of 0..items, a thread each.

    >>> over_ranges(lambda start, stop: print(start, stop), 3)
    0 3
    """
    threads = threads_for(items) if threads is None else threads
    if threads == 1:
        work(0, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(work, start, stop) for start, stop in equal_ranges(items, threads)]:
            future.result()


def bounded_lookahead(started: Iterable[Item], workers: int) -> Iterator[Item]:
    """What was started, in order, with one more than `workers` under way: few results wait, and no worker does.

    An error while starting comes after all that was started before it.

    >>> list(bounded_lookahead((2 * number for number in range(3)), workers=1))
    [0, 2, 4]
    """
    pending: deque[Item] = deque()
    try:
        for one in started:
            pending.append(one)
            if len(pending) > workers:
                yield pending.popleft()
    except Exception:
        yield from pending
        raise
    yield from pending
