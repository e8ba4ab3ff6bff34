"""Checkpoints, on their own and through runs."""

from __future__ import annotations

import json
import os
import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from lockstep import (
    Checkpoint,
    CheckpointConfig,
    ConfigError,
    DataParallelTrainer,
    FailureConfig,
    Result,
    StorageError,
    TrainingFailedError,
    session,
    train,
)

Fit = Callable[..., Result]
ADDED = ("_timestamp", "_preprocessor", "_current_checkpoint_id")


def stripped(checkpoint: Checkpoint | None) -> dict[Any, Any]:
    assert checkpoint is not None
    return {key: value for key, value in checkpoint.to_dict().items() if key not in ADDED}


# ---------------------------------------------------------------------- by themselves


def test_a_dict_is_kept_and_comes_back() -> None:
    weights = numpy.arange(3)
    checkpoint = Checkpoint.from_dict({"epoch": 1, "weights": weights})
    assert checkpoint.to_dict()["weights"] is weights
    assert checkpoint.path is None and checkpoint.uri is None
    assert checkpoint.metadata == {} == checkpoint.get_metadata()
    assert checkpoint.get_internal_representation() == ("data_dict", {"epoch": 1, "weights": weights})
    assert repr(checkpoint) == "Checkpoint(dict with 'epoch', 'weights')"


def test_changing_what_to_dict_gave_does_not_change_the_checkpoint() -> None:
    checkpoint = Checkpoint.from_dict({"epoch": 1})
    checkpoint.to_dict().pop("epoch")
    assert checkpoint.to_dict() == {"epoch": 1}


def test_a_dict_becomes_files_that_a_person_can_read(tmp_path: Path) -> None:
    value = {"epoch": 1, "weights": numpy.arange(3.0)}
    path = Checkpoint.from_dict(value).to_directory(tmp_path / "c")
    assert sorted(os.listdir(path)) == ["data.json", "tensors.safetensors"]
    assert json.loads(Path(path, "data.json").read_text())["epoch"] == 1
    again = Checkpoint.from_directory(path).to_dict()
    assert again["epoch"] == 1 and again["weights"].tolist() == [0, 1, 2]
    assert set(again) == {"epoch", "weights"}, "nothing is added to what no run committed"


def test_a_directory_stays_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"weights")
    checkpoint = Checkpoint.from_directory(tmp_path)
    assert checkpoint.path == str(tmp_path) == os.fspath(checkpoint)
    assert checkpoint.uri == f"file://{tmp_path}"
    assert checkpoint.get_internal_representation() == ("local_path", str(tmp_path))
    with checkpoint.as_directory() as path:
        assert path == str(tmp_path)
    assert (tmp_path / "model.bin").exists()


def test_a_directory_is_no_dict(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"weights")
    with pytest.raises(ConfigError, match=r"model.bin.*as_directory"):
        Checkpoint.from_directory(tmp_path).to_dict()


def test_as_directory_of_a_dict_is_temporary() -> None:
    with Checkpoint.from_dict({"epoch": 1}).as_directory() as path:
        assert os.listdir(path) == ["data.json"]
    assert not os.path.exists(path)


def test_to_directory_without_a_path_makes_one() -> None:
    path = Checkpoint.from_dict({"epoch": 1}).to_directory()
    assert Checkpoint.from_directory(path).to_dict() == {"epoch": 1}
    os.unlink(os.path.join(path, "data.json"))
    os.rmdir(path)


def test_bytes_and_addresses(tmp_path: Path) -> None:
    checkpoint = Checkpoint.from_dict({"epoch": 1, "p": Path("/x")})
    assert Checkpoint.from_bytes(checkpoint.to_bytes()).to_dict() == {"epoch": 1, "p": Path("/x")}
    assert checkpoint.to_uri(f"file://{tmp_path}/c") == f"file://{tmp_path}/c"
    assert Checkpoint.from_uri(f"file://{tmp_path}/c").to_dict()["epoch"] == 1
    with pytest.raises(ConfigError, match="ftp://host/c"):
        Checkpoint.from_uri("ftp://host/c")


def test_files_go_through_bytes(tmp_path: Path) -> None:
    (tmp_path / "a" / "deep").mkdir(parents=True)
    (tmp_path / "a" / "deep" / "model.bin").write_bytes(b"weights")
    again = Checkpoint.from_bytes(Checkpoint.from_directory(tmp_path / "a").to_bytes())
    assert again.path is None
    assert again.get_internal_representation()[0] == "data_bytes"
    again.to_directory(tmp_path / "b")
    assert (tmp_path / "b" / "deep" / "model.bin").read_bytes() == b"weights"


@pytest.mark.parametrize("kind", ["dict", "directory", "memory"])
def test_pickling(kind: str, tmp_path: Path) -> None:
    checkpoint = Checkpoint.from_dict({"epoch": 1})
    if kind == "directory":
        checkpoint = Checkpoint.from_directory(checkpoint.to_directory(tmp_path / "c"))
    elif kind == "memory":
        checkpoint = Checkpoint.from_bytes(checkpoint.to_bytes())
    again = pickle.loads(pickle.dumps(checkpoint))
    assert again.to_dict() == {"epoch": 1}
    assert again.path == checkpoint.path


def test_wrong_calls() -> None:
    with pytest.raises(ConfigError, match="from_dict"):
        Checkpoint()
    with pytest.raises(ConfigError, match="must be a dict"):
        Checkpoint.from_dict([1])  # type: ignore[arg-type]
    with pytest.raises(StorageError, match="/no/such/place"):
        Checkpoint.from_directory("/no/such/place")
    with pytest.raises(ConfigError, match="in memory only"):
        os.fspath(Checkpoint.from_dict({}))


# ---------------------------------------------------------------------- through runs


def test_the_latest_is_in_the_result_with_the_added_keys(fit: Fit) -> None:
    def train_func() -> None:
        for epoch in range(3):
            session.report(
                {"epoch": epoch}, checkpoint=Checkpoint.from_dict({"epoch": epoch, "w": numpy.full(4, epoch)})
            )

    result = fit(train_func)
    assert result.checkpoint is not None
    value = result.checkpoint.to_dict()
    assert value["epoch"] == 2 and value["w"].tolist() == [2, 2, 2, 2]
    assert (
        value["_current_checkpoint_id"] == 2 and value["_preprocessor"] is None and isinstance(value["_timestamp"], int)
    )
    assert result.checkpoint.get_internal_representation() == ("local_path", str(result.path / "checkpoint_000002"))
    assert [int(c.metadata["seq"]) for c, _ in result.best_checkpoints] == [0, 1, 2]
    assert result.checkpoint.metadata["metrics"]["epoch"] == 2
    result.checkpoint.verify()


def test_a_reported_dict_may_be_changed_at_once(fit: Fit) -> None:
    def train_func() -> None:
        weights = numpy.zeros(200_000)
        for epoch in range(5):
            weights[:] = epoch
            session.report({}, checkpoint=Checkpoint.from_dict({"w": weights}))
            weights[:] = -1

    result = fit(train_func, workers=1)
    for checkpoint, _ in result.best_checkpoints:
        assert set(checkpoint.to_dict()["w"].tolist()) == {checkpoint.metadata["seq"]}


def test_a_directory_can_be_reported_and_removed(fit: Fit, tmp_path: Path) -> None:
    def train_func(config: dict[str, str]) -> None:
        import shutil

        place = Path(config["place"]) / str(session.get_world_rank())
        (place / "deep").mkdir(parents=True)
        (place / "deep" / "model.bin").write_bytes(b"weights")
        session.report({}, checkpoint=Checkpoint.from_directory(place))
        shutil.rmtree(place)

    result = fit(train_func, config={"place": str(tmp_path / "scratch")})
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as path:
        assert Path(path, "deep", "model.bin").read_bytes() == b"weights"


def test_only_rank_zero_is_written_and_taken_apart(fit: Fit) -> None:
    def train_func() -> None:
        rank = session.get_world_rank()
        # A lock cannot be pickled: were rank 1's dict taken apart, this would raise.
        value: dict[str, Any] = {"rank": rank}
        if rank == 1:
            import threading

            value["lock"] = threading.Lock()
        session.report({}, checkpoint=Checkpoint.from_dict(value))

    assert stripped(fit(train_func).checkpoint) == {"rank": 0}


def test_keep_all_ranks_merges_the_parts(fit: Fit, tmp_path: Path) -> None:
    def train_func(config: dict[str, str]) -> None:
        rank = session.get_world_rank()
        place = Path(config["place"]) / str(rank)
        place.mkdir(parents=True)
        (place / f"shard_{rank}.bin").write_bytes(bytes([rank]))
        session.report({}, checkpoint=Checkpoint.from_directory(place))

    result = fit(
        train_func,
        workers=3,
        config={"place": str(tmp_path / "scratch")},
        checkpoint_config=CheckpointConfig(keep_all_ranks=True),
    )
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as path:
        assert {f"shard_{rank}.bin" for rank in range(3)} <= set(os.listdir(path))


def test_keep_all_ranks_refuses_one_name_from_two_ranks(fit: Fit) -> None:
    def train_func() -> None:
        session.report({}, checkpoint=Checkpoint.from_dict({"rank": session.get_world_rank()}))

    with pytest.raises(TrainingFailedError, match=r"data\.json") as caught:
        fit(train_func, checkpoint_config=CheckpointConfig(keep_all_ranks=True))
    assert "0" in str(caught.value) and "1" in str(caught.value)


def test_the_best_are_kept_as_in_the_documents(fit: Fit) -> None:
    def train_func() -> None:
        for loss in (2, 4, 1, 3):
            session.report({"loss": 2}, checkpoint=Checkpoint.from_dict({"loss": loss}))

    config = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min")
    result = fit(train_func, checkpoint_config=config)
    kept = [Path(str(checkpoint.path)).name for checkpoint, _ in result.best_checkpoints]
    assert kept == ["checkpoint_000000", "checkpoint_000002"]
    assert stripped(result.best_checkpoint) == {"loss": 1}
    assert stripped(result.checkpoint) == {"loss": 3}
    on_disk = sorted(path.name for path in result.path.glob("checkpoint_*"))
    assert on_disk == ["checkpoint_000000", "checkpoint_000002", "checkpoint_000003"], "the latest stays too"


@pytest.mark.parametrize(
    "make",
    [
        lambda score: {"score": numpy.float32(score)},
        lambda score: {"score": numpy.array(score)},
        lambda score: {"score": score, 7: "a key that is no str"},
        lambda score: OrderedDict(score=score),
    ],
    ids=["numpy scalar", "array", "dict of any keys", "ordered dict"],
)
def test_the_score_is_found_in_any_form_also_by_restore(fit: Fit, make: Callable[[float], dict[Any, Any]]) -> None:
    def train_func(config: dict[str, Any]) -> None:
        for score in config["scores"]:
            session.report({}, checkpoint=Checkpoint.from_dict(make(score)))
        session.get_checkpoint()
        if len(config["scores"]) > 1:
            raise ValueError("not yet")

    keep = CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="score")
    with pytest.raises(TrainingFailedError) as caught:
        fit(train_func, workers=1, config={"scores": [1.0, 5.0, 3.0]}, checkpoint_config=keep)
    path = caught.value.result.path
    result = DataParallelTrainer.restore(path, train_loop_config={"scores": [2.0]}).fit()
    for each in (caught.value.result, result, Result.from_path(path)):
        assert [checkpoint.metadata["seq"] for checkpoint, _ in each.best_checkpoints] == [1]
    assert sorted(entry.name for entry in path.glob("checkpoint_*")) == ["checkpoint_000001", "checkpoint_000003"]


def test_the_score_may_come_from_the_metrics(fit: Fit) -> None:
    def train_func() -> None:
        for step, score in enumerate((0.5, 0.9, float("nan"), 0.1)):
            session.report({"score": score}, checkpoint=Checkpoint.from_dict({"step": step}))

    result = fit(train_func, checkpoint_config=CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="score"))
    assert stripped(result.best_checkpoint) == {"step": 1}
    assert len(result.best_checkpoints) == 1


def test_num_to_keep_zero_writes_nothing(fit: Fit) -> None:
    def train_func() -> None:
        for epoch in range(3):
            train.save_checkpoint(epoch=epoch)

    result = fit(train_func, checkpoint_config=CheckpointConfig(num_to_keep=0))
    assert list(result.path.glob("checkpoint_*")) == []
    assert result.checkpoint is not None and result.checkpoint.path is None
    assert stripped(result.checkpoint) == {"epoch": 2}


def test_num_to_keep_zero_survives_a_failure(fit: Fit) -> None:
    def train_func() -> None:
        checkpoint = session.get_checkpoint()
        if checkpoint is None:
            session.report({}, checkpoint=Checkpoint.from_dict({"epoch": 7}))
            session.get_checkpoint()
            session.barrier()
            os._exit(3)
        session.report({"found": checkpoint.to_dict()["epoch"]})

    result = fit(
        train_func,
        checkpoint_config=CheckpointConfig(num_to_keep=0),
        failure_config=FailureConfig(max_failures=1),
    )
    assert result.metrics["found"] == 7


def test_resume_from_checkpoint(fit: Fit) -> None:
    def train_func(config: dict[str, int]) -> None:
        checkpoint = session.get_checkpoint()
        start = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0
        for epoch in range(start, config["epochs"]):
            session.report({"epoch": epoch, "start": start}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))

    first = fit(train_func, config={"epochs": 2}, name="first")
    second = fit(train_func, config={"epochs": 4}, name="second", resume_from_checkpoint=first.checkpoint)
    assert second.metrics["start"] == 2
    assert stripped(second.checkpoint) == {"epoch": 3}
    memory = fit(train_func, config={"epochs": 9}, resume_from_checkpoint=Checkpoint.from_dict({"epoch": 6}))
    assert memory.metrics["start"] == 7


def test_get_checkpoint_finds_what_this_rank_reported(fit: Fit) -> None:
    def train_func() -> None:
        found = []
        for epoch in range(3):
            session.report({}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))
            checkpoint = session.get_checkpoint()
            assert checkpoint is not None
            found.append(checkpoint.to_dict()["epoch"])
        session.report({"found": found})

    assert fit(train_func, workers=1).metrics["found"] == [0, 1, 2]


@pytest.mark.parametrize("num_to_keep", [None, 0, 1])
def test_every_rank_finds_the_checkpoint_that_it_reported(fit: Fit, num_to_keep: int | None) -> None:
    def train_func() -> None:
        for epoch in range(3):
            checkpoint = {"epoch": epoch, "weights": numpy.zeros(10**5)}
            session.report({"epoch": epoch}, checkpoint=Checkpoint.from_dict(checkpoint))
            found = session.get_checkpoint()
            assert found is not None
            contents = found.to_dict()
            assert contents["epoch"] >= epoch
            assert contents["_current_checkpoint_id"] == contents["epoch"] and "_timestamp" in contents

    result = fit(train_func, workers=3, checkpoint_config=CheckpointConfig(num_to_keep=num_to_keep))
    left = [path for path in result.path.iterdir() if path.name.startswith("checkpoint_")]
    assert len(left) == (3 if num_to_keep is None else num_to_keep)


def test_get_checkpoint_does_not_wait_for_what_rank_zero_never_reports(fit: Fit) -> None:
    def train_func() -> None:
        if session.get_world_rank() == 0:
            session.report({}, checkpoint=Checkpoint.from_dict({"epoch": 0}))
            return
        for epoch in range(3):
            session.report({}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))
        found = session.get_checkpoint()
        assert found is not None and found.to_dict()["epoch"] == 0

    fit(train_func, hang_timeout=20)


def test_get_checkpoint_tells_that_the_checkpoint_could_not_be_written(fit: Fit) -> None:
    def train_func() -> None:
        import resource
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        session.report({}, checkpoint=Checkpoint.from_dict({"weights": numpy.zeros(10**5)}))
        with pytest.raises(StorageError, match="File too large"):
            session.get_checkpoint()

    with pytest.raises(TrainingFailedError):
        fit(train_func, workers=1, hang_timeout=20)


@pytest.mark.parametrize("keep_all_ranks", [False, True])
def test_a_refused_checkpoint_may_be_caught(fit: Fit, tmp_path: Path, keep_all_ranks: bool) -> None:
    def train_func() -> None:
        rank = str(session.get_world_rank())
        place = tmp_path / rank
        place.mkdir()
        (place / f"a{rank}").write_text("x")
        (place / "outside").symlink_to(tmp_path)
        with pytest.raises(StorageError, match="outside the checkpoint"):
            Checkpoint.from_directory(place).to_directory(tmp_path / f"copy{rank}")
        if rank == "0" or keep_all_ranks:
            with pytest.raises(StorageError, match="outside the checkpoint"):
                session.report({"i": 0}, checkpoint=Checkpoint.from_directory(place))
        (place / "outside").unlink()
        session.report({"i": 1}, checkpoint=Checkpoint.from_directory(place))

    result = fit(train_func, checkpoint_config=CheckpointConfig(keep_all_ranks=keep_all_ranks))
    assert result.metrics["i"] == 1 and result.metrics["training_iteration"] == 1
    assert result.checkpoint is not None and result.checkpoint.metadata["seq"] == 0
    assert result.checkpoint.metadata["ranks"] == ([0, 1] if keep_all_ranks else [0])


def test_a_training_iteration_that_is_no_number_does_not_stop_the_next_attempt(fit: Fit) -> None:
    def train_func() -> None:
        found = session.get_checkpoint()
        session.report({"training_iteration": "x"}, checkpoint=Checkpoint.from_dict({"epoch": 1}))
        session.get_checkpoint()
        if found is None:
            raise ValueError("once")

    assert fit(train_func, workers=1, failure_config=FailureConfig(max_failures=1)).state == "finished"


def test_a_broken_checkpoint_is_passed_over(fit: Fit, make_trainer: Any, tmp_path: Path) -> None:
    def train_func() -> None:
        checkpoint = session.get_checkpoint()
        start = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0
        for epoch in range(start, 3):
            session.report({"epoch": epoch, "start": start}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))
        if start == 0:
            session.get_checkpoint()  # waits until the last one is committed
            session.barrier()
            raise ValueError("once")

    trainer = make_trainer(train_func, name="run")
    with pytest.raises(TrainingFailedError) as caught:
        trainer.fit()
    assert caught.value.result is not None
    broken = caught.value.result.path / "checkpoint_000002" / "data.json"
    broken.write_text(broken.read_text().replace("2", "8"))
    result = type(trainer).restore(caught.value.result.path).fit()
    assert result.metrics["start"] == 2, "checkpoint 2 is broken, 1 is the newest good one"


def test_an_unsavable_checkpoint_is_an_error_that_names_the_key(fit: Fit) -> None:
    def train_func() -> None:
        import threading

        session.report({}, checkpoint=Checkpoint.from_dict({"state": {"lock": threading.Lock()}}))

    with pytest.raises(TrainingFailedError, match=r"\['state'\]\['lock'\], a _thread.lock"):
        fit(train_func, workers=1)


def test_a_preprocessor_that_was_set_is_pickled_too() -> None:
    for checkpoint in (
        Checkpoint.from_dict({"x": 1}),
        Checkpoint.from_bytes(Checkpoint.from_dict({"x": 1}).to_bytes()),
    ):
        checkpoint.set_preprocessor(complex)
        assert pickle.loads(pickle.dumps(checkpoint)).get_preprocessor() is complex
