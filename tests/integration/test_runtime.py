"""The runtime in real JAX processes, started as a node starts them and without a launcher."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

PROGRAMS = """
import os, sys, time
import numpy as np
from kfp_jax_runtime import Stopped

def gather(run):
    import jax
    from jax.experimental import multihost_utils
    everyone = multihost_utils.process_allgather(np.array([run.process_index]))
    run.report(1, loss=jax.numpy.float32(0.5), sum=everyone.sum())
    return {"processes": jax.process_count()}

def batches(run):
    import jax
    from kfp_jax_runtime import mesh
    everywhere = mesh.data_mesh()
    rows = mesh.local_rows(6, everywhere)
    batch = mesh.global_batch(everywhere, {"x": np.full((rows, 2), run.process_index + 1.0)})["x"]
    run.report(1, rows=rows, height=batch.shape[0], sum=jax.jit(jax.numpy.sum)(batch))
    mesh.local_rows(7, everywhere)

def plain(run):
    return {"joined": "jax" in sys.modules, "attempt": run.attempt}

def fails(run):
    meet()
    if run.process_index == 1:
        raise ValueError("no such thing")
    for _ in range(1000):
        meet()

def exits(run):
    meet()
    if run.process_index == 1:
        sys.exit(3)
    for _ in range(1000):
        meet()

def ends_well_by_exit(run):
    sys.exit(0)

def diverges(run):
    meet()
    for step in range(10):
        run.report(step, loss=float("nan") if step == 4 else 1.0)

def until_stopped(run):
    meet()
    state, _ = state_of(run, 1)
    # Far from 0, as after a restore: steps are not what `stop_requested` counts.
    for step in range(1000, 10_000):
        run.report(step, loss=1.0)
        if step == 1002:
            run.checkpoints.save(step, state)
        if run.stop_requested:
            run.checkpoints.save(step, state)
            print("stopped at", step, run.checkpoints.restore(state)[0], flush=True)
            raise Stopped(step)
        time.sleep(0.01)

def never_asks(run):
    run.progress(0, 1)
    time.sleep(60)

def saves(run):
    for step in (10, 20, 30):
        run.checkpoints.save(step, state_of(run, step)[0])
    return {"saved": 30}

def restores(run):
    import jax
    _, like = state_of(run, 0)
    step, state = run.checkpoints.restore(like)
    return {
        "step": step,
        "sum": float(state["w"].sum()),
        "position": state["position"],
        "devices": len(state["w"].sharding.device_set),
        "saved_again": run.checkpoints.save(step, state),
        "saved_next": run.checkpoints.save(step + 1, state),
    }

def restores_apart(run):
    from kfp_jax_runtime.checkpoint import Checkpoints
    _, like = state_of(run, 0)
    folder = run.output_dir / f"checkpoints-{run.process_index}"
    step, state = Checkpoints(folder, {}, restored=lambda step, saved_with: None).restore(like)
    print("restored", step, int(state["position"]), float(state["w"].sum()), flush=True)

def exports(run):
    import jax, jax.numpy as jnp
    from kfp_jax_runtime.export import export_model
    params = {"layers": [{"w": jnp.full((2, 2), i)} for i in range(12)]}
    def predict(params, inputs):
        x = inputs.astype(jnp.float32)
        for layer in params["layers"][1:2]:
            x = x @ layer["w"]
        return x + params["layers"][11]["w"][0]
    for _ in range(2):
        example = np.zeros((1, 2), np.uint8)
        export_model(run.model_dir, predict, params, example, {"classes": ["a", "b"]})

def meet():
    from jax.experimental import multihost_utils
    multihost_utils.process_allgather(np.zeros(1))

def state_of(run, value):
    import jax
    from kfp_jax_runtime import mesh
    everywhere = mesh.data_mesh()
    state = {"w": np.full((3, 2), value, np.float32), "position": value, "n": np.int32(value)}
    state["w"] = mesh.replicate(everywhere, state["w"])
    like = state | {
        "w": jax.ShapeDtypeStruct((3, 2), np.float32, sharding=mesh.replicated(everywhere))
    }
    return state, like
"""

TOUCHES_JAX = """
import jax
jax.devices()
def main(run): ...
"""

SLOW_IMPORT = """
import time
print("importing", flush=True)
time.sleep(60)
"""


@dataclass
class Ended:
    """What one process left behind."""

    code: int
    seconds: float
    out: str
    err: str

    def reports(self, kind: str) -> list[dict[str, Any]]:
        tagged = [line for line in self.out.splitlines() if line.startswith("@kfp-jax ")]
        parsed = [json.loads(line.removeprefix("@kfp-jax ")) for line in tagged]
        return [report for report in parsed if report["kind"] == kind]

    def only(self, kind: str) -> dict[str, Any]:
        (report,) = self.reports(kind)
        return report


class Job:
    """Starts processes with the environment that every backend gives them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "output"
        self.processes: list[subprocess.Popen[str]] = []
        (folder / "programs.py").write_text(PROGRAMS)
        (folder / "touches_jax.py").write_text(TOUCHES_JAX)
        (folder / "slow_import.py").write_text(SLOW_IMPORT)

    def start(
        self,
        program: str,
        count: int = 1,
        extra: Mapping[str, str] | None = None,
        prefix: tuple[str, ...] = (),
    ) -> list[subprocess.Popen[str]]:
        self.started = time.monotonic()
        port = free_port()
        environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | {
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
            "JAX_COORDINATOR_BIND_ADDRESS": f"127.0.0.1:{port}",
            "JAX_NUM_PROCESSES": str(count),
            "KFP_JAX_OUTPUT_URI": str(self.output),
            **(extra or {}),
        }
        self.processes = [
            subprocess.Popen(
                [*prefix, sys.executable, "-m", "kfp_jax_runtime.bootstrap", program],
                env=environ | {"JAX_PROCESS_ID": str(index)},
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for index in range(count)
        ]
        return self.processes

    def end(self, process: subprocess.Popen[str]) -> Ended:
        out, err = process.communicate(timeout=60)
        return Ended(process.returncode, time.monotonic() - self.started, out, err)

    def run(self, program: str, count: int = 1, **options: Any) -> list[Ended]:
        return [self.end(process) for process in self.start(program, count, **options)]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    for process in job.processes:
        process.kill()
        process.communicate()


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


def wait_for(process: subprocess.Popen[str], text: str) -> str:
    """Reads a process's output up to the first line with `text`."""
    assert process.stdout is not None
    read = ""
    for line in process.stdout:
        read += line
        if text in line:
            return read
    pytest.fail(f"{text!r} never came; stdout was: {read}")


def test_two_processes_join_and_exchange_values(job: Job) -> None:
    first, second = job.run("programs:gather", 2)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert [p.only("joined")["process"] for p in (first, second)] == [0, 1]
    assert first.only("metrics")["values"] == {"loss": 0.5, "sum": 1}
    assert first.only("result")["values"] == {"processes": 2}
    assert set(first.only("result")["versions"]) == {"python", "jax", "jaxlib", "flax", "kfp_jax"}
    assert second.reports("metrics") == second.reports("result") == []


def test_a_global_batch_is_made_of_every_processs_rows_and_must_divide(job: Job) -> None:
    first, second = job.run("programs:batches", 2)
    assert first.only("metrics")["values"] == {"rows": 3, "height": 6, "sum": 18.0}
    assert (first.code, second.code) == (64, 64)
    assert "a global batch of 7 rows does not divide evenly among 2 devices" in first.err


def test_the_machines_own_name_is_never_looked_up(job: Job) -> None:
    allowed = subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False)
    if allowed.returncode != 0:
        pytest.skip("unshare --uts is not permitted here")
    rename = ("unshare", "--uts", "sh", "-c", 'hostname no-such-machine && exec "$@"', "sh")
    ends = job.run("programs:gather", 2, prefix=rename)
    assert [end.code for end in ends] == [0, 0], ends[0].err


def test_the_cluster_is_never_asked_who_is_who(job: Job) -> None:
    # With this variable JAX takes itself to be in a pod, and would read a token that is not there.
    ends = job.run("programs:gather", 2, extra={"KUBERNETES_SERVICE_HOST": "127.0.0.1"})
    assert [end.code for end in ends] == [0, 0], ends[0].err


def test_a_proxy_in_the_environment_is_not_asked_for_the_coordinator(job: Job) -> None:
    proxy = "http://127.0.0.1:9"
    ends = job.run("programs:gather", 2, extra={"http_proxy": proxy, "https_proxy": proxy})
    assert [end.code for end in ends] == [0, 0], ends[0].err


def test_sigterm_between_joining_and_the_first_step_is_not_lost(job: Job) -> None:
    processes = job.start("programs:until_stopped", 2)
    wait_for(processes[1], "joined")
    processes[1].send_signal(signal.SIGTERM)
    assert [job.end(process).code for process in processes] == [75, 75]


def test_a_second_start_compiles_nothing_anew(job: Job) -> None:
    def entries() -> set[str]:
        folder = job.folder / "cache" / "kfp-jax" / "xla"
        return {path.name for path in folder.iterdir() if not path.name.endswith("-atime")}

    assert [end.code for end in job.run("programs:gather", 2)] == [0, 0]
    first = entries()
    ends = job.run("programs:gather", 2)
    assert [end.code for end in ends] == [0, 0]
    assert first == entries() != set()
    assert "compil" not in ends[0].err


@pytest.mark.parametrize("count", ["", "1", None])
def test_a_lone_process_starts_nothing_distributed(job: Job, count: str | None) -> None:
    (process,) = job.start(
        "programs:plain",
        prefix=("env", "-u", "JAX_NUM_PROCESSES") if count is None else (),
        extra={"KFP_JAX_ATTEMPT": "2"} | ({} if count is None else {"JAX_NUM_PROCESSES": count}),
    )
    end = job.end(process)
    assert end.code == 0, end.err
    assert end.err == ""
    assert end.only("joined")["processes"] == 1
    assert end.only("result")["values"] == {"joined": 0, "attempt": 2}


def test_an_exception_ends_its_process_at_once_and_the_victims_soon(job: Job) -> None:
    victim, culprit = job.run("programs:fails", 2)
    assert culprit.code == 1
    error = culprit.only("error")
    assert (error["process"], error["reason"]) == (1, "exception")
    assert error["message"] == "ValueError: no such thing"
    assert culprit.err.count("Traceback (most recent call last):") == 1
    assert 'raise ValueError("no such thing")' in culprit.err
    assert "bootstrap.py" not in culprit.err
    assert error["traceback"] in culprit.err
    # Either Gloo's error or JAX's own abort comes first; both say that it was another process.
    assert victim.code in (1, -signal.SIGABRT)
    for report in victim.reports("error"):
        assert "Gloo" in report["message"] or "coordination" in report["message"]
    assert victim.seconds < 30


def test_sys_exit_keeps_its_code(job: Job) -> None:
    _, culprit = job.run("programs:exits", 2)
    assert culprit.code == 3
    assert culprit.only("error")["message"] == "the program called sys.exit(3)"
    assert "Traceback" not in culprit.err


def test_sys_exit_0_is_success(job: Job) -> None:
    (end,) = job.run("programs:ends_well_by_exit")
    assert end.code == 0
    assert end.only("result")["values"] == {}


def test_a_diverged_loss_fails_every_process_at_its_step(job: Job) -> None:
    ends = job.run("programs:diverges", 2)
    assert [end.code for end in ends] == [65, 65], ends[1].err
    assert ends[0].reports("metrics")[-1]["values"] == {"loss": "NaN"}
    for end in ends:
        assert (end.only("error")["reason"], end.only("error")["step"]) == ("diverged", 4)
        assert end.seconds < 20


@pytest.mark.parametrize("signalled", [0, 1])
def test_sigterm_to_one_of_two_stops_both_at_the_same_step(job: Job, signalled: int) -> None:
    processes = job.start("programs:until_stopped", 2)
    early = wait_for(processes[0], '"step":1005,')
    assert early.count("\n") > 5
    processes[signalled].send_signal(signal.SIGTERM)
    time.sleep(0.1)
    processes[signalled].send_signal(signal.SIGTERM)
    ends = [job.end(process) for process in processes]
    assert [end.code for end in ends] == [75, 75], ends[0].err + ends[1].err
    steps = {end.only("error")["step"] for end in ends}
    assert len(steps) == 1
    (step,) = steps
    for end in ends:
        assert f"stopped at {step} {step}" in end.out
        assert end.only("error")["reason"] == "stopped"
    assert (job.output / "checkpoints" / str(step)).is_dir()


def test_sigterm_to_a_lone_process_stops_it_after_saving(job: Job) -> None:
    (process,) = job.start("programs:until_stopped")
    wait_for(process, '"step":1005,')
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    end = job.end(process)
    assert end.code == 75, end.err
    assert "stopped at" in end.out


@pytest.mark.parametrize(
    ("program", "until"), [("slow_import", "importing"), ("programs:never_asks", "progress")]
)
def test_sigterm_to_a_process_that_does_not_ask_ends_it(job: Job, program: str, until: str) -> None:
    (process,) = job.start(program)
    wait_for(process, until)
    process.send_signal(signal.SIGTERM)
    end = job.end(process)
    assert end.code == 75
    assert end.only("error")["reason"] == "stopped"


def test_several_processes_that_have_met_and_do_not_ask_go_on_after_sigterm(job: Job) -> None:
    processes = job.start("programs:never_asks", 2)
    wait_for(processes[0], "progress")
    wait_for(processes[1], "joined")
    for process in processes:
        process.send_signal(signal.SIGTERM)
    time.sleep(1)
    assert [process.poll() for process in processes] == [None, None]


def test_sigterm_while_waiting_for_the_others_ends_a_process(job: Job) -> None:
    processes = job.start("programs:gather", 2)
    processes[0].kill()
    time.sleep(2.5)
    assert processes[1].poll() is None
    processes[1].send_signal(signal.SIGTERM)
    assert job.end(processes[1]).code == 75


def test_checkpoints_of_two_processes_go_on_in_one_and_in_four(job: Job) -> None:
    saved_with = {"KFP_JAX_PARAMETERS": '{"rate": 0.1, "epochs": 3}'}
    now = {"KFP_JAX_PARAMETERS": '{"rate": 0.2, "epochs": 3}'}
    assert [end.code for end in job.run("programs:saves", 2, extra=saved_with)] == [0, 0]
    folder = job.output / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == ["20", "30"]
    # What a save leaves that was killed half-way: its folder before the final rename.
    leftover = folder / "40.orbax-checkpoint-tmp"
    (leftover / "default").mkdir(parents=True)
    expected = {"step": 30, "sum": 180.0, "position": 30, "saved_again": 0, "saved_next": 1}
    (one,) = job.run("programs:restores", extra=now)
    assert one.code == 0, one.err
    assert one.only("restored")["step"] == 30
    assert one.only("restored")["saved_with"] == {"rate": 0.1}
    assert one.only("result")["values"] == expected | {"devices": 1}
    assert not leftover.exists()
    four = job.run("programs:restores", 4)
    assert [end.code for end in four] == [0] * 4, four[0].err
    changed = {"step": 31, "devices": 4}
    assert four[0].only("result")["values"] == expected | changed
    assert [len(end.reports("restored")) for end in four] == [1, 0, 0, 0]


def test_a_checkpoint_that_one_process_cannot_read_is_passed_over_by_all(job: Job) -> None:
    assert [end.code for end in job.run("programs:saves", 2)] == [0, 0]
    for process in (0, 1):
        shutil.copytree(job.output / "checkpoints", job.output / f"checkpoints-{process}")
    (job.output / "checkpoints-1" / "30" / "default" / "manifest.ocdbt").unlink()
    ends = job.run("programs:restores_apart", 2)
    assert [end.code for end in ends] == [0, 0], ends[0].err + ends[1].err
    for end in ends:
        assert "restored 20 20 120.0" in end.out
        assert "going on from the checkpoint of step 20, because that of step 30" in end.err
    assert "cannot be read: by another process" in ends[0].err
    assert "cannot be read: NOT_FOUND" in ends[1].err


def test_an_exported_model_loads_without_this_package(job: Job) -> None:
    ends = job.run("programs:exports", 2)
    assert [end.code for end in ends] == [0, 0], ends[0].err
    assert ends[0].only("result")["model"] == "model"
    assert [path.name for path in job.output.iterdir()] == ["model"]
    description = json.loads((job.output / "model" / "model.json").read_text())
    assert description["schema"] == 1
    assert description["input"] == {"shape": [None, 2], "dtype": "uint8"}
    assert description["classes"] == ["a", "b"]
    script = "\n".join(
        [
            "import sys, numpy",
            "sys.modules['kfp_jax_runtime'] = sys.modules['flax'] = None",
            "inputs = numpy.array([[1, 2], [3, 4], [5, 6]], numpy.uint8)",
            *description["how_to_load"],
            "print(outputs.tolist())",
        ]
    )
    loaded = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=job.output,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(loaded.stdout) == [[14.0, 14.0], [18.0, 18.0], [22.0, 22.0]]


def test_jax_used_before_joining_is_one_clear_error(job: Job) -> None:
    ends = job.run("touches_jax", 2)
    assert [end.code for end in ends] == [64, 64]
    for index, end in enumerate(ends):
        assert end.only("error")["reason"] == "bad-input"
        assert end.only("error")["message"].startswith(
            f"JAX was used before process {index} could join the other 1"
        )
        assert len(end.err.splitlines()) == 1


def test_bad_input_is_refused_before_anything_is_joined(job: Job) -> None:
    ends = job.run("programs:nope", 2)
    assert [end.code for end in ends] == [64, 64]
    assert "has no function 'nope'" in ends[1].err
    assert ends[0].reports("joined") == []


def test_an_output_folder_that_cannot_be_made_is_bad_input(job: Job) -> None:
    job.output.touch()
    (end,) = job.run("programs:plain")
    assert end.code == 64
    assert f"the output folder {job.output} cannot be created" in end.err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["programs:gather"], 0, ""),
        (["touches_jax"], 0, ""),
        (["nothing_here"], 64, "there is no module 'nothing_here'"),
    ],
)
def test_check_judges_a_program_by_exit_code_and_one_sentence(
    job: Job, arguments: list[str], code: int, says: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "kfp_jax_runtime.check", *arguments],
        cwd=job.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (code, "")
    assert says in ended.stderr
    assert len(ended.stderr.splitlines()) == (1 if says else 0)
