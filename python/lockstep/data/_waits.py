"""How long training loops wait for their data, and what they wait for."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from lockstep.data.dataset import Dataset

T = TypeVar("T")

_TOO_MUCH = 0.2
"""A loop that waits for a larger part of its time is warned of, once in a process."""
_SECONDS_AT_LEAST = 1.0
"""Shorter loops say nothing."""
_warned = False


@dataclass
class IteratorStats:
    """What the loops of an iterator have done together. Times are in seconds."""

    rows: int = 0
    batches: int = 0
    epochs: int = 0
    """Loops that were begun."""
    seconds: float = 0.0
    """From the first batch of each loop to its end."""
    waited: float = 0.0
    """Of these, how long the loop waited for batches."""
    reading: float = 0.0
    """Of all threads that read ahead, with what the data set's plan does to the rows."""
    shuffling: float = 0.0
    """Of the same threads."""
    converting: float = 0.0
    """From Arrow to what the loop gets."""

    @property
    def rows_per_second(self) -> float:
        """While loops ran; 0 before the first."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    def __str__(self) -> str:
        share = f" ({self.waited / self.seconds:.0%})" if self.seconds > 0 else ""
        return (
            f"{self.rows} rows in {self.batches} batches, {self.seconds:.3f} s, {self.rows_per_second:,.0f} rows/s; "
            f"waited {self.waited:.3f} s{share}: reading {self.reading:.3f} s, shuffling {self.shuffling:.3f} s, "
            f"conversion {self.converting:.3f} s"
        )


class Waits:
    """The times of one iterator."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._done = IteratorStats()
        self._clock: Clock | None = None

    def begin(self, running: Any, what: str, dataset: Dataset) -> Clock:
        """For a new loop."""
        self._clock = Clock(self, running, what, dataset)
        return self._clock

    def stats(self) -> IteratorStats:
        """With the loop that runs."""
        return self._done if self._clock is None else self._clock.added_to(self._done)

    def end(self, clock: Clock) -> None:
        """The loop is over."""
        self._done = clock.added_to(self._done)
        if self._clock is clock:
            self._clock = None


class Clock:
    """The times of one loop."""

    def __init__(self, waits: Waits, running: Any, what: str, dataset: Dataset) -> None:
        self.rows = 0
        self._waits = waits
        self._running = running
        self._what = what
        self._dataset = dataset
        self._batches = 0
        self._begun: float | None = None  # when the first batch was given; getting it is not the loop's fault
        self._waited = 0.0
        self._converting = 0.0
        self._times: tuple[float, float] = (0.0, 0.0)
        self._over = False

    def wait_for(self, following: Callable[[], T | None]) -> T | None:
        """Calls it, and counts the time."""
        before = time.perf_counter()
        item = following()
        now = time.perf_counter()
        if self._begun is None:
            self._begun = now
        else:
            self._waited += now - before
            if now - self._begun >= _SECONDS_AT_LEAST:
                self._judge(now - self._begun)
        self._batches += item is not None
        return item

    @contextmanager
    def converting(self) -> Iterator[None]:
        """Around a conversion, which may be in another thread."""
        before = time.perf_counter()
        yield
        self._converting += time.perf_counter() - before

    def end(self) -> None:
        """The loop is over."""
        if not self._over:
            self._waits.end(self)
            self._over = True
            self._running = None

    def added_to(self, done: IteratorStats) -> IteratorStats:
        """`done` and this loop."""
        if self._running is not None:
            self._times = self._running.seconds()
        reading, shuffling = self._times
        return IteratorStats(
            rows=done.rows + self.rows,
            batches=done.batches + self._batches,
            epochs=done.epochs + 1,
            seconds=done.seconds + (0.0 if self._begun is None else time.perf_counter() - self._begun),
            waited=done.waited + self._waited,
            reading=done.reading + reading,
            shuffling=done.shuffling + shuffling,
            converting=done.converting + self._converting,
        )

    def _judge(self, seconds: float) -> None:
        global _warned
        share = self._waited / seconds
        if _warned or share <= _TOO_MUCH or not self._waits.name:
            return
        _warned = True
        warnings.warn(
            f"[data] the training loop has waited {share:.0%} of its time for the data set {self._waits.name!r}: "
            f"{self._bottleneck()}",
            RuntimeWarning,
            stacklevel=4,
        )

    def _bottleneck(self) -> str:
        reading, shuffling = self._running.seconds()
        times = {
            f"{self._what} takes most of the time; do less in it, or do it before with map_batches()": self._converting,
            f"{self._slowest_step()}; store the rows once as they are needed (write_parquet), read fewer columns, or "
            "raise DataConfig(prefetch=...)": reading,
            "shuffling takes most of the time; use a smaller window or local_shuffle_buffer_size": shuffling,
        }
        return max(times, key=lambda text: times[text])

    def _slowest_step(self) -> str:
        steps = self._dataset.stats().steps
        slowest = max(steps, key=lambda step: step.seconds, default=None)
        return (
            "reading takes most of the time" if slowest is None else f"the step '{slowest.step}' takes most of the time"
        )
