"""Optuna's journal file, with locks and line ends that survive a kill at any point."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from lidstone.errors import RunError
from lidstone.locks import claim


class JournalLock:
    """A lock that the operating system releases when a process is killed; Optuna's own lasts half a minute longer."""

    def __init__(self, journal: Path) -> None:
        self.journal = journal
        self.held = contextlib.ExitStack()

    def acquire(self) -> bool:
        """Wait for the lock, then remove an incomplete last line, which a crash of the machine may leave."""
        self.held.enter_context(claim(self.journal.parent, f"{self.journal.name}.lock", wait=True))
        _cut_incomplete_line(self.journal)
        return True

    def release(self) -> None:
        """Release the lock."""
        self.held.close()


def open_study(journal: Path, name: str, *, minimize: bool = True) -> Any:
    """The study of this name in a journal file, created if it does not exist."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(
            study_name=name,
            storage=JournalStorage(JournalFileBackend(str(journal), JournalLock(journal))),
            direction="minimize" if minimize else "maximize",
            load_if_exists=True,
            sampler=optuna.samplers.TPESampler(seed=1, multivariate=True, constant_liar=True),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=4),
        )
    except (ValueError, KeyError, TypeError, AssertionError, NotImplementedError) as error:
        raise RunError(
            f"the journal {journal} cannot be read: {error}",
            hint="was it written by a newer version? Move it away to start a new search; finished runs are kept",
        ) from error


def _cut_incomplete_line(journal: Path) -> None:
    """Cut the file after its last complete line."""
    if not journal.exists() or journal.stat().st_size == 0:
        return
    with journal.open("r+b") as file:
        file.seek(-1, 2)
        if file.read() != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
