"""The leaderboard of a sweep in a real browser: light and dark, on a desk and on a phone."""

from dataclasses import replace
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import pytest
from fakes.browser import HOSTILE
from fakes.sweeps import IMPORTANCES, mnist_summary, mnist_trials
from kfp_jax.html import render_leaderboard
from kfp_jax.sweep.summary import SweepState
from kfp_jax.sweep.trial import Trial, TrialState
from playwright.sync_api import Page

pytestmark = pytest.mark.integration


def hostile() -> list[Trial]:
    """Returns trials with text that is long, cannot be broken, or would like to run."""
    return [
        replace(
            trial,
            parameters={
                **trial.parameters,
                HOSTILE: HOSTILE,
                "long_" * 40: "x" * 300,
                **{f"p{i}": i * trial.number for i in range(12)},
            },
            job="job-" + "y" * 300,
            message=trial.message and "z" * 2_000 + HOSTILE,
            reason=trial.reason and "r" * 300,
            output_uri="/" + "o" * 900,
            model_uri=trial.model_uri and "/" + "m" * 900,
        )
        for trial in mnist_trials(30)
    ]


def page(trials: list[Trial], **changes: Any) -> str:
    return render_leaderboard(mnist_summary(trials, **changes), trials, IMPORTANCES)


def all_failed() -> str:
    failed = [
        replace(trial, state=TrialState.FAILED, score=None, curve=(), reason="exception")
        for trial in mnist_trials(6)
    ]
    return page(failed, state=SweepState.FAILED, ended="5 trials failed, and at most 4 may fail")


DOCUMENTS = {
    "40 trials": lambda: page(mnist_trials(40)),
    "1,000 trials": lambda: page(mnist_trials(1_000)),
    "a loop": lambda: page(mnist_trials(9, jobs=False), makespan=None, parallel=None),
    "no trial": lambda: page([], state=SweepState.STOPPED, ended="somebody asked for it"),
    "all failed": all_failed,
    "hostile": lambda: page(hostile(), program=HOSTILE, parameters={HOSTILE: "w" * 900}),
}


@cache
def rendered(name: str) -> str:
    return DOCUMENTS[name]()


@pytest.fixture(params=DOCUMENTS)
def document(request: pytest.FixtureRequest) -> str:
    return rendered(request.param)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1300])
def test_opens_from_a_file_without_a_complaint_and_fits_its_window(
    open_page: Any, document: str, tmp_path: Path, width: int, scheme: str
) -> None:
    path = tmp_path / "leaderboard.html"
    path.write_text(document, encoding="utf-8")
    watched = open_page(width, scheme)
    watched.page.goto(path.as_uri())
    assert watched.complaints == []
    assert watched.asked_for() == [path.as_uri()]
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= width
    assert watched.page.evaluate(OUTSIDE) == []
    assert brightness(watched.page) == pytest.approx(255 if scheme == "light" else 24, abs=12)


def test_opens_in_the_frame_of_the_pipelines_ui(open_page: Any, document: str) -> None:
    watched = open_page(1400)
    watched.page.set_content(
        "<!DOCTYPE html><title>pipelines</title><iframe sandbox='allow-scripts' "
        f'style="width:900px;height:600px;border:0" srcdoc="{escape(document)}"></iframe>'
    )
    frame = watched.page.frames[1]
    frame.wait_for_load_state()
    assert frame.locator("h1").is_visible()
    assert frame.evaluate("document.documentElement.scrollWidth") <= 900
    assert watched.complaints == []
    assert [url for url in watched.asked_for() if not url.startswith("about:")] == []


@pytest.mark.parametrize("width", [390, 1300])
def test_all_parts_are_seen(open_page: Any, width: int) -> None:
    watched = open_page(width)
    watched.page.set_content(rendered("40 trials"))
    headings = watched.page.locator("h2").all_inner_texts()
    assert headings == [
        "Parameters of trial 31",
        "Use it",
        "Score of each trial",
        "Learning curves",
        "Parameters and scores",
        "Importance",
        "Machine time",
        "Failed trials",
        "Leaderboard",
        "When each trial ran",
        "Sweep",
        "Parameters that all trials share",
    ]
    for plot in watched.page.get_by_role("img").all():
        box = plot.bounding_box()
        assert box is not None
        assert box["width"] > 300
        assert box["height"] > 80
    assert watched.page.get_by_role("img").count() == 4
    assert watched.page.get_by_text("0.989362").first.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["40 trials", "1,000 trials", "all failed"])
def test_every_mark_stands_out_from_what_is_behind_it(
    open_page: Any, name: str, scheme: str
) -> None:
    watched = open_page(1300, scheme)
    watched.page.set_content(rendered(name))
    assert watched.page.evaluate(FAINT) == []


@pytest.mark.parametrize("width", [390, 1300])
def test_no_label_of_a_plot_stands_upon_another(open_page: Any, width: int) -> None:
    for name in ("40 trials", "1,000 trials", "a loop", "hostile"):
        watched = open_page(width)
        watched.page.set_content(rendered(name))
        assert watched.page.evaluate(OVERLAPPING) == [], name


def test_scrolled_regions_can_be_reached_by_keyboard(open_page: Any, document: str) -> None:
    watched = open_page(390)
    watched.page.set_content(document)
    assert (
        watched.page.evaluate(
            """[...document.querySelectorAll('*')].filter(e =>
            ['auto', 'scroll'].includes(getComputedStyle(e).overflowX)
            && e.scrollWidth > e.clientWidth && e.tabIndex < 0).map(e => e.outerHTML)"""
        )
        == []
    )


def test_prints_the_whole_table_in_black_on_white(open_page: Any) -> None:
    watched = open_page(720, "dark")
    watched.page.emulate_media(media="print", color_scheme="dark")
    watched.page.set_content(rendered("1,000 trials"))
    assert brightness(watched.page) == 255
    assert watched.page.evaluate(
        "[...document.querySelectorAll('.tall')].every(e => e.scrollHeight <= e.clientHeight + 1)"
    )


def brightness(page: Page) -> float:
    """Returns the mean of red, green and blue behind the page (0 to 255)."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    parts = [float(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    return sum(parts) / len(parts)


# Texts of plots that leave their plot.
OUTSIDE = """() => [...document.querySelectorAll('svg text')].filter(text => {
  const own = text.getBoundingClientRect(), plot = text.closest('svg').getBoundingClientRect();
  return own.left < plot.left - 2 || own.right > plot.right + 2
    || own.top < plot.top - 2 || own.bottom > plot.bottom + 2;
}).map(text => text.textContent)"""

# Pairs of texts in one plot of which one covers part of the other.
OVERLAPPING = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
  const texts = [...svg.querySelectorAll('text')].map(t => [t, t.getBoundingClientRect()]);
  return texts.flatMap(([a, p], i) => texts.slice(i + 1)
    .filter(([, q]) => p.left < q.right - 1 && q.left < p.right - 1
      && p.top < q.bottom - 3 && q.top < p.bottom - 3)
    .map(([b]) => `${a.textContent} / ${b.textContent}`));
})"""

# Text whose contrast is below 4.5, and lines or bars whose contrast is below 1.3: pale is what
# marks the worst of many, nothing may vanish.
FAINT = """() => {
  const parse = colour => {
    const parts = colour.match(/[\\d.]+/g).map(Number);
    return parts.length > 3 ? parts : [...parts, 1];
  };
  const over = (top, below) =>
    [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const behind = element => element === null ? [255, 255, 255, 1]
    : over(parse(getComputedStyle(element).backgroundColor), behind(element.parentElement));
  const light = colour => colour.slice(0, 3).map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (paint, element) => {
    const pair = [light(parse(paint)), light(behind(element))].sort((a, b) => b - a);
    return (pair[0] + 0.05) / (pair[1] + 0.05);
  };
  const faint = [];
  for (const element of document.body.querySelectorAll('*')) {
    const style = getComputedStyle(element);
    const own = [...element.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (own && element.tagName !== 'title') {
      const paint = element instanceof SVGElement ? style.fill : style.color;
      if (contrast(paint, element) < 4.5) faint.push(element.outerHTML.slice(0, 90));
    }
    if (element.tagName === 'path' && !['grid', 'axis', 'base'].includes(element.className.baseVal)
        && (style.stroke === 'none' || contrast(style.stroke, element) < 1.3))
      faint.push(element.outerHTML.slice(0, 90));
  }
  return faint;
}"""
