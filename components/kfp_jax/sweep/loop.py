"""A sweep as a loop in a pipeline: what goes into it, and what comes back, as values KFP can carry.

A trial there is a task of its own. Its result must be small, because all results together are one
argument of the task that compares them, and must hold no null, which kfp.local does not pass on.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kfp_jax.checks import json_object, mapping, whole
from kfp_jax.errors import SpecError
from kfp_jax.sweep.end import End, SweepEnd, words_of
from kfp_jax.sweep.space import Space
from kfp_jax.sweep.spec import most_failed
from kfp_jax.sweep.study import MAX_TRIALS, Study
from kfp_jax.sweep.suggestions import LEARNING, suggest
from kfp_jax.sweep.table import read_trials
from kfp_jax.sweep.trial import Trial, TrialState

MAX_LOOP_TRIALS = 100
"""An iteration is three pods and about 1.8 kB of the Workflow, which may hold 1 MiB."""
# Linux takes arguments of 128 KiB; the rest is for what else KFP writes into the same one.
_MAX_RESULTS_BYTES = 120_000
# Of a result without its parameters: a sentence, a curve, two long URIs.
_RESULT_BYTES = 900
_MAX_MESSAGE_BYTES = 300
_MAX_POINTS = 10
_ALWAYS = ("number", "parameters", "state")
_INSTEAD = "use the component sweep, which makes all trials in one step"


def loop_items(study: Study, dataset_uri: str = "") -> list[dict[str, Any]]:
    """Returns the trials that a loop makes, each as the `item` of its task.

    They are those that a sweep in one step makes with the same sampler and seed.

    Args:
        study: What decides.
        dataset_uri: What they all train on.

    Raises:
        SpecError: They are too many or too large for a loop, or the sampler needs results first.
    """
    if study.sampler in LEARNING:
        raise SpecError(
            f"Sampler {study.sampler} learns from results, but a loop knows its trials before the"
            f" first has run; use random, grid or quasirandom here, or {_INSTEAD}."
        )
    wanted = min(count for count in (study.max_trials, study.space.points()) if count)
    if wanted > MAX_LOOP_TRIALS:
        raise SpecError(
            f"{wanted:,} trials were asked for, but a loop takes at most {MAX_LOOP_TRIALS}: each"
            " costs three pods and a part of the Workflow, whose size is limited; ask for fewer,"
            f" or {_INSTEAD}."
        )
    trials: list[Trial] = []
    while (found := suggest(study, trials, len(trials))) is not None:
        trials.append(Trial(len(trials), found))
    items = [loop_item(trial, dataset_uri) for trial in trials]
    _check_size(items)
    return items


def _check_size(items: Sequence[Mapping[str, Any]]) -> None:
    size = len(json.dumps(items)) + _RESULT_BYTES * len(items)
    if size > _MAX_RESULTS_BYTES:
        raise SpecError(
            f"{len(items)} trials with these parameters have results of up to {size:,} bytes, but"
            f" the step after a loop takes {_MAX_RESULTS_BYTES:,}; ask for fewer trials, or"
            f" {_INSTEAD}."
        )


def loop_item(trial: Trial, dataset_uri: str = "") -> dict[str, Any]:
    """Returns what a trial's task needs to know of it.

    The dataset is in it because kfp.local (2.17) gives a task in a loop the loop's item in place of
    any other task's output.
    """
    item = {"number": trial.number, "parameters": dict(trial.parameters)}
    return {**item, "dataset_uri": dataset_uri} if dataset_uri else item


@dataclass(frozen=True)
class LoopItem:
    """A trial that is to be made, and what it trains on."""

    trial: Trial
    dataset_uri: str


def read_item(item: Mapping[str, Any]) -> LoopItem:
    """Returns what `loop_item` gave.

    Raises:
        SpecError: It is something else.
    """
    values = mapping("item", item)
    if set(values) - {"dataset_uri"} != {"number", "parameters"}:
        raise SpecError(
            f"item is {dict(values)!r:.80}; give one that suggest or halve returned, with a number"
            " and parameters."
        )
    number = whole("number", values["number"], 0, MAX_TRIALS)
    trial = Trial(number, json_object("parameters", values["parameters"]))
    return LoopItem(trial, str(values.get("dataset_uri", "")))


def to_result(trial: Trial) -> dict[str, Any]:
    """Returns a trial's end, short enough to travel with a hundred others."""
    data = trial.to_json() | {
        "curve": [[step, float(f"{value:.5g}")] for step, value in thinned(trial.curve)],
        "message": _cut(trial.message),
        "seconds": round(trial.seconds, 3),
    }
    return {name: value for name, value in data.items() if name in _ALWAYS or _says(name, value)}


def _says(name: str, value: Any) -> bool:
    # A score of 0 is one.
    return value is not None if name == "score" else bool(value)


def thinned(curve: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """Returns at most ten points of a curve, the first and the last among them."""
    if len(curve) <= _MAX_POINTS:
        return curve
    last = len(curve) - 1
    return [curve[round(index * last / (_MAX_POINTS - 1))] for index in range(_MAX_POINTS)]


def _cut(text: str) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= _MAX_MESSAGE_BYTES:
        return data.decode()
    return data[: _MAX_MESSAGE_BYTES - 3].decode("utf-8", "ignore") + "…"


def read_results(results: Iterable[Mapping[str, Any]], space: Space | None = None) -> list[Trial]:
    """Returns the trials of a loop, by number.

    Args:
        results: What their tasks returned.
        space: Where known, gives parameters the types back that KFP took: 1.0 came as 1.

    Raises:
        SpecError: One is no result, or there is none at all.
    """
    lines = "".join(json.dumps(result) + "\n" for result in results)
    try:
        trials = read_trials(lines)
    except SpecError as error:
        raise SpecError(f"results is not what the tasks of trial returned: {error}") from error
    if not trials:
        raise SpecError("results is empty: the loop made no trial; give suggest a search space.")
    return [_typed(trial, space) for trial in sorted(trials, key=lambda trial: trial.number)]


def _typed(trial: Trial, space: Space | None) -> Trial:
    known = space is not None and space.contains(trial.parameters)
    return replace(
        trial,
        parameters=space.read(trial.parameters) if space and known else trial.parameters,
        score=None if trial.score is None else float(trial.score),
        seconds=float(trial.seconds),
    )


def after_round(earlier: Iterable[Trial], trials: Iterable[Trial]) -> list[Trial]:
    """Returns all trials after one more round of successive halving, by number.

    A trial that went on is what it came to now; its time is that of all its rounds.
    """
    found = {trial.number: trial for trial in earlier}
    for trial in trials:
        before = found.get(trial.number)
        spent = before.seconds if before else 0.0
        found[trial.number] = replace(trial, seconds=trial.seconds + spent)
    return [found[number] for number in sorted(found)]


def without(trials: Iterable[Trial], going_on: Iterable[Trial]) -> list[Trial]:
    """Returns the trials, of which the complete ones that do not go on are pruned."""
    numbers = {trial.number for trial in going_on}
    return [
        replace(trial, state=TrialState.PRUNED)
        if trial.state is TrialState.COMPLETE and trial.number not in numbers
        else trial
        for trial in trials
    ]


def loop_end(trials: Sequence[Trial], max_failed: int) -> tuple[SweepEnd, str]:
    """Returns how a loop with these trials ended, as a sweep in one step would have, and in words.

    Args:
        trials: Of the loop.
        max_failed: How many may fail; -1 for half of them.
    """
    failed = sum(trial.state is TrialState.FAILED for trial in trials)
    most = most_failed(max_failed, len(trials))
    end = SweepEnd(tuple(trials), End.FAILED_BUDGET if failed > most else End.DONE, 0.0)
    return end, words_of(end, most)
