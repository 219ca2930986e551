"""Values from a training job as text for people: numbers, shares, durations, bounded strings."""

import json
import math
from datetime import UTC, datetime

# What autoescaping turns one character into, in bytes.
_ESCAPED_BYTES = {"&": 5, "<": 4, ">": 4, '"': 5, "'": 5}
_ELLIPSIS = "…"
_LARGEST = 1e100


def as_float(value: object) -> float | None:
    """Returns a reported value as a float, or None when it is not a number.

    Reports write values that JSON cannot hold as the strings "NaN", "Infinity" and "-Infinity".
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    return None


def as_count(value: object) -> int | None:
    """Returns a value as a whole number >= 0, or None when it is none."""
    number = as_float(value)
    if number is None or not 0 <= number < 1e15 or number != int(number):
        return None
    return int(number)


def as_share(value: object) -> float | None:
    """Returns a value as a number from 0 to 1, or None when it is none."""
    number = as_float(value)
    return number if number is not None and 0 <= number <= 1 else None


def clip(value: object, limit: int, *, tail: bool = False) -> str:
    """Returns a value as printable text that takes at most `limit` bytes once escaped for HTML.

    What is left out is marked by an ellipsis; `tail` keeps the end instead of the beginning.
    Control characters and lone surrogates, which no HTML file may hold, become U+FFFD.
    """
    text = value if isinstance(value, str) else plain(value)
    part = text[-limit:] if tail else text[:limit]
    printable = [ch if _printable(ch) else "\ufffd" for ch in part]
    costs = [_cost(ch) for ch in printable]
    if len(part) == len(text) and sum(costs) <= limit:
        return "".join(printable)
    room = limit - len(_ELLIPSIS.encode())
    kept = 0
    for cost in reversed(costs) if tail else costs:
        room -= cost
        if room < 0:
            break
        kept += 1
    if tail:
        return _ELLIPSIS + "".join(printable[len(printable) - kept :])
    return "".join(printable[:kept]) + _ELLIPSIS


def escaped_bytes(text: str) -> int:
    """Returns how many bytes a printable text takes in an HTML file."""
    return sum(map(_cost, text))


def _cost(ch: str) -> int:
    return _ESCAPED_BYTES.get(ch) or len(ch.encode())


def _printable(ch: str) -> bool:
    return ch in "\n\t" or not (ch < " " or "\x7f" <= ch < "\xa0" or "\ud800" <= ch <= "\udfff")


def plain(value: object) -> str:
    """Returns a JSON value as text: strings as they are, all else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def number(value: object) -> str:
    """Returns a number with four significant digits, counts in full; other values as text."""
    x = as_float(value)
    if x is None:
        return clip(value, 100)
    if not math.isfinite(x):
        return "NaN" if math.isnan(x) else ("Infinity" if x > 0 else "-Infinity")
    size = abs(x)
    if x == int(x) and size < 1e9:
        return f"{int(x):,}"
    if 1e-4 <= size < 1e4:
        return f"{x:.4g}"
    if 1e4 <= size < 1e6:
        return f"{x:,.0f}"
    mantissa, exponent = f"{x:.2e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def percent(share: float) -> str:
    """Returns a share of 0 to 1 in percent; only 1 itself is shown as 100 %."""
    rounded = f"{100 * share:.2f}"
    if rounded == "100.00":
        return "100 %" if share >= 1 else "99.99 %"
    if rounded == "0.00":
        return "< 0.01 %" if share > 0 else "0 %"
    return f"{rounded} %"


def duration(seconds: object) -> str:
    """Returns seconds in the two units that matter."""
    x = as_float(seconds)
    if x is None or not 0 <= x < _LARGEST:
        return "unknown"
    if round(x, 1) < 60:
        return f"{x:.1f} s"
    whole = round(x)
    for unit, name, below, below_name in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= unit:
            rest = whole % unit // below
            return (
                f"{whole // unit:,} {name} {rest} {below_name}"
                if rest
                else f"{whole // unit:,} {name}"
            )
    return f"{whole} s"


def moment(seconds: float | None) -> str | None:
    """Returns unix seconds as a date and time in UTC, or None when they are out of range."""
    if seconds is None or not 0 <= seconds < 253_402_300_800:  # the year 10000
        return None
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
