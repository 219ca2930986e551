"""Pages of a training that wants more than to be shown, in a real browser that would let it."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fakes.outcomes import SUCCEEDED
from fakes.sweeps import mnist_summary, mnist_trials
from kfp_jax.html import render_evaluation, render_leaderboard, render_report
from kfp_jax.status import Phase

pytestmark = pytest.mark.integration

RUN = "document.body.dataset.ran=1;fetch('http://127.0.0.1:9/x')"
STRINGS = {
    "script": f"<script>{RUN}</script>",
    "end of a script": f"</script><script>{RUN}</script>",
    "end of a style": f"</style><script>{RUN}</script>",
    "end of a title": f"</title><script>{RUN}</script>",
    "end of a picture": f"</text></svg><script>{RUN}</script>",
    "end of CDATA": f"]]><script>{RUN}</script>",
    "end of a comment": f"--><script>{RUN}</script><!--",
    "picture": f'<img src="http://127.0.0.1:9/x" onerror="{RUN}">',
    "drawing": f'<svg onload="{RUN}"><animate onbegin="{RUN}" attributeName=x dur=1s>',
    "attribute": f'" onmouseover="{RUN}" autofocus onfocus="{RUN}" x="',
    "quote": f"' onload='{RUN}' x='",
    "address": f"javascript:{RUN}",
    "frame": f'<iframe srcdoc="<script>parent.{RUN}</script>"></iframe>',
    "another base": '<base href="http://127.0.0.1:9/"><meta http-equiv=refresh content="0;url=/x">',
    "form": '<form action="http://127.0.0.1:9/x"><input name=a autofocus>',
    "style": "x;background:url(http://127.0.0.1:9/x);}*{background:url(http://127.0.0.1:9/y)}",
    "entity": f"&lt;script&gt;{RUN}&lt;/script&gt;&#60;script>",
    "template": "{{ 7*7 }}{% raw %}{{ ''.__class__.__mro__ }}",
    "formula": r"$\frac{1}{<script>}$ $$\input{/etc/passwd}$$",
    "control characters": "a\x00b\x1b]0;title\x07\u202egnp.exe\u2028\ud800",
}


def job(text: str, phase: Phase) -> dict[str, Any]:
    return replace(
        SUCCEEDED,
        phase=phase,
        job=text,
        reason=text,
        message=text,
        program=text,
        backend=text,
        parameters={text: text, "nested": {text: [text]}},
        metrics={text: 0.5, "accuracy": 0.5},
        output_uri=text,
        dataset_uri=text,
        model_uri=text,
        versions={text: text},
        failed_process=0,
        last_lines=(text, text),
    ).to_json()


def history(text: str) -> list[dict[str, Any]]:
    values = {text: 0.5, f"test_{text}": 0.7, "loss": text}
    return [{"kind": "metrics", "time": 1.8e9 + i, "step": i, "values": values} for i in (1, 2, 3)]


def evaluation(text: str) -> dict[str, Any]:
    mistake = {"index": text, "label": 0, "prediction": 1, "confidence": 0.9, "image": text}
    return {
        "dataset": text,
        "split": text,
        "examples": 10,
        "accuracy": 0.5,
        "loss": 0.1,
        "classes": [text, f"{text}2"],
        "confusion": [[3, 2], [1, 4]],
        "worst": [mistake, mistake | {"image": f"data:image/svg+xml,{text}"}],
        "source": {"name": text, text: text},
    }


def leaderboard(text: str) -> str:
    trials = [
        replace(
            trial,
            parameters={text: text, **trial.parameters},
            job=text,
            reason=text,
            message=text,
            output_uri=text,
            model_uri=text,
        )
        for trial in mnist_trials(12)
    ]
    summary = mnist_summary(
        trials, program=text, parameters={text: text}, ended=text, objective=text
    )
    return render_leaderboard(summary, trials, {text: 0.5})


PAGES: dict[str, Callable[[str], str]] = {
    "report": lambda text: render_report(
        job(text, Phase.SUCCEEDED), history(text), evaluation(text)
    ),
    "report of a failed job": lambda text: render_report(
        job(text, Phase.FAILED), history(text), None
    ),
    "evaluation": lambda text: render_evaluation(evaluation(text), job(text, Phase.SUCCEEDED)),
    "leaderboard": leaderboard,
}

# What no page of ours has, whatever a training is called.
FOREIGN = """() => {
  const active = 'script,iframe,object,embed,base,form,input,a,animate,set,foreignObject';
  const found = [...document.querySelectorAll(active)].map(e => e.outerHTML.slice(0, 90));
  for (const element of document.querySelectorAll('*'))
    for (const {name, value} of element.attributes)
      if (name.startsWith('on') || (/^(href|src)$/.test(name) && !/^(data:|#)/.test(value)))
        found.push(`${name}=${value}`.slice(0, 90));
  if (document.querySelectorAll('title:not(svg text title)').length !== 1)
    found.push('a second title');
  if (document.body.dataset.ran) found.push('it ran');
  return found;
}"""


def shape(page: Any) -> Any:
    """Returns how many elements of each kind a page has."""
    return page.evaluate(
        """() => [...document.querySelectorAll('*')].reduce(
        (n, e) => ({...n, [e.tagName]: (n[e.tagName] || 0) + 1}), {})"""
    )


@pytest.mark.parametrize("name", PAGES)
def test_what_came_from_a_training_stays_text(open_page: Any, name: str) -> None:
    watched = open_page(1200)
    watched.page.set_content(unguarded(PAGES[name]("a harmless name")))
    harmless = shape(watched.page)
    for kind, text in STRINGS.items():
        watched.page.set_content(unguarded(PAGES[name](text)))
        watched.page.mouse.move(300, 300)
        assert watched.page.evaluate(FOREIGN) == [], kind
        assert shape(watched.page).keys() <= harmless.keys() | {"SPAN"}, kind
    seen = watched.page.locator("body").inner_text()
    assert "gnp.exe" in seen  # it is shown, and not left out
    assert watched.complaints == []
    assert [url for url in watched.asked_for() if not url.startswith("about:")] == []


def unguarded(document: str) -> str:
    """Returns a page without its policy: escaping alone must hold."""
    bare, count = re.subn(r"<meta http-equiv=.Content-Security-Policy[^>]*>", "", document)
    assert count == 1
    return bare


@pytest.mark.parametrize("name", PAGES)
def test_no_page_may_run_or_load_anything(open_page: Any, name: str) -> None:
    """Where escaping had a hole, the page's policy would still forbid it."""
    watched = open_page(1200)
    document = PAGES[name]("harmless").replace(
        "</body>", f"<script>{RUN}</script><img src='http://127.0.0.1:9/x'></body>"
    )
    assert RUN in document
    watched.page.set_content(document)
    assert watched.page.evaluate("document.body.dataset.ran") is None
    assert watched.complaints
    assert all("Content Security Policy" in said for said in watched.complaints), json.dumps(
        watched.complaints
    )
