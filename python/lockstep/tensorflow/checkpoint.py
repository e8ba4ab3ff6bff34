"""Checkpoints of TensorFlow models."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep._places import local_path
from lockstep.checkpoint import PREPROCESSOR_KEY, Checkpoint
from lockstep.errors import ConfigError
from lockstep.tensorflow import _framework

if TYPE_CHECKING:
    from typing_extensions import Self

MODEL, OPTIMIZER, ARCHITECTURE = "model", "optimizer", "architecture"
"""The keys of the dict: lists of arrays, and the model's layers as Keras writes them in JSON."""


class TensorflowCheckpoint(Checkpoint):
    """A checkpoint that can return its Keras model::

        session.report({"loss": loss}, checkpoint=TensorflowCheckpoint.from_model(model))
        ...
        model = result.checkpoint.get_model()

    Made from a model it is a dict, with the weights and the optimizer's state as arrays in ``tensors.safetensors``;
    nothing is pickled. ``TensorflowTrainer`` returns every checkpoint as one of these, also if
    ``Checkpoint.from_dict({"model": model.get_weights(), "epoch": 3})`` was reported.
    """

    @classmethod
    def from_model(cls, model: Any, *, preprocessor: Any = None) -> Self:
        """A checkpoint of a Keras model's weights and, if it was compiled and has trained, its optimizer's state.

        All workers must call it: reading some weights, such as those of BatchNormalization, is a collective operation.
        """
        if not _is_model(model):
            raise ConfigError(f"[TensorflowCheckpoint] from_model got {_kind(model)}; give it a Keras model")
        data: dict[str, Any] = {MODEL: model.get_weights()}
        state = _optimizer_variables(getattr(model, "optimizer", None))
        if state:
            data[OPTIMIZER] = [variable.numpy() for variable in state]
        if type(model).__module__.split(".")[0] in ("keras", "tf_keras"):  # made of layers, not a user's class
            with contextlib.suppress(NotImplementedError, TypeError, ValueError):  # some layer cannot be described
                data[ARCHITECTURE] = model.to_json()
        if preprocessor is not None:
            data[PREPROCESSOR_KEY] = preprocessor
        return cls.from_dict(data)

    @classmethod
    def from_saved_model(cls, dir_path: str | os.PathLike[str], *, preprocessor: Any = None) -> Self:
        """A checkpoint of the directory that ``model.save()`` or ``model.export()`` wrote; it stays where it is."""
        place = local_path(dir_path, "[TensorflowCheckpoint] dir_path")
        if not Path(place, "saved_model.pb").is_file():
            raise ConfigError(
                f"[TensorflowCheckpoint] {place} holds no saved_model.pb; give the directory that "
                'model.save(path, save_format="tf") wrote'
            )
        made = cls.from_directory(place)
        made.set_preprocessor(preprocessor)
        return made

    @classmethod
    def from_h5(cls, file_path: str | os.PathLike[str], *, preprocessor: Any = None) -> Self:
        """A checkpoint of one ``.h5`` file that ``model.save()`` wrote; the file is read at once."""
        file = local_path(file_path, "[TensorflowCheckpoint] file_path")
        if not file.endswith(".h5") or not Path(file).is_file():
            raise ConfigError(
                f"[TensorflowCheckpoint] file_path is {file!r}; it must be a .h5 file that model.save(path) wrote"
            )
        with tempfile.TemporaryDirectory() as place:  # not the file's own directory, which may hold other files
            shutil.copy(file, place)
            made = cls.from_bytes(cls.from_directory(place).to_bytes())
        made.set_preprocessor(preprocessor)
        return made

    def get_model(self, model: Any = None, *, model_definition: Any = None) -> Any:
        """The Keras model that was saved.

        `model` may be a model, which gets the weights (and, if compiled, the state of the optimizer), or a class or
        function that makes one; if its layers do not know their inputs yet, the saved ones are used. Without `model`
        the saved layers are made again, not compiled. A directory (SavedModel, ``.keras`` or ``.h5`` file) is loaded by
        Keras. `model_definition` is another spelling of `model`.
        """
        model = _one_spelling(model, model_definition)
        if self._data is None and "data.json" not in self._as_handle().files():
            return self._load()
        data = self.to_dict()
        if MODEL not in data:
            keys = ", ".join(repr(key) for key in list(data)[:10]) or "nothing"
            raise ConfigError(
                f"[TensorflowCheckpoint] {self!r} has no {MODEL!r} but {keys}; make it with from_model(), "
                f'or report {{"{MODEL}": model.get_weights()}}; to_dict() gives what there is'
            )
        target = self._new_model(data) if model is None else model
        if not _is_model(target):
            target = _made_by(target)
        _build(target, data)
        try:
            target.set_weights(data[MODEL])
        except ValueError as error:
            raise ConfigError(
                f"[TensorflowCheckpoint] what {self!r} holds does not fit: {' '.join(str(error).split())}; "
                "call get_model(model) with a model of the layers that were saved"
            ) from error
        if model is not None:
            _restore_optimizer(target, data.get(OPTIMIZER))
        return target

    def _new_model(self, data: dict[Any, Any]) -> Any:
        if ARCHITECTURE not in data:
            raise ConfigError(
                f"[TensorflowCheckpoint] {self!r} holds weights and no layers; "
                "call get_model(model), or with a function that makes the model"
            )
        try:
            return _framework.keras().models.model_from_json(data[ARCHITECTURE])
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"[TensorflowCheckpoint] the layers of {self!r} cannot be made again: {' '.join(str(error).split())}; "
                "call get_model(model), or with a function that makes the model"
            ) from error

    def _load(self) -> Any:
        with self.as_directory() as path:
            files = [name for name in os.listdir(path) if name.endswith((".keras", ".h5"))]
            if not os.path.exists(os.path.join(path, "saved_model.pb")):
                if len(files) != 1:
                    raise ConfigError(
                        f"[TensorflowCheckpoint] {self!r} holds neither a SavedModel nor one .keras or .h5 file; "
                        "read it with as_directory()"
                    )
                path = os.path.join(path, files[0])
            return _framework.keras().models.load_model(path)


def _is_model(value: Any) -> bool:
    return not isinstance(value, type) and hasattr(value, "get_weights") and hasattr(value, "set_weights")


def _kind(value: object) -> str:
    """What it is, for messages."""
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _one_spelling(model: Any, model_definition: Any) -> Any:
    if model is not None and model_definition is not None:
        raise ConfigError(
            "[TensorflowCheckpoint] get_model: model and model_definition are two spellings of one thing; give one"
        )
    return model_definition if model is None else model


def _made_by(make: Any) -> Any:
    """The model that a class or function makes."""
    if not callable(make):
        raise ConfigError(
            f"[TensorflowCheckpoint] get_model got {_kind(make)}; "
            "give it a Keras model, or a class or function that makes one"
        )
    made = make()
    if not _is_model(made):
        name = getattr(make, "__name__", type(make).__name__)
        raise ConfigError(
            f"[TensorflowCheckpoint] get_model got {name}, which makes {_kind(made)}; it must make a Keras model"
        )
    return made


def _build(model: Any, data: dict[Any, Any]) -> None:
    """Creates the weights of a model that has none yet because its inputs are unknown."""
    if getattr(model, "built", True) or not data[MODEL] or ARCHITECTURE not in data:
        return
    layers = json.loads(data[ARCHITECTURE])["config"].get("layers") or [{}]
    first = layers[0].get("config", {})
    shape = first.get("batch_input_shape") or first.get("batch_shape")  # of an InputLayer
    if shape is not None:
        model.build(tuple(shape))


def _optimizer_variables(optimizer: Any) -> list[Any]:
    """The state of a model's optimizer; empty before it was built."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    found = getattr(optimizer, "variables", ())
    variables = list(found() if callable(found) else found)
    is_older = hasattr(inner, "_create_all_weights")  # tf.keras.optimizers.legacy has no attribute for it
    if not any(is_older or getattr(each, name, False) for each in (optimizer, inner) for name in ("built", "_built")):
        return []
    scale = getattr(optimizer, "_loss_scale", None)  # of a LossScaleOptimizer with a dynamic scale
    return [*variables, *(getattr(scale, name) for name in ("current_loss_scale", "counter") if hasattr(scale, name))]


def _restore_optimizer(model: Any, state: list[Any] | None) -> None:
    optimizer = getattr(model, "optimizer", None)
    build = getattr(optimizer, "build", None) or getattr(optimizer, "_create_all_weights", None)
    if not state or build is None:
        return
    build(model.trainable_variables)
    variables = _optimizer_variables(optimizer)
    if [variable.shape for variable in variables] != [value.shape for value in state]:
        return  # another kind of optimizer: it starts without state
    for variable, value in zip(variables, state, strict=True):
        variable.assign(value)
