"""`make lint` guards the layers: its contracts hold, and each one really fails when broken."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "components/kfp_jax",
    "pipelines/kfp_jax_pipelines",
    "runtimes/kfp_jax_runtime",
    "runtimes/kfp_jax_store",
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Returns a copy of the sources and of the contracts, to be spoiled."""
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package,
            tmp_path / package,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint_imports(checkout: Path) -> subprocess.CompletedProcess[str]:
    roots = (str((checkout / package).parent) for package in PACKAGES)
    return subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(roots), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_sources_keep_every_contract(checkout: Path) -> None:
    result = lint_imports(checkout)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "statement", "contract"),
    [
        pytest.param(
            "components/kfp_jax/spec.py",
            "import kfp_jax_runtime",
            "The launcher's side and the training node's side never import each other",
            id="launcher-imports-node",
        ),
        pytest.param(
            "runtimes/kfp_jax_runtime/report.py",
            "import kfp_jax.errors",
            "The launcher's side and the training node's side never import each other",
            id="node-imports-launcher",
        ),
        pytest.param(
            "components/kfp_jax/errors.py",
            "import kfp_jax.launch",
            "Within kfp_jax nothing imports upward",
            id="upward",
        ),
        pytest.param(
            "components/kfp_jax/launch.py",
            "from kfp import dsl",
            "Within kfp_jax only the components, what they call, and schedules import kfp",
            id="kfp-below-components",
        ),
        pytest.param(
            "components/kfp_jax/schedules/manage.py",
            "def late():\n    import kfp",
            "Within kfp_jax only the components, what they call, and schedules import kfp",
            id="kfp-in-schedules-beside-their-server",
        ),
        pytest.param(
            "components/kfp_jax/backends/base.py",
            "def late():\n    import urllib3",
            "Only kube talks to Kubernetes, and only kube.access uses the official client",
            id="urllib3-outside-kube",
        ),
        pytest.param(
            "components/kfp_jax/kube/client.py",
            "import kubernetes",
            "Only kube talks to Kubernetes, and only kube.access uses the official client",
            id="kubernetes-outside-access",
        ),
        pytest.param(
            "components/kfp_jax/storage.py",
            "import jax.numpy",
            "The launcher needs no JAX and nothing built on it",
            id="jax-in-launcher",
        ),
        pytest.param(
            "runtimes/kfp_jax_runtime/run.py",
            "def late():\n    import kubernetes",
            "A training node knows nothing of Kubeflow or Kubernetes",
            id="kubernetes-in-node",
        ),
        pytest.param(
            "pipelines/kfp_jax_pipelines/mnist.py",
            "from kfp_jax.launch import launch",
            "Of kfp_jax the pipelines use the components alone",
            id="pipeline-imports-launch",
        ),
        pytest.param(
            "components/kfp_jax/launch.py",
            "import kfp_jax_pipelines.mnist",
            "Nothing in kfp_jax imports the reference pipelines",
            id="launch-imports-pipeline",
        ),
    ],
)
def test_a_forbidden_import_breaks_its_contract(
    checkout: Path, module: str, statement: str, contract: str
) -> None:
    with (checkout / module).open("a") as source:
        source.write(f"\n\n{statement}\n")
    result = lint_imports(checkout)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{contract} BROKEN" in result.stdout


def test_a_module_without_a_layer_breaks_the_layers(checkout: Path) -> None:
    (checkout / "components/kfp_jax/stray.py").write_text('"""Has no layer."""\n')
    result = lint_imports(checkout)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "stray" in result.stdout
