"""A worker is killed while it trains; then the run fails for good, and is restored.

    python examples/python/resume_after_failure.py

It prints, besides the run's own lines on standard error:

    attempt 0 ended: rank 1 (signal); another one follows: True
    attempt 1 ended: rank 0 (exception); another one follows: False
    failed at step 5: RuntimeError('step 5 always fails here')
    restored and finished: step 7, attempts with failures: [0, 1]
"""

import os
import signal

from lockstep import (
    Callback,
    Checkpoint,
    DataParallelTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
    session,
)


def train_func(config):
    checkpoint = session.get_checkpoint()
    start = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
    for step in range(start, 8):
        if step == 3 and session.get_attempt() == 0 and session.get_world_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
        if step == 5 and config["fails"]:
            if session.get_world_rank() == 0:
                session.get_checkpoint()  # returns when the checkpoint of this step is committed
                raise RuntimeError("step 5 always fails here")
            session.barrier()
        if step == 3:
            session.barrier()


class Tell(Callback):
    def on_attempt_failed(self, failures, again):
        first = failures[0]
        print(f"attempt {first.attempt} ended: rank {first.rank} ({first.kind}); another one follows: {again}")


if __name__ == "__main__":
    trainer = DataParallelTrainer(
        train_func,
        train_loop_config={"fails": True},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=1), callbacks=[Tell()]),
    )
    try:
        trainer.fit()
    except TrainingFailedError as error:
        print(f"failed at step {error.result.checkpoint.to_dict()['step']}: {error.__cause__!r}")
        path = error.result.path
    # The same directory, the newest checkpoint, the same function; only the configuration is new.
    result = DataParallelTrainer.restore(path, train_loop_config={"fails": False}).fit()
    attempts = sorted({failure.attempt for failure in result.failures})
    print(f"restored and finished: step {result.metrics['step']}, attempts with failures: {attempts}")
