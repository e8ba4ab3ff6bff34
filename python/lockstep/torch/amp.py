"""Automatic mixed precision: fewer bits where they suffice.

On a GPU it uses float16, with a loss scale that keeps small gradients from becoming zero; on a CPU bfloat16, which
needs none. The GPU path is tested with fakes only; it has not run on a real device.
"""

from __future__ import annotations

import copyreg
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

from lockstep.errors import ConfigError, LockstepError
from lockstep.torch import _context

_wanted = False
_scaler: torch.amp.GradScaler | None = None
_locked_by: str | None = None


def accelerate(amp: bool = False) -> None:
    """Trains with automatic mixed precision from now on. Call it once, at the start of the training function::

    def train_func():
        accelerate(amp=True)
        model = prepare_model(Net())
        optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        ...
        backward(loss)          # instead of loss.backward()
        optimizer.step()
    """
    global _wanted, _scaler
    if not isinstance(amp, bool):
        raise ConfigError(f"[accelerate] amp is {amp!r}; it must be True or False")
    if _locked_by == "accelerate":
        raise LockstepError("[accelerate] it was already called; call it once, at the start of the training function")
    if _locked_by is not None:
        raise LockstepError(
            f"[accelerate] it is called too late, after {_locked_by}(); call it at the start of the training function"
        )
    lock("accelerate")
    _wanted = amp
    if amp and _context.device().type == "cuda":
        _scaler = torch.amp.GradScaler("cuda")


def lock(function: str) -> None:
    """From now on accelerate() raises an error."""
    global _locked_by
    _locked_by = _locked_by or function


def is_on() -> bool:
    """Whether accelerate(amp=True) was called."""
    return _wanted


def backward(tensor: torch.Tensor) -> None:
    """As ``tensor.backward()``, with the loss scaled if mixed precision needs it."""
    lock("backward")
    (tensor if _scaler is None else _scaler.scale(tensor)).backward()  # type: ignore[no-untyped-call]


def prepare_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """An optimizer that removes the loss scale before it steps; `optimizer` itself if there is no loss scale."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigError(f"[prepare_optimizer] got a {type(optimizer).__name__}; it must be a torch.optim.Optimizer")
    lock("prepare_optimizer")
    return optimizer if _scaler is None else ScaledOptimizer(optimizer, _scaler)


class ScaledOptimizer(torch.optim.Optimizer):
    """`optimizer`, whose gradients carry the loss scale of `scaler`."""

    def __init__(self, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
        # Does not call super().__init__: groups, state and hooks are those of the inner optimizer.
        self.optimizer = optimizer
        self.scaler = scaler

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Skips the step and lowers the scale if a gradient overflowed."""
        if closure is not None:
            raise ConfigError("[prepare_optimizer] step() cannot take a closure with mixed precision on a GPU")
        result = self.scaler.step(self.optimizer)
        self.scaler.update()
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's, and the scale."""
        return {**self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        scale = state.pop("scaler", None)
        self.optimizer.load_state_dict(state)
        if scale is not None:
            self.scaler.load_state_dict(scale)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.optimizer.add_param_group(param_group)

    def __repr__(self) -> str:
        return repr(self.optimizer)


class _Autocasts:
    """Mixed into a model's class: its forward runs in lower precision and returns full precision."""

    _lockstep_class: type[torch.nn.Module]
    _lockstep_device: str

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        dtype = torch.float16 if self._lockstep_device == "cuda" else torch.bfloat16
        with torch.autocast(self._lockstep_device, dtype=dtype):
            outputs = super().forward(*args, **kwargs)  # type: ignore[misc]
        return _to_float32(outputs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """When pickled, it becomes the user's model again."""
        reduced: Any = super().__reduce_ex__(protocol)
        return (copyreg._reconstructor, (self._lockstep_class, object, None), *reduced[2:])  # type: ignore[attr-defined]


def autocasting(model: torch.nn.Module, device: torch.device) -> torch.nn.Module:
    """The same object, changed to a class that computes in lower precision."""
    inner = type(model)
    if issubclass(inner, _Autocasts):
        return model
    fields = {
        "_lockstep_class": inner,
        "_lockstep_device": device.type,
        "__module__": inner.__module__,
        "__qualname__": inner.__qualname__,
        "__doc__": inner.__doc__,
    }
    model.__class__ = type(inner.__name__, (_Autocasts, inner), fields)
    return model


def _to_float32(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_to_float32, value))
    if type(value) in (list, tuple):
        return type(value)(map(_to_float32, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and not isinstance(value, Mapping):
        changes = {field.name: _to_float32(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **changes)
    if type(value) is dict:
        return {key: _to_float32(item) for key, item in value.items()}
    return value
