"""Imports torch, or says what to install. Comes before everything else in this package."""

import gc

# Importing torch makes millions of objects that stay alive; garbage collection takes a sixth of the import time.
_collects = gc.isenabled()
gc.disable()
try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError("lockstep.torch needs PyTorch: pip install torch==2.13.0") from error
finally:
    if _collects:
        gc.enable()
