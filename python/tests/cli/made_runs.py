"""Run directories made by hand, and parsers for the command's output; imported by the tests of the command line."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
MakeRun = Callable[..., Path]
Hold = Callable[[Path], Path]

# Contents and their XXH3-128, from another implementation.
DATA = b'{"epoch": 1}'
DATA_HASH = "acbd1709d37d291db8eb0fddfe40d7f4"
WEIGHTS = bytes(range(256)) * 8
WEIGHTS_HASH = "df73e0768dd183fadd420471ff96bd00"


def start_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def driver_of(process: subprocess.Popen[bytes], **changes: Any) -> dict[str, Any]:
    ticks = start_ticks(process.pid)
    return {"pid": process.pid, "start_ticks": ticks, "hostname": socket.gethostname(), **changes}


def write_json(path: Path, value: Any) -> None:
    """As Lockstep does: readers see the old contents or the new."""
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(value))
    new.rename(path)


def make_checkpoint(run: Path, seq: int, **fields: Any) -> Path:
    path = run / f"checkpoint_{seq:06d}"
    (path / "deep").mkdir(parents=True)
    (path / "data.json").write_bytes(DATA)
    (path / "deep" / "weights.bin").write_bytes(WEIGHTS)
    manifest = {
        "version": 1,
        "seq": seq,
        "attempt": 0,
        "world_size": 2,
        "ranks": [0],
        "created": 1700000010.0 + seq,
        "metrics": {"loss": 0.5, "val": {"loss": 0.25}, "training_iteration": seq + 1},
        "files": [
            {"name": "data.json", "size": len(DATA), "xxh3_128": DATA_HASH},
            {"name": "deep/weights.bin", "size": len(WEIGHTS), "xxh3_128": WEIGHTS_HASH},
        ],
    }
    write_json(path / "manifest.json", {**manifest, **fields})
    return path


def table(text: str) -> list[dict[str, str]]:
    """The rows of a table by title. Cells are split at the positions of the titles, aligned left or right."""
    lines = text.splitlines()
    titles = lines[0].split()
    rows = []
    for line in lines[1:]:
        # Cells are at least two spaces apart; only METRICS, the last, and times have single ones inside.
        cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
        rows.append(dict(zip(titles, cells, strict=False)))
    return rows
