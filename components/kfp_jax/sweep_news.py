"""A sweep's news as the news of one job: for logs, and for the screen of a pipeline."""

from collections.abc import Sequence

from kfp_jax.clock import Clock, SystemClock
from kfp_jax.reports import Kind, Report
from kfp_jax.sinks import Sink, show_number
from kfp_jax.status import JobStatus, Phase
from kfp_jax.sweep.spec import SweepSpec
from kfp_jax.sweep.trial import Trial, TrialState, ranked

_SHOWN = 100  # characters of parameters


class SweepNews:
    """Tells a sink of each trial that ends, and how far the sweep is."""

    def __init__(self, spec: SweepSpec, sink: Sink, clock: Clock | None = None) -> None:
        self._spec = spec
        self._sink = sink
        self._clock = clock or SystemClock()
        self._total = spec.study.max_trials or spec.study.space.points() or 0
        self._ended = 0
        self._begun = False
        self._best: Trial | None = None

    def kept(self, trials: Sequence[Trial]) -> None:
        """Counts them, and says that they are not made again."""
        self._ended = len(trials)
        self._best = next(iter(ranked(trials, self._spec.study.direction)), None)
        if trials:
            self._sink.note(f"{len(trials):,} of {self._total:,} trials were made before and stay.")

    def trial(self, trial: Trial, phase: Phase) -> None:
        """Tells of a trial that has ended; the others only make a log long."""
        if not self._begun:
            self._begun = True
            self._sink.status("sweep", JobStatus(Phase.RUNNING))
            self._progress()
        if not trial.state.finished:
            return
        if trial.state is TrialState.STOPPED:  # it is made when the sweep goes on
            self._sink.note(self._sentence(trial))
            return
        self._ended += 1
        pair = [trial] if self._best is None else [self._best, trial]
        self._best = next(iter(ranked(pair, self._spec.study.direction)), None)
        self._sink.note(self._sentence(trial))
        self._progress()

    def note(self, text: str) -> None:
        """Hands it on."""
        self._sink.note(text)

    def _progress(self) -> None:
        counted = {"done": self._ended, "total": max(self._total, self._ended), "unit": "trial"}
        self._sink.report(0, Report(Kind.PROGRESS, self._clock.wall(), fields=counted))

    def _sentence(self, trial: Trial) -> str:
        said = f"Trial {trial.number} {trial.state.value.lower()} in {trial.seconds:.1f} s"
        if trial.score is not None:
            said += f", {self._spec.job.objective} {show_number(trial.score)}"
        if trial is self._best:
            said += " (best so far)"
        said += f": {parameters_text(trial)}"
        return f"{said}: {trial.message}" if trial.state is TrialState.FAILED else said


def parameters_text(trial: Trial) -> str:
    """Returns a trial's parameters on one line for people; numbers with four digits."""
    shown = (
        f"{name}={show_number(value) if isinstance(value, float) else value}"
        for name, value in trial.parameters.items()
    )
    text = " ".join(shown)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
