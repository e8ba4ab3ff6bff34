"""The resources of a trial, as several bundles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.errors import ConfigError


class PlacementGroupFactory:
    """Resources in bundles, as Ray describes them; a trial gets all of them or none::

    tune.with_resources(train, tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 2, "GPU": 1}]))
    """

    def __init__(self, bundles: Sequence[Mapping[str, float]], strategy: str = "PACK", *_: Any, **__: Any) -> None:
        if not bundles or not all(isinstance(bundle, Mapping) for bundle in bundles):
            raise ConfigError(f"[PlacementGroupFactory] bundles is {bundles!r}; it must be a list of dicts")
        self.bundles = [{name: float(amount) for name, amount in bundle.items()} for bundle in bundles]
        self.strategy = strategy

    @property
    def required_resources(self) -> dict[str, float]:
        """The sum of the bundles."""
        total: dict[str, float] = {}
        for bundle in self.bundles:
            for name, amount in bundle.items():
                total[name] = total.get(name, 0) + amount
        return total

    @property
    def head_cpus(self) -> float:
        """CPUs of the first bundle."""
        return self.bundles[0].get("CPU", 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroupFactory) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(str(self.bundles))

    def __repr__(self) -> str:
        return f"PlacementGroupFactory({self.bundles!r}, strategy={self.strategy!r})"
