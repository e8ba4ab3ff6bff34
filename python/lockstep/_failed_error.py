"""The error that ``fit()`` raises: a TrainingFailedError that is also an instance of the class that a rank raised."""

from __future__ import annotations

import builtins
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lockstep._exception_classes import bare, exception_class
from lockstep.errors import Failure, StorageError, TrainingFailedError

if TYPE_CHECKING:
    from lockstep.result import Result

_failed_types: weakref.WeakValueDictionary[type[Exception], type[TrainingFailedError]] = weakref.WeakValueDictionary()


def failed_error(
    message: str,
    result: Result | None = None,
    failures: Sequence[Failure] = (),
    function: Callable[..., Any] | None = None,
) -> TrainingFailedError:
    """The error that ``fit()`` raises: an instance of both classes, with the worker's error as its cause.

    `failures` are those of the last attempt; `function` is the training function, through which classes without a
    module-level name can be found.

        >>> error = failed_error("rank 1 failed", None, [Failure("exception", 1, type="KeyError", message="'a'")])
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
    """The failures that ended the run, in order: those of the last attempt, or the driver's own."""
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
    """An exception that represents the one a worker raised, with the worker's traceback as a note.

    Nothing is unpickled: it has the class of that name if this process has one (see exception_class()), otherwise a
    class made here.
    """
    return _cause(failure, exception_class(failure.type, function))


def failed_type(kind: type[Exception] | None) -> type[TrainingFailedError]:
    """A class that derives from TrainingFailedError first and from `kind` second; one for each `kind`.

    TrainingFailedError itself if that is enough (no `kind`, or RuntimeError), or if there can be no such class:
    incompatible memory layouts, a metaclass that refuses, exception groups, and StopIteration, which would silently end
    a loop.

        >>> failed_type(ValueError)
        <class 'lockstep.errors.TrainingFailedError(ValueError)'>
    """
    if kind is None or kind in TrainingFailedError.__mro__ or _stands_alone(kind):
        return TrainingFailedError
    try:
        found = _failed_types.get(kind)
        if found is None:
            name = f"TrainingFailedError({kind.__name__})"
            found = type(
                name, (TrainingFailedError, kind), {"__module__": TrainingFailedError.__module__, "_kind": kind}
            )
            found("", None)  # `kind` may override attribute access
            _failed_types[kind] = found
        return found
    except Exception:  # the user's metaclass, __init_subclass__ or descriptors may raise anything
        return TrainingFailedError


def failed_again(kind: type[Exception], *args: Any) -> TrainingFailedError:
    return failed_type(kind)(*args)


def _stands_alone(kind: type[Exception]) -> bool:
    groups = getattr(builtins, "BaseExceptionGroup", None)  # since Python 3.11
    return issubclass(kind, (StopIteration, StopAsyncIteration)) or (groups is not None and issubclass(kind, groups))


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
    """A `kind` with the failure's message: made as usual, else without its __init__, else with our own __str__.

    None if none of this works: an ExceptionGroup needs its exceptions.
    """
    from ast import literal_eval

    # A KeyError's text is the repr of the missing key: its argument is that key.
    for make in (
        lambda: kind(failure.message),
        lambda: kind(literal_eval(failure.message)),
        lambda: bare(kind, failure.message),
    ):
        try:
            cause = make()
            if str(cause) == failure.message:
                return cause
        except Exception:  # other constructor parameters: UnicodeDecodeError has five
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
        "__new__": lambda cls, message: bare(cls),
        "__init__": init,
        "__str__": lambda self: str(self.args[0]),
    }
    made: Exception = type(name, (base,), members)(failure.message)
    return made
