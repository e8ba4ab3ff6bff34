"""What the fault tests share. LOCKSTEP_FAULT_SECONDS sets how long a storm lasts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from lockstep import DataParallelTrainer, RunConfig, ScalingConfig

sys.path.insert(0, str(Path(__file__).parent))  # process_tree, which all of them import

from process_tree import Family, agent_of, wait_until

# A shell that starts a job in the background makes it ignore Ctrl-C; the programs under test must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[2]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call() -> None:
    """Deletes the variable that pytest changes for every test: a changed environment takes a new fork server."""
    os.environ.pop("PYTEST_CURRENT_TEST", None)


@pytest.fixture
def storm_seconds() -> float:
    return float(os.environ.get("LOCKSTEP_FAULT_SECONDS", "8"))


@pytest.fixture(autouse=True)
def no_endless_fit(request: pytest.FixtureRequest, storm_seconds: float) -> Iterator[None]:
    """A Python timeout cannot end a fit() that hangs in the core. Killing its agent makes it fail."""
    if "place" in request.fixturenames:  # its drivers are processes of their own
        yield
        return
    hung = threading.Event()

    def end() -> None:
        hung.set()
        Family(filter(None, [agent_of(os.getpid())])).kill()

    timer = threading.Timer(storm_seconds + 60, end)
    timer.start()
    yield
    timer.cancel()
    assert not hung.is_set(), "fit() hung and was ended by killing its agent"


@pytest.fixture
def make_trainer(tmp_path: Path) -> Callable[..., DataParallelTrainer]:
    """A trainer of `function` on `workers` workers that keeps its runs below the test's own directory, silently."""

    def make(
        function: Callable[..., Any], workers: int = 2, config: dict[str, Any] | None = None, **run: Any
    ) -> DataParallelTrainer:
        return DataParallelTrainer(
            function,
            train_loop_config=config,
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(**{"storage_path": tmp_path / "runs", "name": "run", "verbose": 0, **run}),
        )

    return make


class Place:
    """A mount namespace with a /tmp and a /dev/shm of its own, so that whatever a driver leaves there is seen.

    Drivers in it carry a mark in their environment, which all that they start inherits.
    """

    SET_UP = """
        set -e
        mount --bind /tmp /mnt
        mount -t tmpfs -o mode=1777 none /tmp
        mount -t tmpfs -o mode=1777 none /dev/shm
        for path in "$@"; do mkdir -p "/tmp/$path"; mount --bind "/mnt/$path" "/tmp/$path"; done
        echo ready
        exec cat
    """

    def __init__(self, directory: Path) -> None:
        self.mark = f"LOCKSTEP_FAULT_MARK={uuid.uuid4().hex}"
        self.directory = directory
        needed = {directory.resolve(), ROOT, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
        below_tmp = [str(path.relative_to("/tmp")) for path in needed if path.is_relative_to("/tmp")]
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", self.SET_UP, "sh", *below_tmp],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n", "mount namespaces need root"
        self._before = self._listing()

    def close(self) -> None:
        Family(self.processes()).kill()  # of a test that failed
        self._holder.communicate(timeout=20)

    def start(self, *arguments: str | Path, output: IO[Any] | int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Runs driver.py with `arguments`; the process is the driver itself."""
        name, value = self.mark.split("=")
        return subprocess.Popen(
            ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", sys.executable, str(ROOT / "tests/fault/driver.py")]
            + [str(argument) for argument in arguments],
            env={**os.environ, name: value},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def processes(self) -> list[int]:
        """The processes that carry the mark and have not ended."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):
                    if self.mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    def check_empty(self, seconds: float = 5) -> None:
        """All processes are gone within `seconds`, and nothing is left in /tmp and /dev/shm."""
        wait_until(lambda: not self.processes(), seconds, lambda: f"processes left: {self.processes()}")
        assert self._listing() == self._before

    def _listing(self) -> list[list[str]]:
        root = Path(f"/proc/{self._holder.pid}/root")
        return [sorted(os.listdir(root / "tmp")), sorted(os.listdir(root / "dev/shm"))]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()
