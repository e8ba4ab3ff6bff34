"""The same work on Ray Train, if it is installed (its older engine; the newer one is slower at this).

It is expected in .venv-ray, made by

python3.11 -m venv .venv-ray && .venv-ray/bin/pip install torch==2.13.0 && .venv-ray/bin/pip install "ray[train,tune]"
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from measure import scratch

RAY = Path(__file__).resolve().parent.parent / ".venv-ray" / "bin" / "python"

SCRIPT = """
import json, os, sys, time
begin = float(sys.argv[1])
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.data_parallel_trainer import DataParallelTrainer

place, workers, reports = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def first_line(config):
    now = time.time()
    from ray import train
    with open(f"{place}/{train.get_context().get_world_rank()}", "w") as file:
        file.write(repr(now))

def report(config):
    from ray import train
    start = time.time()
    for i in range(reports):
        train.report({"step": i, "loss": 0.5})
    with open(f"{place}/rate", "w") as file:
        file.write(repr(reports / (time.time() - start)))

def ddp_step(config):
    import torch
    from ray import train
    from ray.train.torch import prepare_model
    model = prepare_model(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    now = time.time()
    with open(f"{place}/{train.get_context().get_world_rank()}", "w") as file:
        file.write(repr(now))

def fit(function, number, trainer=DataParallelTrainer):
    trainer(function, scaling_config=ScalingConfig(num_workers=number),
                        run_config=RunConfig(storage_path=place + "/runs")).fit()

def last():
    return max(float(open(f"{place}/{rank}").read()) for rank in range(workers))

ray.init(num_cpus=workers + 4, include_dashboard=False, log_to_driver=False)
fit(first_line, workers)
cold = last() - begin
begin = time.time()
fit(first_line, workers)
warm = last() - begin
fit(report, 2)
ddp = None
try:
    from ray.train.torch import TorchTrainer
except ImportError:
    pass
else:
    fit(ddp_step, workers, TorchTrainer)
    begin = time.time()
    fit(ddp_step, workers, TorchTrainer)
    ddp = last() - begin
print("RESULT" + json.dumps({"cold": cold, "warm": warm, "ddp": ddp, "rate": 2 * float(open(place + "/rate").read())}))
"""


def ray_figures(workers: int = 4, reports: int = 20) -> dict[str, Any] | None:
    """Seconds to the first line (cold, warm) and to the first DDP step (warm), and metrics-only reports per second.

    Nothing if Ray is not installed; the DDP step is None without torch.
    """
    import time

    if not RAY.exists():
        return None
    with scratch() as place:
        environment = {
            **os.environ,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TRAIN_V2_ENABLED": "0",
            "PYTHONWARNINGS": "ignore",
        }
        command = [str(RAY), "-c", SCRIPT, repr(time.time()), str(place), str(workers), str(reports)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        for line in done.stdout.splitlines():
            if line.startswith("RESULT"):
                return json.loads(line.removeprefix("RESULT"))  # type: ignore[no-any-return]
        raise RuntimeError(f"Ray did not finish: {done.stderr[-2000:]}")
