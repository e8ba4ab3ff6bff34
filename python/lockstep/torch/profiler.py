"""Traces of the workers, made by torch.profiler."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
import torch.profiler

from lockstep import session
from lockstep._places import local_path
from lockstep.callbacks import PROFILER_DIRECTORY, PROFILER_SUFFIX, TorchTensorboardProfilerCallback
from lockstep.errors import LockstepError
from lockstep.torch import _context

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["TorchTensorboardProfilerCallback", "TorchWorkerProfiler"]


class TorchWorkerProfiler:
    """Profiles a worker with ``torch.profiler`` and writes its traces into the run directory, one or more per rank::

        def train_func():
            with TorchWorkerProfiler() as profiler:
                for batch in loader:
                    train_step(batch)
                    profiler.step()

    Or with your own profiler::

        traces = TorchWorkerProfiler()
        with torch.profiler.profile(..., on_trace_ready=traces.trace_handler) as profiler:
            ...

    A trace is ``pytorch_profiler/rank_<rank>.<number>.pt.trace.json``; Chrome (``chrome://tracing``), Perfetto and
    TensorBoard's profiler plugin can show it. Outside a worker the traces are in ``pytorch_profiler`` of the current
    directory. Call it from the thread that trains.
    """

    def __init__(
        self,
        *,
        schedule: Callable[[int], torch.profiler.ProfilerAction] | None = None,
        activities: Iterable[torch.profiler.ProfilerActivity] | None = None,
        directory: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """`schedule`, `activities` and `kwargs` (``record_shapes``, ...) are passed to ``torch.profiler.profile``.

        Without a `schedule` the whole block is one trace. For a long loop pass one, such as
        ``torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1)``. `directory`: where to write, instead of the
        run directory.
        """
        self._options = {"schedule": schedule, "activities": activities, **kwargs}
        place = (
            _run_directory() / PROFILER_DIRECTORY
            if directory is None
            else local_path(directory, "[profiler] directory")
        )
        self.directory = Path(place)
        self._new: list[str] = []
        self._profile: torch.profiler.profile | None = None
        self._block = ExitStack()

    def trace_handler(self, profiler: torch.profiler.profile) -> None:
        """Writes a finished trace; for ``on_trace_ready``."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._free_path()
        profiler.export_chrome_trace(str(path))
        path.chmod(0o600)
        self._new.append(path.name)

    def get_and_clear_profile_traces(self) -> dict[str, list[str]]:
        """The names of the traces since the last call, in a form that can be reported::

        session.report({"loss": loss, **profiler.get_and_clear_profile_traces()})
        """
        new, self._new = self._new, []
        return {PROFILER_DIRECTORY: new}

    def step(self) -> None:
        """Call it after each training step, inside ``with``."""
        if self._profile is None:
            raise LockstepError("[profiler] step() was called outside `with profiler:`; call it inside that block")
        self._profile.step()

    def __enter__(self) -> Self:
        _silence_kineto()
        profile = torch.profiler.profile(on_trace_ready=self.trace_handler, **self._options)
        self._profile = self._block.enter_context(profile)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._profile = None
        self._block.__exit__(kind, error, trace)

    def _free_path(self) -> Path:
        """A path with a number that no earlier trace of the rank has; ranks that do the same get the same numbers."""
        number = 0
        while (path := self.directory / f"rank_{_context.rank()}.{number}{PROFILER_SUFFIX}").exists():
            number += 1
        return path


def _run_directory() -> Path:
    return Path.cwd() if session._session is None else Path(session._session.run_dir)


def _silence_kineto() -> None:
    """Without a GPU, Kineto only prints on stderr that it starts and stops."""
    if not torch.cuda.is_available():
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
