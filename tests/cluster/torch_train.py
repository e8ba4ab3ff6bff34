"""A TorchTrainer on many nodes: `torch_train.py WORKERS`."""

from __future__ import annotations

import json
import os
import sys

import torch
import torch.distributed as dist
from lockstep import RunConfig, ScalingConfig, session
from lockstep.torch import TorchTrainer


def train() -> None:
    tensor = torch.full((1000,), float(session.get_world_rank()))
    dist.all_reduce(tensor)
    gathered = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, torch.tensor([float(session.get_node_rank())]))
    session.report(
        {
            "sum": tensor[0].item(),
            "nodes": [each.item() for each in gathered],
            "backend": dist.get_backend(),
            "master": os.environ["MASTER_ADDR"],
        }
    )


scaling = ScalingConfig(num_workers=int(sys.argv[1]), placement_strategy="SPREAD")
result = TorchTrainer(train, scaling_config=scaling, run_config=RunConfig(name="torch")).fit()
print("RESULT", json.dumps(result.metrics, default=str), flush=True)
