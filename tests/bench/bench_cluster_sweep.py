"""A sweep on a cluster beside bare pods that are started by hand, as many at once.

    KUBECONFIG=... python tests/bench/bench_cluster_sweep.py

Both run the same shell in the same image. What the sweep has more is a TrainJob, its JobSet and its
Job for each pod, logs, a result and a journal. See tests/e2e/README.md for what the cluster needs.
"""

import os
import time
from pathlib import Path
from typing import Any

from bench_cluster import RUNTIMES, a_namespace, missing
from e2e.mnist import PODS
from e2e.places import kubectl
from figures import TAG, Figure, table
from kfp_jax.backends.trainer import TrainerBackend
from kfp_jax.cancellation import Cancellation
from kfp_jax.kube.access import find_access
from kfp_jax.kube.client import Client
from kfp_jax.kube.resources import PODS as POD
from kfp_jax.kube.stop import Stop
from kfp_jax.kube.watch import Modified, Target, watch
from kfp_jax.manifests.pod import CPU
from kfp_jax.sinks import NullSink
from kfp_jax.spec import TrainSpec
from kfp_jax.sweep import Sampler, Space, Study, uniform
from kfp_jax.sweep.spec import SweepSpec
from kfp_jax.sweep_folder import FolderJournal, sweep_folder
from kfp_jax.sweep_news import SweepNews
from kfp_jax.tuning import run_sweep

__all__ = ["missing", "run_bench"]

TRIALS = int(os.environ.get("KFP_JAX_BENCH_TRIALS", "50"))
SECONDS = float(os.environ.get("KFP_JAX_BENCH_SECONDS", "20"))
AT_ONCE = 10
GOAL = 1.15
SCORE = f'{TAG}{{"v": 1, "kind": "result", "time": 0, "values": {{"score": 0.5}}}}'
COMMAND = ("sh", "-c", f"sleep {SECONDS:g}; echo '{SCORE}'")


def run_bench() -> dict[str, Any]:
    """Measures both in a namespace of its own."""
    kubectl("apply", "--server-side", "--force-conflicts", "-k", str(RUNTIMES))
    client = Client(find_access(os.environ))
    with a_namespace(client) as (namespace, folder):
        bare = bare_pods(client, namespace)
        sweep = a_sweep(client, namespace, folder)
    client.close()
    ideal = TRIALS / AT_ONCE * SECONDS
    what = f"{TRIALS} trials of {SECONDS:g} s, {AT_ONCE} at once"
    figures = [
        Figure(f"{what}: bare pods", bare, "s"),
        Figure("  a sweep of TrainJobs", sweep, "s"),
        Figure("  the sweep over bare pods", sweep / bare, "x", GOAL),
        Figure("  a trial takes longer by", (sweep - bare) / (TRIALS / AT_ONCE), "s"),
        Figure("  bare pods over the ideal", bare / ideal, "x"),
    ]
    return {"figures": [figure.to_json() for figure in figures], "bare": bare, "sweep": sweep}


def bare_pods(client: Client, namespace: str) -> float:
    """Returns the seconds that all pods take, a new one as soon as one has ended."""
    resources = {"requests": PODS.resources.requests(), "limits": PODS.resources.limits()}
    container = {
        "name": "main",
        "image": CPU.image,
        "command": list(COMMAND),
        "resources": resources,
    }
    left = iter(range(TRIALS))

    def start() -> None:
        number = next(left, None)
        if number is not None:
            spec = {"restartPolicy": "Never", "containers": [container]}
            metadata = {"name": f"bare-{number}", "labels": {"bench": "bare"}}
            client.create(POD, namespace, {"metadata": metadata, "spec": spec})

    began = time.monotonic()
    stop, ended = Stop(), set[str]()
    events = watch(client, Target(POD, namespace, labels="bench=bare"), stop=stop)
    next(events)
    for _ in range(AT_ONCE):
        start()
    for event in events:
        if isinstance(event, Modified):
            name, phase = event.object["metadata"]["name"], event.object["status"]["phase"]
            if phase in ("Succeeded", "Failed") and name not in ended:
                ended.add(name)
                start()
        if len(ended) == TRIALS:
            stop.set()
            break
    return time.monotonic() - began


def a_sweep(client: Client, namespace: str, folder: Path) -> float:
    """Returns the seconds that a sweep takes."""
    job = TrainSpec(
        name="bench",
        command=COMMAND,
        output_uri=str(folder / "sweep"),
        objective="score",
        pods=PODS,
    )
    space = Space.from_json({"x": uniform(0.0, 1.0)})
    study = Study(space=space, sampler=Sampler.RANDOM, max_trials=TRIALS)
    spec = SweepSpec(job=job, study=study, parallel=AT_ONCE)
    backend = TrainerBackend(client, namespace=namespace, labels={"study": "bench"})
    began = time.monotonic()
    with sweep_folder(spec, resume=False) as path:
        news = SweepNews(spec, NullSink())
        journal = FolderJournal(path)
        end = run_sweep(spec, backend, journal, sink=news, cancellation=Cancellation())
    seconds = time.monotonic() - began
    backend.close()
    complete = sum(trial.score is not None for trial in end.trials)
    if complete != TRIALS:
        raise RuntimeError(f"{TRIALS - complete} trials failed: {end.trials[0]}")
    return seconds


if __name__ == "__main__":
    print(table(run_bench()["figures"]))
