"""The literal address of this machine stands in one place; everything else is told where its peers are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("include", "src", "cli", "python/src", "python/lockstep")
LITERAL = re.compile(r"127\.0\.0\.1|INADDR_LOOPBACK|in6addr_loopback")


def literals(root: Path) -> list[str]:
    """The lines of the product that have the address, as file:text; comments count, and say "loopback" instead."""
    return [
        f"{path.relative_to(root)}:{line.strip()}"
        for folder in FOLDERS
        for path in sorted((root / folder).rglob("*"))
        if path.suffix in (".h", ".cpp", ".py", ".pyi")
        for line in path.read_text().splitlines()
        if LITERAL.search(line)
    ]


def test_one_place_has_the_literal() -> None:
    assert literals(ROOT) == ['src/sys/node.h:inline constexpr const char* kLoopback = "127.0.0.1";']


@pytest.mark.parametrize("text", ['HOST = "127.0.0.1"', "# on 127.0.0.1", "a.s_addr = htonl(INADDR_LOOPBACK);"])
def test_a_literal_is_found(tmp_path: Path, text: str) -> None:
    place = tmp_path / "python" / "lockstep" / "torch"
    place.mkdir(parents=True)
    (place / "config.py").write_text(f"import os\n{text}\n")
    assert literals(tmp_path) == [f"python/lockstep/torch/config.py:{text}"]
