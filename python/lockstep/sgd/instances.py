"""Instances of a class on the workers of a Trainer; they keep their state between calls."""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, overload

from lockstep import session
from lockstep._calls import Answer, Call, value_of
from lockstep.errors import LockstepError, TrainingFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from lockstep.sgd.trainer import Trainer


class SGDWorkerGroup(Sequence["Worker"]):
    """An instance of a class on every worker. It keeps its state between calls::

        group = trainer.to_worker_group(Worker, lr=0.1)
        group.call("train_epoch")  # [0.7, 0.8]

    It is also a sequence of the single workers, by rank::

        calls = [worker.train_epoch.remote() for worker in group]
        [call.result() for call in calls]  # [0.7, 0.8]; in scripts written for Ray: ray.get(calls)
    """

    def __init__(self, trainer: Trainer, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._trainer = trainer
        self._kind = cls
        self._name = f"{cls.__qualname__}_{next(_numbers)}"
        self._parts = (cls, args, kwargs)
        self._pending: list[_Pending] = []
        self._sender: int | None = None  # the thread that pickles calls
        self._make()
        trainer._worker_groups.add(self)
        weakref.finalize(self, trainer._dropped.append, self._name)

    def call(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Calls the method on every worker's instance and returns the results by rank.

        If the method raises, the same error is raised here, and the instances stay. If a worker has died, all instances
        are lost: this call raises an error, and the next one makes new instances.
        """
        self._flush()
        if not self._is_made:  # the call that lost them has raised
            self._make()
        return self._execute(_call_instance, self._name, method, args, kwargs)

    def _make(self) -> None:
        self._execute(_make_instance, self._name, *self._parts)
        self._is_made = True

    def shutdown(self, patience_s: float = 5) -> None:
        """Makes the calls that wait, and ends the trainer's workers. `patience_s` is accepted as in Ray, without
        effect."""
        self._flush()
        self._trainer.shutdown()

    def __len__(self) -> int:
        return len(self._trainer._group)

    @overload
    def __getitem__(self, index: int) -> Worker: ...
    @overload
    def __getitem__(self, index: slice) -> list[Worker]: ...
    def __getitem__(self, index: int | slice) -> Worker | list[Worker]:
        ranks = range(len(self))[index]
        return Worker(self, ranks) if isinstance(ranks, int) else [Worker(self, rank) for rank in ranks]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _flush(self, last: _Pending | None = None) -> None:
        """Makes the calls that wait, or those up to `last`. Each worker makes its own ones in order, at the same time
        as the others."""
        if last is not None and last not in self._pending:
            return
        end = len(self._pending) if last is None else self._pending.index(last) + 1
        pending, self._pending = self._pending[:end], self._pending[end:]
        if not pending:
            return
        try:
            if not self._is_made:
                self._make()
            by_rank: dict[int, list[tuple[str, tuple[Any, ...], dict[str, Any]]]] = defaultdict(list)
            sent = []
            for each in pending:
                try:
                    by_rank[each.rank].append((each.method, *each.arguments()))
                    sent.append(each)
                except Exception as error:  # of the task whose value it takes
                    each.fail(error)
            self._sender = threading.get_ident()
            try:
                made = self._execute(_call_instances, self._name, dict(by_rank))
            finally:
                self._sender = None
            answers = {rank: iter(each) for rank, each in enumerate(made)}
            for each in sent:
                each.settle(next(answers[each.rank]))
        except BaseException as error:
            for each in pending:
                each.fail(error)
            if not isinstance(error, Exception):
                raise

    def _execute(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        trainer = self._trainer
        trainer._check_started("call")
        trainer._check_iterator()
        dropped = [trainer._dropped.pop() for _ in range(len(trainer._dropped))]
        try:
            return trainer._group.execute(_after_drops, dropped, function, *args)
        except (TrainingFailedError, _InstancesGone):
            self._is_made = False
            raise


class Worker:
    """The instance on one worker: ``worker.method.remote(...)`` calls it."""

    def __init__(self, group: SGDWorkerGroup, rank: int) -> None:
        self._group, self._rank = group, rank

    def __getattr__(self, name: str) -> _Method:
        if name.startswith("_") or not callable(getattr(self._group._kind, name, None)):
            raise AttributeError(f"{self._group._kind.__name__} has no method {name!r}")
        return _Method(self._group, self._rank, name)

    def __repr__(self) -> str:
        return f"<{self._group._kind.__name__} on rank {self._rank}>"


class _Method:
    def __init__(self, group: SGDWorkerGroup, rank: int, name: str) -> None:
        self._group, self._rank, self._name = group, rank, name

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """The call as a future. Calls are made together, when the first of their values is asked for: methods of
        several workers may wait for each other. A call that takes the value of an earlier one makes that one now."""
        alias = _alias()
        references = [] if alias is None else alias.references(args, kwargs)
        for each in references:
            if isinstance(each._future, _Pending):
                each._future._group._flush(each._future)
        pending = _Pending(self._group, self._rank, self._name, args, kwargs, references)
        self._group._pending.append(pending)
        return pending if alias is None else alias.ref_of(pending)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"[sgd] a worker's methods cannot be called; write {self._name}.remote(...)")


class _Pending(Future[Any]):
    """A call, made when its value is asked for."""

    def __init__(
        self,
        group: SGDWorkerGroup,
        rank: int,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        references: list[Any],
    ) -> None:
        super().__init__()
        self.rank, self.method = rank, method
        self._group, self._args, self._kwargs, self._references = group, args, kwargs, references

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Values in place of references; raises the error of a reference."""
        alias = _alias()
        if alias is None:
            return self._args, self._kwargs
        for each in self._references:  # also those in lists, which are pickled with their values
            each._wait(None)
        values: tuple[tuple[Any, ...], dict[str, Any]] = alias.arguments(self._args, self._kwargs)
        return values

    def settle(self, answer: Answer) -> None:
        try:
            self.set_result(value_of(answer))
        except Exception as error:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        if not super().done():
            alias = _alias()
            self.set_exception(error if alias is None else alias.task_error(error))

    def done(self) -> bool:
        self._group._flush()
        return super().done()

    def result(self, timeout: float | None = None) -> Any:
        if self._group._sender == threading.get_ident() and not super().done():
            raise LockstepError(
                f"[sgd] {self.method}() takes part in the calls that are being made, and an argument of one of them "
                "holds the reference to its value; pass the value, or the reference itself"
            )
        self._group._flush()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._group._flush()
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        self._group._flush()
        super().add_done_callback(fn)


def _alias() -> Any:
    """What scripts written for Ray get from calls; None for others."""
    if "lockstep.as_ray" not in sys.modules:
        return None
    from lockstep.as_ray import _remote

    return _remote


class _InstancesGone(LockstepError):
    """The workers were replaced, and the instances are lost."""


_numbers = itertools.count()
_instances: dict[str, Any] = {}
"""On a worker: the instances of SGDWorkerGroups, by name."""


def _after_drops(dropped: list[str], function: Callable[..., Any], *args: Any) -> Any:
    """On a worker: drops the instances whose groups no longer exist, and calls the function."""
    for name in dropped:
        _instances.pop(name, None)
    return function(*args)


def _make_instance(name: str, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _instances[name] = cls(*args, **kwargs)


def _call_instance(name: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return getattr(_instance(name), method)(*args, **kwargs)


def _call_instances(name: str, calls: dict[int, list[tuple[str, tuple[Any, ...], dict[str, Any]]]]) -> list[Answer]:
    """Makes this rank's calls; an error of one is its answer."""
    made = _instance(name)
    own = calls.get(session.get_world_rank(), [])
    return [Call(getattr(made, method), args, kwargs)() for method, args, kwargs in own]


def _instance(name: str) -> Any:
    if name not in _instances:
        raise _InstancesGone(
            f"[sgd] the workers were replaced since the last call, and the instances of {name.rpartition('_')[0]} are "
            "gone; the next call makes new ones"
        )
    return _instances[name]
