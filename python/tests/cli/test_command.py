"""The command itself: version, help, wrong usage."""

from __future__ import annotations

import pytest
from made_runs import Cli


def test_version(cli: Cli) -> None:
    done = cli("--version")
    assert (done.returncode, done.stdout) == (0, "lockstep 0.1.0\n")


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["run"],
        ["runs"],
        ["stop"],
        ["prune"],
        ["logs"],
        ["checkpoint"],
        ["checkpoint", "list"],
        ["checkpoint", "verify"],
        ["completion"],
    ],
)
def test_every_command_has_help_with_examples(cli: Cli, command: list[str]) -> None:
    done = cli(*command, "--help")
    assert done.returncode == 0
    assert "Usage: lockstep" in done.stdout
    assert "Examples:\n" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "subcommand is required"),
        (["walk"], 'there is no command "walk"; see `lockstep --help`'),
        (["logs"], "RUN is required; see `lockstep logs --help`"),
        (["logs", "x", "--rank", "two"], '"two" is not a rank'),
        (["logs", "x", "--rank", "-1"], "--rank"),
        (["checkpoint", "burn"], 'there is no command "burn"; see `lockstep checkpoint --help`'),
        (["completion", "tcsh"], "tcsh not in {bash,zsh,fish}"),
        (["runs", "a", "b"], "b"),
        (["runs", "--limit", "-1"], '--limit: "-1" is not a whole number of 0 or more; see `lockstep runs --help`'),
        (["prune", "--keep", "1.5"], '"1.5" is not a whole number'),
    ],
)
def test_wrong_usage(cli: Cli, arguments: list[str], message: str) -> None:
    done = cli(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""
