"""Batches as PyTorch sees them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow
import torch

from lockstep.data._formats import batch_to_numpy, lists_to_numpy, writable
from lockstep.errors import ConfigError


class TorchFormat:
    """What iter_torch_batches() gives."""

    def __init__(
        self,
        dtypes: torch.dtype | Mapping[str, torch.dtype] | None,
        device: torch.device | str | None,
        collate_fn: Callable[[dict[str, Any]], Any] | None,
        pin_memory: bool,
    ) -> None:
        if collate_fn is not None and not callable(collate_fn):
            raise ConfigError(f"[data] collate_fn is {collate_fn!r}; it must be a function or None")
        if collate_fn is not None and dtypes is not None:
            raise ConfigError("[data] collate_fn and dtypes cannot be given together; choose the types in collate_fn")
        self._dtypes = dtypes
        self._device = _device(device)
        self._collate = collate_fn
        self._pin = pin_memory and _can_pin()
        self.takes_time = collate_fn is not None or self._is_on_gpu
        """Whether it should be done ahead."""

    @property
    def _is_on_gpu(self) -> bool:
        return self._device is not None and self._device.type != "cpu"

    def __call__(self, batch: Any) -> Any:
        if self._collate is not None:
            return self._placed(self._collate(batch_to_numpy(batch, may_change=True)))
        tensors = to_tensors(batch, self._dtypes)
        return tensors if self._device is None and not self._pin else self._placed(tensors)

    def _placed(self, value: Any) -> Any:
        """Tensors, wherever they are in `value`, where they shall be."""
        if isinstance(value, torch.Tensor):
            if (self._pin or self._is_on_gpu) and value.device.type == "cpu" and _can_pin():
                value = value.pin_memory()
            return value if self._device is None else value.to(self._device, non_blocking=True)
        if isinstance(value, Mapping):
            return {name: self._placed(item) for name, item in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self._placed, value))
        if isinstance(value, list | tuple):
            return type(value)(map(self._placed, value))
        return value


def to_tensors(
    batch: Any, dtypes: torch.dtype | Mapping[str, torch.dtype] | None, columns: list[str] | None = None
) -> dict[str, torch.Tensor]:
    """Tensors by column. Memory is copied if it is the user's own, so that a tensor may always be changed."""
    arrays = batch_to_numpy(batch, may_change=True, columns=columns)
    for name, array in arrays.items():
        if array.dtype.kind not in "biufc":
            arrays[name] = _lists(name, pyarrow.record_batch(batch)[name])
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    if dtypes is None:
        return tensors
    if not isinstance(dtypes, Mapping):
        return {name: tensor.to(dtypes) for name, tensor in tensors.items()}
    return {name: tensor.to(dtypes[name]) if name in dtypes else tensor for name, tensor in tensors.items()}


def _lists(name: str, column: pyarrow.Array) -> Any:
    array = lists_to_numpy(column)
    if array is not None and array.dtype.kind in "biufc":
        return writable(array, True)
    is_list = pyarrow.types.is_list(column.type) or pyarrow.types.is_large_list(column.type)
    why = "; its lists must have numbers, no nulls, and one length per batch" if is_list else ""
    raise ConfigError(
        f"[data] the column {name!r} is {column.type}, of which there are no tensors{why}; leave it out with "
        "select_columns(), or make tensors of it in collate_fn"
    )


class PairFormat:
    """What to_torch() gives: features and labels."""

    def __init__(
        self,
        columns: Sequence[str],
        label: str | None,
        features: Any,
        label_dtype: torch.dtype | None,
        feature_dtypes: Any,
        unsqueeze_label: bool,
        unsqueeze_features: bool,
    ) -> None:
        if label is not None:
            _check_column("label_column", label, columns)
        self._label = label
        self._label_dtype = label_dtype
        self._unsqueeze_label = unsqueeze_label
        self._unsqueeze_features = unsqueeze_features
        if features is None:
            features = [name for name in columns if name != label]
        elif isinstance(features, str):
            features = [features]
        self._groups: Mapping[Any, Sequence[str]]
        self._join: Callable[[dict[Any, torch.Tensor]], Any]
        if isinstance(features, Mapping):
            self._groups, self._join = dict(features), dict
        elif features and not isinstance(features[0], str):
            self._groups, self._join = dict(enumerate(features)), lambda tensors: list(tensors.values())
        else:
            self._groups, self._join = {0: features}, lambda tensors: tensors[0]
        for group in self._groups.values():
            if isinstance(group, str) or not group:
                raise ConfigError(f"[data] feature_columns has {group!r}; it must have lists of at least one column")
            for name in group:
                _check_column("feature_columns", name, columns)
        self._dtypes = self._by_group(feature_dtypes)

    def _by_group(self, dtypes: Any) -> dict[Any, torch.dtype | None]:
        if isinstance(dtypes, Mapping):
            given = dict(dtypes)
        elif isinstance(dtypes, list | tuple):
            given = dict(enumerate(dtypes))
        else:
            given = dict.fromkeys(self._groups, dtypes)
        if not given.keys() <= self._groups.keys():
            raise ConfigError(f"[data] feature_column_dtypes is {dtypes!r}; it must be one type, or as feature_columns")
        return {group: given.get(group) for group in self._groups}

    def __call__(self, batch: Any) -> tuple[Any, torch.Tensor | None]:
        wanted = dict.fromkeys([name for group in self._groups.values() for name in group])
        if self._label is not None:
            wanted[self._label] = None
        tensors = to_tensors(batch, None, list(wanted))
        features = {key: self._features(key, [tensors[name] for name in group]) for key, group in self._groups.items()}
        label = None
        if self._label is not None:
            label = tensors[self._label].to(self._label_dtype)
            if self._unsqueeze_label and label.ndim == 1:
                label = label.unsqueeze(1)
        return self._join(features), label

    def _features(self, key: Any, columns: list[torch.Tensor]) -> torch.Tensor:
        dtype = self._dtypes[key]
        columns = [column if dtype is None else column.to(dtype) for column in columns]
        if len(columns) == 1 and not self._unsqueeze_features:
            return columns[0]
        parts = [column.unsqueeze(1) if column.ndim == 1 else column for column in columns]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class TorchBatches(torch.utils.data.IterableDataset[Any]):
    """The data set that to_torch() gives."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        if torch.utils.data.get_worker_info() is not None:
            raise ConfigError(
                "[data] the data set of to_torch() reads ahead with threads of its own; give the DataLoader "
                "num_workers=0 and batch_size=None, or loop over the data set itself"
            )
        return self._begin()


def _device(device: torch.device | str | None) -> torch.device | None:
    if device is not None:
        return torch.device(device)
    ours, session = sys.modules.get("lockstep.torch._context"), sys.modules["lockstep.session"]
    if ours is None or session._session is None:
        return None
    found: torch.device = ours.device()
    return None if found.type == "cpu" else found


def _can_pin() -> bool:
    return torch.cuda.is_available()


def _check_column(argument: str, name: object, columns: Sequence[str]) -> None:
    if name not in columns:
        raise ConfigError(f"[data] {argument} has {name!r}, but the columns are {', '.join(columns)}")
