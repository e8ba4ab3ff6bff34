"""What the table of names is made of."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class At(NamedTuple):
    """The object `name` of `module`; without a name, the one of the same name as in Ray."""

    module: str
    name: str = ""


class Value(NamedTuple):
    """A constant."""

    value: Any


class PerRelease(NamedTuple):
    """A constant that differs from release to release."""

    by_release: Mapping[str, Any]


class Topic(NamedTuple):
    """A part of Ray that Lockstep does not have yet."""

    what: str
    instead: str


class Later(NamedTuple):
    """A name that can be imported and raises NotAvailableError when it is used."""

    topic: Topic
    is_class: bool


Names = Mapping[str, At | Later | PerRelease | Value]


class Shared(NamedTuple):
    """A module that is the same object as Lockstep's; `added` are names that Lockstep's does not have."""

    module: str
    added: Names = MappingProxyType({})


def at(module: str, names: str) -> dict[str, At]:
    """Names, separated by spaces, of one module of Lockstep; ``Ray=Lockstep`` if they differ."""
    pairs = (word.partition("=") for word in names.split())
    return {name: At(module, other) for name, _, other in pairs}


def later(topic: Topic, *, classes: str = "", functions: str = "") -> dict[str, Later]:
    """Names that do not exist yet."""
    return {name: Later(topic, True) for name in classes.split()} | {
        name: Later(topic, False) for name in functions.split()
    }


def values(**constants: Any) -> dict[str, Value]:
    """Constants by name."""
    return {name: Value(value) for name, value in constants.items()}
