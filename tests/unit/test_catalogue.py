"""The catalogue of components in components/README.md says what their signatures say."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kfp_jax import components

CATALOGUE = Path(__file__).parents[2] / "components" / "README.md"


class Section(NamedTuple):
    inputs: dict[str, tuple[str, Any]]
    outputs: dict[str, str]


def read_catalogue(text: str) -> dict[str, Section]:
    """Returns the tables of each `## name`; the first cell of a table's head says what it lists."""
    sections: dict[str, Section] = {}
    section, table = Section({}, {}), ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = sections.setdefault(line.removeprefix("## "), Section({}, {}))
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line[:1] == "|" else []
        if not cells:
            table = ""
        elif not table:
            table = cells[0]
        elif table == "input" and re.match(r"`\w+`", cells[0]):
            section.inputs[cells[0].strip("`")] = (cells[1], default(cells[2]))
        elif table == "output" and re.match(r"`\w+`", cells[0]):
            section.outputs[cells[0].strip("`")] = cells[1]
    return sections


def default(cell: str) -> Any:
    return cell if cell == "required" else json.loads(cell.strip("`"))


def signature(name: str) -> Section:
    """Returns what KFP knows of a component, in the catalogue's words."""
    spec = getattr(components, name).component_spec
    return Section(
        {
            key: (plain(item.type), item.default if item.optional else "required")
            for key, item in (spec.inputs or {}).items()
            if item.type != "TaskConfig"  # KFP's own, nobody gives it
        },
        {key: plain(item.type) for key, item in (spec.outputs or {}).items()},
    )


def plain(kind: str) -> str:
    return kind.partition("@")[0]


def test_every_component_and_no_other_is_in_the_catalogue() -> None:
    assert sorted(read_catalogue(CATALOGUE.read_text())) == sorted(components.__all__)


@pytest.mark.parametrize("name", components.__all__)
def test_the_catalogue_lists_the_inputs_and_outputs_of(name: str) -> None:
    assert read_catalogue(CATALOGUE.read_text())[name] == signature(name)


@pytest.mark.parametrize("name", components.__all__)
def test_kfp_describes_every_input_and_output_of(name: str) -> None:
    spec = getattr(components, name).component_spec
    described = {**(spec.inputs or {}), **(spec.outputs or {})}
    assert [key for key, item in described.items() if not item.description] == []
