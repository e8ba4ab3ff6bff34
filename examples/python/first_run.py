"""One training function on four workers, with reports and checkpoints.

    python examples/python/first_run.py

It prints the last metrics, {'epoch': 4, 'loss': 0.2}, and the run directory. If you kill a worker while it runs, it
continues from the last checkpoint; FailureConfig below allows three failures.
"""

from lockstep import Checkpoint, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, session


def train_func(config):
    checkpoint = session.get_checkpoint()
    start = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0
    for epoch in range(start, config["num_epochs"]):
        loss = 1.0 / (epoch + 1)
        session.report({"epoch": epoch, "loss": loss}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))


if __name__ == "__main__":
    trainer = DataParallelTrainer(
        train_func,
        train_loop_config={"num_epochs": 5},
        scaling_config=ScalingConfig(num_workers=4),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=3)),
    )
    result = trainer.fit()
    print({key: result.metrics[key] for key in ("epoch", "loss")})
    print("checkpoint:", result.checkpoint.to_dict()["epoch"])
    print("run directory:", result.path)
