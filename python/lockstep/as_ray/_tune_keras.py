"""The Keras callbacks of ``ray.tune.integration.keras``, for models in functions that are tuned."""

from __future__ import annotations

from lockstep.integrations.keras import ReportCheckpointCallback


class TuneReportCallback(ReportCheckpointCallback):
    """Reports metrics, without checkpoints::

    model.fit(x, y, callbacks=[TuneReportCallback({"mean_accuracy": "accuracy"})])
    """

    def __init__(
        self, metrics: str | list[str] | dict[str, str] | None = None, on: str | list[str] = "epoch_end"
    ) -> None:
        super().__init__(checkpoint_on=[], report_metrics_on=on, metrics=metrics)


class TuneReportCheckpointCallback(ReportCheckpointCallback):
    """Reports metrics with checkpoints, which are those of ``TensorflowCheckpoint``; `filename` has no effect."""

    def __init__(
        self,
        metrics: str | list[str] | dict[str, str] | None = None,
        filename: str = "checkpoint",
        frequency: int = 1,
        on: str | list[str] = "epoch_end",
    ) -> None:
        super().__init__(checkpoint_on=on, report_metrics_on=on, metrics=metrics, frequency=frequency)
