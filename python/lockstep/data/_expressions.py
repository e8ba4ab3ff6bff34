"""Conditions for filters, written as text."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

import pyarrow
import pyarrow.compute

from lockstep.errors import ConfigError

_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_COMPUTE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
_CALLS: dict[str, Callable[..., Any]] = {
    "is_null": lambda value: value.is_null(),
    "is_valid": lambda value: value.is_valid(),
    "is_nan": lambda value: value.is_nan(),
    "field": lambda name: pyarrow.compute.field(name),
}


def to_expression(condition: Any) -> pyarrow.compute.Expression:
    """The condition as an Arrow expression.

        >>> to_expression("x > 3 and name in ['a', 'b']")
        <pyarrow.compute.Expression ((x > 3) and is_in(name, ...

    In text, names are columns (others than identifiers in backticks), and there are constants, ``== != < <= > >=``,
    ``and or not``, ``+ - * /``, ``in [...]``, ``is None``, ``is_null(x)`` and ``is_nan(x)``.
    """
    if isinstance(condition, pyarrow.compute.Expression):
        return condition
    if not isinstance(condition, str):
        raise ConfigError(
            f"[data] filter() got a {type(condition).__name__} for expr; it must be text or an Arrow expression"
        )
    text = re.sub(r"`([^`]*)`", lambda name: f"field({name[1]!r})", condition.strip())
    try:
        tree = ast.parse(text, mode="eval")
        result = _value(tree.body)
    except (SyntaxError, TypeError, ValueError, pyarrow.ArrowException) as error:
        raise ConfigError(f"[data] filter() got {condition!r}, which is not understood: {error}") from error
    return result if isinstance(result, pyarrow.compute.Expression) else pyarrow.compute.scalar(result)


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Name(id="true" | "false" as name):
            return name == "true"
        case ast.Name(id=name):
            return pyarrow.compute.field(name)
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return [_value(item) for item in items]
        case ast.BoolOp(op=op, values=values):
            return _joined(isinstance(op, ast.And), [_value(value) for value in values])
        case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
            return ~_expression(_value(operand))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _value(operand)
            return 0 - value if not isinstance(value, pyarrow.compute.Expression) else _expression(0) - value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _COMPUTE:
            a, b = _value(left), _value(right)
            return _COMPUTE[type(op)](_expression(a) if isinstance(b, pyarrow.compute.Expression) else a, b)
        case ast.Compare(left=left, ops=ops, comparators=others):
            operands = [left, *others]
            parts = [_compared(operands[n], op, operands[n + 1]) for n, op in enumerate(ops)]
            return _joined(True, parts)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS:
            return _CALLS[name](*[_value(each) for each in args])
    raise ValueError(f"{ast.unparse(node)!r} is not supported")


def _compared(left: ast.expr, op: ast.cmpop, right: ast.expr) -> Any:
    a, b = _value(left), _value(right)
    match op:
        case ast.In():
            return _expression(a).isin(b)
        case ast.NotIn():
            return ~_expression(a).isin(b)
        case ast.Is() if b is None:
            return _expression(a).is_null()
        case ast.IsNot() if b is None:
            return _expression(a).is_valid()
    if type(op) not in _COMPARE:
        raise ValueError("'is' is for None only")
    return _COMPARE[type(op)](_expression(a), b)


def _joined(is_and: bool, values: list[Any]) -> Any:
    result = _expression(values[0])
    for value in values[1:]:
        result = result & _expression(value) if is_and else result | _expression(value)
    return result if len(values) > 1 else values[0]


def _expression(value: Any) -> Any:
    return value if isinstance(value, pyarrow.compute.Expression) else pyarrow.compute.scalar(value)
