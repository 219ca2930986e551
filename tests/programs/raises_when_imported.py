"""A program that cannot be imported: it raises."""

raise RuntimeError("no such luck")
