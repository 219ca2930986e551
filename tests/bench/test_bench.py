"""Runs every bench_*.py beside this file; see README.md."""

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from figures import machine, table

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "build" / "bench"

Figures = list[dict[str, Any]]


@pytest.fixture(scope="module")
def figures() -> Iterator[Figures]:
    """The figures of all benches that could measure; printed as one table at the end."""
    rows: Figures = []
    yield rows
    print(f"\n\n{table(rows)}\n\nThe numbers behind these lie in {RESULTS}.", flush=True)


@pytest.mark.bench
@pytest.mark.parametrize("name", sorted(path.stem for path in HERE.glob("bench_*.py")))
def test_bench(name: str, figures: Figures) -> None:
    """Measures and records; a missed goal is printed as such and is no failure."""
    bench = importlib.import_module(name)
    if reason := getattr(bench, "missing", str)():
        pytest.skip(reason)
    before = machine()
    print(f"\n{name}: load average {before['load_average'][0]:.2f}", flush=True)
    result = bench.run_bench()
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"bench": name, "machine": before, **result}, indent=1)
    (RESULTS / f"{name.removeprefix('bench_')}.json").write_text(f"{text}\n")
    figures += result["figures"]
