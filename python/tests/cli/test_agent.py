"""`lockstep agent`: the command by which another machine joins a run. tests/agent/ tests what it does then."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from made_runs import Cli


def test_its_help(cli: Cli) -> None:
    text = cli("agent", "--help").stdout
    assert "--join HOST:PORT" in text and "--secret-file FILE" in text


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--secret-file", "secret"], "--join HOST:PORT is missing"),
        (["--join", "head:29400"], "--secret-file FILE or by --secret-stdin"),
        (["--join", "head", "--secret-file", "secret"], "it must be HOST:PORT"),
        (["--join", "head:29400", "--secret-file", "secret", "--slots", "0"], "at least 1"),
        (["--join", "head:29400", "--secret", "00"], "there is no option --secret"),
    ],
)
def test_wrong_usage(cli: Cli, arguments: list[str], why: str) -> None:
    done = cli("agent", *arguments)
    assert done.returncode == 2 and why in done.stderr


def test_a_secret_that_others_may_read_is_refused(cli: Cli, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("00" * 32)
    secret.chmod(0o644)
    done = cli("agent", "--join", "127.0.0.1:1", "--secret-file", str(secret))
    assert done.returncode == 1 and "chmod 600" in done.stderr


def test_a_head_that_does_not_listen_is_an_error(cli: Cli, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("00" * 32)
    secret.chmod(0o600)
    with socket.socket() as taken:  # bound, so that nobody else listens there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        done = cli("agent", "--join", f"127.0.0.1:{port}", "--secret-file", str(secret), "--wait", "0")
    assert done.returncode == 1 and f"the head at 127.0.0.1:{port} cannot be reached" in done.stderr
