from collections.abc import Iterator

import pytest
from contract.backend_contract import BackendContract
from kfp_jax.backends.base import Backend
from kfp_jax.backends.warm import WarmBackend


class TestWarmBackend(BackendContract):
    impossible = {"command": ("no-such-command-9",)}, "no-such-command-9"

    @pytest.fixture
    def backend(self) -> Iterator[Backend]:
        with WarmBackend(grace=2.0) as backend:
            yield backend
