import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.trials import Script, ScriptBackend
from kfp_jax.cancellation import Cancellation
from kfp_jax.errors import Conflict, JobCancelled, JobFailed, OutputError, SpecError
from kfp_jax.launch import job_ref
from kfp_jax.pods import Pods
from kfp_jax.spec import Limits, TrainSpec
from kfp_jax.status import JobStatus, Phase
from kfp_jax.sweep import Pruner, Sampler, Space, Study, Trial, TrialState, choice, uniform
from kfp_jax.sweep.end import End, SweepEnd, error_of, summary_of
from kfp_jax.sweep.spec import SweepSpec
from kfp_jax.sweep.summary import SweepState
from kfp_jax.sweep_folder import JOURNAL, FolderJournal, sweep_folder
from kfp_jax.tuning import run_sweep

GRID = {"x": choice(*range(10))}
ScriptOf = Callable[[Mapping[str, Any]], Script]


def good(parameters: Mapping[str, Any]) -> Script:
    score = parameters["x"] / 10
    return Script(values=(score / 2, score), result={"accuracy": score})


class News:
    """Keeps the news; calls `act` with each."""

    def __init__(self, act: Callable[[Trial, Phase], None] = lambda *_: None) -> None:
        self.ended: list[int] = []
        self.notes: list[str] = []
        self.before: list[int] = []
        self._act = act

    def kept(self, trials: Sequence[Trial]) -> None:
        self.before = [trial.number for trial in trials]

    def trial(self, trial: Trial, phase: Phase) -> None:
        if trial.state.finished:
            self.ended.append(trial.number)
        self._act(trial, phase)

    def note(self, text: str) -> None:
        self.notes.append(text)


class Sweeper:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.backend = ScriptBackend(good)
        self.news = News()
        self.cancellation = Cancellation()
        self.left: dict[str, JobStatus] = {}

    def spec(
        self, space: Mapping[str, Any] = GRID, study: Mapping[str, Any] | None = None, **more: Any
    ) -> SweepSpec:
        job = TrainSpec(
            name="sweep",
            program="pkg.train",
            output_uri=str(self.folder),
            objective="accuracy",
            parameters={"fixed": 1},
        )
        asked: dict[str, Any] = {"sampler": Sampler.GRID, "max_trials": 10} | dict(study or {})
        given: dict[str, Any] = {"parallel": 4, "max_failed": 3} | more
        return SweepSpec(job=job, study=Study(space=Space.from_json(space), **asked), **given)

    def run(self, script: ScriptOf = good, spec: SweepSpec | None = None) -> SweepEnd:
        self.backend = ScriptBackend(script)
        self.backend.left = dict(self.left)
        spec = spec or self.spec()
        with sweep_folder(spec, resume=True) as folder:
            return run_sweep(
                spec,
                self.backend,
                FolderJournal(folder),
                sink=self.news,
                cancellation=self.cancellation,
            )


@pytest.fixture
def sweeper(tmp_path: Path) -> Sweeper:
    return Sweeper(tmp_path / "sweep")


def states(end: SweepEnd) -> list[TrialState]:
    return [trial.state for trial in end.trials]


def test_a_sweep_tries_every_point_and_knows_the_best(sweeper: Sweeper) -> None:
    spec = sweeper.spec()
    end = sweeper.run(spec=spec)
    assert end.why is End.DONE
    assert states(end) == [TrialState.COMPLETE] * 10
    assert [trial.score for trial in end.trials] == [x / 10 for x in range(10)]
    assert end.trials[4].curve == ((1, 0.2), (2, 0.4))
    best = summary_of(spec, end).best
    assert best is not None
    assert best.parameters == {"x": 9}
    assert error_of(spec, end, going_on="it") is None
    assert sorted(sweeper.news.ended) == list(range(10))


def test_no_more_trials_run_at_once_than_may_and_one_is_checked(sweeper: Sweeper) -> None:
    sweeper.run(lambda p: Script(pause=0.01, values=(1.0,) * 3, result={"accuracy": 1.0}))
    assert sweeper.backend.most == 4
    assert sweeper.backend.validated == 1
    assert sorted(sweeper.backend.submitted) == [f"{number:04d}" for number in range(10)]


def test_trials_have_folders_of_their_own_and_share_one(sweeper: Sweeper) -> None:
    spec = sweeper.spec()
    jobs = [spec.trial_job(number, {"x": number}) for number in range(3)]
    assert len({job.output_uri for job in jobs}) == 3
    assert len({job.checkpoints for job in jobs}) == 3
    assert {job.shared_uri for job in jobs} == {spec.job.output_uri}
    assert jobs[2].parameters == {"fixed": 1, "x": 2}


def test_a_failed_trial_costs_itself_alone(sweeper: Sweeper) -> None:
    end = sweeper.run(lambda p: Script(values=(0.1,)) if p["x"] == 3 else good(p))
    assert states(end).count(TrialState.COMPLETE) == 9
    failed = end.trials[3]
    assert (failed.state, failed.score) == (TrialState.FAILED, 0.1)
    assert failed.reason
    assert failed.message


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        pytest.param(Script(result={"accuracy": "NaN"}), "diverged", id="nan"),
        pytest.param(Script(result={}), "missing-objective", id="nothing-reported"),
        pytest.param(Script(result={"acuracy": 1.0}), "missing-objective", id="another-name"),
    ],
)
def test_a_trial_without_a_score_has_failed(sweeper: Sweeper, script: Script, reason: str) -> None:
    end = sweeper.run(lambda p: script if p["x"] == 0 else good(p))
    assert (end.trials[0].state, end.trials[0].reason) == (TrialState.FAILED, reason)
    assert states(end).count(TrialState.COMPLETE) == 9


def test_too_many_failed_trials_end_the_sweep_and_say_why(sweeper: Sweeper) -> None:
    spec = sweeper.spec(max_failed=2, parallel=1)
    end = sweeper.run(lambda p: Script(), spec)
    error = error_of(spec, end, going_on="it")
    assert end.why is End.FAILED_BUDGET
    assert len(end.trials) == 3
    assert isinstance(error, JobFailed)
    assert str(error).startswith("The sweep failed: 3 trials failed and at most 2 may; 3 of 3 by ")
    assert "such as trial 0" in str(error)


def test_a_sweep_without_one_complete_trial_has_failed(sweeper: Sweeper) -> None:
    spec = sweeper.spec(max_failed=10)
    end = sweeper.run(lambda p: Script(), spec)
    assert end.why is End.DONE
    assert summary_of(spec, end).state is SweepState.FAILED
    assert isinstance(error_of(spec, end, going_on="it"), JobFailed)


def test_trials_that_run_when_too_many_have_failed_are_stopped(sweeper: Sweeper) -> None:
    spec = sweeper.spec(max_failed=0, parallel=2)
    end = sweeper.run(lambda p: Script(pause=0.1) if p["x"] == 1 else Script(hangs=True), spec)
    assert states(end) == [TrialState.STOPPED, TrialState.FAILED]


def test_a_trial_that_falls_behind_is_ended(sweeper: Sweeper) -> None:
    def script(parameters: Mapping[str, Any]) -> Script:
        if parameters["x"] < 9:
            return Script(values=(0.5, 0.6, 0.7, 0.8), result={"accuracy": 0.9})
        return Script(values=(0.1, 0.1, 0.1), hangs=True)

    end = sweeper.run(script, sweeper.spec(parallel=1, study={"pruner": Pruner.MEDIAN}))
    last = end.trials[9]
    assert (last.state, last.score) == (TrialState.PRUNED, 0.1)
    assert last.seconds < 10
    assert states(end)[:9] == [TrialState.COMPLETE] * 9


def test_a_cancelled_sweep_stops_its_trials_and_keeps_the_others(sweeper: Sweeper) -> None:
    def act(trial: Trial, phase: Phase) -> None:
        if trial.number == 2 and trial.state is TrialState.COMPLETE:
            sweeper.cancellation.request()

    sweeper.news = News(act)
    spec = sweeper.spec(parallel=2)
    end = sweeper.run(lambda p: good(p) if p["x"] < 3 else Script(hangs=True), spec)
    assert end.why is End.CANCELLED
    assert states(end)[:3] == [TrialState.COMPLETE] * 3
    assert set(states(end)[3:]) <= {TrialState.STOPPED}
    error = error_of(spec, end, going_on="it")
    assert isinstance(error, JobCancelled)
    assert "3 trials ended and are kept, and it goes on with the others" in str(error)


def test_a_stopped_trial_is_made_again_under_its_number(sweeper: Sweeper) -> None:
    threading.Timer(0.3, sweeper.cancellation.request).start()
    first = sweeper.run(lambda p: good(p) if p["x"] != 1 else Script(hangs=True))
    assert first.trials[1].state is TrialState.STOPPED
    sweeper.cancellation = Cancellation()
    second = sweeper.run()
    assert sweeper.backend.submitted == ["0001"]
    assert states(second) == [TrialState.COMPLETE] * 10
    assert second.trials[1].parameters == first.trials[1].parameters
    assert second.trials[1].started >= max(t.started + t.seconds for t in first.trials)


def test_a_time_budget_stops_the_trials(sweeper: Sweeper) -> None:
    spec = sweeper.spec(time_budget=0.3)
    end = sweeper.run(lambda p: good(p) if p["x"] < 2 else Script(hangs=True), spec)
    assert end.why is End.TIME_BUDGET
    assert states(end).count(TrialState.COMPLETE) == 2
    assert error_of(spec, end, going_on="it") is None


def test_a_space_with_fewer_points_than_trials_ends(sweeper: Sweeper) -> None:
    end = sweeper.run(spec=sweeper.spec({"x": choice(1, 2)}, study={"max_trials": 12}))
    assert (end.why, len(end.trials)) == (End.EXHAUSTED, 2)


def test_the_same_seed_tries_the_same_in_whatever_order_trials_end(tmp_path: Path) -> None:
    space = {"x": uniform(0.0, 1.0)}

    def tried(folder: str, slow: int, parallel: int) -> list[Any]:
        sweeper = Sweeper(tmp_path / folder)
        pauses = iter([0.1 if number == slow else 0.0 for number in range(10)])
        spec = sweeper.spec(space, {"sampler": Sampler.RANDOM}, parallel=parallel)
        end = sweeper.run(lambda p: Script((p["x"],), {"accuracy": p["x"]}, next(pauses)), spec)
        return [trial.parameters for trial in end.trials]

    assert tried("a", 0, 4) == tried("b", 3, 2)


def test_an_error_of_the_launcher_ends_the_other_trials_and_is_raised(sweeper: Sweeper) -> None:
    def script(parameters: Mapping[str, Any]) -> Script:
        if parameters["x"] == 3:
            raise ZeroDivisionError
        return Script(hangs=True)

    with pytest.raises(ZeroDivisionError):
        sweeper.run(script)
    assert sweeper.backend.find({}) == []


def test_a_refused_job_is_an_error_before_anything_starts(sweeper: Sweeper) -> None:
    backend = ScriptBackend(good, refuses="There is no such program.")
    spec = sweeper.spec()
    with (
        sweep_folder(spec, resume=False) as folder,
        pytest.raises(SpecError, match="no such program"),
    ):
        run_sweep(
            spec,
            backend,
            FolderJournal(folder),
            sink=sweeper.news,
            cancellation=sweeper.cancellation,
        )
    assert backend.submitted == []
    # Once it is mended, the same command works.
    assert len(sweeper.run().trials) == 10


def test_a_folder_that_holds_a_sweep_is_not_taken_without_asking(sweeper: Sweeper) -> None:
    sweeper.run()
    with (
        pytest.raises(SpecError, match="holds a sweep already"),
        sweep_folder(sweeper.spec(), resume=False),
    ):
        pass


def test_another_sweep_does_not_go_on_with_this_one(sweeper: Sweeper) -> None:
    sweeper.run()
    for other in (sweeper.spec({"y": choice(1)}), sweeper.spec(study={"seed": 1})):
        with (
            pytest.raises(SpecError, match="holds a sweep whose"),
            sweep_folder(other, resume=True),
        ):
            pass


def test_more_trials_may_be_asked_for_later(sweeper: Sweeper) -> None:
    sweeper.run(spec=sweeper.spec(study={"max_trials": 4}))
    end = sweeper.run()
    assert sorted(sweeper.backend.submitted) == [f"{number:04d}" for number in range(4, 10)]
    assert states(end) == [TrialState.COMPLETE] * 10


def test_two_sweeps_never_share_a_folder(sweeper: Sweeper) -> None:
    spec = sweeper.spec()
    with (
        sweep_folder(spec, resume=True),
        pytest.raises(Conflict),
        sweep_folder(spec, resume=True),
    ):
        pass


def test_half_a_line_of_a_killed_launcher_is_no_trial(tmp_path: Path) -> None:
    journal = FolderJournal(tmp_path)
    journal.write(Trial(0, {"x": 1}))
    journal.write(Trial(0, {"x": 1}, TrialState.COMPLETE, 0.5))
    journal.write(Trial(1, {"x": 2}))
    with (tmp_path / JOURNAL).open("a") as file:
        file.write('{"number": 1, "par')
    assert [trial.state for trial in journal.read()] == [TrialState.COMPLETE, TrialState.RUNNING]
    journal.write(Trial(2, {"x": 3}))
    assert [trial.number for trial in journal.read()] == [0, 1, 2]


def test_a_journal_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text("hello\n")
    with pytest.raises(OutputError, match=r"journal\.jsonl cannot be read"):
        FolderJournal(tmp_path).read()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parallel": 0}, "parallel is 0"),
        ({"max_failed": -2}, "max_failed is -2"),
        ({"time_budget": -1.0}, "time_budget is -1"),
        ({"space": {"fixed": choice(1)}}, "Parameter fixed is in the search space"),
    ],
)
def test_a_wrong_sweep_is_refused(sweeper: Sweeper, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        sweeper.spec(**changes)


@pytest.mark.parametrize(
    ("script", "changes", "why"),
    [
        pytest.param(Script(), {"max_failed": 0}, End.FAILED_BUDGET, id="failed"),
        pytest.param(Script(hangs=True), {"time_budget": 0.3}, End.TIME_BUDGET, id="time"),
    ],
)
def test_budgets_hold_when_the_last_trial_runs(
    sweeper: Sweeper, script: Script, changes: dict[str, Any], why: End
) -> None:
    spec = sweeper.spec(study={"max_trials": 2}, parallel=4, **changes)
    end = sweeper.run(lambda p: script if p["x"] else good(p), spec)
    assert end.why is why
    assert len(end.trials) == 2


def test_a_cancel_holds_when_the_last_trial_runs(sweeper: Sweeper) -> None:
    threading.Timer(0.4, sweeper.cancellation.request).start()
    spec = sweeper.spec(study={"max_trials": 2}, parallel=4)
    end = sweeper.run(lambda p: Script(hangs=True), spec)
    assert end.why is End.CANCELLED
    assert states(end) == [TrialState.STOPPED] * 2


def test_a_sweep_that_made_all_trials_is_done_whatever_came_after(sweeper: Sweeper) -> None:
    def act(trial: Trial, phase: Phase) -> None:
        if len(sweeper.news.ended) == 10:
            sweeper.cancellation.request()

    sweeper.news = News(act)
    assert sweeper.run().why is End.DONE


def test_a_sweep_cancelled_before_its_first_trial_leaves_the_folder_free(sweeper: Sweeper) -> None:
    sweeper.cancellation.request()
    assert sweeper.run().why is End.CANCELLED
    with sweep_folder(sweeper.spec(), resume=False):
        pass


def test_what_is_no_fault_of_a_trial_ends_the_sweep_and_leaves_the_trial_open(
    sweeper: Sweeper,
) -> None:
    def script(parameters: Mapping[str, Any]) -> Script:
        if parameters["x"] == 2:
            raise Conflict("Job x runs with another spec; cancel it or use another output.")
        return good(parameters) if parameters["x"] < 2 else Script(hangs=True)

    spec = sweeper.spec(parallel=2)
    end = sweeper.run(script, spec)
    assert end.why is End.TROUBLE
    error = error_of(spec, end, going_on="it")
    assert isinstance(error, Conflict)
    first, second, third, *_ = states(end)
    assert (first, third) == (TrialState.COMPLETE, TrialState.STOPPED)
    assert second in (TrialState.COMPLETE, TrialState.STOPPED)  # it ran beside the third
    again = sweeper.run()
    assert states(again) == [TrialState.COMPLETE] * 10
    assert again.trials[0] == end.trials[0]


def jobs_of(sweeper: Sweeper, *numbers: int, phase: Phase) -> dict[str, JobStatus]:
    """Returns the jobs of these trials, as a launcher that was killed leaves them."""
    spec, backend = sweeper.spec(), ScriptBackend(good)
    return {
        job_ref(spec.trial_job(number, {}), backend).name: JobStatus(phase) for number in numbers
    }


def killed(sweeper: Sweeper, *numbers: int) -> None:
    """Leaves the folder as a launcher does that is killed while these trials run."""
    with sweep_folder(sweeper.spec(), resume=False) as folder:
        for number in numbers:
            FolderJournal(folder).write(Trial(number, {"x": number}))


def test_jobs_that_still_run_are_followed_first_however_few_may_run_now(sweeper: Sweeper) -> None:
    killed(sweeper, 0, 1, 2, 3)
    sweeper.left = jobs_of(sweeper, 1, 2, 3, phase=Phase.RUNNING)
    end = sweeper.run(
        lambda p: Script((1.0,) * 2, {"accuracy": 1.0}, 0.1), sweeper.spec(parallel=1)
    )
    assert sorted(sweeper.backend.submitted[:3]) == ["0001", "0002", "0003"]
    assert sweeper.backend.submitted[3] == "0000"
    assert sweeper.backend.most == 3
    assert states(end) == [TrialState.COMPLETE] * 10


def test_what_a_killed_sweep_left_is_no_result_of_the_next_in_its_folder(sweeper: Sweeper) -> None:
    ended = jobs_of(sweeper, 2, phase=Phase.SUCCEEDED)
    sweeper.left = ended | jobs_of(sweeper, 4, phase=Phase.RUNNING)
    end = sweeper.run()
    assert sweeper.backend.deleted == [*ended]
    assert states(end) == [TrialState.COMPLETE] * 10


def test_an_ended_job_of_this_sweep_is_not_deleted_before_it_is_read(sweeper: Sweeper) -> None:
    killed(sweeper, 0, 1, 2)
    sweeper.left = jobs_of(sweeper, 2, phase=Phase.SUCCEEDED)
    sweeper.run()
    assert sweeper.backend.deleted == []


def test_trials_that_stay_are_told_before_all_else(sweeper: Sweeper) -> None:
    sweeper.run(spec=sweeper.spec(study={"max_trials": 4}))
    sweeper.news = News()
    sweeper.run()
    assert sweeper.news.before == [0, 1, 2, 3]
    assert sorted(sweeper.news.ended) == [4, 5, 6, 7, 8, 9]


def test_a_trial_that_somebody_else_cancels_is_told_of(sweeper: Sweeper) -> None:
    def act(trial: Trial, phase: Phase) -> None:
        if trial.number == 1 and trial.curve and not trial.state.finished:
            (ref,) = sweeper.backend.find({})
            sweeper.backend.cancel(ref)

    sweeper.news = News(act)
    spec = sweeper.spec(parallel=1, study={"max_trials": 3})
    end = sweeper.run(lambda p: Script((0.5,), {"accuracy": 0.5}, hangs=p["x"] == 1), spec)
    assert states(end) == [TrialState.COMPLETE, TrialState.STOPPED, TrialState.COMPLETE]
    assert [note for note in sweeper.news.notes if "Trial 1 was cancelled by somebody else" in note]
    assert summary_of(spec, end).ended == (
        "all 3 trials were made, but 1 was cancelled by somebody else"
    )


def test_a_trial_that_the_sweep_itself_stops_is_nobody_elses_doing(sweeper: Sweeper) -> None:
    threading.Timer(0.3, sweeper.cancellation.request).start()
    sweeper.run(lambda p: Script(hangs=True))
    assert sweeper.news.notes == []


@pytest.mark.parametrize(
    ("sampler", "warm", "said"),
    [
        (Sampler.TPE, Trial(0, {"y": 1}, TrialState.COMPLETE, 0.5), "none of the warm start's"),
        (Sampler.TPE, Trial(0, {"x": 0.5}, TrialState.FAILED), "none of the warm start's"),
        (Sampler.RANDOM, Trial(0, {"x": 0.5}, TrialState.COMPLETE, 0.5), "random does not learn"),
        (Sampler.TPE, Trial(0, {"x": 0.5}, TrialState.COMPLETE, 0.5), ""),
    ],
    ids=["other-entries", "no-score", "no-learner", "used"],
)
def test_a_warm_start_that_is_not_used_is_told_of(
    sweeper: Sweeper, sampler: Sampler, warm: Trial, said: str
) -> None:
    study = {"sampler": sampler, "max_trials": 2}
    sweeper.run(spec=sweeper.spec({"x": uniform(0.0, 1.0)}, study, earlier=(warm,)))
    assert [said in note for note in sweeper.news.notes] == [True] * bool(said)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"limits": Limits(deadline=100)}, "limits.deadline changed"),
        ({"pods": Pods(image="other:1")}, "pods.image changed"),
        ({"env": {"A": "secret"}}, "env.A changed"),
    ],
    ids=["deadline", "image", "variable"],
)
def test_a_job_that_may_still_run_is_not_changed(
    sweeper: Sweeper, change: dict[str, Any], named: str
) -> None:
    def open_folder(spec: SweepSpec, where: str = "trainer in namespace ns") -> None:
        with sweep_folder(spec, resume=True, where=where) as folder:
            if not FolderJournal(folder).read():
                FolderJournal(folder).write(Trial(0, {"x": 0}))

    spec = sweeper.spec()
    other = replace(spec, job=replace(spec.job, **change))
    open_folder(spec)
    open_folder(replace(spec, parallel=1))  # no job is another for that
    with pytest.raises(SpecError, match=f"trial 0 may still run .*{named}") as refused:
        open_folder(other)
    assert "secret" not in str(refused.value)
    with pytest.raises(SpecError, match="backend changed"):
        open_folder(spec, "jobset in namespace ns")
    FolderJournal(sweeper.folder).write(Trial(0, {"x": 0}, TrialState.STOPPED))
    open_folder(other, "jobset in namespace ns")  # nothing runs any more


def test_on_one_machine_nothing_outlives_its_launcher_and_all_may_change(sweeper: Sweeper) -> None:
    killed(sweeper, 0)
    spec = sweeper.spec()
    with sweep_folder(
        replace(spec, job=replace(spec.job, limits=Limits(deadline=9))), resume=True
    ) as folder:
        assert len(FolderJournal(folder).read()) == 1
