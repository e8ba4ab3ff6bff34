"""A param_space as the core's plain value, and configurations of the core as the user's."""

from __future__ import annotations

import base64
import pickle
import re
from collections.abc import Mapping
from typing import Any

from lockstep import _pickling
from lockstep.errors import ConfigError
from lockstep.tune.sample import Categorical, Domain, SampleFrom

_OBJECT = "$object"
_PICKLE = "$pickle"
_TEXT = "$text"
_TUPLE = "$tuple"
_LATER = object()
NOT_PLAIN = object()
_LONGEST_TEXT = 80


class ParamSpace:
    """Converts between the user's space and the core's. In the core's values, a tuple stands as ``{"$tuple": [...]}``.
    Other objects that are not plain stay in a table, which a restored experiment makes again from its param_space:
    they stand as ``{"$object": index, "$text": ...}``. Those that are in no param_space, because a searcher or a
    function of the user's made them, stand as ``{"$pickle": ..., "$text": ...}``."""

    def __init__(self, space: Mapping[str, Any], is_open: bool = False) -> None:
        if not isinstance(space, Mapping):
            raise ConfigError(f"[tune] param_space is {space!r}; it must be a dict")
        self.is_open = is_open
        """Whether configurations may hold more than the space does."""
        self._has_tuples = False
        self._objects: list[Any] = []
        self._functions: list[Any] = []
        self.value: dict[str, Any] = self._to_value(space, "param_space")
        """For ExperimentSettings.param_space."""

    def _to_value(self, given: Any, where: str) -> Any:
        if isinstance(given, SampleFrom):
            self._functions.append(given.function)
            return {"$domain": {"kind": "sample_from", "id": len(self._functions) - 1}}
        if isinstance(given, Categorical):
            values = [self._to_value(each, where) for each in given.categories]
            return {"$domain": {"kind": "choice", "values": values}}
        if isinstance(given, Domain):
            return given.to_value()
        if isinstance(given, Mapping) and set(given) == {"grid_search"}:
            values = [self._to_value(each, where) for each in given["grid_search"]]
            return {"$domain": {"kind": "grid_search", "values": values}}
        if _has_plain_keys(given):
            return {key: self._to_value(each, f"{where}[{key!r}]") for key, each in given.items()}
        if isinstance(given, list):
            return [self._to_value(each, where) for each in given]
        if type(given) is tuple:
            self._has_tuples = True
            return {_TUPLE: [self._to_value(each, where) for each in given]}
        if (value := as_plain(given)) is not NOT_PLAIN:
            return value
        self._objects.append(given)
        return self._object(len(self._objects) - 1)

    def _object(self, index: int) -> dict[str, Any]:
        return {_OBJECT: index, _TEXT: _text(self._objects[index])}

    def to_core(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The core's value of a configuration, or of a part of one."""
        return self._plain(config)  # type: ignore[no-any-return]

    def _plain(self, given: Any) -> Any:
        if _has_plain_keys(given):
            return {key: self._plain(each) for key, each in given.items()}
        if isinstance(given, list):
            return [self._plain(each) for each in given]
        if type(given) is tuple:
            return {_TUPLE: [self._plain(each) for each in given]}
        if (value := as_plain(given)) is not NOT_PLAIN:
            return value
        for index, known in enumerate(self._objects):
            if known is given or (type(known) is type(given) and _same(known, given)):
                return self._object(index)
        pickled = _pickling.dump_part(given, "a value of a configuration", "give a plain value")
        return {_PICKLE: base64.b64encode(pickled).decode(), _TEXT: _text(given)}

    @property
    def has_functions(self) -> bool:
        """Whether there is a sample_from()."""
        return bool(self._functions)

    def resolved(self, value: dict[str, Any]) -> dict[str, Any]:
        """The core's configuration with the values of sample_from(), so that a trial that is started again gets the
        same ones. Values that are not plain are computed at each start."""
        if not self._functions:
            return value
        return _filled(value, self.config(value))  # type: ignore[no-any-return]

    @property
    def is_plain(self) -> bool:
        """Whether configurations of the core are the user's as they are."""
        return not (self._objects or self._functions or self._has_tuples or self.is_open)

    def config(self, value: dict[str, Any]) -> dict[str, Any]:
        """The user's configuration; sample_from() is computed last, in the order in which they need each other."""
        if self.is_plain:
            return value
        pending: list[tuple[Any, Any, Any]] = []
        config: dict[str, Any] = self._restored(value, pending)
        spec = Spec(config)
        while pending:
            left, cause = [], None
            for holder, key, function in pending:
                try:
                    holder[key] = _plain_result(function(spec))
                except _NotYet as error:
                    left.append((holder, key, function))
                    cause = error
                except Exception as error:
                    what = f"sample_from() of {key!r} raised {type(error).__name__}: {error}"
                    raise ConfigError(f"[tune] {what}; correct its function") from error
            if len(left) == len(pending):
                names = ", ".join(repr(key) for _, key, _ in left)
                raise ConfigError(f"[tune] sample_from() of {names} need each other; break the circle") from cause
            pending = left
        return _closed(config) if self._functions and self._has_tuples else config

    def _restored(self, value: Any, pending: list[tuple[Any, Any, Any]]) -> Any:
        if isinstance(value, dict):
            if _OBJECT in value:
                return self._objects[value[_OBJECT]]
            if _PICKLE in value:
                return pickle.loads(base64.b64decode(value[_PICKLE]))
            if _TUPLE in value:
                computed = len(pending)
                values = self._restored(value[_TUPLE], pending)
                return tuple(values) if len(pending) == computed else _Tuple(values)
            made: Any = {}
            items: Any = value.items()
        elif isinstance(value, list):
            made = [None] * len(value)
            items = enumerate(value)
        else:
            return value
        for key, each in items:
            if isinstance(each, dict) and "$domain" in each:
                made[key] = _LATER
                pending.append((made, key, self._functions[each["$domain"]["id"]]))
            else:
                made[key] = self._restored(each, pending)
        return made


class _Tuple:
    """A tuple with values that are computed later."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values


def _closed(value: Any) -> Any:
    if isinstance(value, _Tuple):
        return tuple(map(_closed, value.values))
    if type(value) is dict:
        return {key: _closed(each) for key, each in value.items()}
    return list(map(_closed, value)) if type(value) is list else value


def _has_plain_keys(given: Any) -> bool:
    return isinstance(given, Mapping) and all(isinstance(key, str) and not key.startswith("$") for key in given)


def shown(value: Any) -> Any:
    """The core's value with texts for its objects."""
    if isinstance(value, dict):
        if _TEXT in value:
            return value[_TEXT]
        return (
            tuple(map(shown, value[_TUPLE])) if _TUPLE in value else {key: shown(each) for key, each in value.items()}
        )
    return list(map(shown, value)) if isinstance(value, list) else value


def _text(value: Any) -> str:
    """For people: one line without an address."""
    if isinstance(value, type) or callable(value):
        value = getattr(value, "__qualname__", value)
    try:
        text = " ".join(re.sub(r" at 0x[0-9a-f]+", "", value if isinstance(value, str) else repr(value)).split())
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"


def _filled(value: Any, config: Any) -> Any:
    if isinstance(value, dict):
        if "$domain" in value:
            made = as_plain(config)
            return value if made is NOT_PLAIN else made
        if _TUPLE in value:
            return {_TUPLE: _filled(value[_TUPLE], config)}
        return value if _TEXT in value else {key: _filled(each, config[key]) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, config[index]) for index, each in enumerate(value)]
    return value


def as_plain(value: Any) -> Any:
    """For the database; NOT_PLAIN if it cannot hold the value."""
    if callable(item := getattr(value, "item", None)) and getattr(value, "ndim", None) == 0:
        value = item()  # a number of numpy
    if value is None or type(value) in (bool, float, str) or (type(value) is int and -(2**63) <= value < 2**63):
        return value
    if type(value) in (list, tuple):
        parts = [as_plain(each) for each in value]
        if any(each is NOT_PLAIN for each in parts):
            return NOT_PLAIN
        return parts if type(value) is list else {_TUPLE: parts}
    if type(value) is dict and _has_plain_keys(value):
        named = {key: as_plain(each) for key, each in value.items()}
        return NOT_PLAIN if any(each is NOT_PLAIN for each in named.values()) else named
    return NOT_PLAIN


class _NotYet(Exception):
    """A value that another sample_from() computes."""


class Spec:
    """What the function of sample_from() gets: ``spec.config.lr`` and ``spec["config"]["lr"]`` are the value."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = _View(config)

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)


class _View(Mapping[str, Any]):
    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        if value is _LATER:
            raise _NotYet(key)
        return _View(value) if isinstance(value, dict) else value

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__"):
            raise AttributeError(key)
        if key not in self._values:
            raise AttributeError(f"the configuration has no {key!r}; it has {', '.join(map(repr, self._values))}")
        return self[key]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _plain_result(value: Any) -> Any:
    return dict(value) if isinstance(value, _View) else value


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # an array
        return False
