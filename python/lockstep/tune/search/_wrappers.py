"""Searchers around another one. The core does it if it also has the inner one; otherwise these classes do."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from lockstep import _core
from lockstep.errors import ConfigError
from lockstep.tune.search._native import NativeSearcher
from lockstep.tune.search._searcher import Searcher

TRIAL_INDEX = "__trial_index__"


class _Wrapper(NativeSearcher):
    def __init__(self, searcher: Searcher, **options: Any) -> None:
        if not isinstance(searcher, Searcher):
            raise ConfigError(f"[tune.search] {type(self).__name__}() got {searcher!r}; it must be a searcher")
        self.searcher = searcher
        if isinstance(searcher, NativeSearcher) and self.is_native:
            points = searcher.points_to_evaluate
            super().__init__(
                searcher.space,
                searcher.metric,
                searcher.mode,
                points_to_evaluate=points,
                seed=searcher.seed,
                **options,
            )
        else:
            Searcher.__init__(self, searcher.metric, searcher.mode)
            self.options = options
            self.space, self.seed, self.points_to_evaluate = None, getattr(searcher, "seed", None), []
            self._forget()

    @property
    def is_native(self) -> bool:
        return self.searcher.is_native

    @property
    def _needs_metric(self) -> bool:
        return self.searcher._needs_metric

    def description(self) -> dict[str, Any]:
        assert isinstance(self.searcher, NativeSearcher)
        return {**super().description(), "searcher": self.searcher.description()}

    # ------------------------------------------------------------------ around a searcher in Python

    def _forget(self) -> None:
        """What it knows of another experiment's trials."""

    def set_search_properties(self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any) -> bool:
        self._forget()
        Searcher.set_search_properties(self, metric, mode, {})
        return self.searcher.set_search_properties(metric, mode, config, **spec)

    def _use_seed(self, seed: int) -> None:
        self.searcher._use_seed(seed)

    def ask(self) -> tuple[int, dict[str, Any]]:
        return super().ask() if self.is_native else Searcher.ask(self)

    def tell(self, id: int, value: Any) -> None:
        super().tell(id, value) if self.is_native else Searcher.tell(self, id, value)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        return super().suggest(trial_id) if self.is_native else self._suggest(trial_id)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if self.is_native:
            super().on_trial_complete(trial_id, result, error)
        else:
            self._complete(trial_id, result, error)

    def _suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        raise NotImplementedError

    def _complete(self, trial_id: str, result: dict[str, Any] | None, error: bool) -> None:
        raise NotImplementedError


class ConcurrencyLimiter(_Wrapper):
    """At most `max_concurrent` trials of the searcher run at once. With `batch`, it learns from them when all have
    ended."""

    kind = "limit"

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        if isinstance(max_concurrent, bool) or not isinstance(max_concurrent, int) or max_concurrent < 1:
            raise ConfigError(
                f"[tune.search] max_concurrent is {max_concurrent!r}; it must be a whole number, at least 1"
            )
        self.max_concurrent = max_concurrent
        self.batch = batch
        super().__init__(searcher, max_concurrent=max_concurrent, batch=batch)

    def _forget(self) -> None:
        self._running: set[str] = set()
        self._ended: list[tuple[str, dict[str, Any] | None, bool]] = []
        """Of a batch that is not complete."""

    def _suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if len(self._running) + len(self._ended) >= self.max_concurrent:
            return None
        config = self.searcher.suggest(trial_id)
        if isinstance(config, Mapping):
            self._running.add(trial_id)
        return config

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def _complete(self, trial_id: str, result: dict[str, Any] | None, error: bool) -> None:
        self._running.discard(trial_id)
        self._ended.append((trial_id, result, error))
        if self.batch and self._running:
            return
        ended, self._ended = self._ended, []
        for trial, its_result, failed in ended:
            self.searcher.on_trial_complete(trial, result=its_result, error=failed)


class Repeater(_Wrapper):
    """Tries each configuration `repeat` times; the searcher learns the mean. With `set_index`, configurations have the
    key ``"__trial_index__"``: 0, 1, ... up to `repeat`, for a seed."""

    kind = "repeat"

    def __init__(self, searcher: Searcher, repeat: int = 1, set_index: bool = False) -> None:
        if isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1:
            raise ConfigError(f"[tune.search] repeat is {repeat!r}; it must be a whole number, at least 1")
        self.repeat = repeat
        self.set_index = set_index
        super().__init__(searcher, repeat=repeat)

    @property
    def is_native(self) -> bool:
        return self.searcher.is_native and not self.set_index

    def _forget(self) -> None:
        self._config: dict[str, Any] = {}
        self._group = ""
        """The first trial of the configuration, by which the searcher knows it."""
        self._left = 0
        """Trials that still get the configuration."""
        self._group_of: dict[str, str] = {}
        self._missing: dict[str, int] = {}
        self._results: dict[str, list[dict[str, Any]]] = {}

    def _suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._left == 0:
            config = self.searcher.suggest(trial_id)
            if not isinstance(config, Mapping):
                return config
            self._config, self._group, self._left = dict(config), trial_id, self.repeat
            self._missing[trial_id], self._results[trial_id] = self.repeat, []
        self._left -= 1
        self._group_of[trial_id] = self._group
        index = {TRIAL_INDEX: self.repeat - 1 - self._left} if self.set_index else {}
        return {**self._config, **index}

    def _complete(self, trial_id: str, result: dict[str, Any] | None, error: bool) -> None:
        group = self._group_of.pop(trial_id)
        if result is not None and not error:
            self._results[group].append(result)
        self._missing[group] -= 1
        if self._missing[group] > 0:
            return
        del self._missing[group]
        results = self._results.pop(group)
        names = [self.metric] if isinstance(self.metric, str) else list(self.metric or ())
        means = {}
        for name in names:
            values = [value for each in results if (value := _core.number_at(each, name)) is not None]
            if values:
                means[name] = statistics.fmean(values)
        mean = {**results[-1], **means} if results else None
        self.searcher.on_trial_complete(group, result=mean, error=mean is None)
