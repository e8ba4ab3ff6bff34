"""How the data of a loader is divided among the ranks, and where an iteration over it stands.

Every rank knows the order of the whole epoch and takes every world-size-th place of it. So after k batches on each rank
exactly the first k * world size * batch size places are used up, and an epoch can go on with another number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler

from lockstep.errors import ConfigError, LockstepError
from lockstep.torch._orders import WHERE, Drawn, Order, share
from lockstep.torch._samplers import Skipping, SkippingBatches


class Position:
    """Where one iteration stands. It counts the batches that were handed out, not those that are only loaded."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.handed = 0
        self.finished = False

    def hand(self) -> None:
        """One more batch goes to the user."""
        self.handed += 1

    def state(self) -> dict[str, Any]:
        """For state_dict()."""
        raise NotImplementedError


class Plan:
    """How one loader's data is divided. This one divides nothing and leaves everything to the loader."""

    kind = "whole"
    same_on_all_ranks = False
    """Whether the loader's workers must draw the same random numbers on every rank."""

    def __init__(self) -> None:
        self.upcoming = 0
        """The epoch of the next iteration."""

    def set_epoch(self, epoch: int) -> None:
        """The user says which epoch is next."""
        self.upcoming = epoch

    def stand_ins(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """Attributes that `loader` has while torch makes an iterator of it; the user sees his own."""
        return {}

    @contextmanager
    def iteration(self, epoch: int, resumed: Mapping[str, Any] | None) -> Iterator[Position]:
        """While an iterator is made, for `epoch`, from where the checked state `resumed` says."""
        yield Unknown(epoch)

    def unpacked(self, batches: Iterator[Any], position: Any) -> Iterator[Any]:
        """The user's batches, from what torch's iterator gives."""
        return batches

    def resting(self, epoch: int) -> dict[str, Any]:
        """The state before the first batch of `epoch`."""
        return {"kind": self.kind, "epoch": epoch, "samples": 0}

    def check(self, state: Mapping[str, Any]) -> None:
        """Raises ConfigError unless the loader can go on from `state`, whose kind, epoch and samples are right."""
        if state["samples"]:
            raise ConfigError(f"{WHERE} load_state_dict() got a position inside an epoch; {_UNDIVIDED}")


_UNDIVIDED = (
    "this loader's order is not Lockstep's, so it can go on between epochs only; use add_dist_sampler=True and "
)
_UNDIVIDED += "no batch sampler that divides the data itself"


class Unknown(Position):
    """In an order that is not ours."""

    def state(self) -> dict[str, Any]:
        raise LockstepError(f"{WHERE} state_dict() was called inside epoch {self.epoch}; {_UNDIVIDED}")


class Counted(Position):
    """In an order of `total` places, of which each batch that is handed out uses up `step`."""

    def __init__(self, epoch: int, start: int, step: int, total: int, batches: int) -> None:
        super().__init__(epoch)
        self.start, self.step, self.total, self.batches = start, step, total, batches

    @property
    def done(self) -> int:
        """How many places are used up; after the last batch all, also those that were dropped."""
        if self.handed > self.batches:
            raise LockstepError(
                f"{WHERE} the loader gave {self.handed} batches in epoch {self.epoch} where its sampler has "
                f"{self.batches}; its class must give one batch for one of DataLoader's for state_dict() to be right"
            )
        return self.total if self.handed == self.batches else self.start + self.handed * self.step


class InOrder(Counted):
    """In an order that Lockstep knows."""

    def __init__(self, plan: Divided, drawn: Any, *place: int) -> None:
        super().__init__(*place)
        self.plan = plan
        self.drawn = drawn if isinstance(plan.order, Drawn) else None

    def state(self) -> dict[str, Any]:
        state = {**self.plan.resting(self.epoch), "total": self.total, **self.plan.counts(self.drawn, self.done)}
        return {**state, "order": self.plan.order.name(self.drawn)} if state["samples"] else state


class Divided(Plan):
    """Samples of a map-style dataset, taken in turns by the ranks."""

    kind = "samples"

    def __init__(self, order: Order, rank: int, world: int, batch_size: int, drop_last: bool) -> None:
        super().__init__()
        self.order = order
        self.rank, self.world, self.batch_size, self.drop_last = rank, world, batch_size, drop_last
        self.sampler: Any = None
        """What the user sees of this plan; its `epoch` is the newest iteration's, or what the user said since."""
        self._ready: tuple[int, Any] | None = None
        self._checked: tuple[int, Any] | None = None

    def set_epoch(self, epoch: int) -> None:
        self.upcoming = self.sampler.epoch = epoch

    def indices(self) -> Iterator[Any]:
        """This rank's, of the iteration that is being made, else of all of the sampler's epoch."""
        start, drawn = self._ready or (0, self.order.draw(self.sampler.epoch))
        places, extra = self._share(len(drawn), start)
        mine: Iterable[Any]
        if isinstance(drawn, torch.Tensor):
            mine = drawn[places.start : places.stop : places.step].tolist()
            return iter(mine if extra is None else chain(mine, [int(drawn[extra])]))
        mine = drawn[places.start : places.stop : places.step]
        return iter(mine if extra is None else chain(mine, [drawn[extra]]))

    def __len__(self) -> int:
        """How many indices this rank has in an epoch."""
        return self._count(len(self.order), 0)

    @contextmanager
    def iteration(self, epoch: int, resumed: Mapping[str, Any] | None) -> Iterator[Position]:
        drawn = self._draw(epoch)
        start = 0 if resumed is None else self.start_of(resumed)
        batches = -(-self._count(len(drawn), start) // self.batch_size)
        self.sampler.epoch = epoch
        self._ready = (start, drawn)
        try:
            yield InOrder(self, drawn, epoch, start, self.world * self.batch_size, len(drawn), batches)
        finally:
            self._ready = None

    def resting(self, epoch: int) -> dict[str, Any]:
        return {**super().resting(epoch), "total": len(self.order)}

    def counts(self, drawn: Any, done: int) -> dict[str, int]:
        """What a state says of `done` places."""
        return {"samples": done}

    def start_of(self, state: Mapping[str, Any]) -> int:
        """The first place that is not used up."""
        return int(state["samples"])

    def check(self, state: Mapping[str, Any]) -> None:
        total, start = state.get("total"), self.start_of(state)
        drawn = self.order.draw(state["epoch"]) if start else None
        have = len(self.order) if drawn is None else len(drawn)
        if total != have or start > have:
            raise ConfigError(
                f"{WHERE} load_state_dict() got the state of a loader with {total} {self.kind}, {start} of them done, "
                f"but this one has {have}; give it the data that the state was taken with"
            )
        if drawn is None:
            return
        given, name = state.get("order"), self.order.name(drawn)
        if given != name or dict(state) != {**state, **self.counts(drawn, start)}:
            raise ConfigError(
                f"{WHERE} load_state_dict() got a position in the order {given!r}, but this loader's order of epoch "
                f"{state['epoch']} is {name!r}; use the sampler and the seed that the state was taken with"
            )
        self._checked = (state["epoch"], drawn)

    def _draw(self, epoch: int) -> Any:
        """The order of `epoch`, drawn once only even when a state was checked against it."""
        checked, self._checked = self._checked, None
        return checked[1] if checked is not None and checked[0] == epoch else self.order.draw(epoch)

    def _share(self, total: int, start: int) -> tuple[range, int | None]:
        return share(total, start, self.rank, self.world, self.batch_size, self.drop_last)

    def _count(self, total: int, start: int) -> int:
        places, extra = self._share(total, start)
        return len(places) + (extra is not None)


class DividedBatches(Divided):
    """Whole batches of a batch sampler of the user's, taken in turns by the ranks."""

    kind = "batches"

    def resting(self, epoch: int) -> dict[str, Any]:
        return {**super().resting(epoch), "batches": 0}

    def counts(self, drawn: Any, done: int) -> dict[str, int]:
        return {"samples": sum(map(len, drawn[:done])), "batches": done}

    def start_of(self, state: Mapping[str, Any]) -> int:
        return integer(state, "batches")


class Kept(Plan):
    """A sampler of the user's that divides the data itself, as torch's DistributedSampler does."""

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
        """As the sampler has it: whoever called its set_epoch() last is heard."""
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
        self.source.skip = 0 if resumed is None else self._skip(resumed)
        left = max(len(self.sampler) - self.source.skip, 0)
        batches = left // self.batch_size if self.drop_last else -(-left // self.batch_size)
        try:
            start = self.source.skip * self.world
            yield InKept(self, epoch, start, self.batch_size * self.world, self.total, batches)
        finally:
            self.source.skip = 0

    @property
    def total(self) -> int:
        """All samples; with the sampler's padding where only it knows how many there are without."""
        return len(self.sampler.dataset) if self._torch_order else len(self.sampler) * self.world

    def resting(self, epoch: int) -> dict[str, Any]:
        return {**super().resting(epoch), "total": self.total, "world_size": self.world, "order": self.name()}

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
        """How many indices of this rank are done."""
        samples = integer(state, "samples")
        if samples >= self.total:
            return len(self.sampler)
        then = integer(state, "world_size")
        if samples % self.world or not (self._torch_order or then == self.world):
            raise ConfigError(
                f"{WHERE} load_state_dict() got a position of {then} workers after {samples} samples, which a "
                f"{type(self.sampler).__name__} for {self.world} cannot go on from; leave the sampler away, and "
                "prepare_data_loader divides the data so that any number can"
            )
        return samples // self.world


class InKept(Counted):
    """In the order of a sampler that was kept."""

    def __init__(self, plan: Kept, *place: int) -> None:
        super().__init__(*place)
        self.plan = plan

    def state(self) -> dict[str, Any]:
        return {**self.plan.resting(self.epoch), "samples": self.done}


class KeptBatches(Kept):
    """A batch sampler of the user's that divides the data itself. What its batches are to the others is unknown."""

    kind = "whole"

    def __init__(self, sampler: Any, batch_sampler: Any, world: int) -> None:
        super().__init__(sampler, world, None, False)
        self.source = Skipping(batch_sampler)

    @contextmanager
    def iteration(self, epoch: int, resumed: Mapping[str, Any] | None) -> Iterator[Position]:
        self.upcoming = epoch
        yield Unknown(epoch)

    def resting(self, epoch: int) -> dict[str, Any]:
        return Plan.resting(self, epoch)

    def check(self, state: Mapping[str, Any]) -> None:
        Plan.check(self, state)


def divides_itself(sampler: Any) -> bool:
    """Whether `sampler` already gives each rank a part of its own."""
    return isinstance(sampler, DistributedSampler) or (hasattr(sampler, "num_replicas") and hasattr(sampler, "rank"))


def integer(state: Mapping[str, Any], key: str) -> int:
    """``state[key]``, which must be a count."""
    value = state.get(key)
    if type(value) is not int or value < 0:
        raise ConfigError(
            f"{WHERE} load_state_dict() got {key}={value!r}; it must be an int of at least 0, as state_dict() gives it"
        )
    return value
