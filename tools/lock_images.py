"""Writes images/*/requirements.txt and images/build.txt: pinned as in constraints.txt, with hashes.

`make constraints` runs it, with Python 3.11 as in the images. pip chooses the files and tells their
hashes; nothing is installed. The files hold for amd64 and arm64.
"""

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pin import pins

ROOT = Path(__file__).parent.parent
# pip is there for those who build on an image.
WANTED: Mapping[str, Sequence[str]] = {
    "images/build.txt": ("hatchling", "pip", "setuptools"),
    "images/launcher/requirements.txt": (".[kfp,kube,s3,sweep]", "pip"),
    "images/trainer-cpu/requirements.txt": (".[jax,s3]", "pip"),
}
# Bookworm has glibc 2.36.
GLIBC = (36, 35, 34, 33, 32, 31, 28, 27, 26, 24, 17)
MACHINES = ("x86_64", "aarch64")
HEADER = "# `make constraints` writes this file.\n"


def pip_report(*arguments: str) -> Mapping[str, Any]:
    """Returns what pip would install, as its report says it."""
    command = ("install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-", *arguments)
    done = subprocess.run(
        [sys.executable, "-m", "pip", *command], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    report: Mapping[str, Any] = json.loads(done.stdout)
    return report


def locked(wanted: Sequence[str]) -> str:
    """Returns a requirements file with all that `wanted` needs."""
    pinned = pins(pip_report("--constraint", "constraints.txt", *wanted))
    hashes: dict[str, set[str]] = defaultdict(set)
    with tempfile.TemporaryDirectory() as nowhere:
        for machine in MACHINES:
            platforms = [f"--platform=manylinux_2_{minor}_{machine}" for minor in GLIBC]
            report = pip_report("--no-deps", "--target", nowhere, *platforms, *pinned)
            for item in report["install"]:
                pin = f"{item['metadata']['name']}=={item['metadata']['version']}"
                hashes[pin].add(item["download_info"]["archive_info"]["hashes"]["sha256"])
    return HEADER + "".join(
        " \\\n".join([pin, *(f"    --hash=sha256:{value}" for value in sorted(hashes[pin]))]) + "\n"
        for pin in pinned
    )


if __name__ == "__main__":
    for name, wanted in WANTED.items():
        (ROOT / name).write_text(locked(wanted))
