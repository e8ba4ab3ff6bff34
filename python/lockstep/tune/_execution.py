"""Which executor runs the trials of an experiment, and how many at once."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from lockstep import _core
from lockstep._plain import plain
from lockstep.config import CheckpointConfig, seconds
from lockstep.errors import ConfigError
from lockstep.trainer import DataParallelTrainer
from lockstep.tune._pool import Pool
from lockstep.tune._runs import Runs, cut_rows, prepare_checkpoint
from lockstep.tune._setup import Setup, name_of
from lockstep.tune._trial import Job
from lockstep.tune.trainable import is_class_trainable, resources_of


def executor_of(
    setup: Setup,
    path: Path,
    settings: Any,
    decides: bool,
    run_callbacks: list[Any],
    tell: Callable[[str, str], None] | None,
    takes: Any = None,
) -> Pool | Runs:
    """A trainer's trials are runs; the others are messages to warm workers, whose reports go to the experiment `takes`
    directly, if it is given."""
    most = setup.tune.max_concurrent_trials or None
    searcher = setup.tune.search_alg
    if limit := getattr(searcher, "max_concurrent", 0):
        most = min(most or limit, limit)
    if isinstance(setup.trainable, DataParallelTrainer):
        return Runs(setup.trainable, path, run_config=setup.run, most=most, waits=decides, callbacks=run_callbacks)
    resources = resources_of(setup.trainable, partial(_sampled, setup, settings))
    capacity = capacity_of(resources)
    if settings.num_samples > 0:
        grid = max(1, _core.tune.Space(settings.param_space).grid_size())
        capacity = min(capacity, settings.num_samples * grid + len(settings.points_to_evaluate))
    config = setup.run.checkpoint_config or CheckpointConfig()
    is_class = is_class_trainable(setup.trainable)
    kind = settings.scheduler.get("of", settings.scheduler["kind"])
    may_pause = kind not in ("fifo", "asha", "median")
    every = config.checkpoint_frequency or (1 if is_class and may_pause else 0)
    options: dict[str, Any] = {"checkpoint_every": every, "checkpoint_at_end": bool(config.checkpoint_at_end)}
    options["chdir"] = bool(setup.tune.chdir_to_trial_dir)
    options["resources"] = resources
    name = name_of(setup.trainable)
    experiment_id = settings.extra.get("experiment_id", "")

    def make_record(job: Job) -> Any:
        if not job.has_directory and os.path.exists(job.trial.logdir):
            tidy(job)
        constants = {
            "name": str(job.trial),
            "trainer": name,
            "trial_id": job.trial.trial_id,
            "experiment_id": experiment_id,
            "experiment_tag": job.trial.experiment_tag,
            "again": job.attempt > 0,
        }
        config = job.trial.config
        return _core.TrialRecord(job.trial.logdir, constants, config if setup.space.is_plain else plain(config))

    hang = setup.run.hang_timeout
    return Pool(
        setup.trainable,
        min(capacity, most) if most else capacity,
        experiment=path.name,
        directory=path,
        resources=resources,
        make_record=make_record,
        options=options,
        reuse=setup.tune.reuse_workers,
        waits=decides,
        tell=tell,
        takes=takes,
        hang_timeout=None if hang is None else seconds(hang, "[RunConfig] hang_timeout"),
    )


def _sampled(setup: Setup, settings: Any) -> Iterator[dict[str, Any]]:
    """Configurations from all over the space."""
    space = _core.tune.Space(settings.param_space)
    searcher = _core.tune.make_searcher({"kind": "random"}, space, 0, 1)
    grid = space.grid_size()
    for number in range(min(1000, max(100, grid))):
        point = space.grid_point(number % grid) if grid > 1 else [math.nan] * len(space.dimensions)
        yield setup.space.config(space.config(searcher.ask(number, point).point))


def capacity_of(resources: dict[str, float]) -> int:
    """How many trials of one worker fit."""
    total = _core.total_resources()
    fits = []
    for name, amount in ({"CPU": 1.0} | resources).items():
        if amount <= 0:
            continue
        count = int(total.get(name, 0) / amount + 1e-9)
        if count < 1 and name in resources:
            what = f"a trial needs {amount:g} {name}, but there are {total.get(name, 0):g}"
            raise ConfigError(f"[tune] {what}; ask for less in tune.with_resources()")
        fits.append(max(1, count))
    return min(fits, default=int(total.get("CPU", 1)))


def tidy(job: Job) -> None:
    """Removes from a trial's directory what the experiment does not know, because its process was killed before it was
    stored: the trial will do it again."""
    place = Path(job.trial.logdir)
    if job.attempt == 0:
        shutil.rmtree(place)
        return
    prepare_checkpoint(job)
    if not job.checkpoint:
        for checkpoint in place.glob("checkpoint_*"):
            shutil.rmtree(checkpoint)
    if job.iterations > 0:  # otherwise the record begins anew
        cut_rows(place, job.iterations)
