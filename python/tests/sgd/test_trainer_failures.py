"""RaySGD's Trainer: errors of functions, workers that die, drivers that die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from lockstep import TrainingFailedError, sgd
from lockstep.sgd import Trainer
from recorded import MakeTrainer, Recorder, die, is_gone


class OwnError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")


def test_a_users_error_is_of_its_own_type_with_the_workers_traceback(trainer: Trainer) -> None:
    class Local(KeyError):
        pass

    def own() -> None:
        raise OwnError(3, "boom")

    def local() -> None:
        raise Local("x")

    recorder = Recorder()
    with pytest.raises(OwnError, match="3: boom") as caught:
        trainer.run(own, callbacks=[recorder])
    assert isinstance(caught.value, TrainingFailedError)
    assert 'raise OwnError(3, "boom")' in str(caught.value)
    assert "restore(" not in str(caught.value)
    assert recorder.calls[-1] == ("finish", True)
    with pytest.raises(Local):
        trainer.run(local)
    assert trainer._executor._num_failures == 0
    assert trainer.run(lambda: 1) == [1, 1]


@pytest.mark.parametrize(("retries", "deaths"), [(3, 3), (-1, 5), (0, 0)])
def test_dead_workers_are_replaced(make: MakeTrainer, retries: int, deaths: int) -> None:
    with make(max_retries=retries) as trainer:
        assert trainer.run(die, config={"deaths": deaths}) == [deaths, deaths]
        assert trainer._executor._num_failures == deaths
        assert trainer.run(lambda: 1) == [1, 1]


def test_after_too_many_deaths_the_trainer_can_be_used(make: MakeTrainer) -> None:
    with make(max_retries=1) as trainer:
        with pytest.raises(TrainingFailedError, match="SIGKILL") as caught:
            trainer.run(die, config={"deaths": 2})
        assert caught.value.failures[0].rank == 1
        assert trainer.latest_checkpoint == {"epoch": 1}
        assert trainer.run(lambda: 1) == [1, 1]


def test_one_who_calls_exit_has_left(make: MakeTrainer) -> None:
    with make(max_retries=2) as trainer:
        iterator = trainer.run_iterator(lambda: sys.exit(0))
        with pytest.raises(RuntimeError, match=r"sys\.exit\(0\)"):
            iterator.get_final_results(force=True)
        assert iterator._executor._num_failures == 2


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_worker_that_died_between_runs_costs_nothing(make: MakeTrainer) -> None:
    with make(max_retries=0) as trainer:
        pids = trainer.run(os.getpid)
        os.kill(pids[0], signal.SIGKILL)
        wait_until_gone(pids[0])
        again = trainer.run(os.getpid)
        assert not set(pids) & set(again)
        assert trainer._executor._num_failures == 0


def test_retries_are_attempts_of_one_run(make: MakeTrainer) -> None:
    with make(max_retries=2) as trainer:
        trainer.run(die, config={"deaths": 2})
        assert trainer.latest_run_dir is not None
        record = json.loads((trainer.latest_run_dir / "run.json").read_text())
    assert [attempt["outcome"] for attempt in record["attempts"]] == ["failed", "failed", "finished"]
    assert [failure["attempt"] for failure in record["failures"]] == [0, 1]


def test_a_lost_agent_is_a_death_like_any_other(make: MakeTrainer, tmp_path: Path) -> None:
    def kill_agent() -> int:
        if not (tmp_path / "killed").exists() and sgd.world_rank() == 0:
            (tmp_path / "killed").touch()
            # The worker is the fork server's child, and that the agent's.
            parent = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
            os.kill(int(parent), signal.SIGKILL)
        if not (tmp_path / "killed").exists():
            time.sleep(600)
        return sgd.world_rank()

    with make(max_retries=1) as trainer:
        assert trainer.run(kill_agent) == [0, 1]
        assert trainer._executor._num_failures == 1
        assert trainer.run(lambda: 1) == [1, 1]


def test_workers_end_with_a_driver_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import os
            from lockstep import sgd
            from lockstep.backend import BackendConfig

            trainer = sgd.Trainer(BackendConfig(), num_workers=2, logdir={str(tmp_path / "logs")!r})
            trainer.start()
            print(*trainer.run(os.getpid), flush=True)
            os.kill(os.getpid(), 9)
            """
        )
    )
    done = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -9
    deadline = time.monotonic() + 10
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    while not all(map(is_gone, pids)):
        assert time.monotonic() < deadline
        os.sched_yield()


@pytest.mark.parametrize("ending", ["trainer.shutdown()", "del trainer", "pass"])
def test_a_script_with_an_unfinished_iterator_ends(tmp_path: Path, ending: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import time
            from lockstep import sgd
            from lockstep.backend import BackendConfig

            def forever():
                while True:
                    sgd.report(i=1)
                    time.sleep(0.001)

            trainer = sgd.Trainer(BackendConfig(), num_workers=2, logdir={str(tmp_path / "logs")!r})
            trainer.start()
            print(next(trainer.run_iterator(forever))[0]["i"])
            {ending}
            """
        )
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "1\n"
    assert done.returncode == 0, done.stderr
