"""`lockstep submit slurm` with a made-up sbatch. tests/cluster/ has a real one."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess
from typing import Protocol

import pytest
from made_runs import Cli

SBATCH = """#!/bin/sh
for word; do echo "<$word>" >> "$0.words"; done
echo "sbatch: this partition is busy" >&2
echo "${ANSWER-123}"
exit ${CODE-0}
"""
SCONTROL = """#!/bin/sh
echo "JobId=123 JobName=train WorkDir=/jobs StdErr=/jobs/slurm-123.out StdOut=/jobs/slurm-123.out Power="
"""


class Submit(Protocol):
    def __call__(self, *words: str, **env: str) -> CompletedProcess[str]: ...


@pytest.fixture
def submit(cli: Cli, tmp_path: Path) -> Submit:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("sbatch", SBATCH), ("scontrol", SCONTROL)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "train.py").touch()
    return lambda *words, **env: cli("submit", "slurm", *words, **{"PATH": f"{programs}:/usr/bin:/bin", **env})


def test_a_job_is_written_and_submitted(submit: Submit, tmp_path: Path, executable: str) -> None:
    done = submit(
        "-N", "4", "-t1:00:00", "--gpus-per-node", "8", "--exclusive", "train.py", "--epochs", "it's 10", "-N"
    )
    assert done.returncode == 0
    assert done.stdout == (
        "Submitted batch job 123 (train.sbatch)\n"
        "  its state:   squeue -j 123\n"
        "  its output:  tail -F /jobs/slurm-123.out\n"
        "  its runs:    lockstep runs\n"
        "  to end it:   scancel 123\n"
    )
    assert done.stderr == "sbatch: this partition is busy\n"
    assert (tmp_path / "train.sbatch").read_text() == (
        "#!/bin/bash\n"
        "# Written by `lockstep submit slurm`; to submit it again: sbatch train.sbatch\n"
        "#SBATCH --job-name=train\n"
        "#SBATCH --requeue\n"
        "#SBATCH --open-mode=append\n"
        "#SBATCH -N 4\n"
        "#SBATCH -t1:00:00\n"
        "#SBATCH --gpus-per-node=8\n"
        "#SBATCH --exclusive\n"
        f"exec '{Path(executable).resolve()}' 'run' 'train.py' '--epochs' 'it'\\''s 10' '-N'\n"
    )
    assert (tmp_path / "programs" / "sbatch.words").read_text() == "<--parsable>\n<train.sbatch>\n"


def test_values_are_quoted_and_a_module_is_run(submit: Submit, tmp_path: Path) -> None:
    assert submit("--comment", 'the "big" one', "-k", "--", "-m", "project.train", "--x").returncode == 0
    lines = (tmp_path / "train.sbatch").read_text().splitlines()
    assert '#SBATCH "--comment=the \\"big\\" one"' in lines and "#SBATCH -k" in lines
    assert lines[-1].endswith("'run' '-m' 'project.train' '--x'")


def test_a_file_of_the_user_is_kept(submit: Submit, tmp_path: Path) -> None:
    assert submit("train.py").returncode == 0
    assert submit("-N", "2", "train.py").returncode == 0, "its own file it may replace"
    (tmp_path / "train.sbatch").write_text("#!/bin/bash\n#SBATCH -N 9\n")
    done = submit("train.py")
    assert done.returncode == 1 and "was not written by this command" in done.stderr
    assert (tmp_path / "train.sbatch").read_text() == "#!/bin/bash\n#SBATCH -N 9\n"


def test_the_errors_of_sbatch_are_shown(submit: Submit) -> None:
    done = submit("-N", "4", "train.py", CODE="1")
    assert done.returncode == 1
    assert done.stderr == "lockstep: [submit] sbatch train.sbatch ended with code 1: sbatch: this partition is busy\n"
    done = submit("--test-only", "train.py", ANSWER="")
    assert (done.returncode, done.stdout) == (0, "")
    done = submit("train.py", PATH="/none")
    assert done.returncode == 1 and 'there is no program "sbatch" in PATH' in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ((), 2, "no script was given; try `lockstep submit slurm -N 4 train.py`"),
        (("-N",), 2, "the option -N of sbatch needs a value"),
        (("-N", "4"), 2, "no script was given"),
        (("--wrap", "x", "train.py"), 2, "--wrap does not go with"),
        (("-W", "train.py"), 2, "-W does not go with"),
        (("--comment", "a\nb", "train.py"), 2, "has more than one line"),
        (("-N", "4", "no.py"), 1, 'there is no script "no.py"'),
    ],
)
def test_wrong_usage(submit: Submit, words: tuple[str, ...], code: int, why: str) -> None:
    done = submit(*words)
    assert done.returncode == code and why in done.stderr
