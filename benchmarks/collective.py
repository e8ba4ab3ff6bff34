"""All-reduce of the backend "lockstep" compared with Gloo's, alternating, on this machine: python
benchmarks/collective.py

One process per rank with one thread each, the same calls of torch.distributed. Each side takes the median of all
samples of all turns. The C++ layer below torch is measured too, and so is a copy of the same number of bytes.
"""

from __future__ import annotations

import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from measure import Row

PROGRAM = Path(__file__).resolve().parent.parent / "build/benchmarks/micro/collective_benchmark"
KB, MB = 1 << 10, 1 << 20
TURNS = 5
# Bytes, samples per turn, and the goal (times faster than Gloo) for two ranks and for four.
SIZES = [(KB, 100, 5, 3), (64 * KB, 100, 10, 3), (MB, 50, 10, 3), (25 * MB, 8, 4, 3), (100 * MB, 4, 4, 3)]


class Ranks:
    """Processes with a torch.distributed group that read commands from standard input."""

    def __init__(self, backend: str, world: int, place: str) -> None:
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        self.ranks = [
            subprocess.Popen(
                [sys.executable, __file__, backend, str(rank), str(world), f"{place}/{backend}-{world}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for rank in range(world)
        ]

    def sample(self, size: int, count: int) -> list[float]:
        for process in self.ranks:
            assert process.stdin
            process.stdin.write(f"{size} {count}\n")
            process.stdin.flush()
        answers = [process.stdout.readline() for process in self.ranks if process.stdout]
        samples: list[float] = json.loads(answers[0])
        return samples

    def close(self) -> None:
        for process in self.ranks:
            process.communicate()


def serve(backend: str, rank: int, world: int, store: str) -> None:
    import lockstep.torch.backend  # noqa: F401
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        backend,
        init_method=f"file://{store}",
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(minutes=5),
    )
    for line in sys.stdin:
        size, count = map(int, line.split())
        tensor = torch.zeros(size // 4)
        samples = []
        for turn in range(count + 3):
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(tensor)
            if turn >= 3:
                samples.append(time.perf_counter() - start)
        print(json.dumps(samples), flush=True)
    dist.destroy_process_group()


def program(world: int, size: int, count: int, what: str = "all_reduce") -> list[float]:
    command = [str(PROGRAM), str(world), str(size), str(count), what]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(line) * 1e-6 for line in output.split()]


def name(size: int) -> str:
    return f"{size // MB} MB" if size >= MB else f"{size // KB} KB"


def compare(world: int, place: str) -> list[Row]:
    gloo, shared = Ranks("gloo", world, place), Ranks("lockstep", world, place)
    rows = []
    for size, count, for_two, for_more in SIZES:
        mine: list[float] = []
        theirs: list[float] = []
        below: list[float] = []
        copies: list[float] = []
        for _ in range(TURNS):
            theirs += gloo.sample(size, count)
            mine += shared.sample(size, count * 4)
            below += program(world, size, count * 4)
            copies += program(world, size, count * 4, "copy")
        what = f"all-reduce of {name(size)}, {world} ranks"
        rows += figures(what, mine, theirs, for_two if world == 2 else for_more)
        rows.append(Row(f"{what}: below torch", statistics.median(below) * 1e3, "ms", samples=below))
        if world == 2 and size == 25 * MB:
            bound = statistics.median(mine) / statistics.median(copies)
            rows.append(Row(f"{what}: times a copy of as much", bound, "x", 1.5))
    gloo.close()
    shared.close()
    return rows


def figures(what: str, mine: Sequence[float], theirs: Sequence[float], wanted: float) -> list[Row]:
    us, them = statistics.median(mine), statistics.median(theirs)
    return [
        Row(what, us * 1e3, "ms", samples=mine),
        Row(f"{what}: Gloo", them * 1e3, "ms", samples=theirs),
        Row(f"{what}: times faster", them / us, "x", wanted, at_least=True),
    ]


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory() as place:
        return [row for world in (2, 4) for row in compare(world, place)]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        for row in measure():
            print(f"{row.what:60} {row.text():>14} {row.wanted_text():>10} {row.verdict()}")
