"""`lockstep run -n 4` beside torchrun, on one unchanged script: to the first DDP step, and from kill -9 to the next."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from marks import kill_one_a_time, last_mark
from measure import Row, scratch
from torch_ddp import THEIRS, torchrun

WORKERS = 4
RESTARTS = 2
LOCKSTEP = [str(Path(sys.executable).parent / "lockstep"), "run", "-n", str(WORKERS)]


def measure() -> list[Row]:
    cold: dict[str, list[float]] = {"lockstep": [], "torchrun": []}
    killed: dict[str, list[float]] = {"lockstep": [], "torchrun": []}
    for _ in range(5):
        cold["lockstep"].append(first_step(LOCKSTEP))
        cold["torchrun"].append(first_step(torchrun(WORKERS)))
    for _ in range(2):
        killed["lockstep"] += after_kill([*LOCKSTEP, "--max-restarts", str(RESTARTS)])
        options = ["--max-restarts", str(RESTARTS), "--monitor-interval", "0.1"]
        killed["torchrun"] += after_kill(torchrun(WORKERS, *options))
    rows = []
    for what, samples, wanted in (
        ("start of a script of torchrun to the first DDP step on 4 ranks", cold, 0.5),
        ("kill -9 of one of 4 workers to the next DDP step on all", killed, 1 / 15),
    ):
        ours, theirs = (statistics.median(samples[side]) for side in ("lockstep", "torchrun"))
        rows += [
            Row(f"lockstep run: {what}", ours, "s", samples=samples["lockstep"]),
            Row("  torchrun", theirs, "s", samples=samples["torchrun"]),
            Row("  ours, times torchrun's", ours / theirs, "x", wanted),
        ]
    return rows


def environment(place: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "LOCKSTEP_STORAGE_PATH": str(place / "runs"), **more}


def first_step(command: list[str]) -> float:
    with scratch() as place:
        (place / "script.py").write_text(THEIRS)
        begin = time.time()
        words = [*command, str(place / "script.py"), str(place)]
        # Not checked: with torchrun, Gloo's threads now and then abort a worker at its end.
        subprocess.run(words, env=environment(place), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return last_mark(place, 0, WORKERS) - begin


def after_kill(command: list[str]) -> list[float]:
    with scratch() as place:
        (place / "script.py").write_text(THEIRS)
        words = [*command, str(place / "script.py"), str(place), str(RESTARTS)]
        # Without the variable, torchrun's restarts collide with the addresses of the dead ranks.
        variables = environment(place, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
        launcher = subprocess.Popen(words, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        samples = kill_one_a_time(place, WORKERS, RESTARTS)
        launcher.wait(timeout=60)
    return samples
