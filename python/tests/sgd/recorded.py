"""A callback that records, and a training function whose workers die; the tests of lockstep.sgd import it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

from lockstep import sgd
from lockstep.sgd import SGDCallback, Trainer

MakeTrainer = Callable[..., Trainer]


class Recorder(SGDCallback):
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def start_training(self, logdir: str, **info: Any) -> None:
        self.calls.append(("start", logdir))

    def handle_result(self, results: list[dict[str, Any]], **info: Any) -> None:
        self.calls.append(("results", results))

    def finish_training(self, error: bool = False, **info: Any) -> None:
        self.calls.append(("finish", error))

    @property
    def results(self) -> list[list[dict[str, Any]]]:
        return [call[1] for call in self.calls if call[0] == "results"]


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def die(config: dict[str, Any]) -> int:
    """Kills rank 1 `deaths` times; epochs continue from the checkpoint."""
    epoch = (sgd.load_checkpoint() or {"epoch": -1})["epoch"] + 1
    if epoch < config["deaths"]:
        sgd.save_checkpoint(epoch=epoch)
        sgd.report(epoch=epoch)
        from lockstep import session

        session.get_checkpoint()
        session.barrier()
        if sgd.world_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)
    return epoch
