"""Removes the wrappers DistributedDataParallel and torch.compile, and the names that they add.

DistributedDataParallel puts ``module.`` in front of all names of its model. torch.compile puts ``_orig_mod.`` in front
of all names, or into the middle of the names of a compiled part. Imported only if torch is.
"""

from __future__ import annotations

import functools
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel

PREFIX = "module."
"""The prefix that DistributedDataParallel adds to its model's names."""
_COMPILED = "_orig_mod"
"""The attribute of a compiled module that holds the original."""


def unwrapped(value: Any) -> Any:
    """A model without its wrappers, a state_dict without their names, or else `value` itself."""
    if type(value) in (dict, OrderedDict):
        return with_plain_names(value) if _is_state(value) else value
    while True:
        if isinstance(value, DistributedDataParallel):
            value = value.module
        elif _is_compiled(value):
            value = value._orig_mod
        else:
            return value


def with_plain_names(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """`state` under the names of the model itself; unchanged if it has those already, or if two names would become
    one."""
    bare = [plain_name(name) for name in state]
    if len(set(bare)) < len(bare):
        return state
    if is_prefixed(bare):
        return renamed(state, lambda name: f"{plain_name(name)}.".removeprefix(PREFIX)[:-1])
    return state if bare == list(state) else renamed(state, plain_name)


def plain_name(name: str) -> str:
    """A name without the parts that torch.compile adds.

    >>> plain_name("encoder._orig_mod.weight")
    'encoder.weight'
    """
    if _COMPILED not in name:
        return name
    return ".".join(part for part in name.split(".") if part != _COMPILED)


def is_prefixed(names: Iterable[str]) -> bool:
    """Whether there are names and all of them begin with ``module.``."""
    each = [name.startswith(PREFIX) for name in names]
    return bool(each) and all(each)


def renamed(state: Mapping[str, Any], rename: Callable[[str], str]) -> dict[str, Any]:
    """The renamed state in a new dict of the same class, with torch's version metadata of the innermost module."""
    kind: type[dict[str, Any]] = dict if type(state) is dict else OrderedDict
    named = kind((rename(name), value) for name, value in state.items())
    notes = getattr(state, "_metadata", None)
    if notes is not None:
        named._metadata = OrderedDict((rename(name), note) for name, note in notes.items())  # type: ignore[attr-defined]
    return named


def _is_state(value: Mapping[Any, Any]) -> bool:
    """Whether `value` holds tensors by name and otherwise only what modules add themselves."""
    return bool(value) and all(
        isinstance(name, str) and (isinstance(item, torch.Tensor) or name.endswith("_extra_state"))
        for name, item in value.items()
    )


def _is_compiled(value: Any) -> bool:
    dynamo = sys.modules.get("torch._dynamo.eval_frame")  # a module that is not imported has compiled nothing
    return dynamo is not None and isinstance(value, dynamo.OptimizedModule)


# ---------------------------------------------------------------------- loading


@functools.cache
def load_plain_names() -> None:
    """From now on, wrapped models in this process can load a state_dict with the model's own names.

    Checkpoints have those names, so a function may load before or after it wraps or compiles its model.
    """
    register_module_module_registration_hook(_watch)


def _watch(module: torch.nn.Module, name: str, inner: torch.nn.Module | None) -> None:
    if name == _COMPILED and _is_compiled(module):
        module.register_load_state_dict_pre_hook(_load_into_compiled)  # type: ignore[no-untyped-call]
    elif name == "module" and isinstance(module, DistributedDataParallel):
        module.register_load_state_dict_pre_hook(_load_into_parallel)  # type: ignore[no-untyped-call]


def _load_into_compiled(module: torch.nn.Module, state: dict[str, Any], prefix: str, *others: Any) -> None:
    _add(state, prefix, f"{prefix}{_COMPILED}.")


def _load_into_parallel(module: torch.nn.Module, state: dict[str, Any], prefix: str, *others: Any) -> None:
    _add(state, prefix, f"{prefix}{PREFIX}")


def _add(state: dict[str, Any], prefix: str, wanted: str) -> None:
    """Inserts the wrapper's name after `prefix`, unless a name already has it."""
    names = [name for name in state if name.startswith(prefix)]
    if not any(name.startswith(wanted) for name in names):
        for name in names:
            state[wanted + name.removeprefix(prefix)] = state.pop(name)
