"""Keras callbacks that report what ``model.fit()`` logs, and checkpoints of the model::

model.fit(x, y, epochs=5, callbacks=[ReportCheckpointCallback(metrics=["loss", "accuracy"])])

Importing this module does not import Keras; making a callback does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lockstep import session
from lockstep.errors import ConfigError
from lockstep.tensorflow import TensorflowCheckpoint, _framework

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Callback", "ReportCheckpointCallback"]

_HOOKS = (
    *("epoch_begin", "epoch_end"),
    *(f"{phase}_{when}" for phase in ("train", "test", "predict") for when in ("begin", "end")),
    *(f"{phase}_batch_{when}" for phase in ("train", "test", "predict") for when in ("begin", "end")),
)


class _KerasCallback:
    """Becomes a subclass of Keras' ``Callback`` when the first one is made, which is when Keras is imported.

    It has a method for every hook, which subclasses may override and call.
    """

    def __new__(cls, *_: Any, **__: Any) -> Self:
        return object.__new__(_joined(cls))

    model: Any
    _wanted: tuple[str, ...] = ()

    def _call_on(self, hooks: Sequence[str]) -> None:
        """Keras passes logs only to hooks that are not marked as its own; so the wanted hooks must not be marked."""
        self._wanted = tuple(hooks)
        for hook in hooks:
            name = f"on_{hook}"
            if getattr(type(self), name) is getattr(_KerasCallback, name):
                setattr(self, name, functools.partial(getattr(_KerasCallback, name), self))

    def _after(self, hook: str, logs: Mapping[str, Any] | None = None) -> None:
        raise NotImplementedError


def _method(hook: str) -> Callable[..., None]:
    name = f"on_{hook}"

    def call(self: _KerasCallback, *arguments: Any, **named: Any) -> None:
        getattr(super(_KerasCallback, self), name)(*arguments, **named)
        if hook in self._wanted:
            logs = named["logs"] if "logs" in named else arguments[-1] if arguments else None
            self._after(hook, logs if isinstance(logs, Mapping) else None)

    call.__name__ = name
    call.__qualname__ = f"{_KerasCallback.__qualname__}.{name}"
    call.__doc__ = f"Keras' hook; reports where ``{hook}`` was asked for."
    call._is_default = True  # type: ignore[attr-defined]  # as Keras marks hooks that are not overridden
    return call


for _hook in _HOOKS:
    setattr(_KerasCallback, f"on_{_hook}", _method(_hook))


_with_base: dict[type, type] = {}


def _joined(cls: type) -> type:
    if cls not in _with_base:
        base = _framework.keras().callbacks.Callback
        names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
        _with_base[cls] = cls if issubclass(cls, base) else type(cls.__name__, (cls, base), names)
    return _with_base[cls]


class ReportCheckpointCallback(_KerasCallback):
    """Reports metrics and checkpoints while Keras trains, by default at the end of every epoch::

        ReportCheckpointCallback(metrics={"training_loss": "loss"})
        ReportCheckpointCallback(checkpoint_on="train_end")
        ReportCheckpointCallback(report_metrics_on="train_batch_end", frequency=100)

    `metrics`: None for everything that Keras logs, a list of names, or a dict from the name in the report to Keras'
    name; an empty list for none. `checkpoint_on`, `report_metrics_on`: a hook of Keras without its ``on_``, or a list;
    an empty list means never. `frequency`: report only on every n-th call of the most frequent hooks, batches or else
    epochs; on other hooks, report on every call. Pass the callback to ``model.fit`` on every rank.
    """

    def __init__(
        self,
        checkpoint_on: str | list[str] = "epoch_end",
        report_metrics_on: str | list[str] = "epoch_end",
        metrics: str | list[str] | dict[str, str] | None = None,
        frequency: int = 1,
    ) -> None:
        super().__init__()
        self._checkpoint_on = _hooks("checkpoint_on", checkpoint_on)
        self._report_on = _hooks("report_metrics_on", report_metrics_on)
        self._metrics = None if metrics is None else _names(metrics)
        if not _is_count(frequency, 1):
            raise ConfigError(f"[ReportCheckpointCallback] frequency is {frequency!r}; it must be an int of at least 1")
        hooks = tuple(dict.fromkeys((*self._checkpoint_on, *self._report_on)))
        most_often = max(map(_how_often, hooks), default=0)
        self._frequency = {hook: frequency if _how_often(hook) == most_often else 1 for hook in hooks}
        self._calls = dict.fromkeys(hooks, 0)
        self._call_on(hooks)

    def _after(self, hook: str, logs: Mapping[str, Any] | None = None) -> None:
        self._calls[hook] += 1
        if self._calls[hook] % self._frequency[hook]:
            return
        # Every rank makes the checkpoint, because reading weights may be a collective; only rank 0's is written.
        checkpoint = TensorflowCheckpoint.from_model(self.model) if hook in self._checkpoint_on else None
        session.report(_chosen(logs or {}, self._metrics), checkpoint=checkpoint)


class Callback(_KerasCallback):
    """Reports metrics on every hook in `on`, with a checkpoint on every `frequency`-th call of it (0: never)::

        Callback(metrics={"training_loss": "loss"}, on=["epoch_end", "train_end"], frequency=[5, 1])

    ReportCheckpointCallback with the interface of Ray 2.0, where empty `metrics` also mean all of them.
    """

    def __init__(
        self,
        metrics: str | list[str] | dict[str, str] | None = None,
        on: str | list[str] = "epoch_end",
        frequency: int | list[int] = 1,
    ) -> None:
        super().__init__()
        hooks = _hooks("on", on)
        every = list(frequency) if isinstance(frequency, (list, tuple)) else [frequency] * len(hooks)
        if not all(_is_count(number, 0) for number in every):
            raise ConfigError(
                f"[keras.Callback] frequency is {frequency!r}; it must be an int of at least 0, or a list of them"
            )
        if len(every) != len(hooks):
            raise ConfigError(
                f"[keras.Callback] frequency has {len(every)} numbers for the {len(hooks)} hooks of on; "
                "give one number, or one for each"
            )
        self._frequency = dict(zip(hooks, every, strict=True))
        self._metrics = None if metrics is None else _names(metrics) or None
        self._calls = dict.fromkeys(hooks, 0)
        self._call_on(hooks)

    def _after(self, hook: str, logs: Mapping[str, Any] | None = None) -> None:
        self._calls[hook] += 1
        due = self._frequency[hook] > 0 and self._calls[hook] % self._frequency[hook] == 0
        checkpoint = TensorflowCheckpoint.from_model(self.model) if due else None
        session.report(_chosen(logs or {}, self._metrics), checkpoint=checkpoint)


def _hooks(name: str, given: str | list[str]) -> tuple[str, ...]:
    if not isinstance(given, Iterable):
        raise ConfigError(
            f"[keras] {name} is {given!r}; it must be one or more of {', '.join(_HOOKS)}, or an empty list"
        )
    hooks = (given,) if isinstance(given, str) else tuple(given)
    wrong = [hook for hook in hooks if hook not in _HOOKS]
    if wrong:
        raise ConfigError(f"[keras] {name} has {wrong[0]!r}; it must be one or more of {', '.join(_HOOKS)}")
    return hooks


def _how_often(hook: str) -> int:
    """2 for those of batches, 1 for those of epochs, 0 for those of a whole ``fit()``."""
    return 2 if "_batch_" in hook else 1 if hook.startswith("epoch") else 0


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _names(metrics: str | list[str] | dict[str, str]) -> dict[str, str]:
    """Keras' name by the name in the report."""
    rule = "it must be None, a name, a list of names, or a dict from the name in the report to Keras' name"
    if not isinstance(metrics, Iterable):
        raise ConfigError(f"[keras] metrics is {metrics!r}; {rule}")
    listed = [metrics] if isinstance(metrics, str) else metrics
    pairs = list(listed.items()) if isinstance(listed, dict) else [(name, name) for name in listed]
    wrong = [name for pair in pairs for name in pair if not isinstance(name, str)]
    if wrong:
        raise ConfigError(f"[keras] metrics has {wrong[0]!r}; {rule}")
    return dict(pairs)


def _chosen(logs: Mapping[str, Any], names: dict[str, str] | None) -> dict[str, Any]:
    if names is None:
        return dict(logs)
    try:
        return {name: logs[key] for name, key in names.items()}
    except KeyError as error:
        logged = ", ".join(map(repr, logs)) or "nothing"
        raise ConfigError(f"[keras] metrics has {error}, but Keras logged {logged} here") from None
