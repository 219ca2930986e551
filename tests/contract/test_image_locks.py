"""The images hold what `constraints.txt` pins, with hashes, and all that our package needs."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "images"
EXTRAS = {"launcher": ("kfp", "kube"), "trainer-cpu": ("jax",)}


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


@pytest.mark.parametrize("file", sorted(IMAGES.rglob("*.txt")), ids=lambda p: p.parent.name)
def test_an_image_installs_what_is_pinned_with_hashes_alone(file: Path) -> None:
    pinned, constraints = pins(file), pins(ROOT / "constraints.txt")
    assert pinned
    assert pinned == {name: constraints[name] for name in pinned}
    entry = r"[\w.-]+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n"
    assert re.fullmatch(rf"# .*\n({entry})+", file.read_text()), f"{file} has another form"


@pytest.mark.parametrize("image", EXTRAS)
def test_an_image_has_all_that_its_extras_need(image: str) -> None:
    assert required(EXTRAS[image]) <= pins(IMAGES / image / "requirements.txt").keys()


@pytest.mark.parametrize("image", EXTRAS)
def test_an_image_runs_as_a_number_and_not_as_root(image: str) -> None:
    last = (IMAGES / image / "Dockerfile").read_text().splitlines()[-1]
    assert re.fullmatch(r"USER [1-9]\d*", last)
