"""Runs of compiled pipelines in pods of the cluster, by the double of KFP's driver and launcher."""

import itertools
import json
import os
import secrets
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import fakes.kfp
import kfp_jax
from e2e.places import ROOT, Place
from e2e.stores import BUCKET, ClusterStore
from fakes.kfp.answers import compiled as compile_pipeline
from fakes.kfp.driver import Driver, Executed, Task
from fakes.kfp.ir import Pipeline, load
from fakes.kfp.pods import Site, pod
from fakes.kfp.scope import Ended, Run
from kfp_jax.errors import ClusterError, NotFound
from kfp_jax.kube.requests import Resource
from kfp_jax.kube.resources import CONFIG_MAPS, PODS

COMPILED = ROOT / "pipelines" / "compiled"
WORKFLOWS = Resource("argoproj.io", "v1alpha1", "workflows")
LAUNCHER = Path(fakes.kfp.__file__).parent / "launcher"
ROOT_URI = f"minio://{BUCKET}/v2/artifacts"
PUBLISHED = "KFP-PUBLISHED "
TASK_SECONDS = 480.0


# Small enough for one machine. The patch makes a job bring its own runtime: the ones that the tests
# install have a volume where KFP's tasks have their artifacts, so that a job would write there.
JOB_PODS: dict[str, Any] = {
    "resources": {"cpu": "200m", "memory": "256Mi", "cpu_limit": "2", "memory_limit": "2Gi"},
    "patch": {"template": {"metadata": {"annotations": {"kfp-jax-e2e/own-runtime": "yes"}}}},
}


def image_prefix() -> str:
    return os.environ.get("KFP_JAX_IMAGE_PREFIX", "kfp-jax")


def launcher_image() -> str:
    return f"{image_prefix()}/launcher-python:{kfp_jax.__version__}"


def compiled(name: str) -> Pipeline:
    """Returns one of our pipelines for this cluster."""
    return fitted(load(COMPILED / f"{name}.yaml"))


def compiled_here(pipeline: Any, folder: Path) -> Pipeline:
    """Returns a pipeline that is compiled now, for this cluster."""
    return fitted(compile_pipeline(pipeline, folder))


def fitted(pipeline: Pipeline) -> Pipeline:
    """Returns a pipeline with the images that KFP_JAX_IMAGE_PREFIX says, and small jobs."""
    text = json.dumps(pipeline.spec).replace("kfp-jax/launcher-", f"{image_prefix()}/launcher-")
    spec = json.loads(text)
    image = f"{image_prefix()}/trainer-cpu:{kfp_jax.__version__}"
    for component in spec["components"].values():
        pods = component.get("inputDefinitions", {}).get("parameters", {}).get("pods")
        if pods and not pods["defaultValue"]:
            pods["defaultValue"] = {**JOB_PODS, "image": image}
    return replace(pipeline, spec=spec)


@dataclass
class Done:
    """A task that was executed in a pod."""

    task: Task
    pod: str
    log: str = ""
    manifest: Any = None


@dataclass
class KfpRun:
    """One run of a pipeline.

    Attributes:
        place: Where its pods are.
        pipeline: What is run.
        store: Where its artifacts go.
        changes: Of the site, see `fakes.kfp.pods.Site`.
    """

    place: Place
    pipeline: Pipeline
    store: ClusterStore
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.run = Run(str(uuid.uuid4()), f"{self.pipeline.name}-{secrets.token_hex(3)}")
        self.done: list[Done] = []
        self.workflow = self.place.create(
            WORKFLOWS,
            {
                "apiVersion": "argoproj.io/v1alpha1",
                "kind": "Workflow",
                "metadata": {"name": self.run.workflow},
                "spec": {},
            },
        )
        files = {path.name: path.read_text() for path in LAUNCHER.glob("*.py")}
        config = {"metadata": {"name": f"{self.run.workflow}-launcher"}, "data": files}
        self.place.create(CONFIG_MAPS, config)
        secret = self.store.give(self.place)
        site = Site(self.workflow, launcher=config["metadata"]["name"], store=secret)
        self.site = replace(site, **self.changes)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def start(self, **arguments: Any) -> Ended:
        """Runs the pipeline to its end."""
        return Driver(self.pipeline, self.run, ROOT_URI, self.execute).start(arguments)

    def execute(self, task: Task) -> Executed:
        """Makes the pod of a task, and waits for its end."""
        done = self.submit(task)
        if not done.manifest:
            return Executed(False, why=done.log)
        phase = self.wait(done)
        # What goes to stderr may come later in the log than what was written after it.
        told = [line for line in done.log.splitlines() if line.startswith(PUBLISHED)]
        if phase != "Succeeded" or not told:
            return Executed(False, why=f"pod {done.pod} ended as {phase}: {done.log[-3000:]}")
        return Executed(True, json.loads(told[-1].removeprefix(PUBLISHED)))

    def submit(self, task: Task) -> Done:
        """Makes the pod of a task; without a manifest it was refused, and the log says why."""
        with self._lock:
            name = f"{self.run.workflow}-system-container-impl-{next(self._numbers)}"
            done = Done(task, name)
            self.done.append(done)
        root = f"{ROOT_URI}/{self.pipeline.name}/{self.run.id}"
        manifest = pod(
            name, self.run.id, root, self.site, task.component, task.container, task.platform,
            task.own, task.given,
        )  # fmt: skip
        try:
            done.manifest = self.place.create(PODS, manifest)
        except ClusterError as error:
            done.log = str(error)
        return done

    def wait(self, done: Done, seconds: float = TASK_SECONDS) -> str:
        """Returns the phase that a pod ended in, and reads its log."""
        end = time.monotonic() + seconds
        phase = ""
        while phase not in ("Succeeded", "Failed") and time.monotonic() < end:
            time.sleep(0.5)
            try:
                phase = self.place.get(PODS, done.pod)["status"]["phase"]
            except NotFound:
                return "Deleted"
        done.log = self.place.log(done.pod, "main") if phase != "Pending" else self.place.story()
        return phase

    def of(self, task: str) -> list[Done]:
        """Returns the executions of a task."""
        return [done for done in self.done if done.task.name == task]
