"""One launching task, as KFP runs it: what is set on it reaches its job, and how it fails."""

import threading
from pathlib import Path
from typing import Any

import pytest
from e2e.argo import terminate
from e2e.kfp_runs import KfpRun, compiled_here
from e2e.places import Place, until
from e2e.stores import ClusterStore
from fakes.kfp.scope import Ended, State
from kfp import dsl, kubernetes
from kfp_jax.components import train
from kfp_jax.kube.requests import Resource
from kfp_jax.kube.resources import CLAIMS, TRAINJOBS

pytestmark = pytest.mark.timeout(400)

SECRETS = Resource("", "v1", "secrets")
NODES = "jobset.sigs.k8s.io/jobset-name"
GPU = "kfp-jax.test/gpu"  # no machine has it, so that the pods can be looked at in peace
TERM = [{"matchExpressions": [{"key": "kind", "operator": "In", "values": ["gpu"]}]}]


@dsl.pipeline(name="all-set")
def all_set() -> None:
    task = train(program="kfp_jax_runtime.mnist", num_nodes=2)
    task.set_cpu_request("150m").set_cpu_limit("2").set_memory_request("300Mi")
    task.set_memory_limit("2Gi").set_accelerator_type(GPU).set_accelerator_limit(1)
    task.set_env_variable("SAID_BY_THE_TASK", "hello")
    kubernetes.use_secret_as_env(task, "token", {"key": "TOKEN"})
    kubernetes.use_field_path_as_env(task, "RUN", "metadata.labels['pipeline/runid']")
    kubernetes.mount_pvc(task, pvc_name="data", mount_path="/data")
    kubernetes.add_toleration(task, key="gpu", operator="Exists", effect="NoSchedule")
    kubernetes.add_node_selector(task, "kubernetes.io/os", "linux")
    kubernetes.add_node_affinity(
        task, match_expressions=[{"key": "kind", "operator": "In", "values": ["gpu"]}]
    )


def give_what_it_names(place: Place) -> None:
    place.create(SECRETS, {"metadata": {"name": "token"}, "stringData": {"key": "value"}})
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    volume = f"{place.namespace}-data"
    where = {"storageClassName": "", "volumeName": volume}
    place.create(CLAIMS, {"metadata": {"name": "data"}, "spec": {**claim, **where}})
    place.client.create(
        Resource("", "v1", "persistentvolumes"),
        "",
        {
            "metadata": {"name": volume},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "hostPath": {"path": str(place.folder)},
                "claimRef": {"namespace": place.namespace, "name": "data"},
            },
        },
    )


def test_what_is_set_on_a_task_is_in_the_pods_of_its_job(
    place: Place, store: ClusterStore, tmp_path: Path
) -> None:
    give_what_it_names(place)
    run = KfpRun(place, compiled_here(all_set, tmp_path), store)
    ended: list[Ended] = []
    thread = threading.Thread(target=lambda: ended.append(run.start()))
    thread.start()
    try:
        found = until(
            "the nodes are there",
            lambda: ended or (len(place.pods(NODES)) == 2 and place.pods(NODES)),
        )
        assert not ended, ended[0].why
        (job,) = place.client.list(TRAINJOBS, place.namespace).items
        assert job["metadata"]["labels"]["kfp-jax/run"] == run.run.id
        (owner,) = job["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Workflow", run.workflow["metadata"]["uid"])
        for pod in found:
            check(pod["spec"])
        own = run.done[0].manifest["spec"]
        assert own["containers"][0].get("resources", {}) == {}
        assert "kubernetes.io/os" not in own.get("nodeSelector", {})
    finally:
        terminate(place, run.done[0].pod)
        thread.join(60)
        place.client.delete(Resource("", "v1", "persistentvolumes"), "", f"{place.namespace}-data")


def check(spec: dict[str, Any]) -> None:
    (container,) = spec["containers"]
    assert container["resources"] == {
        "limits": {"cpu": "2", "memory": "2Gi", GPU: "1"},
        "requests": {"cpu": "150m", "memory": "300Mi", GPU: "1"},
    }
    env = {item["name"]: item for item in container["env"]}
    assert env["SAID_BY_THE_TASK"]["value"] == "hello"
    assert env["TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "token", "key": "key"}
    assert "RUN" not in env  # a label that these pods have not
    # The store's keys, by reference.
    reference = env["AWS_SECRET_ACCESS_KEY"]["valueFrom"]["secretKeyRef"]
    assert reference == {"name": "mlpipeline-minio-artifact", "key": "secretkey"}
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes[mounts["/data"]]["persistentVolumeClaim"]["claimName"] == "data"
    assert {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == TERM


@dsl.pipeline(name="refused")
def refused() -> None:
    train(program="kfp_jax_runtime.mnist", parameters={"epochs": 0})


def test_a_failed_training_fails_the_task_with_the_reason_as_its_last_word(
    place: Place, store: ClusterStore, tmp_path: Path
) -> None:
    run = KfpRun(place, compiled_here(refused, tmp_path), store)
    ended = run.start()
    assert ended.state is State.FAILED
    last, launchers = run.done[0].log.splitlines()[-2:]
    assert "epochs must be at least 1, not 0" in last
    assert launchers == "failed to execute component: exit status 1"
