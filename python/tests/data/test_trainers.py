"""Data sets inside fit(): who gets what, and what a restart does."""

from __future__ import annotations

import json
import os
import pickle
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import lockstep.data
import numpy
import pandas
import pyarrow
import pyarrow.parquet
import pytest
from lockstep import (
    Callback,
    Checkpoint,
    CheckpointConfig,
    ConfigError,
    DataConfig,
    DataParallelTrainer,
    FailureConfig,
    LockstepError,
    Result,
    TrainingFailedError,
    session,
    train,
)

Fit = Callable[..., Result]


class Reports(Callback):
    """What every rank has reported."""

    def __init__(self) -> None:
        self.metrics: list[dict[str, Any]] = []

    def on_report(self, results: list[dict[str, Any] | None]) -> None:
        self.metrics += [metrics for metrics in results if metrics is not None]


def rows_by_rank(fit: Fit, function: Callable[..., Any], workers: int, **options: Any) -> list[list[Any]]:
    seen = Reports()
    fit(function, workers, callbacks=[seen], **options)
    return [[m for m in seen.metrics if m["rank"] == rank] for rank in range(workers)]


def test_train_is_split_and_others_are_whole(fit: Fit) -> None:
    def train_func() -> None:
        shard, other = session.get_dataset_shard("train"), train.get_dataset_shard("validation")
        assert shard is session.get_dataset_shard(dataset_name="train")
        for _ in range(2):
            rows = [int(n) for batch in shard.iter_torch_batches(batch_size=16) for n in batch["id"]]
            whole = [int(n) for batch in other.iter_batches(batch_size=16) for n in batch["id"]]
            session.report({"rank": session.get_world_rank(), "rows": rows, "whole": whole, "count": shard.count()})

    datasets = {"train": lockstep.data.range(100), "validation": lockstep.data.range(30)}
    ranks = rows_by_rank(fit, train_func, 2, datasets=datasets)
    for first, second in zip(*ranks, strict=True):
        assert sorted(first["rows"] + second["rows"]) == list(range(100))
        assert first["whole"] == second["whole"] == list(range(30))
        assert first["count"] == 50
    assert ranks[0][0]["rows"] != ranks[0][1]["rows"] and ranks[0][0]["rows"] != sorted(ranks[0][0]["rows"])
    alone = lockstep.data.range(100).iterator(seed=0)
    assert [int(n) for batch in alone.iter_batches(16) for n in batch["id"]][:16] == ranks[0][0]["rows"][:16]


def test_data_config(fit: Fit) -> None:
    def train_func() -> None:
        rows = {name: [row["id"] for row in session.get_dataset_shard(name).iter_rows()] for name in ("train", "extra")}
        session.report({"rank": session.get_world_rank(), **rows})

    datasets = {"train": lockstep.data.range(7), "extra": lambda: lockstep.data.range(7)}
    config = DataConfig(datasets_to_split="all", datasets_to_shuffle=[], equal="drop")
    ranks = rows_by_rank(fit, train_func, 2, datasets=datasets, dataset_config=config)
    assert [report["train"] for (report,) in ranks] == [[0, 2, 4], [1, 3, 5]]
    assert [report["extra"] for (report,) in ranks] == [[0, 2, 4], [1, 3, 5]]
    config = DataConfig(["extra"], datasets_to_shuffle=None, seed=3, equal="uneven")
    ranks = rows_by_rank(fit, train_func, 2, datasets=datasets, dataset_config=config)
    assert [report["extra"] for (report,) in ranks] == [[0, 2, 4, 6], [1, 3, 5]]
    expected = [row["id"] for row in lockstep.data.range(7).iterator(seed=3).iter_rows()]
    assert [report["train"] for (report,) in ranks] == [expected, expected] and expected != list(range(7))


def test_wrong_arguments(fit: Fit) -> None:
    ds = lockstep.data.range(3)
    for options, words in (
        ({"datasets": [ds]}, "datasets is"),
        ({"datasets": {"train": [1, 2]}}, r"datasets\['train'\] is a list"),
        ({"datasets": {"train": ds}, "dataset_config": {"train": 1}}, "dataset_config is"),
        ({"datasets": {"train": ds}, "dataset_config": DataConfig(["test"])}, "has 'test', but the data sets are 'tr"),
        ({"datasets": {"train": ds}, "preprocessor": 5}, "preprocessor is 5"),
        ({"datasets": {"train": lambda: 5}}, "gave a int"),
    ):
        with pytest.raises(ConfigError, match=words):
            fit(print, 1, **options)
    for options, words in (
        ({"datasets_to_split": "train"}, "datasets_to_split is 'train'"),
        ({"seed": -1}, "seed is -1"),
        ({"window": 0}, "window is 0"),
        ({"datasets_to_shuffle": ["train", 5]}, r"datasets_to_shuffle is \['train', 5\]; it must be \"all\" or a list"),
        ({"seed": 2**64}, "seed is 18446744073709551616; it must be an int from 0 to"),
        ({"window": 2**64}, "window is 18446744073709551616; it must be an int from 1 to"),
        ({"prefetch": True}, "prefetch is True; it must be an int from 1 to 1000"),
        ({"equal": "cut"}, r"equal is 'cut'; it must be 'pad' \(or True\), 'drop' or 'uneven' \(or False\)"),
        ({"equal": None}, "equal is None"),
        ({"resume": 1}, "resume is 1"),
    ):
        with pytest.raises(ConfigError, match=words):
            DataConfig(**options)  # type: ignore[arg-type]


def test_a_name_that_does_not_exist(fit: Fit) -> None:
    def train_func() -> None:
        for name, words in (("test", "'test', but the data sets are 'train', 'val'"), (None, "needs a name")):
            with pytest.raises(ConfigError, match=words):
                session.get_dataset_shard(name)
        session.report({"fine": True})

    assert fit(train_func, 1, datasets={"train": lockstep.data.range(3), "val": lockstep.data.range(3)}).metrics["fine"]
    with pytest.raises(TrainingFailedError, match="found no data sets"):
        fit(lambda: session.get_dataset_shard("train"), 1)
    with pytest.raises(LockstepError, match="outside a worker"):
        session.get_dataset_shard("train")


# ---------------------------------------------------------------------- pickles


def test_pickled_data_sets_give_the_same(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"x": numpy.arange(40_000), "s": [str(n) for n in range(40_000)]})
    frame[:500].to_csv(tmp_path / "x.csv", index=False)
    pyarrow.parquet.write_table(pyarrow.Table.from_pandas(frame), tmp_path / "x.parquet", row_group_size=7000)
    for ds in (
        lockstep.data.from_pandas(frame),
        lockstep.data.from_pandas(frame).select_columns("x").limit(20_000),
        lockstep.data.read_csv(tmp_path / "x.csv", column_types={"x": pyarrow.float64()}),
        lockstep.data.read_parquet(tmp_path / "x.parquet", columns=["x"]).limit(9000),
        lockstep.data.from_items([{"a": [1, 2]}, {"a": None}]),
        lockstep.data.range(5),
        lockstep.data.range(0),
        lockstep.data.range(30).map_batches(lambda batch: {"x": batch["id"] * 2}).filter(lambda row: row["x"] > 7),
        lockstep.data.range(30).random_shuffle().train_test_split(0.3, shuffle=True)[1],
        lockstep.data.range(30).union(lockstep.data.range(3)).sort("id", descending=True).repartition(4),
        lockstep.data.range(30).randomize_block_order().random_sample(0.5).flat_map(lambda row: [row, row]),
        lockstep.data.range(30).split(3)[2].add_column("y", lambda frame: frame["id"] + 1).drop_columns("id"),
        lockstep.data.from_items([{"k": n % 3, "v": n} for n in range(9)]).groupby("k").sum("v"),
    ):
        buffers: list[Any] = []
        data = cloudpickle.dumps(ds, protocol=5, buffer_callback=buffers.append)
        for again in (
            pickle.loads(cloudpickle.dumps(ds)),
            pickle.loads(cloudpickle.dumps(ds, protocol=4)),
            pickle.loads(data, buffers=buffers),
            pickle.loads(cloudpickle.dumps(pickle.loads(cloudpickle.dumps(ds)))),
        ):
            assert again.schema() == ds.schema()
            assert again.take_all() == ds.take_all()
            assert again.iterator().state_dict() == ds.iterator().state_dict()
    materialized = lockstep.data.range(30).filter(expr="id > 3").materialize()
    assert pickle.loads(pickle.dumps(materialized)).take_all() == materialized.take_all()


def test_rows_are_counted_once(fit: Fit, tmp_path: Path) -> None:
    def keep(batch: dict[str, Any]) -> dict[str, Any]:
        with open(tmp_path / "calls", "a") as file:
            file.write(f"{os.getpid()}\n")
        return {"id": batch["id"][batch["id"] % 2 == 0]}

    def train_func() -> None:
        shard = session.get_dataset_shard("train")
        before = (tmp_path / "calls").read_text().splitlines().count(str(os.getpid()))
        count = shard.count()
        after = (tmp_path / "calls").read_text().splitlines().count(str(os.getpid()))
        session.report({"before": before, "after": after, "count": count, "rows": sum(1 for _ in shard.iter_rows())})

    metrics = fit(train_func, 1, datasets={"train": lockstep.data.range(100).map_batches(keep)}).metrics
    assert (metrics["before"], metrics["after"], metrics["count"], metrics["rows"]) == (0, 0, 50, 50)


def test_rows_in_memory_are_not_copied_into_every_worker(fit: Fit) -> None:
    def train_func() -> None:
        (batch,) = session.get_dataset_shard("train").iter_batches(batch_size=10)
        maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:" in line]
        ranges = [tuple(int(end, 16) for end in line.split()[0].split("-")) for line in maps]
        at = batch["x"].__array_interface__["data"][0]
        session.report({"shared": any(begin <= at < end for begin, end in ranges), "aligned": at % 8 == 0})

    ds = lockstep.data.from_numpy({"x": numpy.arange(10.0)})
    metrics = fit(train_func, 1, datasets={"train": ds}, dataset_config=DataConfig(datasets_to_shuffle=[])).metrics
    assert metrics["shared"] and metrics["aligned"]


@pytest.mark.parametrize("helpers", [0, 1])
@pytest.mark.parametrize("workers", [1, 2])
def test_functions_of_a_plan_do_not_depend_on_the_rank(fit: Fit, workers: int, helpers: int) -> None:
    """The ranks of a node share the rows that one of them has computed."""

    def with_rank(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "rank": numpy.full(len(batch["id"]), session.get_world_rank())}

    def train_func() -> None:
        with pytest.raises(LockstepError, match=r"the step map_batches\(with_rank\) .* asks for the session.*any rank"):
            list(session.get_dataset_shard("train").iter_batches(batch_size=10))
        rank = session.get_world_rank()  # in the loop, and in what the loop calls, it is known
        (batch,) = session.get_dataset_shard("plain").iter_torch_batches(
            batch_size=10, collate_fn=lambda batch: (session.get_world_rank(), len(batch["id"]))
        )
        session.report({"is_right": batch == (rank, 10)})

    train_set = lockstep.data.range(100).map_batches(with_rank, num_workers=helpers, keeps_rows=True)
    seen = Reports()
    fit(train_func, workers, callbacks=[seen], datasets={"train": train_set, "plain": lockstep.data.range(10)})
    assert [m["is_right"] for m in seen.metrics] == [True] * workers


def test_a_training_loop_that_waits_for_data_is_told_what_for(fit: Fit) -> None:
    def slow(batch: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.2)
        return batch

    def train_func() -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in session.get_dataset_shard("train").iter_batches(batch_size=10):
                time.sleep(0.001)
        session.report({"said": [str(each.message) for each in caught if each.category is RuntimeWarning]})

    ds = lockstep.data.range(400).repartition(40).map_batches(slow, keeps_rows=True)
    in_order = DataConfig(datasets_to_shuffle=[])  # else all blocks are read before the first batch
    (said,) = fit(train_func, 1, datasets={"train": ds}, dataset_config=in_order).metrics["said"]
    assert "of its time for the data set 'train': the step 'map_batches(slow)' takes most of the time" in said


# ---------------------------------------------------------------------- restarts

BATCH = 10
ROWS = 400


def await_checkpoints(count: int) -> None:
    """Until so many are committed, which happens behind the back of report()."""
    assert session._session is not None
    deadline = time.monotonic() + 30
    while len(list(Path(session._session.run_dir).glob("checkpoint_*[0-9]"))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def epochs(config: dict[str, Any]) -> None:
    """Two epochs; every batch is reported with a checkpoint. Rank `victim` dies at its batch `die_at`."""
    checkpoint, shard = session.get_checkpoint(), session.get_dataset_shard("train")
    done = checkpoint.to_dict() if checkpoint else {"epoch": 0, "step": 0}
    assert "lockstep" not in done
    step = done["step"]
    for epoch in range(done["epoch"], 2):
        for batch in shard.iter_batches(batch_size=BATCH, **config.get("loop", {})):
            step += 1
            session.barrier()
            if session.get_attempt() == 0 and session.get_world_rank() == config["victim"] and step == config["die_at"]:
                await_checkpoints((step - 1) // config["every"])
                os.kill(os.getpid(), signal.SIGKILL)
            state = Checkpoint.from_dict({"epoch": epoch, "step": step}) if step % config["every"] == 0 else None
            session.report(
                {"step": step, "epoch": epoch, "ids": batch["id"].tolist(), "attempt": session.get_attempt()},
                checkpoint=state,
            )
            session.barrier()
            if config.get("end_at") == step:
                return


def uninterrupted(ds: Any = None, window: int = 100_000) -> list[list[int]]:
    it = (ds or lockstep.data.range(ROWS)).iterator(seed=0, window=window)
    return [[n for batch in it.iter_batches(BATCH) for n in batch["id"].tolist()] for _ in range(2)]


@pytest.mark.parametrize(
    ("victim", "every", "loop", "source"),
    [(1, 3, {}, "range"), (0, 4, {"local_shuffle_buffer_size": 50}, "range"), (1, 3, {}, "files")],
)
def test_kill_9_loses_and_repeats_nothing(
    fit: Fit, victim: int, every: int, loop: dict[str, Any], source: str, tmp_path: Path
) -> None:
    seen = Reports()
    ds = lockstep.data.range(ROWS)
    if source == "files":
        for number in range(3):
            table = pyarrow.table({"id": range(ROWS)[number::3]})
            pyarrow.parquet.write_table(table, tmp_path / f"{number}.parquet", row_group_size=50)
        ds = lockstep.data.read_parquet(tmp_path / "*.parquet").map_batches(lambda batch: batch)
    fit(
        epochs,
        2,
        {"victim": victim, "die_at": 8, "every": every, "loop": loop},
        callbacks=[seen],
        failure_config=FailureConfig(max_failures=1),
        datasets={"train": ds},
    )
    kept = (7 // every) * every  # the step of the last checkpoint before the death
    counted = [m for m in seen.metrics if m["attempt"] == 1 or m["step"] <= kept]
    assert {m["attempt"] for m in counted} == {0, 1}
    order = uninterrupted(ds, window=loop.get("local_shuffle_buffer_size", 100_000))
    for epoch in range(2):
        rows = Counter(n for m in counted if m["epoch"] == epoch for n in m["ids"])
        assert rows == Counter(range(ROWS))
        in_order = sorted((m for m in counted if m["epoch"] == epoch), key=lambda m: m["step"])
        steps = [m["step"] for m in in_order]
        assert steps == sorted([*range(20 * epoch + 1, 20 * epoch + 21)] * 2)
        for step in set(steps):
            pair = sorted(n for m in in_order if m["step"] == step for n in m["ids"])
            at = (step - 20 * epoch - 1) * 2 * BATCH
            assert pair == sorted(order[epoch][at : at + 2 * BATCH])


def test_ranks_that_never_meet_lose_nothing_if_all_must_report(fit: Fit, tmp_path: Path) -> None:
    ahead = tmp_path / "rank 0 is ahead"

    def train_func() -> None:
        checkpoint, shard = session.get_checkpoint(), session.get_dataset_shard("train")
        rank, step = session.get_world_rank(), checkpoint.to_dict()["step"] if checkpoint else 0
        first = step
        for batch in shard.iter_batches(batch_size=BATCH):
            step += 1
            if session.get_attempt() == 0 and rank == 1 and step == 4:
                deadline = time.monotonic() + 30
                while not ahead.exists() and time.monotonic() < deadline:
                    time.sleep(0.01)
                await_checkpoints(3)
                os.kill(os.getpid(), signal.SIGKILL)
            report = {"ids": batch["id"].tolist(), "step": step, "attempt": session.get_attempt(), "first": first}
            session.report(report, checkpoint=Checkpoint.from_dict({"step": step}) if rank == 0 else None)
            if step == 8 and rank == 0 and session.get_attempt() == 0:
                ahead.touch()
                time.sleep(60)  # until rank 1 is killed

    seen = Reports()
    fit(
        train_func,
        2,
        callbacks=[seen],
        failure_config=FailureConfig(max_failures=1),
        checkpoint_config=CheckpointConfig(keep_all_ranks=True),
        datasets={"train": lockstep.data.range(ROWS)},
    )
    (kept,) = {m["first"] for m in seen.metrics if m["attempt"] == 1}
    assert kept == 3
    used = Counter(n for m in seen.metrics if m["attempt"] == 1 or m["step"] <= kept for n in m["ids"])
    assert used == Counter(range(ROWS))


def test_resume_and_restore_with_other_numbers_of_workers(
    make_trainer: Callable[..., DataParallelTrainer], tmp_path: Path
) -> None:
    config = {"victim": -1, "die_at": 0, "every": 1, "end_at": 5}
    first = Reports()
    options: dict[str, Any] = {"datasets": {"train": lockstep.data.range(ROWS)}}
    result = make_trainer(epochs, 2, config, callbacks=[first], **options).fit()
    assert result.checkpoint is not None and result.checkpoint.path is not None
    saved = json.loads((Path(result.checkpoint.path) / "lockstep.json").read_text())["datasets"]["train"]
    assert (saved["epoch"], saved["position"]) == (0, 5 * 2 * BATCH) and len(json.dumps(saved)) < 300
    assert "lockstep.json" in {entry["name"] for entry in result.checkpoint.metadata["files"]}
    result.checkpoint.verify()
    order = uninterrupted()
    assert sorted(n for m in first.metrics for n in m["ids"]) == sorted(order[0][: 5 * 2 * BATCH])

    copied = Checkpoint.from_directory(result.checkpoint.to_directory(str(tmp_path / "copy")))
    for workers, source in ((1, result.checkpoint), (3, copied), (1, Checkpoint.from_bytes(copied.to_bytes()))):
        more = Reports()
        rest = {**config, "end_at": 7}
        make_trainer(epochs, workers, rest, callbacks=[more], resume_from_checkpoint=source, **options).fit()
        at = 5 * 2 * BATCH
        expected = sorted(order[0][at : at + 2 * workers * BATCH])
        assert sorted(n for m in more.metrics for n in m["ids"]) == expected

    trainer = DataParallelTrainer.restore(result.path, train_loop_config={**config, "end_at": 6})  # its own data sets
    again = trainer.fit()
    at = 5 * 2 * BATCH
    assert again.metrics["ids"] == order[0][at : at + BATCH]
    other = lockstep.data.range(ROWS).limit(ROWS - 1)
    trainer = DataParallelTrainer.restore(
        result.path, train_loop_config={**config, "end_at": 7}, datasets={"train": other}
    )
    assert trainer.fit().metrics["ids"] == [
        n for batch in [next(other.iterator().iter_batches(BATCH))] for n in batch["id"].tolist()
    ]
    log = (Path(result.path) / "logs" / "rank_0.log").read_text()
    assert log.count("does not fit, so it begins with its first epoch") == 1 and "'train'" in log


def test_a_position_is_kept_until_the_data_set_is_used(fit: Fit) -> None:
    def train_func(config: dict[str, Any]) -> None:
        session.report({}, checkpoint=Checkpoint.from_dict({}))  # before the data set is asked for
        shard = session.get_dataset_shard()
        for number, batch in enumerate(shard.iter_batches(batch_size=4)):
            if number == config["batches"]:
                break
            session.report({"ids": batch["id"].tolist()}, checkpoint=Checkpoint.from_dict({}))

    options = {"datasets": {"train": lockstep.data.range(40)}, "checkpoint_config": CheckpointConfig(num_to_keep=0)}
    checkpoint, seen = None, []
    for batches in (2, 0, 1, 30):
        result = fit(train_func, 1, {"batches": batches}, resume_from_checkpoint=checkpoint, **options)
        checkpoint = result.checkpoint
        seen.append(result.metrics.get("ids"))
    order = [batch["id"].tolist() for batch in lockstep.data.range(40).iterator().iter_batches(4)]
    assert seen == [order[1], None, order[2], order[9]]


def test_without_resume_every_attempt_begins_at_the_first_row(fit: Fit) -> None:
    def train_func() -> None:
        batch = next(session.get_dataset_shard("train").iter_batches(batch_size=4))
        session.report({"ids": batch["id"].tolist()}, checkpoint=Checkpoint.from_dict({}))

    options = {"datasets": {"train": lockstep.data.range(40)}, "dataset_config": DataConfig(resume=False)}
    first = fit(train_func, 1, **options)
    second = fit(train_func, 1, resume_from_checkpoint=first.checkpoint, **options)
    assert first.metrics["ids"] == second.metrics["ids"]


def test_a_reported_directory_has_positions_of_its_own_run(fit: Fit, tmp_path: Path) -> None:
    def train_func(config: dict[str, str]) -> None:
        for _ in session.get_dataset_shard("train").iter_batches(batch_size=4):
            session.report({}, checkpoint=Checkpoint.from_directory(config["path"]))
            break

    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.bin").write_text("weights")
    options = {"datasets": {"train": lockstep.data.range(40)}}
    first = fit(train_func, 1, {"path": str(folder)}, **options).checkpoint
    assert first is not None and first.path is not None
    second = fit(train_func, 1, {"path": first.path}, resume_from_checkpoint=first, **options).checkpoint
    assert second is not None and second.path is not None
    assert sorted(os.listdir(second.path)) == ["lockstep.json", "manifest.json", "model.bin"]
    positions = [
        json.loads((Path(str(each.path)) / "lockstep.json").read_text())["datasets"]["train"]["position"]
        for each in (first, second)
    ]
    assert positions == [4, 8]
    (folder / "lockstep.json").write_text('{"my": "own"}')
    with pytest.raises(TrainingFailedError, match=r"lockstep\.json.*is Lockstep's own"):
        fit(train_func, 1, {"path": str(folder)}, **options)
