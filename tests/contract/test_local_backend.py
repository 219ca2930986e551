import pytest
from contract.backend_contract import BackendContract
from kfp_jax.backends.base import Backend
from kfp_jax.backends.local import LocalBackend


class TestLocalBackend(BackendContract):
    @pytest.fixture
    def backend(self) -> Backend:
        return LocalBackend(grace=2.0)
