"""The preprocessors of Lockstep as values that JSON can hold; see ``lockstep._preprocessors``."""

from __future__ import annotations

import base64
import datetime
import decimal
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy

from lockstep import _preprocessors
from lockstep.data import preprocessors
from lockstep.data.preprocessors import Chain, Preprocessor
from lockstep.errors import ConfigError, SerializationError, StorageError

_CLASSES: dict[str, Any] = {
    name: value
    for name, value in vars(preprocessors).items()
    if isinstance(value, type) and issubclass(value, Preprocessor) and value not in (Preprocessor, Chain)
}


def to_dict(preprocessor: Preprocessor) -> dict[str, Any] | None:
    """None if it is of a class of the user's own."""
    cls = type(preprocessor)
    if isinstance(preprocessor, Chain) and cls is Chain:
        return {
            "class": "Chain",
            "preprocessors": [_preprocessors.to_dict(each) for each in preprocessor.preprocessors],
        }
    if _CLASSES.get(cls.__name__) is not cls:
        return None
    state: dict[str, Any] = {
        "class": cls.__name__,
        "arguments": {name: _argument(cls, name, value) for name, value in preprocessor._arguments().items()},
    }
    if "stats_" in vars(preprocessor):
        state["statistics"] = _plain(vars(preprocessor)["stats_"], f"stats_ of {cls.__name__}")
    return state


def from_dict(state: Mapping[str, Any]) -> Preprocessor:
    """The opposite of :func:`to_dict`. Unpickles only the arguments that are functions."""
    name = state.get("class")
    if name == "Chain":
        return Chain(*map(_preprocessors.from_dict, state["preprocessors"]))
    if name not in _CLASSES:
        raise StorageError(f"[preprocessor] there is no preprocessor {name!r}; a newer Lockstep may have written it")
    cls = _CLASSES[name]
    try:
        preprocessor: Any = cls(**{key: _value(cls, key, form) for key, form in state["arguments"].items()})
        if "statistics" in state:
            preprocessor.stats_ = _decode(state["statistics"])
            preprocessor._fitted = True
    except (TypeError, ValueError, KeyError, AttributeError, ConfigError) as error:
        raise StorageError(f"[preprocessor] what is stored of a {name} is broken: {error}") from error
    return preprocessor  # type: ignore[no-any-return]


def _argument(cls: type[Preprocessor], name: str, value: Any) -> Any:
    if name in cls._functions and value is not None:
        return {"$pickle": _preprocessors.pickled(value, f"{name} of {cls.__name__}")}
    return _plain(value, f"{name} of {cls.__name__}")


def _value(cls: type[Preprocessor], name: str, form: Any) -> Any:
    if isinstance(form, dict) and "$pickle" in form:
        if name not in cls._functions:
            raise StorageError(
                f"[preprocessor] there is a pickle where {name} of a {cls.__name__} should be; it is not opened"
            )
        return _preprocessors.unpickled(form["$pickle"])
    return _decode(form)


def _plain(value: Any, what: str) -> Any:
    try:
        return _encode(value)
    except _NotJson as error:
        raise SerializationError(
            f"[preprocessor] {what} cannot be stored: it holds a {error}; use plain values, such as numbers and strings"
        ) from error


class _NotJson(Exception):
    """JSON has no form for a value, whose type this names."""


def _encode(value: Any) -> Any:
    """Strings, numbers, lists and dicts with strings as keys are themselves; {"$tuple": [...]} and others like it stand
    for the rest."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, list | range):
        return [_encode(each) for each in value]
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _encode(each) for key, each in value.items()}
        return {"$dict": [[_encode(key), _encode(each)] for key, each in value.items()]}
    for tag, (kind, encode, _) in _tagged().items():
        if type(value) is kind:
            return {tag: encode(value)}
    if isinstance(value, numpy.generic):
        return _encode(value.item())
    if isinstance(value, numpy.dtype):
        return {"$dtype": value.str}
    if isinstance(value, type) and issubclass(value, numpy.generic):
        return {"$dtype": numpy.dtype(value).str}
    if any(value is kind for kind in (bool, int, float)):
        return {"$dtype": numpy.dtype(value).str}
    raise _NotJson(type(value).__name__)


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(each) for each in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    if not tag.startswith("$"):
        return {key: _decode(each) for key, each in value.items()}
    if tag == "$float":
        return float(value[tag])
    if tag == "$dict":
        return {_decode(key): _decode(each) for key, each in value[tag]}
    if tag == "$dtype":
        return numpy.dtype(value[tag])
    known = _tagged()
    if tag not in known:
        raise StorageError(f"[preprocessor] there is no value like {tag!r}; a newer Lockstep may have written it")
    return known[tag][2](value[tag])


_Tagged = dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]]
_PLAIN: _Tagged = {
    "$tuple": (tuple, lambda value: [_encode(each) for each in value], lambda form: tuple(map(_decode, form))),
    "$bytes": (bytes, lambda value: base64.b64encode(value).decode(), base64.b64decode),
    "$decimal": (decimal.Decimal, str, decimal.Decimal),
    "$datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "$date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "$time": (datetime.time, datetime.time.isoformat, datetime.time.fromisoformat),
    "$timedelta": (
        datetime.timedelta,
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda form: datetime.timedelta(*form),
    ),
    "$array": (
        numpy.ndarray,
        lambda value: {"dtype": value.dtype.str, "values": _encode(value.tolist())},
        lambda form: numpy.array(_decode(form["values"]), numpy.dtype(form["dtype"])),
    ),
}


def _tagged() -> _Tagged:
    """With those of pandas, if it is installed."""
    try:
        import pandas
    except ImportError:
        return _PLAIN
    return {
        **_PLAIN,
        "$categorical": (
            pandas.CategoricalDtype,
            lambda value: {"categories": _encode(list(value.categories)), "ordered": bool(value.ordered)},
            lambda form: pandas.CategoricalDtype(_decode(form["categories"]), form["ordered"]),
        ),
        "$nanoseconds": (pandas.Timedelta, lambda value: value.value, pandas.Timedelta),
        "$timestamp": (pandas.Timestamp, lambda value: value.isoformat(), pandas.Timestamp),
    }
