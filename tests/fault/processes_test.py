"""Agent, fork server and the processes that user code makes: what happens when they die, and that none is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from lockstep import (
    Callback,
    Checkpoint,
    DataParallelTrainer,
    FailureConfig,
    TrainingFailedError,
    session,
)
from process_tree import Family, agent_of, engine_of, fork_server_of, kill_and_wait, workers_of

MakeTrainer = Callable[..., DataParallelTrainer]


class KillOnce(Callback):
    """SIGKILL to one process of the run, at one hook; the hook returns when it has ended."""

    def __init__(self, hook: str, victim: Callable[[int], int | None]) -> None:
        self.victim = victim
        self.family: Family | None = None
        setattr(self, hook, lambda *_: self.kill())

    def kill(self) -> None:
        if self.family is None:
            self.family = Family(engine_of(os.getpid()))
            kill_and_wait(self.victim(os.getpid()))


def counting() -> Callable[..., None]:
    def train_func() -> None:
        checkpoint = session.get_checkpoint()
        start = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        for step in range(start, 20):
            session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
            session.barrier()

    return train_func


def next_fit_works(make_trainer: MakeTrainer) -> None:
    result = make_trainer(counting(), name="next").fit()
    assert result.metrics["step"] == 19 and result.state == "finished"


# ---------------------------------------------------------------------- the agent


@pytest.mark.parametrize("hook", ["on_result", "on_checkpoint", "on_attempt_started"])
def test_the_agent_is_killed_and_the_run_goes_on_with_another(make_trainer: MakeTrainer, hook: str) -> None:
    killer = KillOnce(hook, agent_of)
    result = make_trainer(counting(), callbacks=[killer], failure_config=FailureConfig(max_failures=1)).fit()
    assert result.state == "finished" and result.metrics["step"] == 19
    assert [failure.kind for failure in result.failures] == ["node"]
    assert killer.family is not None
    killer.family.wait_gone(5)


@pytest.mark.parametrize("hook", ["on_result", "on_checkpoint", "on_attempt_started"])
def test_the_agent_is_killed(make_trainer: MakeTrainer, hook: str) -> None:
    killer = KillOnce(hook, agent_of)
    with pytest.raises(TrainingFailedError) as caught:
        make_trainer(counting(), callbacks=[killer]).fit()
    assert caught.value.failures[0].kind == "node"
    assert "agent" in str(caught.value)
    assert caught.value.result is not None and caught.value.result.state == "failed"
    assert json.loads((caught.value.result.path / "run.json").read_text())["state"] == "failed"
    assert killer.family is not None
    killer.family.wait_gone(5)
    next_fit_works(make_trainer)


def test_the_agent_is_killed_between_attempts(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    def train_func() -> None:
        if session.get_attempt() == 0:
            raise ValueError("once")
        session.report({"attempt": session.get_attempt()})

    killer = KillOnce("on_attempt_failed", agent_of)
    options = {"callbacks": [killer], "failure_config": FailureConfig(max_failures=2)}
    result = make_trainer(train_func, name="goes-on", **options).fit()
    assert result.state == "finished" and [failure.kind for failure in result.failures][-1] == "node"
    assert killer.family is not None
    killer.family.wait_gone(5)

    killer = KillOnce("on_attempt_failed", agent_of)
    with pytest.raises(TrainingFailedError, match="agent"):
        make_trainer(train_func, callbacks=[killer], failure_config=FailureConfig(max_failures=1)).fit()
    next_fit_works(make_trainer)


def test_daemons_go_with_an_agent_that_is_killed(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    def train_func(config: dict[str, str]) -> None:
        place = Path(config["place"], str(session.get_world_rank()))
        subprocess.Popen(
            ["sh", "-c", "trap '' TERM HUP; echo $$ >$0.session; exec sleep 300", place], start_new_session=True
        )
        subprocess.Popen(["sh", "-c", "(setsid sh -c 'echo $$ >$0.orphan; exec sleep 300' $0 &)", place])
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                Path(f"{place}.forked").write_text(f"{os.getpid()}\n")
                time.sleep(300)
            os._exit(0)
        while sum(path.read_text().endswith("\n") for path in Path(config["place"]).iterdir()) < 6:
            time.sleep(0.01)
        session.barrier()
        session.report({"step": 0})
        time.sleep(300)

    killer = KillOnce("on_result", agent_of)
    (tmp_path / "pids").mkdir()
    other = subprocess.Popen(["sleep", "300"], start_new_session=True)
    with pytest.raises(TrainingFailedError):
        make_trainer(train_func, config={"place": str(tmp_path / "pids")}, callbacks=[killer]).fit()
    daemons = [int(path.read_text()) for path in (tmp_path / "pids").iterdir()]
    assert len(daemons) == 6
    Family(daemons).wait_gone(5)
    assert other.poll() is None, "it is none of the run's"
    other.kill()
    other.wait()


def test_an_idle_agent_is_killed(make_trainer: MakeTrainer) -> None:
    """It belongs to no run: the next one starts another."""
    make_trainer(counting()).fit()
    family = Family(engine_of(os.getpid()))
    kill_and_wait(agent_of(os.getpid()))
    family.wait_gone(5)
    next_fit_works(make_trainer)


# ---------------------------------------------------------------------- the fork server


def test_the_fork_server_is_killed_and_the_run_goes_on(make_trainer: MakeTrainer) -> None:
    killer = KillOnce("on_checkpoint", fork_server_of)
    result = make_trainer(counting(), callbacks=[killer], failure_config=FailureConfig(max_failures=1)).fit()
    assert result.state == "finished" and result.metrics["step"] == 19
    assert result.metrics["training_iteration"] == 20
    assert {failure.attempt for failure in result.failures} == {0}


def test_the_fork_server_is_killed_and_the_run_fails(make_trainer: MakeTrainer) -> None:
    killer = KillOnce("on_checkpoint", fork_server_of)
    with pytest.raises(TrainingFailedError) as caught:
        make_trainer(counting(), callbacks=[killer]).fit()
    assert "SIGKILL" in str(caught.value) or "fork server" in str(caught.value)
    next_fit_works(make_trainer)


def test_an_idle_fork_server_is_killed(make_trainer: MakeTrainer) -> None:
    make_trainer(counting()).fit()
    kill_and_wait(fork_server_of(os.getpid()))
    next_fit_works(make_trainer)


def test_the_fork_server_is_killed_between_attempts(make_trainer: MakeTrainer) -> None:
    def train_func() -> None:
        if session.get_attempt() == 0:
            raise ValueError("once")
        session.report({"attempt": session.get_attempt()})

    killer = KillOnce("on_attempt_failed", fork_server_of)
    result = make_trainer(train_func, callbacks=[killer], failure_config=FailureConfig(max_failures=1)).fit()
    assert result.metrics["attempt"] == 1


# ---------------------------------------------------------------------- children of workers


@pytest.mark.parametrize("end", ["return", "exception", "exit"])
def test_children_of_workers_go_with_them(make_trainer: MakeTrainer, tmp_path: Path, end: str) -> None:
    def train_func(config: dict[str, str]) -> None:
        pids = []
        for _ in range(2):
            child = subprocess.Popen(
                ["sh", "-c", "sleep 300 & echo $!; exec sleep 300"], start_new_session=True, stdout=subprocess.PIPE
            )
            assert child.stdout is not None
            pids += [child.pid, int(child.stdout.readline())]
        Path(config["place"], str(session.get_world_rank())).write_text(json.dumps(pids))
        session.barrier()
        if config["end"] == "exception" and session.get_world_rank() == 0:
            raise ValueError("boom")
        if config["end"] == "exit":
            os._exit(0)

    trainer = make_trainer(train_func, config={"place": str(tmp_path), "end": end})
    if end == "return":
        trainer.fit()
    else:
        with pytest.raises(TrainingFailedError):
            trainer.fit()
    for rank in range(2):
        for pid in json.loads((tmp_path / str(rank)).read_text()):
            assert not Path(f"/proc/{pid}").exists(), f"{pid} of rank {rank} is left when fit() returns"
    assert not workers_of(os.getpid())


def test_a_pool_of_processes_in_a_worker(make_trainer: MakeTrainer) -> None:
    def train_func() -> None:
        import multiprocessing

        for method in ("fork", "spawn"):
            with multiprocessing.get_context(method).Pool(2) as pool:
                session.report({"method": method, "sum": sum(pool.map(abs, range(-50, 0)))})

    result = make_trainer(train_func).fit()
    assert result.metrics["sum"] == 1275 and result.metrics["training_iteration"] == 2


def test_a_forked_child_ends_by_itself(make_trainer: MakeTrainer) -> None:
    """sys.exit in a child that the function forked ends only the child, and sends nothing to the driver."""

    def train_func() -> None:
        import select

        for code in (0, 3):
            pid = os.fork()
            if pid == 0:
                sys.exit(code)
            ended = select.poll()
            ended.register(os.pidfd_open(pid), select.POLLIN)
            if not ended.poll(15_000):
                raise TimeoutError("the child hangs")
            session.report({"code": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])})

    result = make_trainer(train_func, workers=1).fit()
    rows = [json.loads(line)["code"] for line in (result.path / "result.json").read_text().splitlines()]
    assert rows == [0, 3]


def test_threads_in_a_worker(make_trainer: MakeTrainer) -> None:
    def train_func() -> None:
        def report(thread: int) -> None:
            for i in range(200):
                session.report({"thread": thread, "i": i})

        def late() -> None:
            time.sleep(0.3)
            session.report({"thread": -1, "i": 0})

        threads = [threading.Thread(target=report, args=(number,)) for number in range(4)]
        threads.append(threading.Thread(target=lambda: sys.exit(5)))  # ends the thread only
        for thread in threads:
            thread.start()
        threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
        threading.Thread(target=late).start()  # is joined as at the end of any program
        for thread in threads:
            thread.join()

    result = make_trainer(train_func).fit()
    rows = [json.loads(line) for line in (result.path / "result.json").read_text().splitlines()]
    for thread in range(4):
        assert [row["i"] for row in rows if row["thread"] == thread] == list(range(200))
    assert len(rows) == 801 and rows[-1]["thread"] == -1


@pytest.mark.parametrize("how", ["sys.exit", "os._exit"])
def test_a_rank_that_leaves_is_brought_back(make_trainer: MakeTrainer, how: str) -> None:
    def train_func(config: dict[str, str]) -> None:
        checkpoint = session.get_checkpoint()
        start = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        for step in range(start, 4):
            session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
            session.get_checkpoint()
            session.barrier()
            if step == 1 and session.get_attempt() == 0 and session.get_world_rank() == 1:
                sys.exit(3) if config["how"] == "sys.exit" else os._exit(0)

    trainer = make_trainer(train_func, config={"how": how}, failure_config=FailureConfig(max_failures=1))
    result = trainer.fit()
    assert [(failure.kind, failure.rank) for failure in result.failures] == [("exit", 1)]
    assert result.metrics["step"] == 3 and result.metrics["training_iteration"] == 4


def test_one_run_at_a_time_is_not_disturbed_by_a_fork_of_the_driver(make_trainer: MakeTrainer) -> None:
    """A child that the user's program forks ends without taking the agent with it."""
    make_trainer(counting(), name="first").fit()
    agent = agent_of(os.getpid())
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    next_fit_works(make_trainer)
    assert agent_of(os.getpid()) == agent
