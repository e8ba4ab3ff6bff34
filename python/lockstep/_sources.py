"""Whether a source file still is what a function was made from.

A run keeps its training function pickled. When its file is mended and the run is restored without the new function,
tracebacks of the old one must not quote the new lines.
"""

from __future__ import annotations

import json
import linecache
import os
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType


def created(run: str | os.PathLike[str]) -> float:
    """When the run in that directory was begun for the first time; infinity where nothing is known of it."""
    try:
        return float(json.loads(Path(run, "run.json").read_bytes())["created"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return float("inf")


def line_before(file: str, number: int, moment: float) -> str:
    """The line of a file that has not changed since `moment`; else nothing."""
    return "" if _changed_after(file, moment) else linecache.getline(file, number).strip()


def hide_changed(error: BaseException, moment: float) -> None:
    """Keeps tracebacks of `error` from quoting files that changed after `moment`, where that changed its code."""
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
    """What was imported is read from its file; what came whole has globals that are no module's."""
    module = sys.modules.get(str(frame.f_globals.get("__name__")))
    return getattr(module, "__dict__", None) is not frame.f_globals


def _changed_after(file: str, moment: float) -> bool:
    try:
        return os.stat(file).st_mtime > moment
    except (OSError, ValueError):
        return False


def _holds(file: str, code: CodeType) -> bool:
    """Whether compiling the file gives this code, among others."""
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
