"""Errors: their classes and what a failed run says."""

from __future__ import annotations

import pickle
import traceback

import pytest
from lockstep import errors
from lockstep.errors import Failure, TrainingFailedError, cause_of, failure_message

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


def test_failure_from_dict_keeps_defaults() -> None:
    failure = Failure.from_dict({"kind": "signal", "rank": 2, "log_lines": ["a", "b"], "pickled": b""})
    assert failure == Failure("signal", rank=2, log_lines=("a", "b"))


def test_message_tells_first_rank_first_and_groups_the_others() -> None:
    first = Failure("exception", 1, "n1", 2, "boom", "ValueError", BOOM, ("epoch 3", *BOOM.splitlines()))
    same = [Failure("exception", rank, "n1", 2, "boom", "ValueError", BOOM) for rank in (0, 2, 3)]
    other = Failure("signal", 4, "n1", 2, "the worker was killed by SIGKILL")
    before = Failure("exit", 0, "n1", 1, "the worker ended with exit code 3")
    text = failure_message([before, first, *same, other], "/runs/a", "TorchTrainer")
    lines = text.splitlines()
    assert lines[0] == "[fit] rank 1 failed on n1 (exception, attempt 2): ValueError: boom"
    assert "ranks 0, 2 and 3: the same error" in lines
    assert "rank 4: the worker was killed by SIGKILL" in lines
    assert "Before, in attempt 1: rank 0: the worker ended with exit code 3" in lines
    assert lines[-1].endswith('TorchTrainer.restore("/runs/a").fit()')
    assert text.count("boom()") == 1, "the log's copy of the traceback is left out"
    assert "    epoch 3" in lines


def test_message_keeps_log_lines_that_are_no_traceback() -> None:
    failure = Failure("signal", 0, message="killed", log_lines=("one", "two"))
    assert failure_message([failure], "/r", "T").count("    two") == 1


def test_the_drivers_own_failure_comes_last_and_is_told_first() -> None:
    failures = [
        Failure("exit", 1, attempt=0, message="exit code 3"),
        Failure("callback", -1, attempt=0, message="Mine.on_result raised"),
    ]
    lines = failure_message(failures, "/r", "T").splitlines()
    assert lines[0] == "[fit] the driver failed (callback, attempt 0): Mine.on_result raised"
    assert "Before, in attempt 0: rank 1: exit code 3" in lines


def test_message_without_failures_says_what_the_core_said() -> None:
    assert failure_message([], "", "T", "disk full") == "[fit] the run failed: disk full"


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
