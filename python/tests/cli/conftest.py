"""What the tests of the command line share: the built executable, on run directories made by hand."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # made_runs, which all of them import

from made_runs import Cli, Hold, MakeRun, write_json


@pytest.fixture(scope="session")
def executable() -> str:
    """LOCKSTEP_CLI, else what is installed beside this interpreter."""
    path = Path(os.environ.get("LOCKSTEP_CLI") or Path(sys.executable).parent / "lockstep")
    assert path.is_file(), f"{path} is not there: build first, or set LOCKSTEP_CLI"
    return str(path)


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """The default storage path."""
    path = tmp_path / "storage"
    path.mkdir()
    return path


@pytest.fixture
def environment(storage: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM")}
    return {**kept, "LOCKSTEP_STORAGE_PATH": str(storage), "TZ": "UTC", "TERM": "xterm"}


@pytest.fixture
def cli(executable: str, environment: dict[str, str], tmp_path: Path) -> Cli:
    """Runs the command in `tmp_path`; what it reads is `stdin`."""

    def run(*arguments: str | Path, stdin: str = "", **changes: str) -> subprocess.CompletedProcess[str]:
        command = [executable, *map(str, arguments)]
        env = {**environment, **changes}
        return subprocess.run(
            command, env=env, cwd=tmp_path, input=stdin, capture_output=True, encoding="utf-8", timeout=60
        )

    return run


@pytest.fixture
def make_run(storage: Path) -> MakeRun:
    """A run below the storage path, or at `place`: finished, unless `fields` of run.json say otherwise.

    With a `size`, rank 0 has a log of that many bytes.
    """

    def make(name: str, place: Path = storage, size: int | None = None, **fields: Any) -> Path:
        path = place / name
        (path / "logs").mkdir(parents=True)
        run = {
            "version": 1,
            "name": name,
            "state": "finished",
            "created": 1700000000.5,
            "updated": 1700000060.0,
            "finished": 1700000065.5,
            "trainer": "DataParallelTrainer",
            "num_workers": 2,
            "attempt": 0,
            "driver": {"pid": 2**22 + 1, "start_ticks": 1, "hostname": socket.gethostname()},
            "training_iteration": 7,
            "time_total_s": 60.0,
            "metrics": {"epoch": 6, "loss": 0.25},
            "failures": [],
            "error": "",
        }
        if size is not None:
            (path / "logs" / "rank_0.log").write_bytes(b"x" * size)
        write_json(path / "run.json", {**run, **fields})
        return path

    return make


@pytest.fixture
def hold() -> Iterator[Hold]:
    """Locks a run's directory until the test ends, as a driver does while it runs."""
    with contextlib.ExitStack() as held:

        def lock(run: Path) -> Path:
            descriptor = os.open(run, os.O_RDONLY)
            held.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            return run

        yield lock


@pytest.fixture
def driver() -> Iterator[subprocess.Popen[bytes]]:
    """A process that plays the driver."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()
