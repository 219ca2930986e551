"""The training report and the evaluation page: values in, one HTML document out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kfp_jax.html.charts import draw_charts
from kfp_jax.html.evaluation import Evaluation, read_evaluation
from kfp_jax.html.history import History, read_history
from kfp_jax.html.pages import Fact, Phase, Table, as_table, environment, mapping
from kfp_jax.html.text import (
    as_count,
    as_float,
    as_share,
    clip,
    duration,
    moment,
    number,
    percent,
)

MAX_BYTES = 300_000
"""No page is larger; each part of it has its share."""
_LINES = 60
_LINE_BYTES = 400

_PHASES = {
    "SUCCEEDED": ("succeeded", "good"),
    "FAILED": ("failed", "bad"),
    "LOST": ("lost", "bad"),
    "CANCELLED": ("cancelled", "warn"),
}
_STAGES = ("queued", "starting", "training")


@dataclass(frozen=True)
class Stage:
    """A stretch of the job's time."""

    name: str
    text: str
    share: float


@dataclass(frozen=True)
class Failure:
    """What the process with which the failure began wrote last, usually a traceback."""

    title: str
    lines: str


def render_report(
    result: Mapping[str, Any],
    history: Iterable[Mapping[str, Any]],
    evaluation: Mapping[str, Any] | None = None,
) -> str:
    """Returns the training report as an HTML document of at most `MAX_BYTES` bytes.

    Args:
        result: A job's `result.json`.
        history: Its reports, as in `history.jsonl`. They are read once and not kept, so a file of
            any length may be streamed.
        evaluation: Its `evaluation.json`, if there is one.
    """
    past = read_history(history)
    scored = read_evaluation(evaluation) if evaluation is not None else None
    phase = _phase(result)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            job=_job(result),
            phase=phase,
            headline=_headline(result, scored),
            facts=_facts(result, scored),
            charts=draw_charts(past),
            more_names=past.more_names,
            stages=_stages(result),
            evaluation=scored,
            tables=_tables(result, past, scored),
            failure=_failure(result),
            model=_model(result),
        )
    )


def render_evaluation(evaluation: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """Returns the page of an evaluation as an HTML document of at most `MAX_BYTES` bytes.

    Args:
        evaluation: An `evaluation.json`.
        result: The `result.json` of the job that wrote it; may be empty.
    """
    scored = read_evaluation(evaluation)
    facts = [
        Fact("Examples", number(scored.examples)) if scored.examples is not None else None,
        Fact("Classes", number(scored.class_count)) if scored.class_count else None,
        Fact("Loss", number(scored.loss)) if scored.loss is not None else None,
    ]
    return (
        environment()
        .get_template("evaluation.html.j2")
        .render(
            job=_job(result),
            phase=_phase(result),
            headline=_headline(result, scored),
            facts=[fact for fact in facts if fact is not None],
            evaluation=scored,
            tables=[
                table
                for table in (
                    _source(result, scored),
                    as_table("Parameters", result.get("parameters")),
                    as_table("Versions", result.get("versions")),
                )
                if table.rows
            ],
        )
    )


def _job(result: Mapping[str, Any]) -> str:
    return clip(result.get("job") or "job", 80)


def _phase(result: Mapping[str, Any]) -> Phase:
    word, tone = _PHASES.get(result.get("phase", ""), ("", "calm"))
    return Phase(
        word=word,
        tone=tone,
        diagnosis=clip(result.get("message", ""), 2_000),
        reason=clip(result.get("reason", ""), 200),
    )


def _headline(result: Mapping[str, Any], scored: Evaluation | None) -> Fact | None:
    """Returns the figure that matters most: accuracy, else loss, else the first metric."""
    if scored is not None and scored.accuracy is not None:
        where = f" on {scored.dataset}" if scored.dataset else ""
        return Fact(f"accuracy{where}", percent(scored.accuracy), _mistakes(scored))
    metrics = mapping(result.get("metrics"))
    names = [name for name in ("accuracy", "test_accuracy", "loss") if name in metrics]
    name = next(iter([*names, *metrics]), None)
    if name is None:
        return None
    share = as_share(metrics[name]) if name.endswith("accuracy") else None
    value = percent(share) if share is not None else number(metrics[name])
    return Fact(clip(name.replace("_", " "), 60), value)


def _mistakes(scored: Evaluation) -> str:
    if scored.mistakes is None or scored.examples is None:
        return ""
    plural = "mistake" if scored.mistakes == 1 else "mistakes"
    return f"{scored.mistakes:,} {plural} in {scored.examples:,} examples"


def _facts(result: Mapping[str, Any], scored: Evaluation | None) -> list[Fact]:
    facts = []
    processes = result.get("num_processes")
    if processes is not None:
        facts.append(Fact("Processes", number(processes)))
    total = mapping(result.get("seconds")).get("total")
    if total is not None:
        facts.append(Fact("Total time", duration(total)))
    loss = mapping(result.get("metrics")).get("loss")
    if scored is not None and scored.loss is not None:
        facts.append(Fact("Loss", number(scored.loss)))
    elif loss is not None:
        facts.append(Fact("Loss", number(loss)))
    attempts = as_count(result.get("attempts"))
    if attempts is not None and attempts > 1:
        facts.append(Fact("Attempts", number(attempts)))
    return facts


def _stages(result: Mapping[str, Any]) -> list[Stage]:
    """Returns the parts of the total time in order; empty when it is not known."""
    seconds = mapping(result.get("seconds"))
    total = as_float(seconds.get("total"))
    if total is None or not 0 < total < 1e12:
        return []
    spent = [(name, as_float(seconds.get(name)) or 0.0) for name in _STAGES]
    spent = [(name, min(max(value, 0.0), total)) for name, value in spent]
    spent.append(("rest", max(total - sum(value for _, value in spent), 0.0)))
    whole = sum(value for _, value in spent)
    return [Stage(name, duration(value), value / whole) for name, value in spent]


def _tables(result: Mapping[str, Any], past: History, scored: Evaluation | None) -> list[Table]:
    tables = [
        as_table("Parameters", result.get("parameters")),
        as_table("Final metrics", result.get("metrics"), number),
        _source(result, scored),
        _about(result, past),
        as_table("Versions", result.get("versions")),
    ]
    return [table for table in tables if table.rows]


def _source(result: Mapping[str, Any], scored: Evaluation | None) -> Table:
    words = {
        "name": "Source",
        "train_examples": "Training examples",
        "test_examples": "Test examples",
    }
    rows: dict[str, Any] = {}
    if scored is not None:
        if scored.dataset:
            rows["Evaluated on"] = scored.dataset
        rows |= {words.get(name, name): value for name, value in scored.source}
    if result.get("dataset_uri"):
        rows["Dataset URI"] = result["dataset_uri"]
    return as_table("Data", rows, _readable)


def _about(result: Mapping[str, Any], past: History) -> Table:
    rows = {
        "Program": result.get("program"),
        "Backend": result.get("backend"),
        "Processes": result.get("num_processes"),
        "Attempts": result.get("attempts"),
        "First report": moment(past.began),
        "Last report": moment(past.ended),
        "Model": result.get("model_uri"),
    }
    return as_table("Job", {k: v for k, v in rows.items() if v not in (None, "")}, _readable)


def _readable(value: object) -> str:
    return value if isinstance(value, str) else number(value)


def _failure(result: Mapping[str, Any]) -> Failure | None:
    lines = result.get("last_lines")
    if not lines:
        return None
    # Each line has its share: a long one behind a traceback must not push that out.
    shown = [clip(line, _LINE_BYTES) for line in lines[-_LINES:]]
    return Failure(f"What process {result['failed_process']} wrote last", "\n".join(shown))


def _model(result: Mapping[str, Any]) -> str:
    """Returns the lines that load the model, or nothing when none was exported."""
    uri = result.get("model_uri")
    if not isinstance(uri, str) or not uri:
        return ""
    return "\n".join(
        (
            "from kfp_jax_runtime.export import load_model",
            f"model = load_model({clip(uri, 1_000)!r})",
            "outputs = model(inputs)  # a row for each row of inputs",
            "print(model.description)  # what goes in, what comes out, versions",
        )
    )
