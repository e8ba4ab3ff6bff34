"""The older Keras callback of Ray 2.6: it can be imported; creating it raises an error that names its replacement."""

from __future__ import annotations

from typing import Any


class Callback:
    """Raises DeprecationWarning, as an error. ``ray.air.callbacks.keras.Callback``, of Ray 2.0, is the one that works.

    Making it imports no Keras.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise DeprecationWarning(
            "[ray.air.integrations.keras.Callback] it was removed in Ray 2.6; make a "
            "ReportCheckpointCallback(metrics=..., report_metrics_on=..., checkpoint_on=...) of the same module"
        )
