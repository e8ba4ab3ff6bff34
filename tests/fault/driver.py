"""Drivers that the fault tests run as processes of their own: ``python driver.py MODE STORAGE``."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy
from lockstep import (
    Checkpoint,
    CheckpointConfig,
    DataParallelTrainer,
    RunConfig,
    ScalingConfig,
    session,
)


def endless(config: dict[str, Any]) -> None:
    """Counts from the checkpoint: forever, or five more steps once `stop` exists. Has one child in its own session."""
    subprocess.Popen(["sleep", "300"], start_new_session=True)
    checkpoint = session.get_checkpoint()
    state = checkpoint.to_dict() if checkpoint else {"step": -1, "weights": numpy.full(4096, -1.0)}
    assert (state["weights"] == state["step"]).all()
    start = state["step"] + 1
    if session.get_world_rank() == 0:
        with open(config["starts"], "a") as starts:
            starts.write(json.dumps({"attempt": session.get_attempt(), "start": start}) + "\n")
    steps = range(start, start + 5) if os.path.exists(config["stop"]) else itertools.count(start)
    for step in steps:
        data = {"step": step, "weights": numpy.full(4096, float(step))}
        session.report({"step": step}, checkpoint=Checkpoint.from_dict(data))
        session.barrier()


def interruptible(config: dict[str, Any]) -> None:
    """Waits for Ctrl-C, and reports once more then."""
    checkpoint = session.get_checkpoint()
    if checkpoint:
        session.report({"resumed": checkpoint.to_dict()["step"]})
        return
    session.report({"step": 0}, checkpoint=Checkpoint.from_dict({"step": 0}))
    session.get_checkpoint()  # committed
    try:
        Path(config["ready"], str(session.get_world_rank())).touch()
        signal.pause()
        raise AssertionError("no KeyboardInterrupt")
    except KeyboardInterrupt:
        print("cleaned up", session.stopping())
        session.report({"step": 1}, checkpoint=Checkpoint.from_dict({"step": 1}))
        raise


def stubborn(config: dict[str, Any]) -> None:
    """Does not end by itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    session.report({"step": 0}, checkpoint=Checkpoint.from_dict({"step": 0}))
    session.get_checkpoint()
    Path(config["ready"], str(session.get_world_rank())).touch()
    while True:
        time.sleep(60)


def talkative(config: dict[str, Any]) -> None:
    """50 MB on standard output; reports their hash."""
    line = b"%09d " + b"x" * 89 + b"\n"
    digest = hashlib.sha256()
    for block in range(500):
        text = b"".join(line % (block * 1000 + i) for i in range(1000))
        digest.update(text)
        sys.stdout.buffer.write(text)
    sys.stdout.flush()
    session.report({"sha256": digest.hexdigest()})


def reporting(config: dict[str, Any]) -> None:
    for i in range(config["reports"]):
        session.report({"i": i, "loss": 1.0 / (i + 1)})


def trainer_of(function: Any, storage: Path, workers: int = 2, name: str = "run", **config: Any) -> DataParallelTrainer:
    return DataParallelTrainer(
        function,
        train_loop_config={"starts": str(storage / "starts"), "stop": str(storage / "stop"), "ready": str(storage)}
        | config,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(
            name=name, storage_path=storage, verbose=0, checkpoint_config=CheckpointConfig(num_to_keep=3)
        ),
    )


def peak_memory() -> int:
    """Of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main(mode: str, storage: Path) -> None:
    if mode == "endless":
        run = storage / "run"
        (
            DataParallelTrainer.restore(run) if DataParallelTrainer.can_restore(run) else trainer_of(endless, storage)
        ).fit()
    elif mode == "interruptible":
        trainer_of(interruptible, storage).fit()
    elif mode == "stubborn":
        trainer_of(stubborn, storage).fit()
    else:
        trainer_of(reporting, storage, name="small", reports=100).fit()
        before = peak_memory()
        if mode == "talkative":
            trainer_of(talkative, storage, workers=1).fit()
        else:
            trainer_of(reporting, storage, reports=100_000).fit()
        (storage / "memory").write_text(json.dumps({"before": before, "after": peak_memory()}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
