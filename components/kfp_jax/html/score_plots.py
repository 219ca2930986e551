"""How a sweep went: the score of every trial, and the learning curves of all."""

import math
from collections.abc import Iterable, Mapping, Sequence

from kfp_jax.html.axes import LARGEST, Axis, axis, score_axis
from kfp_jax.html.plot_parts import (
    BOTTOM,
    HEIGHT,
    KINDS,
    LEFT,
    MARKS,
    RIGHT,
    TOP,
    WIDTH,
    Paths,
    Plot,
    base_line,
    evenly,
    from_best,
    grid_lines,
    known_score,
    labels_across,
    picture,
    ring,
    score,
    units,
)
from kfp_jax.html.text import number
from kfp_jax.sweep.trial import Direction, Trial, TrialState, ranked

_WITHOUT_SCORE = 20  # units kept below all scores for the trials that have none
_MOST_MARKS = 2_000
_BEST_CURVES, _OTHER_CURVES = 20, 130
_MOST_POINTS = 60
_LAST_STEP = 10**15

_MARK_CLASSES = ("m-pruned", "m-complete", "m-stopped", "m-failed", "so-far", "m-best")
_CURVE_CLASSES = ("l-pruned", "l-stopped", "l-failed", "l-complete", "l-best", "m-end", "m-failed")

_Points = list[tuple[float, float]]


def draw_scores(trials: Sequence[Trial], direction: Direction) -> Plot | None:
    """Returns the score of every trial by its number; None when no trial has a score."""
    scored = [trial for trial in trials if score(trial) is not None]
    if not scored:
        return None
    maximize = direction is Direction.MAXIMIZE
    up, limit = score_axis([known_score(trial) for trial in scored], maximize=maximize)
    across = axis((float(trial.number) for trial in trials), linear=True, whole=True)
    floor = HEIGHT - BOTTOM
    bottom = floor - 5 - (_WITHOUT_SCORE if len(scored) < len(trials) else 0)

    def x(number: float) -> float:
        return LEFT + 5 + across.share(number) * (WIDTH - LEFT - RIGHT - 10)

    def y(value: float) -> float:
        return bottom - up.share(value) * (bottom - TOP - 5)

    shown = evenly(sorted(trials, key=lambda trial: trial.number), _MOST_MARKS)
    paths = Paths()
    for trial in shown:
        value = score(trial)
        kind = KINDS[trial.state]
        height = y(value) if value is not None else floor - 8
        paths.add(f"m-{kind}", MARKS[kind](x(trial.number), height))
    so_far = _best_so_far(trials, direction)
    if so_far:
        steps = "".join(f"H{units(x(one.number))}V{units(y(known_score(one)))}" for one in so_far)
        start = f"M{units(x(so_far[0].number))} {units(y(known_score(so_far[0])))}"
        paths.add("so-far", f"{start}{steps}H{WIDTH - RIGHT}")
        paths.add("m-best", ring(x(so_far[-1].number), y(known_score(so_far[-1]))))
    paths = paths.ordered(_MARK_CLASSES)
    notes = []
    if limit is not None:
        beyond = sum(not up.low <= known_score(trial) <= up.high for trial in scored)
        word = "below" if maximize else "above"
        plural = "score" if beyond == 1 else "scores"
        be = "is" if beyond == 1 else "are"
        notes.append(f"{beyond:,} {plural} {word} {number(limit)} {be} drawn at the edge.")
    if len(shown) < len(trials):
        notes.append(f"{len(shown):,} of {len(trials):,} trials are drawn, evenly chosen.")
    if up.logarithmic:
        notes.append("Log scale.")
    body = grid_lines(up, y) + labels_across(across, x) + base_line(floor) + paths.markup()
    described = _scores_described(trials, scored, so_far)
    return Plot(picture(WIDTH, HEIGHT, described, body), tuple(paths.data), tuple(notes))


def _scores_described(
    trials: Sequence[Trial], scored: Sequence[Trial], so_far: Sequence[Trial]
) -> str:
    values = [known_score(trial) for trial in scored]
    words = (
        f"Score by trial number: {len(scored):,} of {len(trials):,} trials have one, from "
        f"{number(min(values))} to {number(max(values))}."
    )
    if so_far:
        words += f" The best is trial {so_far[-1].number} with {number(so_far[-1].score)}."
    return words


def _best_so_far(trials: Iterable[Trial], direction: Direction) -> list[Trial]:
    """Returns the complete trials that are better than all before them; the last is the best."""
    steps: list[Trial] = []
    complete = (trial for trial in trials if trial.state is TrialState.COMPLETE)
    for trial in sorted(complete, key=lambda trial: trial.number):
        if score(trial) is not None and ranked([*steps[-1:], trial], direction)[0] is trial:
            steps.append(trial)
    return steps


def draw_curves(trials: Sequence[Trial], direction: Direction) -> Plot | None:
    """Returns the reported objective of the trials by step; None when none reported it twice."""
    points = {trial.number: _drawable(evenly(trial.curve, _MOST_POINTS)) for trial in trials}
    if not any(len(curve) > 1 for curve in points.values()):
        return None
    reported = from_best((trial for trial in trials if points[trial.number]), direction)
    shown = [*reported[:_BEST_CURVES], *evenly(reported[_BEST_CURVES:], _OTHER_CURVES)]
    best = next(iter(ranked(trials, direction)), None)
    maximize = direction is Direction.MAXIMIZE
    drawn = [point for trial in shown for point in points[trial.number]]
    # All curves begin badly, so that less is cut off than of the scores.
    up, limit = score_axis([value for _, value in drawn], maximize=maximize, usual=0.9)
    across = axis((step for step, _ in drawn), linear=True, whole=True)
    bottom = HEIGHT - BOTTOM

    def x(step: float) -> float:
        return LEFT + across.share(step) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return bottom - 5 - up.share(value) * (bottom - TOP - 10)

    paths = Paths()
    for trial in shown:
        inside = _from_edge(points[trial.number], up, maximize=maximize)
        if len(inside) > 1:
            line = "L".join(f"{units(x(step))} {units(y(value))}" for step, value in inside)
            paths.add("l-best" if trial is best else f"l-{KINDS[trial.state]}", f"M{line}")
        step, value = points[trial.number][-1]
        if up.low <= value <= up.high:
            if trial.state is TrialState.PRUNED:
                paths.add("m-end", f"M{units(x(step))} {units(y(value) - 3)}v6")
            elif trial.state is TrialState.FAILED:
                paths.add("m-failed", MARKS["failed"](x(step), y(value)))
    paths = paths.ordered(_CURVE_CLASSES)
    notes = []
    if limit is not None:
        notes.append(f"What is {'below' if maximize else 'above'} {number(limit)} is cut off.")
    if len(shown) < len(reported):
        notes.append(
            f"{len(shown):,} of {len(reported):,} curves are drawn: the best {_BEST_CURVES}, and "
            "the others evenly chosen."
        )
    if up.logarithmic:
        notes.append("Log scale.")
    body = grid_lines(up, y) + labels_across(across, x) + base_line(bottom) + paths.markup()
    described = (
        f"Learning curves of {len(shown):,} of {len(trials):,} trials, from step "
        f"{number(across.low)} to {number(across.high)}.{_best_curve(best, points)}"
    )
    return Plot(picture(WIDTH, HEIGHT, described, body), tuple(paths.data), tuple(notes))


def _best_curve(best: Trial | None, points: Mapping[int, _Points]) -> str:
    if best is None or not points[best.number]:
        return ""
    (_, first), (_, last) = points[best.number][0], points[best.number][-1]
    return f" The best, trial {best.number}, goes from {number(first)} to {number(last)}."


def _drawable(curve: Iterable[tuple[int, float]]) -> _Points:
    return [
        (float(min(step, _LAST_STEP)), min(max(value, -LARGEST), LARGEST))
        for step, value in curve
        if math.isfinite(value)
    ]


def _from_edge(curve: _Points, up: Axis, *, maximize: bool) -> _Points:
    """Returns a curve from where it last comes in from the side that is cut off."""
    outside = [
        index
        for index, (_, value) in enumerate(curve)
        if (value < up.low if maximize else value > up.high)
    ]
    if not outside:
        return curve
    last = outside[-1]
    if last + 1 == len(curve):
        return []
    (step, value), (next_step, next_value) = curve[last], curve[last + 1]
    edge = up.low if maximize else up.high
    crossing = step + (next_step - step) * (edge - value) / (next_value - value)
    return [(crossing, edge), *curve[last + 1 :]]
