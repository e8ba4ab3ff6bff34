"""Two callbacks: one compares the ranks, one is a logger with the interface of Ray Tune's loggers.

    python examples/python/custom_callback.py

It prints, besides the run's own lines on standard error:

    epoch 0: loss from 1.00 to 1.50
    epoch 1: loss from 0.50 to 0.75
    epoch 2: loss from 0.33 to 0.50
    logged 3 results, the last loss is 0.33
"""

from lockstep import Callback, DataParallelTrainer, LoggerCallback, RunConfig, ScalingConfig, session


def train_func(config):
    for epoch in range(config["num_epochs"]):
        session.report({"epoch": epoch, "loss": (1 + session.get_world_rank() / 2) / (epoch + 1)})


class Spread(Callback):
    """Sees every rank's metrics, once all ranks have reported."""

    def on_report(self, results):
        losses = [metrics["loss"] for metrics in results if metrics is not None]
        print(f"epoch {results[0]['epoch']}: loss from {min(losses):.2f} to {max(losses):.2f}")


class Remember(LoggerCallback):
    """Sees rank 0's results, with the autofilled keys."""

    def __init__(self):
        self.losses = []

    def log_trial_result(self, iteration, trial, result):
        self.losses.append(result["loss"])

    def log_trial_end(self, trial, failed=False):
        print(f"logged {len(self.losses)} results, the last loss is {self.losses[-1]:.2f}")


if __name__ == "__main__":
    DataParallelTrainer(
        train_func,
        train_loop_config={"num_epochs": 3},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(callbacks=[Spread(), Remember()]),
    ).fit()
