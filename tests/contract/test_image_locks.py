"""The images hold what `constraints.txt` pins, with hashes, and all that our package needs."""

import re
import tomllib
from pathlib import Path

import pytest
from kfp_jax.images import LAUNCHER, image
from kfp_jax.manifests.pod import FLAVORS

from images import IMAGES

ROOT = Path(__file__).parents[2]
FOLDERS = ROOT / "images"
EXTRAS = {
    "launcher": ("kfp", "kube", "s3", "sweep"),
    "trainer-cpu": ("jax", "s3"),
    "trainer-cuda": ("jax", "s3"),
    "trainer-tpu": ("jax", "s3"),
}
# What JAX needs on an accelerator, and a set-up for development never has.
ACCELERATOR = {
    "trainer-cuda": ({"jax-cuda13-plugin", "jax-cuda13-pjrt", "nvidia-cudnn-cu13"}, "nvidia-|jax-"),
    "trainer-tpu": ({"libtpu"}, "libtpu"),
}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file: Path) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==(\S+)", file.read_text(), re.MULTILINE)
    return {normal(name): version for name, version in found}


def required(extras: tuple[str, ...]) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [
        project["dependencies"],
        *(project["optional-dependencies"][extra] for extra in extras),
    ]
    names = [re.match(r"[\w.-]+", item) for items in lists for item in items]
    return {normal(name[0]) for name in names if name}


def test_each_image_of_a_job_and_of_a_task_has_its_folder() -> None:
    names = {image(LAUNCHER)} | {kind.image for kind in FLAVORS}
    ours = {item.name for item in IMAGES.values()}
    assert {name.rpartition(":")[0].rpartition("/")[2] for name in names} == ours
    locks = {path.parent.name for path in FOLDERS.glob("*/requirements.txt")}
    assert locks == IMAGES.keys() == EXTRAS.keys()


@pytest.mark.parametrize("file", sorted(FOLDERS.rglob("*.txt")), ids=lambda p: p.parent.name)
def test_an_image_installs_what_is_pinned_with_hashes_alone(file: Path) -> None:
    pinned, constraints = pins(file), pins(ROOT / "constraints.txt")
    assert pinned
    beyond = pinned.keys() - constraints.keys()
    needed, allowed = ACCELERATOR.get(file.parent.name, (set(), "nothing"))
    assert needed <= beyond
    assert not [name for name in beyond if not re.match(allowed, name)]
    shared = pinned.keys() - beyond
    assert {name: pinned[name] for name in shared} == {name: constraints[name] for name in shared}
    entry = r"[\w.-]+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n"
    assert re.fullmatch(rf"# .*\n({entry})+", file.read_text()), f"{file} has another form"


@pytest.mark.parametrize("folder", EXTRAS)
def test_an_image_has_all_that_its_extras_need(folder: str) -> None:
    assert required(EXTRAS[folder]) <= pins(FOLDERS / folder / "requirements.txt").keys()


def test_images_run_as_a_number_and_not_as_root() -> None:
    users = re.findall(r"^USER (.*)$", (FOLDERS / "Dockerfile").read_text(), re.MULTILINE)
    assert re.fullmatch(r"[1-9]\d*", users[-1])


@pytest.mark.parametrize("folder", EXTRAS)
def test_what_is_left_out_on_purpose_is_not_in_the_lock(folder: str) -> None:
    left_out = IMAGES[folder].without
    assert left_out
    assert not pins(FOLDERS / folder / "requirements.txt").keys() & set(left_out)
