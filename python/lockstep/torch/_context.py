"""What the helpers of this package share inside one process.

In a worker the numbers are the session's. Outside of one (a script on its own, a notebook) there is one process, unless
a process group says otherwise: the same code then trains alone.
"""

from __future__ import annotations

import torch
import torch.distributed

from lockstep import session

seed: int | None = None
"""What enable_reproducibility() was given; None while it was not called."""


def rank() -> int:
    """This process's number among all."""
    if session._session is not None:
        return session._session.rank
    return torch.distributed.get_rank() if _has_group() else 0


def world_size() -> int:
    """How many processes train together."""
    if session._session is not None:
        return session._session.world_size
    return torch.distributed.get_world_size() if _has_group() else 1


def device() -> torch.device:
    """Where this process computes. A worker sees only the GPUs that it was given, so its own is number 0."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def _has_group() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
