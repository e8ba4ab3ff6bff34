"""The errors of the alias."""

from __future__ import annotations

from lockstep.errors import LockstepError, NotAvailableError

__all__ = ["NoSuchPartError", "NotAvailableError", "RealRayError"]


class NoSuchPartError(NotAvailableError, AttributeError):
    """The same, for an attribute: hasattr() is False."""


class RealRayError(LockstepError, ImportError):
    """Ray itself is installed, so ``import ray`` would not mean what the script expects."""
