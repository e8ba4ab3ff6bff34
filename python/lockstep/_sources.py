"""Checks whether a source file has changed since a function was made from it.

A run keeps its pickled training function. If its file is edited and the run is restored without the new function,
tracebacks of the old function must not quote the new lines.
"""

from __future__ import annotations

import linecache
import os
import sys
import tokenize
from collections.abc import Iterator
from types import CodeType, FrameType

from lockstep import _core
from lockstep.errors import StorageError


def created(run: str | os.PathLike[str]) -> float:
    """When the run in that directory was first started; infinity if that is unknown."""
    try:
        return _core.RunView.read_leniently(os.fspath(run)).created or float("inf")
    except StorageError:
        return float("inf")


def line_before(file: str, number: int, moment: float) -> str:
    """The line of a file if the file has not changed since `moment`; otherwise an empty string."""
    return "" if _changed_after(file, moment) else linecache.getline(file, number).strip()


def hide_changed(error: BaseException, moment: float) -> None:
    """Keeps tracebacks of `error` from quoting files that changed after `moment`, if the change affects the code."""
    for frame in _frames(error):
        code = frame.f_code
        if _came_pickled(frame) and _changed_after(code.co_filename, moment) and not _holds(code.co_filename, code):
            linecache.cache[code.co_filename] = (0, None, [], code.co_filename)


def _frames(error: BaseException | None) -> Iterator[FrameType]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        step = error.__traceback__
        while step is not None:
            yield step.tb_frame
            step = step.tb_next
        error = error.__cause__ or error.__context__


def _came_pickled(frame: FrameType) -> bool:
    """Whether the code was pickled by value: its globals then belong to no module. Imported code is read from its
    file."""
    module = sys.modules.get(str(frame.f_globals.get("__name__")))
    return getattr(module, "__dict__", None) is not frame.f_globals


def _changed_after(file: str, moment: float) -> bool:
    try:
        return os.stat(file).st_mtime > moment
    except (OSError, ValueError):
        return False


def _holds(file: str, code: CodeType) -> bool:
    """Whether this code is part of the compiled file."""
    try:
        with tokenize.open(file) as source:
            waiting = [compile(source.read(), file, "exec", dont_inherit=True)]
    except (OSError, SyntaxError, ValueError):
        return False
    while waiting:
        found = waiting.pop()
        if found == code:
            return True
        waiting += [const for const in found.co_consts if isinstance(const, CodeType)]
    return False
