import json
from collections.abc import Iterator

import pytest
from fakes.api_server import FakeApiServer
from fakes.cluster import make_server
from fakes.jobs import WORKFLOW
from fakes.kube_client import make_client
from kfp_jax.cluster.journal import ConfigMapJournal
from kfp_jax.errors import SpecError
from kfp_jax.kube.client import Client
from kfp_jax.kube.resources import CONFIG_MAPS
from kfp_jax.sweep import Trial, TrialState


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with make_server() as server:
        yield server


@pytest.fixture
def client(server: FakeApiServer) -> Iterator[Client]:
    client = make_client(server)
    yield client
    client.close()


@pytest.fixture
def journal(client: Client) -> ConfigMapJournal:
    return ConfigMapJournal(client, "ns", "sweep-0a1b2c3d", "same", {"run": "run-7"}, WORKFLOW)


def test_what_is_written_is_read_by_the_next_launcher(journal: ConfigMapJournal) -> None:
    assert journal.read() == []
    journal.write(Trial(0, {"x": 0.1}))
    journal.write(Trial(1, {"x": 0.2, "kind": "ä"}))
    done = Trial(0, {"x": 0.1}, TrialState.COMPLETE, 0.9, ((1, 0.5), (2, 0.9)), 1.0, 2.0)
    journal.write(done)
    assert journal.read() == [done, Trial(1, {"x": 0.2, "kind": "ä"})]


def test_it_goes_with_the_run(journal: ConfigMapJournal, client: Client) -> None:
    journal.write(Trial(0, {}))
    metadata = client.get(CONFIG_MAPS, "ns", "sweep-0a1b2c3d-0")["metadata"]
    assert metadata["ownerReferences"][0]["uid"] == WORKFLOW.uid
    assert metadata["labels"] == {
        "kfp-jax/run": "run-7",
        "kfp-jax/study": "sweep-0a1b2c3d",
        "app.kubernetes.io/managed-by": "kfp-jax",
    }


def test_four_hundred_large_trials_fit_into_an_object(
    journal: ConfigMapJournal, client: Client
) -> None:
    curve = tuple((step, step / 7) for step in range(200))
    parameters = {f"parameter_{index}": 0.123456789 for index in range(12)}
    for number in (399, 400):
        failed = TrialState.FAILED
        journal.write(Trial(number, parameters, failed, None, curve, message="why " * 500))
    one = client.get(CONFIG_MAPS, "ns", "sweep-0a1b2c3d-0")
    assert list(one["data"]) == ["000399"]
    assert len(json.dumps(one["data"])) * 400 < 1024 * 1024
    assert list(client.get(CONFIG_MAPS, "ns", "sweep-0a1b2c3d-1")["data"]) == ["000400"]


def test_a_long_curve_keeps_its_ends(journal: ConfigMapJournal) -> None:
    journal.write(Trial(0, {}, curve=tuple((step, 0.5) for step in range(1, 100))))
    (trial,) = journal.read()
    assert (trial.curve[0], trial.curve[-1], len(trial.curve)) == ((1, 0.5), (99, 0.5), 12)


def test_a_create_whose_answer_was_lost_is_no_trouble(
    journal: ConfigMapJournal, server: FakeApiServer
) -> None:
    server.lose_answer(method="POST", path="/configmaps")
    journal.write(Trial(0, {"x": 1}))
    assert journal.read() == [Trial(0, {"x": 1})]


def test_another_sweep_does_not_go_on_with_it(journal: ConfigMapJournal, client: Client) -> None:
    journal.write(Trial(0, {}))
    other = ConfigMapJournal(client, "ns", "sweep-0a1b2c3d", "other")
    with pytest.raises(SpecError, match="ConfigMap sweep-0a1b2c3d-0 in namespace ns holds another"):
        other.read()
