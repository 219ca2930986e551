"""From the facts of a failed job to one sentence: which process, what happened, what to do.

The loudest error usually comes from a victim: when one process dies, the others fail in their next
collective. So the first question is who failed first, and only then what is wrong with it.
"""

import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kfp_jax.platform_reasons import (
    EVICTIONS,
    HOLDS,
    JOB_ENDS,
    NOT_STARTED,
    PLATFORM_ENDS,
)
from kfp_jax.reports import Report
from kfp_jax.status import (
    BAD_INPUT,
    EXIT_BAD_INPUT,
    EXIT_DIVERGED,
    EXIT_STOPPED,
    INIT_FAILED,
    OUT_OF_MEMORY,
    SIDECAR,
    Overdue,
    ProcessStatus,
)

# What a process says when it fails because another one did.
_VICTIM_MARKS = (
    "Gloo all-",
    "Gloo collective",
    "Connection closed by peer",
    "Connection reset by peer",
    "JAX distributed service detected fatal errors",
    "another task died",
    "coordination service",
)
_ABORTED = (-signal.SIGABRT, 128 + signal.SIGABRT)


@dataclass(frozen=True)
class Facts:
    """All that is known when a job ends badly.

    Attributes:
        job: Its name.
        processes: How each process ended.
        reason: The platform's word for the job's end, or for what held it up, or "".
        message: Its sentence on that, or "".
        restarts: How often the set had been started again.
        errors: The error report of each process that wrote one.
        tails: The last lines of each process.
        arrived: Which processes had been ready to join the others.
        last_step: The last reported step, or None.
        overdue: The limit that ran out, or None.
        limit: That limit, in seconds.
    """

    job: str
    processes: Sequence[ProcessStatus]
    reason: str = ""
    message: str = ""
    restarts: int = 0
    errors: Mapping[int, Report] = field(default_factory=dict)
    tails: Mapping[int, Sequence[str]] = field(default_factory=dict)
    arrived: frozenset[int] = frozenset()
    last_step: int | None = None
    overdue: Overdue | None = None
    limit: float = 0.0


@dataclass(frozen=True)
class Diagnosis:
    """The answer: a reason for machines, a sentence for people, and the process it began with."""

    reason: str
    sentence: str
    root: int | None = None


def diagnose(facts: Facts) -> Diagnosis:
    """Returns why the job ended."""
    if facts.overdue is not None:
        return _diagnose_overdue(facts, facts.overdue)
    root = find_root(facts)
    if root is None:
        return _diagnose_job(facts)
    case = _Case(root, facts)
    rule = next(rule for rule in RULES if rule.matches(case))
    remedy = f"; {rule.remedy}" if rule.remedy else ""
    again = f" after {facts.restarts} restarts" if facts.restarts else ""
    sentence = f"Job {facts.job} failed{again}: {rule.sentence(case)}{remedy}."
    return Diagnosis(rule.reason, sentence, root.process)


def find_root(facts: Facts) -> ProcessStatus | None:
    """Returns the process with which it began: the first to fail that is no victim of another."""
    failed = sorted(
        (item for item in facts.processes if item.failed_at is not None),
        key=lambda item: (item.failed_at, item.process),
    )
    culprits = [item for item in failed if not _is_victim(item, facts)]
    return next(iter(culprits or failed), None)


def _is_victim(status: ProcessStatus, facts: Facts) -> bool:
    if status.reason in PLATFORM_ENDS:
        return False
    if status.exit_code in _ABORTED:
        return True
    report = facts.errors.get(status.process)
    text = _field(report, "message") if report else "\n".join(facts.tails.get(status.process, ()))
    return any(mark in text for mark in _VICTIM_MARKS)


@dataclass(frozen=True)
class _Case:
    """The root process, as the rules see it."""

    status: ProcessStatus
    facts: Facts

    @property
    def exit_code(self) -> int:
        return self.status.exit_code or 0

    @property
    def platform(self) -> str:
        """The platform's own word for its end, or ""."""
        return self.status.reason

    @property
    def platform_says(self) -> str:
        """The platform's sentence on that, as an addition to ours, or ""."""
        return f" ({self.status.message})" if self.status.message else ""

    @property
    def report(self) -> Report | None:
        return self.facts.errors.get(self.status.process)

    @property
    def error(self) -> str:
        return _field(self.report, "message").rstrip(".")

    @property
    def told(self) -> str:
        """The reason that the process itself gave, or ""."""
        return _field(self.report, "reason")

    @property
    def who(self) -> str:
        return f"process {self.status.process}"

    @property
    def report_step(self) -> int | None:
        return self.report.step if self.report else None

    @property
    def when(self) -> str:
        if self.report_step is not None:
            return f" at step {self.report_step}"
        return f" after step {self.facts.last_step}" if self.facts.last_step is not None else ""

    def says(self, *marks: str) -> bool:
        text = "\n".join((self.error, *self.facts.tails.get(self.status.process, ())))
        return any(mark in text for mark in marks)


def _field(report: Report | None, name: str) -> str:
    value: Any = report.fields.get(name, "") if report else ""
    return value if isinstance(value, str) else ""


@dataclass(frozen=True)
class Rule:
    """One row of the table: when it applies, the reason, the sentence and the remedy.

    The remedy is empty where the process' own message holds one.
    """

    reason: str
    matches: Callable[[_Case], bool]
    sentence: Callable[[_Case], str]
    remedy: str


def _signal_name(exit_code: int) -> str:
    number = -exit_code if exit_code < 0 else exit_code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_AGAIN = "run the same command again to go on from its last checkpoint, if it has one"
RULES = (
    Rule(
        BAD_INPUT,
        lambda c: c.exit_code == EXIT_BAD_INPUT,
        lambda c: c.error or f"{c.who} refused its input; correct the program or its parameters",
        "",
    ),
    Rule(
        "diverged",
        lambda c: c.exit_code == EXIT_DIVERGED,
        lambda c: c.error or f"{c.who} diverged{c.when}; lower the learning rate",
        "",
    ),
    Rule(
        "out-of-memory",
        lambda c: c.platform == OUT_OF_MEMORY,
        lambda c: (
            f"{c.who} was killed ({OUT_OF_MEMORY}){c.when}, its pod had used up its memory"
            f"{c.platform_says}"
        ),
        "raise the memory of resources, or use a smaller batch or model",
    ),
    Rule(
        "evicted",
        lambda c: c.platform in EVICTIONS,
        lambda c: f"the pod of {c.who} {EVICTIONS[c.platform]}{c.when}{c.platform_says}",
        _AGAIN,
    ),
    Rule(
        "not-started",
        lambda c: c.platform in NOT_STARTED,
        lambda c: f"{c.who} could not be started{c.platform_says}",
        "check that the image has this command",
    ),
    Rule(
        "init-failed",
        lambda c: c.platform == INIT_FAILED,
        lambda c: f"an init container of {c.who} failed{c.platform_says}",
        "look at its log",
    ),
    Rule(
        "preempted",
        lambda c: c.exit_code == EXIT_STOPPED and c.report_step is not None,
        lambda c: f"{c.who} was asked to stop and left{c.when} with its state saved",
        "run the same command again to go on from there",
    ),
    Rule(
        "preempted",
        lambda c: c.exit_code == EXIT_STOPPED,
        lambda c: f"{c.who} was asked to stop and left at once{c.when}",
        _AGAIN,
    ),
    Rule(
        "disk-full",
        lambda c: c.says("No space left on device", "Disk quota exceeded"),
        lambda c: f"{c.who} could not write{c.when}, no space was left: {c.error}",
        "free space or choose another output folder",
    ),
    Rule(
        "out-of-memory",
        lambda c: c.says("RESOURCE_EXHAUSTED", "MemoryError", "Cannot allocate memory"),
        lambda c: f"{c.who} ran out of memory{c.when}: {c.error}",
        "use a smaller batch or model, or more memory",
    ),
    Rule(
        "exit",
        lambda c: c.told == "exit",
        lambda c: f"{c.who} ended{c.when}: {c.error}",
        "its last lines are in its log",
    ),
    Rule(
        "exception",
        lambda c: bool(c.error),
        lambda c: f"{c.who} raised {c.error}{c.when}",
        "its traceback is in its log and in the report",
    ),
    Rule(
        "not-started",
        lambda c: c.exit_code == 127,
        lambda c: f"{c.who} exited with code 127, its command was not found",
        "check the command, and that the image has it",
    ),
    Rule(
        "not-started",
        lambda c: c.exit_code == 126,
        lambda c: f"{c.who} exited with code 126, its command may not be executed",
        "check the command's file mode in the image",
    ),
    Rule(
        "stopped",
        lambda c: c.exit_code in (-signal.SIGTERM, 128 + signal.SIGTERM),
        lambda c: f"{c.who} was told to stop from outside (SIGTERM){c.when}",
        _AGAIN,
    ),
    Rule(
        "killed",
        lambda c: c.exit_code in (-signal.SIGKILL, 128 + signal.SIGKILL),
        lambda c: f"{c.who} was killed by SIGKILL{c.when}",
        "often that is the machine running out of memory: check with `dmesg` and use less",
    ),
    Rule(
        "signal",
        lambda c: c.exit_code < 0 or 128 < c.exit_code < 160,
        lambda c: f"{c.who} was ended by {_signal_name(c.exit_code)}{c.when}",
        "its last lines are in its log",
    ),
    Rule(
        "exit",
        lambda c: True,
        lambda c: f"{c.who} exited with code {c.exit_code}{c.when}",
        "its last lines are in its log",
    ),
)


def _diagnose_job(facts: Facts) -> Diagnosis:
    """Returns why a job failed of which no process did."""
    told = JOB_ENDS.get(facts.reason)
    if told:
        seen = told.sentence.format(who="it", message=facts.message or facts.reason)
        return Diagnosis(_dashed(facts.reason), f"Job {facts.job} failed: {seen}; {told.remedy}.")
    said = f" ({facts.reason}: {facts.message})" if facts.reason else ""
    return Diagnosis(
        "unknown", f"Job {facts.job} failed{said}, but no process of it did; see its logs."
    )


def _dashed(reason: str) -> str:
    """Returns a reason of Kubernetes', such as DeadlineExceeded, in the form of ours."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", reason).lower()


def _diagnose_overdue(facts: Facts, overdue: Overdue) -> Diagnosis:
    suspended = [item.process for item in facts.processes if item.suspended]
    absent = [item.process for item in facts.processes if item.process not in facts.arrived]
    step = f" after step {facts.last_step}" if facts.last_step is not None else ""
    match overdue:
        case Overdue.QUEUE:
            roots: list[int] = []
            seen = facts.message or "no queue admitted it"
            remedy = "ask for less, or raise the queue limit"
        case Overdue.START:
            roots = absent
            seen = f"{_processes(absent)} never joined" if absent else "it did not start"
            if suspended:
                seen += f" ({_processes(suspended)} is suspended)"
            remedy = "look at the last lines of that process, or raise the start limit"
        case Overdue.STALL:
            roots = suspended or absent
            seen = f"no process wrote a line{step}"
            if suspended:
                seen += f" and {_processes(suspended)} is suspended by a signal"
            elif absent:
                seen += f" and {_processes(absent)} never joined"
            remedy = "find what it waits for, or raise the stall limit"
        case Overdue.DEADLINE:
            roots = []
            seen = f"it was still running{step}"
            remedy = "raise the deadline or train less"
            if not step and facts.processes and not any(item.alive for item in facts.processes):
                seen = "it had not started yet"
                remedy = "raise the deadline, or look at its pods and their events"
    if overdue is not Overdue.QUEUE:
        roots, seen, remedy = _held_up(facts) or (roots, seen, remedy)
    if facts.reason == SIDECAR and overdue in (Overdue.STALL, Overdue.DEADLINE):
        roots = []
        seen = f"its training is done, but {facts.message}"
        remedy = "have that container end with it, or keep it out of the pods"
    sentence = f"Job {facts.job} was ended after {facts.limit:g} s: {seen}; {remedy}."
    return Diagnosis(overdue.value, sentence, roots[0] if roots else None)


def _held_up(facts: Facts) -> tuple[list[int], str, str] | None:
    """Returns who cannot run, why and what to do, as far as the platform says; else None."""
    held = [item for item in facts.processes if item.reason in HOLDS and not item.alive]
    reason, message = (held[0].reason, held[0].message) if held else (facts.reason, facts.message)
    if reason not in HOLDS:
        return None
    roots = [item.process for item in held if item.reason == reason]
    who = _processes(roots) if roots else "it"
    told = HOLDS[reason]
    return roots, told.sentence.format(who=who, message=message or reason), told.remedy


def _processes(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:5])
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return f"process{'es' if len(numbers) > 1 else ''} {shown}{more}"
