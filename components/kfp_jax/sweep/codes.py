"""Parameters as Optuna takes them: an index or a place from 0 to 1 for each entry.

Optuna sees neither our numbers nor our JSON values, so that steps stay exact, no range is too wide
for it, and a choice may hold any JSON.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from kfp_jax.errors import SpecError
from kfp_jax.sweep.entries import Choice, Entry
from kfp_jax.sweep.remembered import Remembered
from kfp_jax.sweep.space import Space
from kfp_jax.sweep.trial import Direction, Trial, TrialState

# It would report each study as new, on a stream that is ours.
optuna.logging.set_verbosity(optuna.logging.WARNING)

# Above it the places between two values are too close to matter.
_MOST_INDICES = 10_000
# Optuna's storage gives the trial that is asked for the number 0; TPE weighs trials by their age.
_AFTER_ASKED = 1
_EARLIER = -(2**31)
_STATES = {
    TrialState.RUNNING: OptunaState.RUNNING,
    TrialState.COMPLETE: OptunaState.COMPLETE,
    TrialState.PRUNED: OptunaState.PRUNED,
}


@dataclass(frozen=True)
class Code:
    """How one entry's values are written for Optuna."""

    entry: Entry
    by_index: bool
    distribution: BaseDistribution

    def encode(self, value: Any) -> int | float:
        """Returns what stands for `value`, one of the entry's."""
        return self.entry.index(value) if self.by_index else self.entry.place(value)

    def decode(self, code: float) -> Any:
        """Returns the value that `code` stands for."""
        return self.entry.value(int(code)) if self.by_index else self.entry.at(code)


@lru_cache(maxsize=8)
def _encoder(text: str, shift: int) -> Remembered[FrozenTrial | None]:
    space = Space.from_json(json.loads(text))
    codes = codes_of(space)
    return Remembered(lambda trial: _frozen(space, codes, trial, trial.number + shift))


def codes_of(space: Space) -> dict[str, Code]:
    """Returns the code of each entry."""
    return {name: _code_of(entry) for name, entry in space.entries.items()}


def _code_of(entry: Entry) -> Code:
    if isinstance(entry, Choice):
        return Code(entry, True, CategoricalDistribution(range(entry.count)))
    if entry.count is None or entry.log or entry.count > _MOST_INDICES:
        return Code(entry, False, FloatDistribution(0, 1))
    return Code(entry, True, IntDistribution(0, entry.count - 1))


def frozen(
    space: Space, trials: Iterable[Trial], earlier: Iterable[Trial] = ()
) -> list[FrozenTrial]:
    """Returns the trials that say something, those of an earlier sweep first.

    Failed and stopped ones say nothing, nor do those without a score that are no longer running,
    nor those that are no points of the space.
    """
    before = _encoder(space.text, _EARLIER)(earlier)
    now = _encoder(space.text, _AFTER_ASKED)(trials)
    return [trial for trial in (*before, *now) if trial is not None]


def _frozen(space: Space, codes: dict[str, Code], trial: Trial, number: int) -> FrozenTrial | None:
    running = trial.state is TrialState.RUNNING
    if not running and (trial.state not in _STATES or trial.score is None):
        return None
    try:
        parameters = space.read(trial.parameters)
    except SpecError:
        return None
    last_step = trial.curve[-1][0] if trial.curve else 0
    return FrozenTrial(
        number=number,
        trial_id=number,
        state=_STATES[trial.state],
        value=trial.score if trial.state is TrialState.COMPLETE else None,
        datetime_start=None,
        datetime_complete=None,
        params={name: codes[name].encode(value) for name, value in parameters.items()},
        distributions={name: codes[name].distribution for name in parameters},
        user_attrs={},
        system_attrs={},
        # Optuna ranks pruned trials by their last step, and then by the value there.
        intermediate_values={} if trial.score is None else {last_step: trial.score},
    )


class History(InMemoryStorage):
    """Optuna's storage in memory, with trials that are there from the beginning.

    Optuna would copy each of them deeply, one by one, to take them in.
    """

    def __init__(self, trials: Sequence[FrozenTrial]) -> None:
        super().__init__()
        self._known = trials

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Any = None
    ) -> list[FrozenTrial]:
        """Returns the known trials, and those made since."""
        trials = [*self._known, *super().get_all_trials(study_id, deepcopy=False)]
        return [trial for trial in trials if states is None or trial.state in states]


def optuna_study(
    history: History, direction: Direction, sampler: BaseSampler | None = None
) -> optuna.Study:
    """Returns a study that knows the history's trials."""
    return optuna.create_study(storage=history, sampler=sampler, direction=direction.value)
