"""``ray.data.Dataset``: a data set of Lockstep with the methods and rows of Ray's releases."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lockstep.as_ray._aggregates import Count, Max, Mean, Min, Std, Sum, prepared
from lockstep.as_ray._loops import RayLoops
from lockstep.as_ray._rows import ITEM, PLAIN, converter, of_plain, on_batches, on_rows, plain
from lockstep.data import DataIterator, Dataset
from lockstep.data._functions import Function
from lockstep.data.iterator import TAILS

if TYPE_CHECKING:
    from lockstep.as_ray._pipeline import DatasetPipeline

Share = tuple[int, int, str | bool]
"""A rank, the number of ranks, and what becomes of rows that do not come out even, as `equal` of iterators."""
_ARGUMENTS = ("fn_args", "fn_kwargs", "fn_constructor_args", "fn_constructor_kwargs")


class RayDataset(RayLoops, Dataset):
    """What the functions of ``ray.data`` give."""

    _is_shuffled = False
    _parallelism = 0
    """The number of blocks that the script asked for; 0: the core's."""

    # ------------------------------------------------------------------ made of others

    def _new(self, plan: Any) -> RayDataset:
        made = type(self)(plan)
        made._workers = self._workers
        made._parallelism = self._parallelism
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (copied(self, Dataset), self._parallelism)

    # ------------------------------------------------------------------ steps

    def map_batches(self, fn: Any, *, batch_size: Any = "default", **options: Any) -> RayDataset:
        """As the core's; up to Ray 2.0 also for lists of rows."""
        if PLAIN and batch_size == "default":
            batch_size = 4096
        given = {**options, "batch_size": batch_size}
        batch_format = given.pop("batch_format", "default")
        if not PLAIN:
            batch_format = "default" if batch_format == "native" else batch_format
            return self._mine(super().map_batches(fn, batch_format=batch_format, **given))
        args, *others = [given.pop(name, None) for name in _ARGUMENTS]
        function = Function("map_batches", fn, args or (), *others)
        convert = converter(batch_format, bool(self._native.is_borrowed()), given.pop("zero_copy_batch", False))
        return self._mine(super().map_batches(on_batches(function, convert), batch_format="pyarrow", **given))

    def map(self, fn: Any, **options: Any) -> RayDataset:
        """As the core's; up to Ray 2.0 also for rows that are no dicts, as the next two."""
        return self._mine(super().map(_row_function("map", fn, options), **options))

    def flat_map(self, fn: Any, **options: Any) -> RayDataset:
        return self._mine(super().flat_map(_row_function("flat_map", fn, options), **options))

    def filter(self, fn: Any = None, **options: Any) -> RayDataset:
        """As the core's; without a condition, all rows."""
        if fn is None and "expr" not in options:
            return self
        if callable(fn):
            fn = _row_function("filter", fn, options)
        return self._mine(super().filter(fn, **options))

    def groupby(self, key: Any) -> Any:
        """As the core's; up to Ray 2.0 also by a function of rows that are no dicts: results are pairs then."""
        return KeyedGroups(self, key) if PLAIN and callable(key) else super().groupby(key)

    def aggregate(self, *aggs: Any) -> Any:
        """As the core's; of rows that are no dicts it gives a tuple."""
        if not PLAIN:
            return super().aggregate(*aggs)
        dataset, made = prepared(self, aggs)
        found = Dataset.aggregate(dataset, *made)
        return found if found is None or self.columns() != [ITEM] else tuple(found.values())

    def _of_columns(self, method: str, on: Any, make: Any) -> Any:
        """Up to Ray 2.0 also of what a function makes of each row."""
        dataset, on = (self.map(on), ITEM) if PLAIN and callable(on) else (self, on)
        return Dataset._of_columns(copied(dataset, Dataset), method, on, make)

    def sort(self, key: Any = None, descending: Any = False) -> RayDataset:
        if PLAIN and callable(key):
            keyed = self.map(lambda row: {"key": key(row), "value": plain(row)})
            return keyed.sort("key", descending).map(lambda row: of_plain(row["value"]))
        if key is None and self.columns() == [ITEM]:
            key = ITEM
        return self._mine(super().sort(key, descending))

    def union(self, *other: Any) -> RayDataset:
        made = self._mine(super().union(*other))
        made._parallelism = 0
        return made

    def zip(self, other: Any) -> RayDataset:
        made = self._mine(super().zip(other))
        if PLAIN and self.columns() == [ITEM] and other.columns() == [ITEM]:
            return made.map(lambda row: tuple(row.values()))
        return made

    def repartition(self, num_blocks: int, **options: Any) -> RayDataset:
        made = self._mine(super().repartition(num_blocks, **options))
        made._parallelism = 0
        return made

    def _mapped_groups(self, keys: list[str], fn: Any, batch_format: str, options: dict[str, Any]) -> RayDataset:
        """As the core's; up to Ray 2.0 the function may also give a list of rows of any kind."""
        if PLAIN:
            args, *others = [options.pop(name, None) for name in _ARGUMENTS]
            function = Function("map_groups", fn, args or (), *others)
            fn, batch_format = on_batches(function, converter(batch_format)), "pyarrow"
        return self._mine(super()._mapped_groups(keys, fn, batch_format, options))

    def num_blocks(self) -> int:
        return self._parallelism or super().num_blocks()

    # ------------------------------------------------------------------ pipelines

    def window(self, *, blocks_per_window: int | None = None, bytes_per_window: int | None = None) -> DatasetPipeline:
        """A pipeline over parts of the rows: so many blocks, or about so many bytes; 10 blocks, if neither is given."""
        from lockstep.as_ray._pipeline import DatasetPipeline, Windows

        if blocks_per_window is not None and bytes_per_window is not None:
            raise ValueError("only one of blocks_per_window and bytes_per_window can be given")
        if bytes_per_window is None and blocks_per_window is None:
            blocks_per_window = 10
        return DatasetPipeline(Windows(self, blocks=blocks_per_window, size_bytes=bytes_per_window))

    def pipeline(self, *, length: int | None = None, parallelism: int = 10) -> DatasetPipeline:
        """As RaySGD's documents have it: a pipeline of `length` windows."""
        from lockstep.as_ray._pipeline import DatasetPipeline, Windows

        return DatasetPipeline(Windows(self, blocks=parallelism if length is None else None, number=length))

    def repeat(self, times: int | None = None) -> DatasetPipeline:  # type: ignore[override]
        """A pipeline of so many epochs, each of which is one window; without end if `times` is None."""
        from lockstep.as_ray._pipeline import DatasetPipeline, Windows

        return DatasetPipeline(Windows(self)).repeat(times)

    # ------------------------------------------------------------------ what Ray has beside

    def iterator(self, **options: Any) -> DataIterator:
        """As the core's, but in the order of the rows."""
        made = super().iterator(**{"shuffle": False, **options})
        return RayShard(
            self,
            made._base,
            rank=made._rank,
            world_size=made._world_size,
            equal=made._equal,
            prefetch=made._prefetch,
            cache=made._cache,
        )

    def streaming_split(self, n: int, *, equal: bool = False, locality_hints: Any = None) -> list[DataIterator]:
        """Iterators that share the rows."""
        return [self.iterator(rank=rank, world_size=n, equal="drop" if equal else False) for rank in range(n)]

    def to_pandas(self, limit: int | None = 100_000) -> Any:
        return Dataset.to_pandas(self._tabular(), limit)

    def to_arrow(self) -> Any:
        return Dataset.to_arrow(self._tabular())

    def to_pandas_refs(self) -> list[Any]:
        return [_put(self.to_pandas(limit=None))]

    def to_arrow_refs(self) -> list[Any]:
        return [_put(self.to_arrow())]

    def to_numpy_refs(self, *, column: str | None = None) -> list[Any]:
        whole = self if column is None else self.select_columns([column])
        arrays: Any = next(iter(whole.iter_batches(batch_size=max(1, self.count()), batch_format="numpy")), {})
        return [_put(arrays if column is None else arrays[column])]

    def write_parquet(self, path: str, **options: Any) -> None:
        _write(super().write_parquet, self, path, options)

    def write_csv(self, path: str, **options: Any) -> None:
        _write(super().write_csv, self, path, options)

    def write_json(self, path: str, **options: Any) -> None:
        _write(super().write_json, self, path, options)

    def lazy(self) -> RayDataset:
        """Itself: everything is lazy. The next four likewise."""
        return self

    experimental_lazy = lazy

    def fully_executed(self) -> RayDataset:
        return self._mine(self.materialize())

    def is_fully_executed(self) -> bool:
        return True

    def _tabular(self) -> RayDataset:
        """With the name that Ray gives a column of values that are no dicts."""
        return self._mine(self.rename_columns({ITEM: "value"})) if PLAIN and self.columns() == [ITEM] else self

    def _mine(self, made: Any) -> RayDataset:
        assert isinstance(made, RayDataset)
        return made


class KeyedGroups:
    """Groups by a function. Their methods give pairs of a key and a result."""

    def __init__(self, dataset: RayDataset, key: Callable[[Any], Any]) -> None:
        self._dataset = dataset
        self._key = key

    def aggregate(self, *aggs: Any) -> Any:
        """Tuples of the key and the results."""
        keyed, made = prepared(self._dataset, aggs, self._key)
        return Dataset.groupby(keyed, "key").aggregate(*made).map(lambda row: tuple(row.values()))

    def map_groups(self, fn: Any, *, compute: Any = None, batch_format: str = "default", **options: Any) -> Any:
        """What a function gives for the list of the rows of each group."""

        def rows_of_group(group: Any) -> list[Any]:
            return [of_plain(value) for value in group.column("value").to_pylist()]

        keyed, _ = prepared(self._dataset, (), self._key)
        call = on_batches(Function("map_groups", fn), rows_of_group)
        return Dataset._mapped_groups(keyed, ["key"], call, "pyarrow", options)

    def count(self) -> Any:
        """Pairs of the key and the number of rows."""
        return self.aggregate(Count())

    def __getattr__(self, name: str) -> Any:
        kind = {"sum": Sum, "min": Min, "max": Max, "mean": Mean, "std": Std}.get(name)
        if kind is None:
            raise AttributeError(f"groups by a function have no {name!r}")
        return lambda on=None, *args, **options: self.aggregate(kind(on, *args, **options))


def copied(dataset: Dataset, kind: type[Any]) -> Any:
    """The same data set as an object of another class."""
    made = kind(dataset._native)
    made._is_partitioned, made._workers, made._made = dataset._is_partitioned, dataset._workers, dataset._made
    return made


def of_ray(dataset: Any, parallelism: int = 0) -> Any:
    """A data set of the core, or several by name, as scripts for Ray expect it."""
    if isinstance(dataset, dict):
        return {name: of_ray(each) for name, each in dataset.items()}
    made = copied(dataset, RayDataset)
    made._parallelism = parallelism
    return made


def _rebuilt(dataset: Dataset, parallelism: int) -> RayDataset:
    made: RayDataset = of_ray(dataset, parallelism)
    return made


def _row_function(method: str, fn: Any, options: dict[str, Any]) -> Any:
    """The user's function as one for dicts; its arguments are taken out of the options."""
    if not PLAIN:
        return fn
    args, *others = [options.pop(name, None) for name in _ARGUMENTS]
    return on_rows(Function(method, fn, args or (), *others), method)


def _write(write: Callable[..., None], dataset: RayDataset, path: str, options: dict[str, Any]) -> None:
    for name in ("arrow_open_stream_args", "block_path_provider"):
        options.pop(name, None)
    table = dataset._tabular()
    if table is dataset:
        write(path, **options)
    else:
        getattr(table, write.__name__)(path, **options)


def _put(value: Any) -> Any:
    from lockstep.as_ray._cluster import put

    return put(value)


# ---------------------------------------------------------------------- shards


class RayShard(RayLoops, DataIterator):
    """What ``get_dataset_shard()`` gives. Up to Ray 2.0 it is a Dataset, so it has the methods of one, too."""

    def get_shard(self, rank: int | None = None) -> RayShard:
        """Itself, for scripts that ask for their rank's part."""
        return self

    def __getattr__(self, name: str) -> Any:
        if not PLAIN or name.startswith("_") or not hasattr(RayDataset, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._part(), name)

    def _part(self) -> RayDataset:
        """This rank's rows as a data set of its own: one after the other in the order of the whole."""
        whole = of_ray(self._dataset)
        made: RayDataset = part_of(whole, 0, whole.count(), (self._rank, self._world_size, self._equal))
        return made


def part_of(dataset: Any, begin: int, end: int, share: Share) -> Any:
    """One rank's rows of those from `begin` to `end`. If they do not come out even, `equal` says what happens: the last
    ranks repeat rows, rows are left out, or some ranks have one less."""
    rank, world, equal = share
    rows = end - begin
    size = rows // world
    first = size * rank
    if equal is False:
        first += min(rank, rows % world)
        size += rank < rows % world
    elif TAILS[equal] != TAILS["drop"]:
        size = -(-rows // world)
        first = min(size * rank, rows - size)
    return dataset.split_at_indices([begin + first, begin + first + size])[1]


RayDataset._shard_type = RayShard
if PLAIN:
    Dataset.register(RayShard)
