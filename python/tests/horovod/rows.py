"""A callback that keeps every rank's reports and counts attempts; the tests of lockstep.horovod import it."""

from __future__ import annotations

from typing import Any

from lockstep import Callback


class Rows(Callback):
    def __init__(self) -> None:
        self.rows: list[list[dict[str, Any]]] = []
        self.failed = 0
        self.started = 0

    def wants_all_ranks(self) -> bool:
        return True

    def on_report(self, metrics: list[dict[str, Any]]) -> None:
        self.rows.append(metrics)

    def on_attempt_started(self, attempt: int) -> None:
        self.started += 1

    def on_attempt_failed(self, failures: list[Any], again: bool) -> None:
        self.failed += 1
