"""Does with the Kubeflow SDK what it is told; see `cluster_ours.py`. Runs where kfp-jax is not."""

import json
import sys
import time

from kubeflow.common.types import KubernetesBackendConfig
from kubeflow.trainer import CustomTrainerContainer, TrainerClient
from kubeflow.trainer.options import TrainerCommand


def main(namespace: str, image: str) -> None:
    client = TrainerClient(KubernetesBackendConfig(namespace=namespace))
    runtime = client.get_runtime("kfp-jax-cpu")
    name = ""
    for line in sys.stdin:
        action, *arguments = line.split()
        answer = {}
        if action == "submit":
            trainer = CustomTrainerContainer(image=image, num_nodes=1)
            options = [TrainerCommand(command=["sh", "-c", f"sleep {arguments[0]}"])]
            began = time.perf_counter()
            name = client.train(runtime=runtime, trainer=trainer, options=options)
            answer = {"name": name, "seconds": time.perf_counter() - began}
        elif action == "wait":
            job = client.wait_for_job_status(name, timeout=1200)
            answer = {"returned": time.time(), "phase": job.status}
        elif action == "delete":
            client.delete_job(name)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
