"""A script written for JAXJob v1: it knows nothing of kfp-jax."""

import os

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

jax.distributed.initialize(
    coordinator_address=f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}",
    num_processes=int(os.environ["NUM_PROCESSES"]),
    process_id=int(os.environ["PROCESS_ID"]),
)
gathered = multihost_utils.process_allgather(jnp.float32(int(os.environ["PROCESS_ID"])))
print(f"sum of {len(gathered)} processes: {gathered.sum()}")
jax.distributed.shutdown()
