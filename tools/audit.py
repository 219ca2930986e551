"""Asks about known vulnerabilities of everything that is pinned; `make audit` runs it.

pip-audit asks PyPI or, where that knows nothing, OSV. A package that neither could be asked about
counts as not audited, where pip-audit alone would call it sound. Exit code 1: something is known;
75: the services could not be asked, and so nothing is said.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SERVICES = ("pypi", "osv")
NOT_ASKED = 75


@dataclass(frozen=True)
class Audit:
    """What is known of the packages of one file.

    Attributes:
        asked: How many packages a service knew.
        known: A line for each vulnerability.
        unasked: Why nothing is known of others, a line for each.
    """

    asked: int = 0
    known: Sequence[str] = ()
    unasked: Sequence[str] = ()


def pinned_files() -> list[Path]:
    """Returns all files with pins, the shortest first: whether a service answers shows soon."""
    locks = [ROOT / "constraints.txt", *ROOT.glob("images/**/*.txt")]
    return sorted(locks, key=lambda path: (path.stat().st_size, path))


def read(report: Mapping[str, Any]) -> Audit:
    """Returns what a report of pip-audit says."""
    found = report["dependencies"]
    return Audit(
        asked=sum("skip_reason" not in item for item in found),
        known=[
            f"{item['name']} {item['version']}: {flaw['id']},"
            f" mended in {', '.join(flaw['fix_versions']) or 'no version'}"
            for item in found
            for flaw in item.get("vulns", ())
        ],
        unasked=[item["skip_reason"] for item in found if "skip_reason" in item],
    )


def ask(service: str, file: Path) -> Audit:
    """Returns what a service knows of the packages in a file."""
    options = ("--disable-pip", "--no-deps", "--progress-spinner=off", "--format=json")
    command = (sys.executable, "-m", "pip_audit", "--vulnerability-service", service, *options)
    done = subprocess.run(
        (*command, "--requirement", str(file)), capture_output=True, text=True, check=False
    )
    if not done.stdout.startswith("{"):
        return Audit(unasked=[(done.stderr.strip().splitlines() or ["no answer"])[-1]])
    return read(json.loads(done.stdout))


def ask_all(file: Path) -> Audit:
    """Returns what the first service knows that knows all packages in a file."""
    audit = Audit()
    for service in SERVICES:
        audit = ask(service, file)
        if not audit.unasked:
            break
    return audit


def main() -> int:
    """Audits every file until one cannot be; returns the exit code."""
    known: set[str] = set()
    code = 0
    for file in pinned_files():
        name, audit = file.relative_to(ROOT), ask_all(file)
        known.update(audit.known)
        if audit.unasked:
            print(
                f"audit: {name} and larger files are not audited: neither"
                f" {' nor '.join(SERVICES)} could be asked ({audit.unasked[0]:.120})."
            )
            code = NOT_ASKED
            break
        print(f"audit: {name}: {audit.asked} packages, {len(audit.known)} known flaws")
    for line in sorted(known):
        print(f"audit: {line}", file=sys.stderr)
    return 1 if known else code


if __name__ == "__main__":
    sys.exit(main())
