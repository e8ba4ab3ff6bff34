"""Reads a result.json into columns. A million reports take seconds, and numbers take eight bytes each."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy

from lockstep._nested import leaves
from lockstep.errors import StorageError

_CHUNK_BYTES = 1 << 17
"""How much of the file is read at once: rows exist for that much of it only. A megabyte takes half as long again, as it
does not fit in the processor's caches."""
_ARRAYS: dict[type, Any] = {bool: numpy.bool_, int: numpy.int64, float: numpy.float64}


def read_columns(path: Path) -> dict[str, Any]:
    """The reports in a result.json by column, as arrays or lists; nested keys are joined by slashes. A report without
    the key has NaN. StorageError names a line that is not a report; there are no columns if there is no file."""
    columns: dict[str, list[Any]] = {}  # of each column the parts, one per chunk
    sizes: list[int] = []
    texts: dict[str, str] = {}  # host names, dates and similar strings repeat in every row
    for rows in (block for chunk in _chunks(path) for block in _blocks(chunk)):
        found = _columns_of_equal(rows) or _columns_of_any(rows)
        for key in found:
            if key not in columns:
                columns[key] = [numpy.full(size, math.nan) for size in sizes]
        for key, parts in columns.items():
            values = found.get(key)
            parts.append(numpy.full(len(rows), math.nan) if values is None else _packed(values, texts))
        sizes.append(len(rows))
    return {key: _joined(columns.pop(key)) for key in list(columns)}


def _chunks(path: Path) -> Iterator[list[dict[str, Any]]]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"[result] {path} cannot be read: {error}") from error
    with file:
        number = 1
        while lines := file.readlines(_CHUNK_BYTES):
            if rows := list(_parsed(lines, number, path)):
                yield rows
            number += len(lines)


def _parsed(lines: list[bytes], first: int, path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, first):
        try:
            row = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
            if not line.endswith(b"\n"):  # a driver that was killed may leave half a line
                return
            raise StorageError(f"[result] line {number} of {path} is not what Lockstep writes: {error}") from error
        if not isinstance(row, dict):
            raise StorageError(f"[result] line {number} of {path} is not what Lockstep writes: it is not a JSON object")
        yield row


def _blocks(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Splits them into blocks with the same keys, unless the keys change so often that this does not pay."""
    blocks = [list(block) for _, block in itertools.groupby(rows, tuple)]
    return blocks if 8 * len(blocks) <= len(rows) else [rows]


def _columns_of_equal(rows: Sequence[dict[str, Any]]) -> dict[str, Sequence[Any]] | None:
    """The values of each leaf, by path; None if not all rows have the same leaves in the same order."""
    if len(set(map(tuple, rows))) > 1:
        return None
    columns: dict[str, Sequence[Any]] = {}
    for key, values in zip(rows[0], zip(*map(dict.values, rows), strict=True), strict=True):
        kinds = set(map(type, values))
        if dict not in kinds:
            columns[key] = values
            continue
        inner = _columns_of_equal(values) if kinds == {dict} else None
        if inner is None:
            return None
        columns.update({f"{key}/{name}": column for name, column in inner.items()})
    return columns


def _columns_of_any(rows: Sequence[dict[str, Any]]) -> dict[str, Sequence[Any]]:
    """The same for any rows: the leaves are in the order in which they first appear."""
    columns: dict[str, list[Any]] = {}
    for count, row in enumerate(rows):
        flat = {key: value for key, value in leaves(row) if value != {}}
        for key in flat:
            if key not in columns:
                columns[key] = [math.nan] * count
        for key, column in columns.items():
            column.append(flat.get(key, math.nan))
    return dict(columns)


def _packed(values: Sequence[Any], texts: dict[str, str]) -> Any:
    """As an array if all are numbers of one type that fit in it, else as a list in which equal strings are one."""
    kinds = set(map(type, values))
    if len(kinds) == 1 and (dtype := _ARRAYS.get(kinds.pop())) is not None:
        try:
            return numpy.array(values, dtype)
        except OverflowError:  # an int of more than 64 bits
            return list(values)
    return [texts.setdefault(value, value) if type(value) is str else value for value in values]


def _joined(parts: list[Any]) -> Any:
    """One array if all parts are arrays of one type; else a list, whose type pandas finds."""
    dtypes = {part.dtype if isinstance(part, numpy.ndarray) else None for part in parts}
    if len(dtypes) == 1 and None not in dtypes:
        return numpy.concatenate(parts)
    return [value for part in parts for value in (part.tolist() if isinstance(part, numpy.ndarray) else part)]
