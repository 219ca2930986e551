"""Conditions and selectors: the part of CEL that KFP's compiler writes."""

import ast
import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from fakes.kfp.ir import DriverError
from fakes.kfp.values import kind, text

_WORDS = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|&&|\|\||!(?!=)|\btrue\b|\bfalse\b""")
_PYTHON = {"&&": " and ", "||": " or ", "!": " not ", "true": "True", "false": "False"}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_CONVERT: dict[str, Callable[[Any], Any]] = {"int": int, "double": float, "string": text}


def holds(condition: str, parameters: Mapping[str, Any]) -> bool:
    """Returns whether a task is triggered.

    Raises:
        DriverError: CEL cannot tell, as of a number and a text; or the double cannot.
    """
    source = _WORDS.sub(lambda found: _PYTHON.get(found[0], found[0]), condition).strip()
    value = _value(ast.parse(source, mode="eval").body, parameters)
    if not isinstance(value, bool):
        raise DriverError(f"condition {condition} gives {value!r}, and no truth value")
    return value


def _value(node: ast.expr, parameters: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.UnaryOp(ast.USub(), ast.Constant(value)):
            return -value  # type: ignore[operator]  # of a number
        case ast.UnaryOp(ast.Not(), operand):
            return not _value(operand, parameters)
        case ast.BoolOp(op, values):
            every = (_value(item, parameters) for item in values)
            return all(every) if isinstance(op, ast.And) else any(every)
        case ast.Call(ast.Name(name), [argument]) if name in _CONVERT:
            return _CONVERT[name](_value(argument, parameters))
        case ast.Subscript(
            ast.Attribute(ast.Name("inputs"), "parameter_values"), ast.Constant(key)
        ):
            if key not in parameters:
                raise DriverError(f"no such key: {key}")
            return parameters[str(key)]
        case ast.Compare(left, [op], [right]):
            return _compared(op, _value(left, parameters), _value(right, parameters))
    raise DriverError(f"the double leaves out {ast.unparse(node)} in conditions")


def _compared(op: ast.cmpop, left: Any, right: Any) -> bool:
    if kind(left) != kind(right):
        raise DriverError(f"no such overload: {kind(left)} and {kind(right)}")
    return bool(_COMPARE[type(op)](left, right))


def selected(value: Any, selector: str) -> Any:
    """Returns the part of a value that `parseJson(string_value)["a"]["b"]` names."""
    found = re.fullmatch(r"""parseJson\(string_value\)((?:\[(?:"[^"]*"|'[^']*')\])+)""", selector)
    if not found:
        raise DriverError(f"the double leaves out the selector {selector}")
    part = json.loads(text(value))
    for key in re.findall(r"""\[["']([^"']*)["']\]""", found[1]):
        if not isinstance(part, dict) or key not in part:
            raise DriverError(f"selector {selector}: no such key: {key}")
        part = part[key]
    return part
