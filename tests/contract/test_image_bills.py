"""The programs of the images' build: what they keep, and the bill of materials of what is there."""

import json
import sysconfig
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import finish
import pytest
import sbom
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2:2.36-9+deb12u10
Description: GNU C Library
 Shared libraries

Package: apt
Status: deinstall ok config-files
Architecture: amd64
Version: 2.6.1
"""


def wheel(packages: Path, name: str, metadata: str) -> None:
    folder = packages / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    text = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{metadata}"
    (folder / "METADATA").write_text(text)


def components(*packages: Path, lock: str = "") -> list[dict[str, Any]]:
    hashes = sbom.locked(lock)
    found = distributions(path=[str(folder) for folder in packages])
    return [sbom.distribution_component(item, hashes) for item in found]


def test_the_bill_of_an_environment_is_valid_and_always_the_same() -> None:
    """Of this very environment, with hundreds of packages and all ways to name a licence."""
    lock = (Path(sbom.__file__).parent / "trainer-cpu" / "requirements.txt").read_text()

    def made() -> str:
        parts = [
            sbom.python_component("3.11.2"),
            *components(Path(sysconfig.get_path("purelib")), lock=lock),
            *sbom.debian_components(STATUS),
        ]
        return json.dumps(sbom.bill("kfp-jax/trainer-cpu", "0.1.0", parts))

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(made()) is None
    assert made() == made()
    names = [item["name"] for item in json.loads(made())["components"]]
    assert {"jax", "libc6", "python"} <= set(names)
    assert "apt" not in names


def test_the_validator_sees_a_bill_that_is_none() -> None:
    spoilt = sbom.bill("kfp-jax/x", "1", [sbom.python_component("3.11.2") | {"type": "snake"}])
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(spoilt)) is not None


def test_another_content_is_another_bill() -> None:
    one, other = (sbom.bill("x", "1", [sbom.python_component(v)]) for v in ("3.11.2", "3.11.3"))
    assert one["serialNumber"] != other["serialNumber"]


def test_a_package_has_the_hashes_of_the_lock_of_its_version(tmp_path: Path) -> None:
    wheel(tmp_path, "Zope.Thing", "License-Expression: MIT\n")
    entry = f"zope-thing==1.0 \\\n    --hash=sha256:{'a' * 64} \\\n    --hash=sha256:{'b' * 64}\n"
    (found,) = components(tmp_path, lock=entry)
    assert [item["content"] for item in found["hashes"]] == ["a" * 64, "b" * 64]
    assert found["purl"] == "pkg:pypi/zope-thing@1.0"
    assert found["licenses"] == [{"expression": "MIT"}]
    (other,) = components(tmp_path, lock=entry.replace("==1.0", "==1.1"))
    assert "hashes" not in other


@pytest.mark.parametrize(
    ("metadata", "names"),
    [
        ("Classifier: License :: OSI Approved :: BSD License\nLicense: BSD\n", ["BSD License"]),
        ("License: Apache 2.0\n", ["Apache 2.0"]),
        ("License: one\n        two\n", []),
        ("", []),
    ],
)
def test_a_licence_is_told_as_the_package_tells_it(
    metadata: str, names: list[str], tmp_path: Path
) -> None:
    wheel(tmp_path, "thing", metadata)
    (found,) = components(tmp_path)
    assert found.get("licenses", []) == [{"license": {"name": name}} for name in names]


def test_debian_s_versions_are_names_in_a_url() -> None:
    (found,) = sbom.debian_components(STATUS)
    assert found["purl"] == "pkg:deb/debian/libc6@2%3A2.36-9%2Bdeb12u10?arch=amd64"


def test_only_what_developers_use_is_pruned(tmp_path: Path) -> None:
    kept = (
        "a/core.py",
        "a/core.so",
        "a/testing.py",
        "nvidia/include/cuda.h",
        "a-1.dist-info/RECORD",
    )
    gone = (
        "a/tests/x.py",
        "a/core.pyi",
        "a/include/a.h",
        "tests/x.py",
        "a-1.dist-info/direct_url.json",
    )
    for name in (*kept, *gone):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("12345")
    assert finish.prune(tmp_path) == 5 * len(gone)
    assert sorted(
        str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()
    ) == sorted(kept)


def test_imports_are_found_in_functions_too(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("import a.b\ndef f():\n    from c.d import e\n    from . import g\n")
    assert finish.imports(file) == {"a.b", "c.d"}
