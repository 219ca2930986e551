"""The HTML reports: what they say, that they stay small, and that nothing in them runs."""

import base64
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from fakes.outcomes import SUCCEEDED
from kfp_jax.html import MAX_BYTES, render_evaluation, render_report
from kfp_jax.html.history import BUCKETS, EXACT_POINTS, read_history
from kfp_jax.html.text import clip, duration, escaped_bytes, number, percent
from kfp_jax.status import Phase

HOSTILE = "</td><script>alert(1)</script><img src=x onerror='alert(2)'>\"&{{ 7*7 }}$\\frac{"
PICTURE = "data:image/png;base64," + base64.b64encode(b"picture" * 40).decode()
RESULT = SUCCEEDED.to_json()
FAILED = replace(
    SUCCEEDED,
    phase=Phase.FAILED,
    reason="exception",
    message="Job x failed: process 1 raised ValueError: bad batch; its traceback is in its log.",
    metrics={},
    model_uri="",
    failed_process=1,
    last_lines=("step 200", "Traceback (most recent call last):", "ValueError: bad batch"),
)
EVALUATION: dict[str, Any] = {
    "schema": 1,
    "dataset": "mnist",
    "split": "test",
    "examples": 300,
    "accuracy": 0.98,
    "loss": 0.0312,
    "classes": ["cat", "dog", "eel"],
    "confusion": [[98, 2, 0], [4, 96, 0], [0, 0, 100]],
    "worst": [
        {"index": 7, "label": 1, "prediction": 0, "confidence": 0.987, "image": PICTURE},
    ],
    "source": {"name": "the mirror", "train_examples": 60000, "test_examples": 10000},
}


def metrics(step: int, **values: object) -> dict[str, Any]:
    """Returns a line of `history.jsonl`; test_job_report.py has them from their real writer."""
    return {"kind": "metrics", "time": 1.8e9 + step, "step": step, "values": values}


def losses(*values: object) -> list[dict[str, Any]]:
    return [metrics(step, loss=value) for step, value in enumerate(values)]


class Page(HTMLParser):
    """The tags, visible text and addresses of a page; complains about unbalanced tags."""

    VOID = frozenset({"meta", "link", "img", "br"})

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.labels: list[str] = []
        self._open: list[str] = []
        self.feed(document)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.text += " "
        self.tags.append(tag)
        if tag not in self.VOID:
            self._open.append(tag)
        self._take(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._take(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "title"):
            self.text += data

    def _take(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href"):
                self.addresses.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)
            if name in ("aria-label", "alt"):
                self.labels.append(value or "")


def visible(document: str) -> str:
    return " ".join(Page(document).text.split())


def curve(reports: list[dict[str, Any]] | Iterator[dict[str, Any]]) -> Any:
    (only,) = read_history(reports).curves
    return only


def test_shows_the_headline_curves_classes_mistakes_and_how_to_load_the_model() -> None:
    history = [metrics(s, loss=1 / s, test_accuracy=1 - 1 / s, epoch=s // 5) for s in range(1, 20)]
    text = visible(render_report(RESULT, history, EVALUATION))
    for words in (
        "succeeded",
        "accuracy on mnist test 98.00 %",
        "6 mistakes in 300 examples",
        "Processes 2",
        "Total time 37.2 s",
        "Thin lines mark epochs",
        "starting 4.1 s 11 %",
        "dog 0.9796 0.9600 0.9697 100",
        "dog → cat 4 4.00 % of dog",
        "dog → cat 98.70 %",
        "load_model('/output/model')",
        "widths [32, 64]",
        "Source the mirror",
        "Training examples 60,000",
        "jax 0.10.2",
    ):
        assert words in text


def test_a_failed_job_says_its_diagnosis_first_and_then_what_the_culprit_wrote() -> None:
    page = render_report(FAILED.to_json(), losses(2.0, 1.0), None)
    text = visible(page)
    assert text.startswith(
        "Training report mnist-1a2b3c4d-1 failed Job x failed: process 1 raised ValueError:"
    )
    assert "Reason: exception" in text
    assert "What process 1 wrote last" in text
    assert "step 200\nTraceback (most recent call last):\nValueError" in Page(page).text
    assert "Use the model" not in text


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.LOST, Phase.CANCELLED])
def test_a_job_that_wrote_nothing_is_still_a_page(phase: Phase) -> None:
    silent = replace(FAILED, phase=phase, failed_process=None, last_lines=())
    text = visible(render_report(silent.to_json(), [], None))
    assert f"{phase.lower()} {FAILED.message}" in text
    assert "The program reported no metrics." in text
    assert "wrote last" not in text


def test_long_lines_behind_a_traceback_do_not_push_it_out() -> None:
    lines = ("Traceback (most recent call last):", *["<'&>" * 500] * 59)
    page = render_report(replace(FAILED, last_lines=lines).to_json(), [], None)
    assert lines[0] in Page(page).text
    assert len(page) < 60_000


def test_an_empty_evaluation_is_still_a_page() -> None:
    assert "Training report mnist" in visible(render_report(RESULT, [], {}))
    assert "Evaluation job" in visible(render_evaluation({}, {}))


def test_everything_that_comes_from_training_is_escaped() -> None:
    result = replace(
        FAILED,
        job=HOSTILE,
        reason=HOSTILE,
        message=HOSTILE,
        program=HOSTILE,
        parameters={HOSTILE: HOSTILE},
        metrics={HOSTILE: 1.0},
        attempts=3,
        dataset_uri=HOSTILE,
        model_uri=HOSTILE,
        versions={HOSTILE: HOSTILE},
        last_lines=(HOSTILE,),
    ).to_json()
    history = [metrics(1, **{HOSTILE: 1.0, "test_" + HOSTILE: 2.0})]
    evaluation = EVALUATION | {
        "dataset": HOSTILE,
        "split": HOSTILE,
        "classes": [HOSTILE] * 3,
        "worst": [
            {"label": 0, "prediction": HOSTILE, "confidence": 2, "image": HOSTILE},
            {"label": 0, "prediction": 1, "image": "https://example.com/x.png"},
            {"label": 0, "prediction": 1, "image": "data:image/svg+xml;base64,AAAA"},
            {"label": 0, "prediction": 1, "image": 'data:image/png;base64,AAAA" onerror="x'},
        ],
        "source": {HOSTILE: HOSTILE},
    }
    for document in (
        render_report(result, history, evaluation),
        render_evaluation(evaluation, result),
    ):
        page = Page(document)
        assert "script" not in page.tags
        assert "img" not in page.tags
        assert page.handlers == []
        assert "<script>alert(1)</script>" in page.text
        assert "{{ 7*7 }}" in page.text
        assert "4 of the pictures are not shown" in page.text


def test_nothing_is_asked_of_the_network() -> None:
    history = [metrics(s, loss=1 / s, accuracy=0.5) for s in range(1, 50)]
    document = render_report(RESULT, history, EVALUATION)
    page = Page(document)
    assert all(address.startswith(("data:", "#")) for address in page.addresses)
    assert "http://" not in document
    assert "https://" not in document
    assert "@import" not in document
    assert len(page.ids) == len(set(page.ids))


def test_is_readable_without_seeing_it() -> None:
    document = render_report(RESULT, losses(2.5, 1.25, 0.5), EVALUATION)
    page = Page(document)
    assert '<html lang="en">' in document
    assert page.tags.count("h1") == 1
    assert page.tags.count("table") == page.tags.count("caption")
    assert "loss by step. begins at 2.5, last 0.5, the lowest." in page.labels
    assert "Example 7: dog taken for cat" in page.labels


def test_a_long_history_keeps_its_ends_and_its_extremes() -> None:
    values = [math.sin(step / 1000) for step in range(100_000)]
    values[54_321], values[77_777] = 50.0, -40.0
    shown = curve(losses(*values))
    assert len(shown.buckets) <= BUCKETS
    assert (shown.first.step, shown.last.step) == (0, 99_999)
    assert (shown.low.step, shown.low.value) == (77_777, -40.0)
    assert (shown.high.step, shown.high.value) == (54_321, 50.0)
    assert max(bucket.high for bucket in shown.buckets) == 50.0
    assert min(bucket.low for bucket in shown.buckets) == -40.0
    assert sum(bucket.count for bucket in shown.buckets) == 100_000
    assert math.isclose(sum(bucket.total for bucket in shown.buckets), math.fsum(values))


def test_a_short_history_is_shown_point_by_point() -> None:
    shown = curve(losses(*range(EXACT_POINTS)))
    assert [bucket.mean for bucket in shown.buckets] == list(range(EXACT_POINTS))


@pytest.mark.parametrize("bad", ["NaN", "Infinity", "-Infinity"])
def test_values_that_are_not_finite_break_the_line(bad: str) -> None:
    shown = curve(losses(1.0, 2.0, bad, bad, 3.0))
    assert [bucket.mean for bucket in shown.buckets] == [1.0, 2.0, 3.0]
    assert [bucket.after_gap for bucket in shown.buckets] == [False, False, True]
    assert shown.not_finite == 2
    assert shown.not_finite_steps == (2, 3)


def test_counting_steps_anew_breaks_the_line() -> None:
    shown = curve([*losses(3.0, 2.0, 1.0), metrics(1, loss=2.0)])
    assert [bucket.after_gap for bucket in shown.buckets] == [False, False, False, True]


def test_a_storm_of_nan_costs_no_detail_afterwards() -> None:
    storm = itertools.chain.from_iterable([1.0, "NaN"] for _ in range(10_000))
    calm = [float(i) for i in range(20_000)]
    shown = curve(losses(*storm, *calm))
    assert len(shown.buckets) <= BUCKETS
    assert len([bucket for bucket in shown.buckets if bucket.first_step >= 20_000]) > BUCKETS / 4
    assert len(shown.not_finite_steps) <= 64


@pytest.mark.parametrize(
    "values",
    [
        ["NaN"],
        ["NaN", "NaN", "Infinity"],
        [1.0],
        [0.0, 0.0, 0.0],
        [1.0, "NaN", 1.0],
        [1e308, -1e308, 5e-324],
        [1e-300, 1e300],
    ],
    ids=lambda values: ",".join(f"{value!r:.8}" for value in values),
)
def test_odd_values_are_drawn_without_a_warning(values: list[object]) -> None:
    text = visible(render_report(RESULT, losses(*values), None))
    assert "Learning curves" in text


def test_steps_beyond_drawing_are_left_out_and_a_broken_clock_is_not_shown() -> None:
    reports = [metrics(1, loss=1.0) | {"step": step, "time": math.nan} for step in (10**400, 1)]
    shown = read_history(reports)
    assert (shown.began, shown.ended) == (None, None)
    assert [one.count for one in shown.curves] == [1]


def test_a_falling_loss_is_logarithmic_only_beyond_two_decades() -> None:
    assert "log scale" in render_report(RESULT, losses(2.0, 0.1, 0.01), None)
    assert "log scale" not in render_report(RESULT, losses(2.0, 0.1, 0.03), None)
    assert "log scale" not in render_report(RESULT, losses(2.0, 0.1, 0.0), None)
    accuracies = [metrics(1, accuracy=0.001), metrics(2, accuracy=0.9)]
    assert "log scale" not in render_report(RESULT, accuracies, None)


def test_train_and_test_share_a_panel() -> None:
    history = [metrics(1, train_loss=2.0, **{"eval/loss": 3.0, "lr": 0.1, "val_acc": 0.5})]
    text = visible(render_report(RESULT, history, None))
    order = [text.index(words) for words in ("loss train last 2", "eval last 3", "learning rate")]
    assert order == sorted(order)
    assert "accuracy val_acc last 0.5" in text


def test_stays_small_and_quick_for_a_history_of_many_lines() -> None:
    lines = (metrics(s, loss=1 / (s + 1) + s % 7, accuracy=s % 11) for s in range(50_000))
    assert len(render_report(RESULT, lines, EVALUATION).encode()) < 100_000


@pytest.mark.timeout(60)
def test_a_million_lines_stay_within_the_limit() -> None:
    report = metrics(0, loss=0.0)

    def lines() -> Iterator[dict[str, Any]]:
        for step in range(1_000_000):
            report["step"] = step
            report["values"]["loss"] = step % 1013 / 7
            yield report

    document = render_report(RESULT, lines(), EVALUATION)
    assert len(document.encode()) <= MAX_BYTES
    assert "lowest 0 at step 0" in document


def test_200_classes_are_shown_worst_first_and_within_the_limit() -> None:
    size = 200
    confusion = [
        [900 - i if i == j else (i if j == (i + 1) % size else 0) for j in range(size)]
        for i in range(size)
    ]
    evaluation = EVALUATION | {
        "classes": [f"class {i}" for i in range(size)],
        "confusion": confusion,
        "examples": sum(map(sum, confusion)),
    }
    document = render_report(RESULT, losses(1.0), evaluation)
    text = visible(document)
    assert len(document.encode()) <= MAX_BYTES
    assert "200 classes, the worst first" in text
    assert "The 20 of 200 classes with the most mistakes" in text
    assert "class 199 → class 0 199 22.11 % of class 199" in text
    assert text.index("class 199 0.") < text.index("class 100 0.")


def test_the_worst_that_a_program_can_send_stays_within_the_limit() -> None:
    long, line, name = "<'&>" * 10_000, "<'&>" * 500, "<'&>" * 31
    size = 300
    names = {f"{i} {long}": long for i in range(500)}
    result = replace(
        FAILED,
        reason=long,
        message=long,
        program=long,
        parameters=names,
        metrics={f"{i} {name}": math.nan for i in range(500)},
        dataset_uri=long,
        model_uri=long,
        versions=names,
        last_lines=(line,) * 60,
    ).to_json()
    noisy = {f"{i % 12} {i}{name}": 0 for i in range(70)}
    history = [
        metrics(s, **{n: (s * 7919 * (i + 1)) % 1000 / 7 for i, n in enumerate(noisy)})
        for s in range(600)
    ]
    evaluation = EVALUATION | {
        "dataset": long,
        "split": long,
        "classes": [f"{i} {long}" for i in range(size)],
        "confusion": [[(i * j) % 97 * 10**8 for j in range(size)] for i in range(size)],
        "worst": [
            {"index": 10**9, "label": i, "prediction": i, "confidence": 0.12345, "image": image}
            for i, image in enumerate([PICTURE * 9, PICTURE[:22] + "A" * 11_000] * 50)
        ],
        "source": names,
    }
    for document in (
        render_report(result, history, evaluation),
        render_evaluation(evaluation, result),
    ):
        assert len(document.encode()) <= MAX_BYTES
        Page(document)


@pytest.mark.parametrize(
    ("confusion", "note"),
    [
        ([[1, 2], [3, 4], [5, 6]], "has 3 rows but 2 columns in row 0"),
        ([[1, "x"], [3, 4]], "Row 0 of the confusion matrix holds a value that is not a count"),
        ("abc", "not a list of rows"),
        ([1, 2], "has 2 rows but 0 columns in row 0"),
    ],
)
def test_a_malformed_confusion_matrix_is_left_out_and_said(confusion: Any, note: str) -> None:
    text = visible(render_evaluation(EVALUATION | {"confusion": confusion}, RESULT))
    assert note in text
    assert "accuracy on mnist test 98.00 %" in text
    assert "Worst mistakes" in text


def test_a_class_without_examples_or_predictions_has_no_figures() -> None:
    evaluation = EVALUATION | {"confusion": [[5, 0, 0], [0, 5, 0], [0, 0, 0]]}
    assert "eel \u2013 \u2013 \u2013 0" in visible(render_evaluation(evaluation, {}))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (60000, "60,000"),
        (0.03125, "0.03125"),
        (1234.5, "1234"),
        (123456.7, "123,457"),
        (1.5e-7, "1.5e-7"),
        (2.5e12, "2.5e12"),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        (True, "true"),
        (None, "null"),
    ],
)
def test_numbers(value: object, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1.0, "100 %"),
        (0.99999, "99.99 %"),
        (0.9912, "99.12 %"),
        (0.00001, "< 0.01 %"),
        (0.0, "0 %"),
    ],
)
def test_percentages_never_round_a_mistake_away(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (59.96, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (90_061, "1 d 1 h"),
        ("NaN", "unknown"),
        (None, "unknown"),
        (-1, "unknown"),
    ],
)
def test_durations(seconds: object, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("text", ["&<>'\"" * 100, "é" * 300, "\x00\x1b\ud800" * 90, "short"])
@pytest.mark.parametrize("tail", [False, True])
def test_clipped_text_is_printable_and_within_its_limit(text: str, tail: bool) -> None:
    clipped = clip(text, 100, tail=tail)
    assert escaped_bytes(clipped) <= 100
    assert not set(clipped) & {"\x00", "\x1b", "\ud800"}
    assert ("…" in clipped) == (text != "short")
