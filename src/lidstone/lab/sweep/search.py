"""Search with Optuna: which setting to try next, and which training to stop early.

The search is kept in a journal file that all processes of a sweep share. A killed process leaves its trial running in
the journal; a process that reaches the end of the search computes such trials, so the best is chosen among all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import random
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any

from lidstone.errors import RecipeError, RunError
from lidstone.files import try_lock
from lidstone.lab.recipe.recipe import Recipe
from lidstone.lab.sweep.grid import Cell, axes_of, seeds_of
from lidstone.lab.sweep.work import Outcome, TrialName

JOURNAL = "sweep.journal"
TRIALS = 20  # if the recipe does not set sweep.trials
DRAWS = 5  # how often to ask the sampler for a setting that is new, before drawing one at random


Tried = tuple[Cell, TrialName]


class Search:
    """Tree-structured Parzen estimation over one method's axes, with median pruning."""

    def __init__(
        self, recipe: Recipe, method: str, output: Path, check: Callable[[Cell], object] | None = None
    ) -> None:
        """`check` raises a RecipeError for a cell whose values do not go together."""
        self.recipe, self.method, self.output = recipe, method, output
        self.check = check or (lambda cell: cell.recipe(recipe))
        self.checked: dict[str, bool] = {}
        self.axes = axes_of(recipe, method)
        self.name = f"{recipe.name}/{method}/{self._fingerprint()}"
        self.journal = output / JOURNAL
        self.study = open_study(self.journal, self.name, minimize=recipe.evaluation.metric == "perplexity")

    def ask(self, limit: int) -> Tried | None:
        """A setting that was not tried yet; None when `limit` settings, or all possible ones, have been tried."""
        from optuna.trial import TrialState

        with try_lock(self.output, "search", wait=True):
            self._fail_incomplete_trials()
            known = {json.dumps(trial.params, sort_keys=True): self._possible(trial.params) for trial in self._trials()}
            while sum(known.values()) < limit and len(known) < math.prod(map(len, self.axes.values())):
                trial = self._new_trial(known)
                if self._possible(trial.params):
                    return self._cell(trial.params), self._trial_name(trial.number)
                known[json.dumps(trial.params, sort_keys=True)] = False
                self.study.tell(trial.number, state=TrialState.FAIL)
            return None

    def tell(self, trial: TrialName, outcome: Outcome, metric: str) -> None:
        """Store the outcome of a trial, if no other process has done so."""
        from optuna.trial import TrialState

        score = outcome.score(metric)
        with try_lock(self.output, "search", wait=True):  # another process may be storing the same outcome
            if outcome.state == "complete" and score is not None:
                self.study.tell(trial.number, score, skip_if_finished=True)
            else:
                state = TrialState.PRUNED if outcome.state == "pruned" else TrialState.FAIL
                self.study.tell(trial.number, state=state, skip_if_finished=True)

    def tried(self) -> list[Tried]:
        """Every setting chosen so far, by any process."""
        found: dict[str, Tried] = {}
        for trial in filter(lambda trial: self._possible(trial.params), self._trials()):
            cell = self._cell(trial.params)
            found.setdefault(cell.key, (cell, self._trial_name(trial.number)))
        return list(found.values())

    def _trials(self) -> Iterator[Any]:
        """Trials whose setting is known."""
        names = self.axes.keys()
        return (trial for trial in self.study.get_trials(deepcopy=False) if trial.params.keys() == names)

    def _fail_incomplete_trials(self) -> None:
        """Settings are chosen under a lock: a trial without one was left by a killed process."""
        from optuna.trial import TrialState

        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if trial.params.keys() != self.axes.keys():
                self.study.tell(trial.number, state=TrialState.FAIL)

    def _possible(self, params: dict[str, int]) -> bool:
        """Whether a recipe can have these values together: a width, say, must be a multiple of the heads."""
        cell = self._cell(params)
        if cell.key not in self.checked:
            try:
                self.check(cell)
                self.checked[cell.key] = True
            except RecipeError:
                self.checked[cell.key] = False
        return self.checked[cell.key]

    def _new_trial(self, known: Container[str]) -> Any:
        """A trial with a setting that is not known."""
        from optuna.trial import TrialState

        for _ in range(DRAWS):
            trial = self._draw()
            if json.dumps(trial.params, sort_keys=True) not in known:
                return trial
            self.study.tell(trial.number, state=TrialState.FAIL)
        self.study.enqueue_trial(self._unknown(known))
        return self._draw()

    def _draw(self) -> Any:
        trial = self.study.ask()
        for key, values in self.axes.items():
            trial.suggest_categorical(key, range(len(values)))
        return trial

    def _unknown(self, known: Container[str]) -> dict[str, int]:
        """A setting that is not known, at random; there is one, as less than all are known."""
        draw = random.Random(str(known))
        while True:
            params = {key: draw.randrange(len(values)) for key, values in self.axes.items()}
            if json.dumps(params, sort_keys=True) not in known:
                return params

    def _cell(self, params: dict[str, int]) -> Cell:
        settings = {key: values[params[key]] for key, values in self.axes.items()}
        return Cell(self.method, settings, seeds_of(self.recipe)[0])

    def _trial_name(self, number: int) -> TrialName:
        return TrialName(str(self.journal), self.name, number)

    def _fingerprint(self) -> str:
        """A hash of everything that the scores depend on: another recipe has another search."""
        config = self.recipe.method(self.method).to_dict()
        config.pop("sweep")
        for split in ("train", "valid", "test"):
            for side, names in (config["corpus"][split] or {}).items():  # from any folder it is the same search
                config["corpus"][split][side] = [str(Path(name).absolute()) for name in names]
        identity = json.dumps([config, list(self.axes.items()), seeds_of(self.recipe)[0]], sort_keys=True)
        return hashlib.sha256(identity.encode()).hexdigest()[:8]


class RunningTrial:
    """A trial in the process that computes it, which may differ from the one that chose it."""

    def __init__(self, name: TrialName) -> None:
        from optuna.trial import Trial

        study = open_study(Path(name.journal), name.study)
        frozen = next(trial for trial in study.get_trials(deepcopy=False) if trial.number == name.number)
        self.trial = Trial(study, frozen._trial_id)
        self.known = set(frozen.intermediate_values)
        self.over = frozen.state.is_finished()
        self.evaluations = 0

    def report(self, score: float) -> bool:
        """The score of the next evaluation; True if the training should be stopped."""
        self.evaluations += 1
        if self.over:
            return False
        if self.evaluations not in self.known:
            self.trial.report(score, self.evaluations)
        return bool(self.trial.should_prune())


class JournalLock:
    """A lock that the operating system releases when a process is killed; Optuna's own lasts half a minute longer."""

    def __init__(self, journal: Path) -> None:
        self.journal = journal
        self.held = contextlib.ExitStack()

    def acquire(self) -> bool:
        """Wait for the lock, then remove an incomplete last line, which a crash of the machine may leave."""
        self.held.enter_context(try_lock(self.journal.parent, f"{self.journal.name}.lock", wait=True))
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
