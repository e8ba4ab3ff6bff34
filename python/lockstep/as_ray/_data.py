"""``ray.data`` as the chosen release has it: the functions of ``lockstep.data``, which here also take Ray's arguments
for its cluster. Those have no meaning on one machine, and are dropped."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy

import lockstep.data
from lockstep.as_ray import _cluster
from lockstep.as_ray._dataset import of_ray
from lockstep.as_ray._rows import ITEM, PLAIN, TENSOR, rows_table
from lockstep.errors import ConfigError

_OF_THE_CLUSTER = frozenset(
    [
        "parallelism",
        "ray_remote_args",
        "meta_provider",
        "partition_filter",
        "partitioning",
        "arrow_open_stream_args",
        "arrow_open_file_args",
        "tensor_column_schema",
        "output_arrow_format",
        "override_num_blocks",
        "concurrency",
    ]
)


def _of_ray(function: Callable[..., Any], column: str | None = None) -> Callable[..., Any]:
    """The function with Ray's arguments. Up to Ray 2.0, the values of `column` are the rows."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        given = {name: value for name, value in kwargs.items() if name not in _OF_THE_CLUSTER}
        parallelism = kwargs.get("parallelism", -1)
        made = of_ray(function(*args, **given), max(0, -1 if parallelism is None else parallelism))
        if not PLAIN or column is None or made.columns() != [column]:
            return made
        return made.rename_columns([TENSOR if column == "data" else ITEM])

    return called


def _values(refs: Any) -> Any:
    """What ``ray.put`` gave references to."""
    several = isinstance(refs, list | tuple)
    found = [ref._wait(None) if isinstance(ref, _cluster.ObjectRef) else ref for ref in (refs if several else [refs])]
    return found if several else found[0]


def from_items(items: Iterable[Any], *, parallelism: int = -1, output_arrow_format: bool = True) -> Any:
    """Values. Up to Ray 2.0 they are the rows; later, those that are no dicts are the column ``item``."""
    rows = list(items)
    if PLAIN and rows and not all(isinstance(row, Mapping) for row in rows):
        return from_arrow(rows_table(rows), parallelism=parallelism)
    if PLAIN:
        return _of_ray(lockstep.data.from_items, "item")(rows, parallelism=parallelism)
    return _of_ray(lockstep.data.from_items)(rows, parallelism=parallelism)


from_arrow = _of_ray(lockstep.data.from_arrow)
from_huggingface = _of_ray(lockstep.data.from_huggingface)
from_numpy = _of_ray(lockstep.data.from_numpy, "data")
from_pandas = _of_ray(lockstep.data.from_pandas)
from_torch = _of_ray(lockstep.data.from_torch)
range = _of_ray(lockstep.data.range, "id")
read_binary_files = _of_ray(lockstep.data.read_binary_files, "bytes")
read_csv = _of_ray(lockstep.data.read_csv)
read_images = _of_ray(lockstep.data.read_images)
read_json = _of_ray(lockstep.data.read_json)
read_numpy = _of_ray(lockstep.data.read_numpy, "data")
read_parquet = _of_ray(lockstep.data.read_parquet)
read_parquet_bulk = _of_ray(lockstep.data.read_parquet)
read_text = _of_ray(lockstep.data.read_text, "text")


def from_arrow_refs(tables: Any) -> Any:
    """As from_arrow(), of references; the next two likewise."""
    return from_arrow(_values(tables))


def from_pandas_refs(frames: Any) -> Any:
    return from_pandas(_values(frames))


def from_numpy_refs(arrays: Any) -> Any:
    return from_numpy(_values(arrays))


def range_table(n: int, *, parallelism: int = -1) -> Any:
    """The rows ``{"value": 0}`` and so on. Ray 2.6 has it no more: DeprecationWarning."""
    if not PLAIN:
        raise DeprecationWarning("[ray.data.range_table] Ray 2.6 has range() instead, whose column is `id`")
    return of_ray(lockstep.data.range(n).rename_columns({"id": "value"}), max(0, parallelism))


range_arrow = range_table


def range_tensor(n: int, *, shape: Sequence[int] = (1,), parallelism: int = -1) -> Any:
    """Tensors of this shape: the rows themselves up to Ray 2.0, later the column ``data``. Those of row i are filled
    with i."""
    column = TENSOR if PLAIN else "data"

    def filled(batch: dict[str, Any]) -> dict[str, Any]:
        ids = batch["id"].reshape(-1, *(1 for _ in shape))
        return {column: numpy.broadcast_to(ids, (len(ids), *shape)).copy()}

    made = lockstep.data.range(n).map_batches(filled, batch_format="numpy", keeps_rows=True)
    return of_ray(made, max(0, parallelism))


def TensorArray(values: Any) -> list[Any]:  # a class in Ray
    """A column of tensors for a ``DataFrame``."""
    return list(numpy.asarray(values))


class DataContext:
    """Settings of Ray's own execution, which are kept and have no effect."""

    _current: ClassVar[Any] = None

    def __init__(self, **settings: Any) -> None:
        self.__dict__.update(settings)

    @classmethod
    def get_current(cls) -> Any:
        """The one of this process."""
        if DataContext._current is None:
            DataContext._current = SimpleNamespace(execution_options=SimpleNamespace())
        return DataContext._current


class ActorPoolStrategy:
    """For ``map_batches(compute=...)``, which makes one instance of a class in each process that reads anyway."""

    def __init__(
        self,
        legacy_min_size: int | None = None,
        legacy_max_size: int | None = None,
        *,
        size: int | None = None,
        min_size: int | None = None,
        max_size: int | None = None,
        max_tasks_in_flight_per_actor: int | None = None,
    ) -> None:
        if size is not None and size < 1:
            raise ConfigError(f"[ray.data] size of ActorPoolStrategy is {size}; it must be 1 or more")
        self.min_size = size or min_size or legacy_min_size or 1
        self.max_size = size or max_size or legacy_max_size or self.min_size
