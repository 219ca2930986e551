"""The S3 server that the tests of object storage share; it starts when the first one asks."""

from collections.abc import Iterator

import pytest
from fakes.s3_server import S3Server


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
