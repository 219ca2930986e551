"""The news of a sweep as those of one job."""

import pytest
from fakes.clock import ManualClock
from kfp_jax.reports import Report
from kfp_jax.sinks import NullSink
from kfp_jax.spec import TrainSpec
from kfp_jax.status import JobStatus, Phase
from kfp_jax.sweep import Direction, Space, Study, Trial, TrialState, uniform
from kfp_jax.sweep.spec import SweepSpec
from kfp_jax.sweep_news import SweepNews, parameters_text

COMPLETE = TrialState.COMPLETE


class Heard(NullSink):
    def __init__(self) -> None:
        self.phases: list[tuple[str, Phase]] = []
        self.notes: list[str] = []
        self.progress: list[tuple[object, object]] = []

    def status(self, job: str, status: JobStatus) -> None:
        self.phases.append((job, status.phase))

    def report(self, process: int, report: Report) -> None:
        self.progress.append((report.fields["done"], report.fields["total"]))

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def heard() -> Heard:
    return Heard()


def news(heard: Heard, direction: Direction = Direction.MAXIMIZE) -> SweepNews:
    job = TrainSpec(name="sweep", program="pkg.train", output_uri="/out", objective="accuracy")
    space = Space.from_json({"x": uniform(0.0, 1.0)})
    study = Study(space=space, direction=direction, max_trials=4)
    return SweepNews(SweepSpec(job=job, study=study), heard, ManualClock())


def ended(number: int, score: float | None, state: TrialState = COMPLETE, **more: str) -> Trial:
    return Trial(number, {"x": 0.123456}, state, score, seconds=2.04, **more)


def test_a_trial_that_has_ended_is_one_sentence(heard: Heard) -> None:
    telling = news(heard)
    telling.trial(Trial(0, {"x": 0.1}), Phase.PENDING)
    telling.trial(Trial(0, {"x": 0.1}, curve=((1, 0.2),)), Phase.RUNNING)
    assert heard.notes == []
    telling.trial(ended(0, 0.5), Phase.SUCCEEDED)
    assert heard.notes == ["Trial 0 complete in 2.0 s, accuracy 0.5 (best so far): x=0.1235"]
    assert heard.phases == [("sweep", Phase.RUNNING)]


@pytest.mark.parametrize(
    ("direction", "best"),
    [(Direction.MAXIMIZE, [True, False, True]), (Direction.MINIMIZE, [True, True, False])],
    ids=str,
)
def test_the_best_so_far_is_said_to_be(
    heard: Heard, direction: Direction, best: list[bool]
) -> None:
    telling = news(heard, direction)
    for number, score in enumerate((0.5, 0.4, 0.6)):
        telling.trial(ended(number, score), Phase.SUCCEEDED)
    assert ["(best so far)" in note for note in heard.notes] == best


def test_why_a_trial_failed_is_said(heard: Heard) -> None:
    failed = ended(0, None, TrialState.FAILED, message="Process 0 was killed.")
    news(heard).trial(failed, Phase.FAILED)
    assert heard.notes == ["Trial 0 failed in 2.0 s: x=0.1235: Process 0 was killed."]


def test_progress_counts_what_has_a_result(heard: Heard) -> None:
    telling = news(heard)
    telling.trial(ended(0, 0.5), Phase.SUCCEEDED)
    telling.trial(ended(1, 0.2, TrialState.PRUNED), Phase.CANCELLED)
    telling.trial(ended(2, 0.2, TrialState.STOPPED), Phase.CANCELLED)
    assert heard.progress == [(0, 4), (1, 4), (2, 4)]


def test_progress_of_a_sweep_that_goes_on_begins_with_what_stays(heard: Heard) -> None:
    telling = news(heard)
    telling.kept([ended(0, 0.9), ended(1, None, TrialState.FAILED)])
    telling.trial(ended(2, 0.5), Phase.SUCCEEDED)
    assert heard.progress == [(2, 4), (3, 4)]
    assert heard.notes[0] == "2 of 4 trials were made before and stay."
    assert "best so far" not in heard.notes[1]


def test_nothing_is_said_of_trials_that_stay_where_there_are_none(heard: Heard) -> None:
    news(heard).kept([])
    assert heard.notes == []


def test_long_parameters_are_cut() -> None:
    text = parameters_text(Trial(0, {f"parameter_{i}": 0.123456 for i in range(20)}))
    assert len(text) == 100
    assert text.endswith("…")
