"""docs/security.md names a test for each claim: they are there."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "security.md").read_text()
FILES = sorted(set(re.findall(r"`([\w/]+/test_\w+\.py)`", PAGE)))
CLAIMS = re.findall(r"`([\w/]+/test_\w+\.py)`: ([^;|`]+?) *[;|]", PAGE)


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_there(file: str) -> None:
    assert (TESTS / file).is_file()


@pytest.mark.parametrize(("file", "sentence"), CLAIMS)
def test_a_test_is_there(file: str, sentence: str) -> None:
    name = re.sub(r"\W+", "_", sentence.strip().replace("'", "")).lower()
    assert f"def test_{name}" in (TESTS / file).read_text()


def test_claims_were_found() -> None:
    assert len(CLAIMS) >= 8
    assert len(FILES) >= 12
