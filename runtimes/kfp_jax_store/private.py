"""Folders of this user alone in a temporary folder that others write to as well."""

import os
import stat
import tempfile
from pathlib import Path

from kfp_jax_store.store import StoreError


def private_folder(kind: str) -> Path:
    """Returns a folder that nobody else can read or put something into, made where it is not there.

    Raises:
        StoreError: Somebody else has made it, or a link of its name.
    """
    path = Path(tempfile.gettempdir(), f"kfp-jax-{kind}-{os.getuid()}")
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise StoreError(f"{path} is somebody else's; remove it, or set TMPDIR to another folder.")
    if found.st_mode & 0o077:
        path.chmod(0o700)
    return path
