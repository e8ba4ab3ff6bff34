"""Runs whose storage path is in an object store, seen as a user sees them."""

from __future__ import annotations

import json
import os
import stat
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
    RunConfig,
    ScalingConfig,
    StorageError,
    session,
)

from .conftest import Server

STORAGE = "s3://bucket/some/prefix"


def count(config: dict[str, Any]) -> None:
    checkpoint = session.get_checkpoint()
    start = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0
    print(f"rank {session.get_world_rank()} begins at {start}")
    for epoch in range(start, config["epochs"]):
        data = {"epoch": epoch, "weights": numpy.full(1000, epoch)}
        session.report({"epoch": epoch, "start": start}, checkpoint=Checkpoint.from_dict(data))
        if epoch == config.get("fails_at"):
            raise RuntimeError("as planned")


def trainer(name: str = "run", epochs: int = 3, storage: str = STORAGE, **options: Any) -> DataParallelTrainer:
    config = {"epochs": epochs, "fails_at": options.pop("fails_at", None)}
    options.setdefault("checkpoint_config", CheckpointConfig(num_to_keep=2))
    run = RunConfig(name=name, storage_path=storage, verbose=0, **options)
    return DataParallelTrainer(
        count, train_loop_config=config, scaling_config=ScalingConfig(num_workers=2), run_config=run
    )


def test_a_run_lands_in_the_bucket(server: Server, tmp_path: Path) -> None:
    result = trainer().fit()
    assert result.uri == STORAGE + "/run"
    assert result.checkpoint is not None and result.checkpoint.uri == STORAGE + "/run/checkpoint_000002"
    objects = server.objects("some/prefix/run/")
    names = {key.removeprefix("some/prefix/run/") for key, size in objects.items() if size > 0}
    assert {"run.json", "params.json", "result.json", "progress.csv", "function.pkl", "logs/rank_1.log"} <= names
    assert {name for name in names if name.startswith("checkpoint_")} == {
        f"checkpoint_{seq:06}/{file}"
        for seq in (1, 2)
        for file in ("data.json", "tensors.safetensors", "manifest.json")
    }
    assert json.loads(server.read("some/prefix/run/run.json"))["state"] == "finished"
    assert len(server.read("some/prefix/run/result.json").splitlines()) == 3
    assert b"rank 1 begins at 0" in server.read("some/prefix/run/logs/rank_1.log")
    assert server.open_uploads() == []
    # The live directory is private to the user, and everything is there too.
    assert result.path.is_relative_to(tmp_path / "cache")
    assert stat.S_IMODE(os.stat(tmp_path / "cache").st_mode) == 0o700
    assert Result.from_path(result.path).metrics["epoch"] == 2


def test_reading_from_another_machine(server: Server, forget: Callable[[], Path]) -> None:
    trainer().fit()
    cache = forget()
    assert DataParallelTrainer.can_restore(STORAGE + "/run")
    assert not DataParallelTrainer.can_restore(STORAGE + "/other")
    assert not list(cache.glob("**/checkpoint_*")), "asking copies nothing"
    result = Result.from_path(STORAGE + "/run")
    assert result.state == "finished" and result.metrics["epoch"] == 2 and result.config["epochs"] == 3
    assert [metrics["epoch"] for _, metrics in result.best_checkpoints] == [1, 2]
    assert result.checkpoint is not None
    assert (result.checkpoint.to_dict()["weights"] == 2).all()
    assert result.path.is_relative_to(cache) and result.uri == STORAGE + "/run"
    assert len(result.metrics_dataframe) == 3
    with pytest.raises(StorageError, match="some/prefix/other"):
        Result.from_path(STORAGE + "/other")


def test_going_on_on_another_machine(server: Server, forget: Callable[[], Path]) -> None:
    trainer().fit()
    forget()
    restored = DataParallelTrainer.restore(STORAGE + "/run", train_loop_config={"epochs": 5}).fit()
    assert restored.metrics["start"] == 3 and restored.metrics["epoch"] == 4
    forget()
    again = Result.from_path(STORAGE + "/run")
    assert again.metrics["epoch"] == 4 and len(again.metrics_dataframe) == 5
    assert [checkpoint.uri for checkpoint, _ in again.best_checkpoints] == [
        STORAGE + f"/run/checkpoint_{seq:06}" for seq in (3, 4)
    ]
    assert not [key for key in server.objects() if "checkpoint_000002" in key]


def test_an_old_copy_gives_way(server: Server, forget: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine A begins, machine B goes on, and A reads what B did."""
    trainer().fit()
    first = os.environ["LOCKSTEP_CACHE_PATH"]
    forget()
    DataParallelTrainer.restore(STORAGE + "/run", train_loop_config={"epochs": 6}).fit()
    monkeypatch.setenv("LOCKSTEP_CACHE_PATH", first)
    result = Result.from_path(STORAGE + "/run")
    assert result.metrics["epoch"] == 5
    assert sorted(path.name for path in result.path.glob("checkpoint_*")) == ["checkpoint_000004", "checkpoint_000005"]


def test_a_script_that_is_started_again(server: Server, forget: Callable[[], Path]) -> None:
    with pytest.raises(Exception, match="as planned"):
        trainer(fails_at=1, resume="auto").fit()
    kept = [key for key in server.objects() if key.endswith("/manifest.json")]
    forget()
    result = trainer(epochs=4, resume="auto").fit()
    assert result.metrics["start"] == len(kept) and result.metrics["epoch"] == 3
    forget()
    again = trainer(epochs=4, resume="auto").fit()
    assert again.metrics["start"] == len(kept), "a finished run is not run again"


def test_a_name_is_taken_once(server: Server, forget: Callable[[], Path]) -> None:
    trainer().fit()
    with pytest.raises(ConfigError, match=r"s3://bucket/some/prefix/run already holds a run"):
        trainer().fit()
    forget()
    with pytest.raises(ConfigError, match="already holds a run"):
        trainer().fit()
    for key in server.objects():  # the user removes it in the store; the copy does not count
        server.client.delete_object(Bucket="bucket", Key=key)
    assert trainer(epochs=1).fit().metrics["start"] == 0


def test_failures_are_retried_from_the_local_copy(server: Server) -> None:
    def fails_once(config: dict[str, Any]) -> None:
        checkpoint = session.get_checkpoint()
        start = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0
        for epoch in range(start, 4):
            session.report({"epoch": epoch, "start": start}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))
            if start == 0 and epoch == 1:
                session.barrier()
                raise RuntimeError("once")

    run = RunConfig(name="r", storage_path=STORAGE, verbose=0, failure_config=FailureConfig(max_failures=1))
    result = DataParallelTrainer(fails_once, run_config=run).fit()
    assert result.metrics["epoch"] == 3 and len(result.failures) == 1
    assert json.loads(server.read("some/prefix/r/run.json"))["attempt"] == 1


def test_the_endpoint_may_be_in_the_address(
    server: Server, forget: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    options = f"?endpoint_override={server.url.removeprefix('http://')}&scheme=http"
    result = trainer(storage=STORAGE + options).fit()
    assert result.uri == STORAGE + "/run" + options
    assert "some/prefix/run/run.json" in server.objects()
    forget()
    assert Result.from_path(STORAGE + "/run" + options).metrics["epoch"] == 2


def test_default_storage_path(server: Server, forget: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_STORAGE_PATH", "s3://bucket/default")
    run = RunConfig(verbose=0, name="by-name")
    DataParallelTrainer(count, train_loop_config={"epochs": 1}, run_config=run).fit()
    forget()
    assert Result.from_path("by-name").uri == "s3://bucket/default/by-name"


def test_checkpoints_by_address(server: Server, forget: Callable[[], Path], tmp_path: Path) -> None:
    uri = Checkpoint.from_dict({"a": 1, "x": numpy.arange(5)}).to_uri("s3://bucket/mine/first")
    assert uri == "s3://bucket/mine/first"
    assert set(server.objects("mine/")) == {"mine/first/data.json", "mine/first/tensors.safetensors"}
    back = Checkpoint.from_uri(uri)
    assert back.to_dict()["a"] == 1 and back.uri == uri
    (tmp_path / "files" / "deep").mkdir(parents=True)
    (tmp_path / "files" / "deep" / "x.bin").write_bytes(b"x" * 100)
    Checkpoint.from_directory(tmp_path / "files").to_uri("s3://bucket/mine/second")
    with Checkpoint.from_uri("s3://bucket/mine/second").as_directory() as place:
        assert Path(place, "deep", "x.bin").read_bytes() == b"x" * 100
    with pytest.raises(StorageError, match="s3://bucket/mine/third"):
        Checkpoint.from_uri("s3://bucket/mine/third")

    result = trainer().fit()
    assert result.checkpoint is not None and result.checkpoint.uri is not None
    forget()
    copy = Checkpoint.from_uri(result.checkpoint.uri)
    assert copy.to_dict()["epoch"] == 2
    run = RunConfig(name="from", storage_path=STORAGE, verbose=0)
    for source in (copy, result.checkpoint.uri, STORAGE + "/run"):
        run.name = f"from-{type(source).__name__}-{len(str(source))}"
        resumed = DataParallelTrainer(
            count, train_loop_config={"epochs": 4}, run_config=run, resume_from_checkpoint=source
        ).fit()
        assert resumed.metrics["start"] == 3


def test_damage_in_the_store_is_noticed(server: Server, forget: Callable[[], Path]) -> None:
    trainer().fit()
    key = "some/prefix/run/checkpoint_000002/tensors.safetensors"
    body = bytearray(server.read(key))
    body[-1] ^= 1
    server.client.put_object(Bucket="bucket", Key=key, Body=bytes(body))
    forget()
    with pytest.raises(StorageError, match=r"checkpoint_000002/tensors.safetensors.*wrong hash"):
        Checkpoint.from_uri(STORAGE + "/run/checkpoint_000002")


def test_leftovers_are_removed_by_the_next_start(server: Server) -> None:
    trainer().fit()
    for key in ("checkpoint_000003/data.json", "checkpoint_000007/deep/x"):
        server.client.put_object(Bucket="bucket", Key="some/prefix/run/" + key, Body=b"half")
    DataParallelTrainer.restore(STORAGE + "/run", train_loop_config={"epochs": 4}).fit()
    left = {key.split("/")[3] for key in server.objects("some/prefix/run/checkpoint_")}
    assert left == {"checkpoint_000002", "checkpoint_000003"}
    assert server.read("some/prefix/run/checkpoint_000003/data.json") != b"half"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("s3://no-such-bucket/x", r"no-such-bucket.*create it"),
        ("s3://bucket/../x", "must not have the parts"),
        ("s3:///x", "names no bucket"),
        ("s3://key:secret@bucket/x", r"password.*credentials"),
        ("ftp://host/x", "s3://, gs://"),
    ],
)
def test_addresses_that_cannot_be_used(server: Server, address: str, said: str) -> None:
    with pytest.raises((ConfigError, StorageError), match=said) as raised:
        trainer(storage=address).fit()
    assert "key:secret" not in str(raised.value)
