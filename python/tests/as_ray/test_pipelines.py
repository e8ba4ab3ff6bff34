"""``DatasetPipeline``: windows, epochs, and the shards that workers get."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Script

FIT = """
import json, os, pathlib
import ray
from ray.air import Checkpoint, ScalingConfig, session
from ray.air.config import DatasetConfig, FailureConfig, RunConfig
from ray.train.data_parallel_trainer import DataParallelTrainer

here = pathlib.Path(os.getcwd())

def fit(function, workers=2, max_failures=0, **options):
    return DataParallelTrainer(
        function,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(verbose=0, failure_config=FailureConfig(max_failures=max_failures)),
        **options,
    ).fit()

def tell(value):
    (here / f"rank_{session.get_world_rank()}").write_text(json.dumps(value))

def told():
    return [json.loads(path.read_text()) for path in sorted(here.glob("rank_*"))]
"""


def test_windows_and_epochs(script: Script) -> None:
    code = """
import ray
ds = ray.data.range(12, parallelism=6)
pipe = ds.window(blocks_per_window=2)
assert isinstance(pipe, ray.data.DatasetPipeline)
assert [window.take() for window in pipe.iter_datasets()] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
assert (pipe.count(), pipe.take(3), pipe.sum()) == (12, [0, 1, 2], 66)
assert len(list(pipe.rewindow(blocks_per_window=3).iter_datasets())) == 2
assert len(list(ds.window(bytes_per_window=4 * 8).iter_datasets())) == 3
assert len(list(ds.pipeline(length=4).iter_datasets())) == 4

# batches go over the ends of windows and epochs
assert list(pipe.iter_batches(batch_size=5)) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
assert list(pipe.iter_batches(batch_size=5, drop_last=True))[-1] == [5, 6, 7, 8, 9]
assert ray.data.range(3).repeat(2).take_all() == [0, 1, 2, 0, 1, 2]
assert list(ray.data.range(3).repeat(2).iter_batches(batch_size=4)) == [[0, 1, 2, 0], [1, 2]]
assert ray.data.range(3).repeat().take(7) == [0, 1, 2, 0, 1, 2, 0]
try:
    ray.data.range(3).repeat().count()
except ValueError as error:
    print("for ever" in str(error))

pipe = ds.window(blocks_per_window=3).map(lambda x: x + 1).filter(lambda x: x % 2 == 0).repeat(3)
assert [epoch.take() for epoch in pipe.iter_epochs()] == [[2, 4, 6, 8, 10, 12]] * 3
assert len(list(ds.repeat().iter_epochs(max_epoch=2))) == 2

shuffled = ds.window(blocks_per_window=3).random_shuffle_each_window()
windows = [sorted(window.take()) for window in shuffled.iter_datasets()]
assert windows == [list(range(6)), list(range(6, 12))]
shuffled = ds.repeat(2).random_shuffle_each_window(seed=1)
first, second = (epoch.take() for epoch in shuffled.iter_epochs())
assert sorted(first) == sorted(second) == list(range(12)) and first != second
assert shuffled.take() == shuffled.take()
reversed_windows = ds.window(blocks_per_window=3).sort_each_window(descending=True)
assert reversed_windows.take() == [5, 4, 3, 2, 1, 0, 11, 10, 9, 8, 7, 6]
assert ds.window(blocks_per_window=3).foreach_window(lambda window: window.limit(1)).take() == [0, 6]
parts = [part.take() for part in ds.window(blocks_per_window=3).random_shuffle_each_window().split(2, equal=True)]
assert sorted(parts[0] + parts[1]) == list(range(12)) and len(parts[0]) == len(parts[1]) == 6
made = ray.data.DatasetPipeline.from_iterable([lambda: ray.data.range(2), lambda: ray.data.range(1)])
assert made.take() == [0, 1, 0]
ds.window(blocks_per_window=6).show(2)
"""
    assert script(code, LOCKSTEP_AS_RAY="2.0").stdout == "True\n0\n1\n"


def test_pipelines_are_lazy(script: Script) -> None:
    code = """
import ray
calls = []
def slow(batch):
    calls.append(len(batch))
    return batch

pipe = ray.data.range(1000, parallelism=100).window(blocks_per_window=1).map_batches(slow).random_shuffle_each_window()
assert calls == []
assert sorted(pipe.take(10)) == list(range(10))
print(len(calls) < 10, sum(calls) < 100)
"""
    assert script(code, LOCKSTEP_AS_RAY="2.0").stdout == "True True\n"


def test_torch_batches_of_a_pipeline(script: Script) -> None:
    code = """
import ray, torch
items = [{"x": float(n), "y": 2.0 * n} for n in range(8)]
pipe = ray.data.from_items(items, parallelism=4).window(blocks_per_window=2).repeat(2)
batches = list(pipe.iter_torch_batches(batch_size=4))
assert [batch["x"].tolist() for batch in batches] == [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]] * 2
batches[0]["x"] += 1  # is not the data itself
for epoch in pipe.iter_epochs():
    pairs = list(epoch.to_torch(label_column="y", batch_size=4))
    assert len(pairs) == 2 and all(torch.equal(2 * x, y) for x, y in pairs)
"""
    for release in ("2.0", "2.6"):
        script(code, LOCKSTEP_AS_RAY=release)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_ranks_share_a_pipeline(script: Script, workers: int) -> None:
    code = f"""{FIT}
def train():
    shard = session.get_dataset_shard("train")
    assert isinstance(shard, ray.data.DatasetPipeline)
    epochs = []
    for epoch in shard.iter_epochs():
        epochs.append([batch for batch in epoch.iter_batches(batch_size=2)])
    tell(epochs)
    session.report({{"epochs": len(epochs)}})

pipe = ray.data.range(24, parallelism=4).window(blocks_per_window=2).map_batches(lambda batch: [10 * x for x in batch])
for pipe, in_order in ((pipe, True), (pipe.random_shuffle_each_window(), False)):
    assert fit(train, workers={workers}, datasets={{"train": pipe.repeat(2)}}).metrics["epochs"] == 2
    orders = []
    for epoch in (0, 1):
        ranks = [told()[rank][epoch] for rank in range({workers})]
        assert len({{len(batches) for batches in ranks}}) == 1
        dealt = [rank[turn] for turn in range(len(ranks[0])) for rank in ranks]  # in turn
        orders.append([row for batch in dealt for row in batch])
        assert sorted(orders[-1]) == [10 * n for n in range(24)]
    assert (orders[0] == orders[1] == sorted(orders[0])) == in_order
    print(orders)
"""
    lines = script(code, LOCKSTEP_AS_RAY="2.0").stdout.splitlines()
    assert len(lines) == 2


def test_every_world_size_sees_the_same_order_of_a_pipeline(script: Script) -> None:
    code = f"""{FIT}
def train():
    tell([batch for batch in session.get_dataset_shard("train").iter_batches(batch_size=2)])

found = []
for workers in (1, 2, 3):
    pipe = ray.data.range(24).window(blocks_per_window=2).random_shuffle_each_window(seed=3)
    fit(train, workers=workers, datasets={{"train": pipe}})
    ranks = told()
    found.append([rank[turn] for turn in range(len(ranks[0])) for rank in ranks])
assert found[0] == found[1] == found[2] and sorted(sum(found[0], [])) == list(range(24))
"""
    script(code, LOCKSTEP_AS_RAY="2.0")


def test_ranks_share_windows_with_steps_of_their_own(script: Script) -> None:
    code = f"""{FIT}
def train():
    shard = session.get_dataset_shard("train")
    mapped = shard.map(lambda x: -x).iter_epochs(1)
    tell([[-x for x in next(mapped).iter_rows()], *(list(epoch.iter_rows()) for epoch in shard.iter_epochs(2))])

pipe = ray.data.range(24, parallelism=4).window(blocks_per_window=2)
fit(train, datasets={{"train": pipe.foreach_window(lambda ds: ds.random_shuffle()).repeat()}})
for epoch in (0, 1, 2):
    first, second = (rank[epoch] for rank in told())
    assert sorted(first + second) == list(range(24)) and len(first) == len(second)
    assert sorted(first[:6] + second[:6]) == list(range(12))  # window after window
"""
    script(code, LOCKSTEP_AS_RAY="2.0")


def test_a_pipeline_goes_on_where_its_checkpoint_was(script: Script) -> None:
    code = f"""{FIT}
def train():
    shard = session.get_dataset_shard("train")
    path = here / f"seen_{{session.get_world_rank()}}"
    before = json.loads(path.read_text()) if session.get_checkpoint() else []
    for batch in shard.iter_batches(batch_size=2):
        before.append(batch)
        path.write_text(json.dumps(before))
        session.report({{"n": len(before)}}, checkpoint=Checkpoint.from_dict({{"n": len(before)}}))
        if len(before) == 4 and not (here / "failed").exists():
            session.get_checkpoint()  # it is there
            (here / "failed").touch()
            raise RuntimeError("once")

pipe = ray.data.range(12).window(blocks_per_window=1).random_shuffle_each_window().repeat(2)
fit(train, workers=1, max_failures=1, datasets={{"train": pipe}})
rows = [row for batch in json.loads((here / "seen_0").read_text()) for row in batch]
assert sorted(rows[:12]) == sorted(rows[12:]) == list(range(12)), rows
"""
    script(code, LOCKSTEP_AS_RAY="2.0")


@pytest.mark.parametrize("release", ["2.0", "2.6"])
def test_the_stream_api_of_a_trainer(script: Script, release: str) -> None:
    code = f"""{FIT}
from ray.data.preprocessors import MinMaxScaler

def train():
    shard = session.get_dataset_shard("train")
    assert isinstance(shard, ray.data.DatasetPipeline) and isinstance(shard, ray.data.DataIterator)
    tell([[x for batch in epoch.iter_torch_batches(batch_size=4) for x in batch["x"].tolist()]
          for epoch in shard.iter_epochs(3)])

fit(
    train,
    datasets={{"train": ray.data.from_items([{{"x": float(n)}} for n in range(17)])}},
    preprocessor=MinMaxScaler(columns=["x"]),
    dataset_config={{"train": DatasetConfig(use_stream_api=True, stream_window_size=64, global_shuffle=True)}},
)
for epoch in (0, 1, 2):
    ranks = [rank[epoch] for rank in told()]
    assert sorted({{x for rank in ranks for x in rank}}) == [n / 16 for n in range(17)]
    assert len(ranks[0]) == len(ranks[1]) == 9
"""
    script(code, LOCKSTEP_AS_RAY=release)


@pytest.mark.parametrize("release", ["1.7", "2.0", "2.6"])
def test_raysgd_with_a_pipeline(script: Script, tmp_path: Path, release: str) -> None:
    lines = "".join(f"{n},{2 * n}\n" for n in range(20))
    (tmp_path / "data.csv").write_text(f"x,y\n{lines}")
    code = """
import ray, ray.sgd, torch
from ray.util.sgd.v2 import Trainer

def train_func(config):
    data_shard = ray.sgd.get_data_shard()
    dataloader = data_shard.to_torch(batch_size=config["worker_batch_size"])
    rows = [row for x, y in dataloader for row in x.tolist()]
    again = ray.sgd.get_dataset().get_shard(0).to_torch(label_column="y", batch_size=5)
    assert all(torch.equal(x * 2, y) for x, y in again)
    return rows

trainer = Trainer(num_workers=2, backend="torch")
trainer.start()
dataset = ray.data.read_csv("data.csv").filter().pipeline(length=5)
first, second = trainer.run(train_func, config={"worker_batch_size": 4}, dataset=dataset)
trainer.shutdown()
assert sorted(first + second) == [[n, 2 * n] for n in range(20)]
"""
    script(code, LOCKSTEP_AS_RAY=release)
