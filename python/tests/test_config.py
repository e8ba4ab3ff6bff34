"""Configurations: what they refuse, and what the core gets."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from lockstep import (
    Callback,
    CheckpointConfig,
    ConfigError,
    DataParallelTrainer,
    EngineConfig,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    _core,
)
from lockstep._plain import plain


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ScalingConfig(num_workers=-1), "num_workers is -1"),
        (lambda: ScalingConfig(num_workers=True), "num_workers is True"),
        (lambda: ScalingConfig(num_workers=2.0), "num_workers is 2.0"),
        (lambda: ScalingConfig(num_workers=2**40), "less than 2**31"),
        (lambda: ScalingConfig(use_gpu=1), "use_gpu is 1"),
        (lambda: ScalingConfig(resources_per_worker={"CPU": -1}), "amount of 'CPU'"),
        (lambda: ScalingConfig(resources_per_worker={"CPU": float("nan")}), "amount of 'CPU'"),
        (lambda: ScalingConfig(resources_per_worker=[1]), "resources_per_worker is"),
        (lambda: ScalingConfig(resources_per_worker={"GPU": 1}), "contradicts use_gpu=False"),
        (lambda: ScalingConfig(use_gpu=True, resources_per_worker={"GPU": 0}), "contradicts use_gpu=True"),
        (lambda: ScalingConfig(use_gpu=True, resources_per_worker={"GPU": 1.5}), "a whole number, or less than 1"),
        (lambda: ScalingConfig(resources_per_worker={"CPU": "all"}), "amount of 'CPU'"),
        (lambda: ScalingConfig(resources_per_worker={1: 1}), "must be a dict such as"),
        (lambda: ScalingConfig(placement_strategy="TIGHT"), "'STRICT_SPREAD'"),
        (lambda: ScalingConfig(placement_strategy=1), "placement_strategy is 1"),
        (lambda: ScalingConfig(trainer_resources={"CPU": "all"}), "trainer_resources"),
        (lambda: FailureConfig(max_failures=-2), "max_failures is -2"),
        (lambda: FailureConfig(max_failures=3, fail_fast=True), "fail_fast=True"),
        (lambda: FailureConfig(fail_fast="yes"), "fail_fast is 'yes'"),
        (lambda: CheckpointConfig(num_to_keep=-1), "num_to_keep is -1"),
        (lambda: CheckpointConfig(num_to_keep=True), "num_to_keep is True"),
        (lambda: CheckpointConfig(checkpoint_score_order="up"), "'max', 'min'"),
        (lambda: CheckpointConfig(checkpoint_score_attribute=""), "checkpoint_score_attribute"),
        (lambda: CheckpointConfig(checkpoint_frequency=-1), "checkpoint_frequency"),
        (lambda: CheckpointConfig(keep_all_ranks=None), "keep_all_ranks"),
        (lambda: CheckpointConfig(checkpoint_score_attribute="\udcff"), "surrogate"),
        (lambda: RunConfig(name=3), "name is 3"),
        (lambda: RunConfig(name="a\udcff"), "surrogate"),
        (lambda: RunConfig(storage_path="/a\udcff"), "UTF-8"),
        (lambda: RunConfig(storage_path="ftp://host/runs"), "ftp://host/runs"),
        (lambda: RunConfig(storage_path=3), "storage_path is 3"),
        (lambda: RunConfig(storage_path="/a", local_dir="/b"), "another spelling"),
        (lambda: RunConfig(callbacks=[Callback]), "write Callback()"),
        (lambda: RunConfig(callbacks=[object()]), "is not a lockstep.Callback"),
        (lambda: RunConfig(callbacks=Callback()), "must be a list"),
        (lambda: RunConfig(failure_config={"max_failures": 1}), "must be a FailureConfig"),
        (lambda: RunConfig(checkpoint_config=3), "must be a CheckpointConfig"),
        (lambda: RunConfig(failure_config=CheckpointConfig()), "must be a FailureConfig"),
        (lambda: RunConfig(failure_config=FailureConfig), "must be a FailureConfig"),
        (lambda: RunConfig(engine="pbs"), "engine is 'pbs'; it must be 'auto', 'local'"),
        (lambda: RunConfig(engine=3), "engine is 3; it must be"),
        (lambda: EngineConfig("pbs"), "kind is 'pbs'"),
        (lambda: EngineConfig("join", nodes=0), "nodes is 0; it must be an int of at least 1"),
        (lambda: EngineConfig("join", port=99999), "port is 99999"),
        (lambda: EngineConfig("ssh", hosts=3), "hosts is 3; it must be hosts such as"),
        (lambda: EngineConfig("join", hosts="a:8"), "only the engine 'ssh' has hosts"),
        (lambda: EngineConfig("ssh", node_timeout=0), "node_timeout is 0"),
        (lambda: RunConfig(stop=3), "must be a dict such as"),
        (lambda: RunConfig(stop={"loss": "low"}), "the value of 'loss' must be a number"),
        (lambda: RunConfig(stop={"": 1}), "is not the name of a metric"),
        (lambda: RunConfig(verbose=-1), "verbose is -1"),
        (lambda: RunConfig(log_to_console="rank1"), "log_to_console is 'rank1'; it must be 'rank0', 'all' or 'none'"),
        (lambda: RunConfig(log_to_console=True), "log_to_console is True"),
        (lambda: RunConfig(hang_timeout=0), "hang_timeout is 0"),
        (lambda: RunConfig(hang_timeout=timedelta(0)), "hang_timeout is datetime.timedelta(0)"),
        (lambda: RunConfig(hang_timeout=True), "hang_timeout is True"),
        (lambda: RunConfig(heartbeat_timeout=None), "heartbeat_timeout is None"),
        (lambda: RunConfig(heartbeat_timeout=float("inf")), "heartbeat_timeout is inf"),
        (lambda: RunConfig(max_report_size=0), "max_report_size is 0; it must be an int of at least 1"),
        (lambda: RunConfig(max_report_size=2**30 + 1), "it must be at most 2**30 bytes"),
    ],
)
def test_refuses(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert words in str(caught.value)
    assert str(caught.value).startswith("[")


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", "/a", "a\nb", "a\0b", "a\x85b", "a\x9b31m"])
def test_refuses_run_names_that_are_no_path_component(name: str) -> None:
    with pytest.raises(ConfigError):
        RunConfig(name=name)


KINDS: list[tuple[type[Any], type[Any]]] = [
    (ScalingConfig, _core.ScalingConfig),
    (FailureConfig, _core.FailureConfig),
    (CheckpointConfig, _core.CheckpointConfig),
    (EngineConfig, _core.EngineConfig),
    (RunConfig, _core.RunConfig),
]


@pytest.mark.parametrize(("kind", "core"), KINDS)
def test_every_setting_of_the_core_is_a_field_with_the_same_default(kind: type[Any], core: type[Any]) -> None:
    fields = {field.name: field.default for field in dataclasses.fields(kind)}
    nested = {"failure_config", "checkpoint_config"}
    names = [name for name in core.names if name not in {*nested, "engine"}]
    assert {name: getattr(core(), name) for name in names} == {name: fields[name] for name in names}
    assert all(fields[name] is None for name in nested & set(core.names))
    assert kind()._to_core() == core()


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS])
def test_configurations_are_dataclasses(kind: type[Any]) -> None:
    made = kind()
    assert made == kind() and dataclasses.asdict(made) == dataclasses.asdict(kind())
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == dataclasses.replace(made) == made
    first = dataclasses.fields(kind)[0]
    assert repr(made).startswith(f"{kind.__name__}({first.name}={first.default!r}")


def test_the_core_gets_what_was_set(tmp_path: Path) -> None:
    scaling = ScalingConfig(num_workers=3, use_gpu=True, resources_per_worker={"GPU": 2, "CPU": 1})
    core = scaling._to_core()
    assert (core.num_workers, core.use_gpu, core.resources_per_worker) == (3, True, {"GPU": 2.0, "CPU": 1.0})
    assert ScalingConfig._from_core(core) == scaling
    run = RunConfig(
        name="night",
        storage_path=str(tmp_path),
        failure_config=FailureConfig(max_failures=-1),
        checkpoint_config=CheckpointConfig(
            num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min"
        ),
        verbose=0,
        hang_timeout=90,
        stop={"training_iteration": 3},
        engine=EngineConfig("ssh", hosts=["a:8", "b:8"], node_timeout=9),
    )
    assert RunConfig._from_core(run._to_core()) == run
    assert run._to_core(name="day").name == "day"


def test_engines_are_names_or_objects() -> None:
    assert RunConfig().engine == "auto"
    assert RunConfig(engine="slurm")._to_core().engine.kind == "slurm"
    core = RunConfig(engine=EngineConfig("ssh", hosts="a:8, b"))._to_core()
    assert (core.engine.kind, core.engine.hosts) == ("ssh", ["a:8", "b"])
    assert RunConfig._from_core(RunConfig(engine="join")._to_core()).engine == "join"


def test_a_function_that_ends_the_run_stays_here() -> None:
    assert RunConfig(stop=lambda trial_id, result: True)._to_core().stop is None


def test_durations_are_seconds_or_timedelta() -> None:
    core = RunConfig(hang_timeout=timedelta(minutes=2), heartbeat_timeout=3)._to_core()
    assert (core.hang_timeout, core.heartbeat_timeout) == (120.0, 3.0)


@pytest.mark.parametrize("field", ["storage_path", "local_dir"])
def test_storage_path_is_made_absolute(field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for given, wanted in [
        ("runs", tmp_path / "runs"),
        (Path("runs"), tmp_path / "runs"),
        ("~/runs", tmp_path / "home" / "runs"),
        (f"file://{tmp_path}/a%20b", tmp_path / "a b"),
    ]:
        assert RunConfig(**{field: given})._to_core().storage_path == str(wanted)  # type: ignore[arg-type]


def test_storage_path_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core's, where the command line looks for runs too."""
    monkeypatch.delenv("LOCKSTEP_STORAGE_PATH", raising=False)
    assert RunConfig()._to_core().storage_path is None
    assert _core.default_storage_path() == os.path.expanduser("~/lockstep_results")
    monkeypatch.setenv("LOCKSTEP_STORAGE_PATH", str(tmp_path))
    assert _core.default_storage_path() == str(tmp_path)
    path = DataParallelTrainer(lambda: None, run_config=RunConfig(verbose=0, name="here")).fit().path
    assert path == tmp_path / "here"


@pytest.mark.parametrize("config", [CheckpointConfig(checkpoint_frequency=2), CheckpointConfig(checkpoint_at_end=True)])
def test_trainer_refuses_checkpoints_that_only_the_function_can_make(config: CheckpointConfig) -> None:
    with pytest.raises(ConfigError, match=r"session\.report"):
        DataParallelTrainer(lambda: None, run_config=RunConfig(checkpoint_config=config))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scaling_config": {"num_workers": 2}}, "must be a ScalingConfig"),
        ({"run_config": 3}, "must be a RunConfig"),
        ({"train_loop_config": [1]}, "must be a dict"),
        ({"resume_from_checkpoint": 3}, "must be a Checkpoint, a path or None"),
        ({"backend_config": 1}, "BackendConfig"),
        ({"metadata": 1}, "metadata is 1"),
    ],
)
def test_trainer_refuses(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        DataParallelTrainer(lambda: None, **options)


def test_trainer_checks_again_what_was_changed_after_it_was_made(tmp_path: Path) -> None:
    trainer = DataParallelTrainer(lambda: None, run_config=RunConfig(storage_path=tmp_path))
    trainer.scaling_config.num_workers = -2
    with pytest.raises(ConfigError, match="num_workers is -2"):
        trainer.fit()
    assert not list(tmp_path.iterdir())


def test_plain_keeps_what_json_holds_and_spells_the_rest() -> None:
    import numpy

    class Model:
        def __repr__(self) -> str:
            return "Model()"

    loop: list[Any] = []
    loop.append(loop)
    given = {
        "a": (1, 2.5),
        3: None,
        "m": Model(),
        "n": numpy.float32(0.5),
        "big": 2**70,
        "\udcff": "a\udcff",
        "x": numpy.arange(2),
        "loop": loop,
    }
    result = plain(given)
    assert {key: result[key] for key in ("a", "3", "m", "n", "big", "'\\udcff'", "x")} == {
        "a": [1, 2.5],
        "3": None,
        "m": "Model()",
        "n": 0.5,
        "big": str(2**70),
        "'\\udcff'": "'a\\udcff'",
        "x": "array([0, 1])",
    }
