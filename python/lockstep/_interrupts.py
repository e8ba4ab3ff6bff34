"""If a run was interrupted and the error is not caught, the process dies of the signal.

Python itself does so for a KeyboardInterrupt, but not for classes derived from it. A loop in a shell stops only if the
program in it died of SIGINT, and senders of SIGTERM expect exit code 143.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import TracebackType

from lockstep import _core
from lockstep.errors import TrainingInterrupted, TrainingPreempted

_PREEMPTED = 75
"""The exit code EX_TEMPFAIL: try again later."""

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


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """SIGTERM raises a KeyboardInterrupt with ``.signal``, unless the program handles it or another thread asks."""
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _raise_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _raise_interrupt(number: int, frame: object) -> None:
    interrupt = KeyboardInterrupt()
    interrupt.signal = number  # type: ignore[attr-defined]
    raise interrupt


def _hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    _previous(kind, error, traceback)
    is_interactive = hasattr(sys, "ps1") or sys.flags.interactive  # there the process continues
    if is_interactive:
        return
    if isinstance(error, TrainingPreempted):
        _core.end_with_code(_PREEMPTED)
    elif isinstance(error, TrainingInterrupted) and error.signal:
        _core.end_by_signal(error.signal)
