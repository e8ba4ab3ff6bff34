"""The driver is killed at a random moment: nothing of it is left, and the run can be restored."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from lockstep import Checkpoint, DataParallelTrainer, Result
from process_tree import Family, agent_of, descendants, fork_server_of, workers_of

START_SECONDS = 60
"""A deadline, not a measurement: others may use the machine as well."""


def last_step(run: Path) -> int:
    """The step of the newest committed checkpoint, which must be intact; -1 if there is none."""
    committed = sorted(path for path in run.glob("checkpoint_??????") if (path / "manifest.json").exists())
    if not committed:
        return -1
    for path in committed:
        Checkpoint.from_directory(path).verify()
    return int(Checkpoint.from_directory(committed[-1]).to_dict()["step"])


def newest_seq(run: Path) -> int:
    return max((int(path.name[11:17]) for path in run.glob("checkpoint_*")), default=-1)


def wait_for_moment(moment: str, driver: subprocess.Popen[bytes], run: Path) -> None:
    first_seq = newest_seq(run)
    conditions: dict[str, Any] = {
        "agent": lambda: agent_of(driver.pid) is not None,
        "fork server": lambda: fork_server_of(driver.pid) is not None,
        "first worker": lambda: bool(workers_of(driver.pid)),
        "training": lambda: newest_seq(run) > first_seq + 5,
        "commit": lambda: newest_seq(run) > first_seq + 2 and any(run.glob("checkpoint_*.partial/manifest.json")),
        "retention": lambda: newest_seq(run) > first_seq + 5 and any(run.glob("checkpoint_*.trash")),
    }

    def reached() -> bool:
        assert driver.poll() is None, f"the driver ended by itself: {(run.parent / 'output').read_text()}"
        return bool(conditions[moment]())

    deadline = time.monotonic() + START_SECONDS
    while not reached():  # no pause: a commit takes less than a millisecond
        assert time.monotonic() < deadline, f"{moment!r} did not come"
    if moment == "training":
        time.sleep(random.uniform(0, 0.05))


@pytest.mark.timeout(600)
def test_a_killed_driver_leaves_nothing_and_the_run_goes_on(place: Any, tmp_path: Path, storm_seconds: float) -> None:
    run = tmp_path / "run"
    starts = tmp_path / "starts"
    moments = ["agent", "first worker", "training", "fork server", "commit", "retention"]
    moments += ["training", "commit"] * int(max(0, storm_seconds - 8) / 3)
    for moment in moments:
        before, begun = last_step(run), len(starts.read_text().splitlines()) if starts.exists() else 0
        with open(tmp_path / "output", "wb") as output:
            driver = place.start("endless", tmp_path, output=output)
        wait_for_moment(moment, driver, run)
        family = Family(descendants(driver.pid))
        assert len(family) >= 1
        if moment in ("training", "commit", "retention"):
            assert len(family) >= 6, "agent, fork server, two workers, their two children"
        driver.kill()
        driver.wait(timeout=20)
        killed = time.monotonic()
        family.wait_gone(5)
        place.check_empty(5 - (time.monotonic() - killed))
        after = last_step(run)
        assert after >= before
        new = [
            json.loads(line)["start"] for line in (starts.read_text() if starts.exists() else "").splitlines()[begun:]
        ]
        assert new in ([], [before + 1]), "it went on from the last checkpoint"
        if moment in ("training", "commit", "retention"):
            assert new and after > before
            assert Result.from_path(run).state == "died"

    before = last_step(run)
    (tmp_path / "stop").touch()
    result = DataParallelTrainer.restore(run).fit()
    assert result.state == "finished"
    assert result.metrics["step"] == before + 5 and result.metrics["training_iteration"] == before + 6
    assert result.checkpoint is not None and result.checkpoint.to_dict()["step"] == before + 5
    assert not [path.name for path in run.iterdir() if path.name.endswith((".partial", ".trash"))]
    rows = [json.loads(line) for line in (run / "result.json").read_text().splitlines() if line.endswith("}")]
    assert {row["step"] for row in rows} == set(range(before + 6)), "no step that led to a checkpoint is missing"


def test_the_driver_dies_while_a_worker_is_stopped(place: Any, tmp_path: Path) -> None:
    """A stopped process does not die of a closed socket."""
    with open(tmp_path / "output", "wb") as output:
        driver = place.start("endless", tmp_path, output=output)
    wait_for_moment("training", driver, tmp_path / "run")
    family = Family(descendants(driver.pid))
    os.kill(workers_of(driver.pid)[0], signal.SIGSTOP)
    driver.kill()
    driver.wait(timeout=20)
    family.wait_gone(5)
    place.check_empty()


def test_the_driver_and_its_agent_die_together(place: Any, tmp_path: Path) -> None:
    """Only the fork server and the kernel are left to clean up."""
    with open(tmp_path / "output", "wb") as output:
        driver = place.start("endless", tmp_path, output=output)
    wait_for_moment("training", driver, tmp_path / "run")
    agent = agent_of(driver.pid)
    assert agent is not None
    everyone = Family(descendants(driver.pid))
    assert len(everyone) >= 6, "agent, fork server, two workers, their two children in sessions of their own"
    Family([driver.pid, agent]).kill()
    driver.wait(timeout=20)
    everyone.wait_gone(5)
    place.check_empty()
