"""Preprocessors as bytes, for checkpoints.

The ones of Lockstep are JSON: class, arguments, statistics. Classes and functions of the user's own can only be
pickled; the JSON says so, and only their bytes are unpickled, when :func:`load` is called. For example::

    {"class": "MinMaxScaler", "arguments": {"columns": ["x"]}, "statistics": {"min(x)": 0.0, "max(x)": 30.0}}
    {"class": "BatchMapper", "pickle": "gAWV..."}
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy

from lockstep.data.preprocessor import Preprocessor
from lockstep.data.preprocessors import (
    chain,
    concatenator,
    discretizer,
    encoder,
    hasher,
    imputer,
    normalizer,
    scaler,
    tokenizer,
    transformer,
    vectorizer,
)
from lockstep.data.preprocessors._column_preprocessor import ColumnPreprocessor
from lockstep.errors import SerializationError, StorageError

_MODULES = (concatenator, discretizer, encoder, hasher, imputer, normalizer, scaler, tokenizer, transformer, vectorizer)
_CLASSES: dict[str, type[ColumnPreprocessor]] = {
    name: value
    for module in _MODULES
    for name, value in vars(module).items()
    if isinstance(value, type)
    and value.__module__ == module.__name__
    and issubclass(value, ColumnPreprocessor)
    and not name.startswith("_")
}
_FORMAT = "lockstep.preprocessor"
_VERSION = 1


def dump(preprocessor: Preprocessor) -> bytes:
    """JSON; see above. SerializationError if something in it can be neither written as JSON nor pickled."""
    document = {"format": _FORMAT, "version": _VERSION, **to_dict(preprocessor)}
    return json.dumps(document, ensure_ascii=False, allow_nan=False).encode()


def load(data: bytes) -> Preprocessor:
    """What was dumped. Unpickles the user's own classes and functions, if there are any: :func:`is_pickled` tells."""
    return from_dict(_document(data))


def is_pickled(data: bytes) -> bool:
    """Whether :func:`load` would unpickle something of this, which runs code."""
    return _has_pickle(_document(data))


def to_dict(preprocessor: Preprocessor) -> dict[str, Any]:
    """Values that JSON can hold."""
    cls = type(preprocessor)
    if cls is chain.Chain and isinstance(preprocessor, chain.Chain):
        return {"class": "Chain", "preprocessors": [to_dict(each) for each in preprocessor.preprocessors]}
    if _CLASSES.get(cls.__name__) is cls and isinstance(preprocessor, ColumnPreprocessor):
        try:
            state = {"class": cls.__name__, "arguments": _encode(preprocessor._arguments())}
            if "stats_" in vars(preprocessor):
                state["statistics"] = _encode(preprocessor.stats_)
            return state
        except _NotJson:  # a function, or a value of the user's own class
            pass
    return {"class": cls.__name__, "pickle": base64.b64encode(_pickled(preprocessor)).decode()}


def from_dict(state: Mapping[str, Any]) -> Preprocessor:
    """The opposite of :func:`to_dict`."""
    name = state.get("class")
    if "pickle" in state:
        import pickle

        loaded = pickle.loads(base64.b64decode(state["pickle"]))
        if not isinstance(loaded, Preprocessor):
            raise StorageError(f"[preprocessor] the pickle holds a {type(loaded).__name__}, which is no Preprocessor")
        return loaded
    if name == "Chain":
        return chain.Chain(*(from_dict(each) for each in state["preprocessors"]))
    if name not in _CLASSES:
        raise StorageError(f"[preprocessor] there is no preprocessor {name!r}; a newer Lockstep may have written it")
    preprocessor = _CLASSES[name](**_decode(state["arguments"]))
    if "statistics" in state:
        preprocessor.stats_ = _decode(state["statistics"])
        preprocessor._fitted = True
    return preprocessor


def _document(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError as error:
        raise StorageError(f"[preprocessor] these {len(data)} bytes are no stored preprocessor: {error}") from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise StorageError(f"[preprocessor] these {len(data)} bytes are no stored preprocessor")
    if document.get("version") != _VERSION:
        raise StorageError(
            f"[preprocessor] it has version {document.get('version')!r}, but this Lockstep reads version {_VERSION}"
        )
    return document


def _has_pickle(state: Mapping[str, Any]) -> bool:
    return "pickle" in state or any(map(_has_pickle, state.get("preprocessors", ())))


def _pickled(preprocessor: Preprocessor) -> bytes:
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(preprocessor))
    except Exception as error:
        raise SerializationError(
            f"[preprocessor] a {type(preprocessor).__name__} cannot be stored: {error}; "
            "keep only what can be pickled in its attributes"
        ) from error


class _NotJson(Exception):
    """JSON has no form for a value."""


def _encode(value: Any) -> Any:
    """Strings, numbers, lists and dicts with strings as keys are themselves; {"$tuple": [...]} and others like it stand
    for the rest."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, list):
        return [_encode(each) for each in value]
    if isinstance(value, dict):
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
    raise _NotJson


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
        "$timestamp": (pandas.Timestamp, lambda value: value.isoformat(), pandas.Timestamp),
    }
