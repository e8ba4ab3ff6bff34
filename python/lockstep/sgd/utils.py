"""Paths and files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from lockstep.errors import StorageError


def construct_path(path: str | os.PathLike[str], parent_path: str | os.PathLike[str]) -> Path:
    """`path` as an absolute one: below `parent_path` unless it is absolute; ``~`` is the home directory in both.

    >>> construct_path("digits", "/runs"), construct_path("/digits", "/runs"), construct_path("../digits", "/runs")
    (PosixPath('/runs/digits'), PosixPath('/digits'), PosixPath('/digits'))
    """
    return Path(os.path.abspath(Path(parent_path).expanduser() / Path(path).expanduser()))


def replace_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Makes the file `path` of what `write` writes, for its owner alone; readers see the old one or the whole new one.

    It is on the disk when this returns. Raises StorageError with the path when the disk refuses; then, as when `write`
    raises, everything is as it was.
    """
    temporary = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            # Left by a process that was killed, or a link that somebody put there: nothing is written through it.
            temporary.unlink(missing_ok=True)
            with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)
    except OSError as error:
        raise refused(path, "written", error) from error


def sync_directory(path: Path) -> None:
    """Makes what was renamed in `path` last."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def refused(path: Path, verb: str, error: OSError) -> StorageError:
    """The StorageError that says that `path` cannot be `verb`."""
    reason = error.strerror or str(error)
    return StorageError(
        f"[sgd] {path} cannot be {verb}: {reason}; see to its disk and rights, or choose another logdir"
    )
