"""Runs scripts written for Ray 1.7 to today on Lockstep, unchanged: after this import, ``ray`` is Lockstep::

    import lockstep.as_ray  # the first line; or: lockstep run --as-ray script.py

    from ray.air import ScalingConfig, session
    from ray.train.torch import TorchTrainer

The part of Ray 2.7 and later that training functions use exists too (``ray.train.get_context()`` and so on).

The names are the same objects as in Lockstep, looked up on first access; nothing else is imported here. The alias also
applies in workers. ``LOCKSTEP_AS_RAY`` selects the release before the import (1.7, 2.0, 2.6, 2.7 or 2.60); by default
it is that whose names the script uses. If Ray itself is installed, the import raises RealRayError, unless
``LOCKSTEP_AS_RAY_SHADOW=1``.
"""

from __future__ import annotations

from lockstep.as_ray._errors import NotAvailableError, RealRayError
from lockstep.as_ray._modules import install

__all__ = ["NotAvailableError", "RealRayError", "release"]

release: str = install()
"""The release of Ray whose behaviour applies where releases differ."""
