"""A trial that runs, and a trial as callbacks and results show it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from lockstep import callbacks


@dataclass
class Trial(callbacks.Trial):
    """One trial of an experiment. Its `status` is PENDING, RUNNING, PAUSED, TERMINATED or ERROR."""

    number: int = 0
    custom_name: str = ""
    error_msg: str = ""

    def is_finished(self) -> bool:
        """Whether it ended or failed."""
        return self.status in (self.TERMINATED, self.ERROR)

    @property
    def path(self) -> str:
        """Its directory."""
        return self.logdir

    @property
    def experiment_path(self) -> str:
        """The directory of the experiment."""
        return os.path.dirname(self.logdir)

    def __str__(self) -> str:
        return self.custom_name or f"{self.trainable_name}_{self.trial_id}"

    def __hash__(self) -> int:
        return hash(self.trial_id)


@dataclass
class Job:
    """A trial that is to run."""

    number: int
    attempt: int
    iterations: int
    """Reports that it goes on from."""
    checkpoint: str
    """A path; empty: from the beginning."""
    trial: Trial
    has_directory: bool = False
    """Its directory is new, and has what callbacks wrote at most."""
    loose: str = ""
    """A checkpoint that belongs to the next report."""
    stopping: bool = False
    """Decided: its next report, or its process, is the last."""
    decided: str = ""
    """Why it ends: "stop" or "pause"."""
    problem: str = ""
    """A report that could not be used: the trial fails."""


@dataclass(slots=True)
class Reported:
    """A report. Its `answer` is given exactly once if the trial waits."""

    job: Job
    metrics: dict[str, Any] | None
    """None: only a checkpoint."""
    checkpoint: str = ""
    reply: Any = None
    iteration: int = 0
    """Of a checkpoint alone: the report it belongs to. 0: the last one."""
    is_before_report: bool = False
    """It belongs to the report after that one, if there is one: RaySGD's functions save before they report."""

    def answer(self, stop: bool) -> None:
        """Lets the trial go on, or end."""
        if self.reply is not None:
            self.reply(stop)


@dataclass(slots=True)
class Taken:
    """Reports that the core gave to the experiment; nobody waits for them."""

    job: Job
    count: int
    decision: Any
    """That of the last one."""
    problem: str
    """Why the last one could not be used; empty: nothing."""
    metrics: dict[str, Any]
    """Of the last one."""
    best: float | None
    """The best value of the first metric."""


@dataclass(slots=True)
class Ended:
    """The end of a trial's process or run."""

    job: Job
    error: str = ""
    """Empty unless it failed."""
