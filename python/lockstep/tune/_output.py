"""What workers of the pool print, in the logs of their trials."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_AT_ONCE = 1 << 20
_LONGEST = 64 << 20
"""Bytes of trials that have ended; then the file is emptied."""


class Output:
    """A file without a name, to which a worker prints. The driver copies it to the log of the trial that runs, so that
    nothing is lost when the worker dies. `tell` gets the name of a trial and whole lines."""

    def __init__(self, directory: Path, tell: Callable[[str, str], None] | None) -> None:
        self._file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115
        self.fd = self._file.fileno()
        self._tell = tell
        self._copied = 0
        self._line = b""

    def copy(self, name: str, directory: str | None) -> None:
        """What is new, to the log in the directory of a trial. None: no trial runs."""
        size = os.fstat(self.fd).st_size
        if size <= self._copied:
            return
        with _log_of(directory) as log:
            while self._copied < size and (part := os.pread(self.fd, min(_AT_ONCE, size - self._copied), self._copied)):
                self._copied += len(part)
                self._say(name, part)
                log.write(part)

    def finish(self, name: str, directory: str | None) -> None:
        """At the end of the trial."""
        self.copy(name, directory)
        if self._line:
            self._say(name, b"\n")
        if self._copied > _LONGEST and self._copied == os.fstat(self.fd).st_size:
            os.ftruncate(self.fd, 0)
            self._copied = 0

    def close(self) -> None:
        self._file.close()

    def _say(self, name: str, part: bytes) -> None:
        if self._tell is None:
            return
        lines, end, self._line = (self._line + part).rpartition(b"\n")
        if end:
            self._tell(name, lines.decode(errors="replace"))


def _log_of(directory: str | None) -> BinaryIO:
    if directory is None:
        return open(os.devnull, "wb")
    place = os.path.join(directory, "logs")
    os.makedirs(place, mode=0o700, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    return os.fdopen(os.open(os.path.join(place, "rank_0.log"), flags, 0o600), "wb")
