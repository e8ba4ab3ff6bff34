"""TensorflowCheckpoint: models in and out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lockstep import Checkpoint, Result, session
from lockstep.errors import ConfigError
from lockstep.tensorflow import TensorflowCheckpoint, _framework

keras = _framework.keras()


def make_model() -> Any:
    return keras.Sequential([keras.layers.Dense(3, input_shape=(2,)), keras.layers.Dense(1)])


def trained() -> Any:
    model = make_model()
    model.compile(optimizer="adam", loss="mse")
    model.fit(np.ones((8, 2)), np.ones((8, 1)), verbose=0)
    return model


def assert_same(one: Any, other: Any) -> None:
    for a, b in zip(one.get_weights(), other.get_weights(), strict=True):
        assert np.array_equal(a, b)


class OfTheUser(keras.Model):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.build((None, 2))

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)


def test_a_model_comes_back_without_help() -> None:
    model = make_model()
    assert_same(TensorflowCheckpoint.from_model(model).get_model(), model)


@pytest.mark.parametrize("way", [make_model, make_model()], ids=["function", "model"])
def test_a_model_comes_back_into_what_is_given(way: Any) -> None:
    model = make_model()
    assert_same(TensorflowCheckpoint.from_model(model).get_model(way), model)


def test_a_class_of_the_user(tmp_path: Path) -> None:
    model = OfTheUser()
    checkpoint = TensorflowCheckpoint.from_directory(
        TensorflowCheckpoint.from_model(model).to_directory(tmp_path / "c")
    )
    assert_same(checkpoint.get_model(OfTheUser), model)
    assert_same(checkpoint.get_model(OfTheUser()), model)
    with pytest.raises(ConfigError, match=r"weights and no layers; call get_model\(model\)"):
        checkpoint.get_model()


def test_layers_of_the_user() -> None:
    class Double(keras.layers.Layer):  # type: ignore[misc, name-defined]
        def call(self, inputs: Any) -> Any:
            return 2 * inputs

    def make() -> Any:
        return keras.Sequential([keras.layers.Dense(1, input_shape=(2,)), Double()])

    model = make()
    checkpoint = TensorflowCheckpoint.from_model(model)
    assert_same(checkpoint.get_model(make), model)
    with pytest.raises(ConfigError, match=r"layers of .* cannot be made again: .*Double.*; call get_model\(model\)"):
        checkpoint.get_model()


def test_arrays_are_stored_without_a_pickle(tmp_path: Path) -> None:
    TensorflowCheckpoint.from_model(trained()).to_directory(tmp_path / "c")
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["data.json", "tensors.safetensors"]
    from safetensors.numpy import load_file

    assert len(load_file(tmp_path / "c" / "tensors.safetensors")) == 4 + 8, "weights, and Adam's two of each"


def test_the_optimizer_comes_back_too() -> None:
    model, other = trained(), make_model()
    other.compile(optimizer="adam", loss="mse")
    TensorflowCheckpoint.from_model(model).get_model(other)
    assert int(other.optimizer.iterations.numpy()) == 1
    for a, b in zip(model.optimizer.variables, other.optimizer.variables, strict=True):
        assert np.array_equal(a.numpy(), b.numpy())
    x, y = np.full((8, 2), 0.5), np.zeros((8, 1))
    assert model.fit(x, y, verbose=0).history == other.fit(x, y, verbose=0).history
    assert_same(model, other)


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda: keras.optimizers.legacy.Adam(),
        lambda: keras.optimizers.legacy.SGD(momentum=0.9),
        lambda: keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam()),
        lambda: keras.mixed_precision.LossScaleOptimizer(keras.optimizers.legacy.Adam()),
    ],
    ids=["legacy.Adam", "legacy.SGD", "LossScaleOptimizer", "LossScaleOptimizer of legacy.Adam"],
)
def test_optimizers_of_other_kinds_come_back_too(make_optimizer: Callable[[], Any], tmp_path: Path) -> None:
    model, other = make_model(), make_model()
    for each in (model, other):
        each.compile(optimizer=make_optimizer(), loss="mse")
    x, y = np.ones((8, 2)), np.ones((8, 1))
    model.fit(x, y, batch_size=4, verbose=0)
    checkpoint = TensorflowCheckpoint.from_directory(
        TensorflowCheckpoint.from_model(model).to_directory(tmp_path / "c")
    )
    checkpoint.get_model(other)
    assert int(other.optimizer.iterations.numpy()) == 2
    if hasattr(model.optimizer, "dynamic_counter"):
        assert int(other.optimizer.dynamic_counter.numpy()) == 2
    assert model.fit(x, 0 * y, verbose=0).history == other.fit(x, 0 * y, verbose=0).history
    assert_same(model, other)


def test_layers_that_cannot_be_described_are_left_out() -> None:
    class Scale(keras.layers.Layer):  # type: ignore[misc, name-defined]
        def __init__(self, factors: Any) -> None:
            super().__init__()
            self.factors = factors

        def call(self, inputs: Any) -> Any:
            return self.factors * inputs

    def make() -> Any:
        inputs = keras.Input((2,))
        return keras.Model(inputs, Scale(np.ones(1, "float32"))(keras.layers.Dense(1)(inputs)))

    model = make()
    checkpoint = TensorflowCheckpoint.from_model(model)
    assert_same(checkpoint.get_model(make), model)
    with pytest.raises(ConfigError, match=r"weights and no layers; call get_model\(model\)"):
        checkpoint.get_model()


def test_a_model_that_does_not_know_its_inputs_yet() -> None:
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    model.fit(np.ones((8, 2)), np.ones((8, 1)), verbose=0)
    checkpoint = TensorflowCheckpoint.from_model(model)
    other = keras.Sequential([keras.layers.Dense(1)])
    assert_same(checkpoint.get_model(other), model)
    compiled = keras.Sequential([keras.layers.Dense(1)])
    compiled.compile(optimizer="adam", loss="mse")
    assert int(checkpoint.get_model(compiled).optimizer.iterations.numpy()) == 1


def test_results_that_are_read_again(tf_fit: Callable[..., Result]) -> None:
    result = tf_fit(lambda: session.report({}, checkpoint=Checkpoint.from_dict({"epoch": 1})), 1)
    assert isinstance(Result.from_path(result.path).checkpoint, TensorflowCheckpoint)


def test_another_optimizer_begins_anew() -> None:
    model, other = trained(), make_model()
    other.compile(optimizer="sgd", loss="mse")
    TensorflowCheckpoint.from_model(model).get_model(other)
    assert_same(model, other)
    assert int(other.optimizer.iterations.numpy()) == 0


def test_saved_models(tmp_path: Path) -> None:
    model = trained()
    model.save(str(tmp_path / "saved"), save_format="tf")
    assert_same(TensorflowCheckpoint.from_saved_model(tmp_path / "saved").get_model(), model)
    with pytest.raises(ConfigError, match=r"holds no saved_model\.pb"):
        TensorflowCheckpoint.from_saved_model(tmp_path)


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_directories_with_a_file_of_keras(tmp_path: Path, name: str) -> None:
    model = trained()
    model.save(str(tmp_path / name))
    assert_same(TensorflowCheckpoint.from_directory(tmp_path).get_model(), model)


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_an_h5_file_among_others(tmp_path: Path) -> None:
    model = trained()
    for name in ("model.h5", "older.h5"):
        model.save(str(tmp_path / name))
    checkpoint = TensorflowCheckpoint.from_h5(tmp_path / "model.h5")
    (tmp_path / "model.h5").unlink()
    assert_same(checkpoint.get_model(), model)
    assert [path.name for path in Path(checkpoint.to_directory(tmp_path / "c")).iterdir()] == ["model.h5"]
    for path in (tmp_path / "gone.h5", tmp_path / "c", tmp_path):
        with pytest.raises(ConfigError, match=rf"file_path is '{path}'; it must be a \.h5 file"):
            TensorflowCheckpoint.from_h5(path)
    assert TensorflowCheckpoint.from_h5(tmp_path / "older.h5", preprocessor=5).get_preprocessor() == 5


def test_the_other_spelling_of_the_model() -> None:
    model = make_model()
    checkpoint = TensorflowCheckpoint.from_model(model)
    assert_same(checkpoint.get_model(model_definition=make_model), model)
    with pytest.raises(ConfigError, match="model and model_definition are two spellings"):
        checkpoint.get_model(make_model, model_definition=make_model)


def test_tensors_in_a_dict_become_arrays(tmp_path: Path) -> None:
    import tensorflow as tf

    weights = tf.reshape(tf.range(6.0), (2, 3))
    data = {
        "tensor": weights,
        "again": [weights],
        "variable": tf.Variable([1, 2]),
        "scalar": tf.constant(2.0),
    }
    path = Path(Checkpoint.from_dict(data).to_directory(tmp_path / "c"))
    assert sorted(file.name for file in path.iterdir()) == ["data.json", "tensors.safetensors"]
    back = Checkpoint.from_directory(path).to_dict()
    assert back["tensor"] is back["again"][0]
    assert {
        name: (type(back[name]), back[name].dtype.name, back[name].tolist()) for name in data if name != "again"
    } == {
        "tensor": (np.ndarray, "float32", [[0, 1, 2], [3, 4, 5]]),
        "variable": (np.ndarray, "int32", [1, 2]),
        "scalar": (np.ndarray, "float32", 2.0),
    }


def test_tensors_that_numpy_cannot_hold_stay_as_they_are(tmp_path: Path) -> None:
    import tensorflow as tf

    data = {"words": tf.constant(["a"]), "half": tf.ones(2, tf.bfloat16)}
    back = Checkpoint.from_directory(Checkpoint.from_dict(data).to_directory(tmp_path / "c")).to_dict()
    assert back["words"].numpy().tolist() == [b"a"]
    assert back["half"].dtype == tf.bfloat16 and back["half"].numpy().tolist() == [1, 1]


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    checkpoint = TensorflowCheckpoint.from_model(make_model())
    with pytest.raises(ConfigError, match="does not fit"):
        checkpoint.get_model(keras.Sequential([keras.layers.Dense(2, input_shape=(2,))]))
    with pytest.raises(ConfigError, match="has no 'model' but 'epoch'"):
        TensorflowCheckpoint.from_dict({"epoch": 3}).get_model()
    with pytest.raises(ConfigError, match="from_model got a int"):
        TensorflowCheckpoint.from_model(5)
    with pytest.raises(ConfigError, match="get_model got a int"):
        checkpoint.get_model(5)
    with pytest.raises(ConfigError, match="get_model got <lambda>, which makes a int; it must make a Keras model"):
        checkpoint.get_model(lambda: 1)
    with pytest.raises(ConfigError, match="from_model got the class OfTheUser; give it a Keras model"):
        TensorflowCheckpoint.from_model(OfTheUser)
    assert TensorflowCheckpoint.from_model(make_model(), preprocessor=5).get_preprocessor() == 5
    (tmp_path / "other.txt").write_text("x")
    with pytest.raises(ConfigError, match=r"neither a SavedModel nor one \.keras"):
        TensorflowCheckpoint.from_directory(tmp_path).get_model()


def test_lists_of_weights_in_dicts_of_the_user(tf_fit: Callable[..., Result], tmp_path: Path) -> None:
    def train_func() -> None:
        import tensorflow as tf

        with tf.distribute.MultiWorkerMirroredStrategy().scope():
            model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(2,)), tf.keras.layers.Dense(1)])
        session.report({}, checkpoint=Checkpoint.from_dict({"epoch": 4, "model": model.get_weights()}))
        back = session.get_checkpoint()
        session.report({"type": type(back).__name__, "epoch": back.to_dict()["epoch"]})

    result = tf_fit(train_func)
    assert (result.metrics["type"], result.metrics["epoch"]) == ("TensorflowCheckpoint", 4)
    assert isinstance(result.checkpoint, TensorflowCheckpoint)
    data = result.checkpoint.to_dict()
    assert [weight.shape for weight in data["model"]] == [(2, 3), (3,), (3, 1), (1,)]
    assert not (Path(result.checkpoint.path or "") / "objects.pkl").exists()
    assert np.array_equal(result.checkpoint.get_model(make_model).get_weights()[0], data["model"][0])


def test_a_process_that_has_the_other_keras_reads_it_too(tmp_path: Path) -> None:
    TensorflowCheckpoint.from_model(make_model()).to_directory(tmp_path / "c")
    program = (
        "import sys, tensorflow as tf; from lockstep.tensorflow import TensorflowCheckpoint\n"
        "assert tf.keras.__version__.startswith('3')\n"
        "print(TensorflowCheckpoint.from_directory(sys.argv[1]).get_model().count_params())"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "c")]
    done = subprocess.run(command, capture_output=True, text=True, env={"TF_CPP_MIN_LOG_LEVEL": "3"})
    assert done.stdout == "13\n", done.stderr
