"""Optuna's journal file, opened so that a kill at any point leaves neither a stale lock nor half a line."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from lidstone.errors import RunError
from lidstone.locks import claim


class JournalLock:
    """Optuna's own locks are files, which outlive a killed process by half a minute; the system's lock does not."""

    def __init__(self, journal: Path) -> None:
        self.journal = journal
        self.held = contextlib.ExitStack()

    def acquire(self) -> bool:
        """Wait for the lock, and take away half a line that a crash of the machine left."""
        self.held.enter_context(claim(self.journal.parent, f"{self.journal.name}.lock", wait=True))
        _mend(self.journal)
        return True

    def release(self) -> None:
        """Let others write."""
        self.held.close()


def open_study(journal: Path, name: str, *, minimize: bool = True) -> Any:
    """The study of this name in a journal file, made if it is not there."""
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
            hint="was it written by a newer version? move it away to begin a new search; finished runs are kept",
        ) from error


def _mend(journal: Path) -> None:
    """Cut the file after its last whole line."""
    if not journal.exists() or journal.stat().st_size == 0:
        return
    with journal.open("r+b") as file:
        file.seek(-1, 2)
        if file.read() != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
