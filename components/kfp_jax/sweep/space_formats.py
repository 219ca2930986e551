"""Search spaces as Katib and Ray Tune write them, read into ours."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kfp_jax.errors import SpecError
from kfp_jax.sweep.entries import number_of
from kfp_jax.sweep.space import Space, choice, integer, loginteger, loguniform, uniform


def from_katib(data: Any) -> dict[str, Any]:
    """Returns the search space of a Katib experiment as our JSON.

    Args:
        data: The Experiment as a mapping, or the list under `spec.parameters` in it.

    Raises:
        SpecError: It is none, or something cannot be carried over; the message names the parameter.
    """
    if isinstance(data, Mapping):
        spec = data.get("spec", data)
        data = spec.get("parameters") if isinstance(spec, Mapping) else None
    if not isinstance(data, Sequence) or isinstance(data, str) or not data:
        raise SpecError(
            f"The Katib search space is {data!r:.80}; give an Experiment, or the list under its "
            "spec.parameters."
        )
    space: dict[str, Any] = {}
    for position, item in enumerate(data):
        if not isinstance(item, Mapping) or not isinstance(item.get("name"), str):
            raise SpecError(
                f"Katib parameter {position} is {item!r:.80}; give a mapping with a name."
            )
        if item["name"] in space:
            raise SpecError(f"Katib parameter {item['name']!r:.60} is there twice; give it once.")
        space[item["name"]] = _from_katib(item["name"], item)
    return Space.from_json(space).to_json()


def _from_katib(name: str, item: Mapping[str, Any]) -> dict[str, Any]:
    where = f"Katib parameter {name!r:.60}"
    feasible = item.get("feasibleSpace")
    if not isinstance(feasible, Mapping):
        raise SpecError(f"{where} has no feasibleSpace; give one.")
    kind = item.get("parameterType")
    if kind in ("categorical", "discrete"):
        values = feasible.get("list")
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise SpecError(f"{where}: list is {values!r:.80}; give a list of values.")
        return choice(
            *(_discrete(where, value) for value in values) if kind == "discrete" else values
        )
    if kind not in ("double", "int"):
        raise SpecError(
            f"{where}: parameterType is {kind!r:.40}; give double, int, discrete or categorical."
        )
    low, high, step = (feasible.get(key) for key in ("min", "max", "step"))
    if low is None or high is None:
        raise SpecError(f"{where}: feasibleSpace needs min and max; give both.")
    distribution = str(feasible.get("distribution") or "uniform").lower()
    if distribution == "uniform":
        return uniform(low, high, step) if kind == "double" else integer(low, high, step)
    if distribution == "loguniform" and step is None:
        return loguniform(low, high) if kind == "double" else loginteger(low, high)
    raise SpecError(
        f"{where}: distribution {feasible.get('distribution')!r:.40}"
        f"{' with a step' if step is not None else ''} cannot be carried over; "
        "use uniform, or logUniform without a step."
    )


def _discrete(where: str, value: Any) -> int | float:
    number = number_of(value)
    if number is None:
        raise SpecError(
            f"{where}: {value!r:.40} in its list is no number; use categorical for text."
        )
    return int(number) if float(number).is_integer() else number


def from_ray(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the search space of Ray Tune, as made by its own functions, as our JSON.

    Reads uniform, quniform, loguniform, randint, qrandint, lograndint, choice, grid_search and
    constants, which become a choice of one value. Ray is not imported. As in Ray, the upper bound
    of randint is not among its values.

    Raises:
        SpecError: An entry cannot be carried over; the message names it.
    """
    if not isinstance(config, Mapping):
        raise SpecError(f"The Ray Tune search space is {config!r:.80}; give its mapping.")
    return Space.from_json({name: _from_ray(name, item) for name, item in config.items()}).to_json()


def _from_ray(name: Any, item: Any) -> dict[str, Any]:
    if type(item).__name__ == "Categorical":
        return choice(*item.categories)
    if isinstance(item, Mapping) and item.keys() == {"grid_search"}:
        return choice(*item["grid_search"])
    if type(item).__name__ in ("Float", "Integer"):
        return _from_ray_range(name, item)
    if "grid_search" in str(item):
        raise _not_from_ray(name, item)  # nested: it would become a constant
    try:
        json.dumps(item, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise _not_from_ray(name, item) from error
    return choice(item)


def _from_ray_range(name: Any, item: Any) -> dict[str, Any]:
    sampler = item.get_sampler()
    step = getattr(sampler, "q", None)
    if step is not None:
        sampler = sampler.get_sampler()
    low, high = item.lower, item.upper
    match (type(sampler).__name__.strip("_"), type(item).__name__, step):
        case ("Uniform", "Float", _):
            return uniform(low, high, step)
        case ("LogUniform", "Float", None):
            return loguniform(low, high)
        case ("LogUniform", "Integer", None | 1):
            return loginteger(low, high - 1)
        case ("Uniform", "Integer", None | 1):
            return integer(low, high - 1)
        case ("Uniform", "Integer", _):
            # With a step Ray keeps the upper bound in, and rounds to multiples of the step.
            return integer(-(-low // step) * step, high, step)
        case _:
            raise _not_from_ray(name, item)


def _not_from_ray(name: Any, item: Any) -> SpecError:
    return SpecError(
        f"Entry {name!r:.60} of the Ray Tune search space is {item!r:.80}, which cannot be carried "
        "over; use uniform, quniform, loguniform, randint, qrandint, lograndint, choice, "
        "grid_search or a constant."
    )
