"""fit(): a function on many workers, from start to end."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import (
    Checkpoint,
    ConfigError,
    DataParallelTrainer,
    Result,
    RunConfig,
    SerializationError,
    StorageError,
    TrainingFailedError,
    session,
)

Fit = Callable[..., Result]
Make = Callable[..., DataParallelTrainer]


def count_to(config: dict[str, int]) -> Callable[[dict[str, int]], None]:
    """A function that reports and saves until config["epochs"], and fails on its way at config["fail_at"]."""

    def train_func(config: dict[str, int]) -> None:
        checkpoint = session.get_checkpoint()
        start = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0
        for epoch in range(start, config["epochs"]):
            if epoch == config.get("fail_at"):
                session.get_checkpoint()  # waits until the last one is committed
                session.barrier()
                raise ValueError(f"failed at {epoch}")
            saved = Checkpoint.from_dict({"epoch": epoch})
            session.report({"epoch": epoch, "start": start, "epochs": config["epochs"]}, checkpoint=saved)

    return train_func


def test_the_sample(fit: Fit) -> None:
    def train_func(config: dict[str, int]) -> None:
        checkpoint = session.get_checkpoint()
        start = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0
        for epoch in range(start, config["num_epochs"]):
            saved = Checkpoint.from_dict({"epoch": epoch})
            session.report({"epoch": epoch, "loss": 1.0 / (epoch + 1)}, checkpoint=saved)

    result = fit(train_func, workers=4, config={"num_epochs": 5})
    assert result.metrics["epoch"] == 4
    assert result.metrics["loss"] == 0.2
    assert result.metrics["training_iteration"] == 5
    assert result.metrics["config"] == {"num_epochs": 5}
    assert result.state == "finished" and result.error is None
    assert result.checkpoint is not None and result.checkpoint.to_dict()["epoch"] == 4
    assert result.config == {"num_epochs": 5}


def test_an_empty_function_without_reports(fit: Fit) -> None:
    result = fit(lambda: None, workers=3)
    assert result.state == "finished"
    assert result.checkpoint is None
    assert result.best_checkpoints == []


def test_the_run_directory_can_be_read_by_a_person(fit: Fit, tmp_path: Path) -> None:
    def train_func(config: dict[str, Any]) -> None:
        print("hello from", session.get_world_rank())
        print("to stderr", file=sys.stderr)
        session.report({"loss": 0.5})

    result = fit(train_func, config={"lr": 0.1, "path": Path("/data")}, name="mine")
    assert result.path == tmp_path / "runs" / "mine" == result.log_dir
    record = json.loads((result.path / "run.json").read_text())
    assert record["state"] == "finished" and record["name"] == "mine" and record["num_workers"] == 2
    assert json.loads((result.path / "params.json").read_text())["lr"] == 0.1
    assert (result.path / "function.pkl").stat().st_size > 0
    assert json.loads((result.path / "result.json").read_text().splitlines()[0])["loss"] == 0.5
    assert "loss" in (result.path / "progress.csv").read_text().splitlines()[0]
    assert list(result.path.glob("events.out.tfevents.*"))
    for rank in range(2):
        log = (result.path / "logs" / f"rank_{rank}.log").read_text()
        assert f"hello from {rank}\n" in log and "to stderr\n" in log
    for path in [result.path, *result.path.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, f"{path} is open to others"


def test_default_name_is_trainer_and_time(fit: Fit) -> None:
    assert fit(lambda: None, workers=1).path.name.startswith("DataParallelTrainer_20")


def test_two_runs_of_one_second_do_not_meet(fit: Fit) -> None:
    assert fit(lambda: None, workers=1).path != fit(lambda: None, workers=1).path


def test_a_name_that_is_taken_is_refused(fit: Fit) -> None:
    fit(lambda: session.report({"x": 1}), workers=1, name="taken")
    with pytest.raises((ConfigError, StorageError), match="taken"):
        fit(lambda: None, workers=1, name="taken")


def test_an_unpicklable_function_is_refused_before_anything_starts(make_trainer: Make, tmp_path: Path) -> None:
    lock = threading.Lock()
    trainer = make_trainer(lambda: lock.acquire())
    with pytest.raises(SerializationError, match="closure variable 'lock'"):
        trainer.fit()
    assert not (tmp_path / "runs").exists()


def test_a_trainer_can_be_fitted_again(make_trainer: Make) -> None:
    calls = {"n": 0}
    trainer = make_trainer(lambda: session.report({"n": calls["n"]}), workers=1)
    first = trainer.fit()
    calls["n"] = 1
    second = trainer.fit()
    assert (first.metrics["n"], second.metrics["n"]) == (0, 1), "the function is pickled by fit()"


def test_fit_in_a_thread(make_trainer: Make) -> None:
    trainer = make_trainer(lambda: session.report({"x": 1}))
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(trainer.fit()))
    thread.start()
    thread.join()
    assert results[0].metrics["x"] == 1


def test_a_script_with_its_function_in_main(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from lockstep import DataParallelTrainer, RunConfig, ScalingConfig, session\n"
        "import helper\n"
        "def train_func(config):\n"
        "    session.report({'value': helper.double(config['x'])})\n"
        "trainer = DataParallelTrainer(train_func, train_loop_config={'x': 4}, scaling_config=ScalingConfig(2),\n"
        "                              run_config=RunConfig(storage_path='runs', verbose=0))\n"
        "result = trainer.fit()\n"
        "print('value', result.metrics['value'])\n"
    )
    (tmp_path / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "value 8\n"
    assert done.stderr == "", "verbose=0 is silent"


def test_progress_is_shown_and_can_be_silenced(tmp_path: Path) -> None:
    script = (
        "from lockstep import *\n"
        "def f():\n"
        "    print('printed')\n"
        "    session.report({'loss': 0.25})\n"
        f"DataParallelTrainer(f, run_config=RunConfig(storage_path={str(tmp_path)!r}, verbose=1)).fit()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "loss=0.25" in done.stderr
    assert "printed" in done.stdout
    assert "\r" not in done.stderr and "\x1b" not in done.stderr, "plain lines where there is no terminal"


# ---------------------------------------------------------------------- restore


def test_restore_goes_on_from_the_last_checkpoint(make_trainer: Make) -> None:
    with pytest.raises(TrainingFailedError) as caught:
        make_trainer(count_to({}), config={"epochs": 6, "fail_at": 3}, name="run").fit()
    failed = caught.value.result
    assert failed is not None and failed.state == "failed"
    assert f'DataParallelTrainer.restore("{failed.path}", train_func).fit()' in str(caught.value)
    assert DataParallelTrainer.can_restore(failed.path)

    again = DataParallelTrainer.restore(failed.path)
    assert again.scaling_config.num_workers == 2 and again.run_config.verbose == 0
    with pytest.raises(TrainingFailedError, match="failed at 3"):
        again.fit()

    result = DataParallelTrainer.restore(failed.path, train_loop_config={"epochs": 6}).fit()
    assert result.path == failed.path
    assert result.metrics["epoch"] == 5 and result.metrics["start"] == 3
    assert result.metrics["training_iteration"] == 6
    assert [int(c.metadata["seq"]) for c, _ in result.best_checkpoints][-1] >= 5
    lines = (result.path / "result.json").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [0, 1, 2, 3, 4, 5]


def test_restore_with_a_new_function_keeps_the_config(make_trainer: Make) -> None:
    with pytest.raises(TrainingFailedError) as caught:
        make_trainer(count_to({}), config={"epochs": 6, "fail_at": 0}, name="run").fit()
    assert caught.value.result is not None
    place = caught.value.result.path
    result = DataParallelTrainer.restore(place, lambda config: session.report({"epochs": config["epochs"]})).fit()
    assert result.metrics["epochs"] == 6
    assert result.config == {"epochs": 6, "fail_at": 0}


def test_restore_of_a_finished_run_returns_at_once(fit: Fit) -> None:
    done = fit(count_to({}), config={"epochs": 2}, name="run")
    before = (done.path / "run.json").stat().st_mtime_ns
    again = DataParallelTrainer.restore(done.path).fit()
    assert again.metrics == done.metrics
    assert (done.path / "run.json").stat().st_mtime_ns == before
    more = DataParallelTrainer.restore(done.path, train_loop_config={"epochs": 4}).fit()
    assert more.metrics["epoch"] == 3 and more.metrics["start"] == 2


def test_restore_with_another_number_of_workers(make_trainer: Make) -> None:
    from lockstep import ScalingConfig

    def train_func() -> None:
        if session.get_world_size() == 2:
            raise ValueError("two are too few")
        session.report({"world_size": session.get_world_size()})

    with pytest.raises(TrainingFailedError) as caught:
        make_trainer(train_func).fit()
    assert caught.value.result is not None
    result = DataParallelTrainer.restore(caught.value.result.path, scaling_config=ScalingConfig(num_workers=3)).fit()
    assert result.metrics["world_size"] == 3


def test_restore_refuses_what_is_no_run(tmp_path: Path) -> None:
    assert not DataParallelTrainer.can_restore(tmp_path)
    assert not DataParallelTrainer.can_restore(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="holds no run"):
        DataParallelTrainer.restore(tmp_path)


def test_restore_refuses_another_place(fit: Fit) -> None:
    done = fit(lambda: None, workers=1)
    with pytest.raises(ConfigError, match="stays in its directory"):
        DataParallelTrainer.restore(done.path, run_config=RunConfig(name="other"))
