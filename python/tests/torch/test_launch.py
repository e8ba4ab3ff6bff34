"""`lockstep run -n`: unchanged scripts written for torchrun."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lockstep import _launch

Launch = Callable[..., "subprocess.CompletedProcess[str]"]

DDP = """
import json, os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        loss = model(torch.full((2, 4), float(rank + 1))).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weights = [None] * dist.get_world_size()
    dist.all_gather_object(weights, model.module.weight.tolist())
    assert all(each == weights[0] for each in weights)
    with open(sys.argv[1] + f"/{rank}.json", "w") as file:
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
                 "ROLE_NAME", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
                 "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "OMP_NUM_THREADS")
        json.dump({"weights": weights[0], "argv": sys.argv, "backend": dist.get_backend(), "name": __name__,
                   "file": __file__, "path": sys.path[0], "env": {name: os.environ[name] for name in names}}, file)
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Runs `lockstep run` in a directory of its own."""

    def run(*words: str | Path, timeout: float = 300, **changes: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).parent / "lockstep"), "run", *map(str, words)]
        env = {**os.environ, "LOCKSTEP_STORAGE_PATH": str(tmp_path / "runs"), **changes}
        return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=timeout)

    return run


def write(tmp_path: Path, text: str, name: str = "train.py") -> Path:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def only_run(tmp_path: Path) -> Path:
    (found,) = (each.parent for each in (tmp_path / "runs").glob("*/run.json"))
    return found


def test_a_ddp_script_of_torchrun_runs_unchanged(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    script = write(tmp_path, DDP, "scripts/train.py")
    done = launch("-n", "4", "scripts/train.py", tmp_path / "out", "--lr=3", "-n")
    assert done.returncode == 0, done.stderr
    found = [json.loads((tmp_path / f"out/{rank}.json").read_text()) for rank in range(4)]
    assert len({json.dumps(each["weights"]) for each in found}) == 1
    for rank, each in enumerate(found):
        env = each["env"]
        assert each["argv"] == [str(script), str(tmp_path / "out"), "--lr=3", "-n"]
        assert (each["backend"], each["name"], each["file"]) == ("gloo", "__main__", str(script))
        assert each["path"] == str(script.parent)
        assert (env["RANK"], env["LOCAL_RANK"], env["ROLE_RANK"]) == (str(rank),) * 3
        assert (env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"], env["ROLE_WORLD_SIZE"]) == ("4",) * 3
        assert (env["GROUP_RANK"], env["GROUP_WORLD_SIZE"], env["ROLE_NAME"]) == ("0", "1", "default")
        assert (env["TORCHELASTIC_RESTART_COUNT"], env["TORCHELASTIC_MAX_RESTARTS"]) == ("0", "0")
        assert env["TORCHELASTIC_RUN_ID"] == only_run(tmp_path).name
        assert env["MASTER_ADDR"] == "127.0.0.1"
    assert re.fullmatch(r"train_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", only_run(tmp_path).name)
    state = json.loads((only_run(tmp_path) / "run.json").read_text())
    assert (state["state"], state["num_workers"]) == ("finished", 4)


def test_fast_collectives_replace_gloo(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write(tmp_path, DDP)
    done = launch("--nproc_per_node=2", "--standalone", "--fast-collectives", "train.py", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    fast = json.loads((tmp_path / "out/1.json").read_text())
    assert fast["backend"] == "lockstep"
    done = launch("-n2", "train.py", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    slow = json.loads((tmp_path / "out/1.json").read_text())
    assert slow["backend"] == "gloo"
    assert fast["weights"] == slow["weights"]  # of two values every sum is the same


def test_a_module_runs_as_main(launch: Launch, tmp_path: Path) -> None:
    write(tmp_path, "", "models/__init__.py")
    write(tmp_path, "answer = 42\n", "models/other.py")
    text = "import os, sys\nfrom .other import answer\nprint(answer, os.environ['RANK'], __name__, sys.argv[1:])\n"
    write(tmp_path, text, "models/train.py")
    done = launch("-n", "2", "-m", "models.train", "x")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[rank {rank}] 42 {rank} __main__ ['x']" for rank in range(2)]
    assert launch("-m", "-n", "2", "models.train").returncode == 0  # as torchrun -m


def test_restarts_count(launch: Launch, tmp_path: Path) -> None:
    text = """
import os, signal
import torch, torch.distributed as dist
dist.init_process_group("gloo")
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if attempt < 2 and dist.get_rank() == attempt:
    os.kill(os.getpid(), signal.SIGKILL)
total = torch.ones(1)
dist.all_reduce(total)
print("attempt", attempt, "total", int(total))
"""
    write(tmp_path, text)
    done = launch("-n", "2", "--max-restarts=2", "train.py")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[rank {rank}] attempt 2 total 2" for rank in range(2)]
    done = launch("-n", "2", "--max-restarts", "1", "train.py")
    assert done.returncode == 1
    assert "rank 1 failed" in done.stderr
    assert "SIGKILL" in done.stderr
    assert "restore" not in done.stderr


def test_an_error_names_its_rank_and_line(launch: Launch, tmp_path: Path) -> None:
    write(tmp_path, "import os\nif os.environ['RANK'] == '1':\n    raise ValueError('bad sample')\n")
    done = launch("-n", "2", "train.py")
    assert done.returncode == 1
    assert "rank 1 failed" in done.stderr
    assert f'File "{tmp_path}/train.py", line 3, in <module>' in done.stderr
    assert "bad sample" in done.stderr
    assert "_script.py" not in done.stderr
    write(tmp_path, "import sys; sys.exit(0)")
    assert launch("-n", "2", "train.py").returncode == 0
    write(tmp_path, "import sys; sys.exit(3)")
    done = launch("-n", "2", "train.py")
    assert done.returncode == 1
    assert "sys.exit(3)" in done.stderr


def test_ranks_that_end_early_and_late(launch: Launch, tmp_path: Path) -> None:
    """Rank 0 has the store that the others still use."""
    text = """
import atexit, os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    time.sleep(1)
    store = dist.distributed_c10d._get_default_store()
    store.set("late", "yes")
    atexit.register(lambda: print("at exit", store.get("late").decode()))
"""
    write(tmp_path, text)
    done = launch("-n", "2", "train.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[rank 1] at exit yes\n"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], {"out 0", "out 1", "err 0", "err 1"}),
        (["--redirects", "3"], set()),
        (["-r", "1"], {"err 0", "err 1"}),
        (["--redirects=0:3,1:2"], {"out 1"}),
        (["--redirects", "3", "--tee", "0:1"], {"out 0"}),
        (["--tee", "3"], {"out 0", "out 1", "err 0", "err 1"}),
        (["--local-ranks-filter", "1"], {"out 1", "err 1"}),
    ],
)
def test_what_the_console_shows(launch: Launch, tmp_path: Path, options: list[str], shown: set[str]) -> None:
    write(
        tmp_path,
        "import os, sys\nrank = os.environ['RANK']\nprint('out', rank)\nprint('err', rank, file=sys.stderr)\n",
    )
    done = launch("-n", "2", "--name", "x", *options, "train.py")
    assert done.returncode == 0, done.stderr
    assert {line.split("] ")[1] for line in done.stdout.splitlines()} == shown
    logs = tmp_path / "runs/x/logs"
    told = "".join(each.read_text() for each in logs.rglob("*.log"))
    assert all(f"{stream} {rank}" in told for stream in ("out", "err") for rank in range(2))
    if options == ["-r", "1"]:
        assert (logs / "attempt_0/1/stdout.log").read_text() == "out 1\n"


def test_a_program_that_is_not_python(launch: Launch, tmp_path: Path) -> None:
    script = write(tmp_path, "#!/bin/sh\necho $RANK of $WORLD_SIZE $1\n", "train.sh")
    script.chmod(0o755)
    done = launch("--no-python", "-n", "2", "./train.sh", "x")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[rank 0] 0 of 2 x", "[rank 1] 1 of 2 x"]


def test_reports_of_a_script_are_those_of_the_run(launch: Launch, tmp_path: Path) -> None:
    write(tmp_path, "from lockstep import session\nsession.report({'loss': 0.5})\n")
    assert launch("-n", "2", "--name", "reporting", "train.py").returncode == 0
    (line,) = (tmp_path / "runs/reporting/result.json").read_text().splitlines()
    assert json.loads(line)["loss"] == 0.5


def test_dry_run_starts_nothing(launch: Launch, tmp_path: Path) -> None:
    write(tmp_path, "import pandas\n")
    done = launch("-n", "3", "--dry-run", "--max-restarts", "2", "train.py", "--lr", "1")
    assert done.returncode == 0, done.stderr
    assert f"would run   {tmp_path}/train.py --lr 1" in done.stdout
    assert "workers     3 on this machine" in done.stdout
    assert "restarts    at most 2" in done.stdout
    assert "pandas" in done.stdout
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-n", "0"], "--nproc-per-node is '0'; it must be a number of 1 or more, auto, gpu or cpu"),
        (["-n", "2", "--nnodes", "2"], "`lockstep run` starts workers on this machine only"),
        (["-n", "2", "--nnodes", "2:1"], "--nnodes is '2:1'"),
        (["-n", "2", "--redirects", "7"], "--redirects is '7'; it must be 0, 1, 2 or 3"),
        (["-n", "2", "--max-restarts", "-1"], "--max-restarts is -1"),
        (["-n", "2", "--what"], "unknown option --what"),
        (["-n", "2", "no.py"], "there is no script 'no.py'"),
    ],
)
def test_wrong_options(launch: Launch, tmp_path: Path, options: list[str], message: str) -> None:
    write(tmp_path, "")
    done = launch(*options, "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert not (tmp_path / "runs").exists()


def test_variables_are_defaults_of_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = write(tmp_path, "")
    monkeypatch.setenv("PET_NPROC_PER_NODE", "3")
    monkeypatch.setenv("PET_MAX_RESTARTS", "2")
    given = _launch.parse([str(script)])
    assert (given.workers, given.max_restarts) == (3, 2)
    assert _launch.parse(["--nnodes=1:4", "-n", "cpu", str(script)]).workers == os.cpu_count()
