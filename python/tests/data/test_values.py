"""Values and arguments that are not the usual ones."""

from __future__ import annotations

import json
from pathlib import Path

import lockstep.data
import numpy
import pyarrow
import pytest
import torch
from lockstep import ConfigError


def test_items_may_hold_arrays() -> None:
    ds = lockstep.data.from_items([{"x": numpy.full((2, 3), n), "y": n} for n in range(4)])
    batch = ds.take_batch(4)
    assert batch["x"].shape == (4, 2, 3) and batch["x"][3, 1, 2] == 3
    assert lockstep.data.from_items([numpy.zeros(2)] * 3).take_batch(3)["item"].shape == (3, 2)
    with pytest.raises(ConfigError, match="the column 'item' cannot be stored"):
        lockstep.data.from_items([1, "a"])
    with pytest.raises(ConfigError, match="got a int; it must be a list"):
        lockstep.data.from_items(5)  # type: ignore[arg-type]


def test_arrays_of_another_byte_order(tmp_path: Path) -> None:
    array = numpy.arange(6, dtype=">i4").reshape(3, 2)
    numpy.save(tmp_path / "rows.npy", array)
    for ds in (
        lockstep.data.read_numpy(tmp_path / "rows.npy"),
        lockstep.data.from_numpy(array),
        lockstep.data.range(3).map_batches(lambda batch: {"data": array, "flat": array[:, 0]}),
    ):
        assert ds.take_batch(3)["data"].tolist() == array.tolist()


def test_arrays_that_arrow_does_not_have(tmp_path: Path) -> None:
    array = numpy.arange(3) + 1j
    numpy.save(tmp_path / "rows.npy", array)
    with pytest.raises(ConfigError, match="no columns of complex128"):
        lockstep.data.read_numpy(tmp_path / "rows.npy")
    with pytest.raises(ConfigError, match="no columns of complex128"):
        lockstep.data.from_numpy(array)


def test_lists_of_one_length_become_tensors() -> None:
    rows = [{"x": [float(n), 0.5], "deep": [[n, 1], [2, 3]], "y": n} for n in range(5)]
    for ds in (lockstep.data.from_items(rows), lockstep.data.from_items(rows).materialize()):
        first, last = list(ds.iter_torch_batches(batch_size=3))
        assert first["x"].tolist() == [row["x"] for row in rows[:3]] and first["x"].dtype == torch.float64
        assert last["deep"].tolist() == [row["deep"] for row in rows[3:]]
        first["x"][0] = 7  # it may be changed
        features, labels = next(iter(ds.to_torch(label_column="y", feature_columns=["x"], batch_size=5)))
        assert features.shape == (5, 2) and labels.shape == (5, 1)
    assert ds.take_all() == rows


@pytest.mark.parametrize(
    "values", [[[1], [2, 3]], [[1], None], [[1], [None]], [["a"], ["b"]], ["a", "b"], [True, None]]
)
def test_what_becomes_no_tensor(values: list[object]) -> None:
    ds = lockstep.data.from_items([{"x": value} for value in values])
    with pytest.raises(ConfigError, match=r"the column 'x' is .*, of which there are no tensors"):
        next(ds.iter_torch_batches())
    assert next(ds.iter_torch_batches(collate_fn=lambda batch: len(batch["x"]))) == 2


def test_a_data_set_without_rows_is_written_with_its_columns(tmp_path: Path) -> None:
    ds = lockstep.data.from_arrow(
        pyarrow.table({"x": pyarrow.array([], pyarrow.int64()), "s": pyarrow.array([], "str")})
    )
    ds.write_parquet(str(tmp_path / "parquet"))
    ds.write_csv(str(tmp_path / "csv"))
    ds.write_json(str(tmp_path / "json"))
    assert lockstep.data.read_parquet(tmp_path / "parquet").schema() == ds.schema()
    assert lockstep.data.read_csv(tmp_path / "csv").columns() == ["x", "s"]
    for read in (lockstep.data.read_parquet, lockstep.data.read_csv, lockstep.data.read_json):
        assert read(tmp_path / read.__name__.removeprefix("read_")).take_all() == []  # type: ignore[operator]


def test_types_behind_many_small_blocks_of_nulls(tmp_path: Path) -> None:
    rows = [{"a": {"b": None if n < 5000 else n}} for n in range(6000)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert lockstep.data.read_json(tmp_path / "rows.jsonl", block_bytes=1000).take_all() == rows


def test_flat_map_needs_lists_of_rows() -> None:
    for given in (5, {"id": 5}):
        with pytest.raises(ConfigError, match=r"flat_map\(\) gave a (int|dict) for a row; it must give a list of rows"):
            lockstep.data.range(3).flat_map(lambda row, given=given: given).take_all()


def test_states_that_are_none() -> None:
    it = lockstep.data.range(3).iterator()
    with pytest.raises(ConfigError, match="got a NoneType; it must be what state_dict"):
        it.load_state_dict(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="epoch is 'one'; it must be a whole number"):
        it.set_epoch("one")  # type: ignore[arg-type]
