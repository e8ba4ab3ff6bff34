"""The command line, as a user sees it: the built executable on run directories made by hand."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Contents and their XXH3-128, from another implementation.
DATA = b'{"epoch": 1}'
DATA_HASH = "acbd1709d37d291db8eb0fddfe40d7f4"
WEIGHTS = bytes(range(256)) * 8
WEIGHTS_HASH = "df73e0768dd183fadd420471ff96bd00"

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def executable() -> str:
    """LOCKSTEP_CLI, else what is installed beside this interpreter."""
    path = Path(os.environ.get("LOCKSTEP_CLI") or Path(sys.executable).parent / "lockstep")
    assert path.is_file(), f"{path} is not there: build first, or set LOCKSTEP_CLI"
    return str(path)


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    path = tmp_path / "storage"
    path.mkdir()
    return path


@pytest.fixture
def environment(storage: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM")}
    return {**kept, "LOCKSTEP_STORAGE_PATH": str(storage), "TZ": "UTC", "TERM": "xterm"}


@pytest.fixture
def cli(environment: dict[str, str], tmp_path: Path) -> Cli:
    def run(*arguments: str | Path, **changes: str) -> subprocess.CompletedProcess[str]:
        command = [executable(), *map(str, arguments)]
        env = {**environment, **changes}
        return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=30)

    return run


def start_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def write_json(path: Path, value: Any) -> None:
    """As Lockstep does: readers see the old contents or the new."""
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(value))
    new.rename(path)


def make_run(path: Path, **fields: Any) -> Path:
    """A finished run, unless `fields` say otherwise."""
    (path / "logs").mkdir(parents=True)
    run = {
        "version": 1,
        "name": path.name,
        "state": "finished",
        "created": 1700000000.5,
        "updated": 1700000060.0,
        "finished": 1700000065.5,
        "trainer": "DataParallelTrainer",
        "num_workers": 2,
        "attempt": 0,
        "driver": {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid()), "hostname": socket.gethostname()},
        "training_iteration": 7,
        "time_total_s": 60.0,
        "metrics": {"epoch": 6, "loss": 0.123456789, "training_iteration": 7, "hostname": "elsewhere", "done": True},
        "config_run": {},
        "failures": [],
        "next_seq": 0,
        "trial_id": "4913f_00000",
        "experiment_id": "5a3f",
        "versions": {},
    }
    write_json(path / "run.json", {**run, **fields})
    return path


def make_checkpoint(run: Path, seq: int, **fields: Any) -> Path:
    path = run / f"checkpoint_{seq:06d}"
    (path / "deep").mkdir(parents=True)
    (path / "data.json").write_bytes(DATA)
    (path / "deep" / "weights.bin").write_bytes(WEIGHTS)
    manifest = {
        "version": 1,
        "seq": seq,
        "attempt": 0,
        "world_size": 2,
        "ranks": [0],
        "created": 1700000010.0 + seq,
        "metrics": {"loss": 0.5, "val": {"loss": 0.25}, "training_iteration": seq + 1},
        "files": [
            {"name": "data.json", "size": len(DATA), "xxh3_128": DATA_HASH},
            {"name": "deep/weights.bin", "size": len(WEIGHTS), "xxh3_128": WEIGHTS_HASH},
        ],
    }
    write_json(path / "manifest.json", {**manifest, **fields})
    return path


def table(text: str) -> list[dict[str, str]]:
    """The rows of a table by title. Cells are cut by the titles' places, aligned left or right."""
    lines = text.splitlines()
    titles = lines[0].split()
    rows = []
    for line in lines[1:]:
        # Cells are at least two spaces apart; only METRICS, the last, and times have single ones inside.
        cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
        rows.append(dict(zip(titles, cells, strict=False)))
    return rows


# ---------------------------------------------------------------- the command itself


def test_version(cli: Cli) -> None:
    done = cli("--version")
    assert (done.returncode, done.stdout) == (0, "lockstep 0.1.0\n")


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["run"],
        ["runs"],
        ["stop"],
        ["prune"],
        ["logs"],
        ["checkpoint"],
        ["checkpoint", "list"],
        ["checkpoint", "verify"],
        ["completion"],
    ],
)
def test_every_command_has_help_with_examples(cli: Cli, command: list[str]) -> None:
    done = cli(*command, "--help")
    assert done.returncode == 0
    assert "Usage: lockstep" in done.stdout
    assert "Examples:\n" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "subcommand is required"),
        (["walk"], 'there is no command "walk"; see `lockstep --help`'),
        (["logs"], "RUN is required; see `lockstep logs --help`"),
        (["logs", "x", "--rank", "two"], '"two" is no rank'),
        (["logs", "x", "--rank", "-1"], "--rank"),
        (["checkpoint", "burn"], 'there is no command "burn"; see `lockstep checkpoint --help`'),
        (["completion", "tcsh"], "tcsh not in {bash,zsh,fish}"),
        (["runs", "a", "b"], "b"),
    ],
)
def test_wrong_usage(cli: Cli, arguments: list[str], message: str) -> None:
    done = cli(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


# ---------------------------------------------------------------- run


def test_run_passes_every_argument_on(cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys, json; print(json.dumps(sys.argv[1:])); sys.exit(7)")
    done = cli("run", "script.py", "--help", "-f", "--", "a b", "--version")
    assert done.returncode == 7
    assert json.loads(done.stdout) == ["--help", "-f", "--", "a b", "--version"]


def test_run_prefers_the_python_beside_it(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    shutil.copy(executable(), tmp_path / "bin" / "lockstep")
    python = tmp_path / "bin" / "python3"
    python.write_text('#!/bin/sh\necho "beside: $@"\n')
    python.chmod(0o755)
    (tmp_path / "script.py").touch()
    command = [str(tmp_path / "bin" / "lockstep"), "run", "script.py", "x"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "beside: script.py x\n"


def test_run_takes_python3_from_the_path(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(executable(), tmp_path / "alone" / "lockstep")
    (tmp_path / "bin" / "python3").write_text('#!/bin/sh\necho "from PATH: $@"\n')
    (tmp_path / "bin" / "python3").chmod(0o755)
    (tmp_path / "script.py").touch()
    command = [str(tmp_path / "alone" / "lockstep"), "run", "script.py"]
    env = {**environment, "PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "from PATH: script.py\n"
    env["PATH"] = str(tmp_path)
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "python3" in done.stderr


@pytest.mark.parametrize(("arguments", "message"), [([], "no script was given"), (["no.py"], 'no script "no.py"')])
def test_run_without_a_script(cli: Cli, arguments: list[str], message: str) -> None:
    done = cli("run", *arguments)
    assert done.returncode == 1
    assert message in done.stderr


# ---------------------------------------------------------------- runs


def test_runs_tells_how_each_stands(cli: Cli, storage: Path) -> None:
    make_run(storage / "old", created=1600000000.0)
    failed = make_run(storage / "bad", state="failed", attempt=2, failures=[{"kind": "exit"}] * 3)
    make_checkpoint(failed, 0)
    make_checkpoint(failed, 2)
    (failed / "checkpoint_000003.partial").mkdir()
    (storage / "no run").mkdir()
    (storage / "a file").touch()
    done = cli("runs")
    assert (done.returncode, done.stderr) == (0, "")
    assert table(done.stdout) == [
        {
            "NAME": "bad",
            "STATE": "failed",
            "ATTEMPTS": "3",
            "FAILURES": "3",
            "ITERATIONS": "7",
            "STARTED": "2023-11-14 22:13:20",
            "DURATION": "1m 05s",
            "CHECKPOINTS": "2",
            "METRICS": "epoch=6 loss=0.1235",
        },
        {
            "NAME": "old",
            "STATE": "finished",
            "ATTEMPTS": "1",
            "FAILURES": "0",
            "ITERATIONS": "7",
            "STARTED": "2020-09-13 12:26:40",
            "DURATION": "27777h 47m",
            "CHECKPOINTS": "0",
            "METRICS": "epoch=6 loss=0.1235",
        },
    ]


def test_runs_of_a_directory_or_of_one_run(cli: Cli, tmp_path: Path) -> None:
    run = make_run(tmp_path / "elsewhere" / "mine")
    for path in (run.parent, run, "elsewhere/mine/"):
        assert [row["NAME"] for row in table(cli("runs", path).stdout)] == ["mine"]


def test_no_runs(cli: Cli, storage: Path, tmp_path: Path) -> None:
    assert cli("runs").stdout == f"no runs in {storage}\n"
    done = cli("runs", LOCKSTEP_STORAGE_PATH=str(tmp_path / "never"))
    assert (done.returncode, done.stdout) == (0, f"no runs in {tmp_path}/never\n")
    done = cli("runs", tmp_path / "never")
    assert done.returncode == 1
    assert "No such file or directory" in done.stderr


def test_the_default_place_is_below_home(cli: Cli, tmp_path: Path) -> None:
    make_run(tmp_path / "lockstep_results" / "homely")
    for place in ("", "~/lockstep_results"):
        done = cli("runs", LOCKSTEP_STORAGE_PATH=place, HOME=str(tmp_path))
        assert [row["NAME"] for row in table(done.stdout)] == ["homely"]


@pytest.fixture
def driver() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for the driver."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def driver_of(process: subprocess.Popen[bytes], **changes: Any) -> dict[str, Any]:
    ticks = start_ticks(process.pid)
    return {"pid": process.pid, "start_ticks": ticks, "hostname": socket.gethostname(), **changes}


def state_of(cli: Cli, run: Path) -> str:
    (row,) = table(cli("runs", run).stdout)
    return row["STATE"]


def test_a_run_is_running_while_its_driver_is(cli: Cli, storage: Path, driver: subprocess.Popen[bytes]) -> None:
    run = make_run(storage / "live", state="running", finished=None, created=time.time() - 3, driver=driver_of(driver))
    (row,) = table(cli("runs", run).stdout)
    assert row["STATE"] == "running"
    assert 3 <= float(row["DURATION"].removesuffix("s")) < 60
    os.kill(driver.pid, signal.SIGKILL)
    while Path(f"/proc/{driver.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    assert state_of(cli, run) == "died", "a zombie drives nothing"
    driver.wait()
    assert state_of(cli, run) == "died"


def test_a_reused_pid_is_another_process(cli: Cli, storage: Path, driver: subprocess.Popen[bytes]) -> None:
    other = driver_of(driver, start_ticks=start_ticks(driver.pid) - 1)
    run = make_run(storage / "gone", state="running", finished=None, driver=other)
    (row,) = table(cli("runs", run).stdout)
    assert row["STATE"] == "died"
    assert row["DURATION"] == "59.5s", "until the last sign of life"


def test_a_driver_on_another_machine_is_believed(cli: Cli, storage: Path) -> None:
    far = {"pid": 2**22 + 1, "start_ticks": 1, "hostname": "another-machine"}
    assert state_of(cli, make_run(storage / "far", state="running", finished=None, driver=far)) == "running"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "[" * 100000])
def test_a_broken_run_json_does_not_hide_the_others(cli: Cli, storage: Path, text: str) -> None:
    make_run(storage / "good")
    (make_run(storage / "broken") / "run.json").write_text(text)
    done = cli("runs")
    assert done.returncode == 0
    assert {row["NAME"]: row["STATE"] for row in table(done.stdout)} == {"good": "finished", "broken": "unreadable"}


def test_odd_fields_do_no_harm(cli: Cli, storage: Path) -> None:
    odd: dict[str, Any] = {"metrics": [1], "failures": "x", "attempt": "two", "created": 1e300, "driver": 5}
    make_run(storage / "odd", state="running", training_iteration=1e200, finished="soon", updated=None, **odd)
    done = cli("runs")
    assert done.returncode == 0
    assert table(done.stdout)[0]["STATE"] == "died"


def test_metrics_are_shown_short(cli: Cli, storage: Path) -> None:
    metrics = {"a": 1e-9, "b": True, "c": "word", "d": "x" * 100, "e": None, "f": [1], "g": {"h": 1}, "i": float("nan")}
    make_run(storage / "x", metrics=metrics)
    assert table(cli("runs").stdout)[0]["METRICS"] == "a=1e-09 b=true c=word g/h=1 i=nan"


def test_what_stands_in_files_cannot_command_the_terminal(cli: Cli, storage: Path) -> None:
    make_run(storage / "evil\x1b[2J", metrics={"a\n\x9b31mb": "\x1b[31m"}, state="\x1b]0;x\x07")
    text = cli("runs").stdout
    assert not any((ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 for c in text)
    assert len(text.splitlines()) == 2


# ---------------------------------------------------------------- on a terminal


def on_a_terminal(environment: dict[str, str], *arguments: str, columns: int = 200) -> str:
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([executable(), *arguments], stdout=inner, env=environment)
    os.close(inner)
    text = b""
    try:
        while piece := os.read(outer, 65536):
            text += piece
    except OSError:  # how Linux ends a terminal
        pass
    os.close(outer)
    assert process.wait() == 0
    return text.decode()


def test_colours_only_on_a_terminal(cli: Cli, storage: Path, environment: dict[str, str]) -> None:
    make_run(storage / "x")
    assert "\x1b" not in cli("runs").stdout
    assert "\x1b[32mfinished\x1b[0m" in on_a_terminal(environment, "runs")
    assert "\x1b" not in on_a_terminal({**environment, "NO_COLOR": "1"}, "runs")
    assert "\x1b[" in on_a_terminal({**environment, "NO_COLOR": ""}, "runs")
    assert "\x1b" not in on_a_terminal({**environment, "TERM": "dumb"}, "runs")


def test_lines_fit_a_terminal(storage: Path, environment: dict[str, str]) -> None:
    make_run(storage / "ünïcödé", metrics={f"metric_{i}": i for i in range(50)})
    for columns in (10, 47, 100, 120):
        lines = on_a_terminal({**environment, "NO_COLOR": "1"}, "runs", columns=columns).splitlines()
        assert len(lines) == 2
        assert max(map(len, lines)) <= columns
    assert "metric_49=49" in on_a_terminal(environment, "runs", columns=2000)


# ---------------------------------------------------------------- logs


def test_logs_of_all_ranks(cli: Cli, storage: Path) -> None:
    run = make_run(storage / "talk")
    (run / "logs" / "rank_0.log").write_bytes(b"a\nb\n")
    (run / "logs" / "rank_2.log").write_bytes(b"10%\r20%\r\nno end")
    (run / "logs" / "rank_10.log").write_bytes(b"last\n")
    (run / "logs" / "other.txt").write_bytes(b"not shown\n")
    done = subprocess.run([executable(), "logs", str(run)], capture_output=True)
    assert done.returncode == 0
    assert done.stdout == (
        b"[rank 0] a\n[rank 0] b\n[rank 2] 10%\r[rank 2] 20%\r\n[rank 2] no end\n[rank 10] last\n"
    ), "ranks in the order of their numbers"
    assert cli("logs", "talk").stdout.encode() == done.stdout.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def test_logs_of_one_rank_are_as_they_are(storage: Path) -> None:
    run = make_run(storage / "talk")
    contents = bytes(range(256)) * 1000
    (run / "logs" / "rank_0.log").write_bytes(b"a\n")
    (run / "logs" / "rank_1.log").write_bytes(contents)
    done = subprocess.run([executable(), "logs", str(run), "--rank", "1"], capture_output=True)
    assert done.stdout == contents


def test_no_logs(cli: Cli, storage: Path) -> None:
    run = make_run(storage / "quiet")
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

    def __init__(self, run: Path, *arguments: str) -> None:
        self.process = subprocess.Popen([executable(), "logs", str(run), "-f", *arguments], stdout=subprocess.PIPE)
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


@pytest.fixture
def live_run(storage: Path, driver: subprocess.Popen[bytes]) -> Path:
    return make_run(storage / "live", state="running", finished=None, driver=driver_of(driver))


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def finish(run: Path, state: str = "finished") -> None:
    record = json.loads((run / "run.json").read_text())
    write_json(run / "run.json", {**record, "state": state})


def test_follow_until_the_run_ends(live_run: Path) -> None:
    zero, one = live_run / "logs" / "rank_0.log", live_run / "logs" / "rank_1.log"
    append(zero, "before\n")
    follower = Follower(live_run)
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


def test_follow_sleeps_while_nothing_happens(live_run: Path) -> None:
    append(live_run / "logs" / "rank_0.log", "x\n")
    follower = Follower(live_run)
    follower.wait_for(b"x")
    time.sleep(0.2)
    before = follower.wakeups()
    time.sleep(0.5)
    assert follower.wakeups() == before
    finish(live_run)
    follower.end()


def test_follow_one_rank_byte_by_byte(live_run: Path) -> None:
    log = live_run / "logs" / "rank_1.log"
    append(live_run / "logs" / "rank_0.log", "not shown\n")
    append(log, "10%\r")
    follower = Follower(live_run, "--rank", "1")
    follower.wait_for(b"10%\r")
    append(log, "20%")
    follower.wait_for(b"20%")
    finish(live_run, "interrupted")
    assert follower.end() == b"10%\r20%"


def test_follow_ends_when_the_driver_is_killed(live_run: Path, driver: subprocess.Popen[bytes]) -> None:
    append(live_run / "logs" / "rank_0.log", "x\n")
    follower = Follower(live_run)
    follower.wait_for(b"x")
    append(live_run / "logs" / "rank_0.log", "last words")
    driver.kill()
    assert follower.end() == b"[rank 0] x\n[rank 0] last words\n"


def test_follow_waits_for_logs_that_are_not_there_yet(live_run: Path) -> None:
    (live_run / "logs").rmdir()
    follower = Follower(live_run)
    time.sleep(0.1)
    (live_run / "logs").mkdir()
    append(live_run / "logs" / "rank_0.log", "at last\n")
    follower.wait_for(b"at last")
    finish(live_run)
    follower.end()


def test_follow_ends_when_the_run_is_removed(live_run: Path) -> None:
    append(live_run / "logs" / "rank_0.log", "x\n")
    follower = Follower(live_run)
    follower.wait_for(b"x")
    shutil.rmtree(live_run)
    assert follower.process.wait(timeout=20) == 1


def test_follow_a_run_that_is_over(cli: Cli, storage: Path) -> None:
    run = make_run(storage / "over")
    append(run / "logs" / "rank_0.log", "x\n")
    assert cli("logs", "over", "-f").stdout == "[rank 0] x\n"


def test_follow_many_lines(live_run: Path) -> None:
    follower = Follower(live_run)
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


# ---------------------------------------------------------------- checkpoint


def test_checkpoint_list(cli: Cli, storage: Path) -> None:
    run = make_run(storage / "saved")
    make_checkpoint(run, 0)
    make_checkpoint(run, 12, attempt=1)
    (make_checkpoint(run, 13) / "manifest.json").write_text("{")
    (make_checkpoint(run, 14) / "manifest.json").unlink()
    done = cli("checkpoint", "list", "saved")
    assert done.returncode == 0
    rows = table(done.stdout)
    assert rows[1] == {
        "NAME": "checkpoint_000012",
        "CREATED": "2023-11-14 22:13:42",
        "ATTEMPT": "1",
        "ITERATION": "13",
        "FILES": "2",
        "SIZE": "2.1 kB",
        "METRICS": "loss=0.5 val/loss=0.25",
    }
    assert [row["NAME"] for row in rows] == ["checkpoint_000000", "checkpoint_000012", "checkpoint_000013"]
    assert "broken" in rows[2]["CREATED"]


def test_checkpoint_list_of_nothing(cli: Cli, storage: Path) -> None:
    run = make_run(storage / "bare")
    assert cli("checkpoint", "list", "bare").stdout == f"no checkpoints in {run}\n"
    assert cli("checkpoint", "list", "nobody").returncode == 1


def test_checkpoint_verify_whole(cli: Cli, storage: Path, tmp_path: Path) -> None:
    run = make_run(storage / "saved")
    first, second = make_checkpoint(run, 0), make_checkpoint(run, 1)
    for name in ("saved", run):
        done = cli("checkpoint", "verify", name)
        assert done.returncode == 0
        assert done.stdout == f"{first}: ok, 2 files, 2.1 kB\n{second}: ok, 2 files, 2.1 kB\n"
    alone = shutil.copytree(first, tmp_path / "copy")
    for path in ("copy", alone, "saved/checkpoint_000000"):
        assert cli("checkpoint", "verify", path).returncode == 0


def flip(path: Path) -> None:
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(contents)


@pytest.mark.parametrize(
    ("harm", "file"),
    [
        (lambda path: flip(path / "deep/weights.bin"), "deep/weights.bin"),
        (lambda path: (path / "data.json").unlink(), "data.json"),
        (lambda path: (path / "data.json").write_bytes(DATA + b" "), "data.json"),
        (lambda path: (path / "extra.bin").touch(), "extra.bin"),
        (lambda path: (path / "manifest.json").write_text("{"), "manifest.json"),
    ],
)
def test_checkpoint_verify_names_the_file(cli: Cli, storage: Path, harm: Callable[[Path], object], file: str) -> None:
    run = make_run(storage / "saved")
    make_checkpoint(run, 0)
    broken = make_checkpoint(run, 1)
    harm(broken)
    for name in ("saved", broken):
        done = cli("checkpoint", "verify", name)
        assert done.returncode == 1
        assert f"{broken}: {file} " in done.stdout
        assert done.stdout.count("ok") == (1 if name == "saved" else 0)


def test_checkpoint_verify_of_what_is_none(cli: Cli, storage: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = cli("checkpoint", "verify", "empty")
    assert done.returncode == 1
    assert "manifest.json" in done.stdout
    done = cli("checkpoint", "verify", "nothing")
    assert done.returncode == 1
    assert "nothing" in done.stderr
    make_run(storage / "bare")
    assert cli("checkpoint", "verify", "bare").returncode == 0


# ---------------------------------------------------------------- completion


def complete_in_bash(environment: dict[str, str], cwd: Path, *words: str) -> list[str]:
    script = """
        source <("$0" completion bash)
        COMP_WORDS=(lockstep "$@"); COMP_CWORD=$#
        _lockstep
        ((${#COMPREPLY[@]})) && printf '%s\\n' "${COMPREPLY[@]}"
    """
    command = ["bash", "--norc", "-c", script, executable(), *words]
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_bash_completion(environment: dict[str, str], storage: Path, tmp_path: Path) -> None:
    make_run(storage / "digits-1")
    make_run(storage / "digits 2")
    make_run(storage / "other")
    (storage / "digits-no-run").mkdir()
    work = tmp_path / "work"
    (work / "digits-here").mkdir(parents=True)
    (work / "train.py").touch()

    def complete(*words: str) -> list[str]:
        return complete_in_bash(environment, work, *words)

    commands = ["run", "runs", "stop", "prune", "logs", "checkpoint", "new", "completion"]
    assert complete("") == [*commands, "--help", "--version", "--cmake-dir"]
    assert complete("ru") == ["run", "runs"]
    assert complete("run", "tr") == ["train.py"]
    assert complete("logs", "dig") == ["digits 2", "digits-1", "digits-here"]
    assert complete("logs", "digits-1", "--r") == ["--rank"]
    assert complete("logs", "digits-1", "--rank", "") == []
    assert complete("stop", "oth") == ["other"]
    assert complete("stop", "other", "--t") == ["--timeout"]
    assert complete("runs", "--") == ["--state", "--limit", "--json", "--help"]
    assert complete("runs", "--state", "f") == ["finished", "failed"]
    assert complete("prune", "--ma") == ["--max-size"]
    assert complete("prune", "--keep", "") == []
    assert complete("checkpoint", "") == ["list", "verify"]
    assert complete("checkpoint", "verify", "o") == ["other"]
    assert complete("completion", "") == ["bash", "zsh", "fish"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_completion_scripts(cli: Cli, tmp_path: Path, shell: str) -> None:
    done = cli("completion", shell)
    assert done.returncode == 0
    assert {"run", "runs", "stop", "prune", "logs", "checkpoint", "completion", "list", "verify"} <= set(
        done.stdout.replace("'", " ").replace(":", " ").replace("(", " ").split()
    )
    if shutil.which(shell):
        (tmp_path / "script").write_text(done.stdout)
        assert subprocess.run([shell, "-n", str(tmp_path / "script")]).returncode == 0
