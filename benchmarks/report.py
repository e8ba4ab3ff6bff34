"""Metrics-only reports: the cost of one call, the throughput, and that none is lost."""

from __future__ import annotations

import os
import statistics
import threading
import time
from typing import Any

from lockstep import DataParallelTrainer, ScalingConfig, session
from measure import Row, memory_mb, quiet, scratch


def steps(config: dict[str, Any]) -> None:
    """A report after every small step (a matrix product): the cost of the call itself."""
    import numpy as np

    samples = []
    matrix = np.random.default_rng(0).random((64, 64))
    for i in range(5000):
        matrix = matrix @ matrix
        matrix /= np.abs(matrix).max()
        metrics = {"step": i, "loss": 1.0 / (i + 1)}
        begin = time.perf_counter()
        session.report(metrics)
        samples.append(time.perf_counter() - begin)
    session.report({"median_us": statistics.median(samples) * 1e6})


def flood(config: dict[str, Any]) -> None:
    report = session.report
    for i in range(config["count"]):
        report({"step": i, "loss": 0.5})


def measure() -> list[Row]:
    with scratch() as place:
        result = DataParallelTrainer(steps, scaling_config=ScalingConfig(num_workers=2), run_config=quiet(place)).fit()
        rows = [Row("report(): median cost of one call", result.metrics["median_us"], "us", 10)]
        count = 500_000
        growth = Growth()
        begin = time.time()
        with growth:
            result = DataParallelTrainer(
                flood,
                train_loop_config={"count": count},
                scaling_config=ScalingConfig(num_workers=2),
                run_config=quiet(place),
            ).fit()
        seconds = time.time() - begin
        with open(result.path / "result.json", "rb") as lines:
            logged = sum(1 for _ in lines)
        rows.append(Row("reports accepted from 2 workers, default loggers", 2 * count / seconds, "/s", 100_000, True))
        rows.append(Row("rank 0's reports missing in result.json", count - logged, "", 0))
        rows.append(Row("driver's memory growth meanwhile", growth.most, "MB", 30))
        return rows


class Growth:
    """How much this process grows inside the context, sampled twice per second."""

    def __enter__(self) -> None:
        self._before = memory_mb(os.getpid(), "Rss")
        self.most = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            self.most = max(self.most, memory_mb(os.getpid(), "Rss") - self._before)

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
