"""torch tensors in a checkpoint: which memory is stored, and where each tensor is in it.

Tensors share memory in many ways: tied weights, a parameter and its ``.data``, slices and transposes of one tensor.
Shared memory is stored once, and is shared again when it is loaded. The entries are those of ``_arrays``.

Memory is borrowed, not copied, except for GPU tensors and views with gaps; of these, only the used elements are stored.
Imported only if torch is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

import torch

from lockstep import _arrays
from lockstep._arrays import c_strides, extent
from lockstep.errors import StorageError

_ALIGNMENT = 16
"""Size of the widest element, in bytes."""

Add = Callable[[tuple[str, ...], str, tuple[int, ...], Any], str]
"""Puts an array (its path in the dict, type, shape, bytes) into the file and returns its name."""


# ---------------------------------------------------------------------- saving


@dataclass
class _View:
    """A tensor of the dict, or several that view the same part of the same memory."""

    tensor: torch.Tensor
    memory: torch.Tensor
    """The same memory without gradient and without conjugation."""
    path: tuple[str, ...]
    entries: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dtype = _name(self.memory.dtype)
        self.size = self.memory.dtype.itemsize
        self.shape = tuple(self.memory.shape)
        self.stride = self.memory.stride()

    @cached_property
    def offset(self) -> int:
        """The index of its first element in the storage."""
        return int(self.memory.storage_offset())

    @cached_property
    def begin(self) -> int:
        """The offset of its first byte in the storage."""
        return self.offset * self.size

    @cached_property
    def end(self) -> int:
        """The offset after its last byte."""
        return self.begin + extent(self.shape, self.stride) * self.size

    @cached_property
    def base(self) -> tuple[int, ...]:
        """Its shape with expanded axes reduced to one element."""
        return tuple(1 if step == 0 else count for count, step in zip(self.shape, self.stride, strict=True))


class Views:
    """The torch tensors of one checkpoint. First all are collected by take(), then stored by store()."""

    def __init__(self, add: Add) -> None:
        self._add = add
        self._views: dict[Any, _View] = {}

    def take(self, tensor: torch.Tensor, path: tuple[str, ...]) -> dict[str, Any] | None:
        """The entry of a tensor, which store() completes; None if it must be pickled."""
        if not _is_plain(tensor):
            return None
        entry: dict[str, Any] = {"$tensor": "", "kind": "torch"}
        if isinstance(tensor, torch.nn.Parameter):
            entry["parameter"] = True
        elif getattr(tensor, "_is_buffer", False):
            entry["buffer"] = "persistent" if getattr(tensor, "persistent", True) else "transient"
        if tensor.requires_grad:
            entry["requires_grad"] = True
        memory = tensor.detach().resolve_neg()  # has its own memory if there is something to negate
        if memory.is_conj():
            entry["conj"] = True
            memory = memory.conj()
        # state_dict() makes new tensors of the same memory: tied weights are recognised by their address.
        place = (memory.device, memory.data_ptr(), memory.shape, memory.stride(), memory.dtype)
        key = place if memory.numel() > 0 and not tensor.is_neg() else id(tensor)
        if key not in self._views:
            self._views[key] = _View(tensor, memory, path)
        self._views[key].entries.append(entry)
        return entry

    def store(self) -> None:
        """Adds the memory to the file and completes the entries."""
        storages: dict[Any, list[_View]] = {}
        for key, view in self._views.items():
            place = (view.memory.device, view.memory.untyped_storage().data_ptr())
            storages.setdefault(place if 0 not in view.shape else key, []).append(view)
        for views in storages.values():
            for overlapping in _overlapping(views):
                self._store(overlapping)

    def _store(self, views: list[_View]) -> None:
        if len(views) == 1 and views[0].stride == c_strides(views[0].shape):
            self._store_plain(views[0])
        elif len({view.dtype for view in views}) > 1:
            self._store_mixed(views)
        else:
            begin, end = min(view.begin for view in views), max(view.end for view in views)
            count = (end - begin) // views[0].size
            covers = [view for view in views if view.begin == begin and _is_dense(view.base, view.stride, count)]
            groups = None if covers else _groups(views)
            for group in groups or []:
                self._store_group(group)
            if groups is None:
                self._store_whole(views, next(filter(_is_ordered, covers), None))

    def _store_plain(self, view: _View) -> None:
        """Stores a tensor without special properties, as nearly all are."""
        word, shape = _arrays.as_stored(view.dtype, view.shape)
        name = self._add(view.path, word, shape, _flat(view.memory).cpu().numpy())
        _describe(view, _Stored(name, view.dtype, view.shape, None), view.stride, 0)

    def _store_whole(self, views: list[_View], cover: _View | None) -> None:
        """Stores everything from the first element to the last: as `cover`, if that is all of it in C order, or else
        flat."""
        first = cover or views[0]
        begin, end = min(view.begin for view in views), max(view.end for view in views)
        shape = cover.base if cover else ((end - begin) // first.size,)
        name = self._add(first.path, *_arrays.as_stored(first.dtype, shape), _bytes(views, begin, end))
        for view in views:
            offset = (view.begin - begin) // view.size
            _describe(view, _Stored(name, first.dtype, shape, None), view.stride, offset)

    def _store_mixed(self, views: list[_View]) -> None:
        """Stores memory that is viewed as several types: as one of them if that covers all of it, or else as bytes."""
        begin, end = min(view.begin for view in views), max(view.end for view in views)
        aligned = all((view.begin - begin) % view.size == 0 for view in views)
        covers = [v for v in views if aligned and (v.begin, v.end) == (begin, end) and _is_ordered(v)]
        if covers:
            return self._store_whole(views, covers[0])
        begin -= begin % _ALIGNMENT
        name = self._add(views[0].path, "U8", (end - begin,), _bytes(views, begin, end))
        for view in views:
            stored = _Stored(name, "uint8", (end - begin,), None)
            _describe(view, stored, view.stride, (view.begin - begin) // view.size)

    def _store_group(self, group: list[_Box]) -> None:
        """Stores the smallest box around overlapping boxes, without the gaps between its rows."""
        view, bounds = group[0].view, _bounds(group)
        shape, strides, start = tuple(_minus(bounds.high, bounds.low)), bounds.strides, bounds.begin
        if len(group) == 1:  # a single view keeps its axes
            shape, strides, start = view.base, view.stride, view.offset
        values = _widest([box.view for box in group]).as_strided(shape, strides, start).contiguous()
        name = self._add(view.path, *_arrays.as_stored(view.dtype, shape), _flat(values).cpu().numpy())
        keeps_gaps = extent(shape, strides) <= _arrays.MAX_SPREAD * math.prod(shape)
        stored = _Stored(name, view.dtype, shape, strides if keeps_gaps else None)
        closed = c_strides(shape)
        for box in group:
            if keeps_gaps:
                _describe(box.view, stored, box.view.stride, box.view.offset - start)
            elif len(group) == 1:
                _describe(view, stored, [step and usual for step, usual in zip(strides, closed, strict=True)], 0)
            else:
                usual_of = dict(zip(strides, closed, strict=True))
                stride = [step and usual_of.get(step, 1) for step in box.view.stride]
                _describe(box.view, stored, stride, _dot(_minus(box.low, bounds.low), closed))


class _Stored(NamedTuple):
    """An array of the file, as the entries refer to it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    """Set if gaps are kept."""


class _Box(NamedTuple):
    """A view as part of a grid: from `low` (inclusive) to `high` (exclusive), along axes of these strides, relative to
    `origin`."""

    view: _View
    origin: int
    strides: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def begin(self) -> int:
        """The index of its first element in the storage."""
        return self.origin + _dot(self.low, self.strides)

    @property
    def end(self) -> int:
        """The index after its last element."""
        return self.origin + _dot((start - 1 for start in self.high), self.strides) + 1

    def meets(self, other: _Box) -> bool:
        return all(a < d and c < b for a, b, c, d in zip(self.low, self.high, other.low, other.high, strict=True))


def _describe(view: _View, stored: _Stored, stride: Sequence[int], offset: int) -> None:
    """Completes the entries of a view; default values are left out."""
    form: dict[str, Any] = {"$tensor": stored.name}
    is_other = view.dtype != stored.dtype or view.dtype in _arrays.PARTS
    if is_other:
        form["dtype"] = view.dtype
    if is_other or view.shape != stored.shape:
        form["shape"] = list(view.shape)
    if stored.strides is not None:
        form["layout"] = _stored_layout(stored.dtype, stored.strides)
    usual = stored.strides if stored.strides is not None and "shape" not in form else c_strides(view.shape)
    if tuple(stride) != usual:
        form["stride"] = list(stride)
    if offset:
        form["offset"] = offset
    for entry in view.entries:
        entry.update(form)


def _stored_layout(dtype: str, strides: Sequence[int]) -> list[int]:
    parts = _arrays.PARTS.get(dtype, ("", 1))[1]
    return [stride * parts for stride in strides] + [1] * (parts > 1)


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        tensor.layout is torch.strided
        and tensor.device.type != "meta"
        and not tensor.is_nested
        and not tensor.is_quantized
        and _arrays.is_known(_name(tensor.dtype))
    )


def _overlapping(views: list[_View]) -> Iterable[list[_View]]:
    """Views of one storage, in groups whose bytes do not overlap."""
    if len(views) == 1:
        return [views]
    groups: list[list[_View]] = []
    end = -1
    for view in sorted(views, key=lambda view: view.begin):
        if view.begin >= end:
            groups.append([])
        groups[-1].append(view)
        end = max(end, view.end)
    return groups


def _groups(views: list[_View]) -> list[list[_Box]] | None:
    """Views as boxes on one grid, grouped by overlap; None if they do not fit one grid.

    The grid's axes are the views' own: ``x[:, :2]`` and ``x[1:, 1]`` of a 4 x 9 tensor have axes of strides 9 and 1.
    Its origin is where the original tensor may have started.
    """
    for origin in (0, min(view.offset for view in views)):
        groups = _joined(_on_grid(views, origin))
        room = _widest(views).untyped_storage().nbytes() // views[0].size
        if groups and all(_bounds(group).end <= room for group in groups):
            return groups
    return None


def _on_grid(views: list[_View], origin: int) -> list[_Box]:
    """The boxes of the views on a grid that starts at `origin`; empty if they do not fit."""
    steps = {step for view in views for _, step in _axes(view)}
    if not steps or any((view.offset - origin) % min(steps) for view in views):
        steps.add(1)
    strides = tuple(sorted(steps, reverse=True))
    boxes = []
    for view in views:
        counts = dict.fromkeys(strides, 1) | {step: count for count, step in _axes(view)}
        low, rest = [], view.offset - origin
        for stride in strides:
            low.append(rest // stride)
            rest %= stride
        if rest or len({step for _, step in _axes(view)}) < len(_axes(view)):
            return []  # between the lines of the grid, or two axes with the same stride
        high = tuple(start + counts[stride] for start, stride in zip(low, strides, strict=True))
        boxes.append(_Box(view, origin, strides, tuple(low), high))
    reach = 0
    for axis in range(len(strides) - 1, -1, -1):
        if reach >= strides[axis]:
            return []  # a row of the grid would run into the next
        reach += (max(box.high[axis] for box in boxes) - 1) * strides[axis]
    return boxes


def _joined(boxes: list[_Box]) -> list[list[_Box]]:
    groups: list[list[_Box]] = []
    for box in boxes:
        met = [group for group in groups if any(box.meets(other) for other in group)]
        groups = [group for group in groups if not any(group is other for other in met)]
        groups.append([*(other for group in met for other in group), box])
    return groups


def _bounds(group: list[_Box]) -> _Box:
    """The smallest box around these."""
    low, high = zip(*(box.low for box in group), strict=True), zip(*(box.high for box in group), strict=True)
    return group[0]._replace(low=tuple(map(min, low)), high=tuple(map(max, high)))


def _axes(view: _View) -> list[tuple[int, int]]:
    """Count and stride of the axes that have more than one element in memory."""
    return [(count, step) for count, step in zip(view.base, view.stride, strict=True) if count > 1]


def _is_dense(shape: Sequence[int], strides: Sequence[int], count: int) -> bool:
    """Whether these are `count` elements without gaps or overlap, in any order."""
    expected = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return expected == count


def _is_ordered(view: _View) -> bool:
    """Whether its elements are in C order without gaps."""
    usual = c_strides(view.base)
    return all(n == 1 or a == b for n, a, b in zip(view.base, view.stride, usual, strict=True))


def _bytes(views: Sequence[_View], begin: int, end: int) -> Any:
    """A numpy array of these bytes of the views' storage."""
    storage = _widest(views).untyped_storage()
    flat = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return flat.set_(storage, begin, (end - begin,), (1,)).cpu().numpy()


def _flat(values: torch.Tensor) -> torch.Tensor:
    """The bytes of a contiguous tensor; an axis of one element may have any stride."""
    return values.as_strided((values.numel(),), (1,)).view(torch.uint8)


def _widest(views: Sequence[_View]) -> torch.Tensor:
    """The view whose storage extends furthest; several storages may start at the same address."""
    return max((view.memory for view in views), key=lambda memory: memory.untyped_storage().nbytes())


@cache
def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _minus(a: Iterable[int], b: Iterable[int]) -> list[int]:
    return [x - y for x, y in zip(a, b, strict=True)]


def _dot(a: Iterable[int], b: Iterable[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


# ---------------------------------------------------------------------- loading


def restore(tensor: _arrays.Tensor, found: Mapping[str, Any], memories: dict[Any, Any]) -> torch.Tensor:
    """The tensor of an entry. `memories` holds what was already loaded, for tensors that share it."""
    layout = _arrays.layout_of(found, tensor)
    try:
        if (tensor[0], layout) not in memories:
            memories[tensor[0], layout] = _memory(tensor, layout)
        flat = memories[tensor[0], layout]
        if "dtype" in found:
            flat = _seen_as(flat, found["dtype"])
        view: torch.Tensor = flat.as_strided(*_arrays.view_of(found, tensor, layout, flat.numel()))
        if found.get("conj"):
            view = view.conj()
        wants = bool(found.get("requires_grad"))
        if found.get("parameter"):
            return torch.nn.Parameter(view, requires_grad=wants)
        if "buffer" in found:
            buffer: torch.Tensor = torch.nn.Buffer(view, persistent=found["buffer"] != "transient")
            return buffer.requires_grad_(wants)
        return view.requires_grad_() if wants else view
    except (RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"[checkpoint] the array {tensor[0]!r} is not as data.json says: {error}") from error


def _memory(tensor: _arrays.Tensor, layout: tuple[int, ...] | None) -> torch.Tensor:
    """The stored array as a new flat tensor, with its gaps restored."""
    dtype = getattr(torch, _arrays.dtype_name(tensor))
    count = extent(tensor[2], layout or c_strides(tensor[2])) * dtype.itemsize
    memory = torch.zeros(count, dtype=torch.uint8) if layout else torch.empty(count, dtype=torch.uint8)
    _arrays.fill(memory.numpy(), tensor, layout)
    return memory.view(dtype)


def _seen_as(flat: torch.Tensor, name: Any) -> torch.Tensor:
    if type(name) is not str or not _arrays.is_known(name):
        raise ValueError(f"there is no type {name!r}")
    dtype = getattr(torch, name)
    raw = flat.view(torch.uint8)
    return raw[: raw.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
