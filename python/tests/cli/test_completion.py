"""`lockstep completion`: what a shell offers after TAB."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from made_runs import Cli, MakeRun


def complete_in_bash(executable: str, environment: dict[str, str], cwd: Path, *words: str) -> list[str]:
    script = """
        source <("$0" completion bash)
        COMP_WORDS=(lockstep "$@"); COMP_CWORD=$#
        _lockstep
        ((${#COMPREPLY[@]})) && printf '%s\\n' "${COMPREPLY[@]}"
    """
    command = ["bash", "--norc", "-c", script, executable, *words]
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_bash_completion(
    executable: str, environment: dict[str, str], storage: Path, tmp_path: Path, make_run: MakeRun
) -> None:
    make_run("digits-1")
    make_run("digits 2")
    make_run("other")
    (storage / "digits-no-run").mkdir()
    (storage / "search-1").mkdir()
    (storage / "search-1" / "experiment.sqlite").touch()
    work = tmp_path / "work"
    (work / "digits-here").mkdir(parents=True)
    (work / "train.py").touch()

    def complete(*words: str) -> list[str]:
        return complete_in_bash(executable, environment, work, *words)

    commands = [
        "run",
        "submit",
        "agent",
        "runs",
        "dashboard",
        "stop",
        "prune",
        "logs",
        "checkpoint",
        "tune",
        "new",
        "doctor",
        "bench",
        "man",
        "completion",
    ]
    assert complete("") == [*commands, "--help", "--version", "--cmake-dir"]
    assert complete("ru") == ["run", "runs"]
    assert complete("run", "tr") == ["train.py"]
    assert complete("submit", "") == ["slurm", "--help"]
    assert complete("submit", "slurm", "-N", "4", "tr") == ["train.py"]
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
    assert complete("tune", "") == ["show", "plot"]
    assert complete("tune", "show", "sea") == ["search-1"]
    assert complete("tune", "show", "search-1", "--j") == ["--json"]
    assert complete("tune", "show", "search-1", "--mode", "") == ["min", "max"]
    assert complete("tune", "plot", "search-1", "p") == ["parallel", "pareto"]
    assert complete("tune", "plot", "search-1", "--o") == ["--output"]
    assert complete("completion", "") == ["bash", "zsh", "fish"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_completion_scripts(cli: Cli, tmp_path: Path, shell: str) -> None:
    done = cli("completion", shell)
    assert done.returncode == 0
    words = set(done.stdout.replace("'", " ").replace(":", " ").replace("(", " ").split())
    assert {"run", "runs", "stop", "prune", "logs", "checkpoint", "tune", "completion"} <= words
    assert {"list", "verify", "show", "plot"} <= words
    if shutil.which(shell):
        (tmp_path / "script").write_text(done.stdout)
        assert subprocess.run([shell, "-n", str(tmp_path / "script")]).returncode == 0
