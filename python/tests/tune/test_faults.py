"""Faults between the driver and the trials end a trial at most; they neither hang nor end an experiment."""

import json
import os
import signal
import time
from types import SimpleNamespace

import pytest
from lockstep import (
    Checkpoint,
    CheckpointConfig,
    ConfigError,
    DataParallelTrainer,
    EngineError,
    FailureConfig,
    LockstepError,
    RunConfig,
    ScalingConfig,
    session,
    tune,
)
from lockstep.tune import TuneConfig, Tuner, _frames, _pool
from lockstep.tune._runs import cut_rows


def quick(tmp_path, **more):
    return RunConfig(name="experiment", storage_path=tmp_path, verbose=0, **more)


def one(config):
    return {"loss": 1.0}


# ---------------------------------------------------------------- workers that start


def test_workers_that_end_before_they_are_ready(tmp_path, monkeypatch):
    monkeypatch.setattr(_pool._pool_worker, "serve", lambda config: os._exit(1))
    tuner = Tuner(one, param_space={"x": tune.grid_search([1, 2, 3])}, run_config=quick(tmp_path))
    with pytest.raises(EngineError, match=r"workers end before their first trial.*exit code 1"):
        tuner.fit()


def test_the_time_budget_ends_before_workers_are_ready(tmp_path):
    def slow(config):
        time.sleep(60)

    grid = Tuner(slow, tune_config=TuneConfig(time_budget_s=0.01), run_config=quick(tmp_path)).fit()
    assert len(grid) == 1 and grid.num_errors == 0


def test_a_worker_that_is_killed_before_it_has_the_function(tmp_path, monkeypatch):
    greet, killed = _pool.Worker.greet, []

    def late(worker, pid):
        if not killed:
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)
            while os.path.exists(f"/proc/{pid}/fd/0"):
                time.sleep(0.001)
        greet(worker, pid)

    monkeypatch.setattr(_pool.Worker, "greet", late)
    grid = Tuner(one, run_config=quick(tmp_path, failure_config=FailureConfig(max_failures=1))).fit()
    assert killed and grid.num_errors == 0 and grid[0].metrics["loss"] == 1.0


def test_pipes_stay_small_if_the_system_refuses(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise PermissionError

    monkeypatch.setattr(_pool, "fcntl", SimpleNamespace(fcntl=refuse, F_SETPIPE_SZ=0))
    assert Tuner(one, run_config=quick(tmp_path)).fit()[0].metrics["loss"] == 1.0


def test_messages_may_have_more_than_4_gib():
    head = _frames.HEAD.pack(5 << 30, _frames.FUNCTION)
    assert _frames.HEAD.unpack(head) == (5 << 30, _frames.FUNCTION)


# ---------------------------------------------------------------- processes that a trial leaves behind


def test_messages_of_another_trial_are_dropped(tmp_path):
    def train(config):
        outgoing = session._own().core._outgoing
        report = _frames.REPORT.pack(0, 0, 0)
        for job in [(99, 0), (0, 7)]:
            _frames.send(outgoing, _frames.RESULT, _frames.JOB.pack(*job) + report)
            _frames.send(outgoing, _frames.END, _frames.JOB.pack(*job))
        session.report({"loss": 1.0})
        session.report({"loss": 0.5})

    grid = Tuner(train, run_config=quick(tmp_path)).fit()
    assert grid.num_errors == 0 and grid[0].metrics["training_iteration"] == 2


@pytest.mark.parametrize("reuse", [True, False])
def test_a_forked_process_neither_reports_nor_becomes_a_worker(tmp_path, reuse):
    def train(config):
        child = os.fork()
        if child == 0:
            try:
                session.report({"status": -1})
            except LockstepError as error:
                assert "a process that it forked" in str(error)
                return None  # from the function, in the child
        return {"status": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}

    config = TuneConfig(max_concurrent_trials=1, reuse_workers=reuse)
    grid = Tuner(train, param_space={"x": tune.grid_search([1, 2])}, tune_config=config, run_config=quick(tmp_path))
    results = grid.fit()
    assert [result.metrics["status"] for result in results] == [0, 0] and results.num_errors == 0


# ---------------------------------------------------------------- what the user gave raises


def test_a_callback_that_raises_at_a_checkpoint_of_a_run(tmp_path):
    class Bad(tune.Callback):
        def on_trial_save(self, iteration, trials, trial, **info):
            raise RuntimeError("from the callback")

    def train(config):
        for step in range(3):
            session.report({"loss": 1.0}, checkpoint=Checkpoint.from_dict({"step": step}))

    run_config = quick(tmp_path, callbacks=[Bad()], checkpoint_config=CheckpointConfig(num_to_keep=1))
    with pytest.raises(RuntimeError, match="from the callback"):
        Tuner(DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=1)), run_config=run_config).fit()


def test_stop_that_raises_says_for_which_trial_and_what_to_do(tmp_path):
    def stop(trial_id, result):
        return result["nope"]

    with pytest.raises(
        ConfigError, match=r"\[tune\] stop raised KeyError: 'nope' for trial \w+; .*restore\('.*experiment'\)"
    ) as caught:
        Tuner(one, run_config=quick(tmp_path, stop=stop)).fit()
    assert isinstance(caught.value.__cause__, KeyError)


# ---------------------------------------------------------------- what an experiment goes on with


def test_stoppers_know_what_was_reported_before_a_restore(tmp_path):
    def train(config):
        checkpoint = session.get_checkpoint()
        first = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        for step in range(first, 20):
            if step == 4 and checkpoint is None:
                raise ValueError("in the middle")
            session.report({"loss": 1.0}, checkpoint=Checkpoint.from_dict({"step": step}))

    run_config = quick(tmp_path, stop=tune.MaximumIterationStopper(6))
    assert Tuner(train, run_config=run_config).fit().num_errors == 1
    grid = Tuner.restore(tmp_path / "experiment", train, resume_errored=True).fit()
    assert grid.num_errors == 0 and grid[0].metrics["training_iteration"] == 6


def test_a_run_that_is_ended_keeps_the_checkpoint_that_the_experiment_knows(tmp_path):
    class Once(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            if result["step"] == 5 and not (tmp_path / "raised").exists():
                (tmp_path / "raised").touch()
                raise RuntimeError("once")

    def train(config):
        checkpoint = session.get_checkpoint()
        first = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        for step in range(first, first + 50):
            session.report({"step": step, "first": first}, checkpoint=Checkpoint.from_dict({"step": step}))

    trainer = DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=1))
    run_config = quick(tmp_path, callbacks=[Once()], checkpoint_config=CheckpointConfig(num_to_keep=1))
    with pytest.raises(RuntimeError, match="once"):
        Tuner(trainer, run_config=run_config).fit()
    grid = Tuner.restore(tmp_path / "experiment").fit()
    assert 3 <= grid[0].metrics["first"] <= 6 and grid.num_errors == 0
    assert [*grid[0].path.glob("*.held")] == []


def test_a_quote_in_a_result_does_not_join_it_with_the_next(tmp_path):
    rows = [json.dumps({"step": step, "note": 'a " b'}) + "\n" for step in range(6)]
    (tmp_path / "result.json").write_text("".join(rows))
    table = ["step,note\n", *(f'{step},"a "" \n b"\n' for step in range(6))]
    (tmp_path / "progress.csv").write_text("".join(table))
    cut_rows(tmp_path, 2)
    assert (tmp_path / "result.json").read_text() == "".join(rows[:2])
    assert (tmp_path / "progress.csv").read_text() == "".join(table[:3])
    for name in ("result.json", "progress.csv"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_trials_have_the_id_of_their_experiment(tmp_path):
    grid = Tuner(one, param_space={"x": tune.grid_search([1, 2])}, run_config=quick(tmp_path)).fit()
    ids = {result.metrics["experiment_id"] for result in grid}
    assert len(ids) == 1 and len(ids.pop()) == 32


# ---------------------------------------------------------------- who may read the files


def test_files_of_experiments_are_private(tmp_path):
    def train(config):
        checkpoint = session.get_checkpoint()
        first = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        for step in range(first, 6):
            session.report({"loss": 1.0}, checkpoint=Checkpoint.from_dict({"step": step}))
            if step == 2 and checkpoint is None:
                raise ValueError("in the middle")

    before = os.umask(0o022)
    try:
        retry = FailureConfig(max_failures=1)
        grid = Tuner(train, run_config=quick(tmp_path, failure_config=retry)).fit()
    finally:
        os.umask(before)
    assert grid.num_errors == 0
    files = [*(tmp_path / "experiment").rglob("*")]
    assert any(each.name == "result.json" for each in files)
    assert [each for each in files if each.stat().st_mode & 0o077] == []
