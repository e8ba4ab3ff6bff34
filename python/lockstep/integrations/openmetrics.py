"""The state of a run as OpenMetrics, in a file: for the textfile collector of a Prometheus node exporter, or any other
reader. Nothing listens::

    from lockstep.integrations.openmetrics import OpenMetricsCallback

    RunConfig(callbacks=[OpenMetricsCallback()])  # metrics.prom in the run directory
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep._places import local_path
from lockstep.callbacks import Callback, RunInfo
from lockstep.errors import ConfigError
from lockstep.integrations._tracking import Warner, numbers

if TYPE_CHECKING:
    from lockstep.checkpoint import Checkpoint
    from lockstep.errors import Failure
    from lockstep.result import Result

__all__ = ["FILE", "OpenMetricsCallback"]

FILE = "metrics.prom"
"""The name of the file in the run directory."""
_STATES = ("running", "finished", "failed", "interrupted", "stopped", "preempted")


class OpenMetricsCallback(Callback):
    """Writes ``lockstep_reports_total``, ``lockstep_restarts_total``, ``lockstep_checkpoints_total``,
    ``lockstep_checkpoint_bytes_total``, ``lockstep_last_report_timestamp_seconds``, ``lockstep_run_state`` and, for
    each number that rank 0 reported, ``lockstep_metric{name="loss"}``. Every line has the label ``run``.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, every: float = 1.0) -> None:
        """`path`: a file; None: ``metrics.prom`` in the run directory. `every`: at most one write in so many seconds,
        besides those at the start, at failures and at the end."""
        if isinstance(every, bool) or not isinstance(every, (int, float)) or not every >= 0:
            raise ConfigError(f"[OpenMetricsCallback] every is {every!r}; it must be a number of seconds")
        self._path = None if path is None else Path(local_path(path, "[OpenMetricsCallback] path"))
        self._every = float(every)

    def on_start(self, run: RunInfo) -> None:
        self._warn = Warner(type(self).__name__)
        self._run, self._place = run, self._path or run.path / FILE
        self._counts = dict.fromkeys(("reports", "restarts", "checkpoints", "checkpoint_bytes"), 0)
        self._metrics: dict[str, float] = {}
        self._reported = self._written = 0.0
        self._write("running")

    def on_result(self, metrics: dict[str, Any]) -> None:
        self._counts["reports"] += 1
        self._metrics, self._reported = numbers(metrics), time.time()
        if time.monotonic() - self._written >= self._every:
            self._write("running")

    def on_checkpoint(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
        self._counts["checkpoints"] += 1
        self._counts["checkpoint_bytes"] += sum(int(each["size"]) for each in checkpoint.metadata.get("files", ()))

    def on_attempt_failed(self, failures: list[Failure], again: bool) -> None:
        self._counts["restarts"] += again
        self._write("running")

    def on_end(self, result: Result) -> None:
        if "_run" in self.__dict__:  # else another callback ended the run before this one began
            self._write(result.state)

    def text(self, state: str) -> str:
        """What is written."""
        run = _label(self._run.name)
        lines = []
        for name, count in self._counts.items():
            unit = ["# UNIT lockstep_checkpoint_bytes bytes"] if name == "checkpoint_bytes" else []
            lines += [f"# TYPE lockstep_{name} counter", *unit, f'lockstep_{name}_total{{run="{run}"}} {count}']
        lines += ["# TYPE lockstep_last_report_timestamp_seconds gauge"]
        lines += [f'lockstep_last_report_timestamp_seconds{{run="{run}"}} {self._reported!r}']
        lines += ["# TYPE lockstep_run_state stateset"]
        lines += [
            f'lockstep_run_state{{run="{run}",lockstep_run_state="{each}"}} {int(each == state)}' for each in _STATES
        ]
        if self._metrics:
            lines += ["# TYPE lockstep_metric gauge"]
        for name, value in self._metrics.items():
            lines.append(f'lockstep_metric{{run="{run}",name="{_label(name)}"}} {_number(value)}')
        return "\n".join([*lines, "# EOF", ""])

    def _write(self, state: str) -> None:
        self._written = time.monotonic()
        partial = self._place.with_name(f".{self._place.name}.{os.getpid()}")
        try:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(self.text(state))
            os.replace(partial, self._place)
        except OSError as error:
            self._warn(f"{self._place} was not written", error)


def _label(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return re.sub(r"[\x00-\x1f\x7f]", "?", escaped)


def _number(value: float) -> str:
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(repr(value), repr(value))
