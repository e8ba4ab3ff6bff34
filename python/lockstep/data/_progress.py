"""A line on the terminal for work that takes long. Nothing is shown if stderr is no terminal."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType

_FIRST_SECONDS = 0.5  # quicker work shows nothing
_SECONDS_BETWEEN = 0.1


class Progress:
    """Counts rows, and shows how many and how fast.

    >>> with Progress("fit StandardScaler") as progress:
    ...     progress.add(65536)
    """

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what = what
        self._total = total
        self._rows = 0
        self._is_shown = sys.stderr is not None and sys.stderr.isatty()
        self._begin = time.monotonic()
        self._next = self._begin + _FIRST_SECONDS
        self._has_line = False

    def __enter__(self) -> Progress:
        return self

    def add(self, rows: int) -> None:
        """Called for every batch, when it is done."""
        self._rows += rows
        now = time.monotonic()
        if self._is_shown and now >= self._next:
            self._next = now + _SECONDS_BETWEEN
            self._show(self._line(now - self._begin))
            self._has_line = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._has_line:
            self._show("")

    def _line(self, seconds: float) -> str:
        speed = f"{self._rows / seconds:,.0f} rows/s"
        if not self._total:
            return f"{self._what}: {self._rows:,} rows, {speed}"
        part = min(1.0, self._rows / self._total)
        filled = round(part * 24)
        return f"{self._what}: {part:4.0%} [{'#' * filled}{'.' * (24 - filled)}] {self._rows:,} rows, {speed}"

    def _show(self, line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write("\r\033[K" + line[:width])
        sys.stderr.flush()
