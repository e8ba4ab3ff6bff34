"""Functions that another process calls on workers: how the call and its answer travel."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lockstep import _pickling
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass
class Raised:
    """What the function raised; the worker continues."""

    error: BaseException


@dataclass
class Returned:
    """Pickled separately, so that an error of pickling becomes an answer too."""

    data: bytes


Answer = Raised | Returned


@dataclass
class Call:
    """A call on a worker."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self) -> Answer:
        try:
            return Returned(_pickling.dump_value(self.function(*self.args, **self.kwargs)))
        except Exception as error:
            return _raised(error)


@dataclass
class OnRank:
    """The call as a function that all workers run; on other ranks it does nothing."""

    call: Call
    rank: int | None

    def __call__(self) -> Answer | None:
        from lockstep import session

        return self.call() if self.rank in (None, session.get_world_rank()) else None


class Workers:
    """Workers on which functions can be called, by rank."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers

    def execute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Calls the function on every worker and returns the results by rank.

        If it raised, the error of the lowest rank is raised here, and the workers stay. A worker that dies is an error
        too.
        """
        return [value_of(answer) for answer in self._call(Call(function, args, kwargs), None)]

    def execute_single(self, rank: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls the function on one worker."""
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < len(self):
            raise ConfigError(f"[WorkerGroup] rank is {rank!r}; it must be an int from 0 to {len(self) - 1}")
        return value_of(self._call(Call(function, args, kwargs), rank)[0])

    def _call(self, call: Call, rank: int | None) -> list[Answer]:
        """Makes the call on one rank, or on all."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self.num_workers

    @property
    def worker_group(self) -> Self:
        """The group itself, because some scripts write ``executor.worker_group.execute``."""
        return self


def answer(call: bytes) -> bytes:
    """On a worker: makes a pickled call and returns its pickled answer."""
    return _pickling.dump_value(pickle.loads(call)())


def value_of(given: Answer) -> Any:
    """What the call returned; raises what it raised."""
    if isinstance(given, Raised):
        raise given.error
    return pickle.loads(given.data)


def _raised(error: Exception) -> Raised:
    """The error in a form that can be pickled, with the worker's traceback as a note."""
    from lockstep import session
    from lockstep._failed_error import cause_of
    from lockstep._worker import describe
    from lockstep.errors import LockstepError

    failure = replace(describe(error), rank=session.get_world_rank())
    try:
        copy = pickle.loads(_pickling.dump_value(error))
        copy.add_note(f"\nTraceback of {failure.who}:\n{failure.traceback.rstrip()}")
        return Raised(copy)
    except Exception:  # some errors cannot be pickled, and some cannot be unpickled
        return Raised(cause_of(failure) or LockstepError(failure.summary))
