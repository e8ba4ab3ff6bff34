"""State that the helpers of this package share within one process.

In a worker, rank and world size are the session's. Outside a worker (a plain script, a notebook) they are the process
group's, or 0 and 1 if there is none: the same code then trains alone.
"""

from __future__ import annotations

import torch
import torch.distributed

from lockstep import session

seed: int | None = None
"""The seed of enable_reproducibility(); None if it was not called."""


def rank() -> int:
    """This process's number among all."""
    if session._session is not None:
        return session._session.rank
    return torch.distributed.get_rank() if _has_group() else 0


def world_size() -> int:
    """The number of processes that train together."""
    if session._session is not None:
        return session._session.world_size
    return torch.distributed.get_world_size() if _has_group() else 1


def device() -> torch.device:
    """The device of this process. A worker sees only the GPUs that it was given, so its own is number 0."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def _has_group() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
