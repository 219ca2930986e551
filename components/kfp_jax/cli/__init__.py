"""The `kfp-jax` command. One file a command; `app` puts them together."""

from kfp_jax.cli.app import main

__all__ = ["main"]
