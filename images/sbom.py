"""Prints an image's software bill of materials, as CycloneDX 1.6; runs in the build of the image.

    python sbom.py NAME --packages FOLDER ... --lock requirements.txt --debian dpkg-status

It lists what is really there: Python, the distributions in the folders, Debian's packages. Hashes
are those of the lock, one for each architecture. The same image gives the same bytes.
"""

import argparse
import json
import platform
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from email.parser import HeaderParser
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

Component = dict[str, Any]


def normal(name: str) -> str:
    """Returns a distribution's name in the one form by which it is looked up."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(lock: str) -> Mapping[str, Sequence[str]]:
    """Returns the hashes that a requirements file has for each `name==version`."""
    entries = re.findall(r"^([\w.-]+)==(\S+)((?: \\\n    --hash=sha256:\w+)+)", lock, re.MULTILINE)
    return {
        f"{normal(name)}=={version}": re.findall(r"sha256:(\w+)", hashes)
        for name, version, hashes in entries
    }


def python_component(version: str) -> Component:
    """Returns the interpreter."""
    return {
        "type": "platform",
        "bom-ref": f"pkg:generic/python@{version}",
        "name": "python",
        "version": version,
        "purl": f"pkg:generic/python@{version}",
    }


def distribution_component(found: Distribution, hashes: Mapping[str, Sequence[str]]) -> Component:
    """Returns a distribution with its licence and hashes."""
    name, version = found.metadata["Name"], found.version
    purl = f"pkg:pypi/{normal(name)}@{version.replace('+', '%2B')}"
    component: Component = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    }
    if licenses := distribution_licenses(found):
        component["licenses"] = licenses
    if known := hashes.get(f"{normal(name)}=={version}"):
        component["hashes"] = [{"alg": "SHA-256", "content": content} for content in known]
    return component


def distribution_licenses(found: Distribution) -> list[dict[str, Any]]:
    """Returns what a distribution says of its licence: an expression, classifiers or one line."""
    metadata = HeaderParser().parsestr(found.read_text("METADATA") or "", headersonly=True)
    if expression := metadata.get("License-Expression"):
        return [{"expression": expression}]
    classifiers = (item.split(" :: ") for item in metadata.get_all("Classifier") or ())
    names = sorted({parts[-1] for parts in classifiers if parts[0] == "License" and parts[2:]})
    text = (metadata.get("License") or "").strip()
    if not names and text and "\n" not in text:
        names = [text]
    return [{"license": {"name": name}} for name in names]


def debian_components(status: str) -> Iterator[Component]:
    """Yields the packages that dpkg has as installed."""
    for paragraph in status.strip().split("\n\n"):
        field = HeaderParser().parsestr(paragraph, headersonly=True)
        if not (field["Status"] or "").endswith(" installed"):
            continue
        version = field["Version"].replace("+", "%2B").replace(":", "%3A")
        purl = f"pkg:deb/debian/{field['Package']}@{version}?arch={field['Architecture']}"
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": field["Package"],
            "version": field["Version"],
            "purl": purl,
        }


def bill(name: str, version: str, components: Iterable[Component]) -> dict[str, Any]:
    """Returns the bill of an image; its serial number follows from what is in it."""
    ordered = sorted(components, key=lambda component: component["bom-ref"])
    content = json.dumps([name, version, ordered], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": f"image/{name}",
                "name": name,
                "version": version,
            }
        },
        "components": ordered,
    }


def main() -> None:
    """Reads what the command line names and prints the bill."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--packages", nargs="+", required=True)
    parser.add_argument("--lock", type=Path, required=True)
    parser.add_argument("--debian", type=Path, required=True)
    given = parser.parse_args()
    found = list(distributions(path=given.packages))
    version = next(item.version for item in found if normal(item.metadata["Name"]) == "kfp-jax")
    hashes = locked(given.lock.read_text())
    components = [
        python_component(platform.python_version()),
        *(distribution_component(item, hashes) for item in found),
        *debian_components(given.debian.read_text()),
    ]
    print(json.dumps(bill(given.name, version, components), indent=1))


if __name__ == "__main__":
    main()
