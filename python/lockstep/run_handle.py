"""A run in the background."""

from __future__ import annotations

import atexit
import threading
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from lockstep import _core
from lockstep.errors import ConfigError
from lockstep.result import Metrics, Result


class RunHandle:
    """A run in its own thread, returned by ``trainer.start()``::

        handle = trainer.start()
        for metrics in handle:
            if metrics["loss"] < 0.1:
                handle.stop()
        result = handle.wait()

    Any thread may use it. The run continues if its handle is dropped. When the program exits, runs that have not ended
    are stopped; the checkpoints that they have reported are saved first.
    """

    def __init__(self, run: _core.Run, conclude: Callable[[_core.RunOutcome, int], Result | BaseException]) -> None:
        self._run = run
        self._conclude = conclude
        self._ending: Result | BaseException | None = None
        self._dropped = 0

    def wait(self, timeout: float | timedelta | None = None) -> Result:
        """Waits for the end of the run, at most `timeout` (seconds or timedelta).

        Raises what ``fit()`` raises. Raises LockstepTimeoutError, a TimeoutError, if the run has not ended in time; the
        run then continues. The result of a stopped run has the state "stopped".
        """
        # In the main thread Ctrl-C ends the run, and this raises TrainingInterrupted as fit() does.
        outcome, interrupt, values = self._run.wait(_seconds(timeout), claims_signals=may_claim_signals())
        if self._ending is None:
            self._ending = self._conclude(outcome, interrupt)
            if isinstance(self._ending, Result) and values:
                self._ending._returned = values[0]
        if isinstance(self._ending, BaseException):
            raise self._ending
        return self._ending

    def stop(self, checkpoint: bool = True) -> None:
        """Ends the run; does not wait for the end.

        The workers are killed; the function is not asked. With `checkpoint`, the checkpoints that were reported are
        saved first, including one that is still being written. The state becomes "stopped"; ``restore()`` can continue
        the run.
        """
        self._run.stop(checkpoint)

    @property
    def state(self) -> str:
        """ "waiting" (for resources), "running", or the state of the result once the run has ended."""
        return self._run.state

    @property
    def metrics(self) -> dict[str, Any]:
        """Rank 0's latest report; empty before the first. A copy."""
        return Metrics(self._run.metrics)

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.path.name

    @property
    def path(self) -> Path:
        """The run directory."""
        return Path(self._run.path)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Rank 0's reports as they arrive, each once, until the run has ended. ``wait()`` raises its errors.

        At most the last 10,000 unread reports are kept; a warning says how many were dropped.
        """
        while (metrics := self._run.next()) is not None:
            if new := self._run.dropped - self._dropped:
                self._dropped += new
                what = f'{new} reports of run "{self.name}" were dropped because they were not read in time'
                warnings.warn(what, UserWarning, stacklevel=2)
            yield metrics

    def __repr__(self) -> str:
        return f'<RunHandle of run "{self.name}": {self.state}>'

    def _run_here(self) -> RunHandle:
        self._run.run()
        return self

    def _run_in_thread(self) -> RunHandle:
        # It keeps the run alive if the handle is dropped.
        thread = threading.Thread(target=self._run.run, name=f"lockstep {self.name}", daemon=True)
        try:
            thread.start()
        finally:
            if thread.ident is None:
                self._run.give_up()
        return self


def may_claim_signals() -> bool:
    """Whether a run in this thread may keep Ctrl-C from Python, whose own handler belongs to the main thread."""
    return threading.current_thread() is threading.main_thread()


def _seconds(timeout: float | timedelta | None) -> float | None:
    number = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not number >= 0:
        raise ConfigError(f"[wait] timeout is {timeout!r}; it must be a number of seconds, a timedelta or None")
    return float(number)


# The interpreter must not end while a run continues in another thread.
atexit.register(_core.stop_runs)
