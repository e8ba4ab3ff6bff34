"""Checkpoints of PyTorch models."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from lockstep._wrappers import PREFIX, is_prefixed, plain_name, renamed, unwrapped
from lockstep.checkpoint import PREPROCESSOR_KEY, Checkpoint
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self

MODEL = "model"
"""The key of the model in the dict."""


class TorchCheckpoint(Checkpoint):
    """A checkpoint that can return its model.

        >>> model = torch.nn.Linear(2, 1)
        >>> checkpoint = TorchCheckpoint.from_state_dict(model.state_dict())
        >>> checkpoint.get_model(torch.nn.Linear(2, 1)).weight.equal(model.weight)
        True

    It is a dict with the key ``"model"``, and may hold more. ``TorchTrainer`` returns every checkpoint as one of these,
    also if ``Checkpoint.from_dict({"model": model.state_dict(), "epoch": 3})`` was reported.
    """

    @classmethod
    def from_state_dict(cls, state_dict: Mapping[str, Any], *, preprocessor: Any = None) -> Self:
        """A checkpoint of a model's ``state_dict()``: arrays in files that other programs can read, without a
        pickle. get_preprocessor() returns the `preprocessor`; one of your own class is pickled."""
        if not isinstance(state_dict, Mapping):
            raise ConfigError(
                f"[TorchCheckpoint] from_state_dict got a {type(state_dict).__name__}; give it model.state_dict(), "
                "or call from_model(model)"
            )
        kept = state_dict if isinstance(state_dict, dict) else OrderedDict(state_dict)
        return cls.from_dict({MODEL: kept, **_with(preprocessor)})

    @classmethod
    def from_model(cls, model: torch.nn.Module, *, preprocessor: Any = None) -> Self:
        """A checkpoint of a whole model, without DistributedDataParallel or torch.compile around it.

        The model's object is pickled, so its class must be importable when it is loaded; ``from_state_dict`` does not
        need that. Its parameters are stored as arrays.
        """
        if not isinstance(model, torch.nn.Module):
            raise ConfigError(f"[TorchCheckpoint] from_model got a {type(model).__name__}; give it a torch.nn.Module")
        return cls.from_dict({MODEL: unwrapped(model), **_with(preprocessor)})

    def get_model(self, model: torch.nn.Module | None = None) -> torch.nn.Module:
        """The model that was saved.

        For a state_dict: loads the saved values into `model`, which must have the same parameters, and returns it.
        Either of the two may be wrapped by DistributedDataParallel or compiled. For a whole model: returns it, on the
        CPU; `model` is not needed.
        """
        stored = self._stored()
        if isinstance(stored, torch.nn.Module):
            return stored
        if model is None:
            raise ConfigError(
                f"[TorchCheckpoint] {self!r} holds a state_dict and not a whole model; "
                "call get_model(model) with a model of the class that was saved"
            )
        if not isinstance(model, torch.nn.Module):
            raise ConfigError(f"[TorchCheckpoint] get_model got a {type(model).__name__}; give it a torch.nn.Module")
        try:
            plain = unwrapped(model)
            plain.load_state_dict(_named_as_in(plain, stored))
        except RuntimeError as error:
            what = " ".join(str(error).split())
            raise ConfigError(
                f"[TorchCheckpoint] what {self!r} holds does not fit: {what}; "
                "call get_model(model) with a model of the class that was saved"
            ) from error
        return model

    def _stored(self) -> Any:
        data = self.to_dict()
        if MODEL not in data:
            keys = ", ".join(repr(key) for key in list(data)[:10]) or "nothing"
            raise ConfigError(
                f"[TorchCheckpoint] {self!r} has no {MODEL!r} but {keys}; make it with from_state_dict() or "
                f'from_model(), or report {{"{MODEL}": model.state_dict()}}; to_dict() gives what there is'
            )
        if not isinstance(data[MODEL], (torch.nn.Module, Mapping)):
            raise ConfigError(
                f"[TorchCheckpoint] {MODEL!r} in {self!r} is a {type(data[MODEL]).__name__}, "
                "neither a state_dict nor a torch.nn.Module; read it with to_dict()"
            )
        return data[MODEL]


def _named_as_in(model: torch.nn.Module, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """`state` under the names of `model`: with or without ``module.`` in front, and with its compiled parts."""
    state = renamed(state, plain_name)
    wanted = {plain_name(name): name for name in model.state_dict()}
    has, wants = is_prefixed(state), is_prefixed(wanted)
    if has and not wants:
        state = renamed(state, lambda name: f"{name}.".removeprefix(PREFIX)[:-1])
    elif wants and not has:
        state = renamed(state, PREFIX.__add__)
    return renamed(state, lambda name: wanted.get(name, name))


def _with(preprocessor: Any) -> dict[str, Any]:
    return {} if preprocessor is None else {PREPROCESSOR_KEY: preprocessor}
