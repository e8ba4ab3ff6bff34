"""Storage that others can write, and what is stored."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import DataParallelTrainer, Result, TrainingFailedError, _pickling, session
from lockstep.errors import StorageError

Fit = Callable[..., Result]
Make = Callable[..., DataParallelTrainer]

NOBODY = 65534
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Storage that everybody may write to, as /tmp."""
    path = tmp_path / "runs"
    path.mkdir()
    path.chmod(0o1777)
    return path


def give_away(path: Path) -> None:
    for each in (path, *path.rglob("*")):
        os.chown(each, NOBODY, NOBODY, follow_symlinks=False)


def failed_run(make_trainer: Make, config: dict[str, Any] | None = None) -> Path:
    def train_func() -> None:
        raise ValueError("as it was meant")

    with pytest.raises(TrainingFailedError) as caught:
        make_trainer(train_func, workers=1, config=config, name="run").fit()
    assert caught.value.result is not None
    return caught.value.result.path


def refused(trainer: DataParallelTrainer) -> str:
    with pytest.raises(StorageError) as caught:
        trainer.fit()
    return str(caught.value)


# ---------------------------------------------------------------------- a directory that somebody prepared


@pytest.mark.parametrize("name", ["params.json.partial", "function.pkl.partial", "run.json.partial", "params.json"])
def test_a_link_in_a_prepared_directory_overwrites_nothing(make_trainer: Make, shared: Path, name: str) -> None:
    victim = shared.parent / "victim"
    victim.write_text("precious")
    (shared / "run").mkdir()
    (shared / "run" / name).symlink_to(victim)
    message = refused(make_trainer(lambda: None, name="run"))
    assert f"{shared}/run/{name}" in message and "is a link" in message
    assert victim.read_text() == "precious"
    assert os.listdir(shared / "run") == [name]


def test_a_directory_that_others_can_write_is_refused(make_trainer: Make, shared: Path) -> None:
    (shared / "run").mkdir()
    (shared / "run").chmod(0o777)
    message = refused(make_trainer(lambda: None, name="run"))
    assert "other users can write" in message and "mode 0777" in message and "chmod -R go-w" in message
    assert os.listdir(shared / "run") == []


def test_a_link_as_run_directory_is_refused(make_trainer: Make, shared: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (shared / "run").symlink_to(tmp_path / "home")
    assert "is a link" in refused(make_trainer(lambda: None, name="run"))
    assert os.listdir(tmp_path / "home") == []


@only_root
def test_a_directory_of_another_user_is_refused(make_trainer: Make, shared: Path) -> None:
    (shared / "run").mkdir()
    give_away(shared / "run")
    message = refused(make_trainer(lambda: None, name="run"))
    assert f"uid {NOBODY}" in message and f"uid {os.geteuid()}" in message and "storage_path" in message


def test_shared_storage_through_a_link_is_fine(fit: Fit, shared: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(shared)

    def train_func() -> None:
        from lockstep import Checkpoint

        session.report({"x": 1}, checkpoint=Checkpoint.from_dict({"x": 1}))

    for name in ("run", None):
        result = fit(train_func, workers=1, storage_path=tmp_path / "link", name=name)
        assert result.path.parent == tmp_path / "link"
        assert result.checkpoint is not None and result.checkpoint.to_dict()["x"] == 1
        assert (result.path.stat().st_mode & 0o777) == 0o700


# ---------------------------------------------------------------------- restore


def test_a_run_that_others_can_write_is_read_but_not_restored(make_trainer: Make) -> None:
    path = failed_run(make_trainer)
    trainer = DataParallelTrainer.restore(path)
    (path / "run.json").chmod(0o666)
    assert "run.json" in refused(trainer)
    with pytest.raises(StorageError, match="mode 0666"):
        DataParallelTrainer.restore(path)
    (path / "run.json").chmod(0o600)
    path.chmod(0o777)
    with pytest.raises(StorageError, match="mode 0777"):
        DataParallelTrainer.restore(path)
    assert Result.from_path(path).state == "failed"
    path.chmod(0o700)
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")
    with pytest.raises(StorageError, match="is a link"):
        DataParallelTrainer.restore(path)


@only_root
def test_a_run_of_another_user_is_read_but_not_restored(make_trainer: Make) -> None:
    path = failed_run(make_trainer)
    give_away(path)
    with pytest.raises(StorageError, match=f"uid {NOBODY}"):
        DataParallelTrainer.restore(path)
    assert Result.from_path(path).state == "failed"


def test_a_function_that_was_exchanged_is_not_run(make_trainer: Make, tmp_path: Path) -> None:
    path = failed_run(make_trainer)
    marker = str(tmp_path / "marker")
    saved = (path / "function.pkl").read_bytes()
    expected = json.loads((path / "run.json").read_text())["function_sha256"]
    assert expected == hashlib.sha256(saved).hexdigest()

    evil = _pickling.dump(lambda: open(marker, "w").close(), None)
    (path / "function.pkl").write_bytes(evil)
    message = refused(DataParallelTrainer.restore(path))
    assert expected in message and hashlib.sha256(evil).hexdigest() in message
    assert "function.pkl" in message and "pass train_loop_per_worker" in message
    assert not os.path.exists(marker)

    # A new function does without the file, and replaces it.
    trainer = DataParallelTrainer.restore(path, lambda: session.report({"x": 1}))
    assert trainer.fit().metrics["x"] == 1
    record = json.loads((path / "run.json").read_text())
    assert record["function_sha256"] == hashlib.sha256((path / "function.pkl").read_bytes()).hexdigest() != expected
    assert "function_sha256_next" not in record
    assert not os.path.exists(marker)


def test_an_exchanged_function_takes_its_configuration_with_it(make_trainer: Make) -> None:
    path = failed_run(make_trainer, config={"x": 1})
    (path / "function.pkl").write_bytes(b"")
    assert "and train_loop_config" in refused(DataParallelTrainer.restore(path, lambda config: None))
    result = DataParallelTrainer.restore(path, session.report, {"x": 2}).fit()
    assert result.metrics["x"] == 2


def test_a_run_from_before_there_were_hashes_is_restored(make_trainer: Make) -> None:
    path = failed_run(make_trainer)
    record = json.loads((path / "run.json").read_text())
    del record["function_sha256"]
    (path / "run.json").write_text(json.dumps(record))
    with pytest.raises(TrainingFailedError, match="as it was meant"):
        DataParallelTrainer.restore(path).fit()
    assert json.loads((path / "run.json").read_text())["function_sha256"]


# ---------------------------------------------------------------------- large functions, storage that cannot be used


def test_a_large_function_is_stored_once(fit: Fit, tmp_path: Path) -> None:
    table = bytes(range(256)) * 10_000

    def train_func() -> None:
        session.report({"size": len(table)})

    first, second = (fit(train_func, workers=1, name=name) for name in ("a", "b"))
    assert second.metrics["size"] == len(table)
    assert (first.path / "function.pkl").samefile(second.path / "function.pkl")
    [stored] = (tmp_path / "runs" / ".lockstep" / "functions").iterdir()
    assert stored.name == hashlib.sha256(stored.read_bytes()).hexdigest() + ".pkl"
    assert stored.stat().st_nlink == 3 and stored.stat().st_mode & 0o777 == 0o600

    shutil.rmtree(first.path)
    shutil.move(second.path, tmp_path / "elsewhere")
    again = DataParallelTrainer.restore(tmp_path / "elsewhere", train_loop_config={}).fit()
    assert again.metrics["size"] == len(table)


def test_storage_that_cannot_be_used_is_called_by_its_name(
    make_trainer: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    for place in ("/proc/lockstep_results", tmp_path / "file", tmp_path / "file" / "below"):
        for name in ("run", None):
            message = refused(make_trainer(lambda: None, storage_path=place, name=name))
            assert f'storage_path "{place}"' in message
            assert "RunConfig(storage_path=...)" in message and "LOCKSTEP_STORAGE_PATH" in message
    monkeypatch.setenv("LOCKSTEP_STORAGE_PATH", "/proc/lockstep_results")
    assert 'storage_path "/proc/lockstep_results"' in refused(DataParallelTrainer(lambda: None))
