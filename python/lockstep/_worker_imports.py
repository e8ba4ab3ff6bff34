"""Modules that change the process that imports them, so that workers must import them too."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable

_VARIABLE = "LOCKSTEP_WORKER_IMPORTS"
_preloads: dict[str, tuple[str, ...]] = {}


def add(module: str, preload: Iterable[str] = ()) -> None:
    """From now on, workers import `module` before they load the function, and child processes and their workers do so
    too. `preload` is what the process that workers are forked from imports for it; that must change nothing."""
    names = os.environ.get(_VARIABLE, "").split()
    if module not in names:
        os.environ[_VARIABLE] = " ".join([*names, module])
    _preloads[module] = tuple(preload)


def preloads() -> list[str]:
    """What the modules that were added want to be preloaded."""
    return [name for names in _preloads.values() for name in names]


def load() -> None:
    """Imports them, in a worker."""
    for module in os.environ.get(_VARIABLE, "").split():
        importlib.import_module(module)
