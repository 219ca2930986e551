"""What is installed on a cluster, what the builders make, and what a node reads, fit together."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.jobs import gpus, identity, job
from kfp_jax import __version__
from kfp_jax.manifests import environment, rights
from kfp_jax.manifests.dialect import Dialect
from kfp_jax.manifests.jobset import jobset
from kfp_jax.manifests.pod import CONTAINER_SECURITY, FLAVORS, POD_SECURITY, Flavor
from kfp_jax.manifests.runtime import (
    assumed_runtime,
    check_runtime,
    own_runtime,
    runtime_ref,
    shipped_name,
    shipped_runtime,
)
from kfp_jax.manifests.template import node_container
from kfp_jax.manifests.trainjob import trainjob
from kfp_jax.spec import TrainSpec
from kfp_jax_runtime import bootstrap, node

INSTALLED = Path(__file__).parents[2] / "runtimes" / "manifests"
RUNTIMES = INSTALLED / "base" / "runtimes"
JOBS = {
    "cpu": job(),
    "gpu": job(pods={"resources": gpus()}),
    "own-runtime": job(max_restarts=1, env={"JAX_DEBUG_NANS": "1"}),
    "secret": job(env={"A": "b"}, pods={"secret_env": {"T": "secret/key"}}),
}


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("kind", FLAVORS, ids=lambda kind: kind.name)
def test_an_installed_runtime_is_what_the_builder_makes(
    kind: Flavor, request: pytest.FixtureRequest
) -> None:
    path = RUNTIMES / f"{shipped_name(kind)}.yaml"
    if request.config.getoption("--update-golden"):
        comments = [line for line in path.read_text().splitlines() if line.startswith("#")]
        made = yaml.safe_dump(shipped_runtime(kind), sort_keys=False, width=100)
        path.write_text("\n".join([*comments, made]))
    assert load(path) == shipped_runtime(kind), "pytest --update-golden writes it"


@pytest.mark.parametrize("kind", FLAVORS, ids=lambda kind: kind.name)
def test_an_installed_runtime_restarts_nothing_and_is_restricted(kind: Flavor) -> None:
    runtime = load(RUNTIMES / f"{shipped_name(kind)}.yaml")
    pod = check_runtime(runtime)
    (found,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert (pod["restartPolicy"], found["template"]["spec"]["backoffLimit"]) == ("Never", 0)
    assert "failurePolicy" not in runtime["spec"]["template"]["spec"]
    assert pod["securityContext"] == POD_SECURITY
    assert node_container(pod)["securityContext"] == CONTAINER_SECURITY
    names = [item["name"] for item in node_container(pod).get("env", ())]
    assert names == list(kind.env)


def trainjob_env(spec: TrainSpec) -> list[dict[str, Any]]:
    """Returns the environment that Trainer gives a node: runtime, JAX plugin, TrainJob."""
    ref = runtime_ref(spec)
    runtime = assumed_runtime(ref) if ref else own_runtime(spec, identity())
    made = trainjob(spec, identity(), runtime=runtime, dialect=Dialect.V2_3)
    name, count = made["metadata"]["name"], made["spec"]["trainer"]["numNodes"]
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    return [
        *node_container(check_runtime(runtime)).get("env", []),
        {"name": "JAX_NUM_PROCESSES", "value": str(count)},
        {"name": "JAX_PROCESS_ID", "valueFrom": {"fieldRef": {"fieldPath": index}}},
        {"name": "JAX_COORDINATOR_ADDRESS", "value": f"{name}-node-0-0.{name}:29500"},
        *made["spec"]["trainer"]["env"],
    ]


def jobset_node(spec: TrainSpec) -> Any:
    (found,) = jobset(spec, identity())["spec"]["replicatedJobs"]
    return node_container(found["template"]["spec"]["template"]["spec"])


@pytest.mark.parametrize("name", JOBS)
def test_a_node_sees_the_same_environment_on_both_backends(name: str) -> None:
    trainer = {item["name"]: item for item in trainjob_env(JOBS[name])}
    assert len(trainer) == len(trainjob_env(JOBS[name]))  # nothing is set twice
    assert {item["name"]: item for item in jobset_node(JOBS[name])["env"]} == trainer


def test_a_node_understands_its_environment() -> None:
    spec = job(parameters={"a": [1, "b"]}, dataset_uri="/data")
    downward = {"PROCESS_ID": "1", "JAX_PROCESS_ID": "1", "KFP_JAX_RESTARTS": "3"}
    values = {item["name"]: item.get("value") for item in jobset_node(spec)["env"]}
    assert {name for name, value in values.items() if value is None} == downward.keys()
    here = node.from_environment({name: value or "" for name, value in values.items()} | downward)
    assert here == node.Node(
        process_index=1,
        process_count=2,
        coordinator="mnist-0a1b2c3d-1-node-0-0.mnist-0a1b2c3d-1:29500",
        bind_address="",
        job="mnist-0a1b2c3d-1",
        attempt=4,
        parameters={"a": [1, "b"]},
        output_dir=Path("/results/mnist"),
        checkpoint_uri="/results/mnist/checkpoints",
        dataset_dir=Path("/data"),
        shared_dir=Path("/results/mnist"),
    )
    assert jobset_node(spec)["command"][1:3] == ["-m", bootstrap.__name__]


def test_only_nodes_reach_nodes_on_the_ports_that_they_use() -> None:
    policy = load(INSTALLED / "components" / "network-policy" / "network-policy.yaml")["spec"]
    (rule,) = policy["ingress"]
    (peers,) = rule["from"]
    assert peers == {"podSelector": policy["podSelector"]}
    # Process 0 listens on 29500, but Gloo and NCCL choose theirs: naming one would cut them off.
    assert "ports" not in rule
    (port,) = jobset_node(job())["ports"]
    assert port == {"containerPort": environment.PORT} == {"containerPort": 29500}
    wanted = policy["podSelector"]["matchLabels"].items()
    (found,) = jobset(job(), identity())["spec"]["replicatedJobs"]
    assert wanted <= found["template"]["spec"]["template"]["metadata"]["labels"].items()
    for kind in FLAVORS:
        (found,) = shipped_runtime(kind)["spec"]["template"]["spec"]["replicatedJobs"]
        assert wanted <= found["template"]["spec"]["template"]["metadata"]["labels"].items()


def test_a_launcher_may_do_what_it_does_and_nothing_beyond() -> None:
    rules = load(INSTALLED / "base" / "rbac" / "role.yaml")["rules"]
    allowed = [
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    calls = [call for right in rights.LAUNCHER for call in right.calls()]
    assert sorted(allowed) == sorted(calls)
    named = {r["resources"][0]: r.pop("resourceNames") for r in rules if "resourceNames" in r}
    assert named == {r.resource: [r.name] for r in rights.LAUNCHER if r.name}
    assert all(rule.keys() == {"apiGroups", "resources", "verbs"} for rule in rules)


def test_a_launcher_with_a_queue_may_say_why_a_job_waits() -> None:
    component = load(INSTALLED / "components" / "queue" / "kustomization.yaml")
    (patch,) = component["patches"]
    (added,) = yaml.safe_load(patch["patch"])
    rule = added["value"]
    group, verbs = rights.QUEUE.group, [*rights.QUEUE.verbs]
    assert rule == {"apiGroups": [group], "resources": [rights.QUEUE.resource], "verbs": verbs}


def test_what_is_installed_bears_its_version() -> None:
    component = load(INSTALLED / "components" / "version" / "kustomization.yaml")
    (labels,) = component["labels"]
    assert labels["pairs"]["app.kubernetes.io/version"] == __version__
    assert "app.kubernetes.io/part-of" in labels["pairs"]
    marked = [
        path.parent.name
        for path in INSTALLED.rglob("kustomization.yaml")
        if any(item.endswith("components/version") for item in load(path).get("components", ()))
    ]
    launchers = len([*INSTALLED.glob("overlays/*/launcher")])
    assert sorted(marked) == sorted(["runtimes", *["launcher"] * launchers])


@pytest.mark.parametrize(
    "path",
    sorted(INSTALLED.rglob("kustomization.yaml")),
    ids=lambda path: str(path.parent.relative_to(INSTALLED)),
)
def test_a_kustomization_names_what_lies_beside_it(path: Path) -> None:
    named = {item for item in load(path).get("resources", ()) if not item.startswith("..")}
    beside = {item.name for item in path.parent.iterdir()} - {"kustomization.yaml"}
    assert named == beside
