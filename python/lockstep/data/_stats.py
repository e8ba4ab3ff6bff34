"""What the steps of a data set have done so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StepStats:
    """One step of a plan."""

    step: str
    blocks: int
    """That it gave, however often."""
    rows: int
    bytes: int
    """Of these rows in memory."""
    seconds: float
    """That it took, summed over threads, without the steps before it."""

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class DatasetStats:
    """The steps of a plan, and how much of the data was skipped because it is broken (``on_error="skip"``). As text it
    is a table."""

    steps: list[StepStats]
    skipped: int = 0
    skipped_places: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = ["      rows      rows/s        MB/s     seconds  step"]
        for each in self.steps:
            speed = f"{each.rows_per_second:12,.0f}{each.bytes_per_second / 1e6:12,.1f}"
            lines.append(f"{each.rows:10,}{speed}{each.seconds:12.3f}  {each.step}")
        if self.skipped:
            lines.append(f"skipped: {self.skipped}, as {'; '.join(self.skipped_places[:3])}")
        return "\n".join(lines)


def stats_of(plan: Any) -> DatasetStats:
    """Of a data set of the extension module."""
    count, places = plan.skipped() if hasattr(plan, "skipped") else (0, [])
    return DatasetStats([StepStats(*each) for each in plan.stats()], count, tuple(places))
