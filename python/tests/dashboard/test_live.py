"""Runs that train while the page shows them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lockstep import Checkpoint, CheckpointConfig, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, session

SCRIPT = """
import sys, time
from pathlib import Path
from lockstep import DataParallelTrainer, RunConfig, ScalingConfig, session


def train_func(config):
    step = 0
    while not Path(config["stop"]).exists():
        step += 1
        print(f"step {step} of rank {session.get_world_rank()}", flush=True)
        session.report({"loss": 1 / step, "nested": {"odd": step % 7}})
        time.sleep(0.05)
        if config.get("steps") == step:
            break


if __name__ == "__main__":
    storage, name, stop = sys.argv[1:]
    DataParallelTrainer(
        train_func,
        train_loop_config={"stop": stop, "lr": 0.125},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=storage, name=name, verbose=0),
    ).fit()
"""


def test_a_run_that_trains_now(tmp_path: Path, serve: Callable[..., Any], page: Any) -> None:
    storage, stop = tmp_path / "runs", tmp_path / "stop"
    storage.mkdir()
    (tmp_path / "train.py").write_text(SCRIPT)
    dashboard = serve(storage)
    page.open(dashboard.url)
    assert "No runs in" in page.text("#runs")

    command = [sys.executable, str(tmp_path / "train.py"), str(storage), "live", str(stop)]
    with subprocess.Popen(command) as training:
        try:
            page.until("document.querySelector('#runs tr[data-id=live]')?.dataset.state === 'running'")
            page.go("#/run/live")
            curve = "document.querySelector('[data-metric=loss]')?.chartData[0]"
            seen = page.until(f"{curve}?.y.length > 3 && {curve}.y.length")
            page.until(f"{curve}.y.length > {seen + 10}")  # it grows without a reload
            page.until("document.querySelector('pre.log').textContent.includes('step 20 of rank 0')")
            page.until("document.querySelectorAll('#workers tbody tr').length === 2")
            page.until(
                "[...document.querySelectorAll('#workers tbody tr')].every((row) => row.innerText.includes('%'))"
            )
            workers = page.text("#workers")
            assert "MB" in workers
            page.screenshot("run_live")
        finally:
            stop.write_text("")
            assert training.wait(60) == 0
    page.until("document.querySelector('h1 .badge').textContent === 'finished'")
    reported = [json.loads(line) for line in (storage / "live" / "result.json").read_text().splitlines()]
    page.until(f"{curve}.y.length === {len(reported)}")
    assert page.chart("loss") == [
        {
            "label": "loss",
            "x": [line["training_iteration"] for line in reported],
            "y": [line["loss"] for line in reported],
        }
    ]
    assert page.chart("nested/odd")[0]["y"] == [line["nested"]["odd"] for line in reported]
    assert page.chart("time_this_iter_s") and page.chart("timestamp") is None
    assert "0.125" in page.text("[data-section=Configuration]")
    assert page.value("document.querySelector('[data-section=Workers]').hidden")
    page.screenshot("run_finished")
    page.go("#/")
    page.until("document.querySelector('#runs tr[data-id=live]')?.dataset.state === 'finished'")


def test_a_driver_that_is_killed(tmp_path: Path, serve: Callable[..., Any], page: Any) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "runs").mkdir()
    dashboard = serve(tmp_path / "runs")
    page.open(dashboard.url)
    command = [sys.executable, str(tmp_path / "train.py"), str(tmp_path / "runs"), "live", str(tmp_path / "stop")]
    with subprocess.Popen(command) as training:
        page.until("document.querySelector('#runs tr[data-id=live]')?.dataset.state === 'running'")
        training.kill()
    page.until("document.querySelector('#runs tr[data-id=live]')?.dataset.state === 'died'")


def test_failures_checkpoints_and_their_scores(tmp_path: Path, serve: Callable[..., Any], page: Any) -> None:
    def train_func() -> None:
        start = 0
        if checkpoint := session.get_checkpoint():
            start = checkpoint.to_dict()["step"] + 1
        for step in range(start, 6):
            session.report(
                {"accuracy": [0.1, 0.5, 0.9, 0.4, 0.3, 0.2][step]},
                checkpoint=Checkpoint.from_dict({"step": step, "padding": b"x" * 3000}),
            )
            if step == 3 and start == 0:
                session.barrier()  # rank 0 has reported, too
                raise ValueError("<b>no such thing</b>")

    DataParallelTrainer(
        train_func,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            storage_path=tmp_path,
            name="failing",
            verbose=0,
            failure_config=FailureConfig(max_failures=1),
            checkpoint_config=CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="accuracy"),
        ),
    ).fit()
    page.open(serve(tmp_path).url)
    row = page.text("#runs tr[data-id=failing]").split()
    assert row[:2] == ["failing", "finished"] and "0.9" in row
    page.go("#/run/failing")
    attempts = page.value("[...document.querySelectorAll('.timeline .attempt')].map((a) => a.getAttribute('class'))")
    assert attempts == ["attempt failed", "attempt finished"]
    assert page.value("document.querySelectorAll('.timeline .failure').length") >= 1
    assert "<b>no such thing</b>" in page.text("[data-section=Failures]")
    checkpoints = page.text("#checkpoints")
    assert "checkpoint_000002" in checkpoints and "accuracy (max)" in checkpoints and "kB" in checkpoints
    assert "checkpoint_000002" in page.text("#checkpoints tr.best")
    # What the restart reported again replaces what was reported before.
    (curve,) = page.chart("accuracy")
    assert curve["x"] == sorted(set(curve["x"])) and curve["y"][-1] == 0.2
    page.screenshot("run_failures")


def test_it_costs_nothing_while_nothing_happens(tmp_path: Path, serve: Callable[..., Any], page: Any) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    dashboard = serve(tmp_path)
    page.open(dashboard.url)
    page.until("document.querySelector('#live').className === 'live'")

    def ticks() -> int:
        fields = Path(f"/proc/{dashboard.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before, since = ticks(), time.monotonic()
    time.sleep(3)
    used = (ticks() - before) / os.sysconf("SC_CLK_TCK")
    assert used / (time.monotonic() - since) < 0.05
