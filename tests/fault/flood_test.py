"""Floods of output and reports: nothing is lost, and the driver's memory does not grow."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import Callback, DataParallelTrainer, session

MakeTrainer = Callable[..., DataParallelTrainer]
MOST_GROWTH = 64
"""MB that a driver may grow by, whatever its workers send."""


def run_driver(place: Any, mode: str) -> int:
    """Runs it to its end; returns by how many MB its memory grew."""
    output = place.directory / "output"
    with open(output, "wb") as file:
        driver = place.start(mode, place.directory, output=file)
    assert driver.wait(timeout=110) == 0, output.read_text()
    place.check_empty()
    memory = json.loads((place.directory / "memory").read_text())
    return int(memory["after"]) - int(memory["before"])


def test_a_worker_that_prints_50_mb(place: Any, tmp_path: Path) -> None:
    assert run_driver(place, "talkative") < MOST_GROWTH
    mark, log = (tmp_path / "run" / "logs" / "rank_0.log").read_bytes().split(b"\n", 1)
    assert mark.startswith(b"==== attempt 0, ")
    assert len(log) == 50_000_000
    reported = json.loads((tmp_path / "run" / "result.json").read_text())["sha256"]
    assert hashlib.sha256(log).hexdigest() == reported


def test_200_000_reports(place: Any, tmp_path: Path) -> None:
    assert run_driver(place, "reporting") < MOST_GROWTH
    with open(tmp_path / "run" / "result.json") as file:
        for i, line in enumerate(file):
            row = json.loads(line) if i % 100 == 0 or i > 99_990 else None
            assert row is None or (row["i"], row["training_iteration"]) == (i, i + 1)
            assert f'"i":{i},' in line.replace(" ", "")
    assert i == 99_999
    with open(tmp_path / "run" / "progress.csv") as file:
        assert sum(1 for _ in file) == 100_001


class Slow(Callback):
    def __init__(self) -> None:
        self.seen: list[int] = []
        self.rows = 0

    def on_result(self, metrics: dict[str, Any]) -> None:
        if not self.seen:
            time.sleep(3)
        self.seen.append(metrics["i"])

    def on_report(self, results: list[dict[str, Any] | None]) -> None:
        assert results[0] is not None and results[1] is not None and results[0]["i"] == results[1]["i"]
        self.rows += 1


@pytest.mark.parametrize("reports", [500, 50_000])
def test_a_callback_that_hangs_loses_nothing(make_trainer: MakeTrainer, reports: int) -> None:
    """Workers are not blamed for heartbeats that the driver did not read because it was busy for longer than the
    timeout."""

    def train_func(config: dict[str, int]) -> None:
        for i in range(config["reports"]):
            session.report({"i": i})

    callback = Slow()
    result = make_trainer(train_func, config={"reports": reports}, callbacks=[callback], heartbeat_timeout=1.0).fit()
    assert result.failures == []
    assert callback.seen == list(range(reports)) and callback.rows == reports
    with open(result.path / "result.json") as file:
        assert sum(1 for _ in file) == reports
