"""`lockstep logs`, and `-f`, which follows a run until it ends."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from made_runs import Cli, Hold, MakeRun, driver_of, write_json


def test_logs_of_all_ranks(cli: Cli, make_run: MakeRun, executable: str) -> None:
    run = make_run("talk")
    (run / "logs" / "rank_0.log").write_bytes(b"a\nb\n")
    (run / "logs" / "rank_2.log").write_bytes(b"10%\r20%\r\nno end")
    (run / "logs" / "rank_10.log").write_bytes(b"last\n")
    (run / "logs" / "other.txt").write_bytes(b"not shown\n")
    done = subprocess.run([executable, "logs", str(run)], capture_output=True)
    assert done.returncode == 0
    assert done.stdout == (
        b"[rank 0] a\n[rank 0] b\n[rank 2] 10%\r[rank 2] 20%\r\n[rank 2] no end\n[rank 10] last\n"
    ), "ranks in the order of their numbers"
    assert cli("logs", "talk").stdout.encode() == done.stdout.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def test_logs_of_one_rank_are_as_they_are(make_run: MakeRun, executable: str) -> None:
    run = make_run("talk")
    contents = bytes(range(256)) * 1000
    (run / "logs" / "rank_0.log").write_bytes(b"a\n")
    (run / "logs" / "rank_1.log").write_bytes(contents)
    done = subprocess.run([executable, "logs", str(run), "--rank", "1"], capture_output=True)
    assert done.stdout == contents


def test_no_logs(cli: Cli, make_run: MakeRun) -> None:
    run = make_run("quiet")
    done = cli("logs", "quiet")
    assert done.returncode == 1
    assert "has no logs yet" in done.stderr
    (run / "logs" / "rank_0.log").touch()
    (run / "logs" / "rank_1.log").touch()
    done = cli("logs", "quiet")
    assert (done.returncode, done.stdout) == (0, "")
    done = cli("logs", "quiet", "--rank", "2")
    assert done.returncode == 1
    assert "rank 2" in done.stderr and "0 and 1" in done.stderr


def test_logs_of_no_run(cli: Cli, storage: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("nobody", str(tmp_path / "empty"), ""):
        done = cli("logs", name)
        assert done.returncode == 1
        assert "lockstep runs" in done.stderr
    assert str(storage / "nobody") in cli("logs", "nobody").stderr


class Follower:
    """`lockstep logs -f` and what it has printed."""

    def __init__(self, executable: str, run: Path, *arguments: str) -> None:
        self.process = subprocess.Popen([executable, "logs", str(run), "-f", *arguments], stdout=subprocess.PIPE)
        assert self.process.stdout
        self.out = self.process.stdout.fileno()
        os.set_blocking(self.out, False)
        self.text = b""

    def read(self) -> None:
        try:
            self.text += os.read(self.out, 65536)
        except BlockingIOError:
            time.sleep(0.005)

    def wait_for(self, text: bytes) -> None:
        deadline = time.monotonic() + 20
        while text not in self.text:
            assert time.monotonic() < deadline, f"{text!r} did not come: {self.text!r}"
            self.read()

    def wakeups(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("voluntary_ctxt_switches:")[1].split()[0])

    def end(self) -> bytes:
        assert self.process.wait(timeout=20) == 0
        os.set_blocking(self.out, True)
        while piece := os.read(self.out, 65536):
            self.text += piece
        return self.text


Follow = Callable[..., Follower]


@pytest.fixture
def follow(executable: str) -> Follow:
    return functools.partial(Follower, executable)


@pytest.fixture
def live_run(driver: subprocess.Popen[bytes], make_run: MakeRun, hold: Hold) -> Path:
    return hold(make_run("live", state="running", finished=None, driver=driver_of(driver)))


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def finish(run: Path, state: str = "finished") -> None:
    record = json.loads((run / "run.json").read_text())
    write_json(run / "run.json", {**record, "state": state})


def test_follow_until_the_run_ends(live_run: Path, follow: Follow) -> None:
    zero, one = live_run / "logs" / "rank_0.log", live_run / "logs" / "rank_1.log"
    append(zero, "before\n")
    follower = follow(live_run)
    follower.wait_for(b"[rank 0] before\n")
    append(one, "a file that appears\nhalf a ")
    follower.wait_for(b"[rank 1] a file that appears\n")
    append(zero, "then zero\n")
    follower.wait_for(b"[rank 0] then zero\n")
    append(one, "line\n")
    follower.wait_for(b"[rank 1] half a line\n")
    # run.json changes now and then while a run goes on.
    finish(live_run, "running")
    append(zero, "the end")
    finish(live_run)
    assert follower.end().endswith(b"[rank 0] the end\n")


def test_follow_sleeps_while_nothing_happens(live_run: Path, follow: Follow) -> None:
    append(live_run / "logs" / "rank_0.log", "x\n")
    follower = follow(live_run)
    follower.wait_for(b"x")
    time.sleep(0.2)
    before = follower.wakeups()
    time.sleep(0.5)
    assert follower.wakeups() == before
    finish(live_run)
    follower.end()


def test_follow_one_rank_byte_by_byte(live_run: Path, follow: Follow) -> None:
    log = live_run / "logs" / "rank_1.log"
    append(live_run / "logs" / "rank_0.log", "not shown\n")
    append(log, "10%\r")
    follower = follow(live_run, "--rank", "1")
    follower.wait_for(b"10%\r")
    append(log, "20%")
    follower.wait_for(b"20%")
    finish(live_run, "interrupted")
    assert follower.end() == b"10%\r20%"


def test_follow_ends_when_the_driver_is_killed(live_run: Path, follow: Follow, driver: subprocess.Popen[bytes]) -> None:
    append(live_run / "logs" / "rank_0.log", "x\n")
    follower = follow(live_run)
    follower.wait_for(b"x")
    append(live_run / "logs" / "rank_0.log", "last words")
    driver.kill()
    assert follower.end() == b"[rank 0] x\n[rank 0] last words\n"


def test_follow_waits_for_logs_that_are_not_there_yet(live_run: Path, follow: Follow) -> None:
    (live_run / "logs").rmdir()
    follower = follow(live_run)
    time.sleep(0.1)
    (live_run / "logs").mkdir()
    append(live_run / "logs" / "rank_0.log", "at last\n")
    follower.wait_for(b"at last")
    finish(live_run)
    follower.end()


def test_follow_ends_when_the_run_is_removed(live_run: Path, follow: Follow) -> None:
    append(live_run / "logs" / "rank_0.log", "x\n")
    follower = follow(live_run)
    follower.wait_for(b"x")
    shutil.rmtree(live_run)
    assert follower.process.wait(timeout=20) == 1


def test_follow_a_run_that_is_over(cli: Cli, make_run: MakeRun) -> None:
    run = make_run("over")
    append(run / "logs" / "rank_0.log", "x\n")
    assert cli("logs", "over", "-f").stdout == "[rank 0] x\n"


def test_follow_many_lines(live_run: Path, follow: Follow) -> None:
    follower = follow(live_run)
    lines = [f"line {i}\n" for i in range(20000)]
    with (live_run / "logs" / "rank_0.log").open("w") as file:
        for line in lines:
            file.write(line)
            if line.endswith("00\n"):
                file.flush()
                follower.read()
    finish(live_run)
    # It may wait for room in the pipe: read while it ends.
    deadline = time.monotonic() + 20
    while follower.process.poll() is None and time.monotonic() < deadline:
        follower.read()
    assert follower.end() == "".join("[rank 0] " + line for line in lines).encode()
