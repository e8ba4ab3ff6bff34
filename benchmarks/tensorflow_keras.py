"""TensorFlow: from the start to the first step of Keras on 2 workers, and from a kill to the next one.

Compared with the same training code in processes started by hand with TF_CONFIG. Everything runs in .venv-tf.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import time
from pathlib import Path

from marks import MARK, kill_one_a_time, last_mark
from measure import Row, median_row, scratch

ROOT = Path(__file__).parents[1]
PYTHON = ROOT / ".venv-tf" / "bin" / "python"
WORKERS = 2

STEP = (
    MARK
    + """
def first_step(place, name):
    import numpy as np
    import tensorflow as tf
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(8, input_shape=(4,)), tf.keras.layers.Dense(1)])
        model.compile(optimizer="adam", loss="mse")
    data = np.ones((16, 4), dtype="float32")
    model.fit(data, data[:, :1], batch_size=16, verbose=0)
    mark(place, name)
"""
)

OURS = (
    STEP
    + """
import sys, time
from lockstep import FailureConfig, RunConfig, ScalingConfig, session
from lockstep.tensorflow import TensorflowTrainer

place, kills = sys.argv[1], int(sys.argv[2])

def train_func():
    first_step(place, f"{session.get_attempt()}_{session.get_world_rank()}")
    if session.get_attempt() < kills:
        time.sleep(600)

if __name__ == "__main__":
    run_config = RunConfig(storage_path=place + "/runs", verbose=0, failure_config=FailureConfig(max_failures=-1))
    TensorflowTrainer(train_func, scaling_config=ScalingConfig(num_workers=2), run_config=run_config).fit()
"""
)

BARE = (
    STEP
    + """
import json, os, sys
first_step(sys.argv[1], "0_" + str(json.loads(os.environ["TF_CONFIG"])["task"]["index"]))
"""
)


def measure() -> list[Row]:
    subprocess.run([ROOT / "scripts" / "environments.sh", "tf"], check=True)
    ours, bare = cold()
    return [
        Row("TensorFlow, cold script: to the first step on 2 ranks", ours, "s"),
        Row("  by hand with TF_CONFIG", bare, "s"),
        Row("  ours, times by hand", ours / bare, "x", 1.2),
        median_row("TensorFlow, kill -9 of one of 2: to the next step on all", killed(), "s", 2),
    ]


def cold(times: int = 5) -> tuple[float, float]:
    """Ours and by hand, alternating, so that changes in the machine's load affect both."""
    samples: tuple[list[float], list[float]] = ([], [])
    for _ in range(times):
        for mine, start in zip(samples, (start_ours, start_by_hand), strict=True):
            with scratch() as place:
                begin = time.time()
                processes = start(place)
                mine.append(last_mark(place, 0, WORKERS) - begin)
                wait_for(processes)
    return statistics.median(samples[0]), statistics.median(samples[1])


def start_ours(place: Path, kills: int = 0) -> list[subprocess.Popen[bytes]]:
    (place / "script.py").write_text(OURS)
    return [subprocess.Popen([PYTHON, place / "script.py", place, str(kills)])]


def start_by_hand(place: Path) -> list[subprocess.Popen[bytes]]:
    (place / "script.py").write_text(BARE)
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(WORKERS)]
    addresses = [f"127.0.0.1:{holder.getsockname()[1]}" for holder in holders]
    for holder in holders:
        holder.close()
    processes = []
    for rank in range(WORKERS):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
        more = {"TF_CONFIG": json.dumps(config), "TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        processes.append(subprocess.Popen([PYTHON, place / "script.py", place], env={**os.environ, **more}))
    return processes


def wait_for(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.wait(timeout=120):
            raise RuntimeError(f"{process.args!r} ended with code {process.returncode}")


def killed(times: int = 5) -> list[float]:
    with scratch() as place:
        processes = start_ours(place, kills=times)
        samples = kill_one_a_time(place, WORKERS, times)
        wait_for(processes)
    return samples


if __name__ == "__main__":
    print(json.dumps([row.to_dict() for row in measure()], indent=2))
