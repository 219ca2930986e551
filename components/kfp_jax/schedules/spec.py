"""What a schedule is: a value, checked before any call. Pure."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kfp_jax.checks import whole
from kfp_jax.errors import SpecError
from kfp_jax.schedules.cron import next_firings, parse_cron

_MAX_NAME = 63
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "STRING": ((str,), "text"),
    "NUMBER_INTEGER": ((int,), "a whole number"),
    "NUMBER_DOUBLE": ((int, float), "a number"),
    "BOOLEAN": ((bool,), "true or false"),
    "LIST": ((list,), "a JSON list"),
    "STRUCT": ((dict,), "a JSON object"),
}
# The last words of names under which people pass secrets; `max_tokens` and `secret_name` are none.
_SECRET = re.compile(
    r"(^|_)(password|passwd|(?<!bos_)(?<!eos_)(?<!pad_)(?<!unk_)(?<!sep_)(?<!cls_)(?<!mask_)token"
    r"|credentials|(api|access|private|secret)_?key)$"
)
_SECRET_IN_URL = re.compile(r"\w+://[^/\s:@]+:[^/\s@]+@")
_MACRO = re.compile(r"\[\[[A-Za-z]\w*[^\]]*\]\]")
_PLACEHOLDER = re.compile(r"\{\{\s*\$(\.[^}]*)?\}\}")
_JOB_NAME = "{{$.pipeline_job_name}}"


@dataclass(frozen=True)
class Pipeline:
    """A compiled pipeline.

    Attributes:
        label: Its name, or its file, as the user gave it.
        spec: KFP's PipelineSpec.
        platform: KFP's PlatformSpec, or nothing.
    """

    label: str
    spec: Mapping[str, Any]
    platform: Mapping[str, Any] = field(default_factory=dict)

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The parameters that it takes, by name."""
        definitions = self.spec["root"].get("inputDefinitions", {})
        return dict(definitions.get("parameters", {}))

    def for_kfp(self) -> dict[str, Any]:
        """Returns what the API takes: never cached, because a scheduled run should run."""
        spec: dict[str, Any] = uncached(self.spec)
        if not self.platform:
            return spec
        return {"pipeline_spec": spec, "platform_spec": dict(self.platform)}


@dataclass(frozen=True)
class Schedule:
    """A pipeline and when it runs.

    Attributes:
        name: Unique in its namespace.
        pipeline: What runs.
        cron: KFP's six fields; "" where `every` says when.
        every: Seconds between two runs; 0 where `cron` says when.
        arguments: The pipeline's, by name.
        experiment: The experiment that its runs belong to.
        service_account: Of its pods; "" for KFP's default.
        pipeline_root: Where its runs put artifacts; "" for KFP's default.
    """

    name: str
    pipeline: Pipeline
    cron: str = ""
    every: int = 0
    arguments: Mapping[str, Any] = field(default_factory=dict)
    experiment: str = "Default"
    service_account: str = ""
    pipeline_root: str = ""

    def __post_init__(self) -> None:
        check_name(self.name)
        if bool(self.cron) == bool(self.every):
            raise SpecError(f"Schedule {self.name} needs either a cron or an interval; give one.")
        if self.cron:
            object.__setattr__(self, "cron", parse_cron(self.cron).text)
        else:
            object.__setattr__(self, "every", whole("every", self.every, 60, 366 * 86400))
        if not self.experiment:
            raise SpecError(f"experiment of schedule {self.name} is empty; name one.")
        object.__setattr__(self, "arguments", check_arguments(self.pipeline, self.arguments))

    @property
    def digest(self) -> str:
        """Equal for schedules that do the same."""
        parts = [
            self.pipeline.for_kfp(), self.cron, self.every, self.arguments, self.experiment,
            self.service_account, self.pipeline_root,
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    def next_firings(self, now: datetime, zone: tzinfo, count: int = 5) -> list[datetime]:
        """Returns when a schedule made now would run.

        Raises:
            SpecError: Never.
        """
        return upcoming(self.cron, self.every, now, now, zone, count)


def upcoming(
    cron: str, every: int, now: datetime, since: datetime, zone: tzinfo, count: int = 5
) -> list[datetime]:
    """Returns the next firings of a schedule that counts its interval from `since`.

    Raises:
        SpecError: There are none, or KFP's cron is one that we refuse.
    """
    if cron:
        return next_firings(parse_cron(cron), now, zone, count)
    done = max(0, int((now - since).total_seconds() // every))
    return [
        (since + timedelta(seconds=every * (done + number + 1))).astimezone(zone)
        for number in range(count)
    ]


def check_name(name: str) -> None:
    """Refuses names that KFP or a person would trip over.

    Raises:
        SpecError: It is no such name.
    """
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9 ._-]*[A-Za-z0-9])?", name, re.ASCII) or (
        len(name) > _MAX_NAME
    ):
        raise SpecError(
            f"Schedule name {name!r:.80} is not valid; give letters, digits, spaces, dots, dashes"
            f" and underscores, {_MAX_NAME} characters at most."
        )


def time_zone(name: str) -> tzinfo:
    """Returns the zone of that name.

    Raises:
        SpecError: There is none.
    """
    if name == "UTC":  # also where there is no database of zones
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise SpecError(
            f"Time zone {name!r:.80} is not known; give the server's CRON_SCHEDULE_TIMEZONE, such"
            " as UTC or Europe/Berlin."
        ) from error


def check_arguments(pipeline: Pipeline, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments as KFP takes them, text of a typed one as its value.

    Raises:
        SpecError: One is unknown, missing, of another type, a secret, or would not be filled in.
    """
    inputs = pipeline.inputs
    for name in arguments:
        if name not in inputs:
            valid = ", ".join(sorted(inputs)) or "none"
            raise SpecError(
                f"Pipeline {pipeline.label} has no argument {name!r:.80}; valid are {valid}."
            )
    for name, definition in inputs.items():
        required = "defaultValue" not in definition and not definition.get("isOptional")
        if required and name not in arguments:
            raise SpecError(
                f"Pipeline {pipeline.label} needs argument {name}, and every run of a schedule"
                f" would fail without it; give {name}=VALUE."
            )
    check_placeholders(pipeline)
    typed = {}
    for name, value in arguments.items():
        typed[name] = _typed(name, value, inputs[name].get("parameterType", "STRING"))
        _check_text(name, typed[name])
    return typed


def check_placeholders(pipeline: Pipeline) -> None:
    """Refuses what is empty in the runs of a schedule.

    Raises:
        SpecError: A task of the pipeline asks for the job's name.
    """
    if _JOB_NAME in json.dumps(pipeline.spec):
        raise SpecError(
            f"Pipeline {pipeline.label} uses dsl.PIPELINE_JOB_NAME_PLACEHOLDER, which is empty in"
            " the runs of a schedule; use dsl.PIPELINE_JOB_ID_PLACEHOLDER."
        )


def uncached(value: Any) -> Any:
    """Returns a pipeline's spec with the cache off for every task, in loops and conditions too.

    The client's own switch reaches the outermost tasks alone.
    """
    if isinstance(value, list):
        return [uncached(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {
        key: {"enableCache": False} if key == "cachingOptions" else uncached(item)
        for key, item in value.items()
    }


def _typed(name: str, value: Any, kind: str) -> Any:
    types, wanted = _TYPES.get(kind, ((object,), "a value"))
    if isinstance(value, str) and str not in types:
        try:
            value = json.loads(value)
        except ValueError:
            raise SpecError(f"Argument {name} is {value!r:.80}; give {wanted}.") from None
    if isinstance(value, float) and value.is_integer() and types == (int,):
        value = int(value)
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise SpecError(f"Argument {name} is {value!r:.80}; give {wanted}.")
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SpecError(f"Argument {name} cannot be written as JSON: {error}.") from error


def _check_text(name: str, value: Any) -> None:
    """Refuses what KFP would hand on as it stands, or show to everybody."""
    if isinstance(value, Mapping | list):
        items = value.items() if isinstance(value, Mapping) else ((name, item) for item in value)
        for key, item in items:
            _check_text(f"{name}.{key}" if isinstance(value, Mapping) else name, item)
        return
    if not isinstance(value, str):
        return
    if (value and _SECRET.search(name.rpartition(".")[2].lower())) or _SECRET_IN_URL.search(value):
        raise SpecError(
            f"Argument {name} looks like a secret, and KFP shows arguments to everybody who sees"
            " its runs; put it into a Kubernetes Secret and have the pipeline use it with"
            " kubernetes.use_secret_as_env."
        )
    if macro := _MACRO.search(value):
        raise SpecError(
            f"Argument {name} has {macro[0]:.40}, which KFP 2 does not fill in; in the pipeline"
            " give the task dsl.PIPELINE_JOB_SCHEDULE_TIME_UTC_PLACEHOLDER (the time that the run"
            " was due), PIPELINE_JOB_CREATE_TIME_UTC_PLACEHOLDER or PIPELINE_JOB_ID_PLACEHOLDER."
        )
    if placeholder := _PLACEHOLDER.search(value):
        raise SpecError(
            f"Argument {name} has {placeholder[0]:.60}, which KFP fills in for the inputs of tasks"
            " and not for arguments of a pipeline; write it into the pipeline, as"
            " task(when=dsl.PIPELINE_JOB_SCHEDULE_TIME_UTC_PLACEHOLDER)."
        )
