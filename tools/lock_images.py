"""Writes images/*/requirements.txt and images/build.txt: pinned as in constraints.txt, with hashes.

`make constraints` runs it, with Python 3.11 as in the images. pip chooses the files and tells their
hashes; nothing is installed. The files hold for amd64 and arm64, those
for accelerators for amd64 alone.
"""

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pin import pins

ROOT = Path(__file__).parent.parent
AMD64, ARM64 = "x86_64", "aarch64"


@dataclass(frozen=True)
class Lock:
    """What one file holds: all that `wanted` needs but `without`, for the machines."""

    wanted: Sequence[str]
    machines: Sequence[str] = (AMD64, ARM64)
    without: Sequence[str] = ()


# tensorflow-datasets imports it, 175 MB, for Parquet and Hugging Face alone.
NO_PARQUET = ("pyarrow",)
# Optuna imports them for studies in a database.
NO_DATABASE = ("alembic", "Mako", "SQLAlchemy")
# pip is there for those who build on an image.
LOCKS: Mapping[str, Lock] = {
    "images/build.txt": Lock(("hatchling", "pip", "setuptools")),
    "images/launcher/requirements.txt": Lock((".[kfp,kube,s3,sweep]",), without=NO_DATABASE),
    "images/trainer-cpu/requirements.txt": Lock((".[jax,s3]", "pip"), without=NO_PARQUET),
    "images/trainer-cuda/requirements.txt": Lock(
        (".[jax,s3]", "jax[cuda13]", "pip"), (AMD64,), without=NO_PARQUET
    ),
    "images/trainer-tpu/requirements.txt": Lock(
        (".[jax,s3]", "jax[tpu]", "pip"), (AMD64,), without=NO_PARQUET
    ),
}
GLIBC = range(36, 16, -1)  # bookworm has 2.36
HEADER = "# `make constraints` writes this file.\n"


def pip_report(*arguments: str) -> Mapping[str, Any]:
    """Returns what pip would install, as its report says it."""
    command = ("install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-", *arguments)
    done = subprocess.run(
        [sys.executable, "-m", "pip", *command], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    report: Mapping[str, Any] = json.loads(done.stdout)
    return report


def locked(lock: Lock) -> str:
    """Returns a requirements file."""
    found = pins(pip_report("--constraint", "constraints.txt", *lock.wanted))
    pinned = [pin for pin in found if pin.partition("==")[0] not in lock.without]
    hashes: dict[str, set[str]] = defaultdict(set)
    with tempfile.TemporaryDirectory() as nowhere:
        for machine in lock.machines:
            platforms = [f"--platform=manylinux_2_{minor}_{machine}" for minor in GLIBC]
            platforms.append(f"--platform=manylinux2014_{machine}")
            report = pip_report("--no-deps", "--target", nowhere, *platforms, *pinned)
            for item in report["install"]:
                pin = f"{item['metadata']['name']}=={item['metadata']['version']}"
                hashes[pin].add(item["download_info"]["archive_info"]["hashes"]["sha256"])
    return HEADER + "".join(
        " \\\n".join([pin, *(f"    --hash=sha256:{value}" for value in sorted(hashes[pin]))]) + "\n"
        for pin in pinned
    )


if __name__ == "__main__":
    for name, lock in LOCKS.items():
        (ROOT / name).write_text(locked(lock))
