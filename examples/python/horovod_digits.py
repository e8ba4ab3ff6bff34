"""An elastic Horovod job on four workers that loses one of them, with the digits of scikit-learn.

    scripts/environments.sh horovod
    .venv-horovod/bin/python examples/python/horovod_digits.py

Rank 2 kills itself halfway. The others continue from their last commit as soon as its replacement is ready. Prints:

    died: [2], attempts: 1
    survivors kept their processes: True
    accuracy above 90 %: True
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
from lockstep import Callback, Checkpoint, FailureConfig, RunConfig, ScalingConfig, session
from lockstep.horovod import HorovodConfig, HorovodTrainer
from sklearn.datasets import load_digits

WORKERS, EPOCHS, BATCH = 4, 12, 64


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    data = load_digits()
    return torch.tensor(data.data[:1536] / 16.0, dtype=torch.float32), torch.tensor(data.target[:1536])


def make_model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


def train_func() -> None:
    hvd.init()
    torch.manual_seed(0)
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    images, labels = digits()

    @hvd.elastic.run
    def train(state: Any) -> None:
        while state.epoch < EPOCHS:
            for batch in range(0, len(images), BATCH):
                mine = slice(batch + hvd.rank(), batch + BATCH, hvd.size())
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(images[mine]), labels[mine])
                loss.backward()
                if state.epoch == EPOCHS // 2:
                    die_once()
                optimizer.step()
            state.epoch += 1
            saved = Checkpoint.from_dict({"model": model.state_dict()})
            session.report({"epoch": state.epoch, "loss": loss.item(), "worker": os.getpid()}, checkpoint=saved)
            state.commit()

    train(hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0))


def die_once() -> None:
    mark = Path(session.get_trial_dir(), "died")
    if session.get_world_rank() == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Workers(Callback):
    """The process of each rank, epoch by epoch."""

    def __init__(self) -> None:
        self.pids: list[list[int]] = []
        self.attempts = 0

    def on_attempt_started(self, attempt: int) -> None:
        self.attempts += 1

    def on_report(self, results: list[dict[str, Any] | None]) -> None:
        self.pids.append([result["worker"] if result is not None else 0 for result in results])


def main() -> None:
    workers = Workers()
    result = HorovodTrainer(
        train_func,
        horovod_config=HorovodConfig(elastic=True),
        scaling_config=ScalingConfig(num_workers=WORKERS),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=2), callbacks=[workers], verbose=0),
    ).fit()
    print(f"died: {[failure.rank for failure in result.failures]}, attempts: {workers.attempts}")
    first, last = workers.pids[0], workers.pids[-1]
    same = [rank for rank in range(WORKERS) if first[rank] == last[rank]]
    print("survivors kept their processes:", same == [0, 1, 3])
    model = make_model()
    model.load_state_dict(result.checkpoint.to_dict()["model"])
    images, labels = digits()
    accuracy = (model(images).argmax(1) == labels).float().mean().item()
    print("accuracy above 90 %:", accuracy > 0.9)


if __name__ == "__main__":
    main()
