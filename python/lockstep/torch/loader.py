"""Data loaders that return each worker's part of the data."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, IterDataPipe

from lockstep import _core
from lockstep.errors import ConfigError, LockstepError
from lockstep.torch import _context, _transfer
from lockstep.torch._orders import WHERE, order_of
from lockstep.torch._samplers import ShardedBatchSampler, ShardedSampler, SkippingBatches
from lockstep.torch._sharding import (
    Divided,
    DividedBatches,
    Kept,
    KeptBatches,
    Plan,
    Position,
    divides_itself,
    integer,
)
from lockstep.torch._streams import DividedStream

T = TypeVar("T")


def prepare_data_loader(
    data_loader: DataLoader[T],
    add_dist_sampler: bool = True,
    move_to_device: bool = True,
    auto_transfer: bool = True,
    *,
    global_batch_size: int | None = None,
) -> PreparedDataLoader[T]:
    """A loader like `data_loader` that returns this worker's part of the data, on this worker's device::

        loader = prepare_data_loader(DataLoader(dataset, batch_size=32, shuffle=True))
        for epoch in range(10):
            for x, y in loader:  # a new shuffle in each epoch
                ...

    It is a DataLoader with all settings of `data_loader`, which is not changed. The batch size is per worker. With
    `global_batch_size` it is that of all workers together, also when an elastic run changes its size: each worker gets
    that number divided by the number of workers, rounded, and at least 1.

    What each worker gets: workers take the samples (with a ``batch_sampler``: the batches; with an ``IterableDataset``:
    the items) in turn. All workers get the same number of batches: with ``drop_last``, samples that do not fill a batch
    on every worker are dropped; otherwise a worker that would have one batch less gets a sample from the beginning of
    the order again. Your own ``DistributedSampler`` is kept. Any other sampler runs on every worker, with all
    generators seeded equally; if it holds a generator that is not torch's, it must seed that equally too. An
    ``IterableDataset`` must return the same items in the same order on every worker: shuffle by ``set_epoch(epoch)``,
    which is called if the dataset has it. With ``add_dist_sampler=False`` you divide the data yourself.

    Epochs: each new iteration is the next epoch, starting with 0. ``loader.set_epoch(3)``, or
    ``loader.sampler.set_epoch(3)``, sets the next one.

    Device: tensors anywhere in a batch, and objects with a method ``to``, are moved, unless ``move_to_device=False``.
    With `auto_transfer` the next batch is copied to a GPU while the current one is used (with ``pin_memory=True``; not
    yet tested on a real GPU).

    Position: put ``loader.state_dict()`` into a checkpoint. ``loader.load_state_dict(state)`` before the next iteration
    continues there, with the same or another number of workers: see PreparedDataLoader.

    Raises ConfigError for a loader that cannot be divided: data or a sampler without len(), a DataPipe, a prepared
    loader.
    """
    if isinstance(data_loader, PreparedDataLoader):
        raise ConfigError(f"{WHERE} this loader is already prepared; prepare each DataLoader once")
    loader: Any = data_loader
    if not isinstance(loader, DataLoader):
        given = type(loader).__name__
        raise ConfigError(f"{WHERE} got a {given}; it must be a torch.utils.data.DataLoader")
    made: PreparedDataLoader[T] = object.__new__(_prepared_class(type(loader)))
    made.__dict__.update(loader.__dict__)
    made.__dict__["_iterator"] = None  # the loader workers of the original
    if global_batch_size is not None:
        _set_batch_size(made, global_batch_size)
    made._plan = _plan(made, add_dist_sampler)
    made._position = made._pending = None
    device = _context.device()
    made._device = device if move_to_device and device.type != "cpu" else None
    made._ahead = auto_transfer and device.type == "cuda"
    return made


class PreparedDataLoader(DataLoader[T]):
    """Made by prepare_data_loader(): a DataLoader that knows its epoch and its position in it::

        loader = prepare_data_loader(DataLoader(dataset, batch_size=32, shuffle=True))
        if checkpoint:
            loader.load_state_dict(checkpoint.to_dict()["loader"])
        for epoch in range(loader.epoch, 10):
            for batch in loader:
                ...
                session.report(metrics, checkpoint=Checkpoint.from_dict({"loader": loader.state_dict(), ...}))

    The state is equal on all workers that have received the same number of batches. Use it from one thread.
    """

    _plan: Plan
    _position: Position | None
    _pending: dict[str, Any] | None
    _device: torch.device | None
    _ahead: bool

    @property
    def epoch(self) -> int:
        """The epoch of the current iteration, or of the next one if there is none."""
        position = self._position
        return self._plan.upcoming if position is None or position.finished else position.epoch

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of `epoch`; later ones count from there."""
        self._plan.set_epoch(operator.index(epoch))

    def state_dict(self) -> dict[str, Any]:
        """The loader's position as plain values. It counts the samples of the epoch that all workers together have
        received::

            {"kind": "samples", "epoch": 1, "samples": 64, "total": 1000, "order": "shuffled, seed 0"}

        A batch counts once the loop has received it, not when it is loaded. After the last batch the state is the whole
        epoch; once the loop has ended, it is the beginning of the next epoch.
        """
        if self._position is None or self._position.finished:
            upcoming = self._plan.upcoming
            resumed = self._pending
            return dict(resumed) if resumed and resumed["epoch"] == upcoming else self._plan.resting(upcoming)
        if self.num_workers and not getattr(self, "in_order", True) and self._plan.kind != "stream":
            raise LockstepError(
                f"{WHERE} state_dict() was called inside epoch {self._position.epoch} of a loader with in_order=False, "
                "whose batches have no order; use in_order=True, or take the state between epochs"
            )
        return self._plan.state(self._position)

    def load_state_dict(self, state: Any) -> None:
        """Makes the next iteration continue from the position in `state`.

        The number of workers and the batch size may differ. Used samples are not read again, except from an
        iterable-style dataset, which must be read to be skipped. Raises ConfigError, and changes nothing, if it is not
        the state of such a loader with such data.
        """
        if not isinstance(state, Mapping):
            given = type(state).__name__
            raise ConfigError(f"{WHERE} load_state_dict() got a {given}; it must be a dict that state_dict() gave")
        if state.get("kind") != self._plan.kind:
            raise ConfigError(
                f"{WHERE} load_state_dict() got a state of kind {state.get('kind')!r}, but this loader's are of kind "
                f"{self._plan.kind!r}; pass the state_dict() of the same loader"
            )
        epoch = integer(state, "epoch")
        integer(state, "samples")
        self._plan.check(state)
        self._pending, self._position = dict(state), None
        self._plan.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self._plan) if isinstance(self._plan, DividedStream) else super().__len__()

    def __iter__(self) -> Any:
        # Called from a user's class, which may have its own __iter__ and call this one at any time.
        epoch, pending = self._plan.upcoming, self._pending
        resumed = pending if pending is not None and pending["epoch"] == epoch else None
        with self._plan.iteration(epoch, resumed) as position, self._standing_in(epoch):
            batches = super().__iter__()
        self._plan.upcoming = epoch + 1
        self._pending, self._position = None, position
        return self._plan.unpacked(batches, position)

    @contextmanager
    def _standing_in(self, epoch: int) -> Iterator[None]:
        """Temporarily sets the attributes that torch's iterator uses."""
        stand_ins = self._plan.stand_ins(self)
        same = self._plan.same_on_all_ranks
        if self.generator is None and (same or _context.seed is not None):
            seed = _core.generator_seed(_context.seed or 0, epoch, 0 if same else _context.rank())
            stand_ins["generator"] = torch.Generator().manual_seed(seed)
        own = {name: self.__dict__[name] for name in stand_ins}
        self.__dict__.update(stand_ins)
        try:
            yield
        finally:
            self.__dict__.update(own)


class _HandingOut:
    """Wraps a user's class: moves the batches and counts them."""

    _position: Position | None
    _device: torch.device | None
    _ahead: bool

    def __iter__(self) -> Iterator[Any]:
        before = self._position
        batches = super().__iter__()  # type: ignore[misc]
        begun = self._position if self._position is not before else None
        if self._device is not None:
            batches = (_transfer.moved_ahead if self._ahead else _transfer.moved)(batches, self._device)
        return self._handed_out(batches, begun)

    def _handed_out(self, batches: Iterator[Any], position: Position | None) -> Iterator[Any]:
        for batch in batches:
            position = position or self._position  # a user's __iter__ may start only with its first batch
            if position is not None:
                position.hand()
            yield batch
        position = position or self._position
        if position is not None:
            position.finished = True


def _prepared_class(loader_class: type[DataLoader[Any]]) -> type[PreparedDataLoader[Any]]:
    bases = (PreparedDataLoader,) if loader_class is DataLoader else (loader_class, PreparedDataLoader)
    return type(f"Prepared{loader_class.__name__}", (_HandingOut, *bases), {"__module__": loader_class.__module__})


def _set_batch_size(loader: PreparedDataLoader[Any], of_all: int) -> None:
    if isinstance(of_all, bool) or not isinstance(of_all, int) or of_all < 1:
        raise ConfigError(f"{WHERE} global_batch_size is {of_all!r}; it must be an int of at least 1, or None")
    if loader.batch_size is None:
        raise ConfigError(
            f"{WHERE} global_batch_size is for loaders that make batches, but this one has batch_size=None"
        )
    size = max(1, round(of_all / _context.world_size()))
    loader.__dict__["batch_size"] = size
    loader.__dict__["batch_sampler"] = BatchSampler(loader.sampler, size, loader.drop_last)


def _plan(loader: PreparedDataLoader[Any], add_dist_sampler: bool) -> Plan:
    """How to divide `loader`, a new copy of the user's. Sets its samplers."""
    rank, world = _context.rank(), _context.world_size()
    kept = _kept(loader, world)
    if kept is not None:
        return kept
    if not add_dist_sampler or (world == 1 and isinstance(loader.dataset, IterDataPipe)):
        return Plan()
    if (
        hasattr(type(loader), "load_state_dict")
        and type(loader).load_state_dict is not PreparedDataLoader.load_state_dict
    ):
        raise ConfigError(
            f"{WHERE} {_class_of(loader)} keeps its position itself and cannot be divided; "
            "use a plain DataLoader, whose position prepare_data_loader keeps, or add_dist_sampler=False"
        )
    seed = 0 if _context.seed is None else _context.seed
    if isinstance(loader.dataset, IterableDataset):
        if isinstance(loader.dataset, IterDataPipe):
            raise ConfigError(
                f"{WHERE} a DataPipe divides itself where it has a sharding_filter(); pass add_dist_sampler=False"
            )
        return DividedStream(loader, rank, world, seed)
    if loader.batch_size is None and loader.batch_sampler is not None:
        return _divided_batches(loader, rank, world, seed)
    return _divided_samples(loader, rank, world, seed)


def _kept(loader: PreparedDataLoader[Any], world: int) -> Plan | None:
    """The plan if the user's sampler already divides the data."""
    if isinstance(loader.dataset, IterableDataset):
        return None
    if loader.batch_size is None and loader.batch_sampler is not None:
        inner = getattr(loader.batch_sampler, "sampler", None)
        for sampler in (loader.batch_sampler, inner):
            if divides_itself(sampler):
                return KeptBatches(sampler, loader.batch_sampler, world)
        return None
    if not divides_itself(loader.sampler):
        return None
    if not hasattr(loader.sampler, "__len__"):
        return KeptBatches(loader.sampler, loader.batch_sampler or loader.sampler, world)
    return Kept(loader.sampler, world, loader.batch_size, loader.drop_last)


def _divided_samples(loader: PreparedDataLoader[Any], rank: int, world: int, seed: int) -> Plan:
    _check_length(loader, loader.sampler)
    order = order_of(loader.sampler, loader, seed)
    plan = Divided(order, rank, world, loader.batch_size or 1, loader.drop_last)
    sampler = ShardedSampler(loader.dataset, plan)
    loader.__dict__["sampler"] = sampler
    if loader.batch_size is not None:
        loader.__dict__["batch_sampler"] = SkippingBatches(sampler, loader.batch_size, loader.drop_last)
    return plan


def _divided_batches(loader: PreparedDataLoader[Any], rank: int, world: int, seed: int) -> Plan:
    _check_length(loader, loader.batch_sampler)
    order = order_of(loader.batch_sampler, loader, seed)
    plan = DividedBatches(order, rank, world, 1, getattr(loader.batch_sampler, "drop_last", False) is True)
    loader.__dict__["batch_sampler"] = ShardedBatchSampler(plan)
    return plan


def _check_length(loader: PreparedDataLoader[Any], sampler: Any) -> None:
    try:
        len(sampler)
    except (TypeError, NotImplementedError, AttributeError):
        what = loader.dataset if not hasattr(loader.dataset, "__len__") else sampler
        raise ConfigError(
            f"{WHERE} {type(what).__name__} has no len(), so the data cannot be divided among the workers; "
            "give it a __len__, make the dataset an IterableDataset, or pass add_dist_sampler=False"
        ) from None


def _class_of(loader: PreparedDataLoader[Any]) -> str:
    return type(loader).__name__.removeprefix("Prepared")
