"""lockstep.WorkerGroup: processes that stay between calls."""

from __future__ import annotations

import ast
import os
import signal
from pathlib import Path
from typing import Any

import lockstep
import pytest
from lockstep import ConfigError, ScalingConfig, WorkerGroup, session
from lockstep.backend import Backend, BackendConfig


@pytest.fixture
def group() -> Any:
    with WorkerGroup(ScalingConfig(num_workers=2), verbose=0) as made:
        yield made


def test_calls_come_back_by_rank_and_the_workers_stay(group: WorkerGroup) -> None:
    pids = group.execute(os.getpid)
    assert len(set(pids)) == 2 and os.getpid() not in pids
    assert group.execute(os.getpid) == pids
    assert group.execute(lambda a, b: (a, b, session.get_world_rank()), 1, b=2) == [(1, 2, 0), (1, 2, 1)]
    assert group.execute_single(1, os.getpid) == pids[1]
    assert len(group) == group.num_workers == 2


def test_what_a_worker_holds_is_there_for_the_next_call(group: WorkerGroup) -> None:
    def hold(value: int) -> None:
        os.environ["HELD"] = str(value + session.get_world_rank())

    group.execute(hold, 5)
    assert group.execute(lambda: os.environ["HELD"]) == ["5", "6"]


def test_an_error_of_a_call_is_raised_and_the_workers_stay(group: WorkerGroup) -> None:
    pids = group.execute(os.getpid)
    with pytest.raises(ZeroDivisionError) as caught:
        group.execute(lambda: 1 // session.get_world_rank())
    assert "Traceback of rank 0" in "".join(caught.value.__notes__)
    assert group.execute(os.getpid) == pids


def test_a_worker_that_dies_in_a_call(group: WorkerGroup) -> None:
    pids = group.execute(os.getpid)
    with pytest.raises(lockstep.LockstepError, match="SIGKILL"):
        group.execute_single(1, lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert not set(group.execute(os.getpid)) & set(pids), "all are new"


def test_it_must_be_started(group: WorkerGroup) -> None:
    group.shutdown()
    assert not group.is_started
    with pytest.raises(lockstep.LockstepError, match="not started"):
        group.execute(os.getpid)
    group.start()
    assert len(group.execute(os.getpid)) == 2


@pytest.mark.parametrize("rank", [2, -1, True, "0", None])
def test_a_rank_that_there_is_not_is_refused_before_anything_runs(
    group: WorkerGroup, rank: Any, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rf"rank is {rank!r}; it must be an int from 0 to 1"):
        group.execute_single(rank, (tmp_path / "called").touch)
    assert not (tmp_path / "called").exists()


def test_a_second_start_is_refused_and_the_workers_stay(group: WorkerGroup) -> None:
    pids = group.execute(os.getpid)
    with pytest.raises(lockstep.LockstepError, match="started already; call shutdown"):
        group.start()
    assert group.execute(os.getpid) == pids


def test_what_is_no_configuration_is_refused() -> None:
    with pytest.raises(ConfigError, match="scaling_config is 2; it must be a ScalingConfig or None"):
        WorkerGroup(2)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="num_workers and scaling_config are both given"):
        WorkerGroup(ScalingConfig(), num_workers=2)
    assert len(WorkerGroup(num_workers=3)) == 3
    with pytest.raises(ConfigError, match="backend_config is 'torch'; it must be a BackendConfig or None"):
        WorkerGroup(None, "torch")  # type: ignore[arg-type]


def test_the_function_of_start_runs_on_every_worker_and_on_those_that_replace_them() -> None:
    group = WorkerGroup(ScalingConfig(num_workers=2), verbose=0)
    group.start(lambda: os.environ.update(INITIALIZED=str(os.getpid())))
    for _ in range(2):
        assert group.execute(lambda: os.environ["INITIALIZED"] == str(os.getpid())) == [True, True]
        os.kill(group.execute(os.getpid)[0], signal.SIGKILL)
        while group._agent is not None and group._agent.kept()[0] == 2:
            pass
    group.shutdown()


def test_hooks_of_a_backend_reach_the_workers() -> None:
    notes: list[Any] = []

    class Noting(Backend):
        def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
            notes.append(("start", worker_group.execute(session.get_world_rank)))

        def on_training_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
            notes.append("training")

        def on_shutdown(self, worker_group: Any, backend_config: BackendConfig) -> None:
            notes.append(("shutdown", worker_group.execute_single(1, lambda: os.environ["HELD"])))

    class NotingConfig(BackendConfig):
        @property
        def backend_cls(self) -> type[Backend]:
            return Noting

    with WorkerGroup(ScalingConfig(num_workers=2), NotingConfig(), verbose=0) as group:
        group.execute(lambda: os.environ.update(HELD="yes"))
    assert notes == [("start", [0, 1]), ("shutdown", "yes")]


def test_a_hook_hears_of_new_workers_and_not_of_kept_ones() -> None:
    notes: list[str] = []

    class Noting(Backend):
        def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
            notes.append("start")

        def on_training_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
            notes.append("training")

        def on_shutdown(self, worker_group: Any, backend_config: BackendConfig) -> None:
            notes.append("shutdown")
            worker_group.execute(os.getpid)

    class NotingConfig(BackendConfig):
        @property
        def backend_cls(self) -> type[Backend]:
            return Noting

        def on_worker_start(self) -> None:
            os.environ["STARTED"] = os.environ.get("STARTED", "") + "once"

    with WorkerGroup(ScalingConfig(num_workers=2), NotingConfig(), verbose=0) as group:
        assert group.execute(lambda: os.environ["STARTED"]) == ["once", "once"]
        assert notes == ["start"]
        with pytest.raises(lockstep.LockstepError, match="SIGKILL"):
            group.execute_single(1, lambda: os.kill(os.getpid(), signal.SIGKILL))
        assert group.execute(lambda: os.environ["STARTED"]) == ["once", "once"]
        assert notes == ["start", "start"]
        with pytest.raises(lockstep.LockstepError, match="SIGKILL"):
            group.execute_single(0, lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert notes == ["start", "start", "shutdown"], "though the workers had ended"


def test_what_a_hook_of_a_group_raises() -> None:
    class Refusing(Backend):
        def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
            raise KeyError("no such port")

    config = type("RefusingConfig", (BackendConfig,), {"backend_cls": Refusing})()
    group = WorkerGroup(ScalingConfig(num_workers=2), config, verbose=0)
    with pytest.raises(KeyError, match="no such port"):
        group.start()
    assert not group.is_started

    class Clinging(Backend):
        def on_shutdown(self, worker_group: Any, backend_config: BackendConfig) -> None:
            raise KeyError("will not end")

    config = type("ClingingConfig", (BackendConfig,), {"backend_cls": Clinging})()
    group = WorkerGroup(ScalingConfig(num_workers=2), config, verbose=0)
    group.start()
    with pytest.raises(KeyError, match="will not end"):
        group.shutdown()
    assert not group.is_started


def imports(path: Path) -> set[str]:
    """The modules that a file imports, at any time."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found |= {arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)}
    return found


def test_nothing_but_other_compatibility_code_imports_lockstep_sgd() -> None:
    package = Path(lockstep.__file__).parent
    compatible = ("sgd", "as_ray", "train")
    others = [path for path in package.rglob("*.py") if path.relative_to(package).parts[0] not in compatible]
    assert len(others) > 20
    users = {
        str(path.relative_to(package))
        for path in others
        if any(name == "lockstep.sgd" or name.startswith("lockstep.sgd.") for name in imports(path))
    }
    assert not users
    assert any("lockstep.sgd" in name for name in imports(package / "train" / "__init__.py")), "imports() finds them"
