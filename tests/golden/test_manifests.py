"""What is sent to a cluster for typical jobs is what `manifests/` beside this file holds."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.jobs import RESULTS, WORKFLOW, gpus, identity, job
from fakes.runtimes import stock_runtime
from kfp_jax.manifests.dialect import Dialect
from kfp_jax.manifests.identity import Identity
from kfp_jax.manifests.jobset import jobset
from kfp_jax.manifests.runtime import (
    RuntimeRef,
    assumed_runtime,
    own_runtime,
    runtime_ref,
)
from kfp_jax.manifests.trainjob import trainjob
from kfp_jax.pods import Resources, Volume
from kfp_jax.spec import Limits, TrainSpec

KEPT = Path(__file__).parent / "manifests"

EVERYTHING = {
    "image": "team/train:3",
    "resources": gpus(4, cpu="8", memory="32Gi", cpu_limit="12"),
    "node_selector": {"pool": "a100"},
    "tolerations": ({"key": "team", "operator": "Equal", "value": "ml", "effect": "NoSchedule"},),
    "affinity": {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "topology.kubernetes.io/zone",
                    "labelSelector": {"matchLabels": {"team": "ml"}},
                }
            ]
        }
    },
    "volumes": (
        Volume(
            name="work",
            mount_path="/results",
            sub_path="mnist",
            source={"persistentVolumeClaim": {"claimName": "work"}},
        ),
        Volume(
            name="data",
            mount_path="/data",
            read_only=True,
            source={"persistentVolumeClaim": {"claimName": "data"}},
        ),
    ),
    "secret_env": {"HF_TOKEN": "hugging-face/token"},
    "service_account": "trainer",
    "image_pull_secrets": ("registry",),
    "queue": "training",
}
PATCH = {
    "template": {
        "metadata": {"labels": {"cost-centre": "ml"}},
        "spec": {
            "replicatedJobs": [
                {
                    "name": "node",
                    "template": {
                        "spec": {
                            "template": {
                                "spec": {
                                    "priorityClassName": "high",
                                    "containers": [
                                        {"name": "node", "imagePullPolicy": "Always"},
                                        {"name": "sidecar", "image": "team/sidecar:1"},
                                    ],
                                }
                            }
                        }
                    },
                }
            ]
        },
    }
}
SPECS = {
    "plain": job(),
    "command": job(
        program="", command=("python", "train.py", "--price=$(cat /etc/price)"), num_nodes=1
    ),
    "everything": job(
        num_nodes=4,
        parameters={"epochs": 3, "note": "costs 5$"},
        dataset_uri="/data/mnist",
        env={"NCCL_DEBUG": "INFO"},
        limits=Limits(deadline=3600.5),
        pods=EVERYTHING,
    ),
    "restarts": job(max_restarts=3, limits=Limits(deadline=600)),
    "gpu": job(pods={"resources": gpus()}),
    "tpu": job(
        num_nodes=4,
        pods={
            "resources": Resources(accelerators={"google.com/tpu": 4}),
            "node_selector": {
                "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
                "cloud.google.com/gke-tpu-topology": "4x4",
            },
        },
    ),
    "volume-twice": job(
        dataset_uri="/data/mnist",
        pods={"volumes": (RESULTS, replace(RESULTS, mount_path="/data", sub_path="data"))},
    ),
    "patch": job(env={"JAX_DEBUG_NANS": "true"}, pods={"patch": PATCH}),
}
LONG = identity(
    attempt=2,
    name="mnist-0a1b2c3d-2",
    labels={"run": "1f2e", "task": "train", "study": "lr sweep", "trial": "7"},
    owner=WORKFLOW,
)
IDENTITIES = {"everything": LONG}


def trainer_manifests(spec: TrainSpec, who: Identity) -> list[dict[str, Any]]:
    """Returns what is created for a TrainJob, in this order."""
    ref = runtime_ref(spec)
    runtime = assumed_runtime(ref) if ref else own_runtime(spec, who)
    made = trainjob(spec, who, runtime=runtime, dialect=Dialect.V2_3)
    return [made] if ref else [runtime, made]


def text(manifests: list[dict[str, Any]]) -> str:
    return yaml.safe_dump_all(manifests, sort_keys=False, width=100)


@pytest.mark.parametrize("name", SPECS)
def test_the_trainjob_is_as_kept(name: str, golden: Callable[[Path, str], None]) -> None:
    made = trainer_manifests(SPECS[name], IDENTITIES.get(name, identity()))
    golden(KEPT / f"trainjob-{name}.yaml", text(made))


@pytest.mark.parametrize("name", SPECS)
def test_the_jobset_is_as_kept(name: str, golden: Callable[[Path, str], None]) -> None:
    made = jobset(SPECS[name], IDENTITIES.get(name, identity()))
    golden(KEPT / f"jobset-{name}.yaml", text([made]))


@pytest.mark.parametrize("dialect", Dialect)
def test_the_trainjob_on_the_stock_runtime_is_as_kept(
    dialect: Dialect, golden: Callable[[Path, str], None]
) -> None:
    spec = job(pods={**EVERYTHING, "runtime": "jax-distributed"})
    assert runtime_ref(spec) == RuntimeRef("ClusterTrainingRuntime", "jax-distributed")
    made = trainjob(spec, identity(), runtime=stock_runtime(), dialect=dialect)
    golden(KEPT / "trainjob-stock-runtime.yaml", text([made]))


def test_every_kept_manifest_belongs_to_a_test() -> None:
    made = {f"{kind}-{name}" for kind in ("trainjob", "jobset") for name in SPECS}
    assert {path.stem for path in KEPT.glob("*.yaml")} == {*made, "trainjob-stock-runtime"}
