"""Files and messages that Lockstep did not write: whatever they contain, the error is a LockstepError."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import (
    Checkpoint,
    DataParallelTrainer,
    LockstepError,
    Result,
    RunConfig,
    StorageError,
    TrainingFailedError,
    session,
)

ODD = {
    "empty": b"",
    "null": b"null",
    "list": b"[]",
    "string": b'"x"',
    "number": b"-1e999",
    "huge_number": b"9" * 5000,
    "truncated": b'{"state": "fin',
    "deep": b"[" * 100_000,
    "deep_dict": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "latin1": b'{"state": "\xff\xfe"}',
    "bytes": b"\xff\x00\xc3",
    "wrong_types": b'{"state": 1, "config_run": [], "failures": "x", "metrics": 3, "driver": "x"}',
    "wrong_settings": b'{"state": "failed", "config_run": {"num_workers": [], "backend": 1, "num_to_keep": {}}}',
    "wrong_driver": b'{"state": "running", "driver": {"hostname": 7, "pid": "x"}}',
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def train_func(config: dict[str, Any]) -> None:
        for step in range(2):
            session.report({"step": step, "deep": {"x": 1}}, checkpoint=Checkpoint.from_dict({"step": step}))

    place = tmp_path_factory.mktemp("odd")
    return DataParallelTrainer(train_func, run_config=RunConfig(storage_path=place, name="run", verbose=0)).fit().path


def probes(path: Path) -> list[Callable[[], Any]]:
    newest = path / "checkpoint_000001"
    return [
        lambda: Result.from_path(path),
        lambda: repr(Result.from_path(path)),
        lambda: Result(path=path).config,
        lambda: Result(path=path).metrics_dataframe,
        lambda: DataParallelTrainer.can_restore(path),
        lambda: DataParallelTrainer.restore(path),
        lambda: DataParallelTrainer.restore(path)._plan(),
        lambda: DataParallelTrainer.restore(path).fit(),
        lambda: Checkpoint.from_directory(newest).to_dict(),
        lambda: Checkpoint.from_directory(newest).verify(),
        lambda: Checkpoint.from_directory(newest).to_bytes(),
        lambda: Checkpoint.from_directory(newest).metadata,
    ]


@pytest.mark.parametrize("name", ["run.json", "params.json", "result.json", "checkpoint_000001/manifest.json"])
@pytest.mark.parametrize("odd", ODD)
def test_odd_files_are_refused_in_our_own_words(run: Path, tmp_path: Path, name: str, odd: str) -> None:
    path = tmp_path / "run"
    shutil.copytree(run, path)
    (path / name).write_bytes(ODD[odd])
    refused = 0
    for probe in probes(path):
        try:
            probe()
        except LockstepError as error:
            str(error).encode()
            refused += 1
    # Half a line is what a kill leaves, and a configuration may be any dict.
    assert refused or name == "result.json" or (name == "params.json" and odd.startswith("wrong"))


@pytest.mark.parametrize("odd", ["null", "list", "deep", "bytes"])
def test_odd_lines_of_reports(run: Path, tmp_path: Path, odd: str) -> None:
    whole = (run / "result.json").read_bytes()
    (tmp_path / "result.json").write_bytes(whole + ODD[odd] + b"\n" + whole)
    with pytest.raises(StorageError, match=r"line 3 of .*result\.json"):
        _ = Result(path=tmp_path).metrics_dataframe
    (tmp_path / "result.json").write_bytes(whole)
    assert list(Result(path=tmp_path).metrics_dataframe["deep/x"]) == [1, 1]


def test_a_container_with_an_odd_name() -> None:
    name = b"a\xffb"
    container = b"LSCKPT01" + struct.pack("<QQ", 1, len(name)) + name + struct.pack("<Q", 0)
    with pytest.raises(StorageError, match=r"a\\xffb.* is not UTF-8"):
        Checkpoint.from_bytes(container)


def test_a_directory_with_an_odd_name(tmp_path: Path) -> None:
    with open(bytes(tmp_path) + b"/a\xffb", "wb"):
        pass
    with pytest.raises(LockstepError, match="a\\\\xffb"):
        Checkpoint.from_directory(tmp_path).to_dict()
    with pytest.raises(StorageError):
        Checkpoint.from_directory(tmp_path).verify()


def test_a_worker_that_sends_odd_bytes(make_trainer: Callable[..., DataParallelTrainer]) -> None:
    def train_func() -> None:
        import os
        import socket

        for fd in range(3, 20):
            try:
                connection = socket.socket(fileno=os.dup(fd))
            except OSError:
                continue
            # A frame with a CBOR map {"type": <no UTF-8>}.
            body = b"\xa1\x64type\x64\xff\xfe\xfd\xfc"
            connection.send(struct.pack("<I", len(body)) + body)
        session.barrier()

    with pytest.raises(TrainingFailedError) as caught:
        make_trainer(train_func, workers=1).fit()
    str(caught.value).encode()
