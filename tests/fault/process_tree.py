"""The processes that a run consists of, as the system shows them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path


def wait_until(condition: Callable[[], bool], seconds: float, otherwise: str | Callable[[], str]) -> None:
    """Polls for a condition that sends no event. Fails with `otherwise` at the timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds} s: {otherwise if isinstance(otherwise, str) else otherwise()}")
        time.sleep(0.005)


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    found = children(pid)
    for each in found:
        found += children(each)
    return found


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def agent_of(driver: int) -> int | None:
    return next((pid for pid in children(driver) if name_of(pid) == "lockstep-agent"), None)


def engine_of(driver: int) -> list[int]:
    """The agent and its descendants; the driver may have other children that are not Lockstep's."""
    agent = agent_of(driver)
    return [] if agent is None else [agent, *descendants(agent)]


def fork_server_of(driver: int) -> int | None:
    """The one that has workers, or any when none has: idle ones of earlier runs stay warm."""
    agent = agent_of(driver)
    servers = [pid for pid in children(agent or 0) if name_of(pid) == "lockstep-forks"]
    return max(servers, key=lambda pid: len(children(pid)), default=None)


def workers_of(driver: int) -> list[int]:
    return children(fork_server_of(driver) or 0)


class Family:
    """Processes, held by descriptors, so that a reused pid cannot mislead."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._left: dict[int, int] = {}  # pid by descriptor
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                self._left[os.pidfd_open(pid)] = pid

    def __len__(self) -> int:
        return len(self._left)

    def kill(self) -> None:
        for fd in self._left:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)

    def wait_gone(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        events = select.poll()
        for fd in self._left:
            events.register(fd, select.POLLIN)
        while self._left:
            left = deadline - time.monotonic()
            assert left > 0, f"processes left after {seconds} s: {[(p, name_of(p)) for p in self._left.values()]}"
            for fd, _ in events.poll(left * 1000):
                events.unregister(fd)
                os.close(fd)
                del self._left[fd]


def kill_and_wait(pid: int | None) -> None:
    """Kills it and waits for its end."""
    assert pid, "there is no such process"
    family = Family([pid])
    family.kill()
    family.wait_gone(10)
