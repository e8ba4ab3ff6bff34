"""The same numbers in every run."""

from __future__ import annotations

import os
import random
import sys

import torch

from lockstep.errors import ConfigError
from lockstep.torch import _context


def enable_reproducibility(seed: int = 0) -> None:
    """Makes runs with the same number of workers give the same numbers. Call it at the start of the training function::

        def train_func():
            enable_reproducibility(seed=7)
            model = prepare_model(Net())

    Seeds torch, numpy and random, the loader workers of prepared data loaders and their order, and makes torch refuse
    operations without a deterministic implementation. Every rank gets the same seed. A training function that draws
    random numbers (dropout) repeats them exactly after a restart only if it stores ``torch.get_rng_state()`` in its
    checkpoint.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ConfigError(f"[enable_reproducibility] seed is {seed!r}; it must be an int from 0 to 2**32 - 1")
    _context.seed = seed
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    # cuBLAS is deterministic only with a fixed workspace.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
