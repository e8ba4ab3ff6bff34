"""A run that goes on while the program does something else."""

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
    """A run in a thread of its own, as ``trainer.start()`` returns it::

        handle = trainer.start()
        for metrics in handle:
            if metrics["loss"] < 0.1:
                handle.stop()
        result = handle.wait()

    Any thread may use it. The run goes on when its handle is gone. When the program exits, runs that are not over are
    stopped, after what they have reported has been saved.
    """

    def __init__(self, run: _core.Run, conclude: Callable[[_core.RunOutcome, int], Result | BaseException]) -> None:
        self._run = run
        self._conclude = conclude
        self._ending: Result | BaseException | None = None
        self._dropped = 0

    def wait(self, timeout: float | timedelta | None = None) -> Result:
        """Waits for the end of the run, at most `timeout` (seconds or timedelta).

        Raises what ``fit()`` raises, and LockstepTimeoutError, a TimeoutError, when the run is not over in time; the
        run goes on then. The result of a run that was stopped has the state "stopped".
        """
        # In the main thread Ctrl-C ends the run, and this raises TrainingInterrupted as fit() does.
        outcome, interrupt, _ = self._run.wait(_seconds(timeout), claims_signals=may_claim_signals())
        if self._ending is None:
            self._ending = self._conclude(outcome, interrupt)
        if isinstance(self._ending, BaseException):
            raise self._ending
        return self._ending

    def stop(self, checkpoint: bool = True) -> None:
        """Ends the run, without waiting for it.

        The function is not asked: its workers are killed. With `checkpoint`, what they have reported is saved first,
        checkpoints that are still being written too. The state becomes "stopped"; ``restore()`` can go on with it.
        """
        self._run.stop(checkpoint)

    @property
    def state(self) -> str:
        """ "waiting" (for resources), "running", or the state of the result when the run is over."""
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
        """Rank 0's reports as they come, each once, until the run is over. Errors come from ``wait()``.

        Reports that nobody has taken yet are kept, at most the last 10,000.
        """
        while (metrics := self._run.next()) is not None:
            if new := self._run.dropped - self._dropped:
                self._dropped += new
                what = f'{new} reports of run "{self.name}" were dropped, as nobody took them in time'
                warnings.warn(what, UserWarning, stacklevel=2)
            yield metrics

    def __repr__(self) -> str:
        return f'<RunHandle of run "{self.name}": {self.state}>'

    def _run_here(self) -> RunHandle:
        self._run.run()
        return self

    def _run_in_thread(self) -> RunHandle:
        # It keeps the run alive when nobody holds its handle.
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


# The interpreter must not end while a run goes on in another thread.
atexit.register(_core.stop_runs)
