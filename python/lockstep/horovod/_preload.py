"""What the fork server imports before it forks the workers of a Horovod run.

Horovod starts its thread in ``hvd.init()``, not when it is imported. If it was built only for TensorFlow, nothing of
it is imported here.
"""

import contextlib
import http.client  # noqa: F401

with contextlib.suppress(ImportError):
    import horovod.torch.elastic  # noqa: F401

    import lockstep.torch._preload

import lockstep.horovod.config
import lockstep.horovod.losses  # noqa: F401
