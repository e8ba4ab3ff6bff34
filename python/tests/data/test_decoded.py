"""Sources that Python code decodes: arrays, images, binary files, and data sets of other libraries."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import lockstep.data
import numpy
import pyarrow
import pytest
import torch
from lockstep import ConfigError, StorageError
from PIL import Image


def gathered(ds: lockstep.data.Dataset, name: str, size: int = 77) -> Any:
    return numpy.concatenate([batch[name] for batch in ds.iter_batches(size)])


@pytest.mark.parametrize(
    "array",
    [
        numpy.arange(10_000.0),
        numpy.arange(600_000, dtype=numpy.int32).reshape(50_000, 3, 4),
        numpy.asfortranarray(numpy.arange(60.0).reshape(12, 5)),
        numpy.array(["a", "bc", "\u00fc"]),
        numpy.arange("2020-01-01", "2020-01-09", dtype="datetime64[D]").astype("datetime64[ns]"),
        numpy.zeros((0, 3), numpy.float32),
    ],
)
def test_npy(tmp_path: Path, array: Any) -> None:
    numpy.save(tmp_path / "0.npy", array)
    numpy.save(tmp_path / "1.npy", array)
    (tmp_path / "notes.txt").write_text("not read")
    ds = lockstep.data.read_numpy(tmp_path)
    assert ds.count() == 2 * len(array)
    assert ds.columns() == ["data"]
    if len(array):
        assert numpy.array_equal(gathered(ds, "data"), numpy.concatenate([array, array]))


def test_npy_is_read_in_parts(tmp_path: Path) -> None:
    array = numpy.arange(2_000_000.0).reshape(-1, 4)
    numpy.save(tmp_path / "x.npy", array)
    ds = lockstep.data.read_numpy(tmp_path / "x.npy")
    shuffled = numpy.concatenate([b["data"] for b in ds.iterator(seed=1, window=10_000).iter_batches(1000)])
    assert not numpy.array_equal(shuffled, array)
    assert numpy.array_equal(shuffled[numpy.argsort(shuffled[:, 0])], array)


def test_npz(tmp_path: Path) -> None:
    for number in range(3):
        x = numpy.arange(number * 10, number * 10 + 10)
        numpy.savez_compressed(tmp_path / f"{number}.npz", x=x, y=numpy.stack([x, x], 1) * 0.5)
    ds = lockstep.data.read_numpy(str(tmp_path / "*.npz"))
    assert ds.columns() == ["x", "y"]
    assert gathered(ds, "x").tolist() == list(range(30))
    assert numpy.array_equal(gathered(ds.select_columns(["y"]), "y")[:, 1], numpy.arange(30) * 0.5)


def test_broken_arrays(tmp_path: Path) -> None:
    numpy.save(tmp_path / "a.npy", numpy.arange(5))
    (tmp_path / "b.npy").write_bytes(b"no array")
    with pytest.raises(StorageError, match=r"b\.npy"):
        lockstep.data.read_numpy(tmp_path)
    ds = lockstep.data.read_numpy(tmp_path, on_error="skip")
    assert gathered(ds, "data").tolist() == [0, 1, 2, 3, 4]
    assert ds._native.skipped()[0] == 1
    numpy.save(tmp_path / "c.npy", numpy.array([object()]), allow_pickle=True)
    with pytest.raises(StorageError, match=r"c\.npy.*not unpickled"):
        lockstep.data.read_numpy(tmp_path / "c.npy")
    numpy.save(tmp_path / "d.npy", numpy.arange(5.0))
    with pytest.raises(StorageError, match=r"d\.npy.*same columns"):
        lockstep.data.read_numpy([tmp_path / "a.npy", tmp_path / "d.npy"])
    with pytest.raises(ConfigError, match=r"neither \.npy nor \.npz"):
        lockstep.data.read_numpy(__file__)


def picture(height: int, width: int, seed: int = 0, mode: str = "RGB") -> Image.Image:
    shape = (height, width, 3) if mode == "RGB" else (height, width)
    return Image.fromarray(numpy.random.default_rng(seed).integers(0, 255, shape, numpy.uint8), mode)


def test_images(tmp_path: Path) -> None:
    images = [picture(6, 4, seed) for seed in range(40)]
    for number, image in enumerate(images):
        image.save(tmp_path / f"{number:02}.png")
    (tmp_path / "notes.txt").write_text("not read")
    ds = lockstep.data.read_images(tmp_path, include_paths=True)
    assert ds.count() == 40
    assert numpy.array_equal(gathered(ds, "image"), numpy.stack([numpy.asarray(image) for image in images]))
    assert [row["path"] for row in ds.select_columns(["path"]).take(2)] == [f"{tmp_path}/{n:02}.png" for n in range(2)]
    (batch,) = lockstep.data.read_images(tmp_path, size=(3, 5), mode="L").iter_torch_batches(batch_size=40)
    assert batch["image"].shape == (40, 3, 5)
    assert batch["image"].dtype == torch.uint8
    expected = numpy.asarray(images[7].convert("L").resize((5, 3)))
    assert numpy.array_equal(batch["image"][7].numpy(), expected)


def test_images_of_different_sizes(tmp_path: Path) -> None:
    images = [picture(2, 3), picture(4, 1, 1), picture(1, 1, 2, "L")]
    for number, image in enumerate(images):
        image.save(tmp_path / f"{number}.png")
    rows = lockstep.data.read_images(tmp_path).take_all()
    for row, image in zip(rows, images, strict=True):
        assert numpy.array_equal(numpy.array(row["image"]), numpy.asarray(image.convert("RGB")))


def test_broken_images(tmp_path: Path) -> None:
    picture(3, 3).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no image")
    data = io.BytesIO()
    picture(3, 3, 1).save(data, "png")
    (tmp_path / "c.png").write_bytes(data.getvalue()[:-25])  # the header is whole
    for name in ("b", "c"):
        with pytest.raises(StorageError, match=rf"{name}\.png"):
            lockstep.data.read_images(tmp_path / f"{name}.png").take_all()
    for options in ({}, {"size": (3, 3), "mode": "RGB"}):
        ds = lockstep.data.read_images(tmp_path, on_error="skip", include_paths=True, **options)  # type: ignore[arg-type]
        assert [Path(row["path"]).name for row in ds.take_all()] == ["a.png"]
        assert ds._native.skipped()[0] == 2
    with pytest.raises(ConfigError, match="mode is"):
        lockstep.data.read_images(tmp_path, mode="colour", size=(1, 1))
    with pytest.raises(ConfigError, match="size is"):
        lockstep.data.read_images(tmp_path, size=(0, 1))


def test_images_without_pillow_say_what_to_install(tmp_path: Path) -> None:
    picture(3, 3).save(tmp_path / "a.png")
    code = (
        "import sys; sys.modules['PIL'] = None\nimport lockstep.data\n"
        f"try:\n    lockstep.data.read_images({str(tmp_path)!r})\nexcept ImportError as error:\n    print(error)"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output.strip() == "lockstep.data.read_images needs Pillow: pip install pillow"


def test_binary_files(tmp_path: Path) -> None:
    contents = [bytes([n]) * n * 1000 for n in range(100)]
    for number, content in enumerate(contents):
        (tmp_path / f"{number:03}.bin").write_bytes(content)
    ds = lockstep.data.read_binary_files(tmp_path, include_paths=True)
    assert [row["bytes"] for row in ds.take_all()] == contents
    assert ds.select_columns(["path"]).take(1) == [{"path": f"{tmp_path}/000.bin"}]
    assert lockstep.data.read_binary_files(tmp_path).columns() == ["bytes"]
    shuffled = [b for batch in ds.iterator(seed=3).iter_batches(9) for b in batch["bytes"]]
    assert sorted(shuffled) == sorted(contents)
    assert shuffled != contents


class Squares(torch.utils.data.Dataset[Any]):
    """Counts how often it is asked."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.asked = 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> dict[str, Any]:
        self.asked += 1
        return {"n": number, "square": torch.tensor([number**2, 1.0]), "text": f"t{number}"}


def test_torch_datasets() -> None:
    squares = Squares(1000)
    ds = lockstep.data.from_torch(squares)
    assert ds.count() == 1000
    assert squares.asked == 1
    assert ds.schema().field("square").type == pyarrow.fixed_shape_tensor(pyarrow.float32(), [2])
    it = ds.iterator(seed=2, window=300)
    rows = {n: s for b in it.iter_batches(100) for n, s in zip(b["n"].tolist(), b["square"].tolist(), strict=True)}
    assert rows == {n: [float(numpy.float32(n) ** 2), 1.0] for n in range(1000)}
    tensors = torch.utils.data.TensorDataset(torch.eye(5), torch.arange(5))
    (batch,) = lockstep.data.from_torch(tensors).iter_torch_batches(batch_size=5)
    assert torch.equal(batch["item_0"], torch.eye(5))
    assert torch.equal(batch["item_1"], torch.arange(5))
    assert lockstep.data.from_torch([3, 4]).take_all() == [{"item": 3}, {"item": 4}]
    assert lockstep.data.from_torch([]).count() == 0
    with pytest.raises(ConfigError, match="must have a length"):
        lockstep.data.from_torch(iter([1]))
    with pytest.raises(ConfigError, match="do not fit the column 'item'"):
        lockstep.data.from_torch([torch.zeros(2), torch.zeros(3)]).take_all()


class Failing(Squares):
    def __getitem__(self, number: int) -> dict[str, Any]:
        if number == 300:
            raise LookupError("number 300 is missing")
        return super().__getitem__(number)


def test_exceptions_of_torch_datasets_arrive() -> None:
    with pytest.raises(LookupError, match="number 300 is missing"):
        lockstep.data.from_torch(Failing(1000)).take_all()


def test_huggingface_datasets() -> None:
    table = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [0, 1, 0]})
    ds = lockstep.data.from_huggingface(table)
    assert ds.take_all() == [{"text": t, "label": n} for t, n in zip("abc", [0, 1, 0], strict=True)]
    chosen = lockstep.data.from_huggingface(table.select([2, 0]))
    assert chosen.take_all() == [{"text": "c", "label": 0}, {"text": "a", "label": 0}]
    split = lockstep.data.from_huggingface(datasets.DatasetDict(train=table, test=table.select([1])))
    assert {name: each.count() for name, each in split.items()} == {"train": 3, "test": 1}
    with pytest.raises(ConfigError, match="not streamed"):
        lockstep.data.from_huggingface(table.to_iterable_dataset())


def test_lists_of_arrays_and_references() -> None:
    arrays = [numpy.arange(3), numpy.arange(3, 5)]
    assert gathered(lockstep.data.from_numpy(arrays), "data").tolist() == [0, 1, 2, 3, 4]
    assert lockstep.data.from_numpy_refs(arrays).count() == 5
    table = pyarrow.table({"x": [1]})
    assert lockstep.data.from_arrow_refs([table, table]).count() == 2
    assert lockstep.data.from_pandas_refs([table.to_pandas()]).count() == 1
