"""Whether a framework is there, without importing it."""

from __future__ import annotations

import importlib.util
import sys


def is_installed(module: str) -> bool:
    """Whether ``import module`` would find a package: not some folder of that name, nor what somebody has shut out."""
    if module in sys.modules:
        return sys.modules[module] is not None
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    return found is not None and found.origin is not None
