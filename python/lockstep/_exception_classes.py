"""Finds the class of an exception by the name that a worker sent, and makes exceptions of any class."""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeGuard

_MAX_REACHED = 2000
"""At most this many functions and classes are searched, the nearest first."""

_HEAP_TYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: the class was made by a class statement or by type()."""


def exception_class(name: str, function: Callable[..., Any] | None = None) -> type[Exception] | None:
    """The subclass of Exception in this process whose type_name() is `name`; None if there is none.

    A name without a module is a builtin or a class in ``__main__``. Nothing is imported. Classes that were made inside
    a function are searched for where the training function `function` uses them.

        >>> exception_class("ZeroDivisionError"), exception_class("lockstep.errors.ConfigError").__name__
        (<class 'ZeroDivisionError'>, 'ConfigError')
        >>> exception_class("KeyboardInterrupt")
    """
    if not name:
        return None
    for found in _named(name):
        if _is_exception(found) and type_name(found) == name:
            return found
    reached = [] if function is None else list(filter(_is_exception, _reached_classes(function)))
    # A class that was pickled by value has lost its outer name: Outer.Error is Error in the worker.
    whole = (found for found in reached if type_name(found) == name)
    lost = (found for found in reached if _with_module(found, found.__name__) == name)
    return next(whole, None) or next(lost, None)


def type_name(kind: type) -> str:
    """The name of a class in a Failure: ``ValueError``, ``module.Outer.Error``; without a module for builtins and
    ``__main__``."""
    return _with_module(kind, kind.__qualname__)


def bare(kind: Any, *args: object) -> Any:
    """A `kind` with these `args`, made by its builtin base class, so that no Python code of the class runs."""
    base = kind
    while base.__flags__ & _HEAP_TYPE:
        base = base.__base__
    made = base.__new__(kind)
    BaseException.__init__(made, *args)
    return made


def _with_module(kind: type, name: str) -> str:
    return name if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{name}"


def _is_exception(found: object) -> TypeGuard[type[Exception]]:
    return isinstance(found, type) and Exception in found.__mro__


def _named(name: str) -> Iterator[Any]:
    """The objects called `name` in the modules that it may refer to."""
    parts = name.split(".")
    places = [("builtins", parts), ("__main__", parts)]
    places += [(".".join(parts[:cut]), parts[cut:]) for cut in range(len(parts) - 1, 0, -1)]
    for module, path in places:
        found: Any = sys.modules.get(module)
        for part in path:
            found = getattr(found, "__dict__", {}).get(part)
        yield found


def _reached_classes(function: Callable[..., Any]) -> Iterator[type]:
    """The classes that `function` uses in its closure, globals and defaults, and, recursively, in the functions it
    calls."""
    waiting: deque[object] = deque([function])
    seen = {id(function)}
    while waiting:
        value = waiting.popleft()
        if isinstance(value, type):
            yield value
        for part in _reached_from(value):
            if id(part) not in seen and callable(part) and len(seen) < _MAX_REACHED:
                seen.add(id(part))
                waiting.append(part)


def _reached_from(value: Any) -> Iterator[object]:
    if isinstance(value, FunctionType):
        from lockstep._pickling import _function_parts

        yield from (part for _, part in _function_parts(value))
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, MethodType):
        yield from (value.__func__, type(value.__self__))
    elif isinstance(value, type):
        for member in tuple(vars(value).values()):
            yield member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
    else:
        yield type(value)
