"""Builds our container images with the builder that is there, and tells their sizes.

    python tools/images.py [launcher trainer-cpu trainer-cuda trainer-tpu]
    python tools/images.py --again launcher

`make images` runs it. The builder is docker, podman or buildah, whichever answers first; or, for a
cluster of the end-to-end tests, the tool that KFP_JAX_E2E_CLUSTER names, which also loads them
there. With --again an image is also built a second time, without the first one's layers, and every
file compared.
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


@dataclass(frozen=True)
class Image:
    """What tells an image from the others, of which all else is in images/Dockerfile.

    Attributes:
        name: Without registry and version.
        description: What it holds, in a line.
        check: What must succeed in it.
        without: Packages that others in it ask for, left out on purpose.
        goal: Megabytes, uncompressed; None where an accelerator's libraries decide.
    """

    name: str
    description: str
    check: str
    without: Sequence[str]
    goal: int | None = None

    def arguments(self, folder: str) -> Mapping[str, str]:
        """Returns the arguments of its build."""
        return {
            "FOLDER": folder,
            "TITLE": f"kfp-jax/{self.name}",
            "DESCRIPTION": self.description,
            "CHECK": self.check,
            "WITHOUT": " ".join(self.without),
            "VERSION": __version__,
            "REVISION": revision(),
        }


def _trainer(kind: str, machine: str, jax: str, goal: int | None = None) -> Image:
    return Image(
        f"trainer-{kind}",
        f"A training node {machine}: kfp_jax_runtime, {jax} and what it trains with.",
        "python -c 'import jax, kfp_jax_runtime.mnist'",
        ("pyarrow",),
        goal,
    )


# By their folders under images/, each with its requirements.txt.
IMAGES: Mapping[str, Image] = {
    "launcher": Image(
        LAUNCHER,
        "Launches training: the components of a pipeline, kfp and the command line. No JAX.",
        "kfp-jax --version; python -c 'import kfp.dsl, kfp_jax.components'",
        ("alembic", "sqlalchemy"),
        350,
    ),
    "trainer-cpu": _trainer("cpu", "on CPU", "JAX", 900),
    "trainer-cuda": _trainer("cuda", "with NVIDIA GPUs", "JAX for CUDA 13"),
    "trainer-tpu": _trainer("tpu", "with TPUs", "JAX for TPU"),
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
    return image(IMAGES[folder].name)


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
    arguments: Mapping[str, str],
    environ: Mapping[str, str] = os.environ,
) -> str:
    """Builds one image; returns what the builder said, which is also in a file."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{re.sub(r'[^A-Za-z0-9.-]+', '-', name)}.log"
    options = [f"--build-arg={name}={value}" for name, value in arguments.items()]
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
        goal = IMAGES[folder].goal
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
    said = build(builder, f"{name}-listing", dockerfile, scratch, {}, unloaded(scratch))
    return {path: digest for digest, path in re.findall(r"folder ([0-9a-f]{64}) (/.*)", said)}


def differences(builder: Builder, folder: str) -> list[str]:
    """Builds an image once more, with no layer of the first one's, and returns what differs."""
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
        # Its layers are its own from the first step on, and kept for the next comparison.
        for first in ("base.sh", "build.txt"):
            with (copy / "images" / first).open("a") as file:
                file.write("# again\n")
        arguments = IMAGES[folder].arguments(folder)
        dockerfile = copy / "images" / "Dockerfile"
        build(builder, f"{name}-again", dockerfile, copy, arguments, unloaded(scratch))
        one, other = (contents(builder, built, scratch) for built in (name, f"{name}-again"))
    assert min(len(one), len(other)) > 100, f"{name}: {len(one)} and {len(other)} folders"
    return sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))


def main() -> None:
    """Builds what the command line names, by default all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="*", metavar="image", help=", ".join(IMAGES))
    parser.add_argument("--again", action="store_true", help="build twice and compare")
    given = parser.parse_args()
    if unknown := set(given.folders) - IMAGES.keys():
        sys.exit(
            f"images: there is no {', '.join(sorted(unknown))}; there are {', '.join(IMAGES)}."
        )
    builder = choose(os.environ)
    sizes: dict[str, float] = {}
    for folder in given.folders or IMAGES:
        name = full_name(folder)
        print(f"building {name} with {builder.build[0]}", flush=True)
        arguments = IMAGES[folder].arguments(folder)
        build(builder, name, ROOT / "images" / "Dockerfile", ROOT, arguments)
        sizes[folder] = size(builder, name)
        if given.again and (differing := differences(builder, folder)):
            shown = "\n  ".join(differing[:20])
            sys.exit(f"images: two builds of {name} differ in {len(differing)} folders:\n  {shown}")
    print(table(sizes))
    goals = {folder: IMAGES[folder].goal for folder in sizes}
    if over := [folder for folder, found in sizes.items() if found >= (goals[folder] or found + 1)]:
        sys.exit(f"images: larger than their goal: {', '.join(over)}")


if __name__ == "__main__":
    main()
