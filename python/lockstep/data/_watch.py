"""Shows on a terminal how far long work of the extension module has come."""

from __future__ import annotations

import shutil
import sys
import time

_FIRST_SECONDS = 0.5  # quicker work shows nothing

_begin: float | None = None
_has_line = False


def show(step: str, done: int, total: int) -> None:
    """Called about ten times a second while the work goes on."""
    global _begin, _has_line
    if sys.stderr is None or not sys.stderr.isatty():
        return
    now = time.monotonic()
    _begin = now if _begin is None else _begin
    if now - _begin < _FIRST_SECONDS:
        return
    filled = round(24 * done / max(total, 1))
    line = f"{step}: [{'#' * filled}{'.' * (24 - filled)}] {done:,} of {total:,} blocks, {now - _begin:.0f} s"
    sys.stderr.write("\r\033[K" + line[: shutil.get_terminal_size().columns - 1])
    sys.stderr.flush()
    _has_line = True


def close() -> None:
    """Called when the work is over."""
    global _begin, _has_line
    if _has_line:
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()
    _begin, _has_line = None, False
