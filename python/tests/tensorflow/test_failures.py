"""What a TensorFlow run does when ranks die, freeze, fail, or end before the others."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable

import pytest
from lockstep import FailureConfig, Result, TrainingFailedError, session

Fit = Callable[..., Result]
EPOCHS = 6


def train_and_strike(strike: Callable[[int], None]) -> None:
    """Trains from the checkpoint on; `strike` is called on every rank after every epoch with its number."""
    import numpy as np
    import tensorflow as tf
    from lockstep.tensorflow import TensorflowCheckpoint

    tf.keras.utils.set_random_seed(5)  # unlucky first weights leave Adam swinging about the minimum after few epochs
    checkpoint = session.get_checkpoint()
    x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    y = x.sum(1, keepdims=True)
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
        model.compile(optimizer=tf.keras.optimizers.Adam(0.1), loss="mse")
        if checkpoint is not None:
            checkpoint.get_model(model)
    steps = int(model.optimizer.iterations.numpy())
    for epoch in range(steps // 4, EPOCHS):
        loss = model.fit(x, y, batch_size=8, shuffle=False, verbose=0).history["loss"][0]
        report = {"epoch": epoch, "loss": loss, "began": steps // 4, "ports": json.loads(os.environ["TF_CONFIG"])}
        session.report(report, checkpoint=TensorflowCheckpoint.from_model(model))
        session.get_checkpoint()  # it is kept
        strike(epoch)


def first_time_on(rank: int, epoch: int) -> bool:
    return session.get_attempt() == 0 and session.get_world_rank() == rank and epoch == 2


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_and_the_way_on_from_the_checkpoint(tf_fit: Fit, rank: int) -> None:
    def train_func() -> None:
        train_and_strike(lambda epoch: os.kill(os.getpid(), signal.SIGKILL) if first_time_on(rank, epoch) else None)

    result = tf_fit(train_func, failure_config=FailureConfig(max_failures=1))
    assert [(failure.attempt, failure.rank, failure.kind) for failure in result.failures] == [(0, rank, "signal")]
    assert result.metrics["epoch"] == EPOCHS - 1 and result.metrics["began"] == 3
    frame = [json.loads(line) for line in (result.path / "result.json").read_text().splitlines()]
    losses = {row["epoch"]: row["loss"] for row in frame}
    assert list(losses) == list(range(EPOCHS))
    assert len({json.dumps(row["ports"]["cluster"]) for row in frame}) == 2, "new ports for the new attempt"
    assert losses[EPOCHS - 1] < losses[2] < losses[0]


def test_resuming_is_exact(tf_fit: Fit) -> None:
    """Weights, optimizer and step count are restored: the losses equal those of an undisturbed run."""

    def losses(strikes: bool) -> list[float]:
        def train_func() -> None:
            train_and_strike(
                lambda epoch: os.kill(os.getpid(), signal.SIGKILL) if strikes and first_time_on(1, epoch) else None
            )

        path = tf_fit(train_func, failure_config=FailureConfig(max_failures=1)).path
        rows = [json.loads(line) for line in (path / "result.json").read_text().splitlines()]
        return list({row["epoch"]: row["loss"] for row in rows}.values())

    undisturbed, disturbed = losses(False), losses(True)
    assert len(undisturbed) == EPOCHS and disturbed == pytest.approx(undisturbed, rel=1e-6)


def test_a_frozen_rank_is_found_and_replaced(tf_fit: Fit) -> None:
    def train_func() -> None:
        train_and_strike(lambda epoch: os.kill(os.getpid(), signal.SIGSTOP) if first_time_on(1, epoch) else None)

    begin = time.monotonic()
    result = tf_fit(train_func, failure_config=FailureConfig(max_failures=1), heartbeat_timeout=3.0)
    assert time.monotonic() - begin < 60
    first = result.failures[0]
    assert (first.kind, first.rank) == ("heartbeat", 1), "the frozen one, not the one that waits for it"
    assert result.metrics["epoch"] == EPOCHS - 1 and result.metrics["began"] == 3


def test_an_error_of_one_rank_is_the_error_of_the_run(tf_fit: Fit) -> None:
    def train_func() -> None:
        def strike(epoch: int) -> None:
            if first_time_on(1, epoch):
                raise ValueError("rank 1 is ill")

        train_and_strike(strike)

    with pytest.raises(TrainingFailedError, match="rank 1 is ill"):
        tf_fit(train_func)


@pytest.mark.parametrize("late", [0, 1])
def test_a_rank_that_ends_early_is_no_failure(tf_fit: Fit, late: int) -> None:
    def train_func() -> None:
        train_and_strike(lambda epoch: None)
        if session.get_world_rank() == late:
            threading.Event().wait(2.0)  # the other has nothing left to do meanwhile

    result = tf_fit(train_func)
    assert result.state == "finished" and result.failures == []
