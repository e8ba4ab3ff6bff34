"""The cost of a run of 4 workers while its function does nothing: CPU time and memory of agent and driver."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from measure import Row, children, cpu_seconds, descendants, memory_mb, scratch

SECONDS = 10

SCRIPT = """
import sys, time
from lockstep import DataParallelTrainer, RunConfig, ScalingConfig
def function():
    import time
    time.sleep(3600)
print("imported", flush=True)
sys.stdin.readline()
DataParallelTrainer(function, scaling_config=ScalingConfig(num_workers=4),
                    run_config=RunConfig(storage_path=sys.argv[1], verbose=1)).fit()
"""


def measure() -> list[Row]:
    with scratch() as place:
        driver = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert driver.stdin and driver.stdout and driver.stderr
        driver.stdout.readline()
        before = memory_mb(driver.pid, "Private_Dirty")
        driver.stdin.write("go\n")
        driver.stdin.flush()
        assert any("workers running" in line for line in driver.stderr)
        time.sleep(1)
        processes = [driver.pid, *descendants(driver.pid)]
        begin = sum(map(cpu_seconds, processes))
        time.sleep(SECONDS)
        used = sum(map(cpu_seconds, processes)) - begin
        (agent,) = (child for child in children(driver.pid) if is_agent(child))
        overhead = memory_mb(agent) + memory_mb(driver.pid, "Private_Dirty") - before
        driver.kill()
        driver.wait()
    return [
        Row("idle run of 4 workers: of a core, all processes", 100 * used / SECONDS, "%", 1),
        Row("agent (PSS) + driver's growth", overhead, "MB", 30),
    ]


def is_agent(pid: int) -> bool:
    return os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "lockstep-agent" and Path(f"/proc/{pid}").exists()
