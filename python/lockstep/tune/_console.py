"""What an experiment shows on the terminal: a table that is redrawn, and a line for each failed trial."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any

from lockstep import _core
from lockstep.tune._trial import Trial

_EVERY = 0.2
_MOST_ROWS = 12


class Console:
    """Silent if `verbose` is 0; 2 also tells the end of each trial. The table is shown on a terminal only."""

    def __init__(
        self, verbose: int, metric: str | None, mode: str | None, total: int | None, experiment: Any = None
    ) -> None:
        self._verbose = verbose
        self._metric = metric
        self._sign = -1 if mode == "max" else 1
        self._total = total
        self._began = time.monotonic()
        self._next = self._began + _EVERY
        self._live = verbose > 0 and sys.stderr.isatty()
        self._before = self._errors = 0
        """What ended before this call of fit()."""
        if experiment is not None:
            states = _core.tune.TrialState
            self._errors = int(experiment.count(states.error))
            self._before = int(experiment.count(states.terminated)) + self._errors
        self._ended = 0
        self._best: tuple[float, float, str] | None = None
        self._running: dict[int, list[Any]] = {}
        """By trial: its name, the time of its start and its last result."""
        self._shown = False

    def started(self, trial: Trial) -> None:
        if self._live:
            self._running[trial.number] = [str(trial), time.monotonic(), {}]

    def reported(self, trial: Trial, result: dict[str, Any], best: float | None = None) -> None:
        """`best`: of several reports, of which `result` is the last."""
        if self._live and (row := self._running.get(trial.number)) is not None:
            row[2] = result
        if self._metric is None or self._verbose <= 0:
            return
        value = result.get(self._metric) if best is None else best
        if type(value) is not float:  # the usual type needs no search
            value = _core.number_at(result, self._metric)
        if value is not None and value == value:
            score = self._sign * value
            if self._best is None or score < self._best[0]:
                self._best = (score, value, str(trial))

    def paused(self, trial: Trial) -> None:
        self._running.pop(trial.number, None)

    def ended(self, trial: Trial) -> None:
        self._ended += 1
        self._errors += trial.status == "ERROR"
        self._running.pop(trial.number, None)
        if self._verbose > 1 and trial.status != "ERROR":
            result = trial.last_result
            value = None if self._metric is None else _core.number_at(result, self._metric)
            told = "" if value is None else f", {self._metric}={value:.6g}"
            self.say(f"lockstep: trial {trial} ended after {_count(result)} reports{told}")

    def failed(self, trial: Trial, error: str, again: bool) -> None:
        if self._verbose <= 0:
            return
        last = error.strip().splitlines()[-1] if error.strip() else "it failed"
        what = "is started again" if again else "failed"
        self.say(f"lockstep: trial {trial} {what}: {last}")

    def update(self, experiment: Any, running: int) -> None:
        if not self._live or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY
        size = shutil.get_terminal_size()
        lines = [self.line(running), *self.rows(min(_MOST_ROWS, size.lines - 5))]
        text = "\n".join(line[: size.columns - 1] for line in lines)
        # The cursor stays above the table, so that lines which trials print push it down instead of being overwritten.
        sys.stderr.write(f"\r\x1b[J\n{text}\x1b[{len(lines)}A\r")
        sys.stderr.flush()
        self._shown = True

    def line(self, running: int) -> str:
        """Trials done, running, rate, time left and the best so far."""
        passed = max(1e-9, time.monotonic() - self._began)
        rate = self._ended / passed
        ended = self._before + self._ended
        parts = [f"{ended}{f'/{self._total}' if self._total else ''} trials", f"{running} running"]
        if self._errors:
            parts.append(f"{self._errors} failed")
        if self._ended:
            parts.append(f"{rate:.3g}/s")
            if self._total and self._total > ended and running:
                parts.append(f"{_time((self._total - ended) / rate)} left")
        if self._best is not None:
            parts.append(f"best {self._metric}={self._best[1]:.6g} ({self._best[2]})")
        return "lockstep: " + ", ".join(parts)

    def rows(self, most: int) -> list[str]:
        """A row for each running trial, at most so many."""
        if not self._running or most < 2:
            return []
        running = list(self._running.values())
        shown = running[:most] if len(running) <= most else running[: most - 1]
        metric = self._metric or ""
        table = [("trial", "reports", metric, "seconds")]
        for name, began, result in shown:
            value = _core.number_at(result, metric) if metric else None
            text = "" if value is None else f"{value:.6g}"
            table.append((name, _count(result), text, f"{time.monotonic() - began:.1f}"))
        widths = [max(len(row[column]) for row in table) for column in range(4)]
        lines = [
            "  " + "  ".join([row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in (1, 2, 3) if widths[i])])
            for row in table
        ]
        return lines if len(shown) == len(running) else [*lines, f"  and {len(running) - len(shown)} more"]

    def close(self, path: str) -> None:
        if self._verbose > 0:
            self.say(f"{self.line(0)}; {path}")

    def say(self, text: str) -> None:
        self._clear()
        print(text, file=sys.stderr)

    def printed(self, trial: str, lines: str) -> None:
        """What a trial printed."""
        self.say("\n".join(f"[{trial}] {line}" for line in lines.split("\n")))

    def _clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[J")
            self._shown = False


def _count(result: dict[str, Any]) -> str:
    return str(result.get("training_iteration", 0))


def _time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
