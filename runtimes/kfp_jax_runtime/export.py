"""Export: a model in three parts that JAX and Orbax alone can load.

    model.json     what goes in, what comes out, and how to load it
    params/        the parameters, a tree of nested dictionaries, saved by Orbax
    predict.jax    predict(params, inputs), serialised by jax.export for CPU, CUDA and TPU

The trained program's Python is not needed to predict: not its classes, not Flax, not this package.
"""

import json
import shutil
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import jax
import numpy as np
import orbax.checkpoint
from jax import export

from kfp_jax_runtime.model_folder import DESCRIPTION, PARAMS, PREDICT
from kfp_jax_runtime.report import installed_versions

# Orbax is only partly typed, and this part of JAX is not.
ocp: Any = orbax.checkpoint
_abstract: Callable[..., jax.ShapeDtypeStruct] = jax.ShapeDtypeStruct

SCHEMA = 1
PLATFORMS = ("cpu", "cuda", "tpu")

SNIPPET = """\
import pathlib, jax, orbax.checkpoint as ocp
model = pathlib.Path("model").absolute()
params = ocp.StandardCheckpointer().restore(model / "params")
outputs = jax.export.deserialize((model / "predict.jax").read_bytes()).call(params, inputs)
"""


@dataclass(frozen=True)
class Model:
    """A loaded model; calling it maps a batch of inputs to outputs."""

    predict: Callable[[Any, Any], Any]
    params: Any
    description: Mapping[str, Any]
    """What model.json holds: input, classes, metadata, versions."""

    def __call__(self, inputs: Any) -> Any:
        """Returns the outputs for inputs of shape (any batch, ...) and the exported dtype."""
        return self.predict(self.params, inputs)


def export_model(
    directory: str | Path,
    predict: Callable[[Any, jax.Array], Any],
    params: Any,
    example: Any,
    metadata: Mapping[str, Any],
) -> None:
    """Writes a model; process 0 does it, the others return at once.

    The directory appears whole: it is written beside its name and renamed. One that is there is
    replaced.

    Args:
        directory: where the model goes; `run.model_dir`, for the launcher to find it.
        predict: pure function of (params, inputs); traced once, with a batch of any size, and not
            again for the same function and shapes in this process.
        params: tree of arrays, each whole in process 0.
        example: a batch of inputs, (any number, ...), for its shape and dtype.
        metadata: what a reader should know, in JSON values; `classes` (names of the outputs, in
            order) gets a place of its own.

    Raises:
        TypeError: `metadata` is not JSON.
    """
    if jax.process_index() != 0:
        return
    target = Path(directory).absolute()
    tree = _Tree.of(jax.tree.map(np.asarray, params))
    exported = _export(predict, tree, (tuple(example.shape[1:]), np.dtype(example.dtype)))
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    (temporary / DESCRIPTION).write_text(_describe(exported, metadata))
    (temporary / PREDICT).write_bytes(exported.code)
    with _checkpointer() as checkpointer:
        checkpointer.save(temporary / PARAMS, tree.nested)
    _replace(temporary, target)


def load_model(directory: str | Path) -> Model:
    """Returns the model that `export_model` wrote to `directory`.

    Raises:
        FileNotFoundError: there is none.
    """
    folder = Path(directory).absolute()
    description = json.loads((folder / DESCRIPTION).read_text())
    exported = export.deserialize(bytearray((folder / PREDICT).read_bytes()))
    with _checkpointer() as checkpointer:
        params = checkpointer.restore(folder / PARAMS)
    return Model(jax.jit(exported.call), params, description)


@dataclass(frozen=True)
class _Tree:
    """A tree as nested dictionaries, which any Python can load, and the way back."""

    nested: dict[str, Any]
    paths: tuple[tuple[str, ...], ...]
    structure: Any

    @classmethod
    def of(cls, tree: Any) -> "_Tree":
        leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
        nested: dict[str, Any] = {}
        paths = []
        for keys, leaf in leaves:
            # A lone array has no path; it still needs a name.
            path = tuple(_key(key) for key in keys) or ("value",)
            folder = nested
            for part in path[:-1]:
                folder = folder.setdefault(part, {})
            folder[path[-1]] = leaf
            paths.append(path)
        return cls(nested, tuple(paths), structure)

    def restore(self, nested: Any) -> Any:
        return jax.tree_util.tree_unflatten(self.structure, [_at(nested, p) for p in self.paths])


@dataclass(frozen=True)
class _Exported:
    """A traced function, without what would keep it alive."""

    code: bytes
    inputs: jax.ShapeDtypeStruct
    outputs: tuple[Any, ...]
    platforms: tuple[str, ...]


_Signature: TypeAlias = tuple[Any, ...]
_EXPORTED: MutableMapping[Any, dict[_Signature, _Exported]] = WeakKeyDictionary()


def _export(
    predict: Callable[[Any, jax.Array], Any], tree: _Tree, example: tuple[tuple[int, ...], Any]
) -> _Exported:
    """Returns a function for params like `tree` and inputs of this shape, but for the batch."""
    avals = jax.tree.map(lambda leaf: _abstract(leaf.shape, leaf.dtype), tree.nested)
    of_tree = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(avals)]
    signature = (tree.structure, *of_tree, example)
    known = _EXPORTED.setdefault(predict, {})
    if signature not in known:
        shape, dtype = example
        inputs = _abstract((*export.symbolic_shape("batch"), *shape), dtype)
        exported = export.export(
            jax.jit(lambda nested, batch: predict(tree.restore(nested), batch)),
            platforms=PLATFORMS,
        )(avals, inputs)
        known[signature] = _Exported(
            bytes(exported.serialize()), inputs, exported.out_avals, exported.platforms
        )
    return known[signature]


def _key(key: Any) -> str:
    return jax.tree_util.keystr((key,), simple=True)


def _at(nested: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        nested = nested[part]
    return nested


def _describe(exported: _Exported, metadata: Mapping[str, Any]) -> str:
    rest = dict(metadata)
    description = {
        "schema": SCHEMA,
        "input": {
            "shape": [None, *exported.inputs.shape[1:]],
            "dtype": str(exported.inputs.dtype),
        },
        "outputs": [
            {"shape": [None, *out.shape[1:]], "dtype": str(out.dtype)} for out in exported.outputs
        ],
        "classes": rest.pop("classes", None),
        "metadata": rest,
        "platforms": list(exported.platforms),
        "versions": installed_versions(),
        "how_to_load": SNIPPET.splitlines(),
    }
    return json.dumps(description, indent=1) + "\n"


def _checkpointer() -> Any:
    """Returns a checkpointer of this process alone: by itself Orbax would wait for the others."""
    index = jax.process_index()
    return ocp.StandardCheckpointer(
        multiprocessing_options=ocp.options.MultiprocessingOptions(
            primary_host=index,
            active_processes={index},
            barrier_sync_key_prefix=f"model_{index}",
        )
    )


def _replace(temporary: Path, target: Path) -> None:
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    temporary.rename(target)
    shutil.rmtree(old, ignore_errors=True)
