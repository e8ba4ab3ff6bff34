"""How workers start, and what their process looks like."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import (
    Callback,
    ConfigError,
    DataParallelTrainer,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    session,
)

Fit = Callable[..., Result]


class AllRanks(Callback):
    """Keeps what every rank reported first."""

    def __init__(self) -> None:
        self.row: list[Any] = []

    def on_report(self, results: list[dict[str, Any] | None]) -> None:
        self.row = self.row or results


def test_the_fork_server_stays_warm(fit: Fit) -> None:
    def train_func() -> None:
        if session.get_attempt() == 0:
            print("parent", os.getppid(), flush=True)
            raise ValueError("once")
        session.report({"parent": os.getppid(), "pid": os.getpid()})

    first = fit(train_func, workers=1, failure_config=FailureConfig(max_failures=1))
    second = fit(train_func, workers=1, failure_config=FailureConfig(max_failures=1))
    assert f"parent {first.metrics['parent']}\n" in (first.path / "logs" / "rank_0.log").read_text(), "across attempts"
    assert first.metrics["parent"] == second.metrics["parent"], "across fit() calls"
    assert first.metrics["pid"] != second.metrics["pid"]


def test_workers_start_in_a_blink_when_warm(fit: Fit) -> None:
    rows = AllRanks()
    fit(lambda: None, workers=4)
    start = time.time()
    fit(lambda: session.report({"time": time.time()}), workers=4, callbacks=[rows])
    last = max(metrics["time"] for metrics in rows.row)
    assert last - start < 1.0, "0.1 s on a quiet machine"


def test_workers_find_cwd_environment_and_path(fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train_func() -> None:
        import freshly_written_module

        session.report(
            {
                "cwd": os.getcwd(),
                "set": os.environ.get("LOCKSTEP_TEST_VALUE"),
                "removed": os.environ.get("LOCKSTEP_TEST_GONE"),
                "module": freshly_written_module.VALUE,
                "path": sys.path,
                "argv": sys.argv,
            }
        )

    (tmp_path / "modules").mkdir()
    monkeypatch.setenv("LOCKSTEP_TEST_GONE", "1")
    fit(lambda: None)
    monkeypatch.delenv("LOCKSTEP_TEST_GONE")
    (tmp_path / "modules" / "freshly_written_module.py").write_text("VALUE = 5\n")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("LOCKSTEP_TEST_VALUE", "é")
    monkeypatch.syspath_prepend("../modules")
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "0.1"])
    metrics = fit(train_func).metrics
    assert metrics["cwd"] == str(tmp_path / "here")
    assert metrics["set"] == "é" and metrics["removed"] is None
    assert metrics["module"] == 5
    assert metrics["argv"] == ["train.py", "--lr", "0.1"]
    assert metrics["path"] == [os.path.abspath(entry) for entry in sys.path]


def test_files_in_the_current_directory_hide_nothing(fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    for name in ("json", "socket", "cloudpickle"):
        (tmp_path / "here" / f"{name}.py").write_text("raise RuntimeError('the wrong module')\n")
    monkeypatch.chdir(tmp_path / "here")
    assert fit(lambda: session.report({"x": 1})).metrics["x"] == 1


def test_numpy_is_there_already(fit: Fit) -> None:
    def train_func() -> None:
        session.report({"loaded": [name for name in ("numpy", "cloudpickle") if name in sys.modules]})

    assert fit(train_func).metrics["loaded"] == ["numpy", "cloudpickle"]


def test_threads_are_shared_out(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    def train_func() -> None:
        session.report({"threads": os.environ.get("OMP_NUM_THREADS")})

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = len(os.sched_getaffinity(0))
    assert int(fit(train_func, workers=1).metrics["threads"]) in (cores, max(1, cores - 1), 1)
    assert fit(train_func, workers=4 * cores).metrics["threads"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert fit(train_func, workers=2).metrics["threads"] == "3"


def test_blas_uses_the_threads_it_is_given(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    def train_func() -> None:
        import ctypes

        import numpy

        numpy.ones((2, 2)) @ numpy.ones((2, 2))
        with open("/proc/self/maps") as maps:
            paths = {line.split()[-1] for line in maps if "openblas" in line}
        counts = []
        for path in paths:
            count = getattr(ctypes.CDLL(path), "scipy_openblas_get_num_threads64_", None)
            counts.append(count() if count else None)
        session.report({"counts": counts})

    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    counts = fit(train_func, workers=1).metrics["counts"]
    assert counts and None not in counts, "numpy is not built with the OpenBLAS that this asks"
    assert set(counts) == {min(2, os.cpu_count() or 1)}


def test_more_workers_than_cores(fit: Fit) -> None:
    rows = AllRanks()
    fit(lambda: session.report({"rank": session.get_world_rank()}), workers=12, callbacks=[rows])
    assert [metrics["rank"] for metrics in rows.row] == list(range(12))


def test_each_worker_is_a_process_of_its_own(fit: Fit) -> None:
    rows = AllRanks()
    fit(lambda: session.report({"pid": os.getpid(), "sid": os.getsid(0)}), workers=3, callbacks=[rows])
    pids = [metrics["pid"] for metrics in rows.row]
    assert len(set(pids)) == 3 and os.getpid() not in pids
    assert [metrics["sid"] for metrics in rows.row] == pids


def test_standard_input_is_empty(fit: Fit) -> None:
    assert fit(lambda: session.report({"input": sys.stdin.read()})).metrics["input"] == ""


def scaled(function: Callable[..., Any], scaling: ScalingConfig, tmp_path: Path, *callbacks: Callback) -> Result:
    run_config = RunConfig(storage_path=tmp_path / "runs", verbose=0, callbacks=callbacks)
    return DataParallelTrainer(function, scaling_config=scaling, run_config=run_config).fit()


def test_gpus_are_given_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train_func() -> None:
        session.report({"gpus": os.environ.get("CUDA_VISIBLE_DEVICES")})

    monkeypatch.setenv("LOCKSTEP_RESOURCES", '{"GPU": 4}')
    rows = AllRanks()
    scaled(train_func, ScalingConfig(num_workers=3, use_gpu=True), tmp_path, rows)
    assert [metrics["gpus"] for metrics in rows.row] == ["0", "1", "2"]
    rows = AllRanks()
    scaled(train_func, ScalingConfig(num_workers=2, use_gpu=True, resources_per_worker={"GPU": 2}), tmp_path, rows)
    assert [metrics["gpus"] for metrics in rows.row] == ["0,1", "2,3"]
    with pytest.raises(ConfigError, match=r"5.*GPU.*has 4"):
        scaled(train_func, ScalingConfig(num_workers=5, use_gpu=True), tmp_path)


def test_resources_that_were_asked_for_are_not_oversubscribed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_RESOURCES", '{"licence": 2}')
    scaled(lambda: None, ScalingConfig(num_workers=2, resources_per_worker={"licence": 1}), tmp_path)
    with pytest.raises(ConfigError, match=r"3 workers.*licence.*has 2"):
        scaled(lambda: None, ScalingConfig(num_workers=3, resources_per_worker={"licence": 1}), tmp_path)
    with pytest.raises(ConfigError, match="CPU"):
        scaled(lambda: None, ScalingConfig(num_workers=2, resources_per_worker={"CPU": 10_000}), tmp_path)


@pytest.mark.parametrize("strategy", ["PACK", "SPREAD", "STRICT_PACK"])
def test_placement_strategies_of_one_node(strategy: str, tmp_path: Path) -> None:
    assert scaled(lambda: None, ScalingConfig(2, placement_strategy=strategy), tmp_path).state == "finished"


def test_strict_spread_needs_several_nodes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="STRICT_SPREAD"):
        scaled(lambda: None, ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"), tmp_path)


def test_a_preloaded_module_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lockstep import EngineError

    class Needy(DataParallelTrainer):
        _preload = (*DataParallelTrainer._preload, "module_that_is_nowhere")

    with pytest.raises(EngineError, match="module_that_is_nowhere"):
        Needy(lambda: None, run_config=RunConfig(storage_path=tmp_path, verbose=0)).fit()

    class Modest(DataParallelTrainer):
        _preload = (*DataParallelTrainer._preload, "module_that_is_nowhere?", "colorsys")

    def train_func() -> None:
        session.report({"loaded": "colorsys" in sys.modules})

    result = Modest(train_func, run_config=RunConfig(storage_path=tmp_path, verbose=0)).fit()
    assert result.metrics["loaded"] is True
    assert result.path.name.startswith("Modest_")
