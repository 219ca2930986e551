"""The double of KFP's driver: what is set on a task, in its pod and in its TaskConfig."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fakes.kfp.answers import ROOT, RUN, Answers, compiled, drive
from fakes.kfp.pods import Site, pod
from kfp import dsl, kubernetes

component = partial(dsl.component, base_image="python:3.11", install_kfp_package=False)
WORKFLOW: dict[str, Any] = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Workflow",
    "metadata": {"name": "tested-x7k2p", "uid": "a-uid"},
}
UNSET: dict[str, Any] = {
    "affinity": None,
    "tolerations": None,
    "nodeSelector": None,
    "env": [],
    "volumes": None,
    "volumeMounts": None,
    "resources": {},
}


@component(
    task_config_passthroughs=[
        dsl.TaskConfigField.RESOURCES,
        dsl.TaskConfigField.KUBERNETES_TOLERATIONS,
        dsl.TaskConfigField.KUBERNETES_NODE_SELECTOR,
        dsl.TaskConfigField.KUBERNETES_AFFINITY,
        dsl.TaskConfigPassthrough(field=dsl.TaskConfigField.ENV, apply_to_task=True),
        dsl.TaskConfigPassthrough(field=dsl.TaskConfigField.KUBERNETES_VOLUMES, apply_to_task=True),
    ]
)
def launching(task_config: dsl.TaskConfig) -> None:
    pass


@component
def plain(size: str = "1Gi") -> None:
    pass


@dsl.pipeline(name="everything")
def everything(claim: str, device: str = "nvidia.com/gpu") -> None:
    for task in (launching(), plain(size="2Gi")):
        task.set_cpu_limit("4").set_memory_limit("8G").set_accelerator_limit(2)
        task.set_accelerator_type(device)
        task.set_env_variable("SAID", "hello")
        kubernetes.use_secret_as_env(task, "token", {"key": "TOKEN"})
        kubernetes.use_field_path_as_env(task, "RUN", "metadata.labels['pipeline/runid']")
        kubernetes.mount_pvc(task, pvc_name=claim, mount_path="/data")
        kubernetes.add_toleration(task, key="gpu", operator="Exists", effect="NoSchedule")
        kubernetes.add_node_selector(task, "kind", "gpu")
        kubernetes.empty_dir_mount(task, "tmp", "/tmp")
        kubernetes.set_security_context(task, run_as_user=1000, run_as_non_root=True)
        kubernetes.set_image_pull_policy(task, "IfNotPresent")
        kubernetes.set_timeout(task, 60)
        kubernetes.add_pod_label(task, "team", "vision")
        kubernetes.add_pod_annotation(task, "note", "x")


VARIABLES = [
    {"name": "SAID", "value": "hello"},
    {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "key"}}},
    {"name": "RUN", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['pipeline/runid']"}}},
]
RESOURCES = {"limits": {"cpu": "4", "memory": "8G", "nvidia.com/gpu": "2"}}
VOLUME = {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}
MOUNT = {"name": "disk", "mountPath": "/data"}


@pytest.fixture
def answers(tmp_path: Path) -> Answers:
    found = Answers({})
    drive(compiled(everything, tmp_path), found, claim="disk")
    return found


def made(answers: Answers, name: str, site: Site) -> Any:
    (task,) = (task for task in answers.tasks if task.name == name)
    return pod(
        "a-pod", RUN.id, ROOT, site, task.component, task.container, task.platform, task.own,
        task.given,
    )  # fmt: skip


def test_what_is_passed_on_is_in_the_task_config_and_not_in_the_pod(answers: Answers) -> None:
    (given,) = answers.inputs("launching")
    assert given["task_config"] == UNSET | {
        "tolerations": [{"effect": "NoSchedule", "key": "gpu", "operator": "Exists"}],
        "nodeSelector": {"kind": "gpu"},
        "env": VARIABLES,
        "volumes": [VOLUME],
        "volumeMounts": [MOUNT],
        "resources": RESOURCES,
    }
    spec = made(answers, "launching", Site(WORKFLOW))["spec"]
    (main,) = spec["containers"]
    assert (spec["tolerations"], spec["nodeSelector"], main["resources"]) == ([], {}, {})
    # Applied to both.
    assert main["env"][-3:] == VARIABLES
    assert VOLUME in spec["volumes"]


def test_a_task_with_nothing_set_has_a_task_config_of_nulls(tmp_path: Path) -> None:
    @dsl.pipeline(name="bare")
    def bare() -> None:
        launching()

    answers = Answers({})
    drive(compiled(bare, tmp_path), answers)
    assert answers.inputs("launching") == [{"task_config": UNSET}]


def test_a_task_that_passes_nothing_on_has_it_in_its_pod(answers: Answers) -> None:
    spec = made(answers, "plain", Site(WORKFLOW))["spec"]
    (main,) = spec["containers"]
    assert main["resources"] == RESOURCES
    assert spec["nodeSelector"] == {"kind": "gpu"}
    assert spec["tolerations"][0]["key"] == "gpu"
    assert spec["activeDeadlineSeconds"] == 60
    assert main["imagePullPolicy"] == "IfNotPresent"
    assert {"name": "tmp", "mountPath": "/tmp"} in main["volumeMounts"]


def test_pods_are_named_owned_and_held_as_kfp_does(answers: Answers) -> None:
    found = made(answers, "plain", Site(WORKFLOW, user=12345, read_only_root=True))
    meta = found["metadata"]
    assert meta["labels"] == {
        "team": "vision",
        "pipeline/runid": RUN.id,
        "pipelines.kubeflow.org/v2_component": "true",
        "workflows.argoproj.io/workflow": "tested-x7k2p",
    }
    assert meta["annotations"]["note"] == "x"
    (owner,) = meta["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Workflow", "a-uid")
    (main,) = found["spec"]["containers"]
    assert main["securityContext"] == {
        "runAsUser": 12345,  # the administrator's
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    names = [item["name"] for item in main["env"][:5]]
    assert names == [
        "KFP_POD_NAME", "KFP_POD_UID", "ARGO_NODE_ID", "ARGO_DEADLINE", "ARGO_PROGRESS_FILE"
    ]  # fmt: skip
