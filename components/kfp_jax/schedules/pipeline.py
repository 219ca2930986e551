"""Compiled pipelines: a file that somebody compiled, or one of ours, compiled here."""

import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kfp_jax.errors import SpecError
from kfp_jax.schedules.spec import Pipeline

_SUFFIXES = (".yaml", ".yml")


def read_pipeline(source: str) -> Pipeline:
    """Returns a pipeline by the name of one of ours, or from a file of YAML.

    Raises:
        SpecError: It is neither, or the file holds no pipeline of KFP 2.
    """
    if find_spec("kfp") is None or find_spec("kfp_jax_pipelines") is None:
        raise SpecError("Schedules need kfp; install it with: pip install 'kfp-jax[kfp]'.")
    if source.endswith(_SUFFIXES):
        return _read(Path(source), source)
    names = import_module("kfp_jax_pipelines").NAMES
    name = source.replace("-", "_")
    if name not in names:
        raise SpecError(
            f"Pipeline {source!r:.80} is neither one of ours ({', '.join(names)}) nor a .yaml file;"
            " compile it, and give the file."
        )
    from kfp import compiler

    function = getattr(import_module(f"kfp_jax_pipelines.{name}"), name)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pipeline.yaml"
        compiler.Compiler().compile(function, str(file))
        return _read(file, source)


def _read(file: Path, label: str) -> Pipeline:
    import yaml

    try:
        documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())
        raise SpecError(f"Pipeline {label} cannot be read: {why:.200}.") from error
    spec: Any = documents[0] if documents else None
    if not isinstance(spec, dict) or "root" not in spec or "pipelineInfo" not in spec:
        raise SpecError(
            f"Pipeline {label} is no compiled pipeline of KFP 2; compile it with kfp or"
            " kfp-jax compile, and give that file."
        )
    platform: dict[str, Any] = {}
    for document in documents[1:]:
        platform.update(document or {})
    return Pipeline(label, spec, platform)
