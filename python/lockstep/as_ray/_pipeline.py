"""``ray.data.DatasetPipeline``: a data set in windows, epoch after epoch.

A window is a slice of the source, which the steps of the pipeline are applied to when it is its turn. Steps that treat
rows or batches one by one do not need windows: a pipeline of such steps reads its source as a stream.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow

from lockstep.as_ray._dataset import RayDataset, Share, part_of
from lockstep.as_ray._loops import RayLoops
from lockstep.data import DataIterator
from lockstep.data._loops import Loop
from lockstep.data.iterator import Order


class Windows:
    """The slices of a data set, or data sets that functions give. Nothing is read before it is needed."""

    def __init__(
        self,
        source: RayDataset | list[Any],
        *,
        blocks: int | None = None,
        size_bytes: int | None = None,
        number: int | None = None,
        share: Share | None = None,
    ) -> None:
        for name, value in (("blocks_per_window", blocks), ("bytes_per_window", size_bytes), ("length", number)):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be 1 or more")
        self._source = source
        self._size = blocks, size_bytes, number
        self._share = share
        self._ends: list[int] | None = None

    @property
    def whole(self) -> RayDataset:
        """All rows."""
        if isinstance(self._source, RayDataset):
            return self._source
        first, *others = [_made(each) for each in self._source]
        return first.union(*others) if others else first

    def of_blocks(self, blocks: int) -> Windows:
        """The same rows in windows of another size."""
        return Windows(self.whole, blocks=blocks, share=self._share)

    def shared(self, share: Share) -> Windows:
        """One rank's part of each."""
        blocks, size_bytes, number = self._size
        return Windows(self._source, blocks=blocks, size_bytes=size_bytes, number=number, share=share)

    def __len__(self) -> int:
        return len(self._source) if isinstance(self._source, list) else len(self._places()) - 1

    def __iter__(self) -> Iterator[RayDataset]:
        if isinstance(self._source, list):
            for each in map(_made, self._source):
                yield each if self._share is None else part_of(each, 0, each.count(), self._share)
            return
        if self._size == (None, None, None) and self._share is None:
            yield self._source
            return
        for begin, end in itertools.pairwise(self._places()):
            yield part_of(self._source, begin, end, self._share or (0, 1, False))

    @property
    def rows(self) -> int:
        """The rows of the largest."""
        if isinstance(self._source, list):
            return max((_made(each).count() for each in self._source), default=1) or 1
        return max((end - begin for begin, end in itertools.pairwise(self._places())), default=1) or 1

    def _places(self) -> list[int]:
        """Where they begin, and the end."""
        assert isinstance(self._source, RayDataset)
        if self._ends is None:
            blocks, size_bytes, number = self._size
            if number is not None:
                ends = _evenly(self._source.count(), number)
            elif blocks is None and size_bytes is None:
                ends = [self._source.count()]
            else:
                ends = _grouped(self._source, blocks, size_bytes)
            self._ends = [0, *ends]
        return self._ends


def _made(source: Any) -> RayDataset:
    made = source if isinstance(source, RayDataset) else source()
    assert isinstance(made, RayDataset)
    return made


def _evenly(rows: int, parts: int) -> list[int]:
    parts = max(1, min(parts, rows))
    return [rows * (part + 1) // parts for part in range(parts)]


def _grouped(dataset: RayDataset, blocks: int | None, size_bytes: int | None) -> list[int]:
    count = dataset.count()
    ends = list(itertools.accumulate(dataset._native.rows())) or [0]
    if dataset._parallelism:
        ends = _evenly(count, dataset._parallelism)
    if blocks is None:
        assert size_bytes is not None
        rows = max(1, int(size_bytes * count / max(1, dataset.size_bytes())))
        kept, begin = [], 0
        for end, following in itertools.pairwise([*ends, ends[-1]]):
            if following - begin > rows or following == end:
                kept.append(end)
                begin = end
        return kept
    chosen = ends[blocks - 1 :: blocks]
    return chosen if chosen and chosen[-1] == count else [*chosen, count]


class Step(NamedTuple):
    """What is done to each window."""

    apply: Callable[[Any, int], Any]
    """Gets the window, and a number that differs from window to window and from epoch to epoch."""
    kind: str = "window"
    """"stream": it could as well be done to all rows at once; "shuffle", "blocks": it changes their order."""
    seed: int | None = None


class DatasetPipeline(RayLoops):
    """Windows of a data set, in one or more epochs. Made by ``Dataset.window()`` and ``Dataset.repeat()``. Each loop
    begins with the first epoch."""

    _is_shuffled = False

    @staticmethod
    def _shard_type(pipeline: DatasetPipeline, order: Order, **options: Any) -> DataIterator:
        """What a worker of a trainer gets."""
        from lockstep.as_ray._pipeline_shard import PipelineShard

        return PipelineShard(pipeline, order, **options)

    def __init__(
        self, base_iterable: Any, *, steps: tuple[Step, ...] = (), times: int | None = 1, first_epoch: int = 0
    ) -> None:
        self._windows = base_iterable if isinstance(base_iterable, Windows) else Windows(list(base_iterable))
        self._steps = steps
        self._times = times
        self._first = first_epoch

    @staticmethod
    def from_iterable(iterable: Iterable[Any]) -> DatasetPipeline:
        """A pipeline of data sets, or of functions that give them; each is a window."""
        return DatasetPipeline(Windows(list(iterable)))

    def _with(self, *steps: Step, **changes: Any) -> DatasetPipeline:
        given = {"times": self._times, "first_epoch": self._first, **changes}
        return DatasetPipeline(given.pop("windows", self._windows), steps=(*self._steps, *steps), **given)

    def _streamed(self, method: str, *args: Any, **options: Any) -> DatasetPipeline:
        return self._with(Step(lambda ds, _: getattr(ds, method)(*args, **options), "stream"))

    # ------------------------------------------------------------------ steps

    def map(self, fn: Any, **options: Any) -> DatasetPipeline:
        """As of a data set, as the next ones."""
        return self._streamed("map", fn, **options)

    def map_batches(self, fn: Any, **options: Any) -> DatasetPipeline:
        return self._streamed("map_batches", fn, **options)

    def flat_map(self, fn: Any, **options: Any) -> DatasetPipeline:
        return self._streamed("flat_map", fn, **options)

    def filter(self, fn: Any = None, **options: Any) -> DatasetPipeline:
        return self._streamed("filter", fn, **options)

    def add_column(self, col: str, fn: Any, **options: Any) -> DatasetPipeline:
        return self._streamed("add_column", col, fn, **options)

    def drop_columns(self, cols: Any, **options: Any) -> DatasetPipeline:
        return self._streamed("drop_columns", cols, **options)

    def select_columns(self, cols: Any, **options: Any) -> DatasetPipeline:
        return self._streamed("select_columns", cols, **options)

    def random_shuffle_each_window(self, *, seed: int | None = None, **options: Any) -> DatasetPipeline:
        """The rows of each window in a random order, another one in each epoch. In shards of a trainer, blocks are put
        into a random order first, and then as many rows are shuffled among each other as a window has."""
        chosen = secrets.randbits(32) if seed is None else seed
        return self._with(Step(lambda ds, n: ds.random_shuffle(seed=(chosen + n) % 2**64), "shuffle", seed))

    random_shuffle = random_shuffle_each_window

    def randomize_block_order_each_window(self, *, seed: int | None = None) -> DatasetPipeline:
        """The blocks of each window in a random order."""
        chosen = secrets.randbits(32) if seed is None else seed
        return self._with(Step(lambda ds, n: ds.randomize_block_order(seed=(chosen + n) % 2**64), "blocks", seed))

    def sort_each_window(self, key: Any = None, descending: bool = False) -> DatasetPipeline:
        """Each window sorted."""
        return self._with(Step(lambda ds, _: ds.sort(key, descending)))

    def repartition_each_window(self, num_blocks: int, *, shuffle: bool = False) -> DatasetPipeline:
        """Each window in so many blocks."""
        return self._with(Step(lambda ds, _: ds.repartition(num_blocks, shuffle=shuffle)))

    def foreach_window(self, fn: Callable[[Any], Any]) -> DatasetPipeline:
        """What a function gives for each window, which is a data set."""
        return self._with(Step(lambda ds, _: fn(ds)))

    def rewindow(self, *, blocks_per_window: int, preserve_epoch: bool = True) -> DatasetPipeline:
        """The same with windows of another size. Steps that came before are done to the new windows."""
        return self._with(windows=self._windows.of_blocks(blocks_per_window))

    def repeat(self, times: int | None = None) -> DatasetPipeline:
        """So many epochs of this pipeline; without end if `times` is None."""
        if times is not None and times < 1:
            raise ValueError(f"times is {times}; it must be 1 or more")
        return self._with(times=None if times is None or self._times is None else times * self._times)

    def split(self, n: int, *, equal: bool = False, locality_hints: Any = None) -> list[DatasetPipeline]:
        """Pipelines that share each window. Each does the steps to its part of the window."""
        return [self._part((rank, n, "drop" if equal else False)) for rank in range(n)]

    def _part(self, share: Share) -> DatasetPipeline:
        return self._with(windows=self._windows.shared(share))

    # ------------------------------------------------------------------ epochs and windows

    def iter_epochs(self, max_epoch: int = -1) -> Iterator[Any]:
        """A pipeline for each epoch; at most `max_epoch`, if that is above 0."""
        for epoch in self._epochs(max_epoch):
            yield self._with(times=1, first_epoch=epoch)

    def iter_datasets(self) -> Iterator[Any]:
        """The windows, as data sets."""
        for epoch in self._epochs():
            yield from self._of_epoch(epoch)

    def _epochs(self, most: int = -1) -> Iterator[int]:
        numbers = itertools.count(self._first)
        ends = [end for end in (self._times, most if most > 0 else None) if end is not None]
        return itertools.islice(numbers, min(ends)) if ends else numbers

    def _of_epoch(self, epoch: int) -> Iterator[Any]:
        for number, window in enumerate(self._windows):
            yield self._applied(window, epoch * 1_000_003 + number)

    def _applied(self, window: Any, number: int) -> Any:
        for step in self._steps:
            window = step.apply(window, number)
        return window

    @property
    def _is_stream(self) -> bool:
        return all(step.kind == "stream" for step in self._steps) and self._windows._share is None

    @property
    def _whole(self) -> Any:
        """All rows, with the steps that treat them one by one, or nothing if there are others."""
        if any(step.kind == "window" for step in self._steps):
            return self._windows.whole
        whole: Any = self._windows.whole
        for step in self._steps:
            if step.kind == "stream":
                whole = step.apply(whole, 0)
        return whole

    # ------------------------------------------------------------------ loops

    def _loop(self, convert: Callable[[Any], Any], loop: Loop, what: str) -> Iterator[Any]:
        if loop.shuffle_buffer is None and loop.shuffle_seed is None:
            size = None if loop.rows else loop.batch_size
            batches: Iterator[Any] = map(convert, _sized(self._blocks(), size, loop.drop_last))
            return itertools.chain.from_iterable(batches) if loop.rows else batches
        return self._shuffled(convert, loop, what)

    def _shuffled(self, convert: Callable[[Any], Any], loop: Loop, what: str) -> Iterator[Any]:
        for epoch in self._epochs():
            for window in [self._whole] if self._is_stream else self._of_epoch(epoch):
                iterator = window.iterator()
                iterator.set_epoch(epoch)
                yield from iterator._loop(convert, loop, what)

    def _blocks(self) -> Iterator[Any]:
        for epoch in self._epochs():
            for window in [self._whole] if self._is_stream else self._of_epoch(epoch):
                yield from map(pyarrow.record_batch, window._batches(None))

    # ------------------------------------------------------------------ about it

    def schema(self, fetch_if_missing: bool = True) -> Any:
        """Names and types of the columns."""
        return next(self._of_epoch(self._first)).schema()

    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema().names)

    def count(self) -> int:
        """The rows of all epochs. ValueError if there is no end of them."""
        if self._times is None:
            raise ValueError("a pipeline that repeats for ever has no number of rows")
        if self._is_stream:
            return int(self._whole.count()) * self._times
        return sum(window.count() for window in self.iter_datasets())

    def sum(self) -> Any:
        """The sum of all rows, which are numbers."""
        return sum(self.iter_rows())

    def take(self, limit: int = 20) -> list[Any]:
        """The first rows."""
        return list(itertools.islice(self.iter_rows(), limit))

    def take_all(self, limit: int | None = 100_000) -> list[Any]:
        """All rows. ValueError if there are more than `limit`."""
        rows = list(itertools.islice(self.iter_rows(), None if limit is None else limit + 1))
        if limit is not None and len(rows) > limit:
            raise ValueError(f"take_all() got limit={limit}, but there are more rows")
        return rows

    def take_batch(self, batch_size: int = 20, *, batch_format: str = "default") -> Any:
        """The first rows as a batch."""
        return next(self.iter_batches(batch_size=batch_size, batch_format=batch_format))

    def show(self, limit: int = 20) -> None:
        """Prints the first rows."""
        for row in self.take(limit):
            print(row)

    def show_windows(self, limit_per_dataset: int = 10) -> None:
        """Prints the first rows of each window."""
        for number, window in enumerate(self.iter_datasets()):
            print(f"=== Window {number} ===")
            window.show(limit_per_dataset)

    def write_parquet(self, path: str, **options: Any) -> None:
        """Writes files into a directory, as the next two."""
        for window in self.iter_datasets():
            window.write_parquet(path, **options)

    def write_csv(self, path: str, **options: Any) -> None:
        for window in self.iter_datasets():
            window.write_csv(path, **options)

    def write_json(self, path: str, **options: Any) -> None:
        for window in self.iter_datasets():
            window.write_json(path, **options)

    def stats(self, exclude_first_window: bool = True) -> Any:
        """What the steps have done."""
        return self._whole.stats()

    def iterator(self) -> DatasetPipeline:
        """Itself."""
        return self

    def __repr__(self) -> str:
        times = "without end" if self._times is None else f"{self._times} epochs"
        return f"DatasetPipeline({times}, num_stages={len(self._steps)})"


def _sized(blocks: Iterator[Any], size: int | None, drop_last: bool) -> Iterator[Rows]:
    """The rows in batches of this size, across blocks; None: the blocks."""
    if size is None:
        yield from map(Rows, blocks)
        return
    held: list[Any] = []
    rows = 0
    for block in blocks:
        begin = 0
        while block.num_rows - begin >= size - rows:
            held.append(block.slice(begin, size - rows))
            begin += size - rows
            yield _joined(held)
            held, rows = [], 0
        if begin < block.num_rows:
            held.append(block.slice(begin))
            rows += block.num_rows - begin
    if held and not drop_last:
        yield _joined(held)


def _joined(held: list[Any]) -> Rows:
    if len(held) == 1:
        return Rows(held[0])
    (joined,) = pyarrow.Table.from_batches(held).combine_chunks().to_batches()
    return Rows(joined)


class Rows:
    """A record batch as the core gives them: with memory that may belong to others."""

    is_borrowed = True

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def arrays(self, *, writable: bool) -> None:
        """None: whoever wants arrays makes them from Arrow."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._batch.__arrow_c_array__(requested_schema)
