"""TensorflowTrainer: TF_CONFIG, its ports, the strategies, what is printed, what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import Result, session
from lockstep.errors import ConfigError
from lockstep.tensorflow import TensorflowConfig, TensorflowTrainer, _framework

Fit = Callable[..., Result]
Rows = Callable[..., list[dict[str, Any]]]
STRATEGIES = ("MultiWorkerMirroredStrategy", "experimental.MultiWorkerMirroredStrategy", "MirroredStrategy")


def trained(strategy_name: str) -> tuple[float, list[float], int]:
    """One epoch on a toy problem: the loss, the sum of the weights, and the number of replicas."""
    import operator

    import numpy as np
    import tensorflow as tf

    strategy = operator.attrgetter(strategy_name)(tf.distribute)()
    x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    with strategy.scope():
        model = tf.keras.Sequential(
            [tf.keras.layers.Dense(4, input_shape=(4,)), tf.keras.layers.BatchNormalization(), tf.keras.layers.Dense(1)]
        )
        model.compile(optimizer="adam", loss="mse")
    history = model.fit(x, x.sum(1, keepdims=True), batch_size=8, epochs=1, verbose=0)
    weights = [float(weight.sum()) for weight in model.get_weights()]
    return history.history["loss"][0], weights, strategy.num_replicas_in_sync


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategies(rows_of: Rows, name: str) -> None:
    def train_func() -> None:
        loss, weights, replicas = trained(name)
        session.report({"loss": loss, "weights": weights, "replicas": replicas})

    first, second = rows_of(train_func)
    if name == "MirroredStrategy":
        assert first["replicas"] == second["replicas"] == 1
        assert first["weights"] != second["weights"], "each for itself"
    else:
        assert first["replicas"] == second["replicas"] == 2
        assert (first["loss"], first["weights"]) == (second["loss"], second["weights"])


def test_the_configuration_of_the_cluster(rows_of: Rows) -> None:
    def train_func() -> None:
        session.report({"config": os.environ["TF_CONFIG"], "keras": os.environ["TF_USE_LEGACY_KERAS"]})

    configs = [json.loads(row["config"]) for row in rows_of(train_func, 3)]
    assert [config["task"] for config in configs] == [{"type": "worker", "index": rank} for rank in range(3)]
    addresses = configs[0]["cluster"]["worker"]
    assert all(config["cluster"] == {"worker": addresses} for config in configs)
    assert len(set(addresses)) == 3 and all(address.startswith("127.0.0.1:") for address in addresses)


def test_each_rank_is_reached_at_its_node(on_nodes: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "")
    on_nodes("10.0.0.1", "10.0.0.1", "10.0.0.2")
    TensorflowConfig().on_worker_start()
    workers = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
    assert [worker.split(":")[0] for worker in workers] == ["10.0.0.1", "10.0.0.1", "10.0.0.2"]


def test_ports_cannot_be_lost(rows_of: Rows) -> None:
    """Another program cannot bind them while the run lives, TensorFlow can."""

    def train_func() -> None:
        import errno
        import socket

        places = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
        taken = []
        for place in places:
            try:
                socket.socket().bind(("", int(place.split(":")[1])))
            except OSError as error:
                taken.append(error.errno == errno.EADDRINUSE)
        session.barrier()
        session.report({"taken": taken, "replicas": trained("MultiWorkerMirroredStrategy")[2]})

    for row in rows_of(train_func):
        assert (row["taken"], row["replicas"]) == ([True, True], 2)


def test_tensorflow_is_imported_once_and_forked(rows_of: Rows) -> None:
    def train_func() -> None:
        there = "tensorflow" in sys.modules and "tf_keras" in sys.modules
        threads = Path(f"/proc/{os.getppid()}/status").read_text().split("Threads:")[1].split()[0]
        session.report({"there": there, "parent": os.getppid(), "threads of the parent": threads})

    first, second = rows_of(train_func)
    assert first["there"] and second["there"] and first["parent"] == second["parent"]
    assert first["threads of the parent"] == "1"


def test_nothing_of_tensorflow_is_printed(tf_fit: Fit) -> None:
    def train_func() -> None:
        print("mine")
        trained("experimental.MultiWorkerMirroredStrategy")

    path = tf_fit(train_func).path
    logs = [(path / "logs" / f"rank_{rank}.log").read_text().splitlines() for rank in (0, 1)]
    assert [lines[1:] for lines in logs] == [["mine"], ["mine"]], "behind the mark of the attempt"


def test_nor_by_the_process_that_workers_are_forked_from(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from lockstep import RunConfig, session\n"
        "from lockstep.tensorflow import TensorflowTrainer\n"
        "TensorflowTrainer(lambda: session.report({}), run_config=RunConfig(verbose=0, storage_path='runs')).fit()\n"
    )
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    for level, is_quiet in ((None, True), ("0", False)):
        environment = plain if level is None else {**plain, "TF_CPP_MIN_LOG_LEVEL": level}
        done = subprocess.run(
            [sys.executable, program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=110
        )
        assert done.returncode == 0, done.stderr
        assert (done.stderr == "") == is_quiet, done.stderr


SAVED_MODEL = """
import numpy as np
from lockstep.tensorflow import TensorflowCheckpoint, _framework
weights = [np.ones((2, 1), "float32"), np.zeros(1, "float32")]
def make():
    layers = _framework.keras().layers
    return _framework.keras().Sequential([layers.Dense(1, input_shape=(2,))])
print(TensorflowCheckpoint.from_dict({"model": weights}).get_model(make).predict(np.ones((1, 2)), verbose=0)[0, 0])
"""


@pytest.mark.parametrize("level", [None, "0"])
def test_nor_by_the_process_of_the_user_where_lockstep_imports_it(level: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    if level is not None:
        environment["TF_CPP_MIN_LOG_LEVEL"] = level
    command = [sys.executable, "-c", SAVED_MODEL]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    assert done.stdout == "2.0\n", done.stderr
    assert (done.stderr == "") == (level is None), done.stderr


def test_an_import_without_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", _framework.QUIET)
    monkeypatch.setattr(sys, "stderr", None)
    with _framework.silent_import():
        pass


def test_an_import_with_a_closed_descriptor() -> None:
    """As in a daemon, which has replaced only Python's own object."""
    program = f"""
import io, os, sys
from lockstep.tensorflow import _framework
os.environ["TF_CPP_MIN_LOG_LEVEL"] = {_framework.QUIET!r}
sys.stderr = io.StringIO()
os.close(2)
with _framework.silent_import():
    print("in")
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (0, "in\n")


def test_an_import_that_fails_shows_what_was_printed(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", _framework.QUIET)
    with pytest.raises(ImportError), _framework.silent_import():
        os.write(2, b"because\n")
        raise ImportError
    assert capfd.readouterr().err == "because\n"
    with _framework.silent_import():
        os.write(2, b"noise\n")
    assert capfd.readouterr().err == ""


def test_its_log_is_there_for_who_asks(tf_fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    path = tf_fit(lambda: trained("experimental.MultiWorkerMirroredStrategy")).path
    log = (path / "logs" / "rank_0.log").read_text()
    assert "deprecat" in log and "coordination" in log


def test_the_trainer_imports_no_tensorflow() -> None:
    program = "import sys, lockstep.tensorflow, lockstep.integrations.keras; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_the_callback_is_here_too() -> None:
    import lockstep.tensorflow
    from lockstep.integrations import keras
    from lockstep.tensorflow import ReportCheckpointCallback

    assert ReportCheckpointCallback is keras.ReportCheckpointCallback
    assert "ReportCheckpointCallback" in lockstep.tensorflow.__all__
    assert {"ReportCheckpointCallback", "TensorflowTrainer"} <= set(dir(lockstep.tensorflow))
    with pytest.raises(AttributeError, match="no attribute 'NoSuchThing'"):
        lockstep.tensorflow.NoSuchThing  # noqa: B018


def test_missing_packages_are_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    there = _framework.is_installed
    monkeypatch.setattr(_framework, "is_installed", lambda module: module != "tf_keras" and there(module))
    with pytest.raises(ConfigError, match=r"tf_keras is not installed.*pip install --no-deps tf-keras~=2\.\d+\.0"):
        TensorflowTrainer(lambda: None)
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")
    TensorflowTrainer(lambda: None)
    monkeypatch.setattr(_framework, "is_installed", lambda module: False)
    with pytest.raises(ConfigError, match=r"TensorFlow is not installed; pip install tensorflow"):
        TensorflowTrainer(lambda: None)


def test_a_folder_of_that_name_is_no_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tensorflow").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    assert not _framework.is_installed("tensorflow")


def test_wrong_arguments_are_told() -> None:
    with pytest.raises(ConfigError, match="two spellings"):
        TensorflowTrainer(lambda: None, tensorflow_config=TensorflowConfig(), tensorflow_backend=TensorflowConfig())
    with pytest.raises(ConfigError, match="tensorflow_config is 5"):
        TensorflowTrainer(lambda: None, tensorflow_config=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="datasets"):
        TensorflowTrainer(lambda: None, datasets={"train": []})


def test_shards_are_not_shared_out_again(rows_of: Rows) -> None:
    def train_func() -> None:
        import numpy as np
        import tensorflow as tf
        from lockstep.tensorflow import prepare_dataset_shard

        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        mine = np.arange(4) + 10 * session.get_world_rank()
        shard = prepare_dataset_shard(tf.data.Dataset.from_tensor_slices(mine).batch(2))
        batches = strategy.experimental_distribute_dataset(shard)
        locals_ = [part for batch in batches for part in strategy.experimental_local_results(batch)]
        session.report({"seen": [int(value) for part in locals_ for value in part.numpy()]})

    assert [row["seen"] for row in rows_of(train_func)] == [[0, 1, 2, 3], [10, 11, 12, 13]]
