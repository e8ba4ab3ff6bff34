"""How the data of a loader is divided among the ranks, and the position of an iteration over it.

Every rank knows the order of the whole epoch and takes every world-size-th place of it. After k batches on each rank,
exactly the first k * world size * batch size places are used, so an epoch can continue with another number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch.utils.data import DataLoader, DistributedSampler

from lockstep import _core
from lockstep.errors import ConfigError, LockstepError
from lockstep.torch._orders import WHERE, Drawn, Order
from lockstep.torch._samplers import Skipping, SkippingBatches


class Position:
    """The position of one iteration. It counts the batches that the user has received, not those that are only
    loaded."""

    def __init__(self, epoch: int, deal: Any = None, drawn: Any = None) -> None:
        self.epoch, self.deal, self.drawn = epoch, deal, drawn
        self.handed, self.finished = 0, False

    def hand(self) -> None:
        """Counts a batch that the user receives."""
        self.handed += 1

    @property
    def done(self) -> int:
        """The number of used places; after the last batch all of them, including dropped ones."""
        if self.handed > self.deal.batches:
            raise LockstepError(
                f"{WHERE} the loader gave {self.handed} batches in epoch {self.epoch} where its sampler has "
                f"{self.deal.batches}; its class must give one batch for one of DataLoader's for state_dict() to be "
                "right"
            )
        return int(self.deal.position_after(self.handed))


class Plan:
    """How one loader's data is divided. This base class divides nothing and leaves everything to the loader."""

    kind = "whole"
    same_on_all_ranks = False
    """Whether the loader's workers must draw the same random numbers on every rank."""

    def __init__(self) -> None:
        self.upcoming = 0
        """The epoch of the next iteration."""

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration."""
        self.upcoming = epoch

    def stand_ins(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """Attributes that `loader` has while torch makes an iterator of it; users see their own."""
        return {}

    @contextmanager
    def iteration(self, epoch: int, resumed: Mapping[str, Any] | None) -> Iterator[Position]:
        """Context in which an iterator is made for `epoch`, from the position in the checked state `resumed`."""
        yield Position(epoch)

    def unpacked(self, batches: Iterator[Any], position: Any) -> Iterator[Any]:
        """The user's batches, unpacked from those of torch's iterator."""
        return batches

    def resting(self, epoch: int) -> dict[str, Any]:
        """The state before the first batch of `epoch`."""
        return {"kind": self.kind, "epoch": epoch, "samples": 0}

    def state(self, position: Any) -> dict[str, Any]:
        """The state at a position inside an epoch."""
        raise LockstepError(f"{WHERE} state_dict() was called inside epoch {position.epoch}; {_UNDIVIDED}")

    def check(self, state: Mapping[str, Any]) -> None:
        """Raises ConfigError unless the loader can continue from `state`, whose kind, epoch and samples are already
        checked."""
        if state["samples"]:
            raise ConfigError(f"{WHERE} load_state_dict() got a position inside an epoch; {_UNDIVIDED}")


_UNDIVIDED = (
    "this loader's order is not Lockstep's, so it can continue only between epochs; use add_dist_sampler=True and "
    "no batch sampler that divides the data itself"
)


class Divided(Plan):
    """Samples of a map-style dataset, taken in turn by the ranks."""

    kind = "samples"

    def __init__(self, order: Order, rank: int, world: int, batch_size: int, drop_last: bool) -> None:
        super().__init__()
        self.order = order
        self.rank, self.world, self.batch_size, self.drop_last = rank, world, batch_size, drop_last
        self.sampler: Any = None
        """The sampler that users see; its `epoch` is that of the newest iteration, or the one set since."""
        self._ready: tuple[int, Any] | None = None
        self._checked: tuple[int, Any] | None = None

    def set_epoch(self, epoch: int) -> None:
        self.upcoming = self.sampler.epoch = epoch

    def indices(self) -> Iterator[Any]:
        """This rank's indices: of the iteration that is being made, or else of the whole epoch of the sampler."""
        start, drawn = self._ready or (0, self.order.draw(self.sampler.epoch))
        return self.order.taken(drawn, self._deal(len(drawn), start))

    def __len__(self) -> int:
        """The number of indices of this rank in an epoch."""
        return len(self._deal(len(self.order)))

    @contextmanager
    def iteration(self, epoch: int, resumed: Mapping[str, Any] | None) -> Iterator[Position]:
        drawn = self._draw(epoch)
        start = 0 if resumed is None else self.start_of(resumed)
        self.sampler.epoch = epoch
        self._ready = (start, drawn)
        try:
            yield Position(epoch, self._deal(len(drawn), start), drawn if isinstance(self.order, Drawn) else None)
        finally:
            self._ready = None

    def resting(self, epoch: int) -> dict[str, Any]:
        return {**super().resting(epoch), "total": len(self.order)}

    def state(self, position: Any) -> dict[str, Any]:
        counts = self.counts(position.drawn, position.done)
        state = {**self.resting(position.epoch), "total": position.deal.total, **counts}
        return {**state, "order": self.order.name(position.drawn)} if state["samples"] else state

    def counts(self, drawn: Any, done: int) -> dict[str, int]:
        """The counts that a state has for `done` places."""
        return {"samples": done}

    def start_of(self, state: Mapping[str, Any]) -> int:
        """The first unused place."""
        return int(state["samples"])

    def check(self, state: Mapping[str, Any]) -> None:
        total, start = state.get("total"), self.start_of(state)
        drawn = self.order.draw(state["epoch"]) if start and isinstance(self.order, Drawn) else None
        have = len(self.order) if drawn is None else len(drawn)
        if total != have or start > have:
            raise ConfigError(
                f"{WHERE} load_state_dict() got the state of a loader with {total} {self.kind}, {start} of them done, "
                f"but this one has {have}; give it the data that the state was taken with"
            )
        if not start:
            return
        given, name = state.get("order"), self.order.name(drawn)
        if given != name or dict(state) != {**state, **self.counts(drawn, start)}:
            raise ConfigError(
                f"{WHERE} load_state_dict() got a position in the order {given!r}, but this loader's order of epoch "
                f"{state['epoch']} is {name!r}; use the sampler and the seed that the state was taken with"
            )
        self._checked = None if drawn is None else (state["epoch"], drawn)

    def _draw(self, epoch: int) -> Any:
        """The order of `epoch`; drawn only once, even if a state was checked against it."""
        checked, self._checked = self._checked, None
        return checked[1] if checked is not None and checked[0] == epoch else self.order.draw(epoch)

    def _deal(self, total: int, start: int = 0) -> _core.Deal:
        return _core.Deal(total, start, self.rank, self.world, self.batch_size, self.drop_last)


class DividedBatches(Divided):
    """Whole batches of the user's batch sampler, taken in turn by the ranks."""

    kind = "batches"

    def resting(self, epoch: int) -> dict[str, Any]:
        return {**super().resting(epoch), "batches": 0}

    def counts(self, drawn: Any, done: int) -> dict[str, int]:
        return {"samples": sum(map(len, drawn[:done])), "batches": done}

    def start_of(self, state: Mapping[str, Any]) -> int:
        return integer(state, "batches")


class Kept(Plan):
    """The user's sampler, which divides the data itself, as torch's DistributedSampler does."""

    kind = "kept"

    def __init__(self, sampler: Any, world: int, batch_size: int | None, drop_last: bool) -> None:
        super().__init__()
        self.sampler = sampler
        self.world = int(getattr(sampler, "num_replicas", world))
        self.batch_size, self.drop_last = batch_size or 1, drop_last
        self.source: Skipping | SkippingBatches
        self.source = Skipping(sampler) if batch_size is None else SkippingBatches(sampler, batch_size, drop_last)
        self._torch_order = getattr(type(sampler), "__iter__", None) is DistributedSampler.__iter__

    @property
    def upcoming(self) -> int:
        """The sampler's own epoch: the last call of its set_epoch() counts."""
        return int(self.sampler.epoch) if isinstance(self.sampler, DistributedSampler) else self._upcoming

    @upcoming.setter
    def upcoming(self, epoch: int) -> None:
        self._upcoming = epoch
        if hasattr(self, "sampler") and callable(getattr(self.sampler, "set_epoch", None)):
            self.sampler.set_epoch(epoch)

    def stand_ins(self, loader: DataLoader[Any]) -> dict[str, Any]:
        return {"sampler" if loader.batch_sampler is None else "batch_sampler": self.source}

    @contextmanager
    def iteration(self, epoch: int, resumed: Mapping[str, Any] | None) -> Iterator[Position]:
        self.upcoming = epoch
        self.source.skip = skip = 0 if resumed is None else self._skip(resumed)
        total, start = len(self.sampler) * self.world, skip * self.world
        try:
            yield Position(epoch, _core.Deal(total, start, 0, self.world, self.batch_size, self.drop_last))
        finally:
            self.source.skip = 0

    @property
    def total(self) -> int:
        """The number of samples; with the sampler's padding if only the sampler knows the number without."""
        return len(self.sampler.dataset) if self._torch_order else len(self.sampler) * self.world

    def resting(self, epoch: int) -> dict[str, Any]:
        return {**super().resting(epoch), "total": self.total, "world_size": self.world, "order": self.name()}

    def state(self, position: Any) -> dict[str, Any]:
        done = self.total if position.done == position.deal.total else position.done
        return {**self.resting(position.epoch), "samples": done}

    def name(self) -> str:
        """Of the order."""
        settings = [f"{key} {getattr(self.sampler, key)}" for key in ("shuffle", "seed") if hasattr(self.sampler, key)]
        return ", ".join([type(self.sampler).__name__, *settings])

    def check(self, state: Mapping[str, Any]) -> None:
        ours = self.resting(state["epoch"])
        wrong = [key for key in ("total", "order") if state.get(key) != ours[key]]
        if wrong and state["samples"]:
            raise ConfigError(
                f"{WHERE} load_state_dict() got a state with {wrong[0]} {state.get(wrong[0])!r}, but this loader has "
                f"{ours[wrong[0]]!r}; give it the data and the sampler that the state was taken with"
            )
        if state["samples"]:
            self._skip(state)

    def _skip(self, state: Mapping[str, Any]) -> int:
        """The number of indices of this rank that are done."""
        samples = integer(state, "samples")
        if samples >= self.total:
            return len(self.sampler)
        then = integer(state, "world_size")
        if samples % self.world or not (self._torch_order or then == self.world):
            raise ConfigError(
                f"{WHERE} load_state_dict() got a position of {then} workers after {samples} samples, which a "
                f"{type(self.sampler).__name__} for {self.world} cannot continue from; leave out the sampler, and "
                "prepare_data_loader divides the data so that any number can"
            )
        return samples // self.world


class KeptBatches(Kept):
    """The user's batch sampler, which divides the data itself. The batches of other ranks are unknown."""

    kind = "whole"

    def __init__(self, sampler: Any, batch_sampler: Any, world: int) -> None:
        super().__init__(sampler, world, None, False)
        self.source = Skipping(batch_sampler)

    @contextmanager
    def iteration(self, epoch: int, resumed: Mapping[str, Any] | None) -> Iterator[Position]:
        self.upcoming = epoch
        yield Position(epoch)

    def resting(self, epoch: int) -> dict[str, Any]:
        return Plan.resting(self, epoch)

    def state(self, position: Any) -> dict[str, Any]:
        return Plan.state(self, position)

    def check(self, state: Mapping[str, Any]) -> None:
        Plan.check(self, state)


def divides_itself(sampler: Any) -> bool:
    """Whether `sampler` already gives each rank its own part."""
    return isinstance(sampler, DistributedSampler) or (hasattr(sampler, "num_replicas") and hasattr(sampler, "rank"))


def integer(state: Mapping[str, Any], key: str) -> int:
    """``state[key]``, which must be a count."""
    value = state.get(key)
    if type(value) is not int or value < 0:
        raise ConfigError(
            f"{WHERE} load_state_dict() got {key}={value!r}; it must be an int of at least 0, as state_dict() gives it"
        )
    return value
