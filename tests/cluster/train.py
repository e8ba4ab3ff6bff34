"""The script that the tests of clusters run: `train.py WORKERS EPOCHS [JSON]`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from lockstep import Checkpoint, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, session

OPTIONS: dict[str, Any] = {
    "name": "run",
    "restore": False,
    "strategy": "SPREAD",
    "max_failures": 0,
    "pause": 0.0,
    "hold": None,
    "resources": None,
    "most": None,
    "enough": None,
    **json.loads(sys.argv[3] if len(sys.argv) > 3 else "{}"),
}


def train(config: dict[str, Any]) -> None:
    rank, attempt = session.get_world_rank(), session.get_attempt()
    checkpoint = session.get_checkpoint()
    start = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0
    note = {
        "pid": os.getpid(),
        "host": os.uname().nodename,
        "where": os.environ.get("WHERE", ""),
        "home": os.environ.get("HOME", ""),
        "cwd": os.getcwd(),
        "start": start,
        "node_rank": session.get_node_rank(),
        "local_rank": session.get_local_rank(),
        "local_world_size": session.get_local_world_size(),
        "world_size": session.get_world_size(),
        "ip": session.get_node_ip(),
        "addresses": [session.get_node_address(each) for each in range(session.get_world_size())],
    }
    part = Path(config["notes"], f"{attempt}_{rank}.part")
    part.write_text(json.dumps(note))
    part.rename(part.with_suffix(".json"))
    for epoch in range(start, config["epochs"]):
        time.sleep(config["pause"])
        values = session.broadcast_from_rank_zero([epoch])
        if epoch == config["hold"] and attempt == 0:  # something happens to a node meanwhile
            time.sleep(600)
        if attempt == config["enough"] and epoch >= start + 2:
            break
        checkpoint = Checkpoint.from_dict({"epoch": epoch, "weights": [1.0] * 1000})
        session.report({"epoch": values[0], "rank": rank}, checkpoint=checkpoint)


config = {"epochs": int(sys.argv[2]), "notes": os.environ["NOTES"]}
config |= {name: OPTIONS[name] for name in ("pause", "hold", "enough")}
workers = int(sys.argv[1])
scaling = ScalingConfig(
    num_workers=workers if OPTIONS["most"] is None else (workers, OPTIONS["most"]),
    placement_strategy=OPTIONS["strategy"],
    resources_per_worker=OPTIONS["resources"],
    resize_interval=0.1,
)
failure = FailureConfig(max_failures=OPTIONS["max_failures"])
if OPTIONS["restore"]:
    trainer = DataParallelTrainer.restore(OPTIONS["name"])
else:
    run = RunConfig(name=OPTIONS["name"], failure_config=failure)
    trainer = DataParallelTrainer(train, train_loop_config=config, scaling_config=scaling, run_config=run)
result = trainer.fit()
failures = [[each.kind, each.node, each.message] for each in result.failures]
checkpoint = None if result.checkpoint is None else result.checkpoint.to_dict()["epoch"]
shown = {"metrics": result.metrics, "failures": failures, "checkpoint": checkpoint}
print("RESULT", json.dumps(shown, default=str), flush=True)
