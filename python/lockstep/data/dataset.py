"""Data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import GenericAlias
from typing import Any, ClassVar, TypeVar, overload

import pyarrow

from lockstep.data._aggregates import Aggregates
from lockstep.data._ahead import Ahead
from lockstep.data._loops import Loop, Loops
from lockstep.data._native import native
from lockstep.data._outputs import Outputs
from lockstep.data._plans import reduce
from lockstep.data._splits import Splits
from lockstep.data._stats import DatasetStats, stats_of
from lockstep.data._steps import Steps, whole_number
from lockstep.data.grouped_data import Groups
from lockstep.data.iterator import DataIterator, Order
from lockstep.errors import ConfigError

T = TypeVar("T")


class Dataset(Steps, Splits, Aggregates, Groups, Outputs, Loops):
    """Rows with named columns: a plan of what to read, not the rows themselves. Made by the functions of
    :mod:`lockstep.data`. It never changes; methods give new data sets.

        >>> ds = lockstep.data.range(1000).limit(3)
        >>> ds.take_all()
        [{'id': 0}, {'id': 1}, {'id': 2}]
        >>> print(ds)
        Dataset: 3 rows, id: int64
          range: 1000
          limit: 3 (blocks after it are not read)
    """

    _shard_type: ClassVar[type[DataIterator]] = DataIterator
    """What a worker of a trainer gets."""
    _is_shuffled: ClassVar[bool] = True
    """Whether trainers shuffle it as ``train`` if their DataConfig does not name what to shuffle."""

    # Scripts for Ray name the type of the rows in annotations: Dataset[int].
    __class_getitem__: ClassVar[Any] = classmethod(GenericAlias)

    def __init__(self, plan: Any) -> None:
        self._native = plan
        self._is_partitioned = False
        self._workers = 0
        self._made: Any = None
        """How; see _plans.py."""

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce(self)

    def count(self) -> int:
        """The number of rows. They are read only if a step changes their number."""
        return int(self._native.count())

    def schema(self, fetch_if_missing: bool = True) -> Any:
        """Names and types of the columns. If a function makes them, it is called for the first block, unless
        `fetch_if_missing` is ``False``: then it is ``None``."""
        if not fetch_if_missing and not self._native.knows_schema():
            return None
        return pyarrow.schema(self._native)

    @overload
    def columns(self) -> list[str]: ...
    @overload
    def columns(self, fetch_if_missing: bool) -> list[str] | None: ...
    def columns(self, fetch_if_missing: bool = True) -> list[str] | None:
        """The names of the columns; see :meth:`schema`."""
        schema = self.schema(fetch_if_missing)
        return None if schema is None else list(schema.names)

    def num_blocks(self) -> int:
        """The number of blocks, which are read and shuffled as a whole."""
        return int(self._native.blocks())

    def input_files(self) -> list[str]:
        """The paths of the files that are read."""
        return list(self._native.files())

    def stats(self) -> DatasetStats:
        """What each step has done so far, in this process: rows, rows/s, bytes/s, time.

            >>> ds = lockstep.data.range(1000).map_batches(lambda batch: batch)
            >>> _ = ds.take_all()
            >>> [step.rows for step in ds.stats().steps]
            [1000, 1000]

        ``print(ds.stats())`` shows a table. Of the data itself nothing is read.
        """
        return stats_of(self._native)

    def take(self, limit: int = 20) -> list[dict[str, Any]]:
        """The first rows, as Python values. No more blocks are read than necessary."""
        return self.limit(limit).take_all()

    def take_all(self, limit: int | None = None) -> list[dict[str, Any]]:
        """All rows, as Python values, in memory at once. Raises ``ConfigError`` if there are more than `limit`."""
        if limit is None:
            return list(self.iter_rows())
        rows = self.limit(whole_number("limit", limit) + 1).take_all()
        if len(rows) > limit:
            raise ConfigError(f"[data] take_all() got limit={limit}, but there are more rows")
        return rows

    def take_batch(self, batch_size: int = 20, *, batch_format: str = "default") -> Any:
        """The first rows as one batch. Raises ``ConfigError`` if there are none."""
        size = whole_number("batch_size", batch_size, 1)
        for batch in self.limit(size).iter_batches(batch_size=size, batch_format=batch_format):
            return batch
        raise ConfigError("[data] take_batch() needs at least one row, but the data set is empty")

    def show(self, limit: int = 20) -> None:
        """Prints the first rows."""
        for row in self.take(limit):
            print(row)

    def iterator(
        self,
        *,
        seed: int = 0,
        shuffle: bool = True,
        window: int = 100_000,
        rank: int = 0,
        world_size: int = 1,
        equal: str | bool = "pad",
        prefetch: int = 2,
        share: str = "",
        local_world_size: int = 1,
    ) -> DataIterator:
        """An iterator over the epochs of this data set, whose position can be saved.

            >>> it = lockstep.data.range(8).iterator(seed=1)
            >>> [batch["id"].tolist() for batch in it.iter_batches(batch_size=4)]
            [[6, 0, 7, 5], [3, 4, 1, 2]]

        Args:
            seed: of the shuffle. Each epoch has an order of its own.
            shuffle: ``False`` keeps the order of the data set.
            window: rows that are shuffled among each other. The blocks (row groups, parts of files) are shuffled first.
            rank: this process's number, from 0, if several processes share an epoch.
            world_size: the number of these processes. They take the batches of one global sequence in turn.
            equal: what happens to the last rows, which do not fill a batch on every rank. ``"pad"`` (or ``True``)
                divides them evenly and repeats a row on a rank that would get none; ``"drop"`` drops them; ``False``
                deals them like the others, so that ranks may get different numbers of batches.
            prefetch: windows (without shuffle: blocks) that are read ahead.
            share: a name that the processes on this machine have in common. Each block is then read by one of them, and
                the others take it from shared memory.
            local_world_size: the number of processes with this name, which must all make such an iterator.
        """
        order = Order(seed, shuffle, window)
        prefetch = max(prefetch, self._workers) if prefetch > 0 else prefetch
        cache = native.SharedCache.join(share, local_world_size) if share else None
        return DataIterator(self, order, rank=rank, world_size=world_size, equal=equal, prefetch=prefetch, cache=cache)

    def _loop(self, convert: Callable[[Any], T], loop: Loop, what: str) -> Iterator[T]:
        """All rows once, in their own order."""
        if loop.shuffle_buffer is not None or loop.shuffle_seed is not None:
            return self.iterator(shuffle=False)._loop(convert, loop, what)
        return self._in_order(convert, loop)

    def _in_order(self, convert: Callable[[Any], Any], loop: Loop) -> Iterator[Any]:
        batches = self._batches(1024 if loop.rows else loop.batch_size, loop.drop_last)

        def make() -> tuple[Any] | None:
            batch = next(batches, None)
            return None if batch is None else (convert(batch),)

        ahead = Ahead(make, loop.prefetch) if loop.prefetch > 0 else None
        following = ahead or make
        try:
            while (item := following()) is not None:
                yield from item[0] if loop.rows else item
        finally:
            if ahead is not None:
                ahead.close()

    def _batches(self, batch_size: int | None, drop_last: bool = False, prefetch: int = 2) -> Iterator[Any]:
        """Record batches of all rows, in order; ``None``: one per block."""
        size = 0 if batch_size is None else whole_number("batch_size", batch_size, 1)
        ahead = max(prefetch, self._workers)
        stream = native.stream(self._native, size, drop_last, ahead)  # its threads end when this is dropped
        while (batch := stream.next()) is not None:
            yield batch

    def __repr__(self) -> str:
        rows = f"{self.count()} rows" if self._native.is_counted() else "rows not counted yet"
        schema = self.schema(fetch_if_missing=False)
        columns = "columns not known yet"
        if schema is not None:
            columns = ", ".join(f"{field.name}: {field.type}" for field in schema) or "no columns"
        return "\n  ".join([f"Dataset: {rows}, {columns}", *self._native.plan()])
