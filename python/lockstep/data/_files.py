"""Files, for sources that are decoded by Python code."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

import pyarrow.fs

from lockstep.data._native import native
from lockstep.data._plans import opening
from lockstep.errors import ConfigError, StorageError

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
T = TypeVar("T")


def to_paths(paths: Paths) -> list[str]:
    """The paths as a list."""
    if isinstance(paths, str | os.PathLike):
        return [os.fspath(paths)]
    return [os.fspath(path) for path in paths]


def file_options(
    filesystem: Any = None,
    on_error: str = "raise",
    unify_schemas: bool = False,
    ignore_missing_paths: bool = False,
    extensions: Sequence[str] = (),
) -> Any:
    """What all functions that read files have in common."""
    if on_error not in ("raise", "skip"):
        raise ConfigError(f"[data] on_error is {on_error!r}; it must be 'raise' or 'skip'")
    return native.FileOptions(
        filesystem=_to_filesystem(filesystem),
        skip_errors=on_error == "skip",
        unify_schemas=unify_schemas,
        ignore_missing_paths=ignore_missing_paths,
        extensions=list(extensions),
        index=opening.index,
    )


def _to_filesystem(filesystem: Any) -> pyarrow.fs.FileSystem | None:
    if filesystem is None or isinstance(filesystem, pyarrow.fs.LocalFileSystem):
        return None
    if isinstance(filesystem, pyarrow.fs.FileSystem):
        return filesystem
    if hasattr(filesystem, "protocol") and hasattr(filesystem, "open"):  # of fsspec
        if "file" in (filesystem.protocol if isinstance(filesystem.protocol, tuple) else (filesystem.protocol,)):
            return None
        return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(filesystem))
    raise ConfigError(
        f"[data] filesystem is a {type(filesystem).__name__}; it must be a pyarrow.fs.FileSystem or one of fsspec"
    )


class OneFile(io.RawIOBase):
    """A file of ``native.Files``, to be read in parts."""

    def __init__(self, files: Any, number: int) -> None:
        self._files = files
        self._number = number
        self._size = files.size(number)
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Goes there."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        """The next bytes."""
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        data = self._files.read(self._number, self._at, end)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def opened(files: Any, number: int) -> io.BufferedReader:
    """A file as Python's libraries want it."""
    return io.BufferedReader(OneFile(files, number), 1 << 16)


class Decoded:
    """The base of sources that Python code decodes; see PythonSource in the extension module."""

    description: str
    identity: str
    schema: pyarrow.Schema
    is_borrowed = False

    def __init__(self, files: Any, on_error: str) -> None:
        self.files = files
        self.skips = on_error == "skip"
        self._skipped: dict[int, str] = {}

    @property
    def paths(self) -> list[str]:
        """Of all files."""
        return [self.files.path(number) for number in range(len(self.files))]

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(self.files.size(number) for number in range(len(self.files)))

    def skipped(self) -> list[str]:
        """What was skipped so far."""
        return list(self._skipped.values())

    def named(self, number: int, call: Callable[[], T]) -> T:
        """`call`, whose errors name the file."""
        try:
            return call()
        except (ConfigError, StorageError):
            raise
        except Exception as error:
            raise StorageError(f"[data] {self.files.path(number)}: {error}") from error

    def _guarded(self, number: int, call: Callable[[], T]) -> T | None:
        try:
            return self.named(number, call)
        except StorageError as error:
            if not self.skips:
                raise
            self._skipped[number] = str(error)
            return None

    def each_file(self, call: Callable[[int], T]) -> list[T | None]:
        """`call(number)` for every file, on threads. None for files that are skipped."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            try:
                numbers = range(len(self.files))
                return list(pool.map(lambda number: self._guarded(number, lambda: call(number)), numbers))
            except BaseException:
                pool.shutdown(cancel_futures=True)  # as for Ctrl-C
                raise
