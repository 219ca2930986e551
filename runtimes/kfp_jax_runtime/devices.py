"""Whether JAX found the devices that the job asked for."""

from collections.abc import Mapping

from kfp_jax_runtime.errors import BadInput

_PACKAGES = (
    "jax",
    "jaxlib",
    "jax-cuda12-plugin",
    "jax-cuda12-pjrt",
    "jax-cuda13-plugin",
    "jax-cuda13-pjrt",
    "libtpu",
)


def check(environ: Mapping[str, str]) -> None:
    """Refuses to train on CPU where JAX_PLATFORMS names another platform first.

    JAX itself goes on to the next of the list without a word where the plug-in of the first is not
    installed, and a training for GPUs then takes a day in place of an hour. To be called after the
    processes have met, which JAX allows only before it looks for devices.

    Raises:
        BadInput: the devices are of another platform.
    """
    wanted = environ.get("JAX_PLATFORMS", "").split(",")[0].strip()
    if wanted in ("", "cpu"):
        return
    import jax

    try:
        found = jax.default_backend()
    except RuntimeError as error:
        raise BadInput(_sentence(wanted, f"failed ({str(error).splitlines()[0]})")) from error
    # JAX calls the platform of CUDA and of ROCm "gpu".
    if found != wanted and (found, wanted) not in (("gpu", "cuda"), ("gpu", "rocm")):
        raise BadInput(_sentence(wanted, f"found {found}"))


def _sentence(wanted: str, seen: str) -> str:
    return (
        f"the job asked for {wanted}, and JAX {seen}, with {_installed()}: put JAX's plug-in for"
        f" {wanted}, of the version of jax, into the image, and check that the node has the device"
    )


def _installed() -> str:
    from importlib import metadata

    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    plugins = any("cuda" in item or "libtpu" in item for item in found)
    return ", ".join(found) + ("" if plugins else " and no plug-in")
