"""Tables: rich on a terminal; aligned, plain and whole in a pipe."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

STYLES = {
    "SUCCEEDED": "green",
    "RUNNING": "cyan",
    "STARTING": "cyan",
    "FAILED": "bold red",
    "LOST": "red",
    "CANCELLED": "yellow",
    "RESTARTING": "yellow",
    "QUEUED": "yellow",
    "ok": "green",
    "note": "yellow",
    "problem": "bold red",
    "Warning": "yellow",
}
Row = Sequence[str]


def print_table(columns: Row, rows: Sequence[Row], title: str = "") -> None:
    """Prints a table on stdout."""
    console = Console()
    if not console.is_terminal:
        sys.stdout.write(plain_table(columns, rows, title))
        return
    table = Table(title=title or None, title_justify="left", title_style="bold", box=None)
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    for row in rows:
        # Text, not markup: names and messages are anybody's.
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    console.print(table)


def print_facts(title: str, rows: Mapping[str, str], *, good: bool) -> None:
    """Prints named values on stdout, one a line."""
    width = max(len(name) for name in rows)
    console = Console()
    if not console.is_terminal:
        lines = (f"  {name:<{width}}  {value}\n" for name, value in rows.items())
        sys.stdout.write(f"{title}\n{''.join(lines)}")
        return
    console.print(Text(title, style="bold green" if good else "bold red"))
    for name, value in rows.items():
        label = Text(f"  {name:<{width}}  ", style="dim")
        console.print(label + Text(value, style=STYLES.get(value, "")), soft_wrap=True)


def plain_table(columns: Row, rows: Sequence[Row], title: str = "") -> str:
    """Returns a table as aligned text, the last column unpadded."""
    cells = [[column.upper() for column in columns], *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return "\n".join([*([f"{title}:"] if title else []), *lines]) + "\n"


def print_json(value: object) -> None:
    """Prints a value for machines."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def age(since: datetime, now: datetime) -> str:
    """Returns how long ago something was, in its two largest units at most: 42s, 3m, 2h5m, 4d."""
    seconds = max(0, int((now - since).total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 60:
        return f"{minutes}m"
    if hours < 10:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{hours}h" if hours < 48 else f"{days}d"
