"""Checkpoints that cannot be read or are damaged, and scores that they lack."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lockstep import (
    Checkpoint,
    CheckpointConfig,
    DataParallelTrainer,
    FailureConfig,
    Result,
    StorageError,
    TrainingFailedError,
    session,
)

MakeTrainer = Callable[..., DataParallelTrainer]


def stopping_at(last: int) -> Callable[..., None]:
    def train_func() -> None:
        checkpoint = session.get_checkpoint()
        first = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        for step in range(first, last):
            session.report({"step": step, "first": first}, checkpoint=Checkpoint.from_dict({"step": step}))
        if last == 3:
            raise ValueError("once")

    return train_func


@pytest.fixture
def failed(make_trainer: MakeTrainer) -> Path:
    """A run that failed after step 2."""
    with pytest.raises(TrainingFailedError) as caught:
        make_trainer(stopping_at(3), workers=1, name="run").fit()
    assert caught.value.result is not None
    return caught.value.result.path


def go_on(run: Path, **options: Checkpoint) -> Result:
    return DataParallelTrainer.restore(run, stopping_at(5), {}, **options).fit()


def damage(run: Path, *seqs: int) -> None:
    for seq in seqs:
        (run / f"checkpoint_{seq:06}" / "data.json").write_text("{}")


def test_the_one_before_a_damaged_one_is_taken_with_a_word(failed: Path, capfd: pytest.CaptureFixture[str]) -> None:
    damage(failed, 2)
    result = go_on(failed)
    assert result.metrics["first"] == 2
    assert "checkpoint_000002 is damaged" in capfd.readouterr().err, "verbose=0 is no reason to be silent"
    (warning,) = json.loads((failed / "run.json").read_text())["warnings"]
    assert "data.json" in warning and "trying checkpoint_000001" in warning


def test_a_lost_manifest_is_damage(failed: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (failed / "checkpoint_000002" / "manifest.json").unlink()
    assert go_on(failed).metrics["first"] == 2
    assert "manifest.json is missing" in capfd.readouterr().err


def test_a_run_whose_checkpoints_are_all_damaged_does_not_begin_anew(failed: Path) -> None:
    damage(failed, 0, 1, 2)
    with pytest.raises(StorageError, match="move the directories checkpoint_") as caught:
        go_on(failed)
    assert isinstance(caught.value, TrainingFailedError) and caught.value.failures[-1].kind == "storage"
    given = Checkpoint.from_dict({"step": 1})
    assert go_on(failed, resume_from_checkpoint=given).metrics["first"] == 2


def test_without_the_damaged_ones_a_run_begins_anew(failed: Path) -> None:
    damage(failed, 0, 1, 2)
    for seq in range(3):
        (failed / f"checkpoint_{seq:06}").rename(failed / f"damaged_{seq}")
    assert go_on(failed).metrics["first"] == 0


def test_the_next_attempt_does_not_begin_anew(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    def train_func() -> None:
        session.report({"attempt": session.get_attempt()}, checkpoint=Checkpoint.from_dict({"step": 0}))
        session.get_checkpoint()
        for each in Path(session.get_trial_dir()).glob("checkpoint_*/data.json"):
            each.write_text("{}")
        raise ValueError("once")

    trainer = make_trainer(train_func, workers=1, name="run", failure_config=FailureConfig(max_failures=5))
    with pytest.raises(StorageError, match="every checkpoint in"):
        trainer.fit()
    assert len(json.loads((tmp_path / "runs/run/run.json").read_text())["failures"]) == 2, "it would not get better"


UNREADABLE = """
import json, sys
from pathlib import Path
from lockstep import DataParallelTrainer, LockstepError

run = Path(sys.argv[1])
manifest = run / "checkpoint_000002" / "manifest.json"
manifest.chmod(0)
try:
    DataParallelTrainer.restore(run).fit()
except LockstepError as error:
    manifest.chmod(0o600)
    print(json.dumps([[each.__name__ for each in type(error).__mro__], str(error)]))
"""


def without_privileges() -> None:
    """Drops the capabilities with which root can read files without permission; other users have none."""
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def test_a_checkpoint_that_cannot_be_read_is_not_a_damaged_one(failed: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNREADABLE, failed],
        stdout=subprocess.PIPE,
        preexec_fn=without_privileges,
        check=True,
        timeout=120,
    )
    types, message = json.loads(done.stdout)
    assert {"StorageError", "TrainingFailedError"} <= set(types)
    assert "checkpoint_000002/manifest.json" in message and "EACCES" in message
    assert go_on(failed).metrics["first"] == 3, "nothing has begun at 0"


def test_partial_directories_go_when_a_run_fails(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    def train_func() -> None:
        place = Path(session.get_trial_dir(), "checkpoint_000007.partial")
        place.mkdir()
        (place / "half").write_bytes(b"x" * 1000)
        raise ValueError("once")

    with pytest.raises(ValueError, match="once"):
        make_trainer(train_func, workers=1, name="run").fit()
    assert list((tmp_path / "runs/run").glob("*.partial")) == []


def test_a_misspelled_score_is_mentioned_once(make_trainer: MakeTrainer, capfd: pytest.CaptureFixture[str]) -> None:
    def train_func() -> None:
        for step in range(3):
            metrics = {"loss": 1.0, "val_loss": 2.0 - step, "word": "x", "deep": {"val_losses": 1}}
            session.report(metrics, checkpoint=Checkpoint.from_dict({"val_acc": step}))

    def warnings(attribute: str) -> list[str]:
        keep = CheckpointConfig(num_to_keep=1, checkpoint_score_attribute=attribute, checkpoint_score_order="min")
        make_trainer(train_func, workers=1, checkpoint_config=keep).fit()
        return [line for line in capfd.readouterr().err.splitlines() if "checkpoint_score_attribute" in line]

    (warning,) = warnings("val_los")
    assert '"val_los"' in warning and "There are: val_loss, " in warning
    assert "val_acc" in warning and "deep/val_losses" in warning and "word" not in warning
    assert warnings("val_loss") == warnings("val_acc") == warnings("deep/val_losses") == []
