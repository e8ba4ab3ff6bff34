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
import functools
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from typing import TypeGuard

    from typing_extensions import Self

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


class NotAvailableError(LockstepError, NotImplementedError):
    """What was asked for has no meaning here, or is not there yet; the message says what to use instead."""


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

    It is of the class that the training function raised as well, so that ``except ValueError`` catches it, too; see
    failed_type(). Attributes that such a class has of its own stay in the worker.
    """

    result: Result | None
    """What there is in spite of the failure: the last metrics and checkpoint."""
    failures: list[Failure]
    """Of the last attempt, the first failing rank first."""
    _kind: ClassVar[type[Exception] | None] = None
    """The other class that it is of."""

    # All that another class could have in its own way stands here, first in the order of the bases.

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        made: Self = _bare(cls)
        return made

    def __init__(self, message: str, result: Result | None = None, failures: Sequence[Failure] = ()) -> None:
        BaseException.__init__(self, message)
        self.result = result
        self.failures = list(failures)
        if SyntaxError in type(self).__mro__:  # tracebacks show its msg
            setattr(self, "msg", message)  # noqa: B010

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __repr__(self) -> str:
        return BaseException.__repr__(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __reduce__(self) -> tuple[Any, ...]:
        kind = self._kind
        if kind is None:
            return type(self), self.args, self.__dict__
        if exception_class(type_name(kind)) is kind:
            return _failed_again, (kind, *self.args), self.__dict__
        return TrainingFailedError, self.args, self.__dict__  # what has no name elsewhere cannot be found there

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return self.__reduce__()

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        self.__dict__.update(state or {})


class StopTraining(BaseException):
    """Raised by ``session.report`` in a run that ends early, so that the training function ends: no error.

    It passes by ``except Exception``; ``finally`` and ``with`` clean up as ever.
    """


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C, or SIGTERM, stopped the run, cleanly. What it had reported is in ``.result``."""

    result: Result | None
    signal: int
    """Which it was: SIGINT, or SIGTERM."""

    def __init__(self, message: str = "", result: Result | None = None, signal: int = 2) -> None:
        super().__init__(message)
        self.result = result
        self.signal = signal


def failed_error(
    message: str,
    result: Result | None = None,
    failures: Sequence[Failure] = (),
    function: Callable[..., Any] | None = None,
) -> TrainingFailedError:
    """What ``fit()`` raises: of both types where there are two, with the worker's error as its cause.

    `failures` are those of the last attempt; `function` is the training function, which may reach classes that have no
    name in any module.

        >>> error = failed_error("[fit] rank 1 failed", None, [Failure("exception", 1, type="KeyError", message="'a'")])
        >>> isinstance(error, KeyError), isinstance(error, TrainingFailedError), type(error.__cause__).__name__
        (True, True, 'KeyError')
    """
    kind = exception_class(failures[0].type, function) if failures else None
    if kind is None and failures and failures[0].kind == "storage":
        kind = StorageError
    error = failed_type(kind)(message, result, failures)
    error.__cause__ = _cause(failures[0], kind) if failures else None
    return error


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


def cause_of(failure: Failure, function: Callable[..., Any] | None = None) -> Exception | None:
    """An exception that stands for the one a worker raised, with the worker's traceback as its note.

    Nothing is unpickled: it is of the class of that name where this process has one (see exception_class()), else of
    a class made here.
    """
    return _cause(failure, exception_class(failure.type, function))


def exception_class(name: str, function: Callable[..., Any] | None = None) -> type[Exception] | None:
    """The subclass of Exception that type_name() gives this `name`, among those that this process has; else None.

    A bare name is that of a builtin, or of a class in ``__main__``. Nothing is imported. Classes that were made inside
    a function are looked for where the training function `function` uses them.

        >>> exception_class("ZeroDivisionError"), exception_class("lockstep.errors.ConfigError").__name__
        (<class 'ZeroDivisionError'>, 'ConfigError')
        >>> exception_class("KeyboardInterrupt")
    """
    if not name:
        return None
    for found in _named(name):
        if _is_exception(found) and type_name(found) == name:
            return found
    reached = [] if function is None else list(filter(_is_exception, _reached_classes(function)))
    # A class that was pickled whole, not by its name, has lost what it was made in: Outer.Error is Error in the worker.
    whole = (found for found in reached if type_name(found) == name)
    lost = (found for found in reached if _with_module(found, found.__name__) == name)
    return next(whole, None) or next(lost, None)


def type_name(kind: type) -> str:
    """How a Failure names a class: ``ValueError``, ``module.Outer.Error``; no module for builtins and ``__main__``."""
    return _with_module(kind, kind.__qualname__)


def _with_module(kind: type, name: str) -> str:
    return name if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{name}"


def failed_type(kind: type[Exception] | None) -> type[TrainingFailedError]:
    """The class that is a TrainingFailedError first and a `kind` as well; one for each `kind`.

    TrainingFailedError itself where that says all (no `kind`, RuntimeError), or where there can be no such class:
    memory layouts that exclude each other, a metaclass of its own mind, groups, and StopIteration, which would end a
    loop without a word.

        >>> failed_type(ValueError)
        <class 'lockstep.errors.TrainingFailedError(ValueError)'>
    """
    if kind is None or kind in TrainingFailedError.__mro__ or _stands_alone(kind):
        return TrainingFailedError
    try:
        found = _failed_types.get(kind)
        if found is None:
            name = f"TrainingFailedError({kind.__name__})"
            found = type(name, (TrainingFailedError, kind), {"__module__": __name__, "_kind": kind})
            found("", None)  # `kind` may have its own way with attributes
            _failed_types[kind] = found
        return found
    except Exception:  # of the user's metaclass, __init_subclass__ or descriptors, which may raise anything
        return TrainingFailedError


_failed_types: weakref.WeakValueDictionary[type[Exception], type[TrainingFailedError]] = weakref.WeakValueDictionary()

_MAX_REACHED = 2000
"""So many functions and classes are looked through, the nearest first."""


def _failed_again(kind: type[Exception], *args: Any) -> TrainingFailedError:
    return failed_type(kind)(*args)


def _stands_alone(kind: type[Exception]) -> bool:
    groups = getattr(builtins, "BaseExceptionGroup", None)  # since Python 3.11
    return issubclass(kind, (StopIteration, StopAsyncIteration)) or (groups is not None and issubclass(kind, groups))


def _is_exception(found: object) -> TypeGuard[type[Exception]]:
    return isinstance(found, type) and Exception in found.__mro__


def _named(name: str) -> Iterator[Any]:
    """What lies at `name` in the modules that it may mean."""
    parts = name.split(".")
    places = [("builtins", parts), ("__main__", parts)]
    places += [(".".join(parts[:cut]), parts[cut:]) for cut in range(len(parts) - 1, 0, -1)]
    for module, path in places:
        found: Any = sys.modules.get(module)
        for part in path:
            found = getattr(found, "__dict__", {}).get(part)
        yield found


def _reached_classes(function: Callable[..., Any]) -> Iterator[type]:
    """The classes that `function` uses: in its closure, its globals and defaults, and so on in what it calls."""
    waiting: deque[object] = deque([function])
    seen = {id(function)}
    while waiting:
        value = waiting.popleft()
        if isinstance(value, type):
            yield value
        for part in _reached_from(value):
            if id(part) not in seen and callable(part) and len(seen) < _MAX_REACHED:
                seen.add(id(part))
                waiting.append(part)


def _reached_from(value: Any) -> Iterator[object]:
    if isinstance(value, FunctionType):
        from lockstep._pickling import _function_parts

        yield from (part for _, part in _function_parts(value))
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, MethodType):
        yield from (value.__func__, type(value.__self__))
    elif isinstance(value, type):
        for member in tuple(vars(value).values()):
            yield member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
    else:
        yield type(value)


def _cause(failure: Failure, kind: type[Exception] | None) -> Exception | None:
    if not failure.type:
        return None
    cause = (kind and _exception_of(kind, failure)) or _named_exception(failure)
    if failure.traceback:
        note = f"\nTraceback of {failure.who}:\n" + failure.traceback.rstrip()
        if hasattr(cause, "add_note"):
            cause.add_note(note)
        else:  # Python 3.10 shows no notes
            cause.args = (f"{failure.message}\n{note}",)
    return cause


def _exception_of(kind: type[Exception], failure: Failure) -> Exception | None:
    """A `kind` that says the failure's message: made as usual, else without its __init__, else with a __str__ of ours.

    None where none of that can be: an ExceptionGroup wants its exceptions.
    """
    from ast import literal_eval

    # A KeyError says the repr of what was missing: its argument is that value.
    for make in (
        lambda: kind(failure.message),
        lambda: kind(literal_eval(failure.message)),
        lambda: _bare(kind, failure.message),
    ):
        try:
            cause = make()
            if str(cause) == failure.message:
                return cause
        except Exception:  # a constructor that wants something else: UnicodeDecodeError five arguments, the user's any
            continue
    try:
        return _named_exception(failure, kind)
    except Exception:
        return None


def _named_exception(failure: Failure, base: type[Exception] = Exception) -> Exception:
    module, _, name = failure.type.rpartition(".")

    def init(self: Exception, message: str) -> None:
        self.args = (message,)

    members = {
        "__module__": module or "builtins",
        "__new__": lambda cls, message: _bare(cls),
        "__init__": init,
        "__str__": lambda self: str(self.args[0]),
    }
    made: Exception = type(name, (base,), members)(failure.message)
    return made


def _bare(kind: Any, *args: object) -> Any:
    """A `kind` with these `args`, made by the builtin class below it: no Python code of the class runs."""
    base = kind
    while base.__flags__ & _HEAP_TYPE:
        base = base.__base__
    made = base.__new__(kind)
    BaseException.__init__(made, *args)
    return made


_HEAP_TYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: the class was made by a class statement, or as one."""
