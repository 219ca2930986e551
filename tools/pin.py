"""Prints a constraints file from the JSON report of a pip dry run, read from standard input.

`make constraints` runs it. pip resolves without installing anything, so what happens to be in the
working environment has no say in what gets pinned.
"""

import json
import sys
from collections.abc import Iterable, Mapping

HEADER = """\
# Every package of a set-up, pinned, so that an install is the same tomorrow.
# `make constraints` writes this file; pyproject.toml has the ranges that we support. Run it with
# the oldest Python that we support, 3.11: only there every package is needed. 3.12 and 3.13 take
# the same versions.
"""


def pins(report: Mapping[str, object], own_name: str = "kfp-jax") -> list[str]:
    """Returns one `name==version` for each package of a pip report, but not for our own."""
    installs = report["install"]
    assert isinstance(installs, Iterable)
    packages = (install["metadata"] for install in installs)
    return sorted(
        (
            f"{package['name']}=={package['version']}"
            for package in packages
            if package["name"] != own_name
        ),
        key=str.casefold,
    )


if __name__ == "__main__":
    print(HEADER, *pins(json.load(sys.stdin)), sep="\n")
