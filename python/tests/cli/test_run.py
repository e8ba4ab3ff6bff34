"""`lockstep run`: which Python runs the script, and with which arguments."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from made_runs import Cli


def test_run_passes_every_argument_on(cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys, json; print(json.dumps(sys.argv[1:])); sys.exit(7)")
    done = cli("run", "script.py", "--help", "-f", "--", "a b", "--version")
    assert done.returncode == 7
    assert json.loads(done.stdout) == ["--help", "-f", "--", "a b", "--version"]


def test_run_prefers_the_python_beside_it(environment: dict[str, str], tmp_path: Path, executable: str) -> None:
    (tmp_path / "bin").mkdir()
    shutil.copy(executable, tmp_path / "bin" / "lockstep")
    python = tmp_path / "bin" / "python3"
    python.write_text('#!/bin/sh\necho "beside: $@"\n')
    python.chmod(0o755)
    (tmp_path / "script.py").touch()
    command = [str(tmp_path / "bin" / "lockstep"), "run", "script.py", "x"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "beside: script.py x\n"


def test_run_takes_python3_from_the_path(environment: dict[str, str], tmp_path: Path, executable: str) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(executable, tmp_path / "alone" / "lockstep")
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
