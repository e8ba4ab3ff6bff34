"""``ray.data`` as Ray 2.6 has it: the functions of ``lockstep.data``, which here also take Ray's arguments for its
cluster. Those have no meaning on one machine, and are dropped."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy

import lockstep.data
from lockstep.data import Dataset
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


def _of_ray(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{name: value for name, value in kwargs.items() if name not in _OF_THE_CLUSTER})

    return called


from_arrow = _of_ray(lockstep.data.from_arrow)
from_arrow_refs = _of_ray(lockstep.data.from_arrow_refs)
from_huggingface = _of_ray(lockstep.data.from_huggingface)
from_items = _of_ray(lockstep.data.from_items)
from_numpy = _of_ray(lockstep.data.from_numpy)
from_numpy_refs = _of_ray(lockstep.data.from_numpy_refs)
from_pandas = _of_ray(lockstep.data.from_pandas)
from_pandas_refs = _of_ray(lockstep.data.from_pandas_refs)
from_torch = _of_ray(lockstep.data.from_torch)
range = _of_ray(lockstep.data.range)
read_binary_files = _of_ray(lockstep.data.read_binary_files)
read_csv = _of_ray(lockstep.data.read_csv)
read_images = _of_ray(lockstep.data.read_images)
read_json = _of_ray(lockstep.data.read_json)
read_numpy = _of_ray(lockstep.data.read_numpy)
read_parquet = _of_ray(lockstep.data.read_parquet)
read_parquet_bulk = _of_ray(lockstep.data.read_parquet)
read_text = _of_ray(lockstep.data.read_text)


def range_tensor(n: int, *, shape: Sequence[int] = (1,), parallelism: int = -1) -> Dataset:
    """Tensors of this shape in the column ``data``; those of row i are filled with i."""

    def filled(batch: dict[str, Any]) -> dict[str, Any]:
        ids = batch["id"].reshape(-1, *(1 for _ in shape))
        return {"data": numpy.broadcast_to(ids, (len(ids), *shape)).copy()}

    return lockstep.data.range(n).map_batches(filled, batch_format="numpy", keeps_rows=True)


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
