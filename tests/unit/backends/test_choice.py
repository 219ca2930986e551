from pathlib import Path

import pytest
from fakes.api_server import FakeApiServer
from fakes.cluster import JOBSETS, TRAINER_2_3, TRAINJOBS
from fakes.kube_client import make_client
from kfp_jax.backends.choice import Cluster, choose_backend, on_cluster
from kfp_jax.errors import ClusterError, SpecError


@pytest.mark.parametrize("name", ["auto", "local"])
def test_outside_of_a_cluster_it_is_this_machine(name: str) -> None:
    assert choose_backend(name, environ={"KUBECONFIG": "/a/file"}).name == "local"


def test_a_name_that_nobody_knows() -> None:
    with pytest.raises(SpecError, match="give one of auto, local, trainer, jobset"):
        choose_backend("slurm")


def test_a_cluster_that_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ClusterError, match="set KUBECONFIG"):
        choose_backend("trainer", environ={})


@pytest.mark.parametrize(
    ("served", "openapi", "chosen"),
    [
        pytest.param((TRAINJOBS, JOBSETS), TRAINER_2_3, "trainer", id="trainer"),
        pytest.param((TRAINJOBS, JOBSETS), {}, "jobset", id="trainer-is-too-old"),
        pytest.param((JOBSETS,), {}, "jobset", id="jobset-alone"),
    ],
)
def test_in_a_cluster_it_is_what_is_served(
    served: tuple[tuple[str, str], ...], openapi: dict[str, object], chosen: str
) -> None:
    with FakeApiServer(*served) as server:
        server.openapi[TRAINJOBS[0]] = openapi
        client = make_client(server)
        assert on_cluster("auto", client, Cluster()).name == chosen
        assert on_cluster("jobset", client, Cluster()).name == "jobset"
        client.close()


def test_a_cluster_with_neither_is_refused() -> None:
    with FakeApiServer() as server:
        client = make_client(server)
        with pytest.raises(SpecError, match=r"neither a Kubeflow Trainer of 2\.2 or newer nor"):
            on_cluster("auto", client, Cluster())
        client.close()
