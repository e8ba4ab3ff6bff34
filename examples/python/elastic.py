"""A run that starts with the workers there is room for, and grows when another run has ended.

    python examples/python/elastic.py

It prints, besides the runs' own lines on standard error:

    workers of each attempt: [1, 3]
    steps: 100, each made once: True
"""

import json
import os
import time

from lockstep import Checkpoint, DataParallelTrainer, ScalingConfig, session

STEPS = 100


def train_func():
    checkpoint = session.get_checkpoint()
    start = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
    for step in range(start, STEPS):
        time.sleep(0.05)  # the work
        session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))


def other_func():
    session.report({"running": True})
    time.sleep(1)


if __name__ == "__main__":
    os.environ["LOCKSTEP_RESOURCES"] = '{"slot": 3}'  # stands for three GPUs
    each = {"slot": 1}
    other = DataParallelTrainer(other_func, scaling_config=ScalingConfig(2, resources_per_worker=each)).start()
    next(iter(other))  # it has its workers
    elastic = ScalingConfig(num_workers=(1, 3), resources_per_worker=each, resize_interval=1)
    result = DataParallelTrainer(train_func, scaling_config=elastic).fit()
    other.wait()
    steps = [json.loads(line)["step"] for line in (result.path / "result.json").read_text().splitlines()]
    print("workers of each attempt:", result.world_sizes)
    print(f"steps: {len(steps)}, each made once: {steps == list(range(STEPS))}")
