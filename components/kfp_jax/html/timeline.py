"""When each trial of a sweep ran."""

import heapq
import math
from collections.abc import Iterable, Sequence

from markupsafe import Markup

from kfp_jax.html.axes import axis
from kfp_jax.html.plot_parts import KINDS, Paths, Plot, base_line, labels_across, picture, units
from kfp_jax.html.text import duration
from kfp_jax.sweep.trial import Trial

_MOST_SLOTS = 40


def draw_timeline(trials: Sequence[Trial]) -> Plot | None:
    """Returns when each trial ran; None when that is not known or too many ran at once."""
    timed = [trial for trial in trials if _timed(trial)]
    if len(timed) < 2 or not any(trial.started > 0 for trial in timed):
        return None
    slots = _slots(timed)
    count = 1 + max(slots.values())
    if count > _MOST_SLOTS:
        return None
    end = max(trial.started + trial.seconds for trial in timed)
    unit, word = next(
        (size, name)
        for size, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes"), (1, "seconds"))
        if end > 3 * size or size == 1
    )
    across = axis([0.0, end / unit])
    width, pitch = 1100, min(18, max(8, 240 / count))
    height = round(pitch * count + 34)

    def x(value: float) -> float:
        return 8 + across.share(value) * (width - 16)

    paths = Paths()
    for trial in sorted(timed, key=lambda trial: trial.started):
        middle = 6 + pitch * (slots[trial.number] + 0.5)
        left, right = x(trial.started / unit), x((trial.started + trial.seconds) / unit)
        # A gap of one unit between neighbours; what is shorter is still seen.
        paths.add(
            f"t-{KINDS[trial.state]}",
            f"M{units(left)} {units(middle)}h{units(max(right - left - 1, 0.8))}",
        )
    thickness = Markup('<g stroke-width="{}">').format(units(pitch - 3))
    body = labels_across(across, x, height - 8) + base_line(pitch * count + 10, width)
    body += thickness + paths.markup() + Markup("</g>")
    described = (
        f"When {len(timed):,} trials ran: at most {count:,} at once, {duration(end)} in all."
    )
    style = Markup("width:100%;min-width:860px")
    return Plot(
        picture(width, height, described, body, style),
        tuple(paths.data),
        (f"Horizontally: {word}.",),
    )


def _timed(trial: Trial) -> bool:
    return all(math.isfinite(value) for value in (trial.started, trial.seconds)) and (
        0 <= trial.started <= 1e12 and 0 < trial.seconds <= 1e12
    )


def _slots(trials: Iterable[Trial]) -> dict[int, int]:
    """Returns in which row each trial stands, so that none covers another."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    slots: dict[int, int] = {}
    for trial in sorted(trials, key=lambda trial: (trial.started, trial.number)):
        # Half a percent is forgiven: a slot's next trial is submitted while the last one is noted.
        while busy and busy[0][0] <= trial.started + trial.seconds * 0.005:
            heapq.heappush(free, heapq.heappop(busy)[1])
        slot = heapq.heappop(free) if free else len(busy)
        slots[trial.number] = slot
        heapq.heappush(busy, (trial.started + trial.seconds, slot))
    return slots
