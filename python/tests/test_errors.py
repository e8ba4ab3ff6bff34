"""Errors: their classes and what a failed run says."""

from __future__ import annotations

import abc
import dataclasses
import functools
import gc
import importlib
import pickle
import sys
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from lockstep import Result, errors
from lockstep._exception_classes import exception_class, type_name
from lockstep._failed_error import cause_of, failed_error, failed_type
from lockstep.errors import Failure, StorageError, TrainingFailedError

BOOM = 'Traceback (most recent call last):\n  File "train.py", line 3, in f\n    boom()\nValueError: boom\n'


@pytest.mark.parametrize(
    ("error", "bases"),
    [
        (errors.ConfigError, (errors.LockstepError, ValueError)),
        (errors.SerializationError, (errors.ConfigError, TypeError)),
        (errors.StorageError, (errors.LockstepError, OSError)),
        (errors.EngineError, (errors.LockstepError,)),
        (errors.LockstepTimeoutError, (errors.LockstepError, TimeoutError)),
        (errors.InternalError, (errors.LockstepError,)),
        (errors.TrainingFailedError, (errors.LockstepError, RuntimeError)),
    ],
)
def test_classes_can_be_caught_by_what_users_know(error: type[Exception], bases: tuple[type, ...]) -> None:
    for base in bases:
        with pytest.raises(base, match="what happened"):
            raise error("what happened")


def test_interrupted_is_a_keyboard_interrupt() -> None:
    assert issubclass(errors.TrainingInterrupted, KeyboardInterrupt)
    assert not issubclass(errors.TrainingInterrupted, Exception)


def test_failed_error_can_be_pickled() -> None:
    error = TrainingFailedError("it failed", None, [Failure("exit", rank=1)])
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == "it failed"
    assert again.failures == error.failures


@pytest.mark.parametrize("key", ["labels", 5, ("a", 1)])
def test_cause_of_a_key_error_has_the_key(key: object) -> None:
    cause = cause_of(Failure("exception", 0, message=str(KeyError(key)), type="KeyError"))
    assert isinstance(cause, KeyError) and cause.args == (key,)


@pytest.mark.parametrize("name", ["ValueError", "KeyError", "UnicodeDecodeError", "OSError", "ZeroDivisionError"])
def test_cause_of_a_builtin_exception_can_be_caught_as_it(name: str) -> None:
    cause = cause_of(Failure("exception", 1, message="'x' is wrong", type=name, traceback=BOOM))
    assert cause is not None
    assert isinstance(cause, getattr(__builtins__, name, None) or __builtins__[name])  # type: ignore[index]
    assert type(cause).__name__ == name
    assert "boom()" in "".join(traceback.format_exception(cause))
    assert "'x' is wrong" in str(cause)


def test_cause_of_another_exception_bears_its_name() -> None:
    cause = cause_of(Failure("exception", 1, message="no memory", type="torch.cuda.OutOfMemoryError"))
    assert type(cause).__name__ == "OutOfMemoryError"
    assert type(cause).__module__ == "torch.cuda"
    assert str(cause) == "no memory"


def test_no_cause_where_nothing_was_raised() -> None:
    assert cause_of(Failure("signal", 1, message="killed")) is None


# ------------------------------------------------------------------ errors of both types


class OddError(Exception):
    """An exception class of a module, with its own constructor."""

    class Inner(Exception):
        pass

    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(code, detail)
        self.code = code

    def __str__(self) -> str:
        return f"{self.code:d}"


@dataclasses.dataclass
class DataError(Exception):
    code: int


class QuietError(Exception):
    def __init__(self, code: int, detail: str) -> None:
        super().__init__(f"{code}: {detail}")


class StubbornError(Exception):
    """Overrides everything that a class can."""

    def __new__(cls, first: int, second: int) -> StubbornError:
        return super().__new__(cls, first + second)

    def __reduce__(self) -> Any:
        raise AssertionError("TrainingFailedError has its own")

    __reduce_ex__ = __setstate__ = __reduce__  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise AssertionError("TrainingFailedError has its own")


class SlottedError(Exception):
    __slots__ = ("code",)


class AbstractError(Exception, abc.ABC):
    @abc.abstractmethod
    def code(self) -> int: ...


def failed(kind: str | type, function: Callable[..., Any] | None = None) -> TrainingFailedError:
    name = kind if isinstance(kind, str) else type_name(kind)
    failure = Failure("exception", 1, message="'x' is wrong", type=name, traceback=BOOM)
    return failed_error("[trainer] rank 1 failed", None, [failure], function)


@pytest.mark.parametrize(
    "kind",
    [
        ValueError,
        KeyError,
        OSError,
        FileNotFoundError,
        UnicodeDecodeError,
        SyntaxError,
        ImportError,
        AssertionError,
        ZeroDivisionError,
        AttributeError,
        StorageError,
        pickle.PicklingError,
        OddError,
        OddError.Inner,
        DataError,
        QuietError,
        StubbornError,
        SlottedError,
        AbstractError,
    ],
)
def test_an_error_is_of_both_types(kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        raise failed(kind)
    error = caught.value
    assert isinstance(error, TrainingFailedError)
    assert type(error).__mro__[1] is TrainingFailedError
    assert type(error).__qualname__ == f"TrainingFailedError({kind.__name__})"
    assert str(error) == "[trainer] rank 1 failed"
    assert repr(error) == f"TrainingFailedError({kind.__name__})('[trainer] rank 1 failed')"
    assert error.result is None and error.failures[0].rank == 1
    assert {error: 1}[error] == 1 and error == error and error != failed(kind)
    assert type(failed(kind)) is type(error), "one class for each"
    assert isinstance(error.__cause__, kind) and str(error.__cause__) == "'x' is wrong"
    shown = "".join(traceback.format_exception(error))
    assert f"lockstep.errors.TrainingFailedError({kind.__name__}): [trainer] rank 1 failed" in shown
    assert "boom()" in shown, "the worker's traceback"


@pytest.mark.parametrize(
    "kind", [ValueError, KeyError, OSError, UnicodeDecodeError, OddError, StubbornError, DataError]
)
@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_an_error_of_both_types_can_be_pickled(kind: type[Exception], pickler: Any) -> None:
    error = failed(kind)
    error.result = Result(path="/runs/a", state="failed", error=error)
    again = pickle.loads(pickler.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error) and again.failures == error.failures
    assert again.result.error is again and again.result.state == "failed"


def test_a_class_without_a_name_elsewhere_is_lost_in_a_pickle_but_the_error_is_not() -> None:
    class LocalError(Exception):
        pass

    def train_func() -> None:
        raise LocalError

    error = failed(LocalError, train_func)
    assert isinstance(error, LocalError)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is TrainingFailedError and str(again) == str(error) and again.failures == error.failures


@pytest.mark.parametrize("name", ["RuntimeError", "Exception", "lockstep.errors.LockstepError"])
def test_what_every_failed_run_is_needs_no_second_type(name: str) -> None:
    assert type(failed(name)) is TrainingFailedError


@pytest.mark.parametrize(
    "name",
    ["", "KeyboardInterrupt", "SystemExit", "GeneratorExit", "BaseException", "no.such.Error", "print", "sys", "int"],
)
def test_no_second_type_where_no_exception_has_that_name(name: str) -> None:
    assert exception_class(name) is None
    assert type(failed(name)) is TrainingFailedError


def test_a_class_is_found_by_its_own_name_only() -> None:
    assert exception_class("OSError") is OSError
    assert exception_class("IOError") is None, "another name of OSError, which no worker gives"


@pytest.mark.parametrize("name", ["StopIteration", "StopAsyncIteration"])
def test_a_failed_run_never_looks_like_the_end_of_a_loop(name: str) -> None:
    error = failed(name)
    assert type(error) is TrainingFailedError
    assert type(error.__cause__).__name__ == name


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there are no groups")
def test_a_group_stays_the_cause_alone() -> None:
    error = failed("ExceptionGroup")
    assert type(error) is TrainingFailedError
    assert str(error.__cause__) == "'x' is wrong" and type(error.__cause__).__name__ == "ExceptionGroup"


class _ChoosyMeta(type):
    def __new__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> Any:
        if bases != (Exception,):
            raise LookupError("no subclasses here")
        return super().__new__(cls, name, bases, members)


class ChoosyError(Exception, metaclass=_ChoosyMeta):
    pass


class CodedError(Exception):
    def __init_subclass__(cls, code: int) -> None:
        raise AssertionError("unreachable without a code")


class ReadOnlyError(Exception):
    @property
    def result(self) -> int:
        return 7


@pytest.mark.parametrize("kind", [ChoosyError, CodedError, ReadOnlyError])
def test_a_class_that_cannot_be_combined_is_the_cause_alone(kind: type[Exception]) -> None:
    error = failed(kind)
    assert type(error) is TrainingFailedError
    assert isinstance(error.__cause__, kind)
    assert str(error.__cause__) == "'x' is wrong"


def test_a_layout_that_cannot_be_combined() -> None:
    # Two builtin layouts exclude each other: TrainingFailedError never has one, so it takes a stand-in to show it.
    both = failed_type(OSError)
    assert both is not TrainingFailedError
    with pytest.raises(TypeError, match="lay-out"):
        type("Both", (both, UnicodeDecodeError), {})


def test_classes_are_found_in_main(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type("ScriptError", (Exception,), {"__module__": "__main__"})
    kind.Inner = type("Inner", (Exception,), {"__module__": "__main__", "__qualname__": "ScriptError.Inner"})  # type: ignore[attr-defined]
    assert exception_class("ScriptError") is None
    monkeypatch.setattr(sys.modules["__main__"], "ScriptError", kind, raising=False)
    assert exception_class("ScriptError") is kind
    assert exception_class("ScriptError.Inner") is kind.Inner  # type: ignore[attr-defined]
    assert isinstance(failed("ScriptError.Inner"), kind.Inner)  # type: ignore[attr-defined]


def test_nothing_is_imported_to_find_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_of_errors.py").write_text("class RareError(Exception): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert exception_class("module_of_errors.RareError") is None
    assert "module_of_errors" not in sys.modules
    module = importlib.import_module("module_of_errors")
    assert exception_class("module_of_errors.RareError") is module.RareError
    del sys.modules["module_of_errors"]


def _local_error() -> type[Exception]:
    class LocalError(Exception):
        pass

    return LocalError


global_error = _local_error()


def _uses_global() -> None:
    def inner() -> None:
        raise global_error

    inner()


def _calls_another() -> None:
    _uses_global()


class _Job:
    kind = global_error

    def __call__(self) -> None:
        _uses_global()

    def method(self) -> None:
        _uses_global()

    @staticmethod
    def static() -> None:
        _uses_global()


def _in_closure() -> tuple[type[Exception], Callable[[], None]]:
    found = _local_error()

    def train_func() -> None:
        raise found

    return found, train_func


@pytest.mark.parametrize(
    "function",
    [
        _uses_global,
        _calls_another,
        functools.partial(_calls_another),
        functools.partial(print, global_error),
        _Job(),
        _Job().method,
        _Job.static,
        lambda kind=global_error: kind,
    ],
)
def test_a_class_made_in_a_function_is_found_where_the_training_function_uses_it(function: Callable[..., Any]) -> None:
    name = type_name(global_error)
    assert "<locals>" in name
    assert exception_class(name) is None
    assert exception_class(name, function) is global_error
    assert isinstance(failed(name, function), global_error)


def test_a_class_that_was_pickled_whole_is_found_by_what_is_left_of_its_name() -> None:
    class Outer:
        class NestedError(Exception):
            pass

    def train_func() -> None:
        raise Outer.NestedError

    def other() -> None:
        raise global_error

    name = f"{Outer.NestedError.__module__}.NestedError"
    assert exception_class(name, train_func) is Outer.NestedError
    assert exception_class(name, other) is None


def test_fit_raises_both_types(fit: Callable[..., Result]) -> None:
    def train_func() -> None:
        {}["epoch"]

    with pytest.raises(KeyError) as caught:
        fit(train_func, workers=1)
    assert isinstance(caught.value, TrainingFailedError)
    assert str(caught.value).startswith("[trainer] rank 0 failed") and isinstance(caught.value.__cause__, KeyError)
    assert caught.value.result is not None and caught.value.result.error is caught.value


def test_of_classes_with_one_name_the_one_that_the_function_uses_is_found() -> None:
    found, function = _in_closure()
    assert type_name(found) == type_name(global_error)
    error = failed(found, function)
    assert isinstance(error, found) and not isinstance(error, global_error)


def test_a_function_that_does_not_use_the_class_does_not_lead_to_it() -> None:
    assert exception_class(type_name(global_error), lambda: None) is None
    assert exception_class(type_name(global_error), print) is None


def test_classes_do_not_outlive_their_errors() -> None:
    kind, function = _in_closure()
    error = failed(kind, function)
    gone = weakref.ref(kind)
    del kind, function, error
    gc.collect()  # the class of both types
    gc.collect()  # then the one that it was made of
    assert gone() is None


def test_the_cause_is_exactly_of_the_class_where_that_can_say_the_message() -> None:
    assert type(failed(QuietError).__cause__) is QuietError, "its constructor wants more; it is made without"
    assert type(failed(StubbornError).__cause__) is StubbornError
    assert type(failed(ValueError).__cause__) is ValueError
    odd = failed(OddError).__cause__
    assert type(odd) is not OddError and isinstance(odd, OddError) and type(odd).__name__ == "OddError"


def test_result_error_is_of_both_types_and_says_what_was_called() -> None:
    class Outcome:
        path, state, metrics, checkpoint, best_checkpoints = "/runs/a", "failed", {"loss": 1}, None, ()
        world_sizes = (2,)
        failures = (Failure("exception", 1, message="boom", type=type_name(global_error)),)
        error, trainer = "", "DataParallelTrainer"

    result = Result._from_outcome(Outcome, function=_uses_global)  # type: ignore[arg-type]
    assert isinstance(result.error, global_error) and isinstance(result.error, TrainingFailedError)
    assert result.error.result is result
    assert str(result.error).startswith("[trainer] rank 1 failed")
    assert "The run directory /runs/a no longer exists" in str(result.error)
    assert type(Result._from_outcome(Outcome).error) is TrainingFailedError  # type: ignore[arg-type]
    called = Result._from_outcome(Outcome, function=_uses_global, where="worker_group").error  # type: ignore[arg-type]
    assert str(called).startswith("[worker_group] rank 1 failed") and "restore" not in str(called)
