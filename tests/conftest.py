"""What all tests share; see tests/README.md."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure; and what CI tries is the same each time, so that a change is not
# refused for what another one did.
settings.register_profile(
    "kfp-jax",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("kfp-jax")
pytest.register_assert_rewrite("contract.backend_contract")

Golden = Callable[[Path, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files instead of comparing"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Returns `check(file, text)`: text must be what the file holds, or is written there."""
    update: bool = request.config.getoption("--update-golden")

    def check(file: Path, text: str) -> None:
        if update:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        assert file.exists(), f"{file} is missing; write it with: pytest --update-golden"
        assert text == file.read_text(), f"{file} differs; if rightly so: pytest --update-golden"

    return check


@pytest.fixture
def require_tool() -> Callable[[str], str]:
    """Returns `require(program) -> path`; where it is missing the test skips, but in CI fails."""

    def require(name: str) -> str:
        if path := shutil.which(name):
            return path
        message = f"this test needs the program {name!r} on the PATH"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)

    return require
