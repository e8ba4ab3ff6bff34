"""Stores that fail: requests that go wrong, a store that is lost, and a helper program that is killed.

LOCKSTEP_STORAGE_CHECKPOINTS says how many checkpoints a run makes; a run by hand takes 200.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lockstep
import pytest
from lockstep import Checkpoint, DataParallelTrainer, Result, RunConfig, TrainingFailedError, session

from .conftest import Server
from .proxy import Proxy, sometimes
from .test_runs import STORAGE, trainer

CHECKPOINTS = int(os.environ.get("LOCKSTEP_STORAGE_CHECKPOINTS", "8"))


@pytest.fixture
def proxy(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    made = Proxy(server.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
    yield made
    made.stop()


def assert_whole(server: Server, run: str = "some/prefix/run/") -> None:
    """Every checkpoint that can be seen is complete, and nothing else is there."""
    directories: dict[str, dict[str, int]] = {}
    for key, size in server.objects(run + "checkpoint_").items():
        directory, _, name = key.removeprefix(run).partition("/")
        directories.setdefault(directory, {})[name] = size
    assert directories
    for directory, files in directories.items():
        manifest = json.loads(server.read(run + directory + "/manifest.json"))
        listed = {each["name"]: each["size"] for each in manifest["files"]}
        assert {name: size for name, size in files.items() if name != "manifest.json"} == listed, directory
    assert server.open_uploads() == []


@pytest.mark.timeout(1000)
def test_spoiled_requests(server: Server, proxy: Proxy, forget: Callable[[], Path]) -> None:
    proxy.spoil = sometimes(0.1, seed=3)
    result = trainer(epochs=CHECKPOINTS, checkpoint_config=None).fit()
    assert result.state == "finished"
    assert_whole(server)
    forget()
    back = Result.from_path(STORAGE + "/run")
    assert [checkpoint.to_dict()["epoch"] for checkpoint, _ in back.best_checkpoints] == list(range(CHECKPOINTS))
    for checkpoint, metrics in back.best_checkpoints:
        assert (checkpoint.to_dict()["weights"] == metrics["epoch"]).all()
    assert proxy.spoiled > 0


def test_a_store_that_refuses_fails_the_run(server: Server, proxy: Proxy, forget: Callable[[], Path]) -> None:
    """The object and the cause are named, and the local copy has everything: restore() uploads it."""
    proxy.spoil = lambda method, path: "403" if method == "PUT" and "data.json" in path else ""
    with pytest.raises(TrainingFailedError, match=r"s3://bucket/some/prefix/run/checkpoint_00000.*") as raised:
        trainer(epochs=2).fit()
    result = raised.value.result
    assert result.state == "failed" and result.failures[-1].kind == "storage"
    assert not [key for key in server.objects("some/prefix/run/checkpoint_") if key.endswith("manifest.json")]
    proxy.spoil = lambda method, path: ""
    assert DataParallelTrainer.restore(result.path).fit().state == "finished"
    forget()
    back = Result.from_path(STORAGE + "/run")
    assert back.state == "finished" and back.checkpoint is not None and back.checkpoint.to_dict()["epoch"] == 1


def helpers() -> list[int]:
    """The lockstep-store processes of this process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = stat.read_text().rpartition(")")
            if name.endswith("(lockstep-store") and int(rest.split()[1]) == os.getpid():
                found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize("every", [3, 7, 11])
def test_a_helper_that_is_killed(server: Server, proxy: Proxy, every: int, forget: Callable[[], Path]) -> None:
    """At every k-th request to the store."""
    lock, count = threading.Lock(), 0

    def kill(method: str, path: str) -> str:
        nonlocal count
        with lock:
            count += 1
            if count % every == 0 and count <= 8 * every:
                for pid in helpers():
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
        return ""

    proxy.spoil = kill
    result = trainer(epochs=4).fit()
    assert result.state == "finished"
    proxy.spoil = lambda method, path: ""
    assert_whole(server)
    forget()
    back = Result.from_path(STORAGE + "/run")
    assert back.checkpoint is not None and back.checkpoint.to_dict()["epoch"] == 3
    assert [metrics["epoch"] for _, metrics in back.best_checkpoints] == [2, 3]


def test_the_helper_ends_with_its_process(server: Server, tmp_path: Path) -> None:
    import subprocess
    import sys

    script = tmp_path / "script.py"
    script.write_text(
        "import time, lockstep\n"
        f"assert not lockstep.DataParallelTrainer.can_restore({STORAGE + '/none'!r})\n"
        "print('ready', flush=True)\n"
        "time.sleep(100)\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
    assert len(children) == 1
    until = time.monotonic() + 60
    while Path("/proc", children[0]).exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path("/proc", children[0]).exists()


def test_user_processes_hold_no_cloud_library(server: Server) -> None:
    def libraries(config: dict[str, Any]) -> None:
        maps = Path("/proc/self/maps").read_text()
        session.report({"arrow": "libarrow" in maps}, checkpoint=Checkpoint.from_dict({"x": 1}))

    run = RunConfig(name="libraries", storage_path=STORAGE, verbose=0)
    result = lockstep.DataParallelTrainer(libraries, run_config=run).fit()
    assert result.metrics["arrow"] is False
