"""The checkpoint files of lockstep.sgd, written without workers."""

from __future__ import annotations

import os
import pickle
import resource
import shutil
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import numpy
import pytest
import torch
from lockstep import Checkpoint, CheckpointConfig
from lockstep.errors import ConfigError, StorageError
from lockstep.sgd.checkpoints import CheckpointFiles, CheckpointStrategy, plain_dict, read_checkpoint

ADDED = {"_timestamp", "_preprocessor", "_current_checkpoint_id"}


def committed(data: dict[str, Any]) -> Checkpoint:
    """As the core hands it over: in memory, taken apart."""
    return Checkpoint._from_handle(Checkpoint.from_dict(data)._as_handle())


def make(tmp_path: Path, *, as_file: bool = True, resume_from: Checkpoint | None = None, **strategy: Any) -> Any:
    place = tmp_path / "run_001" / "checkpoints"
    return CheckpointFiles(place, CheckpointStrategy(**strategy), as_file=as_file, resume_from=resume_from)


def names(files: CheckpointFiles) -> list[str]:
    return sorted(os.listdir(files.directory))


# ------------------------------------------------------------------ the strategy


def test_the_strategy_is_the_configuration_and_takes_its_fields_in_order() -> None:
    assert CheckpointStrategy is CheckpointConfig
    strategy = CheckpointStrategy(2, "loss", "min")
    assert strategy == CheckpointStrategy(
        num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min"
    )
    assert CheckpointStrategy() == CheckpointConfig(None, None, "max")
    for wrong in ({"num_to_keep": -1}, {"checkpoint_score_order": "best"}, {"checkpoint_score_attribute": ""}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            CheckpointStrategy(**wrong)


# ------------------------------------------------------------------ writing


def test_files_hold_the_pickled_dict_and_nothing_else(tmp_path: Path) -> None:
    files = make(tmp_path)
    assert (files.latest, files.latest_handle, files.latest_path) == (None, None, None)
    assert (files.best, files.best_path) == (None, None)
    assert not files.directory.exists(), "made when it is needed"
    saved = {"epoch": 3, "weights": numpy.arange(4.0), "tensor": torch.ones(2), "set": {1, 2}, "object": Path("/a")}
    files.add(committed({"epoch": 2}), {})
    files.add(committed(saved), {"loss": 1})
    assert names(files) == ["checkpoint_000001", "checkpoint_000002"]
    assert files.latest_path == files.directory / "checkpoint_000002"
    with open(files.latest_path, "rb") as file:
        data = cloudpickle.load(file)
    assert type(data) is dict and list(data) == list(saved)
    assert data["epoch"] == 3 and data["set"] == {1, 2} and data["object"] == Path("/a")
    assert numpy.array_equal(data["weights"], saved["weights"]) and torch.equal(data["tensor"], torch.ones(2))
    assert files.latest_path.stat().st_mode & 0o777 == 0o600
    assert files.directory.stat().st_mode & 0o777 == 0o700


def test_directories_are_checkpoints(tmp_path: Path) -> None:
    files = make(tmp_path, as_file=False)
    files.add(committed({"epoch": 0}), {})
    files.add(committed({"epoch": 1, "weights": numpy.arange(3)}), {})
    assert names(files) == ["checkpoint_000001", "checkpoint_000002"]
    data = Checkpoint.from_directory(files.latest_path).to_dict()
    assert data["epoch"] == 1 and data["weights"].tolist() == [0, 1, 2]
    assert files.latest_path.stat().st_mode & 0o777 == 0o700
    assert {entry.stat().st_mode & 0o777 for entry in files.latest_path.iterdir()} == {0o600}


@pytest.mark.parametrize("as_file", [True, False])
def test_what_a_run_adds_is_in_no_dict(tmp_path: Path, as_file: bool, fit: Any) -> None:
    def train_func() -> None:
        from lockstep import Checkpoint, session

        session.report({"loss": 1}, checkpoint=Checkpoint.from_dict({"epoch": 7}))

    checkpoint = fit(train_func, workers=1).checkpoint
    assert set(checkpoint.to_dict()) == {"epoch", *ADDED}
    assert plain_dict(checkpoint) == {"epoch": 7}
    files = make(tmp_path, as_file=as_file)
    files.add(checkpoint, {})
    assert files.latest == files.best == {"epoch": 7}
    assert plain_dict(read_checkpoint(files.latest_path)) == {"epoch": 7}


def test_what_is_latest_is_there_at_once_and_stays_what_it_was(tmp_path: Path) -> None:
    files = make(tmp_path)
    first = committed({"epoch": 0})
    files.add(first, {})
    assert files.latest_handle is first and files.latest == {"epoch": 0}
    files.latest["epoch"] = 5
    assert files.latest == {"epoch": 0}
    files.add(committed({"epoch": 1}), {})
    assert files.latest == {"epoch": 1} and files.best == {"epoch": 1}, "without a score the latest is best"
    assert files.best_path == files.latest_path


def test_before_the_first_one_the_latest_is_where_the_run_started_from(tmp_path: Path) -> None:
    start = Checkpoint.from_dict({"epoch": 9})
    files = make(tmp_path, resume_from=start, checkpoint_score_attribute="epoch")
    assert files.latest == files.best == {"epoch": 9} and files.latest_handle is start
    assert files.latest_path is None and files.best_path is None
    files.add(committed({"epoch": 1}), {})
    assert files.latest == files.best == {"epoch": 1}, "it is none of the run's own"
    assert names(files) == ["checkpoint_000001"]


# ------------------------------------------------------------------ keeping


@pytest.mark.parametrize("as_file", [True, False])
@pytest.mark.parametrize(
    ("strategy", "losses", "kept", "best"),
    [
        ({}, [3, 1, 2], [1, 2, 3], 3),
        ({"checkpoint_score_attribute": "loss"}, [3, 1, 2], [1, 2, 3], 1),
        ({"num_to_keep": 2}, [3, 1, 2], [2, 3], 3),
        ({"num_to_keep": 2, "checkpoint_score_attribute": "loss"}, [3, 9, 5, 7], [2, 4], 2),
        ({"num_to_keep": 2, "checkpoint_score_attribute": "loss"}, [9, 8, 7], [1, 2, 3], 1),
        ({"num_to_keep": 1, "checkpoint_score_attribute": "loss"}, [9, 8, 7], [1, 3], 1),
        ({"num_to_keep": 1, "checkpoint_score_attribute": "loss"}, [4, 4, 4], [3], 3),
        (
            {"num_to_keep": 1, "checkpoint_score_attribute": "loss", "checkpoint_score_order": "min"},
            [2, 1, 3],
            [2, 3],
            2,
        ),
        (
            {"num_to_keep": 2, "checkpoint_score_attribute": "loss", "checkpoint_score_order": "min"},
            [float("nan"), 3, 7, 5],
            [2, 4],
            2,
        ),
        ({"num_to_keep": 1, "checkpoint_score_attribute": "loss"}, [float("nan"), None, "high", True], [4], 4),
        ({"num_to_keep": 1, "checkpoint_score_attribute": "loss"}, [-5, float("nan"), None], [1, 3], 1),
        (
            {"num_to_keep": 1, "checkpoint_score_attribute": "loss", "checkpoint_score_order": "min"},
            [float("-inf"), float("inf"), float("nan")],
            [1, 3],
            1,
        ),
        ({"num_to_keep": 1, "checkpoint_score_attribute": "loss"}, [numpy.float32(2), torch.ones(1), [3]], [1, 3], 1),
        ({"num_to_keep": 1, "checkpoint_score_attribute": "loss"}, [numpy.int64(1), 10**400, -(10**400)], [2, 3], 2),
    ],
)
def test_the_best_and_the_latest_stay(
    tmp_path: Path, as_file: bool, strategy: dict[str, Any], losses: list[Any], kept: list[int], best: int
) -> None:
    files = make(tmp_path, as_file=as_file, **strategy)
    for number, loss in enumerate(losses, 1):
        files.add(committed({"loss": loss, "number": number}), {"other": 100})
    assert names(files) == [f"checkpoint_{number:06}" for number in kept]
    assert files.latest["number"] == len(losses)
    assert files.latest_path.name == f"checkpoint_{len(losses):06}"
    assert files.best["number"] == best
    assert files.best_path.name == f"checkpoint_{best:06}"
    assert plain_dict(read_checkpoint(files.best_path))["number"] == best


def test_the_score_is_in_the_dict_or_else_in_the_metrics(tmp_path: Path) -> None:
    files = make(tmp_path, num_to_keep=1, checkpoint_score_attribute="loss", checkpoint_score_order="min")
    files.add(committed({"n": 1}), {"loss": 5})
    files.add(committed({"n": 2, "loss": 2}), {"loss": 9})
    files.add(committed({"n": 3, "loss": float("nan")}), {"loss": 0})
    files.add(committed({"n": 4}), {})
    assert files.best == {"n": 2, "loss": 2}
    files.add(committed({"n": 5}), {"loss": 1})
    assert files.best == {"n": 5}
    assert names(files) == ["checkpoint_000005"]


@pytest.mark.parametrize("taken_apart", [True, False])
def test_the_score_may_lie_deeper(tmp_path: Path, taken_apart: bool) -> None:
    files = make(tmp_path, num_to_keep=1, checkpoint_score_attribute="validation/loss")
    for loss in (3, 5, 4):
        data = {"validation": {"loss": loss}, "loss": -loss}
        files.add(committed(data) if taken_apart else Checkpoint.from_dict(data), {})
    assert files.best["loss"] == -5
    deep = make(tmp_path / "deep", num_to_keep=1, checkpoint_score_attribute="validation/loss")
    for loss in (3, 5, 4):
        deep.add(committed({"n": loss}), {"validation": {"loss": loss}})
    assert deep.best == {"n": 5}


def test_the_time_may_be_the_score(tmp_path: Path) -> None:
    newest = make(tmp_path / "a", num_to_keep=1, checkpoint_score_attribute="_timestamp")
    oldest = make(tmp_path / "b", num_to_keep=1, checkpoint_score_attribute="_timestamp", checkpoint_score_order="min")
    for number in (1, 2, 3):
        newest.add(committed({"n": number}), {})
        oldest.add(committed({"n": number}), {})
    assert newest.best == {"n": 3} and names(newest) == ["checkpoint_000003"]
    assert oldest.best == {"n": 1} and names(oldest) == ["checkpoint_000001", "checkpoint_000003"]


class Unpicklable:
    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise AssertionError("a pickle was opened")


def test_no_pickle_is_opened_for_a_score(tmp_path: Path) -> None:
    files = make(tmp_path, as_file=False, num_to_keep=1, checkpoint_score_attribute="loss")
    files.add(committed({"loss": 2, "object": Unpicklable()}), {})
    files.add(committed({"loss": (Unpicklable(),)}), {"loss": 1})
    assert names(files) == ["checkpoint_000001", "checkpoint_000002"]
    assert files.best_path.name == "checkpoint_000001"


@pytest.mark.parametrize("as_file", [True, False])
def test_none_to_keep_means_in_memory_only(tmp_path: Path, as_file: bool) -> None:
    files = make(tmp_path, as_file=as_file, num_to_keep=0, checkpoint_score_attribute="loss")
    for loss in (1, 3, 2):
        files.add(committed({"loss": loss}), {})
    assert files.latest == {"loss": 2} and files.best == {"loss": 3}
    assert files.latest_path is None and files.best_path is None
    assert not files.directory.exists()


# ------------------------------------------------------------------ a refusing disk


@pytest.mark.parametrize("as_file", [True, False])
def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path, as_file: bool) -> None:
    (tmp_path / "run_001").write_text("")
    files = make(tmp_path, as_file=as_file)
    with pytest.raises(StorageError, match=r"run_001.*: (Not a directory|File exists)"):
        files.add(committed({"epoch": 0}), {})
    assert files.latest is None


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    files = make(tmp_path, num_to_keep=1)
    files.add(committed({"epoch": 0}), {})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"checkpoint_000002.*File too large"):
            files.add(committed({"epoch": 1}), {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(files) == ["checkpoint_000001"] and files.latest == {"epoch": 0}
    files.add(committed({"epoch": 2}), {})
    assert names(files) == ["checkpoint_000002"] and files.latest == {"epoch": 2}


def test_a_checkpoint_is_whole_before_it_has_its_name(tmp_path: Path) -> None:
    files = make(tmp_path)
    data = {"weights": numpy.ones(2_000_000)}
    seen: list[bool] = []

    def read_at_once() -> None:
        path = files.directory / "checkpoint_000001"
        while not path.exists():
            pass
        seen.append(bool((pickle.loads(path.read_bytes())["weights"] == data["weights"]).all()))

    reader = threading.Thread(target=read_at_once)
    reader.start()
    files.add(committed(data), {})
    reader.join()
    assert seen == [True]


@pytest.mark.parametrize("as_file", [True, False])
def test_one_that_the_user_removed_is_not_missed(tmp_path: Path, as_file: bool) -> None:
    files = make(tmp_path, as_file=as_file, num_to_keep=1)
    files.add(committed({"epoch": 0}), {})
    shutil.rmtree(files.latest_path) if files.latest_path.is_dir() else files.latest_path.unlink()
    files.add(committed({"epoch": 1}), {})
    assert names(files) == ["checkpoint_000002"]


# ------------------------------------------------------------------ reading


def test_dicts_and_checkpoints_are_taken_as_they_are() -> None:
    checkpoint = Checkpoint.from_dict({"epoch": 1})
    assert read_checkpoint(checkpoint) is checkpoint
    assert plain_dict(read_checkpoint({"epoch": 1})) == {"epoch": 1}


@pytest.mark.parametrize("as_file", [True, False])
@pytest.mark.parametrize("kind", [str, Path])
def test_paths_of_our_own(tmp_path: Path, as_file: bool, kind: type) -> None:
    files = make(tmp_path, as_file=as_file)
    files.add(committed({"epoch": 1}), {})
    assert plain_dict(read_checkpoint(kind(files.latest_path))) == {"epoch": 1}


def test_pickles_that_ray_wrote(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(cloudpickle.dumps({"epoch": 2, "model": lambda: 5}))
    assert plain_dict(read_checkpoint(tmp_path / "file"))["model"]() == 5
    place = tmp_path / "checkpoint_000002"
    place.mkdir()
    (place / "dict_checkpoint.pkl").write_bytes(cloudpickle.dumps({"epoch": 3}))
    assert plain_dict(read_checkpoint(place)) == {"epoch": 3}


@pytest.mark.parametrize("value", [3, None, ["a"], b"/a", object()])
def test_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"\[sgd\] checkpoint is a {type(value).__name__}; it must be a dict"):
        read_checkpoint(value)


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere.*no such file"):
        read_checkpoint(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="only local paths"):
        read_checkpoint("s3://bucket/checkpoint")


def test_files_that_hold_something_else_are_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "list").write_bytes(pickle.dumps([1]))
    (tmp_path / "broken").write_bytes(pickle.dumps(Unpicklable()))
    for name in ("text", "empty", "broken"):
        with pytest.raises(ConfigError, match=rf"{name} is not a pickled dict"):
            read_checkpoint(tmp_path / name)
    with pytest.raises(ConfigError, match="list holds a list; it must hold a dict"):
        read_checkpoint(tmp_path / "list")
