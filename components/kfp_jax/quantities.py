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


def canonical(text: str) -> str:
    """Returns a quantity as Kubernetes itself would write it: 1 for 1000m, 1536Mi for 1.5Gi.

    What reads and writes a job with typed values, as Kueue does, writes this form; and of most of a
    TrainJob the server takes no change at all, not even to that.
    """
    match, value = _QUANTITY.fullmatch(text), amount(text)
    if match is None or value is None:
        return text
    suffix = match["suffix"] or ""
    if suffix in _BINARY and value >= 1024 and value == int(value):
        power = max(n for n in range(len(_BINARY) + 1) if value % 1024**n == 0)
        unit = next((name for name, n in _BINARY.items() if n == power), "")
        return f"{int(value) // 1024**power}{unit}"
    exponents = [n for n in _DECIMAL.values() if value.scaleb(-n) == int(value.scaleb(-n))]
    exponent = max(exponents, default=0) if value else 0
    if suffix[:1] in ("e", "E") and suffix[1:]:
        unit = f"{suffix[0]}{exponent}" if exponent else ""
    else:
        unit = next(name for name, n in _DECIMAL.items() if n == exponent)
    return f"{int(value.scaleb(-exponent))}{unit}"


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
