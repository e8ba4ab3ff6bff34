"""Checks whether a framework is installed, without importing it."""

from __future__ import annotations

import importlib.util
import sys


def is_installed(module: str) -> bool:
    """Whether ``import module`` would find a package. A plain folder of that name, or a module blocked in
    ``sys.modules``, does not count."""
    if module in sys.modules:
        return sys.modules[module] is not None
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    return found is not None and found.origin is not None
