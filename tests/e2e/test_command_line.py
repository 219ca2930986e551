"""The command line on a real cluster: jobs that kubectl, the Kubeflow SDK and launchers made."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.mnist import mnist
from e2e.places import ACCOUNT, Place, account, kubectl, until
from e2e.sdk import python_with_sdk
from kfp_jax.backends.choice import Cluster, on_cluster
from kfp_jax.kube.resources import JOBSETS, QUOTAS, TRAINJOBS
from kfp_jax.launch import job_ref
from kfp_jax.manifests.pod import CPU

Done = subprocess.CompletedProcess[str]
Run = Callable[..., Done]

HELLO = 'echo "hello from $JAX_PROCESS_ID"; sleep 3; echo done'
FOR_EVER = 'trap "echo saved; exit 0" TERM; echo started; while :; do sleep 0.2; done'
SMALL = {"requests": {"cpu": "100m", "memory": "64Mi"}}
SDK = """
import sys
from kubeflow.common.types import KubernetesBackendConfig
from kubeflow.trainer import CustomTrainerContainer, TrainerClient
from kubeflow.trainer.options import TrainerCommand

namespace, runtime, image, script = sys.argv[1:]
client = TrainerClient(KubernetesBackendConfig(namespace=namespace))
trainer = CustomTrainerContainer(image=image, num_nodes=2)
print(client.train(runtime=client.get_runtime(runtime), trainer=trainer,
                   options=[TrainerCommand(command=["sh", "-c", script])]))
"""


@pytest.fixture
def run(place: Place) -> Run:
    """Returns `run(*arguments)`: the command line, in the test's namespace."""

    def run(*arguments: str, code: int = 0, kubeconfig: str = "") -> Done:
        environ = os.environ | ({"KUBECONFIG": kubeconfig} if kubeconfig else {})
        command = [sys.executable, "-c", "from kfp_jax.cli import main; main()", *arguments]
        command[4:4] = ["--namespace", place.namespace]
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}\n{place.story()}"
        return done

    return run


def by_hand(script: str) -> dict[str, Any]:
    """Returns a TrainJob as people write it."""
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "hand-made"},
        "spec": {
            "runtimeRef": {"name": "kfp-jax-cpu"},
            "trainer": {
                "numNodes": 2,
                "command": ["sh", "-c", script],
                "resourcesPerNode": SMALL,
            },
        },
    }


def apply(place: Place, manifest: dict[str, Any]) -> None:
    kubectl("apply", "-n", place.namespace, "-f", "-", text=yaml.safe_dump(manifest))


def phase(run: Run, name: str) -> str:
    found = json.loads(run("status", name, "--json").stdout)["phase"]
    assert isinstance(found, str)
    return found


def follow_to_the_end(run: Run, name: str, phase_at_end: str = "SUCCEEDED") -> None:
    """Checks that a job that greets from two processes is followed to its end and then shown."""
    (listed,) = json.loads(run("list", "--json").stdout)
    assert (listed["name"], listed["nodes"], listed["made_by_kfp_jax"]) == (name, 2, False)
    lines = run("logs", name, "--follow").stdout.splitlines()
    assert sorted(lines) == [
        "[0] done",
        "[0] hello from 0",
        "[1] done",
        "[1] hello from 1",
    ]
    until(f"{name} has ended", lambda: phase(run, name) == phase_at_end)
    detail = json.loads(run("status", name, "--json").stdout)
    assert [item["state"] for item in detail["processes"]] == ["exited 0", "exited 0"]
    assert {"Scheduled", "Started"} <= {item["reason"] for item in detail["events"]}
    assert "kfp-jax did not make this" in detail["missing"][0]


def cancel_while_it_runs(run: Run, place: Place, name: str) -> None:
    until(f"{name} runs", lambda: phase(run, name) == "RUNNING")
    heard: list[str] = []
    reader = threading.Thread(
        target=lambda: heard.append(run("logs", name, "--follow", "--process", "1").stdout)
    )
    reader.start()
    until("it was heard", lambda: "started" in run("logs", name, "--process", "1").stdout)
    assert "is cancelled" in run("cancel", name).stderr
    reader.join(timeout=60)
    assert heard
    assert heard[0].splitlines()[0] == "[1] started"
    until("its pods are gone", lambda: not place.pods())
    until("it is gone", lambda: "No jobs" in run("list").stderr)
    run("status", name, code=66)


def test_a_trainjob_that_kubectl_made_is_followed_to_its_end(place: Place, run: Run) -> None:
    apply(place, by_hand(HELLO))
    follow_to_the_end(run, "hand-made")
    assert "has succeeded already" in run("cancel", "hand-made").stderr
    run("delete", "hand-made")
    until("it is gone", lambda: place.is_gone(TRAINJOBS, "hand-made"))


def test_a_trainjob_that_kubectl_made_is_cancelled(place: Place, run: Run) -> None:
    apply(place, by_hand(FOR_EVER))
    cancel_while_it_runs(run, place, "hand-made")


def test_a_jobset_with_names_of_its_own_is_followed_and_cancelled(place: Place, run: Run) -> None:
    place.admit("baseline")  # as people write it, it is not restricted
    container = {
        "name": "main",
        "image": CPU.image,
        "command": ["sh", "-c", FOR_EVER],
        "resources": SMALL,
    }
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": pod}
    manifest = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "hand-made"},
        "spec": {"replicatedJobs": [{"name": "workers", "template": {"spec": job}}]},
    }
    apply(place, manifest)
    cancel_while_it_runs(run, place, "hand-made")
    assert place.is_gone(JOBSETS, "hand-made")


@pytest.fixture(scope="session")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_with_sdk(tmp_path_factory.mktemp("sdk"))


def train_by_sdk(sdk: Path, place: Place, script: str) -> str:
    command = [sdk, "-c", SDK, place.namespace, "kfp-jax-cpu", CPU.image, script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


def test_a_job_of_the_kubeflow_sdk_is_followed_to_its_end(
    place: Place, run: Run, sdk: Path
) -> None:
    follow_to_the_end(run, train_by_sdk(sdk, place, HELLO))


def test_a_job_of_the_kubeflow_sdk_is_cancelled(place: Place, run: Run, sdk: Path) -> None:
    cancel_while_it_runs(run, place, train_by_sdk(sdk, place, FOR_EVER))


def test_a_training_shows_its_progress_and_is_cleaned_up(
    place: Place, run: Run, dataset: Path
) -> None:
    backend = on_cluster(
        "trainer", place.client, Cluster(namespace=place.namespace, labels={"run": "run-7"})
    )
    spec = mnist(place.folder, dataset, max_restarts=1)  # so it brings its own runtime
    ref = backend.submit(spec, job_ref(spec, backend))
    until("it reports", lambda: json.loads(run("status", ref.name, "--json").stdout)["metrics"])
    shown = run("status", ref.name).stdout
    for text in ("progress", "run-7", f"TrainingRuntime/{ref.name}"):
        assert text in shown
    assert "was kept: a launcher followed it" in run("cleanup", "--run", "run-7").stderr
    assert "was deleted" in run("cleanup", "--run", "run-7", "--followed").stderr
    until("its pods are gone", lambda: not place.pods())
    left = kubectl("get", "trainjobs,jobsets,trainingruntimes,pods", "-n", place.namespace)
    assert left == ""


@pytest.mark.parametrize("backend", ["trainer", "jobset"])
def test_a_job_that_was_run_is_cancelled_from_another_terminal(
    place: Place, run: Run, backend: str
) -> None:
    pods = {"resources": {"cpu": "100m", "memory": "64Mi"}}
    where = ["--backend", backend, "--pods", json.dumps(pods), "--output", str(place.folder / "o")]
    command = ["run", *where, "--nodes", "2", "--name", "long", "--", "sh", "-c", FOR_EVER]
    ended: list[Done] = []
    launcher = threading.Thread(target=lambda: ended.append(run(*command, code=130)))
    launcher.start()
    (job,) = until("it is there", lambda: json.loads(run("list", "--json").stdout))
    until("it runs", lambda: phase(run, job["name"]) == "RUNNING")
    run("cancel", job["name"])
    launcher.join(timeout=90)
    assert ended
    assert ended[0].stderr.splitlines()[-1] == f"Job {job['name']} was cancelled."
    assert "[1] saved" in ended[0].stderr
    assert not place.pods()


@pytest.mark.parametrize("backend", ["trainer", "jobset"])
def test_validate_asks_and_stores_nothing(place: Place, run: Run, backend: str) -> None:
    job = ["--nodes", "2", "--volume", "work:/mnt/work", "--output", "/mnt/work/out", "--", "true"]
    done = run("validate", "--backend", backend, *job)
    assert f"The backend {backend} would take this job." in done.stderr
    refused = run(
        "validate",
        "--backend",
        backend,
        "--pods",
        '{"volumes": [{"name": "v", "mount_path": "/mnt/work", "source": {"noSuchKind": {}}}]}',
        *job[:2],
        "--output",
        "/mnt/work/out",
        "--",
        "true",
        code=2,
    )
    assert "noSuchKind" in refused.stderr
    assert "No jobs" in run("list").stderr


def test_doctor_is_content_with_the_launchers_account_and_not_with_another(
    place: Place, run: Run, tmp_path: Path
) -> None:
    sound = run("doctor", "--backend", "trainer", kubeconfig=account(place, ACCOUNT, tmp_path))
    assert "this account may do all that a launcher does" in sound.stdout
    assert sound.stdout.splitlines()[-1] == "A job can run: trainer."
    config = account(place, "default", tmp_path)
    poor = run("doctor", "--backend", "trainer", code=69, kubeconfig=config)
    assert "this account may not create, delete, get, list, watch, patch" in poor.stdout


def test_doctor_finds_a_quota_before_a_job_does(place: Place, run: Run) -> None:
    run("doctor", "--backend", "jobset")
    place.create(
        QUOTAS, {"metadata": {"name": "small"}, "spec": {"hard": {"requests.cpu": "500m"}}}
    )
    assert "quota small" in run("doctor", "--backend", "jobset", code=69).stdout
    run("doctor", "--backend", "jobset", "--cpu", "200m")


def test_a_name_that_is_too_long_for_its_jobset_is_told_and_can_be_deleted(
    place: Place, run: Run
) -> None:
    name = "n" * 63  # a TrainJob may have it, and the pods of a JobSet may not
    job = by_hand("sleep 1")
    kubectl(
        "apply", "-n", place.namespace, "-f", "-",
        text=json.dumps(job | {"metadata": {"name": name}}),
    )  # fmt: skip

    def told() -> str:
        found: str = json.loads(run("status", name, "--json").stdout)["message"]
        return found

    assert "JobSet name is too long" in until("the reason is told", told)
    assert [item["name"] for item in json.loads(run("list", "--json").stdout)] == [name]
    run("logs", name)
    run("delete", name)
    assert place.is_gone(TRAINJOBS, name)
