"""What an experiment prints while it runs, under the names of Ray. For ``RunConfig(progress_reporter=...)``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from lockstep._nested import leaves
from lockstep.errors import ConfigError
from lockstep.tune._trial import Trial
from lockstep.tune.callback import Callback

Columns = Mapping[str, str] | Sequence[str]
_ORDER = ("RUNNING", "PAUSED", "PENDING", "TERMINATED", "ERROR")


class ProgressReporter:
    """Override both::

    class AtTheEnd(tune.ProgressReporter):
        def should_report(self, trials, done=False):
            return done
        def report(self, trials, done, *sys_info):
            print(len(trials), "trials")
    """

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Called before the others with what is known of the experiment."""

    def should_report(self, trials: list[Trial], done: bool = False) -> bool:
        """Whether report() is called now."""
        raise NotImplementedError("a ProgressReporter must have should_report()")

    def report(self, trials: list[Trial], done: bool, *sys_info: Any) -> None:
        """Shows the trials. `done`: the experiment has ended."""
        raise NotImplementedError("a ProgressReporter must have report()")


class CLIReporter(ProgressReporter):
    """Prints a table of the trials every `max_report_frequency` seconds and at the end. Columns are lists of names, or
    dicts of names and headings."""

    DEFAULT_COLUMNS: ClassVar[dict[str, str]] = {
        "mean_accuracy": "acc",
        "mean_loss": "loss",
        "training_iteration": "iter",
        "time_total_s": "total time (s)",
        "timesteps_total": "ts",
        "episode_reward_mean": "reward",
    }

    def __init__(
        self,
        metric_columns: Columns | None = None,
        parameter_columns: Columns | None = None,
        total_samples: int | None = None,
        max_progress_rows: int = 20,
        max_error_rows: int = 20,
        max_column_length: int = 20,
        max_report_frequency: float = 5,
        infer_limit: int = 3,
        print_intermediate_tables: bool | None = None,
        metric: str | None = None,
        mode: str | None = None,
        sort_by_metric: bool = False,
    ) -> None:
        if mode not in ("min", "max", None):
            raise ConfigError(f"[CLIReporter] mode is {mode!r}; it must be 'min' or 'max'")
        self._infers = metric_columns is None
        self._metrics = _headings(self.DEFAULT_COLUMNS if metric_columns is None else metric_columns)
        self._parameters = None if parameter_columns is None else _headings(parameter_columns)
        self._total_samples = total_samples
        self._max_rows, self._max_errors = max_progress_rows, max_error_rows
        self._width = max_column_length
        self._every = max_report_frequency
        self._infer_limit = infer_limit
        self._metric, self._mode = metric, mode
        self._sorts = sort_by_metric
        self._start_time = time.time()
        self._last = float("-inf")

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        self._start_time = start_time or time.time()
        self._total_samples = self._total_samples or total_samples
        self._metric, self._mode = self._metric or metric, self._mode or mode

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """One more column; `representation` is its heading."""
        if metric in self._metrics:
            raise ConfigError(f"[CLIReporter] there is a column {metric!r} already")
        self._metrics[metric] = representation or metric

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """The same for a parameter."""
        if parameter in (self._parameters or ()):
            raise ConfigError(f"[CLIReporter] there is a column {parameter!r} already")
        self._parameters = {**(self._parameters or {}), parameter: representation or parameter}

    def should_report(self, trials: list[Trial], done: bool = False) -> bool:
        now = time.monotonic()
        if not done and now - self._last < self._every:
            return False
        self._last = now
        return True

    def report(self, trials: list[Trial], done: bool, *sys_info: Any) -> None:
        print(self.text(trials, done, *sys_info), flush=True)

    def text(self, trials: list[Trial], done: bool, *sys_info: Any) -> str:
        """What report() prints."""
        lines = ["== Status ==", f"Running for {time.time() - self._start_time:.1f} s", *map(str, sys_info)]
        counts = {status: sum(trial.status == status for trial in trials) for status in _ORDER}
        told = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        total = f"/{self._total_samples}" if self._total_samples else ""
        lines.append(f"Number of trials: {len(trials)}{total} ({told})")
        lines += self._best(trials)
        shown = self._sorted(trials)
        if shown:
            lines += self._table(shown if done else shown[: self._max_rows])
        if not done and len(shown) > self._max_rows:
            lines.append(f"... {len(shown) - self._max_rows} more trials")
        errors = [trial for trial in trials if trial.status == "ERROR"][: self._max_errors]
        lines += [f"{trial} failed: {(trial.error_msg.strip().splitlines() or [''])[-1]}" for trial in errors]
        return "\n".join(lines) + "\n"

    def _best(self, trials: list[Trial]) -> list[str]:
        values = [(value, trial) for trial in trials if (value := _number(trial, self._metric)) is not None]
        if not values or self._mode is None:
            return []
        value, trial = (max if self._mode == "max" else min)(values, key=lambda pair: pair[0])
        return [f"Current best trial: {trial} with {self._metric}={value} and parameters={trial.config}"]

    def _sorted(self, trials: list[Trial]) -> list[Trial]:
        sign = -1 if self._mode == "max" else 1

        def place(trial: Trial) -> tuple[Any, ...]:
            value = _number(trial, self._metric) if self._sorts else None
            score = float("inf") if value is None else sign * value
            return (score, _ORDER.index(trial.status)) if self._sorts else (_ORDER.index(trial.status), 0)

        return sorted(trials, key=place)

    def _table(self, trials: list[Trial]) -> list[str]:
        metrics = dict(self._metrics)
        results = [dict(leaves(trial.last_result, "/")) for trial in trials]
        if self._infers:
            for result in results:
                own = [name for name, value in result.items() if _is_of_the_user(name, value)]
                metrics.update({name: name for name in own[: self._infer_limit] if name not in metrics})
        configs = [dict(leaves(trial.config, "/")) for trial in trials]
        parameters = self._parameters or {name: name for config in configs for name in config}
        rows = []
        for trial, config, result in zip(trials, configs, results, strict=True):
            row = [str(trial), trial.status]
            row += [self._cell(config.get(name)) for name in parameters]
            rows.append(row + [self._cell(result.get(name)) for name in metrics])
        heading = ["Trial name", "status", *parameters.values(), *metrics.values()]
        kept = [index for index in range(len(heading)) if index < 2 or any(row[index] for row in rows)]
        return _aligned([[row[index] for index in kept] for row in [heading, *rows]])

    def _cell(self, value: Any) -> str:
        text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
        return text if len(text) <= self._width else text[: self._width - 3] + "..."


class JupyterNotebookReporter(CLIReporter):
    """The same in a notebook, where the table replaces the one before."""

    def __init__(self, overwrite: bool = True, *columns: Any, **options: Any) -> None:
        super().__init__(*columns, **options)
        self._overwrite = overwrite

    def report(self, trials: list[Trial], done: bool, *sys_info: Any) -> None:
        display = sys.modules.get("IPython.display")  # a notebook has imported it
        if self._overwrite and display is not None:
            display.clear_output(wait=True)
        super().report(trials, done, *sys_info)


class Reports(Callback):
    """Asks a reporter while an experiment runs."""

    def __init__(self, reporter: Any, total: int | None, metric: str | None, mode: str | None) -> None:
        self._reporter = reporter
        self._given = {"start_time": time.time(), "total_samples": total, "metric": metric, "mode": mode}

    def setup(self, **info: Any) -> None:
        if callable(setup := getattr(self._reporter, "setup", None)):
            setup(**self._given)

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        self._ask(trials, False)

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        self._ask(trials, True)

    def _ask(self, trials: list[Trial], done: bool) -> None:
        if self._reporter.should_report(trials, done):
            self._reporter.report(trials, done)


def _headings(columns: Columns) -> dict[str, str]:
    return dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}


def _number(trial: Trial, metric: str | None) -> float | None:
    value = dict(leaves(trial.last_result, "/")).get(metric or "")
    return value if isinstance(value, (int, float)) and value == value else None


def _is_of_the_user(name: str, value: Any) -> bool:
    from lockstep.result import AUTOFILLED_KEYS

    top = name.split("/")[0]
    return top not in AUTOFILLED_KEYS and top != "config" and isinstance(value, (int, float))


def _aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    edge = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    return [edge, lines[0], edge, *lines[1:], edge]
