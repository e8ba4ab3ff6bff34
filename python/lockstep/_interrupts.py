"""A process whose run was interrupted, and that nobody catches that for, dies of the signal.

Python itself does so for a KeyboardInterrupt, but not for classes derived from it. A shell's loop stops only when the
program in it died of SIGINT; who sent SIGTERM looks for 143.
"""

from __future__ import annotations

import sys
from types import TracebackType

from lockstep import _core
from lockstep.errors import TrainingInterrupted

_previous = sys.excepthook
_installed = False


def ends_uncaught(error: TrainingInterrupted) -> TrainingInterrupted:
    """The same error; when nobody catches it, the process dies of its signal after all else that is done at its end."""
    global _installed, _previous
    if not _installed:
        _installed = True
        _previous, sys.excepthook = sys.excepthook, _hook
    return error


def _hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    _previous(kind, error, traceback)
    is_interactive = hasattr(sys, "ps1") or sys.flags.interactive  # there the process goes on
    if isinstance(error, TrainingInterrupted) and error.signal and not is_interactive:
        _core.end_by_signal(error.signal)
