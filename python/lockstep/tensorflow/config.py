"""How the workers of a TensorFlow run connect."""

from __future__ import annotations

import json
import logging
import os
import socket
from dataclasses import dataclass
from typing import ClassVar

from lockstep import session
from lockstep.backend import BackendConfig
from lockstep.tensorflow import _framework
from lockstep.tensorflow.checkpoint import TensorflowCheckpoint

FOR_EVER = 10 * 365 * 86400.0
_LOST_PEER = frozenset(
    {"UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError", "FailedPreconditionError"}
)
_held: list[socket.socket] = []
"""Held by rank 0: bound but not listening, so that no other program gets the ports of TensorFlow's servers."""


@dataclass
class TensorflowConfig(BackendConfig):
    """Sets ``TF_CONFIG``, which ``MultiWorkerMirroredStrategy`` reads, before TensorFlow is imported in a worker.

    >>> TensorflowConfig().environment()["TF_CPP_MIN_LOG_LEVEL"]
    '3'
    """

    preload: ClassVar[tuple[str, ...]] = ("lockstep.tensorflow._preload",)

    def environment(self) -> dict[str, str]:
        """Selects Keras 2 (Keras 3 cannot train on many workers) and no log lines."""
        return {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": _framework.QUIET}

    def validate(self) -> None:
        _framework.check_installed()

    def on_worker_start(self) -> None:
        worker = session._get("TensorflowConfig.on_worker_start")
        worker.checkpoint_type = TensorflowCheckpoint
        if os.environ.get("TF_CPP_MIN_LOG_LEVEL") == _framework.QUIET:
            logging.getLogger("tensorflow").setLevel(logging.ERROR)
        ports = session.broadcast_from_rank_zero(_hold_ports(worker.world_size) if worker.rank == 0 else [])
        os.environ["TF_CONFIG"] = json.dumps(
            {
                "cluster": {
                    "worker": [f"{session.get_node_address(rank)}:{port}" for rank, port in enumerate(ports)],
                },
                "task": {"type": "worker", "index": worker.rank},
            }
        )

    def on_worker_end(self) -> None:
        """Every rank hosts a server that the others may still need, and a missing one is an error to them, so all ranks
        leave together."""
        worker = session._get("TensorflowConfig.on_worker_end")
        if worker.world_size > 1:
            worker.core.meet(b"", FOR_EVER)

    def is_consequence(self, error: BaseException) -> bool:
        return type(error).__module__.startswith("tensorflow.") and type(error).__name__ in _LOST_PEER


def _hold_ports(count: int) -> list[int]:
    """Reserves ports that only sockets that ask to share them, as TensorFlow's do, can bind."""
    for _ in range(count):
        holder = socket.socket()
        _held.append(holder)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("", 0))
    return [holder.getsockname()[1] for holder in _held]
