"""A job that asked for accelerators does not train on CPU without a word."""

import pytest
from kfp_jax_runtime import devices
from kfp_jax_runtime.errors import BadInput


@pytest.mark.parametrize("platforms", ["cuda,cpu", "tpu,cpu", "cuda"])
def test_what_was_asked_for_and_is_not_there_is_told(platforms: str) -> None:
    wanted = platforms.split(",")[0]
    with pytest.raises(
        BadInput, match=rf"asked for {wanted}, and JAX found cpu, with jax \d.*, jaxlib \d"
    ):
        devices.check({"JAX_PLATFORMS": platforms})


@pytest.mark.parametrize("environ", [{}, {"JAX_PLATFORMS": ""}, {"JAX_PLATFORMS": "cpu"}])
def test_without_a_wish_anything_is_right(environ: dict[str, str]) -> None:
    devices.check(environ)
