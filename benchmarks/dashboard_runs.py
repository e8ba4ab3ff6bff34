"""Writes run directories as training would, for measurements of the dashboard: the bytes are those of real runs."""

from __future__ import annotations

import json
import math
import os
import random
import socket
from pathlib import Path


def write_run(directory: Path, reports: int, number: int = 0, created: float = 1_760_000_000.0) -> None:
    """A finished run of 2 workers with these reports, one failure and no checkpoints."""
    directory.mkdir(parents=True)
    (directory / "logs").mkdir()
    for rank in range(2):
        (directory / "logs" / f"rank_{rank}.log").write_text(f"==== attempt 0 ====\nrank {rank} of run {number}\n")
    config = {"lr": 0.1 / (number + 1), "batch_size": 64, "epochs": reports}
    (directory / "params.json").write_text(json.dumps(config, indent=2))
    with (directory / "result.json").open("w") as lines:
        for iteration in range(1, reports + 1):
            last = report(iteration, number, config, created)
            lines.write(json.dumps(last) + "\n")
    record = {
        "version": 1,
        "name": directory.name,
        "state": "finished",
        "trainer": "TorchTrainer",
        "num_workers": 2,
        "attempt": 0,
        "created": created + number,
        "updated": created + number + reports,
        "finished": created + number + reports,
        "training_iteration": reports,
        "time_total_s": float(reports),
        "next_seq": 0,
        "trial_id": f"{number:05x}_00000",
        "experiment_id": f"{number:032x}",
        "function_sha256": "",
        "driver": {"pid": os.getpid(), "start_ticks": 1, "hostname": socket.gethostname()},
        "versions": {"lockstep": "0.1.0"},
        "config_run": {"num_workers": 2, "max_failures": 0},
        "metrics": {**last, "done": True},
        "attempts": [
            {
                "number": 0,
                "started": created + number,
                "ended": created + number + reports,
                "world_size": 2,
                "nodes": ["local"],
                "outcome": "finished",
                "failures": [],
            }
        ],
        "failures": [],
        "error": "",
        "warnings": [],
    }
    (directory / "run.json").write_text(json.dumps(record, indent=2))


def report(iteration: int, number: int, config: dict, created: float) -> dict:
    noise = random.Random(iteration * 1009 + number).random()
    return {
        "loss": math.exp(-iteration / 3000) + 0.05 * noise,
        "accuracy": 1 - math.exp(-iteration / 2000) * 0.9 - 0.02 * noise,
        "val": {"loss": math.exp(-iteration / 3500) + 0.1, "accuracy": 1 - math.exp(-iteration / 2500)},
        "learning_rate": config["lr"] * 0.999**iteration,
        "epoch": iteration - 1,
        "training_iteration": iteration,
        "time_this_iter_s": 1.0 + 0.1 * noise,
        "time_total_s": float(iteration),
        "time_since_restore": float(iteration),
        "iterations_since_restore": iteration,
        "timestamp": int(created + iteration),
        "date": "2026-01-31_12-59-59",
        "pid": 4242,
        "hostname": "host",
        "node_ip": "127.0.0.1",
        "trial_id": f"{number:05x}_00000",
        "experiment_id": f"{number:032x}",
        "experiment_tag": "0",
        "config": config,
        "done": False,
        "episodes_total": None,
        "timesteps_total": None,
        "timesteps_since_restore": 0,
        "warmup_time": 0.5,
    }
