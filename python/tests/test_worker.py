"""A worker process, alone: its other end is faked."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lockstep import _core, _pickling, _worker, session


class FakeSession:
    """Writes what the core would be told to a file, one JSON object a line."""

    keeps_checkpoints = True

    def __init__(self, place: Path) -> None:
        self.place = place
        self.begin = SimpleNamespace(
            rank=1,
            world_size=2,
            local_rank=1,
            local_world_size=2,
            node_rank=0,
            attempt=0,
            experiment_name="mine",
            trial_name="mine_1",
            trial_id="1",
            run_dir=str(place),
            env={"PATH": "/bin", "ONLY": "this"},
            cwd=str(place),
            python_path=["/one", *sys.path],
            argv=["train.py", "--lr", "1"],
            keep=False,
        )

    def tell(self, what: str, value: Any = None) -> None:
        with open(self.place / "told", "a") as file:
            file.write(json.dumps([what, value]) + "\n")

    @property
    def stopping(self) -> bool:
        return (self.place / "stopping").exists()

    def start(self) -> None:
        self.tell("start")

    def serve_calls(self, answer: Any) -> None:
        pass

    def report(self, metrics: dict[str, Any], checkpoint: Any) -> None:
        self.tell("report", metrics)

    def finish(self, value: bytes) -> None:
        self.tell("finish")

    def fail(self, **failure: str) -> None:
        self.tell("fail", failure)


def run(function: Callable[..., Any] | bytes, place: Path, config: Any = None) -> SimpleNamespace:
    """Forks a worker for `function` and gives its exit code, what the core was told, and what it printed."""
    payload = os.memfd_create("payload")
    os.write(payload, function if isinstance(function, bytes) else _pickling.dump(function, config))
    stacks, output = os.memfd_create("stacks"), os.memfd_create("output")
    child = os.fork()
    if child == 0:
        os.dup2(output, 1)
        os.dup2(output, 2)
        fake = {"WorkerSession": lambda fd: FakeSession(place), "install_native_stacks": lambda fd: None}
        _worker._core = SimpleNamespace(**fake)  # type: ignore[assignment]
        _worker.main(0, payload, stacks)
    status = os.waitpid(child, 0)[1]
    printed = os.pread(output, 1 << 20, 0).decode()
    for fd in (payload, stacks, output):
        os.close(fd)
    told = [json.loads(line) for line in (place / "told").read_text().splitlines()]
    return SimpleNamespace(code=os.waitstatus_to_exitcode(status), told=told, printed=printed)


def test_a_function_that_returns(tmp_path: Path) -> None:
    def train_func(config: dict[str, int]) -> None:
        print("printed")
        session.report({"x": config["x"], "rank": session.get_world_rank()})

    done = run(train_func, tmp_path, {"x": 5})
    assert done.code == 0
    assert done.told == [["start", None], ["report", {"x": 5, "rank": 1}], ["finish", None]]
    assert done.printed == "printed\n"


def test_surroundings(tmp_path: Path) -> None:
    def train_func() -> None:
        session.report({"env": dict(os.environ), "cwd": os.getcwd(), "first": sys.path[0], "argv": sys.argv})

    metrics = run(train_func, tmp_path).told[1][1]
    assert metrics == {
        "env": {"PATH": "/bin", "ONLY": "this"},
        "cwd": str(tmp_path),
        "first": "/one",
        "argv": ["train.py", "--lr", "1"],
    }


def test_a_function_that_raises(tmp_path: Path) -> None:
    def train_func() -> None:
        raise ValueError("boom\nmore")

    done = run(train_func, tmp_path)
    assert done.code == 1
    assert [what for what, _ in done.told] == ["start", "fail"]
    failure = done.told[1][1]
    assert (failure["kind"], failure["type"], failure["message"]) == ("exception", "ValueError", "boom ...")
    assert failure["traceback"].count("File ") == 1 and "in train_func" in failure["traceback"]
    assert failure["traceback"] in done.printed, "the rank's log has it too"


def test_an_exception_whose_text_is_no_unicode_is_told(tmp_path: Path) -> None:
    def train_func() -> None:
        raise FileNotFoundError("a\udcff")

    assert run(train_func, tmp_path).told[1][1]["message"] == "a\\udcff"


@pytest.mark.parametrize(("argument", "code"), [(3, 3), ("words", 1), (256, 1)])
def test_a_function_that_exits(tmp_path: Path, argument: Any, code: int) -> None:
    done = run(lambda: sys.exit(argument), tmp_path)
    assert done.code == code
    assert done.told[1][1]["kind"] == "exit"
    assert f"sys.exit({argument!r})" in done.told[1][1]["message"]


def test_a_function_that_exits_with_zero_returned(tmp_path: Path) -> None:
    done = run(lambda: sys.exit(0), tmp_path)
    assert (done.code, done.told) == (0, [["start", None], ["finish", None]])


def test_threads_exit_functions_and_finalizers_come_before_the_end(tmp_path: Path) -> None:
    def train_func() -> None:
        import atexit
        import tempfile
        import threading
        import time

        def late() -> None:
            time.sleep(0.1)
            session.report({"late": 1})

        atexit.register(lambda: session.report({"exit": 1}))
        threading.Thread(target=late).start()
        train_func.kept = tempfile.TemporaryDirectory(dir=session.get_trial_dir())  # type: ignore[attr-defined]

    done = run(train_func, tmp_path)
    assert done.told[1:] == [["report", {"late": 1}], ["report", {"exit": 1}], ["finish", None]]
    assert [path.name for path in tmp_path.iterdir()] == ["told"], "the temporary directory is gone"


def test_what_the_parent_registered_is_not_run(tmp_path: Path) -> None:
    import atexit

    def parents() -> None:
        print("of the parent", flush=True)

    atexit.register(parents)
    try:
        assert run(lambda: None, tmp_path).printed == ""
    finally:
        atexit.unregister(parents)


def test_an_interrupt_ends_quietly(tmp_path: Path) -> None:
    def train_func() -> None:
        try:
            Path(session.get_trial_dir(), "stopping").touch()
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            session.report({"stopping": session.stopping()})

    done = run(train_func, tmp_path)
    assert done.code == 0
    assert done.told[1:] == [["report", {"stopping": True}], ["finish", None]]
    assert done.printed == ""


def test_an_interrupt_that_nobody_asked_for_is_a_failure(tmp_path: Path) -> None:
    done = run(lambda: os.kill(os.getpid(), signal.SIGINT), tmp_path)
    assert done.code == 1
    failure = done.told[1][1]
    assert (failure["kind"], failure["type"]) == ("exception", "KeyboardInterrupt")
    assert "not being stopped" in failure["message"]


def test_an_interrupt_that_the_function_raises_itself_is_a_failure(tmp_path: Path) -> None:
    def train_func() -> None:
        raise KeyboardInterrupt

    done = run(train_func, tmp_path)
    assert done.code == 1 and done.told[1][1]["type"] == "KeyboardInterrupt"


@pytest.mark.parametrize(
    ("pickled", "kind", "words"),
    [
        (b"cmodule_that_is_nowhere\nf\n.", "ModuleNotFoundError", "module_that_is_nowhere"),
        (b"cos\nno_such_function\n.", "AttributeError", "no_such_function"),
        (b"not a pickle", "UnpicklingError", "cannot be loaded"),
    ],
)
def test_a_function_that_cannot_be_loaded(tmp_path: Path, pickled: bytes, kind: str, words: str) -> None:
    done = run(_pickling.pack(pickled, _pickling.dump_config(None), _pickling.dump_backend(None)), tmp_path)
    assert done.code == 1
    ((what, failure),) = done.told
    assert what == "fail" and failure["type"].endswith(kind)
    assert words in failure["message"] and "sys.path" in failure["message"]


def test_the_core_has_what_the_worker_calls() -> None:
    for name in ("begin", "start", "report", "checkpoint", "meet", "finish", "fail", "stopping", "request_stop"):
        assert hasattr(_core.WorkerSession, name)
    assert callable(_core.install_native_stacks)
