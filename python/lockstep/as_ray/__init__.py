"""Scripts written for Ray 1.7 to 2.6 run on Lockstep, unchanged: after this import ``ray`` is Lockstep::

    import lockstep.as_ray  # the first line; or: lockstep run --as-ray script.py

    from ray.air import ScalingConfig, session
    from ray.train.torch import TorchTrainer

What training functions use of Ray 2.7 and later is there as well (``ray.train.get_context()`` and its like).

The names are the very objects of Lockstep, found when they are first asked for: nothing else is imported here. Workers
follow. ``LOCKSTEP_AS_RAY`` chooses the release (1.7, 2.0, or 2.6, the default) before the import. Where Ray itself is
installed the import raises RealRayError, unless ``LOCKSTEP_AS_RAY_SHADOW=1``.
"""

from __future__ import annotations

from lockstep.as_ray._errors import NotAvailableError, RealRayError
from lockstep.as_ray._modules import install

__all__ = ["NotAvailableError", "RealRayError", "release"]

release: str = install()
"""The release of Ray whose behaviour is followed where releases differ."""
