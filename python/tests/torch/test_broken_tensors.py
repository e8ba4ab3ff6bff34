"""Files of tensors that are broken, or were made to do harm, are errors."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
from lockstep import StorageError
from lockstep._encoding import decode


def load(entry: str, shape: tuple[int, ...] = (2, 3)) -> Any:
    raw = numpy.arange(torch.Size(shape).numel(), dtype="f4").tobytes()
    data = f'{{"t": {{"$tensor": "w", {entry}}}}}'
    return decode(data, lambda: [("w", "F32", shape, memoryview(raw))], lambda: b"")["t"]


BROKEN = [
    '"shape": [7]',
    '"shape": [2, 3], "offset": 1',
    '"shape": [1], "offset": 6',
    '"shape": [2, 2], "stride": [5, 1]',
    '"stride": [4, 1]',
    '"stride": [1]',
    '"stride": [3, -1]',
    '"offset": -1',
    '"offset": 1.5',
    '"offset": "0"',
    '"offset": null',
    '"offset": true',
    '"offset": [0]',
    '"shape": [-1]',
    '"shape": [2, true]',
    '"shape": 6',
    '"shape": {"a": 1}',
    '"shape": [18446744073709551616]',
    '"shape": [9223372036854775807, 9223372036854775807], "stride": [0, 0]',
    '"shape": [4294967296, 4294967296, 4294967296], "stride": [0, 0, 0]',
    '"shape": [2], "stride": [9223372036854775807]',
    '"shape": [1], "offset": 9223372036854775807',
    '"dtype": "float64"',
    '"dtype": "float64", "shape": [4]',
    '"dtype": "complex128", "shape": [2]',
    '"dtype": "nonsense", "shape": [1]',
    '"dtype": "load", "shape": [1]',
    '"dtype": ["float64"], "shape": [1]',
    '"layout": [3]',
    '"layout": [1000000000000, 1]',
    '"layout": [-3, 1]',
    '"layout": "x"',
    '"layout": [4, 1], "stride": [5, 1]',
    '"layout": [4, 1], "shape": [8]',
]


@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize("entry", BROKEN)
def test_entries_that_do_not_fit_are_refused(entry: str, kind: str) -> None:
    with pytest.raises(StorageError, match="'w'"):
        load(f'"kind": "{kind}", {entry}')


@pytest.mark.parametrize(
    "entry", ['"requires_grad": true, "dtype": "int32", "shape": [1]', '"shape": [0], "stride": []']
)
def test_entries_that_torch_refuses_are_storage_errors(entry: str) -> None:
    with pytest.raises(StorageError, match="'w'"):
        load(f'"kind": "torch", {entry}')


def test_an_entry_whose_elements_overlap_stays_inside() -> None:
    for kind in ("torch", "numpy"):
        assert load(f'"kind": "{kind}", "layout": [0, 0]').shape == (2, 3)
        assert load(f'"kind": "{kind}", "shape": [4, 3], "stride": [1, 1]').tolist() == [
            [0, 1, 2],
            [1, 2, 3],
            [2, 3, 4],
            [3, 4, 5],
        ]


@pytest.mark.parametrize(
    "form",
    [
        '{"$torch_dtype": "load"}',
        '{"$torch_dtype": 3}',
        '{"$torch_device": "moon"}',
        '{"$torch_size": "x"}',
        '{"$counter": 1}',
        '{"$tuple": 1}',
        '{"$numpy": "x", "value": 1}',
        '{"$numpy": "f4"}',
        '{"$dict": [[[], 1]]}',
        '{"$bytes": 1}',
        '{"$tensor": [1]}',
    ],
)
def test_broken_forms_are_storage_errors(form: str) -> None:
    with pytest.raises(StorageError):
        decode(f'{{"a": {form}}}', lambda: [], lambda: b"")
