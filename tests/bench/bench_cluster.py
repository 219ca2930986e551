"""A job on a cluster beside the Kubeflow SDK: to submit it, to hear of its end, to cancel it.

    KUBECONFIG=... python tests/bench/bench_cluster.py

Both make the same TrainJob on the same cluster, in turn; see tests/e2e/README.md for what that must
have. Requests are counted by a proxy in front of the API server.
"""

import json
import os
import random
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from e2e.mnist import PODS
from e2e.places import SHARED, kubectl
from e2e.sdk import VERSION, python_with_sdk
from fakes.proxy import Proxy, proxy_to
from figures import Figure, table
from kfp_jax.kube.access import find_access
from kfp_jax.kube.client import Client
from kfp_jax.kube.resources import NAMESPACES, TRAINJOBS
from kfp_jax.kube.session import Access
from kfp_jax.kube.stop import Stop
from kfp_jax.kube.watch import Listed, Target, watch
from kfp_jax.manifests.pod import CPU
from kfp_jax.spec import TrainSpec

HERE = Path(__file__).parent
LAUNCHER = HERE.parent / "e2e" / "launcher.py"
RUNTIMES = HERE.parent / "e2e" / "cluster"
SDK = HERE.parents[1] / "build" / "sdk"

SUBMITS = int(os.environ.get("KFP_JAX_BENCH_SUBMITS", "20"))
ENDS = int(os.environ.get("KFP_JAX_BENCH_ENDS", "12"))
CANCELS = int(os.environ.get("KFP_JAX_BENCH_CANCELS", "100"))
# Two rounds of our watches, which the server ends after 90 s each.
STEADY_SECONDS = int(os.environ.get("KFP_JAX_BENCH_STEADY", "180"))
LOG_SECONDS = 30
# The SDK's delete does not wait: what the server still has to do would slow down the next submit.
SETTLING_SECONDS = 2.0
END_GOAL_MS, CANCEL_GOAL_MS, MEMORY_GOAL_MB = 100.0, 50.0, 80.0


def missing() -> str:
    """Returns what keeps this from being measured, or ""."""
    return "" if os.environ.get("KUBECONFIG") else "KUBECONFIG is not set; it names the cluster"


def run_bench() -> dict[str, Any]:
    """Measures all of it in a namespace of its own."""
    kubectl("apply", "--server-side", "--force-conflicts", "-k", str(RUNTIMES))
    access = find_access(os.environ)()
    client = Client(lambda: access)
    with a_namespace(client) as (namespace, folder):
        submits = measure_submits(namespace, folder)
        ends = measure_ends(client, namespace, folder)
        rates = measure_requests(access, namespace, folder)
        cancels = measure_cancels(access, namespace, folder)
        memory = measure_memory(access, namespace, folder)
    figures = [*submit_figures(submits), *end_figures(ends), *request_figures(rates)]
    milliseconds = [1000 * seconds for seconds in cancels]
    p99 = statistics.quantiles(milliseconds, n=100, method="inclusive")[-1]
    figures += [
        Figure.of("SIGTERM to DELETE at the API server", milliseconds, "ms"),
        Figure(f"  99 of 100, {len(cancels)} tries", p99, "ms", CANCEL_GOAL_MS),
        Figure("memory of a launcher in a KFP task", memory / 1e6, "MB", MEMORY_GOAL_MB),
    ]
    return {
        "figures": [figure.to_json() for figure in figures],
        "sdk": VERSION,
        "submit_seconds": submits,
        "end_seconds": ends,
        "requests_per_second": rates,
        "cancel_seconds": cancels,
        "memory_bytes": memory,
    }


def submit_figures(submits: dict[str, list[float]]) -> list[Figure]:
    """Returns ours over the SDK's."""
    over = {
        name: statistics.median(submits[name]) / statistics.median(submits["sdk"])
        for name in ("submit", "whole", "unchecked")
    }
    return [
        Figure.of("submit, Kubeflow SDK", _ms(submits["sdk"]), "ms"),
        Figure.of("submit, ours, after the dry run", _ms(submits["submit"]), "ms"),
        Figure.of("dry run and submit, ours", _ms(submits["whole"]), "ms"),
        Figure.of(
            "submit, ours, without a dry run, as of a trial", _ms(submits["unchecked"]), "ms"
        ),
        Figure("  submit, ours over the SDK's", over["submit"], "", 1.0),
        Figure("  dry run and submit, ours over the SDK's", over["whole"], "", 2.0),
        Figure("  submit without a dry run, ours over the SDK's", over["unchecked"], ""),
    ]


def end_figures(ends: dict[str, list[float]]) -> list[Figure]:
    """Returns how long after the TrainJob said so each wait returned."""
    p95 = {
        name: statistics.quantiles(seconds, n=20, method="inclusive")[-1]
        for name, seconds in ends.items()
    }
    return [
        Figure.of("job's end to return of the wait, Kubeflow SDK", _ms(ends["sdk"]), "ms"),
        Figure.of("job's end to return of the wait, ours", _ms(ends["ours"]), "ms"),
        Figure("  95 of 100, ours", 1000 * p95["ours"], "ms", END_GOAL_MS),
        Figure("  95 of 100, ours over the SDK's", max(0.0, p95["ours"]) / p95["sdk"], "", 0.1),
    ]


def request_figures(rates: dict[str, float]) -> list[Figure]:
    """Returns the requests of a wait of ten minutes."""
    return [
        Figure("API requests of a wait of 10 min, Kubeflow SDK", 600 * rates["sdk"], ""),
        Figure("API requests of a wait of 10 min, ours", 600 * rates["ours"], ""),
        Figure("  ours over the SDK's", rates["ours"] / rates["sdk"], "", 0.05),
    ]


class Child:
    """A process that does what it is told."""

    def __init__(self, python: Path | str, script: str, *arguments: str, kubeconfig: str = ""):
        environ = os.environ | ({"KUBECONFIG": kubeconfig} if kubeconfig else {})
        if python != sys.executable:
            environ.pop("PYTHONPATH", None)
        self._process = subprocess.Popen(
            [python, HERE / script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        )

    def tell(self, *words: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process ended with {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, *words: object) -> dict[str, Any]:
        self.tell(*words)
        return self.answer()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def both(stack: ExitStack, namespace: str, folder: Path, *kubeconfigs: str) -> dict[str, Child]:
    """Starts both sides; kubeconfigs for ours and for the SDK's."""
    ours, sdks = kubeconfigs or ("", "")
    return {
        "ours": stack.enter_context(
            Child(
                sys.executable,
                "cluster_ours.py",
                namespace,
                str(folder / secrets.token_hex(4)),
                kubeconfig=ours,
            )
        ),
        "sdk": stack.enter_context(
            Child(python_with_sdk(SDK), "cluster_sdk.py", namespace, CPU.image, kubeconfig=sdks)
        ),
    }


def measure_submits(namespace: str, folder: Path) -> dict[str, list[float]]:
    """Returns the seconds of each call, in turn: the SDK's, ours after a dry run and without."""
    found: dict[str, list[float]] = {"sdk": [], "submit": [], "whole": [], "unchecked": []}
    with ExitStack() as stack:
        sides = both(stack, namespace, folder)
        for turn in range(SUBMITS + 1):
            answers = {}
            for name, who, action in (
                ("sdk", "sdk", "submit"),
                ("submit", "ours", "checked"),
                ("unchecked", "ours", "submit"),
            ):
                answers[name] = sides[who].ask(action, 60)
                sides[who].ask("delete")
                time.sleep(SETTLING_SECONDS)
            if turn:  # the first connects
                for name, answer in answers.items():
                    found[name].append(answer["seconds"])
                found["whole"].append(answers["submit"]["whole"])
    return found


def measure_ends(client: Client, namespace: str, folder: Path) -> dict[str, list[float]]:
    """Returns the seconds from the TrainJob's last condition to the return of each wait."""
    found: dict[str, list[float]] = {"sdk": [], "ours": []}
    with ExitStack() as stack:
        sides = both(stack, namespace, folder)
        seen = stack.enter_context(ends_seen(client, namespace))
        for _ in range(ENDS):
            for name, side in sides.items():
                job = side.ask("submit", round(random.uniform(1.5, 3.5), 3))["name"]
                returned = side.ask("wait")["returned"]
                while job not in seen:
                    time.sleep(0.01)
                found[name].append(returned - seen[job])
                side.ask("delete")
    return found


@contextmanager
def ends_seen(client: Client, namespace: str) -> Iterator[dict[str, float]]:
    """Gives when a watch of its own saw each TrainJob complete, by time.time()."""
    seen: dict[str, float] = {}
    stop = Stop()

    def look() -> None:
        for event in watch(client, Target(TRAINJOBS, namespace), stop=stop):
            now = time.time()
            for job in event.objects if isinstance(event, Listed) else (event.object,):
                conditions = job.get("status", {}).get("conditions", ())
                if any((c["type"], c["status"]) == ("Complete", "True") for c in conditions):
                    seen.setdefault(job["metadata"]["name"], now)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    yield seen
    stop.set()
    thread.join()


def measure_requests(access: Access, namespace: str, folder: Path) -> dict[str, float]:
    """Returns the requests a second of both while they wait for a job that runs."""
    with ExitStack() as stack:
        proxies = {name: stack.enter_context(proxy_to(access)) for name in ("ours", "sdk")}
        paths = []
        for name, proxy in proxies.items():
            (folder / name).mkdir(exist_ok=True)
            paths.append(proxy.kubeconfig(folder / name, namespace))
        sides = both(stack, namespace, folder, *paths)
        for side in sides.values():
            side.ask("submit", 3600)
            side.tell("wait")
        time.sleep(15)
        before = {name: len(proxy.seen) for name, proxy in proxies.items()}
        time.sleep(STEADY_SECONDS)
        return {
            name: (len(proxy.seen) - before[name]) / STEADY_SECONDS
            for name, proxy in proxies.items()
        }


def measure_cancels(access: Access, namespace: str, folder: Path) -> list[float]:
    """Returns the seconds from SIGTERM to the arrival of the DELETE, a new launcher each time."""
    found = []
    with proxy_to(access) as proxy:
        config = proxy.kubeconfig(folder, namespace)
        for number in range(CANCELS):
            found.append(cancel_once(proxy, config, namespace, folder / f"cancel-{number}"))
    return found


def cancel_once(proxy: Proxy, kubeconfig: str, namespace: str, folder: Path) -> float:
    """Starts a launcher, tells it to stop while it waits, and returns how long it took to act."""
    spec = TrainSpec(
        name="bench",
        output_uri=str(folder),
        command=("sh", "-c", "trap 'exit 0' TERM; sleep 600 & wait"),
        pods=PODS,
    )
    first = len(proxy.seen)
    command = [sys.executable, LAUNCHER, "trainer", namespace, json.dumps(spec.to_json())]
    launcher = subprocess.Popen(
        command, env=os.environ | {"KUBECONFIG": kubeconfig}, stdout=subprocess.DEVNULL
    )
    try:
        _until(lambda: any("/log?" in item.path for item in proxy.seen[first:]))
        time.sleep(random.uniform(0.1, 0.6))
        sent = time.time()
        launcher.send_signal(signal.SIGTERM)
        deletes: list[float] = []

        def deleted() -> bool:
            deletes[:] = [s.moment for s in proxy.seen[first:] if s.method == "DELETE"]
            return bool(deletes)

        _until(deleted)
        return deletes[0] - sent
    finally:
        launcher.kill()
        launcher.wait()


def measure_memory(access: Access, namespace: str, folder: Path) -> int:
    """Returns the most memory of a launcher that waits for two processes that write a lot."""
    account = folder / "account"
    account.mkdir()
    (account / "namespace").write_text(namespace)
    token = kubectl("create", "token", "default", "-n", namespace)
    (account / "token").write_text(token)
    (account / "ca.crt").write_bytes(Path(access.tls["ca_certs"]).read_bytes())
    kubectl(
        "create", "rolebinding", "bench", "-n", namespace, "--clusterrole=cluster-admin",
        f"--serviceaccount={namespace}:default",
    )  # fmt: skip
    host, _, port = access.server.removeprefix("https://").rpartition(":")
    script = f"i=0; while [ $i -lt {LOG_SECONDS * 10} ]; do i=$((i + 1)); seq 100; sleep 0.1; done"
    spec = TrainSpec(
        name="bench",
        output_uri=str(folder / "memory"),
        command=("sh", "-c", script),
        num_nodes=2,
        pods=PODS,
    )
    environ = os.environ | {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    environ = {k: v for k, v in environ.items() if k != "KUBECONFIG"} | {"HOME": str(folder)}
    done = subprocess.run(
        [
            sys.executable,
            HERE / "cluster_launcher.py",
            str(account),
            namespace,
            json.dumps(spec.to_json()),
        ],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(done.stdout)
    if answer["phase"] != "SUCCEEDED":
        raise RuntimeError(answer["said"])
    return int(answer["bytes"])


@contextmanager
def a_namespace(client: Client) -> Iterator[tuple[str, Path]]:
    """Gives a fresh namespace, and a folder that its pods see too."""
    name = f"kfp-jax-bench-{secrets.token_hex(4)}"
    umask = os.umask(0)
    SHARED.mkdir(exist_ok=True)
    client.create(NAMESPACES, "", {"metadata": {"name": name}})
    with tempfile.TemporaryDirectory(dir=SHARED) as folder:
        Path(folder).chmod(0o777)
        try:
            yield name, Path(folder)
        finally:
            os.umask(umask)
            client.delete(NAMESPACES, "", name)


def _until(found: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not found():
        if time.monotonic() > end:
            raise RuntimeError(f"not within {seconds:g} s")
        time.sleep(0.002)


def _ms(seconds: list[float]) -> list[float]:
    return [1000 * item for item in seconds]


if __name__ == "__main__":
    if missing():
        sys.exit(missing())
    print(table(run_bench()["figures"]))
