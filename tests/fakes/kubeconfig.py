"""A kubeconfig for a fake API server."""

from pathlib import Path

import yaml
from fakes.api_server import FakeApiServer


def write_kubeconfig(server: FakeApiServer, folder: Path) -> Path:
    """Writes it with the contexts here (namespace ns) and other, and returns its path."""
    namespaces = {"here": "ns", "other": "other"}
    config = {
        "current-context": "here",
        "contexts": [
            {"name": name, "context": {"cluster": "c", "user": "u", "namespace": namespace}}
            for name, namespace in namespaces.items()
        ],
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": {"token": server.token}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path
