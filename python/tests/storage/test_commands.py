"""The command line on runs in an object store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from .conftest import Server
from .test_runs import STORAGE, trainer


def lockstep(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = os.environ.get("LOCKSTEP_CLI") or str(Path(sys.executable).parent / "lockstep")
    return subprocess.run([program, *arguments], capture_output=True, encoding="utf-8", timeout=100)


def test_commands_take_addresses(server: Server, forget: Callable[[], Path]) -> None:
    trainer("first").fit()
    trainer("second", epochs=1).fit()
    cache = forget()
    runs = json.loads(lockstep("runs", STORAGE, "--json").stdout)
    assert [(run["name"], run["state"], run["checkpoints"], run["path"]) for run in runs] == [
        ("second", "finished", 1, STORAGE + "/second"),
        ("first", "finished", 2, STORAGE + "/first"),
    ]
    assert "first" in lockstep("runs", STORAGE + "/first").stdout
    assert not list(cache.glob("**/manifest.json"))
    assert "rank 1 begins at 0" in lockstep("logs", STORAGE + "/first", "--rank", "1").stdout
    listed = lockstep("checkpoint", "list", STORAGE + "/first").stdout
    assert "checkpoint_000001" in listed and "checkpoint_000002" in listed
    assert not list(cache.glob("**/data.json")), "a list needs only the manifests"

    verified = lockstep("checkpoint", "verify", STORAGE + "/first")
    assert verified.returncode == 0 and STORAGE + "/first/checkpoint_000002: ok, 2 files" in verified.stdout
    assert lockstep("checkpoint", "verify", STORAGE + "/first/checkpoint_000001").returncode == 0
    missing = lockstep("logs", STORAGE + "/third")
    assert missing.returncode == 1 and STORAGE + "/third" in missing.stderr


def test_verify_finds_damage_in_the_store(server: Server, forget: Callable[[], Path]) -> None:
    trainer().fit()
    forget()
    key = "some/prefix/run/checkpoint_000002/tensors.safetensors"
    server.client.put_object(Bucket="bucket", Key=key, Body=b"\0" * len(server.read(key)))
    verified = lockstep("checkpoint", "verify", STORAGE + "/run")
    assert verified.returncode == 1
    assert "checkpoint_000002/tensors.safetensors" in verified.stdout + verified.stderr


def test_without_the_libraries_the_error_says_what_to_install(server: Server, tmp_path: Path) -> None:
    program = tmp_path / "lockstep-store"
    program.write_text(
        "#!/bin/sh\n"
        "echo 'error while loading shared libraries: libarrow.so.2500: cannot open shared object file' >&2\n"
        "exit 127\n"
    )
    program.chmod(0o700)
    os.environ["LOCKSTEP_STORE"] = str(program)
    try:
        said = lockstep("runs", STORAGE)
    finally:
        del os.environ["LOCKSTEP_STORE"]
    assert said.returncode == 1 and "pip install 'pyarrow==25.*'" in said.stderr
