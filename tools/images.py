"""Builds our container images with the builder that is there, and tells their sizes.

    python tools/images.py [launcher trainer-cpu trainer-cuda trainer-tpu]
    python tools/images.py --again launcher

`make images` runs it. The builder is docker, podman or buildah, whichever answers first; or, for a
cluster of the end-to-end tests, the tool that KFP_JAX_E2E_CLUSTER names, which also loads them
there. With --again an image is also built a second time from nothing, and every file compared.
"""

import argparse
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kfp_jax import __version__
from kfp_jax.images import LAUNCHER, image

ROOT = Path(__file__).parent.parent
LOGS = ROOT / "build" / "images"
CONTEXT = (
    "components",
    "images",
    "pipelines",
    "runtimes",
    "LICENSE",
    "README.md",
    "pyproject.toml",
)
# Megabytes, uncompressed. What an accelerator's libraries weigh is not ours to say.
GOALS: Mapping[str, int | None] = {
    "launcher": 350,
    "trainer-cpu": 900,
    "trainer-cuda": None,
    "trainer-tpu": None,
}
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
# Prints a digest of each folder: what is in it, whose it is, who may do what with it.
LISTING = """\
import hashlib, os
OTHERS = ("/proc", "/sys", "/dev", "/run") # where a builder mounts and writes
for folder, folders, files in os.walk("/"):
    folders[:] = sorted(f for f in folders if folder + f not in OTHERS)
    digest = hashlib.sha256()
    for path in (os.path.join(folder, name) for name in sorted([*folders, *files])):
        seen = os.lstat(path)
        digest.update(f"{path} {seen.st_mode} {seen.st_uid} {seen.st_gid}".encode())
        if os.path.islink(path):
            digest.update(os.readlink(path).encode())
        elif os.path.isfile(path):
            digest.update(hashlib.sha256(open(path, "rb").read()).digest())
    print("folder", digest.hexdigest(), folder)
"""


@dataclass(frozen=True)
class Builder:
    """A program that builds images.

    Attributes:
        answers: A command that succeeds where it can work.
        build: What the options of a build follow.
        size: A command that tells the size of the image whose name follows.
    """

    answers: Sequence[str]
    build: Sequence[str]
    size: Sequence[str]


INSPECT = ("image", "inspect", "--format", "{{.Size}}")
BUILDERS = (
    Builder(("docker", "info"), ("docker", "build"), ("docker", *INSPECT)),
    Builder(("podman", "info"), ("podman", "build", "--format=docker"), ("podman", *INSPECT)),
    Builder(
        ("buildah", "info"),
        ("buildah", "build", "--layers", "--format=docker"),
        ("buildah", "images", "--format", "{{.Size}}"),
    ),
)


def cluster_builder(command: Sequence[str], environ: Mapping[str, str]) -> Builder:
    """Returns the tool of a test cluster: buildah, with a storage of its own."""
    cache = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    storage = f"{environ.get('KFP_JAX_CLUSTER_CACHE') or f'{cache}/kfp-jax-cluster'}/buildah"
    own = (
        "--root",
        f"{storage}/storage",
        "--runroot",
        f"{storage}/run",
        "--storage-driver",
        "overlay",
    )
    return Builder(
        (*command, "status"),
        (*command, "image", "build"),
        ("buildah", *own, "images", "--format", "{{.Size}}"),
    )


def choose(environ: Mapping[str, str]) -> Builder:
    """Returns the first builder that answers."""
    named = shlex.split(environ.get("KFP_JAX_E2E_CLUSTER", ""))
    candidates = [cluster_builder(named, environ)] if named else BUILDERS
    for builder in candidates:
        if shutil.which(builder.answers[0]) and succeeds(builder.answers):
            return builder
    tried = ", ".join(" ".join(builder.answers) for builder in candidates)
    sys.exit(
        f"images: nothing here builds images; tried: {tried}."
        " Start docker, or install podman or buildah."
    )


def succeeds(command: Sequence[str]) -> bool:
    """Returns whether a command ends well."""
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def full_name(folder: str) -> str:
    """Returns the name of the image of a folder under images/."""
    return image(LAUNCHER if folder == "launcher" else folder)


def revision() -> str:
    """Returns the commit that is built, if git knows it."""
    if not shutil.which("git"):
        return "unknown"
    command = ("git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def build(
    builder: Builder,
    name: str,
    dockerfile: Path,
    context: Path,
    environ: Mapping[str, str] = os.environ,
) -> str:
    """Builds one image; returns what the builder said, which is also in a file."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{re.sub(r'[^A-Za-z0-9.-]+', '-', name)}.log"
    arguments = (f"VERSION={__version__}", f"REVISION={revision()}")
    options = [f"--build-arg={argument}" for argument in arguments]
    command = (*builder.build, *options, "-t", name, "-f", str(dockerfile), str(context))
    with log.open("w") as file:
        done = subprocess.run(
            command, stdout=file, stderr=subprocess.STDOUT, env=environ, check=False
        )
    said = log.read_text(errors="replace")
    if done.returncode != 0:
        sys.exit(
            "".join(said.splitlines(keepends=True)[-20:]) + f"images: {name} failed, see {log}"
        )
    return said


def megabytes(said: str) -> float:
    """Returns a size such as 325058560 or "311 MB" in megabytes."""
    found = re.fullmatch(r"([\d.]+) ?([KMG]?B)?", said.strip())
    assert found, f"no size: {said!r}"
    return float(found[1]) * UNITS[(found[2] or "").upper()] / 10**6


def size(builder: Builder, name: str) -> float:
    """Returns the uncompressed size of an image in megabytes."""
    done = subprocess.run((*builder.size, name), stdout=subprocess.PIPE, text=True, check=True)
    return megabytes(done.stdout.splitlines()[0])


def table(sizes: Mapping[str, float]) -> str:
    """Returns names, sizes and goals as lines."""
    rows = [("image", "uncompressed", "goal")]
    for folder, found in sizes.items():
        goal = GOALS[folder]
        rows.append((full_name(folder), f"{found:.0f} MB", f"< {goal} MB" if goal else "none"))
    width = max(len(name) for name, _, _ in rows)
    return "\n".join(f"{name:{width}}  {found:>12}  {goal:>8}" for name, found, goal in rows)


def unloaded(nowhere: Path) -> Mapping[str, str]:
    """Returns an environment in which a cluster's tool sees no cluster to load an image into."""
    return os.environ | {"KFP_JAX_CLUSTER_STATE": str(nowhere)}


def contents(builder: Builder, name: str, scratch: Path) -> dict[str, str]:
    """Returns a digest of every folder of an image, which a build on top of it prints."""
    (scratch / "listing.py").write_text(LISTING)
    dockerfile = scratch / "Dockerfile"
    once = f": {secrets.token_hex(8)}"  # a step that comes from a cache prints nothing
    dockerfile.write_text(
        f"FROM {name}\nUSER 0\nCOPY listing.py /tmp/\nRUN {once}; python /tmp/listing.py\n"
    )
    said = build(builder, f"{name}-listing", dockerfile, scratch, unloaded(scratch))
    return {path: digest for digest, path in re.findall(r"folder ([0-9a-f]{64}) (/.*)", said)}


def differences(builder: Builder, folder: str) -> list[str]:
    """Builds an image once more, with no layer of the first, and returns what differs."""
    name = full_name(folder)
    with tempfile.TemporaryDirectory() as made:
        scratch, copy = Path(made) / "listing", Path(made) / "copy"
        scratch.mkdir()
        copy.mkdir()
        for item in CONTEXT:
            source = ROOT / item
            if source.is_dir():
                ignore = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, copy / item, ignore=ignore)
            else:
                shutil.copy(source, copy)
        once = secrets.token_hex(8)  # else the second build comes from the first one's layers
        for first in ("base.sh", "build.txt"):
            with (copy / "images" / first).open("a") as file:
                file.write(f"# {once}\n")
        dockerfile = copy / "images" / folder / "Dockerfile"
        build(builder, f"{name}-again", dockerfile, copy, unloaded(scratch))
        one, other = (contents(builder, built, scratch) for built in (name, f"{name}-again"))
    assert min(len(one), len(other)) > 100, f"{name}: {len(one)} and {len(other)} folders"
    return sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))


def main() -> None:
    """Builds what the command line names, by default all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="*", metavar="image", help=", ".join(GOALS))
    parser.add_argument("--again", action="store_true", help="build twice and compare")
    given = parser.parse_args()
    if unknown := set(given.folders) - GOALS.keys():
        sys.exit(f"images: there is no {', '.join(sorted(unknown))}; there are {', '.join(GOALS)}.")
    builder = choose(os.environ)
    sizes: dict[str, float] = {}
    for folder in given.folders or GOALS:
        name = full_name(folder)
        print(f"building {name} with {builder.build[0]}", flush=True)
        build(builder, name, ROOT / "images" / folder / "Dockerfile", ROOT)
        sizes[folder] = size(builder, name)
        if given.again and (differing := differences(builder, folder)):
            shown = "\n  ".join(differing[:20])
            sys.exit(f"images: two builds of {name} differ in {len(differing)} folders:\n  {shown}")
    print(table(sizes))
    if over := [folder for folder, found in sizes.items() if found >= (GOALS[folder] or found + 1)]:
        sys.exit(f"images: larger than their goal: {', '.join(over)}")


if __name__ == "__main__":
    main()
