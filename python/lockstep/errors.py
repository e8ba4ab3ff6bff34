"""What can go wrong, by what the caller can do about it.

Every exception of Lockstep is a :class:`LockstepError`, except :class:`TrainingInterrupted`, which is a
``KeyboardInterrupt``.
Messages have the form ``[where] what happened, with the values that matter; what to do``.

    >>> from lockstep import ScalingConfig
    >>> from lockstep.errors import ConfigError
    >>> try:
    ...     ScalingConfig(num_workers=0)
    ... except ConfigError as error:
    ...     print(error)
    [ScalingConfig] num_workers is 0; it must be an int of at least 1
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.result import Result


class LockstepError(RuntimeError):
    """Base of what Lockstep raises."""


class ConfigError(LockstepError, ValueError):
    """The call is wrong: fix its arguments. Nothing was started."""


class SerializationError(ConfigError, TypeError):
    """Something cannot be sent to another process or written into a checkpoint; the message names it."""


class StorageError(LockstepError, OSError):
    """The disk refused, or holds something broken: look outside, or try again."""


class EngineError(LockstepError):
    """Processes could not be started, or were lost."""


class LockstepTimeoutError(LockstepError, TimeoutError):
    """A wait ended without what it waited for."""


class InternalError(LockstepError):
    """A broken invariant of Lockstep itself: a bug to report."""


@dataclass(frozen=True)
class Failure:
    """What ended a worker (or, with rank -1, the driver)."""

    kind: str
    """exception, exit, signal, out_of_memory, heartbeat, hang, node, callback, storage or internal."""
    rank: int = -1
    node: str = ""
    attempt: int = 0
    message: str = ""
    """One line: what happened."""
    type: str = ""
    """The exception's class name, where there was one."""
    traceback: str = ""
    """Python traceback or stacks; may be empty."""
    log_lines: tuple[str, ...] = ()
    """The last lines that the rank printed."""

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Failure:
        """The failure that `fields` (an entry of ``run.json``) describes; missing ones keep their defaults."""
        return cls(
            kind=str(fields.get("kind", "internal")),
            rank=int(fields.get("rank", -1)),
            node=str(fields.get("node", "")),
            attempt=int(fields.get("attempt", 0)),
            message=str(fields.get("message", "")),
            type=str(fields.get("type", "")),
            traceback=str(fields.get("traceback", "")),
            log_lines=tuple(fields.get("log_lines", ())),
        )

    @property
    def summary(self) -> str:
        """``ValueError: boom``, or the message alone where no exception was raised."""
        if not self.type:
            return self.message
        return f"{self.type}: {self.message}" if self.message else self.type

    @property
    def who(self) -> str:
        """``rank 3``, or ``the driver``."""
        return f"rank {self.rank}" if self.rank >= 0 else "the driver"


class TrainingFailedError(LockstepError):
    """The run failed for good. Raised by ``fit()``; its cause is the error of the rank that failed first::

    try:
        trainer.fit()
    except TrainingFailedError as error:
        print(error.failures[0].rank, error.failures[0].traceback)
        checkpoint = error.result.checkpoint
    """

    result: Result | None
    """What there is in spite of the failure: the last metrics and checkpoint."""
    failures: list[Failure]
    """Of the last attempt, the first failing rank first."""

    def __init__(self, message: str, result: Result | None = None, failures: Sequence[Failure] = ()) -> None:
        super().__init__(message)
        self.result = result
        self.failures = list(failures)


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C, or SIGTERM, stopped the run, cleanly. What it had reported is in ``.result``."""

    result: Result | None
    signal: int
    """Which it was: SIGINT, or SIGTERM."""

    def __init__(self, message: str = "", result: Result | None = None, signal: int = 2) -> None:
        super().__init__(message)
        self.result = result
        self.signal = signal


def failure_message(failures: Sequence[Failure], path: str, trainer: str, error: str = "") -> str:
    """The text of a TrainingFailedError about `failures` of all attempts of the run at `path`.

    The last attempt's first failing rank comes first and at length; the others are grouped by what happened to them.
    `error` is what the core said; it stands alone when no rank failed.
    """
    last = last_attempt(failures)
    lines: list[str] = []
    if last:
        first = last[0]
        node = f" on {first.node}" if first.node else ""
        lines.append(f"[fit] {first.who} failed{node} ({first.kind}, attempt {first.attempt}): {first.summary}")
        if first.traceback:
            lines += ["", f"Traceback of {first.who}:", *_indented(first.traceback.rstrip().splitlines())]
        printed = _without_traceback(first)
        if printed:
            lines += ["", f"Last lines that {first.who} printed:", *_indented(printed)]
        others = _grouped(first, last[1:])
        if others:
            lines += ["", *others]
        earlier = failures[: len(failures) - len(last)]
        if earlier:
            lines += ["", *(f"Before, in attempt {f.attempt}: {f.who}: {f.summary}" for f in _firsts(earlier))]
    else:
        lines.append(f"[fit] the run failed: {error or 'unknown error'}")
    if path:
        lines += ["", f'To go on from the last checkpoint: {trainer}.restore("{path}").fit()']
    return "\n".join(lines)


def last_attempt(failures: Sequence[Failure]) -> list[Failure]:
    """Those that ended the run, in their order: of the last attempt, or the driver's own."""
    if not failures:
        return []
    final = failures[-1]
    if final.rank < 0:
        return [final]
    start = len(failures)
    while start > 0 and failures[start - 1].attempt == final.attempt:
        start -= 1
    return list(failures[start:])


def cause_of(failure: Failure) -> Exception | None:
    """An exception that stands for the one a worker raised, with the worker's traceback as its note.

    Nothing is unpickled: it is of the builtin class of that name where there is one, else of a class made here.
    """
    if not failure.type:
        return None
    cause = _builtin_exception(failure) or _named_exception(failure)
    if failure.traceback:
        note = f"\nTraceback of {failure.who}:\n" + failure.traceback.rstrip()
        if hasattr(cause, "add_note"):
            cause.add_note(note)
        else:  # Python 3.10 shows no notes
            cause.args = (f"{failure.message}\n{note}",)
    return cause


def _builtin_exception(failure: Failure) -> Exception | None:
    found = getattr(builtins, failure.type, None)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        return None
    try:
        cause = found(failure.message)
    except TypeError:  # UnicodeDecodeError wants five arguments
        return _named_exception(failure, found)
    return cause if str(cause) == failure.message else _named_exception(failure, found)  # KeyError quotes its argument


def _named_exception(failure: Failure, base: type[Exception] = Exception) -> Exception:
    module, _, name = failure.type.rpartition(".")

    def init(self: Exception, message: str) -> None:
        self.args = (message,)

    members = {"__module__": module or "builtins", "__init__": init, "__str__": lambda self: str(self.args[0])}
    made: Exception = type(name, (base,), members)(failure.message)
    return made


def _grouped(first: Failure, others: Sequence[Failure]) -> list[str]:
    groups: dict[str, list[int]] = {}
    for failure in others:
        same = (failure.kind, failure.summary) == (first.kind, first.summary)
        groups.setdefault("the same error" if same else failure.summary, []).append(failure.rank)
    return [f"{'rank' if len(ranks) == 1 else 'ranks'} {listed(ranks)}: {what}" for what, ranks in groups.items()]


def _firsts(failures: Sequence[Failure]) -> list[Failure]:
    firsts: dict[int, Failure] = {}
    for failure in failures:
        firsts.setdefault(failure.attempt, failure)
    return [firsts[attempt] for attempt in sorted(firsts)][-5:]


def _without_traceback(failure: Failure) -> list[str]:
    """The log lines before the traceback, which the worker prints as well."""
    lines = [line.rstrip("\n") for line in failure.log_lines]
    told = failure.traceback.rstrip().splitlines()
    for start in range(len(lines)):
        tail = lines[start:]
        while tail and not tail[-1].strip():
            tail.pop()
        if tail and told[-len(tail) :] == tail:
            return lines[:start]
    return lines


def _indented(lines: Sequence[str]) -> list[str]:
    return ["    " + line if line else "" for line in lines]


def listed(items: Sequence[object]) -> str:
    """``1, 2 and 3``."""
    words = [str(item) for item in items]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
