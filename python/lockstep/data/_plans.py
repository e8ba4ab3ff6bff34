"""How data sets came to be, so that another process can make them again.

A data set is pickled as the call that made it, with what that call got: paths, options, functions, other data sets.
Rows in memory are pickled as an Arrow stream, apart from the pickle itself if the pickler allows it.
"""

from __future__ import annotations

import functools
import importlib
import pickle
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow

from lockstep.errors import SerializationError

if TYPE_CHECKING:
    from lockstep.data.dataset import Dataset

F = TypeVar("F", bound=Callable[..., Any])


class _Opening(threading.local):
    index = ""


opening = _Opening()
"""The index of the files that this thread opens, if another process has made it."""


def step(function: F) -> F:
    """For functions that give a data set, or several: what they give can be pickled. A call within another counts as
    part of that one."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        call = Call(function, args, kwargs)
        if function.__module__ == "lockstep.data.read":
            call.source = result._native
        many = isinstance(result, list | tuple)
        for number, dataset in enumerate(result if many else [result]):
            if not any(dataset is given for given in args):
                dataset._made = Part(call, number if many else None)
        return result

    return called  # type: ignore[return-value]


class Call:
    """A call, which gives the same again."""

    source: Any = None
    """What the call has opened, if it reads files."""
    _index = ""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._function = function.__module__, function.__qualname__
        self._given = args, kwargs

    @functools.cached_property
    def result(self) -> Any:
        """What it gives, made once."""
        module, name = self._function
        function: Any = importlib.import_module(module)
        for attribute in name.split("."):
            function = getattr(function, attribute)
        args, kwargs = self._given
        opening.index = self._index
        try:
            return function(*args, **kwargs)
        finally:
            opening.index = ""

    def __getstate__(self) -> dict[str, Any]:
        index = self._index if self.source is None else self.source.index()
        return {"_function": self._function, "_given": self._given, "_index": index}


class Part:
    """One of the data sets that a call gives."""

    def __init__(self, call: Call, number: int | None) -> None:
        self._call = call
        self._number = number

    def dataset(self) -> Dataset:
        """Makes it."""
        result = self._call.result
        return result if self._number is None else result[self._number]  # type: ignore[no-any-return]


class Table:
    """Rows in memory."""

    def __init__(self, native_dataset: Any, name: str) -> None:
        self._native = native_dataset
        self._name = name

    def dataset(self) -> Dataset:
        """In this process it is there already."""
        from lockstep.data.dataset import Dataset

        return Dataset(self._native)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        from lockstep.data.dataset import Dataset

        whole = Dataset(self._native)
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, whole.schema()) as stream:
            for batch in whole.iter_batches(16_384, "pyarrow"):
                stream.write_table(batch)
        buffer = sink.getvalue()
        return _table, (self._name, pickle.PickleBuffer(buffer) if protocol >= 5 else buffer.to_pybytes())


def _table(name: str, stream: Any) -> Table:
    from lockstep.data._native import native

    reader = pyarrow.ipc.open_stream(pyarrow.py_buffer(stream))  # shares the memory
    return Table(native.from_stream(reader, name), name)


def rebuild(made: Part | Table, rows: list[int] | None) -> Dataset:
    """The data set, in the process that it was sent to. `rows` of its blocks need not be counted again."""
    dataset = made.dataset()
    dataset._made = made
    if rows is not None and not dataset._native.is_counted():
        dataset._native.set_rows(rows)
    return dataset


def reduce(dataset: Dataset) -> tuple[Any, ...]:
    """How a data set is pickled."""
    if dataset._made is None:
        raise SerializationError(
            f"[data] this data set cannot be sent to another process: {dataset._native.plan()}; "
            "call materialize() on it first"
        )
    return rebuild, (dataset._made, dataset._native.rows() if dataset._native.is_counted() else None)
