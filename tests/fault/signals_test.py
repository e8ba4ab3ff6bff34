"""Ctrl-C and SIGTERM: once ends cleanly, twice ends at once."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from lockstep import DataParallelTrainer
from process_tree import Family, agent_of, descendants, fork_server_of, wait_until, workers_of

START_SECONDS = 60


def start(place: Any, mode: str) -> tuple[subprocess.Popen[bytes], Family]:
    """The driver, when both of its workers wait, and all that it started."""
    driver = place.start(mode, place.directory)
    ready = [place.directory / "0", place.directory / "1"]
    wait_until(lambda: all(path.exists() for path in ready), START_SECONDS, "the workers did not start")
    family = Family(descendants(driver.pid))
    assert len(family) == 4, "agent, fork server, two workers"
    return driver, family


def state_of(run: Path) -> str:
    return str(json.loads((run / "run.json").read_text())["state"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_once(place: Any, tmp_path: Path, number: signal.Signals) -> None:
    run = tmp_path / "run"
    driver, family = start(place, "interruptible")
    driver.send_signal(number)
    assert driver.wait(timeout=30) != 0, "a shell script must see that it did not finish"
    family.wait_gone(5)
    place.check_empty()
    assert state_of(run) == "interrupted"
    for rank in range(2):
        assert "cleaned up True" in (run / "logs" / f"rank_{rank}.log").read_text()
    assert [json.loads(line)["step"] for line in (run / "result.json").read_text().splitlines()] == [0, 1]
    assert not [path.name for path in run.iterdir() if path.name.endswith(".partial")]

    result = DataParallelTrainer.restore(run).fit()
    assert result.state == "finished" and result.metrics["resumed"] == 1
    assert state_of(run) == "finished"


@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT)])
def test_twice(place: Any, tmp_path: Path, numbers: tuple[signal.Signals, signal.Signals]) -> None:
    driver, family = start(place, "stubborn")
    driver.send_signal(numbers[0])
    with pytest.raises(subprocess.TimeoutExpired):
        driver.wait(timeout=0.5)
    driver.send_signal(numbers[1])
    begun = time.monotonic()
    assert driver.wait(timeout=30) != 0
    assert time.monotonic() - begun < 6
    family.wait_gone(5)
    place.check_empty()
    assert state_of(tmp_path / "run") == "interrupted"
    assert (tmp_path / "run" / "checkpoint_000000" / "manifest.json").exists()


@pytest.mark.parametrize("moment", [agent_of, fork_server_of, workers_of])
def test_during_the_start(place: Any, tmp_path: Path, moment: Any) -> None:
    driver = place.start("interruptible", tmp_path)
    wait_until(lambda: bool(moment(driver.pid)), START_SECONDS, "the driver did not start")
    driver.send_signal(signal.SIGINT)
    assert driver.wait(timeout=30) != 0
    place.check_empty()
    assert state_of(tmp_path / "run") == "interrupted"
