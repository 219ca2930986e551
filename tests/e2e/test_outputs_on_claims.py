"""A job whose output is a folder on a PersistentVolumeClaim, on both backends."""

import json
from collections.abc import Iterator

import pytest
from e2e.jobs import BACKENDS
from e2e.mnist import PODS
from e2e.places import Place
from kfp_jax import storage
from kfp_jax.kube.requests import Resource
from kfp_jax.kube.resources import CLAIMS
from kfp_jax.launch import launch
from kfp_jax.pods import Pods
from kfp_jax.spec import TrainSpec

VOLUMES = Resource("", "v1", "persistentvolumes")
SAYS = 'mkdir -p "$KFP_JAX_OUTPUT_URI" && echo hello >"$KFP_JAX_OUTPUT_URI/said"'


@pytest.fixture
def claim(place: Place) -> Iterator[str]:
    folder = place.folder / "claimed"
    folder.mkdir()
    spec = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": place.namespace,
    }
    volume = {
        "accessModes": ["ReadWriteMany"],
        "capacity": {"storage": "1Gi"},
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"name": "work", "namespace": place.namespace},
        "hostPath": {"path": str(folder)},
    }
    named = {"metadata": {"name": place.namespace}}
    place.client.create(VOLUMES, "", {**named, "spec": volume})
    place.create(CLAIMS, {"metadata": {"name": "work"}, "spec": spec})
    yield "work"
    place.client.delete(VOLUMES, "", place.namespace)


@pytest.mark.parametrize("name", BACKENDS)
def test_pods_write_to_the_claim_that_the_output_names(place: Place, claim: str, name: str) -> None:
    backend = BACKENDS[name](place.client, namespace=place.namespace)
    uri = f"pvc://{claim}/{place.namespace}"
    spec = TrainSpec(
        name="says",
        command=("sh", "-c", SAYS),
        output_uri=uri,
        pods=Pods(resources=PODS.resources),
    )
    outcome = launch(spec, backend)
    assert outcome.error() is None, f"{outcome.message}\n{place.story()}"
    said = place.folder / "claimed" / place.namespace / "said"
    assert said.read_text() == "hello\n"
    with storage.results(uri) as folder:
        assert json.loads((folder / "result.json").read_text())["output_uri"] == uri
