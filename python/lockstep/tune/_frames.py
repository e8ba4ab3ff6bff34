"""Messages between the driver and a worker of the pool: a length, a letter and the bytes. The driver unpickles none."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import Any

HEAD = struct.Struct("<QB")
JOB = struct.Struct("<QI")
"""The number and the attempt of the trial that a RESULT or an END is about, with which its body begins."""
REPORT = struct.Struct("<ddI")
"""The time of a report, the seconds since the previous one, and the length of its metrics; its checkpoint follows."""
FUNCTION, TRIAL, ANSWER, QUIT = b"FTAQ"
"""To the worker."""
HELLO, RESULT, END = b"HRE"
"""From it."""
GO_ON, STOP = b"\0", b"\1"


def send(fd: int, kind: int, body: bytes = b"") -> None:
    """Writes one message whole."""
    rest = memoryview(HEAD.pack(len(body), kind) + body)
    while rest:
        rest = rest[os.write(fd, rest) :]


class Reader:
    """The messages that arrive on a descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._bytes = bytearray()

    def receive(self) -> tuple[int, bytes] | None:
        """Waits for the next message. None: the other side is gone."""
        while (found := next(self.messages(), None)) is None:
            if not self.fill():
                return None
        return found

    def fill(self) -> bool:
        """Reads what is there, at least one byte. False: the other side is gone."""
        got = os.read(self.fd, 1 << 16)
        self._bytes += got
        return bool(got)

    def take(self, by: Callable[[bytearray], Any]) -> Any:
        """What `by` makes of the bytes that arrived, which says how many it took."""
        taken = by(self._bytes)
        del self._bytes[: taken.bytes]
        return taken

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """The complete ones."""
        while len(self._bytes) >= HEAD.size:
            length, kind = HEAD.unpack_from(self._bytes)
            end = HEAD.size + length
            if len(self._bytes) < end:
                return
            body = bytes(self._bytes[HEAD.size : end])
            del self._bytes[:end]
            yield kind, body
