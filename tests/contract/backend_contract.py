import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kfp_jax.backends.base import Backend, JobRef, LogLine
from kfp_jax.errors import Conflict, NotFound, SpecError
from kfp_jax.pods import Pods
from kfp_jax.spec import TrainSpec
from kfp_jax.status import JobStatus, Phase

# A cluster restarts the set within one attempt and counts that apart.
ATTEMPT = "attempt=$((KFP_JAX_ATTEMPT + KFP_JAX_RESTARTS))"
# A restart takes a pod's log with the pod: who has not begun to read it by then cannot any more.
LAST_MOMENTS = "{ sleep 2.5; exit 1; }"
ARGUMENTS = ['{"a":"b"}', "it's", "a\nb", "日本 €", "", "--", "$HOME", "*"]


class BackendContract:
    """What every backend owes to `launch`. A subclass gives the fixture `backend`.

    The jobs are plain shell commands, so that a test needs no image but one with `sh`.

    Attributes:
        pods: What pods are, where there are any.
        impossible: What makes a job that cannot work there, and what is said about it.
    """

    pods = Pods()
    impossible: tuple[dict[str, Any], str]

    @pytest.fixture
    def backend(self) -> Backend:
        raise NotImplementedError

    @pytest.fixture
    def ref(self, backend: Backend) -> Iterator[JobRef]:
        ref = JobRef(backend.name, "contract-12345678-1")
        yield ref
        backend.delete(ref)

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path

    def spec(self, folder: Path, script: str, *, nodes: int = 1, **more: object) -> TrainSpec:
        given = {"command": ("sh", "-c", script), "num_nodes": nodes, "pods": self.pods}
        values = {**given, **more}
        return TrainSpec(name="contract", output_uri=str(folder), **values)  # type: ignore[arg-type]

    def finish(self, backend: Backend, ref: JobRef) -> JobStatus:
        """Follows a job to its end; the last status must be the only finished one."""
        statuses = list(backend.watch(ref))
        assert statuses
        assert [status.phase.finished for status in statuses[:-1]] == [False] * (len(statuses) - 1)
        return statuses[-1]

    def follow(
        self, backend: Backend, spec: TrainSpec, ref: JobRef
    ) -> tuple[JobStatus, Sequence[LogLine]]:
        """Runs a job to its end as `launch` does: its logs are read while it runs."""
        backend.submit(spec, ref)
        lines: list[LogLine] = []
        reader = threading.Thread(target=lambda: lines.extend(backend.logs(ref)))
        reader.start()
        status = self.finish(backend, ref)
        reader.join(timeout=20)
        assert not reader.is_alive()
        return status, lines

    def lines(self, backend: Backend, spec: TrainSpec, ref: JobRef) -> Sequence[LogLine]:
        backend.submit(spec, ref)
        return list(backend.logs(ref))

    def test_a_job_that_ends_well(self, backend: Backend, ref: JobRef, folder: Path) -> None:
        backend.submit(self.spec(folder, "true", nodes=2), ref)
        status = self.finish(backend, ref)
        assert status.phase is Phase.SUCCEEDED
        assert [item.exit_code for item in status.processes] == [0, 0]

    def test_a_finished_job_can_still_be_watched(
        self, backend: Backend, ref: JobRef, folder: Path
    ) -> None:
        backend.submit(self.spec(folder, "true"), ref)
        assert self.finish(backend, ref).phase is self.finish(backend, ref).phase

    def test_a_failed_process_is_named_with_its_exit_code(
        self, backend: Backend, ref: JobRef, folder: Path
    ) -> None:
        script = '[ "$JAX_PROCESS_ID" = 0 ] && sleep 60; exit 3'
        backend.submit(self.spec(folder, script, nodes=2), ref)
        status = self.finish(backend, ref)
        assert status.phase is Phase.FAILED
        failed = [item.process for item in status.processes if item.failed_at is not None]
        assert failed == [1]
        assert status.processes[1].exit_code == 3

    def test_a_failed_set_is_started_again(
        self, backend: Backend, ref: JobRef, folder: Path
    ) -> None:
        script = f"{ATTEMPT}; echo attempt $attempt; [ $attempt = 3 ] || {LAST_MOMENTS}"
        spec = self.spec(folder, script, nodes=2, max_restarts=5)
        status, lines = self.follow(backend, spec, ref)
        assert (status.phase, status.restarts) == (Phase.SUCCEEDED, 2)
        # Of an attempt that failed, at least the process that failed was heard.
        heard = [(line.attempt, line.text) for line in lines]
        assert sorted(set(heard)) == [(1, "attempt 1"), (2, "attempt 2"), (3, "attempt 3")]
        assert heard == sorted(heard)

    @pytest.mark.parametrize(
        "last_words", ["printf 'bar 50%%\\r'", "yes 0123456789 | head -c 3000000"]
    )
    def test_an_attempt_is_heard_to_its_end_before_the_next(
        self, backend: Backend, ref: JobRef, folder: Path, last_words: str
    ) -> None:
        first = f"{last_words}; {LAST_MOMENTS}"
        script = f"{ATTEMPT}; if [ $attempt = 1 ]; then {first}; fi; echo second"
        status, lines = self.follow(backend, self.spec(folder, script, max_restarts=1), ref)
        assert status.phase is Phase.SUCCEEDED
        attempts = [line.attempt for line in lines]
        assert attempts == sorted(attempts)
        assert set(attempts) == {1, 2}

    def test_restarts_are_used_up(self, backend: Backend, ref: JobRef, folder: Path) -> None:
        backend.submit(self.spec(folder, "exit 1", max_restarts=2), ref)
        status = self.finish(backend, ref)
        assert (status.phase, status.restarts) == (Phase.FAILED, 2)

    def test_every_line_of_every_process_once(
        self, backend: Backend, ref: JobRef, folder: Path
    ) -> None:
        say = """printf '42\n{"kind":"Pod"}\n\nlast'; sleep 0.1; echo ' line'"""
        script = f"{say}; sleep 0.1; echo error >&2"
        lines = self.lines(backend, self.spec(folder, script, nodes=2), ref)
        for process in (0, 1):
            texts = [line.text for line in lines if line.process == process]
            assert texts == ["42", '{"kind":"Pod"}', "", "last line", "error"]

    def test_a_last_line_without_newline(self, backend: Backend, ref: JobRef, folder: Path) -> None:
        lines = self.lines(backend, self.spec(folder, "printf end"), ref)
        assert [line.text for line in lines] == ["end"]

    def test_lines_come_while_the_job_runs(
        self, backend: Backend, ref: JobRef, folder: Path
    ) -> None:
        backend.submit(self.spec(folder, "echo one; sleep 60; echo two"), ref)
        first = next(iter(backend.logs(ref)))
        assert first.text == "one"
        assert not next(iter(backend.watch(ref))).phase.finished

    def test_arguments_arrive_byte_for_byte(
        self, backend: Backend, ref: JobRef, folder: Path
    ) -> None:
        command = ("sh", "-c", "printf '%s\\0' \"$@\"", "argv0", *ARGUMENTS)
        spec = self.spec(folder, "", command=command)
        lines = self.lines(backend, spec, ref)
        assert "\n".join(line.text for line in lines) == "".join(f"{a}\0" for a in ARGUMENTS)

    def test_the_environment_of_a_node(self, backend: Backend, ref: JobRef, folder: Path) -> None:
        names = (
            "JAX_NUM_PROCESSES JAX_PROCESS_ID NUM_PROCESSES PROCESS_ID KFP_JAX_PARAMETERS"
            " KFP_JAX_JOB KFP_JAX_ATTEMPT FOO"
        )
        script = f'for name in {names}; do eval "echo $name=\\$$name"; done'
        spec = self.spec(
            folder, script, nodes=2, env={"FOO": "bar"}, parameters={"lr": 0.1, "s": "a b"}
        )
        lines = self.lines(backend, spec, ref)
        seen = dict(line.text.split("=", 1) for line in lines if line.process == 1)
        parameters = json.loads(seen.pop("KFP_JAX_PARAMETERS"))
        assert parameters == {"lr": 0.1, "s": "a b"}
        assert seen == {
            "JAX_NUM_PROCESSES": "2",
            "JAX_PROCESS_ID": "1",
            "NUM_PROCESSES": "2",
            "PROCESS_ID": "1",
            "KFP_JAX_JOB": ref.name,
            "KFP_JAX_ATTEMPT": "1",
            "FOO": "bar",
        }

    def test_all_processes_get_one_coordinator(
        self, backend: Backend, ref: JobRef, folder: Path
    ) -> None:
        script = 'echo $JAX_COORDINATOR_ADDRESS; echo "$COORDINATOR_ADDRESS:$COORDINATOR_PORT"'
        lines = self.lines(backend, self.spec(folder, script, nodes=3), ref)
        assert len(lines) == 6
        assert len({line.text for line in lines}) == 1

    def test_submitting_again_adopts(self, backend: Backend, ref: JobRef, folder: Path) -> None:
        spec = self.spec(folder, "echo started; sleep 1")
        assert backend.submit(spec, ref) == backend.submit(spec, ref)
        assert len(list(backend.logs(ref))) == 1

    def test_another_spec_of_the_same_name_is_a_conflict(
        self, backend: Backend, ref: JobRef, folder: Path
    ) -> None:
        backend.submit(self.spec(folder, "sleep 60"), ref)
        with pytest.raises(Conflict, match=ref.name):
            backend.submit(self.spec(folder, "sleep 61"), ref)

    def test_cancel(self, backend: Backend, ref: JobRef, folder: Path) -> None:
        backend.submit(self.spec(folder, "sleep 60", nodes=2), ref)
        backend.cancel(ref)
        status = self.finish(backend, ref)
        assert status.phase is Phase.CANCELLED
        assert not any(item.alive for item in status.processes)

    def test_a_second_cancel_does_not_wait(
        self, backend: Backend, ref: JobRef, folder: Path
    ) -> None:
        script = "trap '' TERM; echo deaf; sleep 60"
        backend.submit(self.spec(folder, script), ref)
        assert next(iter(backend.logs(ref))).text == "deaf"
        backend.cancel(ref)
        backend.cancel(ref)
        assert self.finish(backend, ref).phase is Phase.CANCELLED

    def test_a_finished_job_is_not_cancelled(
        self, backend: Backend, ref: JobRef, folder: Path
    ) -> None:
        backend.submit(self.spec(folder, "true"), ref)
        self.finish(backend, ref)
        backend.cancel(ref)
        assert self.finish(backend, ref).phase is Phase.SUCCEEDED

    def test_delete_ends_a_job_and_its_streams(
        self, backend: Backend, ref: JobRef, folder: Path
    ) -> None:
        backend.submit(self.spec(folder, "echo up; sleep 60"), ref)
        lines: list[LogLine] = []
        reader = threading.Thread(target=lambda: lines.extend(backend.logs(ref)))
        reader.start()
        next(iter(backend.watch(ref)))
        backend.delete(ref)
        reader.join(timeout=20)
        assert not reader.is_alive()
        backend.delete(ref)
        with pytest.raises(NotFound):
            backend.cancel(ref)

    def test_find(self, backend: Backend, ref: JobRef, folder: Path) -> None:
        assert backend.find({"job": ref.name}) == []
        backend.submit(self.spec(folder, "sleep 60"), ref)
        assert [found.name for found in backend.find({"job": ref.name})] == [ref.name]
        assert backend.find({"job": "another"}) == []

    def test_render_is_json_and_starts_nothing(
        self, backend: Backend, ref: JobRef, folder: Path
    ) -> None:
        spec = self.spec(folder, f"touch {folder}/started", nodes=2)
        assert backend.render(spec, ref) == json.loads(json.dumps(backend.render(spec, ref)))
        assert backend.find({"job": ref.name}) == []
        assert not (folder / "started").exists()

    def test_validate_refuses_and_starts_nothing(
        self, backend: Backend, ref: JobRef, folder: Path
    ) -> None:
        wrong, said = self.impossible
        with pytest.raises(SpecError, match=said):
            backend.validate(self.spec(folder / "new", "true", **wrong))
        assert not (folder / "new").exists()
