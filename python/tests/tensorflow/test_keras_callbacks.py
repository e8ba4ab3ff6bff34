"""ReportCheckpointCallback and Callback: which reports come when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from lockstep import Checkpoint, Result, session
from lockstep.errors import ConfigError
from lockstep.integrations.keras import Callback, ReportCheckpointCallback
from lockstep.tensorflow import TensorflowCheckpoint, _framework

keras = _framework.keras()
Reports = list[tuple[dict[str, Any], Checkpoint | None]]


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Reports:
    made: Reports = []
    monkeypatch.setattr(session, "report", lambda metrics, checkpoint=None: made.append((metrics, checkpoint)))
    return made


def fit(callback: Any, epochs: int = 2) -> Any:
    """Two batches an epoch."""
    model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
    model.compile(optimizer="sgd", loss="mse", metrics=["mae"])
    model.fit(np.ones((8, 2)), np.ones((8, 1)), batch_size=4, epochs=epochs, verbose=0, callbacks=[callback])
    return model


def test_by_default_every_epoch(reports: Reports) -> None:
    model = fit(ReportCheckpointCallback())
    assert [set(metrics) for metrics, _ in reports] == [{"loss", "mae"}] * 2
    last = reports[-1][1]
    assert isinstance(last, TensorflowCheckpoint)
    assert np.array_equal(last.get_model().get_weights()[0], model.get_weights()[0])


@pytest.mark.parametrize(
    ("metrics", "keys"),
    [("loss", ["loss"]), (["loss"], ["loss"]), (["mae", "loss"], ["mae", "loss"]), ({"error": "mae"}, ["error"])],
)
def test_metrics_are_chosen_and_named(reports: Reports, metrics: Any, keys: list[str]) -> None:
    fit(ReportCheckpointCallback(metrics=metrics))
    assert [list(report) for report, _ in reports] == [keys] * 2
    assert all(isinstance(value, float) for report, _ in reports for value in report.values())


def test_a_metric_that_is_not_logged_is_told() -> None:
    with pytest.raises(ConfigError, match=r"metrics has 'val_loss', but Keras logged 'loss', 'mae' here"):
        fit(ReportCheckpointCallback(metrics=["val_loss"]))


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"checkpoint_on": "train_end"}, [False, False, True]),
        ({"checkpoint_on": []}, [False, False]),
        ({"report_metrics_on": []}, [True, True]),
        ({"report_metrics_on": "train_batch_end"}, [False, False, True, False, False, True]),
        ({"report_metrics_on": ["train_begin", "epoch_end"]}, [False, True, True]),
        ({"checkpoint_on": "train_batch_end", "report_metrics_on": "train_batch_end"}, [True] * 4),
        ({"checkpoint_on": "train_batch_end", "report_metrics_on": "train_batch_end", "frequency": 3}, [True]),
        ({"frequency": 2}, [True]),
        ({"report_metrics_on": "train_batch_end", "frequency": 2}, [False, True, False, True]),
        ({"report_metrics_on": "train_batch_end", "frequency": 3}, [True, False, True]),
        ({"checkpoint_on": "train_end", "frequency": 2}, [False, True]),
    ],
)
def test_hooks(reports: Reports, options: dict[str, Any], kept: list[bool]) -> None:
    fit(ReportCheckpointCallback(**options))
    assert [checkpoint is not None for _, checkpoint in reports] == kept


def test_batches_are_not_looked_at_unless_asked_for() -> None:
    assert not ReportCheckpointCallback()._implements_train_batch_hooks()  # type: ignore[attr-defined]
    assert ReportCheckpointCallback("train_batch_end")._implements_train_batch_hooks()  # type: ignore[attr-defined]


def test_it_is_a_callback_of_keras_and_can_be_a_base() -> None:
    class Mine(ReportCheckpointCallback):
        pass

    callback = Mine(metrics="loss")
    assert isinstance(callback, keras.callbacks.Callback)
    assert isinstance(callback, Mine) and isinstance(callback, ReportCheckpointCallback)
    assert type(callback).__name__ == "Mine"


@pytest.mark.parametrize("base", [ReportCheckpointCallback, Callback])
def test_subclasses_override_hooks(reports: Reports, base: Any) -> None:
    heard: list[Any] = []

    class Mine(base):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            super().on_epoch_begin(epoch, logs)
            heard.append(("begin", epoch, len(reports)))

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            super().on_epoch_end(epoch, {**logs, "epoch": epoch})
            heard.append(("end", epoch, len(reports)))

        def on_batch_end(self, batch: int, logs: Any = None) -> None:
            heard.append(batch)

    fit(Mine())
    assert heard == [("begin", 0, 0), 0, 1, ("end", 0, 1), ("begin", 1, 1), 0, 1, ("end", 1, 2)]
    assert [metrics["epoch"] for metrics, _ in reports] == [0, 1]
    assert all(checkpoint is not None for _, checkpoint in reports)


def test_a_subclass_may_do_without_reports(reports: Reports) -> None:
    class Silent(ReportCheckpointCallback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            pass

    fit(Silent())
    assert reports == []


def test_no_metrics(reports: Reports) -> None:
    fit(ReportCheckpointCallback(metrics=[]), epochs=1)
    fit(ReportCheckpointCallback(metrics={}), epochs=1)
    fit(Callback([]), epochs=1)
    assert [sorted(metrics) for metrics, _ in reports] == [[], [], ["loss", "mae"]], "the last as Ray 2.0 has it"


@pytest.mark.parametrize("name", ["checkpoint_on", "report_metrics_on"])
@pytest.mark.parametrize(("wrong", "told"), [(None, "is None"), (3, "is 3"), ([None], "has None"), (["x"], "has 'x'")])
def test_wrong_hooks_are_told(name: str, wrong: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name} {told}; it must be one or more of epoch_begin"):
        ReportCheckpointCallback(**{name: wrong})


@pytest.mark.parametrize("kind", [ReportCheckpointCallback, Callback])
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (3, "is 3"),
        (["loss", 3], "has 3"),
        ({"loss": 3}, "has 3"),
        ({3: "loss"}, "has 3"),
        (0, "is 0"),
        (b"x", "has 120"),
    ],
)
def test_wrong_metrics_are_told(kind: Any, wrong: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"metrics {told}; it must be None, a name, a list of names"):
        kind(metrics=wrong)


@pytest.mark.parametrize("wrong", [None, "2", 1.5, True, -1, [1, None]])
def test_wrong_frequencies_are_told(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"frequency is .*; it must be an int of at least 1"):
        ReportCheckpointCallback(frequency=wrong)
    with pytest.raises(ConfigError, match=r"frequency is .*; it must be an int of at least 0, or a list of them"):
        Callback(frequency=wrong)


def test_wrong_arguments_are_told() -> None:
    with pytest.raises(
        ConfigError, match=r"checkpoint_on has 'epoch'; it must be one or more of epoch_begin, epoch_end"
    ):
        ReportCheckpointCallback(checkpoint_on="epoch")
    with pytest.raises(ConfigError, match="frequency is 0"):
        ReportCheckpointCallback(frequency=0)
    with pytest.raises(ConfigError, match="2 numbers for the 1 hooks"):
        Callback(frequency=[1, 2])


def test_the_older_callback(reports: Reports) -> None:
    fit(Callback({"error": "mae"}, on=["epoch_end", "train_end"], frequency=[2, 0]))
    assert [(list(metrics), checkpoint is not None) for metrics, checkpoint in reports] == [
        (["error"], False),
        (["error"], True),
        (["error"], False),
    ]


def test_on_many_workers(tf_fit: Callable[..., Result]) -> None:
    def train_func() -> None:
        import tensorflow as tf

        with tf.distribute.MultiWorkerMirroredStrategy().scope():
            layers = [tf.keras.layers.Dense(2, input_shape=(2,)), tf.keras.layers.BatchNormalization()]
            model = tf.keras.Sequential(layers)
            model.compile(optimizer="adam", loss="mse")
        callback = ReportCheckpointCallback(
            checkpoint_on="train_batch_end", report_metrics_on="train_batch_end", frequency=2
        )
        model.fit(np.ones((32, 2)), np.ones((32, 2)), batch_size=8, epochs=2, verbose=0, callbacks=[callback])

    result = tf_fit(train_func)
    assert result.metrics["training_iteration"] == 4
    assert result.metrics["loss"] >= 0
    assert result.checkpoint.get_model().count_params() == 14
