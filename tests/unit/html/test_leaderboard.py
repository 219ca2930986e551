"""The leaderboard of a sweep: what it says, that it stays small, and that nothing in it runs."""

import math
import random
import re
import time
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from fakes.sweeps import IMPORTANCES, mnist_summary, mnist_trials
from kfp_jax.html import MAX_LEADERBOARD_BYTES, render_leaderboard
from kfp_jax.html.axes import Axis, axis, score_axis
from kfp_jax.html.plot_parts import evenly
from kfp_jax.sweep.summary import SweepState
from kfp_jax.sweep.trial import Direction, Trial, TrialState

HOSTILE = "</td><script>alert(1)</script><img src=x onerror='alert(2)'>\"&{{ 7*7 }}\x00\ud800=1"
COMPLETE = TrialState.COMPLETE


class Parts(HTMLParser):
    """Tags, attributes and visible text of a page; complains about unbalanced tags."""

    VOID = frozenset({"meta", "link", "img", "br"})

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.pictures: list[str] = []
        self._open: list[str] = []
        self.feed(document)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._take(tag, attrs)
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._take(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "title"):
            self.text += data

    def _take(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.text += " "
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        named = dict(attrs)
        if tag == "svg" and "aria-hidden" not in named:
            assert named.get("role") == "img"
            self.pictures.append(named.get("aria-label") or "")


def render(trials: list[Trial], importances: dict[str, float] | None = None, **changes: Any) -> str:
    document = render_leaderboard(mnist_summary(trials, **changes), trials, importances or {})
    check(document)
    return document


def check(document: str) -> None:
    """Holds what every leaderboard must keep to, whatever is in it."""
    assert len(document.encode()) <= MAX_LEADERBOARD_BYTES
    parts = Parts(document)
    assert not parts.tags & {"script", "iframe", "object", "embed", "form", "img", "a", "image"}
    assert not [name for name, _ in parts.attributes if name.startswith("on")]
    assert {value for name, value in parts.attributes if name in ("src", "href")} <= {"data:,"}
    ids = [value for name, value in parts.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert all(parts.pictures)
    for name, value in parts.attributes:
        if name in ("d", "x", "y", "viewbox"):
            assert not re.search("nan|inf", value)
            assert all(abs(float(n)) < 5_000 for n in re.findall(r"-?\d+(?:\.\d+)?", value))


def visible(document: str) -> str:
    return " ".join(Parts(document).text.split())


def test_says_first_what_is_best_and_how_to_use_it() -> None:
    trials = mnist_trials(40)
    text = visible(render(trials, IMPORTANCES))
    order = [
        "Sweep kfp_jax_runtime.mnist succeeded",
        "highest test accuracy 0.989362 trial 31",
        "Trials 40 10 complete, 24 pruned, 6 failed",
        "Saved by pruning ≈ 12 min 13 s estimate",
        "All 40 trials are made.",
        "Parameters of trial 31 learning_rate 0.005627992746978862 batch_size 128",
        "Model /output/trials/31/model",
        "model = load_model('/output/trials/31/model')",
        '{ "epochs": 9, "seed": 0, "learning_rate": 0.005627992746978862, "batch_size": 128',
        "Score of each trial complete pruned (its last score) the best failed",
        "Learning curves the best complete pruned",
        "Parameters and scores",
        "learning_rate 71 % width 16 %",
        "complete trials 6 min 50 s 60 %",
        "This is an estimate",
        "Failed trials",
        "Leaderboard A higher test_accuracy is better.",
        "1 31 0.989362 complete 0.005628 112 lion 128 \u2013 38.3 s mnist-sweep-1a2b-t31",
        "2 8 0.988593 complete",
        "\u2013 32 0.97613 pruned",
        "When each trial ran",
        "Sampler tpe Pruner asha Seed 0",
    ]
    places = [text.find(words) for words in order]
    assert -1 not in places, order[places.index(-1)]
    assert places == sorted(places)


def test_every_plot_says_in_words_what_it_shows() -> None:
    pictures = Parts(render(mnist_trials(40))).pictures
    assert len(pictures) == 4
    assert "37 of 40 trials have one, from 0.7728 to 0.9894. The best is trial 31" in pictures[0]
    assert "The best, trial 31, goes from 0.9038 to 0.9894." in pictures[1]
    assert "optimizer: adam, lion, sgd." in pictures[2]
    assert "optimizer lion, batch_size 128" in pictures[2] or "batch_size 128" in pictures[2]
    assert pictures[3] == "When 40 trials ran: at most 4 at once, 3 min 5 s in all."


def test_failures_are_grouped_by_reason_and_what_differs_by_the_job_alone_is_said_once() -> None:
    text = visible(render(mnist_trials(40)))
    assert (
        "exception 3 trials 1, 13, 17 Job mnist-sweep-1a2b-t1 failed: process 0 raised "
        "FloatingPointError: loss is nan at step 120. out-of-memory 3 trials 4, 5, 36 Job"
    ) in text
    assert text.count("its memory ran out") == 1


def test_many_reasons_and_sentences_are_counted() -> None:
    trials = [
        Trial(i, {}, TrialState.FAILED, reason=f"reason {i % 20}", message=f"It said {i}.")
        for i in range(200)
    ]
    text = visible(render(trials))
    assert "reason 0 10 trials 0, 20, 40, 60, 80, 100, 120, 140, 160, 180 It said 0." in text
    assert "7 more in the trials table" in text
    assert "8 other reasons 80 trials" in text
    assert "and 68 more" in text


def test_of_a_loop_without_jobs_and_starts_all_but_the_timeline_is_shown() -> None:
    trials = mnist_trials(12, jobs=False)
    text = visible(render(trials, makespan=None, parallel=None, pruner="", sampler="random"))
    assert "Leaderboard" in text
    assert "1 8 0.988593 complete" in text
    for absent in ("When each trial ran", "Total time", "Job mnist-sweep-1a2b-t8", "Pruner"):
        assert absent not in text


@pytest.mark.parametrize("direction", Direction)
def test_the_best_is_first_whichever_way_is_better(direction: Direction) -> None:
    trials = [Trial(i, {"x": i}, COMPLETE, float(i % 7)) for i in range(20)]
    text = visible(render(trials, direction=direction))
    word = "highest" if direction is Direction.MAXIMIZE else "lowest"
    best = 6 if direction is Direction.MAXIMIZE else 0
    assert f"{word} test accuracy {best} trial {best}" in text
    assert f"Job 1 {best} {best} complete" in text or f"Time 1 {best} {best} complete" in text


def test_without_trials_it_says_so() -> None:
    text = visible(render([], state=SweepState.FAILED, ended="no trial could be submitted"))
    assert "No trial could be submitted. Trials 0" in text
    assert "The sweep made no trial." in text
    for absent in ("Leaderboard", "Machine time", "Use it", "Learning curves", "Failed trials"):
        assert absent not in text


def test_when_all_failed_the_reason_comes_first_and_no_plot_is_empty() -> None:
    trials = [
        replace(trial, state=TrialState.FAILED, score=None, curve=(), reason="exception")
        for trial in mnist_trials(6)
    ]
    document = render(trials, state=SweepState.FAILED, ended="5 trials failed; at most 4 may")
    text = visible(document)
    assert "failed 5 trials failed; at most 4 may. Trials 6 6 failed" in text
    assert "No trial is complete, so there is no best one." in text
    assert "exception 6 trials 0, 1, 2, 3, 4, 5" in text
    assert len(Parts(document).pictures) == 1  # when each ran


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_trials_make_a_page(count: int) -> None:
    trials = [Trial(i, {"x": 1}, COMPLETE, 0.5, ((1, 0.5),), seconds=1.0) for i in range(count)]
    assert "highest test accuracy 0.5 trial 0" in visible(render(trials))


def test_equal_scores_make_a_page_and_the_first_of_them_is_best() -> None:
    trials = [
        replace(trial, state=COMPLETE, score=0.25, curve=((1, 0.25), (2, 0.25)))
        for trial in mnist_trials(10)
    ]
    assert "highest test accuracy 0.25 trial 0" in visible(render(trials))


@pytest.mark.parametrize("state", TrialState)
def test_trials_of_one_state_make_a_page(state: TrialState) -> None:
    for score in (None, 0.5):
        text = visible(render([Trial(i, {"x": i}, state, score) for i in range(5)]))
        assert f"Trials 5 5 {state.value.lower()} " in text
        assert ("highest" in text) is (state is COMPLETE and score is not None)


def test_a_missing_parameter_has_a_place_of_its_own() -> None:
    trials = [Trial(0, {"kind": "a"}, COMPLETE, 0.1), Trial(1, {"kind": "b", "x": 3}, COMPLETE, 1)]
    text = visible(render(trials))
    assert "not set" in text
    assert "no score" not in text
    assert "2 0 0.1 complete a \u2013" in text


def test_odd_values_are_drawn_at_the_edge_and_warn_of_nothing() -> None:
    values = [1e308, -1e308, 5e-324, 0.0, -0.0, 1e-300, 1e300, math.nan, math.inf]
    trials = [
        Trial(
            i,
            {"x": value, "list": [value], "none": None, "flag": i % 2 == 0, "huge": 10**400},
            COMPLETE,
            value,
            ((1, value), (2, -value), (10**400, value)),
        )
        for i, value in enumerate(values)
    ]
    for direction in Direction:
        page = render(trials, {"x": math.nan, "list": math.inf, "none": -1.0}, direction=direction)
        table = visible(page).partition("Leaderboard")[2]
        best, worst = (
            ("1e308", "-1e308") if direction is Direction.MAXIMIZE else ("-1e308", "1e308")
        )
        assert 0 < table.index(f" {best} complete") < table.index(f" {worst} complete")
        assert table.count(" complete ") == len(values)
        assert not re.search(r'="[^"]*\b(nan|inf)\b', page)  # a browser draws none of such a shape


def test_nothing_that_a_program_says_becomes_markup_or_makes_the_page_large() -> None:
    long = HOSTILE * 200
    trials = [
        replace(
            trial,
            parameters={HOSTILE: HOSTILE, long: long} | {f"{long}{i}": long for i in range(60)},
            reason=f"{trial.number}{long}",
            message=f"{trial.number}{long}",
            job=long,
            output_uri=long,
            model_uri=long,
        )
        for trial in mnist_trials(300)
    ]
    changes = dict.fromkeys(("program", "objective", "sampler", "pruner", "ended"), long)
    shared = {f"{i}{long}": long for i in range(300)}
    for state in SweepState:
        document = render(
            trials, {HOSTILE: 0.5, long: 0.4}, **changes, parameters=shared, state=state
        )
        assert "<script" not in document
        assert "alert(1)" in unescape(document)
        assert "49" not in re.findall(r"\{\{.{0,9}", unescape(document))


def test_a_thousand_trials_stay_small_quick_and_say_what_is_left_out() -> None:
    rng = random.Random(0)
    trials = [
        replace(trial, curve=tuple((step, rng.random()) for step in range(500)))
        for trial in mnist_trials(1_000)
    ]
    summary = mnist_summary(trials)
    began = time.process_time()
    document = render_leaderboard(summary, trials, IMPORTANCES)
    assert time.process_time() - began < 2
    check(document)
    assert len(document.encode()) < 400_000
    text = visible(document)
    assert "150 of 1,000 curves are drawn: the best 20, and the others evenly chosen." in text
    assert "300 of 1,000 trials are drawn: the best 150, and the others evenly chosen." in text
    assert "The first 100; 900 more are in the trials table." in text
    assert text.count("complete 0.") >= 100


def test_a_few_far_worse_scores_do_not_hide_the_others() -> None:
    scores = [0.9 + i / 1_000 for i in range(40)] + [0.1, 0.2]
    trials = [Trial(i, {"x": i}, COMPLETE, score) for i, score in enumerate(scores)]
    assert "2 scores below 0.894 are drawn at the edge." in visible(render(trials))


def test_many_parameters_are_shown_by_their_importance() -> None:
    names = [f"p{i:02}" for i in range(30)]
    trials = [Trial(i, dict.fromkeys(names, i), COMPLETE, float(i)) for i in range(5)]
    text = visible(render(trials, {"p29": 0.9, "p05": 0.1}))
    assert "Score State p29 p05 p00" in text
    assert "18 more parameters are in the trials table." in text
    assert "20 more parameters are not drawn." in text


def test_an_importance_that_is_no_number_is_left_out() -> None:
    trials = mnist_trials(5)
    text = visible(render(trials, {"width": 0.25, "optimizer": math.nan, "momentum": math.inf}))
    assert "estimated. width 25 % Machine time" in text


def test_a_curve_that_ends_where_the_plot_is_cut_has_no_mark_at_the_edge() -> None:
    good = tuple((step, 0.9 + step / 1_000) for step in range(10))
    trials = [Trial(i, {}, COMPLETE, 0.909, good) for i in range(20)]
    trials.append(Trial(20, {}, TrialState.PRUNED, 0.1, ((0, 0.05), (1, 0.1))))
    document = render(trials)
    assert "is cut off." in document
    assert 'class="m-end"' not in document


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0.0, 1.0], ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ([0.91, 0.99], ["0.92", "0.94", "0.96", "0.98"]),
        ([0.5], ["0.5"]),
        ([0, 39], ["0", "10", "20", "30"]),
        ([1e-5, 1e-1], ["1e-5", "0.0001", "0.001", "0.01", "0.1"]),
        ([1e-30, 1.0], ["1e-30", "1e-24", "1e-18", "1e-12", "1e-6", "1"]),
        ([-3e6, 3e6], ["-2M", "0", "2M"]),
        ([], []),
    ],
)
def test_axes_are_labelled_with_round_numbers(values: list[float], labels: list[str]) -> None:
    assert [tick.label for tick in axis(values).ticks] == labels


def test_an_axis_of_whole_numbers_is_labelled_with_whole_numbers() -> None:
    assert [tick.label for tick in axis([0, 1], whole=True).ticks] == ["0", "1"]
    steps = axis([1, 1_000], linear=True, whole=True)
    assert [tick.label for tick in steps.ticks] == ["200", "400", "600", "800", "1000"]


def test_an_axis_of_few_values_is_labelled_with_them() -> None:
    assert [tick.label for tick in axis([32, 64, 512], few=True).ticks] == ["32", "512"]
    assert [tick.label for tick in axis([1, 2, 4], few=True).ticks] == ["1", "2", "4"]


def test_a_value_stands_between_the_ends_of_its_axis() -> None:
    linear, logarithmic = axis([0.0, 4.0]), axis([0.01, 100.0])
    assert [linear.share(v) for v in (-1, 0, 1, 4, 9)] == [0, 0, 0.25, 1, 1]
    assert [round(logarithmic.share(v), 6) for v in (0.001, 0.01, 1, 100)] == [0, 0, 0.5, 1]
    assert Axis(2.0, 2.0).share(2.0) == 0.5


def test_scores_are_cut_on_the_worse_side_alone() -> None:
    usual = [0.9 + i / 100 for i in range(10)]
    assert score_axis([*usual, -5.0], maximize=True)[0].low > 0.7
    assert score_axis([*usual, 5.0], maximize=False)[0].high < 1.2
    for maximize in (True, False):
        assert score_axis(usual, maximize=maximize)[1] is None
    assert score_axis([*usual, 99.0], maximize=True)[0].high == 99.0


def test_thinning_keeps_both_ends() -> None:
    assert evenly(range(1_000), 4) == [0, 333, 666, 999]
    assert evenly(range(3), 4) == range(3)
