"""If a run was interrupted and the error is not caught, the process dies of the signal.

Python itself does so for a KeyboardInterrupt, but not for classes derived from it. A loop in a shell stops only if the
program in it died of SIGINT, and senders of SIGTERM expect exit code 143.
"""

from __future__ import annotations

import sys
from types import TracebackType

from lockstep import _core
from lockstep.errors import TrainingInterrupted

_previous = sys.excepthook
_installed = False


def ends_uncaught(error: TrainingInterrupted) -> TrainingInterrupted:
    """Returns the same error. If it is not caught, the process dies of its signal after everything else that runs at
    exit."""
    global _installed, _previous
    if not _installed:
        _installed = True
        _previous, sys.excepthook = sys.excepthook, _hook
    return error


def _hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    _previous(kind, error, traceback)
    is_interactive = hasattr(sys, "ps1") or sys.flags.interactive  # there the process continues
    if isinstance(error, TrainingInterrupted) and error.signal and not is_interactive:
        _core.end_by_signal(error.signal)
