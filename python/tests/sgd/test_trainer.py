"""RaySGD's Trainer: runs, directories, checkpoints, start and shutdown, backends."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from lockstep import Checkpoint, LockstepError, sgd
from lockstep.backend import BackendConfig
from lockstep.errors import ConfigError
from lockstep.sgd import Backend, CheckpointStrategy, Trainer
from recorded import MakeTrainer, Recorder, die, is_gone


def test_values_come_by_rank_and_workers_stay(trainer: Trainer) -> None:
    def train_func(config: dict[str, Any]) -> tuple[int, int, list[int]]:
        return sgd.world_rank(), os.getpid(), list(range(config["num_epochs"]))

    first = trainer.run(train_func, config={"num_epochs": 2})
    second = trainer.run(train_func, config={"num_epochs": 5})
    assert [(rank, epochs) for rank, _, epochs in first] == [(0, [0, 1]), (1, [0, 1])]
    assert [epochs for _, _, epochs in second] == [[0, 1, 2, 3, 4]] * 2
    assert [pid for _, pid, _ in first] == [pid for _, pid, _ in second]
    assert len({pid for _, pid, _ in first}) == 2


def test_what_a_worker_holds_is_there_in_the_next_run(trainer: Trainer) -> None:
    def keep() -> None:
        sys.modules["held"] = sys  # type: ignore[assignment]
        os.environ["HELD"] = str(sgd.world_rank())

    trainer.run(keep)
    assert trainer.run(lambda: (os.environ["HELD"], "held" in sys.modules)) == [("0", True), ("1", True)]


def test_values_can_be_anything_that_can_be_pickled(trainer: Trainer) -> None:
    class Local:
        def __init__(self, rank: int) -> None:
            self.rank = rank

    values = trainer.run(lambda: Local(sgd.world_rank()))
    assert all(isinstance(value, Local) for value in values)
    assert [value.rank for value in values] == [0, 1]


def test_a_value_that_cannot_be_pickled_is_an_error_that_says_so(trainer: Trainer) -> None:
    import threading

    with pytest.raises(ConfigError, match=r"what the function returned.*lock"):
        trainer.run(lambda: {"lock": threading.Lock()})
    assert trainer.run(lambda: 1) == [1, 1]


def test_the_functions_know_their_place(trainer: Trainer) -> None:
    assert trainer.run(lambda: (sgd.world_rank(), sgd.local_rank(), sgd.world_size())) == [(0, 0, 2), (1, 1, 2)]


def test_callbacks_hear_all_ranks(trainer: Trainer) -> None:
    def train_func() -> None:
        for epoch in range(3):
            sgd.report(epoch=epoch, rank=sgd.world_rank())

    recorder = Recorder()
    trainer.run(train_func, callbacks=[recorder])
    assert recorder.calls[0] == ("start", str(trainer.latest_run_dir))
    assert recorder.calls[-1] == ("finish", False)
    assert [[(row["epoch"], row["rank"]) for row in results] for results in recorder.results] == [
        [(epoch, 0), (epoch, 1)] for epoch in range(3)
    ]
    for iteration, results in enumerate(recorder.results, 1):
        for row in results:
            assert set(row) == {"epoch", "rank", "_timestamp", "_time_this_iter_s", "_training_iteration"}
            assert row["_training_iteration"] == iteration


@pytest.mark.parametrize(
    "name", ["SGD_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS", "TRAIN_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS"]
)
def test_detailed_metrics(make: MakeTrainer, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    trainer, recorder = make(), Recorder()
    with trainer:
        pids = trainer.run(lambda: (sgd.report(loss=1), os.getpid())[1], callbacks=[recorder])
    assert [row["_pid"] for row in recorder.results[0]] == pids
    assert {"_date", "_hostname", "_node_ip", "_time_total_s"} < set(recorder.results[0][1])


def test_a_callback_may_write_into_the_run_directory(make: MakeTrainer, tmp_path: Path) -> None:
    import json

    def train_func() -> None:
        checkpoint = sgd.load_checkpoint()
        sgd.report(again=checkpoint is not None)
        if checkpoint is None:
            sgd.save_checkpoint(epoch=0)
            sgd.load_checkpoint()
            os.kill(os.getpid(), signal.SIGKILL)

    with make(num_workers=1) as trainer:
        trainer.run(train_func, callbacks=[sgd.JsonLoggerCallback()])
        assert trainer.latest_run_dir is not None
        log = json.loads((trainer.latest_run_dir / "results.json").read_text())
    assert [[row["again"] for row in rows] for rows in log] == [[False], [True]]


def test_a_callbacks_error_is_its_own(trainer: Trainer) -> None:
    class Failing(Recorder):
        def handle_result(self, results: list[dict[str, Any]], **info: Any) -> None:
            raise ArithmeticError("not today")

    recorder = Failing()
    with pytest.raises(ArithmeticError, match="not today"):
        trainer.run(lambda: sgd.report(loss=1), callbacks=[recorder])
    assert recorder.calls[-1] == ("finish", True)
    assert trainer.run(lambda: 1) == [1, 1]


def test_directories(make: MakeTrainer, tmp_path: Path) -> None:
    trainer = make()
    assert trainer.logdir == tmp_path / "logs"
    assert trainer.latest_run_dir is None and trainer.latest_checkpoint_dir is None
    with trainer:
        trainer.run(lambda: None)
        assert trainer.latest_run_dir == tmp_path / "logs" / "run_001"
        trainer.run(lambda: None)
        assert trainer.latest_run_dir == tmp_path / "logs" / "run_002"
        assert (trainer.latest_run_dir / "run.json").exists()
    with make() as another:
        another.run(lambda: None)
        assert another.latest_run_dir == tmp_path / "logs" / "run_003"


def test_default_and_relative_directories(make: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_STORAGE_PATH", str(tmp_path))
    assert make(logdir="mine").logdir == tmp_path / "mine"
    default = make(logdir=None).logdir
    assert default.parent == tmp_path
    assert default.name.startswith("sgd_20") and len(default.name) == len("sgd_2021-09-01_12-00-00")
    assert make(logdir="~/elsewhere").logdir == Path.home() / "elsewhere"


def save(config: dict[str, Any]) -> int:
    checkpoint = sgd.load_checkpoint() or {}
    model = checkpoint.get("model", 0)
    for epoch in range(checkpoint.get("epoch", -1) + 1, config["num_epochs"]):
        model += epoch
        sgd.save_checkpoint(epoch=epoch, model=model)
    return len(checkpoint)


def test_checkpoints_are_kept(trainer: Trainer) -> None:
    assert trainer.latest_checkpoint is None and trainer.latest_checkpoint_path is None
    trainer.run(save, config={"num_epochs": 5})
    assert trainer.latest_checkpoint == {"epoch": 4, "model": 10}
    assert trainer.latest_run_dir is not None
    assert trainer.latest_checkpoint_dir == trainer.latest_run_dir / "checkpoints"
    assert trainer.latest_checkpoint_path == trainer.latest_checkpoint_dir / "checkpoint_000005"
    assert trainer.latest_checkpoint_path.is_file()
    assert trainer.best_checkpoint == trainer.latest_checkpoint
    assert trainer.load_checkpoint_from_path(trainer.latest_checkpoint_path) == {"epoch": 4, "model": 10}


def test_a_fresh_run_sees_only_the_checkpoint_that_it_is_given(trainer: Trainer) -> None:
    trainer.run(save, config={"num_epochs": 2})
    path = trainer.latest_checkpoint_path
    assert trainer.run(save, config={"num_epochs": 2}) == [0, 0]
    for given in ({"epoch": 2, "model": 3}, Checkpoint.from_dict({"epoch": 2, "model": 3})):
        assert trainer.run(save, config={"num_epochs": 5}, checkpoint=given) == [2, 2]
        assert trainer.latest_checkpoint == {"epoch": 4, "model": 10}
    assert trainer.run(sgd.load_checkpoint, checkpoint=path) == [{"epoch": 1, "model": 1}] * 2
    assert trainer.latest_checkpoint == {"epoch": 1, "model": 1}
    assert trainer.latest_checkpoint_path is None


def test_the_strategy_keeps_the_best(trainer: Trainer) -> None:
    def losses() -> None:
        for loss in (2, 4, 1, 3):
            sgd.save_checkpoint(loss=loss)

    strategy = CheckpointStrategy(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min")
    trainer.run(losses, checkpoint_strategy=strategy)
    assert trainer.best_checkpoint == {"loss": 1} and trainer.latest_checkpoint == {"loss": 3}
    assert trainer.best_checkpoint_path is not None and trainer.best_checkpoint_path.name == "checkpoint_000003"
    assert trainer.latest_checkpoint_dir is not None
    kept = sorted(path.name for path in trainer.latest_checkpoint_dir.iterdir())
    assert kept == ["checkpoint_000001", "checkpoint_000003", "checkpoint_000004"]  # the latest is never deleted


def test_in_memory_only(trainer: Trainer) -> None:
    trainer.run(save, config={"num_epochs": 2}, checkpoint_strategy=CheckpointStrategy(num_to_keep=0))
    assert trainer.latest_checkpoint == {"epoch": 1, "model": 1}
    assert trainer.latest_checkpoint_path is None
    assert trainer.latest_checkpoint_dir is not None and not trainer.latest_checkpoint_dir.exists()


def test_as_a_context_manager(make: MakeTrainer) -> None:
    with make() as trainer:
        pids = trainer.run(os.getpid)
    assert all(map(is_gone, pids))
    with pytest.raises(LockstepError, match=r"run\(\) was called before start\(\) or after shutdown\(\)"):
        trainer.run(os.getpid)


def test_calls_that_come_at_the_wrong_time(make: MakeTrainer) -> None:
    trainer = make()
    for call in (lambda: trainer.run(os.getpid), lambda: trainer.run_iterator(os.getpid), trainer.shutdown):
        with pytest.raises(RuntimeError, match=r"before start\(\)"):
            call()
    trainer.start()
    with pytest.raises(RuntimeError, match="started already"):
        trainer.start()
    trainer.shutdown()
    with pytest.raises(RuntimeError, match=r"after shutdown\(\)"):
        trainer.shutdown()
    trainer.start()
    assert trainer.run(lambda: 1) == [1, 1]


def test_the_hook_runs_on_every_worker_and_on_those_that_replace_them(make: MakeTrainer, tmp_path: Path) -> None:
    def hook() -> None:
        os.environ["HOOKED"] = str(os.getpid())

    def die_once() -> bool:
        if not (tmp_path / "died").exists() and sgd.world_rank() == 1:
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return os.environ["HOOKED"] == str(os.getpid())

    trainer = make()
    trainer.start(initialization_hook=hook)
    assert trainer.run(lambda: os.environ["HOOKED"] == str(os.getpid())) == [True, True]
    assert trainer.run(die_once) == [True, True]


def test_a_hook_that_fails(make: MakeTrainer) -> None:
    def fail() -> None:
        raise ZeroDivisionError("hook")

    trainer = make()
    with pytest.raises(ZeroDivisionError, match="hook"):
        trainer.start(initialization_hook=fail)
    with pytest.raises(RuntimeError):
        trainer.start(initialization_hook=lambda: sys.exit(0))
    trainer.start()
    assert trainer.run(lambda: 1) == [1, 1]


def test_bad_arguments(make: MakeTrainer, trainer: Trainer) -> None:
    for settings, words in (
        ({"backend": "caffe"}, "'torch', 'tensorflow', 'horovod'"),
        ({"num_workers": 0}, "num_workers is 0"),
        ({"max_retries": -2}, "max_retries is -2"),
        ({"max_retries": 1.5}, "max_retries is 1.5"),
    ):
        with pytest.raises(ValueError, match=words):
            make(**settings)
    with pytest.raises(ValueError, match="2 parameters"):
        trainer.run(lambda a, b: None)
    with pytest.raises(ValueError, match="config is 3"):
        trainer.run(lambda: None, config=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nowhere"):
        trainer.run(lambda: None, checkpoint="/nowhere/checkpoint")
    with pytest.raises(ValueError, match="is a list; it must be a data set"):
        trainer.run(save, dataset=[1])
    with pytest.raises(ValueError, match="2 parameters"):
        trainer.to_tune_trainable(lambda a, b: None)
    assert trainer.latest_run_dir is None


def test_two_trainers_at_once(make: MakeTrainer, tmp_path: Path) -> None:
    with make() as one, make(num_workers=3, logdir=tmp_path / "other") as other:
        first = one.run(os.getpid)
        assert len(other.run(os.getpid)) == 3
        assert one.run(os.getpid) == first


def test_hooks_of_a_backend(make: MakeTrainer, tmp_path: Path) -> None:
    class Noting(Backend):
        def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
            notes.append(("start", worker_group.execute(lambda a, b: a + b + sgd.world_rank(), 1, b=2)))

        def on_training_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
            notes.append(("training", worker_group.execute_single(1, sgd.world_rank)))

        def on_shutdown(self, worker_group: Any, backend_config: BackendConfig) -> None:
            notes.append(("shutdown", isinstance(backend_config, NotingConfig)))

    class NotingConfig(BackendConfig):
        @property
        def backend_cls(self) -> type[Backend]:
            return Noting

    notes: list[tuple[str, Any]] = []
    with make(backend=NotingConfig()) as trainer:
        trainer.run(die, config={"deaths": 1})
    assert notes == [("start", [3, 4]), ("training", 1), ("start", [3, 4]), ("training", 1), ("shutdown", True)]


def test_torch(make: MakeTrainer) -> None:
    def train_func() -> float:
        import torch
        import torch.distributed as dist

        value = torch.tensor([float(sgd.world_rank() + 1)])
        dist.all_reduce(value)
        return value.item()

    with make(backend="torch") as trainer:
        assert trainer.run(train_func) == [3.0, 3.0]
        with pytest.raises(ZeroDivisionError):
            trainer.run(lambda: 1 / 0)
        assert trainer.run(train_func) == [3.0, 3.0]


def test_data_sets(make: MakeTrainer) -> None:
    import lockstep.data

    def train_func(config: dict[str, str]) -> list[float]:
        shard = sgd.get_data_shard() if config["name"] == "" else sgd.get_dataset_shard(config["name"])
        batches = [(x, y) for x, y in shard.to_torch(label_column="y", batch_size=4)]
        assert all(x.shape == (len(x), 1) and y.shape == (len(y), 1) for x, y in batches)
        return sorted(float(value) for x, _ in batches for value in x.flatten())

    items = [{"x": float(n), "y": n} for n in range(20)]
    ds = lockstep.data.from_items(items)
    with make(num_workers=2) as trainer:
        for name, dataset in (("", ds), ("b", {"a": ds.limit(2), "b": ds})):
            first, second = trainer.run(train_func, config={"name": name}, dataset=dataset)
            assert len(first) == len(second) == 10 and sorted(first + second) == [float(n) for n in range(20)]
        with pytest.raises(RuntimeError, match="found no data sets"):
            trainer.run(train_func, config={"name": ""})
