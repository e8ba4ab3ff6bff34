"""The methods of data sets that give other data sets."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy
import pyarrow

from lockstep.data._expressions import to_expression
from lockstep.data._functions import DEFAULT_BATCH_SIZE, FORMATS, Batches, Function, NewColumn, Rows
from lockstep.data._helpers import Helpers
from lockstep.data._native import native
from lockstep.data._plans import Table, step
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from lockstep.data.dataset import Dataset


class Steps:
    """Nothing is read when a step is added; see :class:`~lockstep.data.Dataset`."""

    _native: Any
    _workers: int  # helper processes; as many blocks are read ahead at least

    @step
    def map_batches(
        self,
        fn: Callable[..., Any],
        *,
        batch_size: int | str | None = "default",
        compute: Any = None,
        batch_format: str | None = "default",
        zero_copy_batch: bool = False,
        fn_args: Sequence[Any] | None = None,
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Sequence[Any] | None = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        keeps_rows: bool = False,
        num_workers: int = 0,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        **ray_remote_args: Any,
    ) -> Dataset:
        """What a function gives for each batch.

            >>> ds = lockstep.data.range(3).map_batches(lambda batch: {"double": batch["id"] * 2})
            >>> ds.take_all()
            [{'double': 0}, {'double': 2}, {'double': 4}]

        The function runs when rows are read, in the process and on the threads that read them. The same block may be
        read again, and must give the same rows then. The function may give another number of rows than it gets. But a
        data set that is shuffled, or shared by several processes, has to know the number first: then all rows are read
        once to count them, unless `keeps_rows` says that it stays the same.

        Args:
            fn: gets a batch, and gives one of any format, or is a generator of batches. A class is constructed once in
                each process, and its instance is called.
            batch_size: rows of a batch; ``None``: those of a block. A batch never has rows of two blocks.
            batch_format: ``"numpy"`` (``"default"``): a dict of arrays, ``"pandas"``, or ``"pyarrow"``.
            zero_copy_batch: arrays may be read-only; else they may be changed.
            fn_args: further arguments of `fn`, as are `fn_kwargs`.
            fn_constructor_args: arguments for the class, as are `fn_constructor_kwargs`.
            keeps_rows: `fn` gives as many rows as it gets, always.
            num_workers: helper processes that call `fn`, for functions that are slower than the training loop and hold
                Python's lock. They start when rows are first read. Blocks are copied to them and back.
            compute: has no meaning here, as `num_cpus`, `num_gpus` and `ray_remote_args`; accepted for programs that
                were written for Ray.
        """
        function = Function("map_batches", fn, fn_args or (), fn_kwargs, fn_constructor_args, fn_constructor_kwargs)
        batch_format = "pyarrow" if batch_format is None else batch_format
        if batch_format not in FORMATS:
            raise ConfigError(f"[data] batch_format is {batch_format!r}; it must be one of {', '.join(FORMATS)}")
        size = DEFAULT_BATCH_SIZE if batch_size == "default" else batch_size
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ConfigError(f"[data] batch_size is {batch_size!r}; it must be 1 or more, or None for whole blocks")
        _check_options("map_batches", ray_remote_args)
        call = Batches(function, size, batch_format, bool(self._native.is_borrowed()), zero_copy_batch)
        workers = whole_number("num_workers", num_workers)
        helped = Helpers(call, workers, function.name) if workers else call
        made = self._new(self._native.map(helped, function.name, keeps_rows))
        made._workers = max(self._workers, workers)
        return made

    @step
    def map(self, fn: Callable[..., Any], **options: Any) -> Dataset:
        """What a function gives for each row, which is a dict; it gives a dict, too.

        >>> lockstep.data.range(2).map(lambda row: {"text": str(row["id"])}).take_all()
        [{'text': '0'}, {'text': '1'}]
        """
        function = row_function("map", fn, options)
        return self._new(self._native.map(Rows(function, "map"), function.name, True))

    @step
    def flat_map(self, fn: Callable[..., Any], **options: Any) -> Dataset:
        """All rows that a function gives for each row: it gives a list of dicts, or is a generator of dicts.

        >>> lockstep.data.range(2).flat_map(lambda row: [row, row]).take_all()
        [{'id': 0}, {'id': 0}, {'id': 1}, {'id': 1}]
        """
        function = row_function("flat_map", fn, options)
        return self._new(self._native.map(Rows(function, "flat_map"), function.name, False))

    @step
    def filter(self, fn: Any = None, *, expr: Any = None, **options: Any) -> Dataset:
        """The rows for which a function is true, or a condition holds.

            >>> lockstep.data.range(5).filter(expr="id > 2").take_all()
            [{'id': 3}, {'id': 4}]

        A condition is much faster than a function, and row groups of Parquet files are not even read if their
        statistics rule it out.

        Args:
            fn: gets a row, which is a dict.
            expr: a ``pyarrow.compute.Expression``, or text such as ``"x > 3 and name in ['a', 'b']"``.
        """
        if (fn is None) == (expr is None):
            raise ConfigError("[data] filter() takes either a function or expr=")
        if isinstance(fn, str | pyarrow.compute.Expression):
            fn, expr = None, fn
        if expr is not None:
            _check_options("filter", options)
            serialized = to_expression(expr).__reduce__()[1][0]
            return self._new(self._native.filter(serialized.to_pybytes()))
        function = row_function("filter", fn, options)
        return self._new(self._native.map(Rows(function, "filter"), function.name, False))

    @step
    def add_column(self, col: str, fn: Callable[..., Any], **options: Any) -> Dataset:
        """A new column, or a changed one: what a function gives for a ``DataFrame`` of some rows.

        >>> lockstep.data.range(2).add_column("double", lambda frame: frame["id"] * 2).take_all()
        [{'id': 0, 'double': 0}, {'id': 1, 'double': 2}]
        """
        if not isinstance(col, str):
            raise ConfigError(f"[data] add_column() got {col!r}; the name of a column is text")
        function = row_function("add_column", fn, options)
        return self._new(self._native.map(NewColumn(function, col), f"add_column: {col}", True))

    @step
    def select_columns(self, cols: str | Sequence[str], **options: Any) -> Dataset:
        """Only these columns, in this order. Others are not read."""
        _check_options("select_columns", options)
        return self._new(self._native.select_columns(_names(cols)))

    @step
    def drop_columns(self, cols: str | Sequence[str], **options: Any) -> Dataset:
        """All columns but these, which are not read."""
        _check_options("drop_columns", options)
        return self._new(self._native.drop_columns(_names(cols)))

    @step
    def rename_columns(self, names: Mapping[str, str] | Sequence[str]) -> Dataset:
        """Other names for some columns, by their old ones, or for all of them.

        >>> lockstep.data.range(1).rename_columns({"id": "n"}).take_all()
        [{'n': 0}]
        """
        if isinstance(names, str):
            raise ConfigError("[data] rename_columns() got text; it must be a dict of old and new names")
        if not isinstance(names, Mapping):
            old = list(pyarrow.schema(self._native).names)
            if len(old) != len(names):
                raise ConfigError(f"[data] rename_columns() got {len(names)} names, but there are {len(old)} columns")
            names = dict(zip(old, names, strict=True))
        return self._new(self._native.rename_columns(list(names.items())))

    @step
    def limit(self, limit: int) -> Dataset:
        """The first `limit` rows."""
        return self._new(self._native.limit(whole_number("limit", limit)))

    @step
    def union(self, *other: Dataset | Sequence[Dataset]) -> Dataset:
        """The rows of this data set, then those of the others, whose columns must have the same names.

        >>> lockstep.data.range(2).union(lockstep.data.range(1)).take_all()
        [{'id': 0}, {'id': 1}, {'id': 0}]
        """
        given: list[Any] = []
        for each in other:
            given.extend(each if isinstance(each, list | tuple) else [each])
        for each in given:
            _check_dataset("union", each)
        return self._new(native.union([self._native, *(each._native for each in given)]))

    @step
    def zip(self, other: Dataset) -> Dataset:
        """The columns of both data sets, side by side. They must have equally many rows. A name that both have gets
        ``_1`` in the second one."""
        _check_dataset("zip", other)
        return self._new(self._native.zip(other._native))

    def random_shuffle(
        self, seed: int | None = None, *, num_blocks: int | None = None, **ray_remote_args: Any
    ) -> Dataset:
        """All rows in a random order, which is the same for the same seed. They are held in memory.

        :meth:`iterator` shuffles without that, and anew in each epoch.
        """
        blocks = 0 if num_blocks is None else whole_number("num_blocks", num_blocks, 1)
        return self._shuffled(seed_of(seed), blocks)

    def randomize_block_order(self, seed: int | None = None) -> Dataset:
        """The blocks in a random order, each with its rows as they were. Nothing is held in memory."""
        return self._block_order(seed_of(seed))

    def random_sample(self, fraction: float, *, seed: int | None = None) -> Dataset:
        """Each row with a probability of `fraction`, in order.

        >>> 300 < lockstep.data.range(1000).random_sample(0.4, seed=1).count() < 500
        True
        """
        if not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise ConfigError(f"[data] random_sample() got {fraction!r}; it must be from 0 to 1")
        return self._sampled(fraction, seed_of(seed))

    @step
    def sort(self, key: str | Sequence[str] | None = None, descending: bool | Sequence[bool] = False) -> Dataset:
        """The rows by the values of one or more columns; nulls come last. They are held in memory.

        >>> lockstep.data.range(3).sort("id", descending=True).take_all()
        [{'id': 2}, {'id': 1}, {'id': 0}]
        """
        keys = [key] if isinstance(key, str) else list(key or ())
        if not keys:
            raise ConfigError("[data] sort() got no columns; name at least one")
        self._check_columns("sort", keys)
        downs = [descending] * len(keys) if isinstance(descending, bool) else list(descending)
        if len(downs) != len(keys):
            raise ConfigError(f"[data] sort() got {len(keys)} columns, but descending for {len(downs)}")
        order = [(name, "descending" if down else "ascending") for name, down in zip(keys, downs, strict=True)]
        text = ", ".join(f"{name} {way}" for name, way in order)
        return self._new(
            self._native.whole(
                lambda rows: pyarrow.table(rows).sort_by(order),
                description=f"sort: {text} (in memory)",
                keeps_rows=True,
                keeps_schema=True,
            )
        )

    def repartition(self, num_blocks: int, *, shuffle: bool = False) -> Dataset:
        """The rows in this many blocks, whose sizes differ by at most 1. They are held in memory.

        Args:
            num_blocks: the number; ``write_`` methods write as many files.
            shuffle: also puts the rows into a random order.
        """
        blocks = whole_number("num_blocks", num_blocks, 1)
        made = self._shuffled(seed_of(None), blocks) if shuffle else self._partitioned(blocks)
        made._is_partitioned = True
        return made

    @step
    def repeat(self, times: int | None = None) -> Dataset:
        """All rows, one time after the other. To go through the data for many epochs, use :meth:`iterator`."""
        if times is None:
            raise ConfigError("[data] repeat() needs a number; an iterator() goes through the data again and again")
        return self._new(native.union([self._native] * whole_number("times", times, 1)))

    def materialize(self) -> Dataset:
        """Reads all rows now, and holds them in memory."""
        ds = self._new(self._native.materialize())
        ds._made = Table(ds._native, "materialize")
        return ds

    @step
    def _partitioned(self, blocks: int) -> Dataset:
        return self._new(self._native.repartition(blocks))

    @step
    def _shuffled(self, seed: int, blocks: int) -> Dataset:
        return self._new(self._native.shuffle_rows(seed, blocks))

    @step
    def _block_order(self, seed: int) -> Dataset:
        return self._new(self._native.shuffle_blocks(seed))

    @step
    def _sampled(self, fraction: float, seed: int) -> Dataset:
        def sample(rows: Any, block: int) -> pyarrow.Table:
            numbers = numpy.random.Generator(numpy.random.Philox(key=[seed, block])).random(rows.num_rows)
            return pyarrow.table(rows).filter(pyarrow.array(numbers < fraction))

        return self._new(self._native.map(sample, f"random_sample: {fraction}, seed {seed}", False))

    def _check_columns(self, method: str, names: Sequence[str]) -> None:
        """Now, if the columns are known; else later."""
        for name in names:
            if not isinstance(name, str):
                raise ConfigError(f"[data] {method}() got {name!r}; the name of a column is text")
        if names and self._native.knows_schema():
            has = list(pyarrow.schema(self._native).names)
            for name in names:
                if name not in has:
                    raise ConfigError(f"[data] {method}() got {name!r}, but the columns are {', '.join(has)}")

    def _new(self, plan: Any) -> Dataset:
        from lockstep.data.dataset import Dataset

        made = Dataset(plan)
        made._workers = self._workers
        return made


# Of Ray's tasks.
_IGNORED = {
    "compute",
    "concurrency",
    "max_retries",
    "memory",
    "num_cpus",
    "num_gpus",
    "resources",
    "scheduling_strategy",
}


def _check_options(method: str, options: Mapping[str, Any]) -> None:
    for name in options:
        if name not in _IGNORED:
            raise TypeError(f"{method}() got an unexpected keyword argument {name!r}")


def row_function(method: str, fn: Any, options: dict[str, Any]) -> Function:
    names = ("fn_args", "fn_kwargs", "fn_constructor_args", "fn_constructor_kwargs")
    given = [options.pop(name, None) for name in names]
    _check_options(method, options)
    return Function(method, fn, *given)


def _names(names: str | Sequence[str]) -> list[str]:
    given = [names] if isinstance(names, str) else list(names)
    for name in given:
        if not isinstance(name, str):
            raise ConfigError(f"[data] a column is named by text, not by {name!r}")
    return given


def _check_dataset(method: str, other: Any) -> None:
    if not isinstance(other, Steps):
        raise ConfigError(f"[data] {method}() got a {type(other).__name__}; it must be a data set")


def whole_number(name: str, value: Any, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int | numpy.integer) or value < least:
        raise ConfigError(f"[data] {name} is {value!r}; it must be a whole number, {least} or more")
    return int(value)


def seed_of(seed: int | None) -> int:
    if seed is None:
        return secrets.randbits(32)
    if isinstance(seed, bool) or not isinstance(seed, int | numpy.integer) or not 0 <= seed < 2**64:
        raise ConfigError(f"[data] seed is {seed!r}; it must be from 0 to 2**64 - 1")
    return int(seed)
