"""The commands that look at a cluster, against an API server in this process."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fakes.api_server import FakeApiServer
from fakes.cluster_objects import at, event, jobset, pod, trainjob
from fakes.kubeconfig import write_kubeconfig
from kfp_jax.cli import main
from kfp_jax.manifests.rights import LAUNCHER

TRAINER = "trainer.kubeflow.org/v1alpha1"
JOBSET = "jobset.x-k8s.io/v1alpha2"
JOB = "mnist-0a1b2c3d-1"
HERE = Path(__file__).parents[2] / "golden" / "cli"
PROGRESS = '@kfp-jax {"v": 1, "kind": "progress", "time": %d, "done": %d, "total": 400}\n'
METRICS = '@kfp-jax {"v": 1, "kind": "metrics", "time": 3, "step": 200, "values": {"loss": 0.25}}\n'


@dataclass
class Result:
    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    kinds = [(TRAINER, name) for name in ("trainjobs", "trainingruntimes")]
    with FakeApiServer(*kinds, (JOBSET, "jobsets")) as server:
        yield server


@pytest.fixture
def run(
    server: FakeApiServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Returns `run(*arguments)`: the command line, with a kubeconfig for the server."""
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(server, tmp_path)))

    def run(*arguments: str) -> Result:
        monkeypatch.setattr("sys.argv", ["kfp-jax", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        return Result(code if isinstance(code, int) else 0, *capsys.readouterr())

    return run


# Whole minutes at least: those are shown for another minute, however slow the machine is.
def ago(**delta: float) -> str:
    return at(timedelta(**delta), datetime.now(UTC))


def put(server: FakeApiServer, manifest: dict[str, Any], api: str, plural: str) -> str:
    return str(server.put(api, plural, manifest)["metadata"]["uid"])


def put_job(server: FakeApiServer, name: str = JOB, *, below: Any = None, **more: Any) -> str:
    """Makes a TrainJob with its JobSet, and returns its uid."""
    uid = put(server, trainjob(name, **{"created": ago(hours=3), **more}), TRAINER, "trainjobs")
    owned = jobset(name, owner=uid, labels=more.get("labels"), status=below)
    put(server, owned, JOBSET, "jobsets")
    return uid


def put_running_pods(server: FakeApiServer) -> None:
    for process in (0, 1):
        item = pod(process)
        put(server, item, "v1", "pods")
        name = item["metadata"]["name"]
        server.put("v1", "pods", {**item, "status": {"containerStatuses": [{}], "phase": "x"}})
        server.start(name)
        stored = server.find("v1", "pods", name)
        assert stored is not None
        server.log(name, f"hello from {process}\n")
        for line in (PROGRESS % (1, 100), PROGRESS % (3, 200), METRICS) if process == 0 else ():
            server.log(name, line)


def put_everything(server: FakeApiServer) -> None:
    put_job(server)
    put_running_pods(server)
    failed = {"conditions": [{"type": "Failed", "status": "True", "reason": "FailedJobs"}]}
    foreign = trainjob(
        "hand-made",
        labels={},
        status=failed,
        created=ago(days=3),
        runtimeRef={"kind": "ClusterTrainingRuntime", "name": "jax-distributed"},
        trainer={},
    )
    put(server, foreign, TRAINER, "trainjobs")
    waiting = jobset("sweep-9f8e7d6c-2", labels={"app.kubernetes.io/managed-by": "kfp-jax"})
    waiting["spec"]["suspend"] = True
    waiting["metadata"]["creationTimestamp"] = ago(minutes=2)
    put(server, waiting, JOBSET, "jobsets")
    events = [
        event("Pod", f"{JOB}-node-0-0-abcd0", "Started", "Container started", timedelta(0)),
        event("Job", f"{JOB}-node-0", "FailedCreate", "exceeded quota: cpu", timedelta(0), count=3),
    ]
    for minutes, item in zip((4, 5), events, strict=True):
        item["lastTimestamp"] = ago(minutes=minutes)
        put(server, item, "v1", "events")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("list", ["list"]),
        ("list-all", ["list", "--all-namespaces"]),
        ("status", ["status", JOB]),
        ("status-foreign", ["status", "hand-made"]),
        ("logs", ["logs", JOB, "--process", "0"]),
    ],
)
def test_what_is_printed_is_what_the_golden_file_holds(
    server: FakeApiServer,
    run: Run,
    golden: Callable[[Path, str], None],
    name: str,
    arguments: list[str],
) -> None:
    put_everything(server)
    result = run(*arguments)
    assert result.code == 0
    golden(HERE / f"{name}.txt", f"{result.out}--- beside it, on stderr:\n{result.err}")


def test_lists_for_machines_hold_what_the_table_holds(server: FakeApiServer, run: Run) -> None:
    put_everything(server)
    jobs = json.loads(run("list", "--json").out)
    assert [(job["name"], job["phase"]) for job in jobs] == [
        ("sweep-9f8e7d6c-2", "QUEUED"),
        (JOB, "RUNNING"),
        ("hand-made", "FAILED"),
    ]
    detail = json.loads(run("status", JOB, "--json").out)
    assert detail["progress"] == {"done": 200, "total": 400}
    assert detail["metrics"] == {"loss": 0.25}
    assert [item["state"] for item in detail["processes"]] == ["Running", "Running"]
    assert [item["reason"] for item in detail["events"]] == ["FailedCreate", "Started"]
    lines = [json.loads(line) for line in run("logs", JOB, "--json").out.splitlines()]
    assert sorted(line["process"] for line in lines) == [0, 0, 0, 0, 1]
    assert {"process": 1, "attempt": 1, "text": "hello from 1"} in lines


def test_an_empty_namespace_is_said_to_be_empty(run: Run) -> None:
    result = run("list")
    assert (result.code, result.out, result.err) == (0, "", "No jobs in namespace ns.\n")
    assert json.loads(run("list", "--json").out) == []


def test_a_context_brings_its_namespace_and_an_option_wins(server: FakeApiServer, run: Run) -> None:
    run("list", "--context", "other")
    run("list", "--context", "other", "--namespace", "third")
    paths = [call.path for call in server.calls("GET", "/trainjobs")]
    assert [path.split("/")[5] for path in paths] == ["other", "third"]


@pytest.mark.parametrize("command", ["status", "logs", "cancel", "delete"])
def test_a_job_that_is_not_there_is_one_sentence_and_code_66(run: Run, command: str) -> None:
    result = run(command, "nothing")
    assert (result.code, result.out) == (66, "")
    assert result.err == (
        "Namespace ns has neither a TrainJob nor a JobSet nothing; list its jobs with:"
        " kfp-jax list --namespace ns.\n"
    )


@pytest.mark.parametrize("command", ["status", "logs", "cancel", "delete"])
@pytest.mark.parametrize("name", ["", "a/b", "..", "A b"])
def test_what_is_no_name_is_refused_and_nothing_is_asked(
    server: FakeApiServer, run: Run, command: str, name: str
) -> None:
    put_job(server)
    result = run(command, name)
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        f"{name!r} is no job's name; give one that is listed by: kfp-jax list --namespace ns.\n"
    )
    assert server.calls("GET") == []


def test_without_rights_to_jobsets_trainjobs_are_listed_and_that_is_said(
    server: FakeApiServer, run: Run
) -> None:
    put_everything(server)
    refusal = 'jobsets is forbidden: User "u" cannot list resource "jobsets"'
    server.fail(403, times=10, path="/jobsets", message=refusal)
    result = run("list")
    assert result.code == 0
    assert "sweep" not in result.out
    assert refusal in result.err
    assert refusal in run("status", JOB).err


def test_without_any_right_the_refusal_is_the_answer(server: FakeApiServer, run: Run) -> None:
    server.fail(403, times=10, path="/", message='User "u" cannot list resource "trainjobs"')
    assert run("list").code == 77
    assert run("status", JOB).code == 77


@pytest.mark.parametrize("name", [JOB, "hand-made"])
def test_cancel_deletes_exactly_that_job(server: FakeApiServer, run: Run, name: str) -> None:
    uid = put_job(server, name, labels=None if name == JOB else {})
    result = run("cancel", name)
    assert result.code == 0
    assert "is cancelled" in result.err
    (call,) = server.calls("DELETE")
    assert call.path.endswith(f"/trainjobs/{name}")
    assert call.body["preconditions"] == {"uid": uid}
    assert server.find(TRAINER, "trainjobs", name) is None


def test_cancel_leaves_a_finished_job_and_delete_removes_it(
    server: FakeApiServer, run: Run
) -> None:
    put_job(server, below={"conditions": [{"type": "Completed", "status": "True"}]})
    result = run("cancel", JOB)
    assert result.code == 0
    assert "has succeeded already" in result.err
    assert server.calls("DELETE") == []
    assert run("delete", JOB).code == 0
    assert server.find(TRAINER, "trainjobs", JOB) is None


def test_a_jobset_of_its_own_is_cancelled_too(server: FakeApiServer, run: Run) -> None:
    put(server, jobset("hand-made", step="w", container="main"), JOBSET, "jobsets")
    assert run("cancel", "hand-made").code == 0
    assert server.find(JOBSET, "jobsets", "hand-made") is None


def test_a_jobs_own_runtime_goes_with_it(server: FakeApiServer, run: Run) -> None:
    put_job(server, runtimeRef={"kind": "TrainingRuntime", "name": JOB})
    put(server, {"metadata": {"name": JOB}}, TRAINER, "trainingruntimes")
    run("delete", JOB)
    assert server.find(TRAINER, "trainingruntimes", JOB) is None


def test_logs_follow_a_job_to_its_end(server: FakeApiServer, run: Run) -> None:
    put_job(server, "hand-made", labels={})
    first = pod(0, job="hand-made", phase="Running")
    put(server, first, "v1", "pods")
    name = first["metadata"]["name"]
    server.start(name)
    server.log(name, "one\n")

    def go_on() -> None:
        server.wait_for(lambda: bool(server.calls("GET", "/log", follow="true")))
        server.log(name, "two\n")
        server.exit(name)
        done = {"conditions": [{"type": "Complete", "status": "True"}]}
        put(server, trainjob("hand-made", labels={}, status=done), TRAINER, "trainjobs")

    others = threading.Thread(target=go_on)
    others.start()
    result = run("logs", "hand-made", "--follow")
    others.join()
    assert (result.code, result.out) == (0, "[0] one\n[0] two\n")


def test_status_does_without_a_log_that_its_machine_does_not_give(
    server: FakeApiServer, run: Run
) -> None:
    put_everything(server)
    server.fail(500, path="/log", message="no route to node-1")
    result = run("status", JOB)
    assert result.code == 0
    assert "no route to node-1" in result.err


def test_status_says_what_holds_a_job_up(server: FakeApiServer, run: Run) -> None:
    put_job(server)
    refusal = event("Job", f"{JOB}-node-0", "FailedCreate", "exceeded quota: q", timedelta(0))
    put(server, {**refusal, "type": "Warning"}, "v1", "events")
    detail = json.loads(run("status", JOB, "--json").out)
    assert (detail["phase"], detail["reason"]) == ("STARTING", "QuotaExceeded")
    assert detail["message"] == "exceeded quota: q"


def test_logs_of_a_process_that_is_not_there(server: FakeApiServer, run: Run) -> None:
    put_job(server)
    put_running_pods(server)
    result = run("logs", JOB, "--process", "2")
    assert (result.code, result.err) == (2, f"Job {JOB} has no process 2; it has 0, 1.\n")


def test_logs_of_the_run_before(server: FakeApiServer, run: Run) -> None:
    put_job(server)
    put_running_pods(server)
    name = pod(1)["metadata"]["name"]
    server.exit(name, 1)
    server.start(name)
    server.log(name, "again\n")
    assert run("logs", JOB, "--process", "1", "--previous").out == "[1] hello from 1\n"
    result = run("logs", JOB, "--process", "0", "--previous")
    assert (result.code, result.out) == (0, "")
    assert "no container that was restarted" in result.err


def test_a_run_before_whose_log_is_gone_is_no_output(server: FakeApiServer, run: Run) -> None:
    put_job(server)
    put_running_pods(server)
    for process in (0, 1):
        server.exit(pod(process)["metadata"]["name"], 1)
        server.start(pod(process)["metadata"]["name"])
    words = "unable to retrieve container logs for containerd://0f1e2d"
    server.logs["ns", pod(0)["metadata"]["name"]][-2].instead = words
    result = run("logs", JOB, "--previous")
    assert (result.code, result.out) == (66, "[1] hello from 1\n")
    assert result.err == (
        f"The log of the run before of process 0 (pod {pod(0)['metadata']['name']}) is gone from"
        f" its machine: {words}; a launcher of kfp-jax keeps logs in the output folder.\n"
    )


def test_status_does_without_a_log_that_is_gone(server: FakeApiServer, run: Run) -> None:
    put_everything(server)
    server.logs["ns", pod(0)["metadata"]["name"]][
        -1
    ].instead = "unable to retrieve container logs\n"
    result = run("status", JOB)
    assert result.code == 0
    assert "The log of process 0" in result.err


@pytest.mark.parametrize(
    "command", [("logs", JOB), ("logs", JOB, "--json"), ("list",), ("status", JOB)], ids=" ".join
)
def test_output_that_is_lost_is_an_error(
    server: FakeApiServer, tmp_path: Path, command: tuple[str, ...]
) -> None:
    put_everything(server)
    config = write_kubeconfig(server, tmp_path)
    with open("/dev/full", "w") as full:  # noqa: PTH123  a device
        ended = subprocess.run(
            [sys.executable, "-c", "from kfp_jax.cli import main; main()", *command],
            env={**os.environ, "KUBECONFIG": str(config)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    sentence = "The output cannot be written: No space left on device.\n"
    assert (ended.returncode, ended.stderr) == (74, sentence)


def test_logs_of_a_pending_job_say_so(server: FakeApiServer, run: Run) -> None:
    put_job(server, status={})
    result = run("logs", JOB)
    assert (result.code, result.out) == (0, "")
    assert "written nothing yet" in result.err


def test_logs_that_went_with_their_pods(server: FakeApiServer, run: Run) -> None:
    put_job(server, below={"conditions": [{"type": "Completed", "status": "True"}]})
    assert "its launcher kept them in the output folder" in run("logs", JOB).err


def test_cleanup_deletes_what_no_launcher_follows(server: FakeApiServer, run: Run) -> None:
    put_job(server)
    renewed = {"kfp-jax/renewed-at": ago(seconds=20)}
    put_job(server, "mnist-0a1b2c3d-2", annotations=renewed)
    other = {"app.kubernetes.io/managed-by": "kfp-jax", "kfp-jax/run": "run-8"}
    put_job(server, "other-0a1b2c3d-1", labels=other)
    result = run("cleanup", "--run", "run-7")
    assert result.code == 0
    assert f"TrainJob {JOB} was deleted: no launcher has followed it for 180 min." in result.err
    assert "TrainJob mnist-0a1b2c3d-2 was kept: a launcher followed it 2" in result.err
    done = json.loads(run("cleanup", "--run", "run-7", "--followed", "--json").out)
    assert [item["name"] for item in done] == ["mnist-0a1b2c3d-2"]
    assert "left nothing" in run("cleanup", "--run", "run-7").err
    assert server.find(TRAINER, "trainjobs", "other-0a1b2c3d-1")


def test_doctor_names_what_is_missing_and_ends_with_an_error(
    server: FakeApiServer, run: Run
) -> None:
    server.allowed = lambda asked: asked["resource"] != "events"
    result = run("doctor", "--backend", "trainer")
    assert result.code == 69
    lines = result.out.splitlines()
    assert any(line.split()[:3] == ["problem", "namespace", "ns"] for line in lines)
    assert any("runtimes/manifests" in line for line in lines)
    assert any("may not list, so nobody is told" in line for line in lines)
    assert lines[-1] == "A job can run: nowhere."
    assert result.err == (
        "No job can run on the cluster by the backend trainer; mend what is marked as a problem.\n"
    )


def test_doctor_asks_for_exactly_the_rights_of_the_launcher(
    server: FakeApiServer, run: Run
) -> None:
    run("doctor", "--backend", "jobset", "--json")
    asked = {
        (
            item.get("group", ""),
            item["resource"],
            item.get("subresource", ""),
            item["verb"],
            item.get("name", ""),
        )
        for call in server.calls("POST", "selfsubjectaccessreviews")
        for item in [call.body["spec"]["resourceAttributes"]]
    }
    assert asked == {
        (group, resource.partition("/")[0], resource.partition("/")[2], verb, right.name)
        for right in LAUNCHER
        for group, resource, verb in right.calls()
    }


def test_doctor_is_content_with_a_sound_cluster(server: FakeApiServer, run: Run) -> None:
    server.put("v1", "namespaces", {"metadata": {"name": "ns"}}, namespace="")
    schema = {"properties": {"restartStrategy": {}}}
    server.openapi[JOBSET] = {"components": {"schemas": {"v1alpha2.JobSet": schema}}}
    result = run("doctor", "--backend", "jobset")
    assert (result.code, result.out.splitlines()[-1]) == (0, "A job can run: jobset.")


STORES = {
    "kfps own": ({}, "ok", "minio://mlpipeline/v2/artifacts at http://seaweedfs.kubeflow:9000, by"),
    "the pods' own": (
        {"defaultPipelineRoot": "s3://b/root"},
        "ok",
        "s3://b/root at its own address, by an identity of the pods' own",
    ),
    "unclear": ({"providers": "minio: 1"}, "note", "has no mapping for minio"),
    "denied": (
        {
            "providers": json.dumps(
                {
                    "minio": {
                        "default": {
                            "credentials": {
                                "secretRef": {
                                    "secretName": "hidden",
                                    "accessKeyKey": "a",
                                    "secretKeyKey": "b",
                                }
                            }
                        }
                    }
                }
            )
        },
        "note",
        "whose secret hidden this account may not get",
    ),
}


@pytest.mark.parametrize("case", STORES)
def test_doctor_says_where_artifacts_go_and_whether_it_may_read_them(
    server: FakeApiServer, run: Run, case: str
) -> None:
    data, level, seen = STORES[case]
    server.put("v1", "configmaps", {"metadata": {"name": "kfp-launcher"}, "data": data})
    server.allowed = lambda attributes: attributes.get("name") != "hidden"
    found = json.loads(run("doctor", "--backend", "jobset", "--json").out)["findings"]
    (finding,) = [f for f in found["the cluster"] if f["check"] == "artifacts' store"]
    assert finding["level"] == level
    assert seen in finding["seen"]


def test_doctor_says_what_is_not_possible_without_the_secret(
    server: FakeApiServer, run: Run
) -> None:
    server.allowed = lambda attributes: attributes["resource"] != "secrets"
    found = json.loads(run("doctor", "--backend", "jobset", "--json").out)["findings"]
    (finding,) = [f for f in found["the cluster"] if f["check"].startswith("right secrets")]
    assert finding["check"] == "right secrets mlpipeline-minio-artifact"
    assert "no artifacts in the object store of Kubeflow Pipelines" in finding["seen"]


def test_an_unreachable_cluster_is_a_finding(server: FakeApiServer, run: Run) -> None:
    server.fail(403, path="/version")
    result = run("doctor", "--backend", "trainer", "--json")
    assert result.code == 69
    (finding,) = json.loads(result.out)["findings"]["the cluster"]
    assert finding["check"] == "API server"
    assert "get-contexts" in finding["remedy"]


def test_without_a_cluster_that_is_said(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    result = run("list")
    assert result.code == 69
    assert result.err.startswith("No cluster is known")


POD_OPTIONS = [
    *("--image", "team/train:3", "--cpu", "2", "--memory", "4Gi", "--gpus", "1"),
    *("--volume", "work:/mnt/work", "--volume", "data:/data:ro", "--queue", "training"),
]


@pytest.mark.parametrize("backend", ["trainer", "jobset"])
def test_render_shows_what_the_pod_options_ask_for(
    run: Run, golden: Callable[[Path, str], None], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", "/nowhere")
    command = ["--output", "/mnt/work/out", "--nodes", "2", "--", "python", "train.py"]
    result = run("render", "--backend", backend, "--namespace", "team", *POD_OPTIONS, *command)
    assert (result.code, result.err) == (0, "")
    golden(HERE / f"render-{backend}.json", result.out)


def test_validate_asks_the_server_and_stores_nothing(server: FakeApiServer, run: Run) -> None:
    server.put("v1", "namespaces", {"metadata": {"name": "ns"}}, namespace="")
    claim = {"metadata": {"name": "work"}, "spec": {"accessModes": ["ReadWriteMany"]}}
    server.put("v1", "persistentvolumeclaims", claim)
    arguments = ["--backend", "jobset", "--output", "/mnt/work/out", "--volume", "work:/mnt/work"]
    result = run("validate", *arguments, "--", "python", "train.py")
    assert (result.code, result.err) == (0, "The backend jobset would take this job.\n")
    (call,) = server.calls("POST", "/jobsets")
    assert call.query["dryRun"] == "All"
    assert server.objects.get((JOBSET, "jobsets"), {}) == {}
    server.fail(422, method="POST", path="/jobsets", message="spec.replicatedJobs is wrong")
    refused = run("validate", *arguments, "--", "python", "train.py")
    assert refused.code == 2
    assert "spec.replicatedJobs is wrong" in refused.err


def test_validate_here_says_that_a_cluster_was_named_for_nothing(run: Run, tmp_path: Path) -> None:
    arguments = ["--backend", "local", "--namespace", "team", "--output", str(tmp_path / "out")]
    result = run("validate", *arguments, "--", "true")
    assert result.code == 0
    assert "--namespace and --context are of no use" in result.err
