"""A job whose output is a folder on a PersistentVolumeClaim, on both backends."""

import json

import pytest
from e2e.jobs import BACKENDS
from e2e.mnist import PODS
from e2e.places import CLAIM, SHARED, Place
from kfp_jax import storage
from kfp_jax.launch import launch
from kfp_jax.pods import Pods
from kfp_jax.spec import TrainSpec

SAYS = 'mkdir -p "$KFP_JAX_OUTPUT_URI" && echo hello >"$KFP_JAX_OUTPUT_URI/said"'


@pytest.mark.parametrize("name", BACKENDS)
def test_pods_write_to_the_claim_that_the_output_names(place: Place, name: str) -> None:
    backend = BACKENDS[name](place.client, namespace=place.namespace)
    uri = f"pvc://{CLAIM}/{place.folder.relative_to(SHARED)}/out"
    spec = TrainSpec(
        name="says",
        command=("sh", "-c", SAYS),
        output_uri=uri,
        pods=Pods(resources=PODS.resources),
    )
    outcome = launch(spec, backend)
    assert outcome.error() is None, f"{outcome.message}\n{place.story()}"
    said = place.folder / "out" / "said"
    assert said.read_text() == "hello\n"
    with storage.results(uri) as folder:
        assert json.loads((folder / "result.json").read_text())["output_uri"] == uri
