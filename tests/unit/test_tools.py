"""The small programs behind make's targets."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import audit
import pin
import pytest
from kfp_jax import __version__

import docs
import images

TOOLS = Path(__file__).parents[2] / "tools"


PAGE = """\
Some text.

```bash
make demo
ls build
```

```console
$ not run
```

```
```

- an item
  ```bash
  make help
  ```
"""


def test_only_bash_blocks_are_commands() -> None:
    blocks = list(docs.bash_blocks("page.md", PAGE))
    assert blocks == [
        docs.Block("page.md", 3, ("make demo", "ls build")),
        docs.Block("page.md", 16, ("  make help",)),
    ]


def test_a_block_that_is_never_closed_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"page\.md:2: .* never closed"):
        list(docs.bash_blocks("page.md", "text\n```bash\nmake demo\n"))


def test_only_a_literal_line_counts_as_already_run() -> None:
    block = docs.Block("page.md", 1, ("make demo", "  make help", "make demo --again"))
    assert block.without({"make demo", "make help"}).commands == ("make demo --again",)


@pytest.mark.parametrize(
    ("commands", "exit_code"),
    [
        pytest.param(("true", "false | true", "true"), 1, id="a-failing-pipe"),
        pytest.param(("echo $no_such_variable",), 1, id="an-unset-variable"),
        pytest.param(("exit 3",), 3, id="own-exit-code"),
        pytest.param(("cd /", "test $PWD = /"), 0, id="one-script"),
    ],
)
def test_a_block_ends_at_its_first_failing_command(
    commands: tuple[str, ...], exit_code: int
) -> None:
    assert docs.run(docs.Block("page.md", 1, commands)) == exit_code


def test_pins_name_every_package_but_our_own() -> None:
    names = {"kfp-jax": "0.1.0", "jax": "0.10.2", "Jinja2": "3.1.6"}
    report = {
        "install": [{"metadata": {"name": n, "version": v}} for n, v in names.items()],
    }
    assert pin.pins(report) == ["jax==0.10.2", "Jinja2==3.1.6"]


def report(*dependencies: Mapping[str, object]) -> dict[str, object]:
    return {"dependencies": list(dependencies), "fixes": []}


SOUND = {"name": "jax", "version": "0.10.2", "vulns": []}
FLAWED = {
    "name": "x",
    "version": "1",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"], "aliases": [], "description": ""}],
}
UNKNOWN = {"name": "y", "skip_reason": "Dependency not found on PyPI"}


def test_a_package_that_could_not_be_asked_about_is_not_sound() -> None:
    assert audit.read(report(SOUND, FLAWED)) == audit.Audit(2, ["x 1: PYSEC-1, mended in 1.1"], [])
    assert audit.read(report(SOUND, UNKNOWN)) == audit.Audit(1, [], [UNKNOWN["skip_reason"]])


@pytest.mark.integration
def test_an_audit_without_network_says_so(require_tool: Callable[[str], str]) -> None:
    require_tool("pip-audit")
    nowhere = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, TOOLS / "audit.py"],
        env=os.environ | nowhere | {"NO_PROXY": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == audit.NOT_ASKED, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert "not audited: neither pypi nor osv could be asked" in done.stdout


def run_images(path: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, TOOLS / "images.py", *arguments],
        env={"PATH": path, "HOME": "/nowhere", "PYTHONPATH": os.pathsep.join(sys.path)} | environ,
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_builder_images_are_refused(tmp_path: Path) -> None:
    done = run_images(str(tmp_path), "launcher")
    assert done.returncode == 1
    assert "nothing here builds images; tried: docker info, podman info" in done.stderr


def test_an_image_that_is_none_is_refused(tmp_path: Path) -> None:
    done = run_images(str(tmp_path), "trainer-abacus")
    assert done.returncode == 1
    assert "no trainer-abacus; there are launcher, trainer-cpu" in done.stderr


@pytest.mark.parametrize(
    ("size", "code", "said"), [("311000000", 0, "311 MB  < 350 MB"), ("350000000", 1, "350 MB")]
)
def test_an_image_has_the_name_of_the_registry_and_a_size(
    size: str, code: int, said: str, tmp_path: Path
) -> None:
    """A stand-in for podman; docker, before it, has no server."""
    (tmp_path / "docker").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "podman").write_text(
        f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\n[ "$1" != image ] || echo {size}\n'
    )
    for name in ("docker", "podman"):
        (tmp_path / name).chmod(0o755)
    registry = "registry.example.com/team"
    done = run_images(str(tmp_path), "launcher", KFP_JAX_IMAGE_PREFIX=registry)
    assert done.returncode == code, done.stderr
    name = f"{registry}/launcher-python:{__version__}"
    assert re.search(rf"{re.escape(name)} +{said}", done.stdout)
    calls = (tmp_path / "calls").read_text()
    assert f" -t {name} -f {TOOLS.parent}/images/Dockerfile {TOOLS.parent}" in calls
    assert f"--build-arg=VERSION={__version__} --build-arg=REVISION=" in calls
    assert "--build-arg=FOLDER=launcher --build-arg=TITLE=kfp-jax/launcher-python" in calls


@pytest.mark.parametrize(
    ("text", "size"), [("325058560", 325.05856), ("311 MB", 311), ("1.25 GB", 1250), ("4.1MB", 4.1)]
)
def test_every_builder_s_size_is_understood(text: str, size: float) -> None:
    assert images.megabytes(text) == pytest.approx(size)
