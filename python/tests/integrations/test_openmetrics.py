"""OpenMetricsCallback: a run's state in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import Checkpoint, ConfigError, FailureConfig, Result, session
from lockstep.integrations.openmetrics import FILE, OpenMetricsCallback

Fit = Callable[..., Result]


def function() -> None:
    for step in range(3):
        saved = Checkpoint.from_dict({"step": step}) if step == 2 else None
        session.report({"loss": 0.5, "nested": {'odd"name': float("nan")}, "text": "x"}, checkpoint=saved)
    if session.get_attempt() == 0:
        raise RuntimeError("once")


def values(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines()
    assert lines[-1] == "# EOF"
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_a_run_in_a_file(fit: Fit) -> None:
    result = fit(
        function,
        1,
        name="digits",
        callbacks=[OpenMetricsCallback(every=0)],
        failure_config=FailureConfig(max_failures=1),
    )
    found = values(result.path / FILE)
    assert found['lockstep_reports_total{run="digits"}'] == "6"
    assert found['lockstep_restarts_total{run="digits"}'] == "1"
    assert found['lockstep_checkpoints_total{run="digits"}'] == "2"
    assert int(found['lockstep_checkpoint_bytes_total{run="digits"}']) > 0
    assert found['lockstep_metric{run="digits",name="loss"}'] == "0.5"
    assert found['lockstep_metric{run="digits",name="nested/odd\\"name"}'] == "NaN"
    assert found['lockstep_run_state{run="digits",lockstep_run_state="finished"}'] == "1"
    assert found['lockstep_run_state{run="digits",lockstep_run_state="running"}'] == "0"
    assert (result.path / FILE).stat().st_mode & 0o777 == 0o600
    assert not any("text" in name for name in found)


def test_another_place(fit: Fit, tmp_path: Path) -> None:
    fit(lambda: session.report({"loss": 1}), 1, callbacks=[OpenMetricsCallback(tmp_path / "lockstep.prom")])
    assert any(name.startswith("lockstep_metric") for name in values(tmp_path / "lockstep.prom"))
    with pytest.raises(ConfigError, match="every is -1"):
        OpenMetricsCallback(every=-1)


def test_a_place_that_cannot_be_written_is_a_warning(fit: Fit, tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match=r"was not written"):
        result: Any = fit(lambda: None, 1, callbacks=[OpenMetricsCallback(tmp_path / "none" / "x.prom")])
    assert result.state == "finished"
