"""``ray.data`` for scripts of Ray 2.0 and 1.7: rows of any kind, batches of the native format, other signatures."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Script

OLD = ("1.7", "2.0")


@pytest.mark.parametrize("release", OLD)
def test_rows_are_plain_values(script: Script, release: str) -> None:
    code = """
import ray
assert ray.data.range(3).take_all() == [0, 1, 2]
assert ray.data.from_items([5, 6]).take() == [5, 6]
assert ray.data.from_items([(1, "a"), (2, "b")]).take() == [(1, "a"), (2, "b")]
assert ray.data.from_items([{"x": 1}]).take() == [{"x": 1}]
assert ray.data.range_table(2).take() == ray.data.range_arrow(2).take() == [{"value": 0}, {"value": 1}]
rows = ray.data.range_tensor(3, shape=(2,)).take()
assert [row.tolist() for row in rows] == [[0, 0], [1, 1], [2, 2]]

ds = ray.data.range(6, parallelism=3)
assert ds.num_blocks() == 3 and ds.map(lambda x: x + 1).filter(lambda x: x % 2 == 0).take() == [2, 4, 6]
assert ds.flat_map(lambda x: [x] * (x % 3)).take() == [1, 2, 2, 4, 5, 5]
assert ds.map(lambda x: {"x": x}).map(lambda row: row["x"] * 0.5).take(2) == [0.0, 0.5]
assert ds.map(lambda x: (x, str(x))).map(lambda pair: pair[1]).take(2) == ["0", "1"]
assert (ds.sum(), ds.min(), ds.max(), ds.mean(), ds.count()) == (15, 0, 5, 2.5, 6)
assert ds.sort(descending=True).take(2) == [5, 4]
assert ds.union(ray.data.range(1)).take() == [0, 1, 2, 3, 4, 5, 0]
train, test = ds.train_test_split(test_size=2)
assert (train.take(), test.take()) == ([0, 1, 2, 3], [4, 5])
assert sorted(ds.random_shuffle(seed=1).take()) == [0, 1, 2, 3, 4, 5]
assert ds.to_pandas()["value"].tolist() == [0, 1, 2, 3, 4, 5]
ds.show(2)
"""
    assert script(code, LOCKSTEP_AS_RAY=release).stdout == "0\n1\n"


def test_native_batches_of_2_0(script: Script) -> None:
    code = """
import numpy, pandas, pyarrow, torch, ray
ds = ray.data.range(10)
assert list(ds.iter_batches(batch_size=4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
assert list(ds.iter_batches(batch_size=4, drop_last=True, prefetch_blocks=2)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
assert next(ds.iter_batches(batch_size=3, batch_format="numpy")).tolist() == [0, 1, 2]
assert next(ds.iter_batches(batch_size=3, batch_format="pandas"))["value"].tolist() == [0, 1, 2]
assert next(ds.iter_torch_batches(batch_size=3)).tolist() == [0, 1, 2]

assert ds.map_batches(lambda batch: [x * 2 for x in batch]).take(3) == [0, 2, 4]
assert ds.map_batches(lambda batch: batch[:1], batch_size=4).take() == [0, 4, 8]
table = ray.data.range_table(4)
assert isinstance(next(table.iter_batches()), pandas.DataFrame)
assert set(next(table.iter_batches(batch_format="numpy"))) == {"value"}
assert isinstance(next(table.iter_batches(batch_format="pyarrow")), pyarrow.Table)
seen = table.map_batches(lambda frame: frame.assign(double=frame["value"] * 2)).take()
assert seen[1] == {"value": 1, "double": 2}
assert table.map_batches(lambda frame: frame[frame["value"] > 1]).count() == 2

groups = table.add_column("k", lambda frame: frame["value"] % 2).groupby("k")
assert groups.map_groups(lambda frame: frame.tail(1)).take() == [{"value": 2, "k": 0}, {"value": 3, "k": 1}]

tensors = ray.data.range_tensor(4, shape=(2,))
assert tensors.map_batches(lambda array: array * 10).take()[3].tolist() == [30, 30]
assert next(tensors.iter_batches(batch_size=2)).shape == next(tensors.iter_torch_batches(batch_size=2)).shape == (2, 2)
assert ray.data.from_numpy(numpy.eye(2)).take()[0].tolist() == [1.0, 0.0]

class Add:
    def __init__(self, by):
        self.by = by
    def __call__(self, batch):
        return [x + self.by for x in batch]

assert ds.map_batches(Add, compute="actors", fn_constructor_args=(100,)).take(1) == [100]

x, y = next(iter(ray.data.from_items([{"a": 1.0, "b": 2.0, "y": 3.0}] * 4).to_torch(
    label_column="y", feature_columns=["a", "b"], label_column_dtype=torch.float32,
    feature_column_dtypes=torch.float32, batch_size=4, prefetch_blocks=1, unsqueeze_label_tensor=False)))
assert x.shape == (4, 2) and y.shape == (4,) and x.dtype == y.dtype == torch.float32
"""
    script(code, LOCKSTEP_AS_RAY="2.0")


def test_to_tf_with_a_signature(script: Script) -> None:
    code = """
import sys, types
class FromGenerator:
    def __init__(self, begin, output_signature):
        self.begin, self.output_signature = begin, output_signature
    def with_options(self, options):
        assert options.experimental_distribute.auto_shard_policy == "off"
        return self
stand_in = types.ModuleType("tensorflow")  # TensorFlow has an environment of its own
stand_in.data = types.SimpleNamespace(
    Dataset=types.SimpleNamespace(from_generator=FromGenerator),
    Options=lambda: types.SimpleNamespace(experimental_distribute=types.SimpleNamespace()),
    experimental=types.SimpleNamespace(AutoShardPolicy=types.SimpleNamespace(OFF="off")),
)
sys.modules["tensorflow"] = stand_in

import ray
ds = ray.data.from_items([{"a": 1.0 * n, "b": 2.0 * n, "y": n} for n in range(4)])
def batches(**options):
    made = ds.to_tf(output_signature="signature", batch_size=3, prefetch_blocks=1, **options)
    assert made.output_signature == "signature"
    return list(made.begin())

(x, y), (last, _) = batches(label_column="y")
assert x.tolist() == [[0, 0], [1, 2], [2, 4]] and y.tolist() == [0, 1, 2] and last.shape == (1, 2)
assert batches(label_column="y", feature_columns=["b"])[0][0].tolist() == [[0], [2], [4]]
assert batches(label_column="y", feature_columns=[["a"], ["b"]])[1][0][1].tolist() == [[6]]
assert batches(label_column="y", feature_columns={"one": ["a", "b"]})[1][0]["one"].tolist() == [[3, 6]]
assert batches()[1].tolist() == [[3, 6, 3]]
"""
    script(code, LOCKSTEP_AS_RAY="2.0")


def test_files_of_2_0(script: Script, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    code = """
import ray
assert ray.data.read_text("lines.txt").take() == ["one", "two"]
assert ray.data.read_binary_files("lines.txt").take() == [b"one\\ntwo\\n"]
ray.data.range(4).write_csv("out")
assert ray.data.read_csv("out").take(1) == [{"value": 0}]
refs = ray.data.read_csv("out").to_pandas_refs()
assert ray.data.from_pandas_refs([ray.put(ray.get(refs[0]))]).count() == 4
"""
    script(code, LOCKSTEP_AS_RAY="2.0")


def test_rows_of_2_6_are_dicts(script: Script) -> None:
    code = """
import ray
assert ray.data.range(2).take() == [{"id": 0}, {"id": 1}]
assert ray.data.from_items([1]).map(lambda row: {"item": row["item"] + 1}).take() == [{"item": 2}]
assert next(ray.data.range(4).iter_batches(batch_size=2, prefetch_blocks=1))["id"].tolist() == [0, 1]
assert next(iter(ray.data.range(4).iterator().iter_batches(batch_size=2)))["id"].tolist() == [0, 1]
first, second = ray.data.range(10).streaming_split(2, equal=True)
assert sorted(row["id"] for part in (first, second) for row in part.iter_rows()) == list(range(10))
try:
    ray.data.range_table(3)
except DeprecationWarning as error:
    print("range()" in str(error))
"""
    assert script(code).stdout == "True\n"


FIT = """
import json, os, pathlib
import ray
from ray.air import ScalingConfig, session
from ray.air.config import DatasetConfig, RunConfig
from ray.train.data_parallel_trainer import DataParallelTrainer

here = pathlib.Path(os.getcwd())

def fit(function, workers=2, **options):
    return DataParallelTrainer(
        function,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(verbose=0),
        **options,
    ).fit()

def tell(value):
    (here / f"rank_{session.get_world_rank()}").write_text(json.dumps(value))

def told():
    return [json.loads(path.read_text()) for path in sorted(here.glob("rank_*"))]
"""


def test_a_shard_of_2_0_is_a_data_set(script: Script) -> None:
    code = f"""{FIT}
def train():
    shard = session.get_dataset_shard("train")
    assert isinstance(shard, ray.data.Dataset)
    rows = [row for batch in shard.iter_batches(batch_size=3) for row in batch]
    assert all(isinstance(row, int) for row in rows) and shard.count() == 10
    assert shard.map(lambda x: x * 2).count() == 10 and len(shard.take(3)) == 3
    tell([rows, shard.map_batches(lambda batch: [-x for x in batch]).take_all()])
    whole = session.get_dataset_shard("valid")
    session.report({{"valid": list(whole.iter_rows())}})

result = fit(train, datasets={{"train": ray.data.range(20), "valid": ray.data.range(3)}})
looped, mapped = ([rank[which] for rank in told()] for which in (0, 1))
assert sorted(looped[0] + looped[1]) == list(range(20))
assert sorted(mapped[0] + mapped[1]) == sorted(-x for x in range(20))
print(result.metrics["valid"])
"""
    assert script(code, LOCKSTEP_AS_RAY="2.0").stdout == "[0, 1, 2]\n"


@pytest.mark.parametrize("release", ["2.0", "2.6"])
def test_a_configuration_for_each_data_set(script: Script, release: str) -> None:
    code = f"""{FIT}
from ray.data.preprocessors import MinMaxScaler

items = [{{"x": float(n)}} for n in range(11)]
def train():
    def values(name):
        batches = session.get_dataset_shard(name).iter_batches(batch_size=4, batch_format="pandas")
        return [x for batch in batches for x in batch["x"]]
    session.report({{name: values(name) for name in ("train", "side", "raw")}})

scaler = MinMaxScaler(columns=["x"])
ds = ray.data.from_items(items)
metrics = fit(
    train,
    datasets={{"train": ds, "side": ds.limit(6), "raw": ds}},
    preprocessor=scaler,
    dataset_config={{
        "train": DatasetConfig(fit=False, split=False, randomize_block_order=False),
        "side": DatasetConfig(fit=True, split=True),
        "raw": DatasetConfig(transform=False),
    }},
).metrics
assert metrics["train"] == [n / 5 for n in range(11)], metrics["train"]  # fitted on side, in order, whole
assert len(metrics["side"]) == 3 and max(metrics["side"]) <= 1.0
assert metrics["raw"] == [float(n) for n in range(11)]

try:
    fit(train, datasets={{"train": ds}}, dataset_config={{"side": DatasetConfig(required=True)}})
except ValueError as error:
    print("'side' is required" in str(error))
from ray.air import DatasetConfig as Same
print(Same is DatasetConfig)
"""
    assert script(code, LOCKSTEP_AS_RAY=release).stdout == "True\nTrue\n"


@pytest.mark.parametrize("release", OLD)
def test_functions_as_keys(script: Script, release: str) -> None:
    code = """
import ray
ds = ray.data.range(100)
assert ds.groupby(lambda x: x % 3).count().take_all() == [(0, 34), (1, 33), (2, 33)]
assert ds.groupby(lambda x: x % 2).mean().take() == [(0, 49.0), (1, 50.0)]
assert ds.sort(lambda x: -x).take(2) == [99, 98]
assert ray.data.from_items([(1, "b"), (2, "a")]).sort(lambda pair: pair[1]).take() == [(2, "a"), (1, "b")]
assert ray.data.from_items([{"v": 2}, {"v": 1}]).sort(lambda row: row["v"]).take() == [{"v": 1}, {"v": 2}]
assert ray.data.range(2).zip(ray.data.range(2)).take() == [(0, 0), (1, 1)]
assert ds.groupby(lambda x: x % 3).map_groups(lambda rows: [max(rows), -1]).take() == [99, -1, 97, -1, 98, -1]
pairs = ray.data.from_items([(n % 2, n) for n in range(4)])
assert pairs.groupby(lambda pair: pair[0]).map_groups(lambda rows: [rows[-1]]).take() == [(0, 2), (1, 3)]
groups = ray.data.from_items([{"group": n % 2, "value": n} for n in range(4)]).groupby("group")
assert groups.map_groups(lambda group: [int(group["value"][1])]).take() == [2, 3]
from ray.data.aggregate import AggregateFn, Count, Max, Mean, Sum
triples = ray.data.from_items([(i % 3, i, i**2) for i in range(100)])
assert triples.sum(lambda x: x[2]) == sum(i**2 for i in range(100)) and ds.max() == 99
assert triples.groupby(lambda x: x[0]).sum(lambda x: x[1]).take(1) == [(0, sum(range(0, 100, 3)))]
assert ds.aggregate(Max(), Mean(), Sum(lambda x: -x)) == (99, 49.5, -4950)
assert ray.data.range_table(100).aggregate(Max("value"), Mean("value")) == {"max(value)": 99, "mean(value)": 49.5}
total = AggregateFn(init=lambda key: 0, accumulate_row=lambda a, row: a + row, merge=lambda a, b: a + b, name="total")
assert ds.aggregate(total) == (4950,)
assert ds.groupby(lambda x: x % 2).aggregate(Count(), total).take() == [(0, 50, 2450), (1, 50, 2500)]
def count(data: ray.data.Dataset[int]) -> int: ...
"""
    script(code, LOCKSTEP_AS_RAY=release)


@pytest.mark.parametrize("release", ["2.0", "2.6"])
def test_parts_of_the_preprocessors(script: Script, release: str) -> None:
    code = """
import numpy, pandas, ray
from ray.data.extensions.tensor_extension import TensorArray
from ray.data.preprocessors import Chain, concatenator, encoder
from ray.data.preprocessors.scaler import StandardScaler
assert encoder.OneHotEncoder.__name__ == "OneHotEncoder"
ds = ray.data.from_items([{"X": 1.0, "Y": 2.0}, {"X": 4.0, "Y": 0.0}])
rows = Chain(StandardScaler(columns=["X", "Y"]), concatenator.Concatenator()).fit_transform(ds).take()
assert [row["concat_out"].tolist() for row in rows] == [[-1.0, 1.0], [1.0, -1.0]]
frame = pandas.DataFrame({"image": TensorArray(numpy.zeros((2, 3, 4)))})
assert ds.map_batches(lambda batch: frame).take(1)[0]["image"].shape == (3, 4)
"""
    script(code, LOCKSTEP_AS_RAY=release)
