"""What each account can do and what it cannot, asked of the server with the account's own token."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.jobs import BACKENDS, Running, shell
from e2e.mnist import PODS
from e2e.places import ACCOUNT, Place, account, until
from kfp_jax.errors import Forbidden
from kfp_jax.kube.access import find_access
from kfp_jax.kube.client import Client
from kfp_jax.kube.requests import Resource
from kfp_jax.kube.resources import CLUSTER_RUNTIMES, CONFIG_MAPS, TRAINJOBS
from kfp_jax.kube.resources import PODS as ALL_PODS
from kfp_jax.manifests.rights import LAUNCHER
from kfp_jax.spec import TrainSpec
from kfp_jax.status import Phase

ELSEWHERE = ("default", "kube-system", "kubeflow-system")
# What every account may that Kubernetes knows: look at itself, and at which APIs there are.
ANYBODY = {
    ("authentication.k8s.io", "selfsubjectreviews", "create"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "create"),
}
# Whoever is known to the cluster may read its runtimes: base/runtimes/view.yaml.
VIEWER = {
    ("trainer.kubeflow.org", "clustertrainingruntimes", "get"),
    ("trainer.kubeflow.org", "clustertrainingruntimes", "list"),
}
# From each of these a launcher could take what is not its own.
NOBODY = (
    ("", "secrets", "get"),
    ("", "secrets", "list"),
    ("", "secrets", "create"),
    ("", "pods", "create"),
    ("", "pods/exec", "create"),
    ("", "pods/attach", "create"),
    ("", "pods/portforward", "create"),
    ("", "pods/ephemeralcontainers", "patch"),
    ("", "serviceaccounts/token", "create"),
    ("", "serviceaccounts", "impersonate"),
    ("", "configmaps", "list"),
    ("", "configmaps", "delete"),
    ("", "services", "create"),
    ("", "persistentvolumeclaims", "create"),
    ("", "namespaces", "patch"),
    ("", "nodes", "list"),
    ("", "persistentvolumes", "get"),
    ("apps", "deployments", "create"),
    ("batch", "jobs", "create"),
    ("networking.k8s.io", "networkpolicies", "delete"),
    ("rbac.authorization.k8s.io", "roles", "escalate"),
    ("rbac.authorization.k8s.io", "rolebindings", "create"),
    ("trainer.kubeflow.org", "clustertrainingruntimes", "create"),
    ("trainer.kubeflow.org", "clustertrainingruntimes", "delete"),
    ("trainer.kubeflow.org", "clustertrainingruntimes", "patch"),
    ("kueue.x-k8s.io", "workloads", "patch"),
    ("*", "*", "*"),
)
Call = tuple[str, str, str]


@pytest.fixture
def launcher(place: Place, tmp_path: Path) -> Iterator[Client]:
    yield from connected(place, ACCOUNT, tmp_path)


@pytest.fixture
def nodes(place: Place, tmp_path: Path) -> Iterator[Client]:
    """The account of training pods: none is named, so it is the namespace's default."""
    yield from connected(place, "default", tmp_path)


def connected(place: Place, name: str, folder: Path) -> Iterator[Client]:
    client = Client(find_access({"KUBECONFIG": account(place, name, folder)}))
    yield client
    client.close()


def granted(client: Client, namespace: str) -> set[Call]:
    """Returns all that the server says an account may do, but for what anybody may."""
    calls: set[Call] = set()
    for rule in client.rights(namespace).rules:
        # A right to one object by its name is no right to the others.
        assert not rule.get("resourceNames") or rule["verbs"] == ["get"], rule
        if not rule.get("resourceNames"):
            calls |= {
                (group, resource, verb)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return calls - ANYBODY


def may(client: Client, call: Call, namespace: str) -> bool:
    group, resource, verb = call
    plural, _, subresource = resource.partition("/")
    return client.may(verb, Resource(group, "*", plural), namespace, subresource=subresource)


NEEDED = [call for right in LAUNCHER for call in right.calls()]


def test_a_launcher_may_do_what_it_does_and_nothing_beyond(place: Place, launcher: Client) -> None:
    assert granted(launcher, place.namespace) == {*NEEDED} | VIEWER
    assert [call for call in NEEDED if not may(launcher, call, place.namespace)] == []
    assert [call for call in NOBODY if may(launcher, call, place.namespace)] == []


def test_a_launcher_may_do_nothing_in_another_namespace(place: Place, launcher: Client) -> None:
    for namespace in ELSEWHERE:
        assert granted(launcher, namespace) == VIEWER
        assert [call for call in NEEDED if may(launcher, call, namespace)] == []
        with pytest.raises(Forbidden, match=f"could not list trainjobs.* in namespace {namespace}"):
            launcher.list(TRAINJOBS, namespace)
    with pytest.raises(Forbidden):
        launcher.list(ALL_PODS, "")


def test_training_pods_have_an_account_without_rights(place: Place, nodes: Client) -> None:
    assert granted(nodes, place.namespace) == VIEWER
    assert [call for call in (*NEEDED, *NOBODY) if may(nodes, call, place.namespace)] == []
    with pytest.raises(Forbidden):
        nodes.get(CONFIG_MAPS, place.namespace, "kube-root-ca.crt")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_launcher_runs_a_job_with_these_rights_alone(
    place: Place, launcher: Client, backend: str
) -> None:
    """Also a job that brings a runtime of its own."""
    spec = shell(place, "echo ran", max_restarts=1, num_nodes=2)
    job = Running(place, backend, spec, client=launcher)
    outcome = job.outcome()
    assert outcome.phase is Phase.SUCCEEDED, outcome.message
    assert job.lines == {0: ["ran"], 1: ["ran"]}
    assert launcher.get(CLUSTER_RUNTIMES, "", "kfp-jax-cpu")


ASK_API = """
import json, os, ssl, urllib.error, urllib.request
account = "/var/run/secrets/kubernetes.io/serviceaccount"
host = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
url = "https://%s:%s/api/v1/namespaces/NS/pods" % host
anyhow = ssl._create_unverified_context()
try:
    status = urllib.request.urlopen(url, context=anyhow, timeout=20).status
except urllib.error.HTTPError as error:
    status = error.code
process = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
print(json.dumps({
    "account": os.path.exists(account),
    "pods": status,
    "root": os.getuid() == 0,
    "capabilities": int(process["CapEff"], 16) | int(process["CapBnd"], 16),
    "more rights by exec": process["NoNewPrivs"].strip() != "1",
    "system calls": int(process["Seccomp"]),
}))
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_training_pod_holds_nothing_that_it_could_misuse(place: Place, backend: str) -> None:
    program = ASK_API.replace("NS", place.namespace)
    spec = TrainSpec(
        name="drill",
        command=("python", "-c", program),
        output_uri=str(place.folder / "out"),
        pods=PODS,
    )
    job = Running(place, backend, spec)
    pod = until("its pod is there", place.pods)[0]
    assert pod["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "kfp-jax"  # by the policy
    outcome = job.outcome()
    assert outcome.phase is Phase.SUCCEEDED, (outcome.message, outcome.last_lines)
    assert json.loads(job.lines[0][-1]) == {
        "account": False,
        "pods": 403,
        "root": False,
        "capabilities": 0,
        "more rights by exec": False,
        "system calls": 2,  # filtered
    }
