"""Folders in object stores: what the launcher's side and the training node's side share.

It knows of neither, and nothing of JAX, KFP or Kubernetes. The package obstore, which talks to the
stores, is loaded when a store is opened: who works with folders alone needs it not.
"""

from kfp_jax_store.folders import MARKER, complete, download, is_complete, remove, upload
from kfp_jax_store.private import private_folder
from kfp_jax_store.store import KFP_ENDPOINT, Store, StoreError, open_store
from kfp_jax_store.uri import Location, is_remote, join, location

__all__ = [
    "KFP_ENDPOINT",
    "MARKER",
    "Location",
    "Store",
    "StoreError",
    "complete",
    "download",
    "is_complete",
    "is_remote",
    "join",
    "location",
    "open_store",
    "private_folder",
    "remove",
    "upload",
]
