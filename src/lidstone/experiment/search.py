"""Search with Optuna: which setting to try next, and which training to give up. The journal file is its memory.

A process that is killed leaves its trial RUNNING in the journal; such trials are taken over by the next start unless
somebody still holds the lock of their cell. The values tried are those of the axes, so a cell that is found again is
not computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lidstone.errors import RunError
from lidstone.experiment.config import Recipe
from lidstone.experiment.grid import Cell, axes_of


class Search:
    """Tree-structured Parzen estimation over one method's axes, with median pruning."""

    def __init__(self, recipe: Recipe, method: str, journal: Path) -> None:
        self.recipe, self.method = recipe, method
        self.axes = axes_of(recipe, method)
        self.journal, self.name = str(journal), f"{recipe.name}/{method}"
        self.study = open_study(self.journal, self.name, minimize=recipe.evaluation.metric == "perplexity")
        self.trials = recipe.sweep.trials or 20

    @property
    def settings(self) -> int:
        """How many different settings the axes have."""
        total = 1
        for values in self.axes.values():
            total *= len(values)
        return total

    def reclaim(self, busy: Callable[[Cell], bool]) -> None:
        """Put back what a killed process left running, unless another one is at it."""
        from optuna.trial import TrialState

        for trial in self.study.get_trials(states=(TrialState.RUNNING,)):
            cell = self._cell(trial.params) if trial.params.keys() == self.axes.keys() else None
            if cell is not None and busy(cell):
                continue
            self.study.tell(trial.number, state=TrialState.FAIL)
            if cell is not None:
                self.study.enqueue_trial(trial.params)

    def ask(self) -> tuple[Cell, tuple[str, str, int]] | None:
        """The next cell and its trial; None when enough have been tried."""
        from optuna.trial import TrialState

        ended = self.study.get_trials(states=(TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING))
        if len(ended) >= min(self.trials, self.settings):
            return None
        trial = self.study.ask()
        chosen = {key: values[trial.suggest_categorical(key, range(len(values)))] for key, values in self.axes.items()}
        first = self.recipe.sweep.seeds[0] if self.recipe.sweep.seeds else self.recipe.training.seed
        return Cell(self.method, chosen, first), (self.journal, self.name, trial.number)

    def tell(self, number: int, value: float | None, *, pruned: bool = False) -> None:
        """The score of a trial; None if it failed."""
        from optuna.trial import TrialState

        if pruned:
            self.study.tell(number, state=TrialState.PRUNED)
        elif value is None:
            self.study.tell(number, state=TrialState.FAIL)
        else:
            self.study.tell(number, value)

    def completed(self) -> list[Cell]:
        """The cells that were computed to their end."""
        from optuna.trial import TrialState

        return [self._cell(trial.params) for trial in self.study.get_trials(states=(TrialState.COMPLETE,))]

    def _cell(self, params: dict[str, int]) -> Cell:
        first = self.recipe.sweep.seeds[0] if self.recipe.sweep.seeds else self.recipe.training.seed
        return Cell(self.method, {key: self.axes[key][index] for key, index in params.items()}, first)


def open_study(journal: str, name: str, *, minimize: bool = True) -> Any:
    """The study of this name in a journal file, made if it is not there."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        storage = JournalStorage(JournalFileBackend(journal))
        return optuna.create_study(
            study_name=name,
            storage=storage,
            direction="minimize" if minimize else "maximize",
            load_if_exists=True,
            sampler=optuna.samplers.TPESampler(seed=1, multivariate=True, constant_liar=True),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=0),
        )
    except (ValueError, KeyError, AssertionError, NotImplementedError) as error:
        raise RunError(
            f"the journal {journal} cannot be read: {error}",
            hint="was it written by a newer version? move it away to begin a new search; finished runs are kept",
        ) from error


def open_trial(journal: str, name: str, number: int) -> Any:
    """A running trial, from another process than the one that asked for it."""
    import optuna

    study = open_study(journal, name)
    found = next(trial for trial in study.get_trials(deepcopy=False) if trial.number == number)
    return optuna.trial.Trial(study, found._trial_id)
