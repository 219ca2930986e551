"""What integration tests share: a real browser and a real S3 server."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from fakes.browser import Watched
from fakes.s3_server import S3Server
from playwright.sync_api import Browser, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        reason = f"there is no browser at {CHROMIUM}; install Debian's package chromium"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Watched]]:
    """Returns `opened(width, scheme)`: a page without a network that remembers its complaints."""
    contexts = []

    def opened(width: int, scheme: Literal["light", "dark"] = "light") -> Watched:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
        )
        contexts.append(context)
        return Watched(context.new_page())

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3") / "server")
    yield server
    server.kill()


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a new bucket; this process and those it starts find the server."""
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    return s3_server.bucket()
