"""The same work on Ray, if it is installed: Ray Train (its older engine; the newer one is slower at this) and Ray Data.

It is expected in .venv-ray, which `scripts/environments.sh ray` begins and this completes:

.venv-ray/bin/pip install torch==2.13.0 "ray[data,train,tune]==2.60.0"
"""

from __future__ import annotations

import json
import os
import subprocess
import time
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


DATA_SCRIPT = """
import json, sys, time
import ray
from ray import train
from ray.train import DataConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

path, place, workers, batch, times = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])

def read(config):
    import torch
    torch.set_num_threads(1)
    shard = train.get_dataset_shard("train")
    rank = train.get_context().get_world_rank()
    for epoch in range(times + 1):
        torch.distributed.barrier()
        begin = time.perf_counter()
        for _ in shard.iter_torch_batches(batch_size=batch):
            pass
        torch.distributed.barrier()
        if rank == 0:
            with open(f"{place}/seconds", "a") as file:
                print(time.perf_counter() - begin, file=file)

ray.init(num_cpus=workers + 2, include_dashboard=False, log_to_driver=False)
TorchTrainer(read, datasets={"train": ray.data.read_parquet(path)}, dataset_config=DataConfig(),
             scaling_config=ScalingConfig(num_workers=workers),
             run_config=RunConfig(storage_path=place + "/runs")).fit()
print("RESULT" + json.dumps([float(line) for line in open(place + "/seconds")][1:]))
"""


def ray_figures(workers: int = 4, reports: int = 20) -> dict[str, Any] | None:
    """Seconds to the first line (cold, warm) and to the first DDP step (warm), and metrics-only reports per second.

    Nothing if Ray is not installed; the DDP step is None without torch.
    """
    if not RAY.exists():
        return None
    with scratch() as place:
        return _result_of(SCRIPT, time.time(), place, workers, reports)  # type: ignore[no-any-return]


def ray_data_seconds(path: str, workers: int, batch: int, times: int) -> list[float] | None:
    """How long Ray Train's workers take to get all rows of a Parquet file as tensors, in some epochs after the first.

    Nothing if Ray is not installed.
    """
    if not RAY.exists():
        return None
    with scratch() as place:
        return _result_of(DATA_SCRIPT, path, place, workers, batch, times)  # type: ignore[no-any-return]


def _result_of(script: str, *arguments: object) -> Any:
    environment = {
        **os.environ,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TRAIN_V2_ENABLED": "0",
        "PYTHONWARNINGS": "ignore",
    }
    command = [str(RAY), "-c", script, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT"):
            return json.loads(line.removeprefix("RESULT"))
    raise RuntimeError(f"Ray did not finish: {done.stderr[-2000:]}")
