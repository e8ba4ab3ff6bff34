"""What workers get of a DatasetPipeline."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from lockstep.as_ray._dataset import RayShard
from lockstep.as_ray._loops import RayLoops
from lockstep.as_ray._pipeline import DatasetPipeline
from lockstep.data import DataIterator
from lockstep.data._loops import Loop
from lockstep.data.iterator import Order


class PipelineShard(RayShard):
    """A worker's part of a pipeline. Unless the pipeline has steps of its own for windows, it is an iterator like any
    other: all ranks take batches of one sequence in turn, and its position is saved. Otherwise each rank does the steps
    to its part of each window, and the position is that of the epoch."""

    def __init__(self, dataset: Any, order: Order, **options: Any) -> None:
        self._pipeline: DatasetPipeline = dataset
        super().__init__(dataset._whole, _order(dataset, order), **options)
        has_windows = any(step.kind == "window" for step in dataset._steps)
        share = (self._rank, self._world_size, self._equal)
        self._own: DatasetPipeline | None = dataset._part(share) if has_windows else None

    def _loop(self, convert: Callable[[Any], Any], loop: Loop, what: str) -> Iterator[Any]:
        for _ in self._turns():
            yield from self._one_epoch(convert, loop, what)

    def _one_epoch(self, convert: Callable[[Any], Any], loop: Loop, what: str) -> Iterator[Any]:
        if self._own is None:
            yield from DataIterator._loop(self, convert, loop, what)
            return
        epoch = self.epoch
        yield from self._own._with(times=1, first_epoch=epoch)._loop(convert, loop, what)
        self.set_epoch(epoch + 1)

    def _turns(self, most: int = -1) -> Iterator[int]:
        """Numbers for the epochs that are left; after the last one, it begins again."""
        times = self._pipeline._times
        left = None if times is None else times - self.epoch % times
        ends = [end for end in (left, most if most > 0 else None) if end is not None]
        return iter(range(min(ends))) if ends else itertools.count()

    def iter_epochs(self, max_epoch: int = -1) -> Iterator[Any]:
        """Each epoch as an object with loops of its own."""
        for _ in self._turns(max_epoch):
            yield Epoch(self)

    def count(self) -> int:
        """The rows of all epochs."""
        times = self._pipeline._times
        if times is None:
            raise ValueError("a pipeline that repeats for ever has no number of rows")
        if self._own is not None:
            return self._own.count()
        return super().count() * times

    def schema(self) -> Any:
        return super().schema() if self._own is None else self._own.schema()

    def take(self, limit: int = 20) -> list[Any]:
        """The first rows."""
        return list(itertools.islice(self.iter_rows(), limit))

    def __getattr__(self, name: str) -> Any:
        """Other methods are those of a pipeline of this rank's part of each window."""
        if name.startswith("_") or not hasattr(DatasetPipeline, name):
            raise AttributeError(f"the shard of a DatasetPipeline has no attribute {name!r}")
        return getattr(self._pipeline._part((self._rank, self._world_size, self._equal)), name)


class Epoch(RayLoops):
    """One epoch of a shard."""

    def __init__(self, shard: PipelineShard) -> None:
        self._shard = shard

    def _loop(self, convert: Callable[[Any], Any], loop: Loop, what: str) -> Iterator[Any]:
        return self._shard._one_epoch(convert, loop, what)

    def schema(self) -> Any:
        """Names and types of the columns."""
        return self._shard.schema()

    def count(self) -> int:
        """The rows that this rank gets in an epoch."""
        shard = self._shard
        return DataIterator.count(shard) if shard._own is None else shard._own._with(times=1).count()

    def stats(self) -> Any:
        """Those of the shard."""
        return self._shard.stats()

    def take(self, limit: int = 20) -> list[Any]:
        """The first rows."""
        return list(itertools.islice(self.iter_rows(), limit))


def _order(pipeline: DatasetPipeline, given: Order) -> Order:
    """The pipeline says whether and how far rows are shuffled; the seed is the run's, unless it says that, too."""
    found = [step for step in pipeline._steps if step.kind in ("shuffle", "blocks")]
    if not found:
        return given._replace(shuffle=False)
    strongest = next((step for step in found if step.kind == "shuffle"), found[0])
    rows = pipeline._windows.rows if strongest.kind == "shuffle" else 1
    return Order(given.seed if strongest.seed is None else strongest.seed, True, rows)


DatasetPipeline.register(PipelineShard)
DatasetPipeline.register(Epoch)
