"""JAX's persistent compilation cache, so that the next start compiles nothing it has compiled."""

import os
from collections.abc import MutableMapping
from pathlib import Path


def set_up(environ: MutableMapping[str, str]) -> str:
    """Points JAX, which must not be imported yet, to a cache folder.

    The folder is JAX_COMPILATION_CACHE_DIR where that is set, else one of the user's own.

    Returns:
        A sentence on why there is no cache, or "" when there is one.
    """
    folder = _folder(environ)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return _off(environ, f"cannot create {folder} ({error.strerror})")
    if not os.access(folder, os.W_OK | os.X_OK):
        return _off(environ, f"cannot write to {folder}")
    environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    # JAX's own limits leave out everything that compiles in under a second: all of a small model.
    environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    return ""


def _folder(environ: MutableMapping[str, str]) -> Path:
    if given := environ.get("JAX_COMPILATION_CACHE_DIR"):
        return Path(given).absolute()
    if base := environ.get("XDG_CACHE_HOME"):
        return Path(base, "kfp-jax", "xla").absolute()
    home = environ.get("HOME") or "/nonexistent"
    return Path(home, ".cache", "kfp-jax", "xla")


def _off(environ: MutableMapping[str, str], why: str) -> str:
    environ.pop("JAX_COMPILATION_CACHE_DIR", None)
    return f"no compilation cache: {why}"
