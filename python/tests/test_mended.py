"""A run that failed in the user's code continues with the fixed function."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from lockstep import *

def train_func():
    checkpoint = session.get_checkpoint()
    for epoch in range(checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0, 9):
        session.report({"epoch": epoch}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))
        session.get_checkpoint()
        if epoch >= 1:
            LINE

if __name__ == "__main__":
    given = {"function": [train_func], "nothing": []}
    if len(sys.argv) == 2:
        trainer = DataParallelTrainer(train_func, scaling_config=ScalingConfig(num_workers=1),
                                      run_config=RunConfig(name="run", storage_path=sys.argv[1]))
    else:
        trainer = DataParallelTrainer.restore(sys.argv[1] + "/run", *given[sys.argv[2]])
    print("ended with", trainer.fit().metrics)
"""


def test_the_advice_leads_to_the_mended_function(tmp_path: Path) -> None:
    script = tmp_path / "script.py"

    def run(line: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        script.write_text(SCRIPT.replace("LINE", line))
        return subprocess.run(
            [sys.executable, str(script), str(tmp_path), *arguments], capture_output=True, text=True, timeout=60
        )

    first = run("BUG[0]")
    assert first.returncode == 1
    assert "    BUG[0]\n" in first.stderr
    assert f'DataParallelTrainer.restore("{tmp_path}/run", train_func).fit()' in first.stderr

    stale = run("other_line()", "nothing")
    assert stale.returncode == 1 and "NameError: name 'BUG' is not defined" in stale.stderr
    assert "other_line" not in stale.stderr, "the new line is not what failed"
    assert ", line 11, in train_func" in stale.stderr

    wrong = run("OTHER_BUG[0]", "function")
    assert "    OTHER_BUG[0]\n" in wrong.stderr, "the function is the file's again"
    assert "ended with" in run("pass", "function").stdout
