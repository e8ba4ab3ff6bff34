"""A rank that hangs while the others wait for it in a collective."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from lockstep import Result, TrainingFailedError, session


def test_the_rank_that_others_wait_for_is_named_with_its_line(torch_fit: Callable[..., Result]) -> None:
    def train_func() -> None:
        session.report({"x": 1})
        if session.get_world_rank() == 2:
            time.sleep(1000)
        dist.all_reduce(torch.ones(4))

    with pytest.raises(TrainingFailedError) as caught:
        torch_fit(train_func, workers=3, hang_timeout=4)
    error = caught.value
    assert error.failures[0].rank == 2
    assert {failure.rank for failure in error.failures} == {0, 1, 2}
    text = str(error)
    headline = text.splitlines()[0]
    line = train_func.__code__.co_firstlineno + 3
    assert headline.startswith("[trainer] rank 2 failed") and f"{__file__}, line {line} in train_func" in headline
    assert "time.sleep(1000)" in text
    assert "ranks 0 and 1: waiting for other ranks in all_reduce at" in text
    assert "the same error" not in text and ".so(" not in text, "native frames are in the file alone"
    assert error.result is not None
    stacks = error.result.path / "logs" / "stacks_attempt_0.txt"
    assert str(stacks) in text and "Native stack" in stacks.read_text()
