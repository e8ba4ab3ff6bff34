"""The profiler: a trace per rank in the run directory, in both ways of using it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lockstep import FailureConfig, LockstepError, Result, session
from lockstep.torch import profiler as profiler_module
from lockstep.torch.profiler import TorchTensorboardProfilerCallback, TorchWorkerProfiler

Fit = Callable[..., Result]


def names_in(trace: Path) -> set[str]:
    """What the trace's events are called."""
    return {event["name"] for event in json.loads(trace.read_text())["traceEvents"] if "name" in event}


def test_a_trace_of_every_rank(fit: Fit, capfd: pytest.CaptureFixture[str]) -> None:
    def train_func() -> None:
        import torch
        from lockstep.torch.profiler import TorchWorkerProfiler

        with TorchWorkerProfiler(record_shapes=True) as profiler:
            for _ in range(2):
                with torch.profiler.record_function(f"mine_of_rank_{session.get_world_rank()}"):
                    torch.ones(8, 8) @ torch.ones(8, 8)
                profiler.step()
        session.report({"loss": 0.5, **profiler.get_and_clear_profile_traces()})
        session.report(profiler.get_and_clear_profile_traces())

    callback = TorchTensorboardProfilerCallback()
    result = fit(train_func, workers=2, callbacks=[callback])
    place = result.path / "pytorch_profiler"
    assert callback.traces == [place / "rank_0.0.pt.trace.json", place / "rank_1.0.pt.trace.json"]
    assert f"2 profiler traces in {place}" in capfd.readouterr().out
    for rank, trace in enumerate(callback.traces):
        names = names_in(trace)
        assert {"aten::mm", f"mine_of_rank_{rank}"} <= names
        assert f"mine_of_rank_{1 - rank}" not in names
        assert trace.stat().st_mode & 0o777 == 0o600
    assert place.stat().st_mode & 0o777 == 0o700
    reports = [json.loads(line) for line in (result.path / "result.json").read_text().splitlines()]
    assert [report["pytorch_profiler"] for report in reports] == [["rank_0.0.pt.trace.json"], []]
    if not torch.cuda.is_available():
        assert "USDT" not in (result.path / "logs" / "rank_0.log").read_text()


def test_with_a_profiler_of_ones_own(fit: Fit) -> None:
    def train_func() -> None:
        import torch
        from lockstep.torch.profiler import TorchWorkerProfiler

        traces = TorchWorkerProfiler()
        schedule = torch.profiler.schedule(wait=1, warmup=0, active=1, repeat=2)
        with torch.profiler.profile(schedule=schedule, on_trace_ready=traces.trace_handler) as profiler:
            for step in range(4):
                with torch.profiler.record_function(f"step_{step}"):
                    torch.ones(2) + 1
                profiler.step()
        session.report(traces.get_and_clear_profile_traces())

    result = fit(train_func, workers=1)
    assert result.metrics["pytorch_profiler"] == ["rank_0.0.pt.trace.json", "rank_0.1.pt.trace.json"]
    first, second = (names_in(result.path / "pytorch_profiler" / name) for name in result.metrics["pytorch_profiler"])
    assert {"step_1", "aten::add"} <= first and "step_3" not in first
    assert "step_3" in second and not {"step_0", "step_1", "step_2"} & second


def test_a_later_attempt_keeps_the_traces_of_the_one_before(fit: Fit) -> None:
    def train_func() -> None:
        import torch
        from lockstep.torch.profiler import TorchWorkerProfiler

        with TorchWorkerProfiler():
            torch.ones(2) + 1
            if session.get_attempt() == 0:
                raise ValueError("once")

    callback = TorchTensorboardProfilerCallback()
    fit(train_func, workers=1, callbacks=[callback], failure_config=FailureConfig(max_failures=1))
    assert [trace.name for trace in callback.traces] == ["rank_0.0.pt.trace.json", "rank_0.1.pt.trace.json"]
    assert all("aten::add" in names_in(trace) for trace in callback.traces)


def test_outside_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with TorchWorkerProfiler() as profiler:
        torch.ones(2) + 1
        profiler.step()
    assert "aten::add" in names_in(tmp_path / "pytorch_profiler" / "rank_0.0.pt.trace.json")
    with TorchWorkerProfiler(directory="elsewhere"):
        torch.ones(2) + 1
    assert (tmp_path / "elsewhere" / "rank_0.0.pt.trace.json").exists()


def test_a_step_outside_the_block_is_refused(tmp_path: Path) -> None:
    profiler = TorchWorkerProfiler(directory=tmp_path)
    with pytest.raises(LockstepError, match="outside `with profiler:`"):
        profiler.step()


def test_a_run_without_traces(fit: Fit, capfd: pytest.CaptureFixture[str]) -> None:
    callback = TorchTensorboardProfilerCallback()
    fit(lambda: session.report({}), workers=1, callbacks=[callback])
    assert callback.traces == [] and "traces" not in capfd.readouterr().out


def test_the_options_reach_the_profiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: dict[str, Any] = {}
    real = torch.profiler.profile
    monkeypatch.setattr(
        profiler_module.torch.profiler, "profile", lambda **options: real(**(seen.update(options) or options))
    )
    with TorchWorkerProfiler(directory=tmp_path, with_stack=True, activities=[torch.profiler.ProfilerActivity.CPU]):
        pass
    assert seen["with_stack"] is True and seen["activities"] == [torch.profiler.ProfilerActivity.CPU]
