"""Paths of runs, and the error for a path that cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

from lockstep.errors import StorageError


def construct_path(path: str | os.PathLike[str], parent_path: str | os.PathLike[str]) -> Path:
    """The absolute path. A relative `path` is below `parent_path`; ``~`` is the home directory in both.

    >>> construct_path("digits", "/runs"), construct_path("/digits", "/runs"), construct_path("../digits", "/runs")
    (PosixPath('/runs/digits'), PosixPath('/digits'), PosixPath('/digits'))
    """
    return Path(os.path.abspath(Path(parent_path).expanduser() / Path(path).expanduser()))


def refused(path: Path, verb: str, error: OSError) -> StorageError:
    """The StorageError that says that `path` cannot be `verb`."""
    reason = error.strerror or str(error)
    return StorageError(
        f"[sgd] {path} cannot be {verb}: {reason}; see to its disk and rights, or choose another logdir"
    )
