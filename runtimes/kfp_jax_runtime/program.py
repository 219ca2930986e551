"""The user's program: finds `module:function` and fits its parameters, before anything runs."""

import dataclasses
import enum
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from kfp_jax_runtime.config import from_parameters
from kfp_jax_runtime.errors import BadInput
from kfp_jax_runtime.report import json_number
from kfp_jax_runtime.run import Run

DEFAULT_FUNCTION = "main"


@dataclass(frozen=True)
class Program:
    """A function to be called as `main(run)`, or as `main(run, config)`."""

    target: str
    function: Callable[..., object]
    config: object | None
    """The second argument, a dataclass, where the function takes one."""

    def effective(self, parameters: Mapping[str, object]) -> Mapping[str, object]:
        """Returns all parameters as JSON has them, the config's defaults included."""
        if self.config is None:
            return parameters
        fields = dataclasses.fields(self.config)  # type: ignore[arg-type]
        return {
            field.name: _plain(getattr(self.config, field.name)) for field in fields if field.init
        }

    def __call__(self, run: Run) -> Mapping[str, object]:
        """Runs the program and returns its final metrics.

        Raises:
            TypeError: it returned neither a mapping nor None.
        """
        result = self.function(run) if self.config is None else self.function(run, self.config)
        if result is None:
            return {}
        if not isinstance(result, Mapping):
            raise TypeError(
                f"program {self.target} returned a {type(result).__name__}; return a mapping of "
                "final metrics, such as {'accuracy': 0.99}, or None"
            )
        return result


def load(target: str, parameters: Mapping[str, object]) -> Program:
    """Imports a program and makes its config.

    Args:
        target: `module` or `module:function`.
        parameters: the job's parameters.

    Raises:
        BadInput: the module or function is unknown, the function cannot be called with a run, or
            the parameters do not fit its config.
        Exception: whatever the module raises while it is imported.
    """
    module_name, _, function_name = target.partition(":")
    module = _module(target, module_name)
    function = _function(module, function_name or DEFAULT_FUNCTION)
    config_class = _config_class(target, function)
    config = None if config_class is None else from_parameters(config_class, parameters)
    return Program(target, function, config)


def _module(target: str, name: str) -> Any:
    if name.endswith(".py") or "/" in name:
        raise BadInput(
            f"program {target!r} names a file; name a module that can be imported, as "
            "`package.module` or `package.module:function`"
        )
    if not all(part.isidentifier() for part in name.split(".")):
        raise BadInput(f"program {target!r} must be `module` or `module:function`")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name != missing and not name.startswith(f"{missing}."):
            raise  # the module is there; one that it imports is not
        raise BadInput(
            f"program {target!r}: there is no module {missing!r} in this node's Python; "
            "check its name, and that it is installed or in the working directory"
        ) from error


def _function(module: Any, name: str) -> Callable[..., object]:
    function = getattr(module, name, None)
    if callable(function):
        return function  # type: ignore[no-any-return]
    own = [
        key
        for key, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not key.startswith("_")
    ]
    raise BadInput(
        f"module {module.__name__!r} has no function {name!r}; its functions: "
        + (", ".join(sorted(own)) or "none")
    )


def _config_class(target: str, function: Callable[..., object]) -> type | None:
    """Returns the dataclass that the function's second parameter asks for, if it has one."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError as error:
        raise BadInput(f"program {target!r} has an unknown annotation: {error}") from error
    second = list(signature.parameters.values())[1:2]
    annotation = second[0].annotation if second else None
    config = annotation if _is_dataclass(annotation) else None
    try:
        signature.bind("run") if config is None else signature.bind("run", "config")
    except TypeError as error:
        raise BadInput(
            f"program {target!r} must take (run), or (run, config) with config annotated by a "
            f"dataclass, not {inspect.signature(function)}"
        ) from error
    return config


def _plain(value: object) -> object:
    """Returns a field's value as JSON has it."""
    match value:
        case enum.Enum():
            return _plain(value.value)
        case None | str():
            return value
        case bool() | int() | float():
            return json_number(value)
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return str(value)


def _is_dataclass(annotation: object) -> TypeGuard[type]:
    return isinstance(annotation, type) and dataclasses.is_dataclass(annotation)
