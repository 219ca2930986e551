"""Slices of TPUs: as many nodes as the slice has hosts, or the pods wait for ever."""

import math
import re

from kfp_jax.errors import SpecError
from kfp_jax.manifests.pod import TPU
from kfp_jax.spec import TrainSpec

TOPOLOGY = "cloud.google.com/gke-tpu-topology"
ACCELERATOR = "cloud.google.com/gke-tpu-accelerator"
_NO_SINGLE_CHIP = "tpu-v5-lite-podslice"


def check_slice(spec: TrainSpec) -> None:
    """Refuses a topology that does not fit chips and nodes; what names none is left alone.

    Raises:
        SpecError: With the arithmetic.
    """
    chips = spec.pods.resources.accelerators.get(TPU)
    topology = spec.pods.node_selector.get(TOPOLOGY)
    if chips is None or topology is None:
        return
    if not re.fullmatch(r"\d+(x\d+){1,2}", topology):
        raise SpecError(f"TPU topology {topology!r:.40} is not valid; write it as 2x4 or 2x2x2.")
    total = math.prod(int(side) for side in topology.split("x"))
    if total == 1 and spec.pods.node_selector.get(ACCELERATOR) == _NO_SINGLE_CHIP:
        raise SpecError(
            f"TPU topology 1x1 does not exist for {_NO_SINGLE_CHIP}; give at least 2x2."
        )
    hosts, rest = divmod(total, chips)
    if rest or hosts != spec.num_nodes:
        share = f"{total} chips / {chips} per node = {total / chips:g} nodes"
        raise SpecError(
            f"TPU topology {topology} does not fit num_nodes {spec.num_nodes}: {share}; change"
            " num_nodes, the topology or the chips per node."
        )
