"""The `train` task of the compiled pipeline in a pod like the one that KFP's driver makes."""

import json
from pathlib import Path
from typing import Any

import yaml
from e2e.mnist import SMALL
from e2e.places import ACCOUNT, CLAIM, ROOT, SHARED, Place, until
from kfp_jax.kube.requests import Resource
from kfp_jax.kube.resources import PODS, TRAINJOBS

WORKFLOWS = Resource("argoproj.io", "v1alpha1", "workflows")
PIPELINE = ROOT / "pipelines" / "compiled" / "mnist.yaml"
POD = "mnist-x7k2p-system-container-impl-1234567890"
RUN = "5e0d2f0e-7a51-4f6b-9d2c-1b1f6c0f8a11"
TASK = "0b9f6b5c-3c1e-4f0a-8e62-6c4c9d1f2a33"  # the driver mints it, for this task alone
# What KFP fixes: where its launcher looks for a task's outputs.
OUTPUT_FILE = "/tmp/kfp_outputs/output_metadata.json"
OUTPUT_PARAMETER = "/tmp/kfp/outputs/Output"
# Argo runs it in place of a signal to process 1, after which all is over in a second.
KILL_COMMAND = "workflows.argoproj.io/kill-cmd-main"
# As the driver hands over what is set on the task.
TASK_CONFIG: dict[str, Any] = {
    "affinity": None,
    "tolerations": [{"effect": "NoSchedule", "key": "accelerator", "operator": "Exists"}],
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "env": [{"name": "SAID_BY_THE_TASK", "value": "hello"}],
    "volumes": None,
    "volumeMounts": None,
    "resources": {
        "limits": {"cpu": "2", "memory": "2Gi"},
        "requests": {"cpu": "150m", "memory": "300Mi"},
    },
}
SCRATCH = ("/gcs", "/s3", "/.local", "/.cache", "/.config")


def in_pods(path: Path) -> str:
    """Returns the path of what is in the shared folder where KFP has a bucket's content."""
    return str(Path("/minio") / path.relative_to(SHARED))


def executor_input(
    component: dict[str, Any], values: dict[str, Any], root: str, inputs: dict[str, str]
) -> dict[str, Any]:
    """Returns what the driver resolves for a task: values, defaults, and places of artifacts."""
    parameters = component["inputDefinitions"]["parameters"]
    defaults = {name: p["defaultValue"] for name, p in parameters.items() if "defaultValue" in p}
    made = component["outputDefinitions"]["artifacts"]
    given = component["inputDefinitions"].get("artifacts", {})
    return {
        "inputs": {
            "parameterValues": {**defaults, **values},
            "artifacts": {name: _artifact(name, given[name], uri) for name, uri in inputs.items()},
        },
        "outputs": {
            "parameters": {"Output": {"outputFile": OUTPUT_PARAMETER}},
            "artifacts": {
                name: _artifact(name, spec, f"{root}/{name}") for name, spec in made.items()
            },
            "outputFile": OUTPUT_FILE,
        },
    }


def _artifact(name: str, spec: dict[str, Any], uri: str) -> dict[str, Any]:
    found = {"name": name, "type": spec["artifactType"], "uri": uri, "metadata": {}}
    return {"artifacts": [found]}


def task_pod(
    place: Place,
    task: str,
    values: dict[str, Any],
    workflow: Any,
    pipeline: Path = PIPELINE,
    *,
    name: str = POD,
    root: str = "",
    inputs: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Returns the pod of a task of the pipeline.

    Its artifacts land in the place's folder, which its job's pods see too; or below `root`, where
    they see nothing of the task's own.
    """
    compiled = next(yaml.safe_load_all(pipeline.read_text()))
    component = compiled["components"][f"comp-{task}"]
    container = compiled["deploymentSpec"]["executors"][component["executorLabel"]]["container"]
    seen = in_pods(place.folder / "v2" / "artifacts" / "mnist" / RUN / task / TASK)
    uri = root or seen.replace("/minio/", "minio://", 1)
    given = executor_input(component, values, uri, inputs or {})
    args = [json.dumps(given) if arg == "{{$}}" else arg for arg in container["args"]]
    outputs = place.folder / ("outputs" if name == POD else f"outputs-{name}")
    outputs.mkdir()
    inside = str(outputs.relative_to(SHARED))
    shared = [("/tmp/kfp_outputs", inside), ("/tmp/kfp/outputs", inside)]
    scratch = [*SCRATCH]
    if root:
        scratch.append("/minio")
    else:
        shared.append(("/minio", ""))
    main = {
        "name": "main",
        "image": container["image"],
        "command": container["command"],
        "args": args,
        "env": [
            {
                "name": f"KFP_POD_{key.upper()}",
                "valueFrom": {"fieldRef": {"fieldPath": f"metadata.{key}"}},
            }
            for key in ("name", "uid")
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
            "runAsNonRoot": True,  # as kubernetes.set_security_context gives it
        },
        "volumeMounts": [
            *({"name": CLAIM, "mountPath": path, "subPath": below} for path, below in shared),
            *({"name": f"v{number}", "mountPath": path} for number, path in enumerate(scratch)),
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {
                "pipeline/runid": RUN,
                "pipelines.kubeflow.org/v2_component": "true",
                "workflows.argoproj.io/workflow": workflow["metadata"]["name"],
            },
            "ownerReferences": [
                {
                    "apiVersion": workflow["apiVersion"],
                    "kind": workflow["kind"],
                    "name": workflow["metadata"]["name"],
                    "uid": workflow["metadata"]["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": ACCOUNT,
            "containers": [main],
            "volumes": [
                {"name": CLAIM, "persistentVolumeClaim": {"claimName": CLAIM}},
                *({"name": f"v{number}", "emptyDir": {}} for number in range(len(scratch))),
            ],
        },
    }


def a_workflow(place: Place) -> Any:
    """Returns the Workflow of a run, as the owner of its pods."""
    return place.create(
        WORKFLOWS,
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "metadata": {"name": "mnist-x7k2p"},
            "spec": {},
        },
    )


def jobs(place: Place) -> list[Any]:
    return list(place.client.list(TRAINJOBS, place.namespace).items)


def nodes(place: Place) -> list[Any]:
    return place.pods("jobset.sigs.k8s.io/jobset-name")


def ended(place: Place, pod: str = POD) -> str:
    phase = place.get(PODS, pod)["status"]["phase"]
    return phase if phase in ("Succeeded", "Failed") else ""


def test_train_runs_to_its_end_and_hands_kfp_its_outputs(place: Place, dataset: Path) -> None:
    values = {
        "program": "kfp_jax_runtime.mnist",
        "parameters": SMALL,
        "num_nodes": 2,
        "dataset_uri": in_pods(dataset),
        "task_config": TASK_CONFIG,
    }
    workflow = a_workflow(place)
    place.create(PODS, task_pod(place, "train", values, workflow))
    until("the job is there", lambda: jobs(place) or ended(place), seconds=60)
    assert jobs(place), place.log(POD, "main")
    job = jobs(place)[0]["metadata"]
    assert job["labels"]["kfp-jax/run"] == RUN
    (owner,) = job["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Workflow", workflow["metadata"]["uid"])

    pod = until("a node is there", lambda: nodes(place) or ended(place), seconds=60)[0]
    assert pod["spec"]["nodeSelector"] == TASK_CONFIG["nodeSelector"]
    assert TASK_CONFIG["tolerations"][0] in pod["spec"]["tolerations"]
    (container,) = pod["spec"]["containers"]
    assert container["resources"] == TASK_CONFIG["resources"]
    assert TASK_CONFIG["env"][0] in container["env"]

    phase = until("the task ends", lambda: ended(place), seconds=150)
    log = place.log(POD, "main")
    assert phase == "Succeeded", f"{log}\n{place.story()}"

    outputs = place.folder / "outputs"
    written = json.loads((outputs / "output_metadata.json").read_text())
    accuracy = written["parameterValues"]["Output"]
    assert accuracy > 0.5
    metrics = written["artifacts"]["metrics"]["artifacts"][0]
    assert metrics["metadata"]["accuracy"] == accuracy

    folder = place.folder / "v2" / "artifacts" / "mnist" / RUN / "train" / TASK
    result = json.loads((folder / "result.json").read_text())
    assert (result["phase"], result["num_processes"]) == ("SUCCEEDED", 2)
    assert result["backend"] == "trainer"
    assert (folder / "model" / "model.json").is_file()
    assert "<svg" in (folder / "report").read_text()
    assert (folder / "history.jsonl").read_text().count("accuracy") >= 1
    # The launcher leaves nothing of the job behind.
    assert jobs(place) == []
    assert place.get(PODS, POD)["metadata"]["annotations"][KILL_COMMAND].startswith('["sh", ')


def test_a_failed_training_fails_the_task_with_the_reason_as_last_line(place: Place) -> None:
    values = {"program": "kfp_jax_runtime.mnist", "parameters": {"epochs": 0}}
    place.create(PODS, task_pod(place, "train", values, a_workflow(place)))
    phase = until("the task ends", lambda: ended(place), seconds=150)
    assert phase == "Failed"
    log = place.log(POD, "main").splitlines()
    assert "epochs must be at least 1, not 0" in log[-1]
    assert not (place.folder / "outputs" / "output_metadata.json").exists()
