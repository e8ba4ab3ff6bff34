"""Names that would lead out of the storage directory, or that cannot be typed, are refused before anything starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lockstep import ConfigError, DataParallelTrainer, RunConfig
from process_tree import descendants

BAD = [
    "..",
    ".",
    "",
    "../up",
    "a/../../b",
    "/etc/run",
    "a/b",
    "a\0b",
    "a\nb",
    "a\rb",
    "a\tb",
    "\x1b[31mred",
    "a\x7fb",
    "a\x01",
    "n" * 300,
    "ä" * 150,  # 300 bytes
]


@pytest.mark.parametrize("name", BAD, ids=ascii)
def test_a_bad_name_is_refused(tmp_path: Path, name: str) -> None:
    before = set(descendants(os.getpid()))
    with pytest.raises(ConfigError, match=r"name"):
        RunConfig(name=name, storage_path=tmp_path / "runs")
    # Configurations can be changed until fit() is called.
    trainer = DataParallelTrainer(
        lambda: None, run_config=RunConfig(name="good", storage_path=tmp_path / "runs", verbose=0)
    )
    trainer.run_config.name = name
    with pytest.raises(ConfigError, match=r"name"):
        trainer.fit()
    assert set(descendants(os.getpid())) <= before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["..a", "a..b", "with space", "ünïcode", "n" * 200, "-rf", "a'b\"c"], ids=ascii)
def test_an_odd_name_is_fine(tmp_path: Path, name: str) -> None:
    run_config = RunConfig(name=name, storage_path=tmp_path / "runs", verbose=0)
    assert DataParallelTrainer(lambda: None, run_config=run_config).fit().path == tmp_path / "runs" / name
