"""Nodes of a job as real processes, started as a backend starts them but without one."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Nodes:
    """The processes of one job, and their output once they have ended."""

    processes: list[subprocess.Popen[str]]
    outputs: list[tuple[str, str]] = field(default_factory=list)

    def wait(self, timeout: float = 120) -> "Nodes":
        self.outputs = [process.communicate(timeout=timeout) for process in self.processes]
        return self

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
        self.wait()

    @property
    def codes(self) -> list[int]:
        return [process.returncode for process in self.processes]

    def reports(self, kind: str, process: int = 0) -> list[Mapping[str, Any]]:
        lines = self.outputs[process][0].splitlines()
        documents = [json.loads(line[9:]) for line in lines if line.startswith("@kfp-jax ")]
        return [document for document in documents if document["kind"] == kind]

    def metric(self, name: str) -> dict[int, float]:
        return {
            report["step"]: report["values"][name]
            for report in self.reports("metrics")
            if name in report["values"]
        }

    def result(self) -> Mapping[str, Any]:
        assert set(self.codes) == {0}, self.outputs
        values: Mapping[str, Any] = self.reports("result")[0]["values"]
        return values


def start_nodes(
    program: str,
    output: Path,
    parameters: Mapping[str, Any],
    *,
    count: int = 1,
    dataset: Path | None = None,
    python_path: Path | None = None,
) -> Nodes:
    """Starts `count` processes of a program, offline and on the loopback interface."""
    cores = sorted(os.sched_getaffinity(0))
    address = f"127.0.0.1:{_free_port()}"
    processes = []
    for index in range(count):
        environ = os.environ | {
            "JAX_COORDINATOR_ADDRESS": address,
            "JAX_COORDINATOR_BIND_ADDRESS": address,
            "JAX_NUM_PROCESSES": str(count),
            "JAX_PROCESS_ID": str(index),
            "JAX_PLATFORMS": "cpu",
            "KFP_JAX_PARAMETERS": json.dumps(parameters),
            "KFP_JAX_OUTPUT_URI": str(output),
            "KFP_JAX_CHECKPOINT_URI": "",
            "KFP_JAX_DATASET_URI": str(dataset or ""),
            "KFP_JAX_JOB": "test",
            "KFP_JAX_ATTEMPT": "1",
            "KFP_JAX_OFFLINE": "1",
            "PYTHONPATH": str(python_path or ""),
        }
        # One core each, also for a lone process: bit equality is promised for equal cores.
        core = str(cores[index % len(cores)])
        processes.append(
            subprocess.Popen(
                ["taskset", "-c", core, sys.executable, "-m", "kfp_jax_runtime.bootstrap", program],
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return Nodes(processes)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
