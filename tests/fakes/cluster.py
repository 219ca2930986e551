"""Kubeflow Trainer, JobSet, Job and kubelet over the fake API server, in one thread.

They make what a TrainJob or JobSet asks for, and really run the containers' commands: as processes
of this machine, with nothing but the pods' environment.
"""

import base64
import codecs
import copy
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Self

from fakes.api_server import FakeApiServer, Manifest, now

TRAINJOBS = ("trainer.kubeflow.org/v1alpha1", "trainjobs")
RUNTIMES = ("trainer.kubeflow.org/v1alpha1", "trainingruntimes")
CLUSTER_RUNTIMES = ("trainer.kubeflow.org/v1alpha1", "clustertrainingruntimes")
JOBSETS = ("jobset.x-k8s.io/v1alpha2", "jobsets")
PODS = ("v1", "pods")
SERVED = (TRAINJOBS, RUNTIMES, CLUSTER_RUNTIMES, JOBSETS)

NAME = "jobset.sigs.k8s.io/jobset-name"
INDEX = "batch.kubernetes.io/job-completion-index"
RESTART = "jobset.sigs.k8s.io/restart-attempt"
TRAINER_2_3: Manifest = {
    "components": {
        "schemas": {
            "trainer.v1alpha1.TrainJob": {
                "properties": {
                    "spec": {
                        "properties": {
                            "runtimePatches": {
                                "items": {"properties": {"terminationGracePeriodSeconds": {}}}
                            }
                        }
                    }
                }
            }
        }
    }
}
# The kubelet looks at its containers once a second; and a log can be read for as long.
_SEEN_SECONDS = 0.05


def make_server() -> FakeApiServer:
    """Returns an API server that serves Trainer 2.3 and JobSet."""
    server = FakeApiServer(*SERVED)
    server.openapi[TRAINJOBS[0]] = TRAINER_2_3
    return server


class FakeCluster:
    def __init__(self, server: FakeApiServer, *, grace: float = 0.3) -> None:
        self.server = server
        self.pod_status: Manifest | None = None  # what pods have instead of being started
        self._grace = grace
        self._runs: dict[str, _Run] = {}
        self._closed = False
        server.finalized |= {TRAINJOBS, JOBSETS, PODS}
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._thread.join()
        for run in self._runs.values():
            run.kill(signal.SIGKILL)

    @property
    def running(self) -> list[str]:
        """The pods whose processes run."""
        return [name for name, run in list(self._runs.items()) if run.process.poll() is None]

    def _loop(self) -> None:
        while not self._closed:
            with self.server.changed:
                self._collect_garbage()
                for job in self._all(TRAINJOBS):
                    self._trainjob(job)
                for jobset in self._all(JOBSETS):
                    self._jobset(jobset)
                for pod in self._all(PODS):
                    self._kubelet(pod)
                self.server.changed.wait(0.01)

    def _all(self, kind: tuple[str, str]) -> list[Manifest]:
        return copy.deepcopy(list(self.server.objects.get(kind, {}).values()))

    def _collect_garbage(self) -> None:
        jobs = {job["metadata"]["uid"] for job in self._all(TRAINJOBS)}
        for kind in (JOBSETS, RUNTIMES):
            for item in self._all(kind):
                owners = {owner["uid"] for owner in item["metadata"].get("ownerReferences", ())}
                if owners and not owners & jobs:
                    metadata = item["metadata"]
                    self.server.remove(*kind, metadata["name"], metadata["namespace"], alone=True)
        sets = {item["metadata"]["uid"] for item in self._all(JOBSETS)}
        for pod in self._all(PODS):
            if not sets & {owner["uid"] for owner in pod["metadata"]["ownerReferences"]}:
                self.server.finalize(*PODS, pod["metadata"]["name"], grace=30)

    def _trainjob(self, job: Manifest) -> None:
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        jobset = self.server.find(*JOBSETS, name, namespace)
        if "deletionTimestamp" in job["metadata"] and jobset:
            self.server.finalize(*JOBSETS, name, namespace)
        if jobset is None:  # as the real one, which does not ask whether the TrainJob is going
            if not job["spec"].get("suspend"):
                self.server.put(*JOBSETS, self._jobset_of(job), namespace)
            return
        # As the real one: whose JobSet it is, is not asked.
        for there, here in (("Completed", "Complete"), ("Failed", "Failed")):
            found = [
                {**item, "type": here}
                for item in jobset.get("status", {}).get("conditions", ())
                if item["type"] == there
            ]
            if found and job.get("status", {}).get("conditions") != found:
                self.server.put(*TRAINJOBS, {**job, "status": {"conditions": found}}, namespace)

    def _jobset_of(self, job: Manifest) -> Manifest:
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        ref, trainer = job["spec"]["runtimeRef"], job["spec"]["trainer"]
        kind = RUNTIMES if ref["kind"] == "TrainingRuntime" else CLUSTER_RUNTIMES
        runtime = self.server.find(*kind, ref["name"], namespace if kind is RUNTIMES else "")
        assert runtime is not None
        template = runtime["spec"]["template"]
        metadata, spec = template.get("metadata", {}), template["spec"]
        (replicated,) = spec["replicatedJobs"]
        nodes = trainer.get("numNodes", 1)
        replicated["template"]["spec"] |= {"parallelism": nodes, "completions": nodes}
        pod = replicated["template"]["spec"]["template"]
        container = pod["spec"]["containers"][0]
        container |= {key: trainer[key] for key in ("image", "command") if key in trainer}
        plugin = [
            {"name": "JAX_NUM_PROCESSES", "value": str(nodes)},
            {
                "name": "JAX_PROCESS_ID",
                "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}},
            },
            {"name": "JAX_COORDINATOR_ADDRESS", "value": f"{name}-node-0-0.{name}:29500"},
        ]
        container["env"] = [*container.get("env", ()), *plugin, *trainer.get("env", ())]
        for patch in job["spec"].get("runtimePatches", ()):
            patched = patch["trainingRuntimeSpec"]["template"]
            _label(metadata, patched.get("metadata", {}))
            for item in patched.get("spec", {}).get("replicatedJobs", ()):
                inner = item["template"]["spec"]["template"]
                _label(pod.setdefault("metadata", {}), inner.get("metadata", {}))
        owner = {
            "apiVersion": TRAINJOBS[0],
            "kind": "TrainJob",
            "name": name,
            "uid": job["metadata"]["uid"],
        }
        return {
            "apiVersion": JOBSETS[0],
            "kind": "JobSet",
            "metadata": {**metadata, "name": name, "ownerReferences": [owner]},
            "spec": spec,
        }

    def _jobset(self, jobset: Manifest) -> None:
        name, namespace = jobset["metadata"]["name"], jobset["metadata"]["namespace"]
        pods = [p for p in self._all(PODS) if p["metadata"]["labels"].get(NAME) == name]
        status = jobset.setdefault("status", {})
        if "deletionTimestamp" in jobset["metadata"]:
            for pod in pods:
                self.server.finalize(*PODS, pod["metadata"]["name"], namespace, 30)
            if not pods:
                self.server.remove(*JOBSETS, name, namespace)
            return
        if status.get("conditions") or jobset["spec"].get("suspend"):
            return
        restarts = status.get("restarts", 0)
        current = [p for p in pods if p["metadata"]["labels"][RESTART] == str(restarts)]
        job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
        failed = [p for p in current if p["status"]["phase"] == "Failed"]
        if not pods:
            for index in range(job["parallelism"]):
                self.server.put(*PODS, _pod(jobset, index, restarts), namespace)
        elif failed:
            self._fail(jobset, failed, pods)
        elif len(current) == job["parallelism"] and all(
            p["status"]["phase"] == "Succeeded" for p in current
        ):
            self._end(jobset, "Completed", "AllJobsCompleted", "jobset completed successfully")

    def _fail(self, jobset: Manifest, failed: list[Manifest], pods: list[Manifest]) -> None:
        namespace, status = jobset["metadata"]["namespace"], jobset["status"]
        policy = jobset["spec"].get("failurePolicy", {})
        job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
        rules = job.get("podFailurePolicy", {}).get("rules", ())
        final = {code for rule in rules for code in rule["onExitCodes"]["values"]}
        codes = {_exit_code(pod) for pod in failed}
        restarts, most = status.get("restarts", 0), policy.get("maxRestarts", 0)
        again = restarts < most and not codes & final
        running = [pod for pod in pods if pod["status"]["phase"] == "Running"]
        for pod in pods if again else running:
            self.server.finalize(*PODS, pod["metadata"]["name"], namespace, 30)
        if again:
            self.server.put(*JOBSETS, {**jobset, "status": {"restarts": restarts + 1}}, namespace)
        elif not running:  # as the real one, which waits for the last pod
            reason = "ReachedMaxRestarts" if most and not codes & final else "FailedJobs"
            self._end(jobset, "Failed", reason, "jobset failed due to one or more job failures")

    def _end(self, jobset: Manifest, kind: str, reason: str, message: str) -> None:
        ended = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now(),
        }
        jobset["status"]["conditions"] = [ended]
        self.server.put(*JOBSETS, jobset, jobset["metadata"]["namespace"])

    def _kubelet(self, pod: Manifest) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        leaving = "deletionTimestamp" in pod["metadata"]
        run = self._runs.get(name)
        if run is None:
            if leaving:
                self.server.remove(*PODS, name, namespace)
            elif self.pod_status is not None:
                if pod["status"] != self.pod_status:
                    self.server.put(*PODS, {**pod, "status": self.pod_status}, namespace)
            elif pod["status"]["phase"] == "Pending":
                self._start(pod)
            return
        if leaving:
            run.stop(min(self._grace, pod["metadata"]["deletionGracePeriodSeconds"]))
        if run.over and not run.told:
            run.told = True
            code = run.process.returncode
            self.server.exit(name, code if code >= 0 else 128 - code, namespace)
        elif run.told and leaving and time.monotonic() > run.ended + _SEEN_SECONDS:
            del self._runs[name]
            self.server.remove(*PODS, name, namespace)

    def _start(self, pod: Manifest) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self.server.start(name, namespace)
        container = pod["spec"]["containers"][0]
        self._runs[name] = _Run(
            [_expanded(item) for item in container["command"]],
            {"PATH": os.environ["PATH"], **self._environment(container, pod)},
            lambda text: self._write(name, namespace, text),
        )

    def _environment(self, container: Manifest, pod: Manifest) -> dict[str, str]:
        found: dict[str, str] = {}
        for item in container.get("env", ()):
            source = item.get("valueFrom", {})
            path = source.get("fieldRef", {}).get("fieldPath", "")
            if path:
                match = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
                assert match is not None, path
                found[item["name"]] = pod["metadata"][match[1]][match[2]]
            elif reference := source.get("secretKeyRef"):
                namespace = pod["metadata"]["namespace"]
                secret = self.server.find("v1", "secrets", reference["name"], namespace)
                assert secret is not None, reference
                found[item["name"]] = base64.b64decode(secret["data"][reference["key"]]).decode()
            else:
                found[item["name"]] = _expanded(item.get("value", ""))
        return found

    def _write(self, name: str, namespace: str, text: str) -> None:
        with self.server.changed:
            for line in re.findall(r"[^\n]*\n|[^\n]+", text):
                self.server.log(name, line, namespace)


class _Run:
    """One container: its process, and what it writes."""

    def __init__(self, argv: list[str], env: dict[str, str], write: Any) -> None:
        self.process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.told = False
        self.ended = 0.0
        self._stopped: float | None = None
        self._reader = threading.Thread(target=self._read, args=(write,), daemon=True)
        self._reader.start()

    @property
    def over(self) -> bool:
        return self.process.poll() is not None and not self._reader.is_alive()

    def stop(self, grace: float) -> None:
        if self._stopped is None:
            self._stopped = time.monotonic()
            self.process.terminate()  # the kubelet tells process 1 alone
        elif time.monotonic() - self._stopped > grace:
            self.kill(signal.SIGKILL)

    def kill(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def _read(self, write: Any) -> None:
        assert self.process.stdout is not None
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        with self.process.stdout as stream:
            while piece := os.read(stream.fileno(), 65536):
                write(decoder.decode(piece))
        self.process.wait()
        self.ended = time.monotonic()


def _pod(jobset: Manifest, index: int, restart: int) -> Manifest:
    name = jobset["metadata"]["name"]
    template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    owner = {
        "apiVersion": JOBSETS[0],
        "kind": "JobSet",
        "name": name,
        "uid": jobset["metadata"]["uid"],
    }
    labels = {
        NAME: name,
        "jobset.sigs.k8s.io/jobset-uid": jobset["metadata"]["uid"],
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        RESTART: str(restart),
        INDEX: str(index),
    }
    metadata = template.get("metadata", {})
    return {
        "metadata": {
            "generateName": f"{name}-node-0-{index}-",
            "labels": {**metadata.get("labels", {}), **labels},
            "annotations": {**metadata.get("annotations", {}), INDEX: str(index)},
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
        "status": {"phase": "Pending"},
    }


def _expanded(text: str) -> str:
    """Returns text as the kubelet hands it on; $(NAME) is not played."""
    assert "$(" not in text.replace("$$", ""), text
    return text.replace("$$", "$")


def _exit_code(pod: Manifest) -> int:
    (status,) = pod["status"]["containerStatuses"]
    return int(status["state"]["terminated"]["exitCode"])


def _label(metadata: Manifest, more: Manifest) -> None:
    metadata["labels"] = {**metadata.get("labels", {}), **more.get("labels", {})}


def pods_of(server: FakeApiServer, name: str) -> Iterator[Manifest]:
    for item in copy.deepcopy(list(server.objects.get(PODS, {}).values())):
        if item["metadata"]["labels"].get(NAME) == name:
            yield item
