"""The preprocessor of a trainer: fitted, applied, stored with the run and its checkpoints."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lockstep.data
import pytest
from lockstep import Checkpoint, ConfigError, DataParallelTrainer, Result, StorageError, session
from lockstep.data.preprocessors import Chain, SimpleImputer, StandardScaler

Fit = Callable[..., Result]


class Shift:
    """A preprocessor, as the trainer sees it."""

    def __init__(self) -> None:
        self.count: int | None = None

    def fit(self, ds: Any) -> Shift:
        self.count = ds.count()
        return self

    def transform(self, ds: Any) -> Any:
        assert self.count is not None
        return lockstep.data.from_items([{"id": row["id"] + self.count} for row in ds.iter_rows()])


def test_the_preprocessor_is_fitted_applied_and_stored(fit: Fit, tmp_path: Path) -> None:
    def train_func(config: dict[str, Any]) -> None:
        shards = {name: session.get_dataset_shard(name) for name in ("train", "b")}
        rows = {name: sorted(row["id"] for row in shard.iter_rows()) for name, shard in shards.items()}
        saved = Checkpoint.from_directory(config["path"]) if config["path"] else Checkpoint.from_dict({"loss": 1})
        session.report(rows, checkpoint=saved)

    datasets = {"train": lockstep.data.range(4), "b": lockstep.data.range(2)}
    for path in ("", str(tmp_path / "model")):
        if path:
            os.mkdir(path)
            (tmp_path / "model" / "x").write_text("y")
        shift = Shift()
        result = fit(train_func, 1, {"path": path}, datasets=datasets, preprocessor=shift)
        assert result.metrics["train"] == [4, 5, 6, 7] and result.metrics["b"] == [4, 5]
        assert shift.count == 4 and result.checkpoint is not None
        stored = result.checkpoint.get_preprocessor()
        assert isinstance(stored, Shift) and stored.count == 4
        if not path:
            assert result.checkpoint.to_dict()["_preprocessor"].count == 4
    restored = DataParallelTrainer.restore(result.path, train_loop_config={"path": ""}, datasets=datasets).fit()
    assert restored.metrics["train"] == [4, 5, 6, 7] and restored.checkpoint is not None
    assert restored.checkpoint.get_preprocessor().count == 4
    with pytest.raises(ConfigError, match="fitted on the data set 'train', but the data sets are 'b'"):
        fit(train_func, 1, datasets={"b": datasets["b"]}, preprocessor=Shift())


def scaled(config: dict[str, Any]) -> None:
    """Reports the rows of this rank."""
    rows = sorted(row["x"] for row in session.get_dataset_shard("train").iter_rows())
    session.report({"rows": rows, "pid": os.getpid()}, checkpoint=Checkpoint.from_dict({"epoch": 1}))


def test_built_in_preprocessors_are_stored_without_pickle(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = {"train": lockstep.data.from_items([{"x": n} for n in (1, 2, 3)])}
    preprocessor = Chain(SimpleImputer(["x"]), StandardScaler(["x"]))
    result = fit(scaled, 1, {}, datasets=datasets, preprocessor=preprocessor)
    assert result.checkpoint is not None and result.checkpoint.path is not None
    place = Path(result.checkpoint.path)
    assert sorted(os.listdir(place)) == ["data.json", "lockstep.json", "lockstep_preprocessor.json", "manifest.json"]
    assert b"\x80" not in (place / "lockstep_preprocessor.json").read_bytes()
    monkeypatch.setattr(pickle, "loads", None)
    for stored in (result.checkpoint.get_preprocessor(), result.checkpoint.to_dict()["_preprocessor"]):
        assert repr(stored) == repr(preprocessor)
        assert [each.stats_ for each in stored.preprocessors] == [each.stats_ for each in preprocessor.preprocessors]
    other = {"train": lockstep.data.from_items([{"x": 2}])}  # the driver of a restored run needs no pickle either
    restored = DataParallelTrainer.restore(result.path, train_loop_config={}, datasets=other).fit()
    assert restored.metrics["rows"] == [0.0]


def test_a_hostile_pickle_in_the_place_of_a_preprocessor_is_not_opened(fit: Fit, tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "opened"),)

    datasets = {"train": lockstep.data.from_items([{"x": n} for n in (1, 2, 3)])}
    result = fit(scaled, 1, {}, datasets=datasets, preprocessor=StandardScaler(["x"]))
    assert result.checkpoint is not None
    copy = Path(result.checkpoint.to_directory(tmp_path / "copy"))
    (copy / "lockstep_preprocessor.json").write_bytes(pickle.dumps(Hostile()))
    (copy / "lockstep_preprocessor.pkl").write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(StorageError, match="no stored preprocessor"):
        Checkpoint.from_directory(copy).get_preprocessor()
    assert not (tmp_path / "opened").exists()


class Noted(Shift):
    """Writes down which processes unpickle it."""

    def __init__(self, notes: Path) -> None:
        super().__init__()
        self.notes = notes

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        with open(self.notes, "a") as file:
            file.write(f"{os.getpid()}\n")


def test_only_workers_unpickle_own_preprocessors(fit: Fit, tmp_path: Path) -> None:
    def train_func(config: dict[str, Any]) -> None:
        rows = sorted(row["id"] for row in session.get_dataset_shard("train").iter_rows())
        session.report({"rows": rows, "pid": os.getpid()}, checkpoint=Checkpoint.from_dict({}))

    datasets = {"train": lockstep.data.range(4)}
    result = fit(train_func, 1, {}, datasets=datasets, preprocessor=Noted(tmp_path / "notes"))
    assert result.metrics["rows"] == [4, 5, 6, 7]
    other = {"train": lockstep.data.range(2)}
    (tmp_path / "notes").unlink(missing_ok=True)
    restored = DataParallelTrainer.restore(result.path, train_loop_config={}, datasets=other).fit()
    assert restored.metrics["rows"] == [4, 5]
    assert (tmp_path / "notes").read_text().split() == [str(restored.metrics["pid"])]
    assert restored.checkpoint is not None and restored.checkpoint.get_preprocessor().count == 4


def test_checkpoints_with_a_preprocessor_of_their_own(fit: Fit, tmp_path: Path) -> None:
    mine = Checkpoint.from_dict({"a": 1, "_preprocessor": {"mean": 3}})
    assert mine.get_preprocessor() == {"mean": 3}
    assert Checkpoint.from_bytes(mine.to_bytes()).get_preprocessor() == {"mean": 3}
    assert Checkpoint.from_dict({}).get_preprocessor() is None

    def train_func(config: dict[str, str]) -> None:
        saved = Checkpoint.from_directory(config["path"])
        saved.set_preprocessor({"mean": 4})
        session.report({}, checkpoint=saved)

    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "y").write_text("z")
    checkpoint = fit(train_func, 1, {"path": str(tmp_path / "x")}).checkpoint
    assert checkpoint is not None and checkpoint.get_preprocessor() == {"mean": 4}
    checkpoint = fit(lambda: session.report({}, checkpoint=mine), 1).checkpoint
    assert checkpoint is not None and checkpoint.to_dict()["_preprocessor"] == {"mean": 3}
