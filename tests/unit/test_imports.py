"""Importing kfp_jax is light: what is heavy or optional is loaded where it is used, or never."""

import json
import subprocess
import sys
from pathlib import Path

import kfp_jax

HEAVY = {"kfp", "kubernetes", "jax", "numpy", "optuna", "matplotlib"}

# The KFP definitions and what their bodies call exist to use kfp, which brings kubernetes. Those of
# the sweep are imported when Optuna or CMA-ES is asked for a suggestion.
EXEMPT = (
    "kfp_jax.components",
    "kfp_jax.entry",
    "kfp_jax.sweep.codes",
    "kfp_jax.sweep.evolution",
    "kfp_jax.sweep.tpe",
)

PROBE = """
import importlib, json, sys
names, heavy = json.loads(sys.argv[1])
blame, seen = {}, set()
for name in names:
    importlib.import_module(name)
    if new := sorted(set(heavy) & set(sys.modules) - seen):
        blame[name] = new
        seen.update(new)
print(json.dumps(blame))
"""


def heavy_packages_loaded_by(*names: str) -> dict[str, list[str]]:
    """Imports modules one after another in a fresh Python; returns who first loaded what."""
    request = json.dumps([names, sorted(HEAVY)])
    result = subprocess.run(
        [sys.executable, "-c", PROBE, request],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    blame: dict[str, list[str]] = json.loads(result.stdout)
    return blame


def test_import_kfp_jax_loads_nothing_heavy() -> None:
    assert heavy_packages_loaded_by("kfp_jax") == {}


def modules() -> list[str]:
    """Returns the names of all modules of kfp_jax, without importing any."""
    root = Path(kfp_jax.__file__).parent
    paths = (path.relative_to(root.parent).with_suffix("") for path in root.rglob("*.py"))
    return sorted(".".join(path.parts).removesuffix(".__init__") for path in paths)


def test_no_module_but_the_exempt_loads_anything_heavy() -> None:
    names = [
        name for name in modules() if not name.startswith(EXEMPT) and not name.endswith("__main__")
    ]
    assert heavy_packages_loaded_by(*names) == {}


def test_the_probe_sees_what_a_module_loads() -> None:
    assert heavy_packages_loaded_by("json", "numpy.linalg") == {"numpy.linalg": ["numpy"]}
