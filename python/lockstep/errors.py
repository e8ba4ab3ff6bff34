"""What can go wrong, by what the caller can do about it.

Every error of Lockstep is a :class:`LockstepError`. :class:`TrainingInterrupted` is a ``KeyboardInterrupt`` instead,
and :class:`StopTraining`, which ends a training function early, is no error.
Messages have the form ``[where] what happened, with the values that matter; what to do``.

    >>> from lockstep import ScalingConfig
    >>> from lockstep.errors import ConfigError
    >>> try:
    ...     ScalingConfig(num_workers=-1)
    ... except ConfigError as error:
    ...     print(error)
    [ScalingConfig] num_workers is -1; it must be an int of at least 1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep._exception_classes import bare, exception_class, type_name

if TYPE_CHECKING:
    from typing_extensions import Self

    from lockstep.result import Result


class LockstepError(RuntimeError):
    """Base of what Lockstep raises."""


class ConfigError(LockstepError, ValueError):
    """The call is wrong: fix its arguments. Nothing was started."""


class SerializationError(ConfigError, TypeError):
    """Something cannot be sent to another process or written into a checkpoint; the message names it."""


class StorageError(LockstepError, OSError):
    """The disk refused an operation, or holds damaged data: check it, or retry."""


class EngineError(LockstepError):
    """Processes could not be started, or were lost."""


class LockstepTimeoutError(LockstepError, TimeoutError):
    """A wait reached its timeout."""


class NotAvailableError(LockstepError, NotImplementedError):
    """The feature has no meaning here, or does not exist yet; the message says what to use instead."""


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
    """The exception's class name, if there was one."""
    traceback: str = ""
    """Python traceback or stacks; may be empty."""
    log_lines: tuple[str, ...] = ()
    """The last lines that the rank printed."""
    time: float = 0.0
    """When the driver heard of it, in seconds since 1970; 0: unknown."""

    @property
    def summary(self) -> str:
        """``ValueError: boom``, or only the message if no exception was raised."""
        if not self.type:
            return self.message
        return f"{self.type}: {self.message}" if self.message else self.type

    @property
    def who(self) -> str:
        """``rank 3``, or ``the driver``."""
        return f"rank {self.rank}" if self.rank >= 0 else "the driver"


class TrainingFailedError(LockstepError):
    """The run failed and is not retried. Raised by ``fit()``; its cause is the error of the rank that failed first::

        try:
            trainer.fit()
        except TrainingFailedError as error:
            print(error.failures[0].rank, error.failures[0].traceback)
            checkpoint = error.result.checkpoint

    It is also an instance of the class that the training function raised, so ``except ValueError`` catches it too.
    Attributes of such an exception stay in the worker.
    """

    result: Result | None
    """The run's result in spite of the failure: the last metrics and checkpoint."""
    failures: list[Failure]
    """The failures of the last attempt, the first failing rank first."""
    _kind: ClassVar[type[Exception] | None] = None
    """The class that the training function raised."""

    # Everything that another class could override is defined here, first in the order of the bases.

    @property
    def worker_failures(self) -> dict[int, Exception]:
        """What happened to the ranks that failed in the last attempt, by rank."""
        return {each.rank: RuntimeError(each.summary) for each in reversed(self.failures) if each.rank >= 0}

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        made: Self = bare(cls)
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
            from lockstep._failed_error import failed_again

            return failed_again, (kind, *self.args), self.__dict__
        return TrainingFailedError, self.args, self.__dict__  # such a class cannot be found by name

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return self.__reduce__()

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        self.__dict__.update(state or {})


class StopTraining(BaseException):
    """Raised by ``session.report`` to end the training function when a run ends early. It is not an error.

    ``except Exception`` does not catch it; ``finally`` and ``with`` clean up as usual.
    """


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM stopped the run cleanly. What it had reported is in ``.result``."""

    result: Result | None
    signal: int
    """The signal: SIGINT or SIGTERM."""

    def __init__(self, message: str = "", result: Result | None = None, signal: int = 2) -> None:
        super().__init__(message)
        self.result = result
        self.signal = signal


class TrainingPreempted(TrainingInterrupted):
    """The machine, or one of the run's, is being taken away, so the run has ended with its newest checkpoint saved.

    A script that does not catch it ends with exit code 75, which asks to be started again.
    """
