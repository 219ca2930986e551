"""Amounts as Kubernetes writes them: 500m, 2, 16Gi."""

import re
from decimal import Decimal
from typing import Any

from kfp_jax.checks import as_text
from kfp_jax.errors import SpecError

_QUANTITY = re.compile(
    r"(?P<number>\d+\.?\d*|\.\d+)(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,2})?"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
# Less is a forgotten unit: "16" is 16 bytes, and "400m" less than one.
_LEAST_MEMORY = 2**20


def amount(text: str) -> Decimal | None:
    """Returns a quantity as a number, cores or bytes; None when it is no quantity."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, suffix = Decimal(match["number"]), match["suffix"] or ""
    if suffix in _BINARY:
        return number * Decimal(1024 ** _BINARY[suffix])
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    return number.scaleb(exponent)


def cpu(name: str, value: Any) -> str:
    """Returns cores as a quantity, or "" for none given.

    Raises:
        SpecError: It is no positive quantity.
    """
    text = as_text(value)
    if text and not amount(text):
        raise SpecError(f"{name} is {text!r:.40}; give cores, for example 4, 0.5 or 500m.")
    return text


def memory(name: str, value: Any) -> str:
    """Returns bytes as a quantity, or "" for none given.

    Raises:
        SpecError: It is no quantity of at least 1 MiB.
    """
    text = as_text(value)
    if text and (amount(text) or 0) < _LEAST_MEMORY:
        raise SpecError(
            f"{name} is {text!r:.40}; give at least 1Mi, with a unit, for example 16Gi or 500M."
        )
    return text
