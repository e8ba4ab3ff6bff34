"""`lockstep dashboard`: what it says when it cannot serve. python/tests/dashboard has what it shows."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from made_runs import Cli


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["nothing"], 1, 'there is no directory "nothing"'),
        (["s3://bucket/runs"], 1, "is no directory of this machine"),
        (["--port", "70000"], 2, "--port"),
        (["--port", "x"], 2, "--port"),
        (["--cert", "/dev/null"], 2, "--key"),
        (["--cert", "/dev/null", "--key", "/dev/null"], 1, "the certificate or its key cannot be used"),
        (["--host", "no.such.host.invalid"], 1, "is no address of this machine"),
        (["one", "two"], 2, "two"),
    ],
)
def test_wrong_use(cli: Cli, arguments: list[str], code: int, complaint: str) -> None:
    done = cli("dashboard", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert complaint in done.stderr


def test_a_port_that_is_taken(cli: Cli, storage: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = cli("dashboard", str(storage), "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "choose another with --port" in done.stderr
