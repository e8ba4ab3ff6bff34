"""The alias itself: light, the same in workers, selected by release, and never hiding a real Ray."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from .conftest import Script


def test_the_import_loads_no_framework_and_is_quick(script: Script) -> None:
    code = """
import sys, time
heavy = ("numpy", "cloudpickle", "pandas", "torch", "tensorflow", "mlflow", "wandb")
import ray, ray.air, ray.train, ray.tune, ray.util.sgd.v2, ray.data
from ray.air import session, ScalingConfig
from ray.train.constants import TRAINING_ITERATION
print([name for name in heavy if name in sys.modules], round(took, 3))
"""
    first = (
        "import time, lockstep; start = time.process_time()\nimport lockstep.as_ray; took = time.process_time() - start"
    )
    runs = [script(code, first=first, PYTHONDONTWRITEBYTECODE="").stdout.split("] ") for _ in range(3)]
    assert {heavy for heavy, _ in runs} == {"["}
    assert min(float(spent) for _, spent in runs) < 0.02


# ---------------------------------------------------------------- releases


@pytest.mark.parametrize(
    ("wanted", "release"),
    [("", "2.6"), ("1", "2.6"), ("true", "2.6"), ("2.6", "2.6"), ("2.0", "2.0"), ("1.7", "1.7")],
)
def test_the_environment_chooses_the_release(script: Script, wanted: str, release: str) -> None:
    code = "import os, ray\nprint(ray.__version__, lockstep.as_ray.release, os.environ['LOCKSTEP_AS_RAY'])"
    assert script(code, LOCKSTEP_AS_RAY=wanted).stdout.split() == [f"{release}.0", release, release]


def test_an_unknown_release_is_refused(script: Script) -> None:
    done = script("", fails=True, LOCKSTEP_AS_RAY="3.1")
    assert "LOCKSTEP_AS_RAY is '3.1'; it must be one of 1.7, 2.0, 2.6" in done.stderr


def test_a_second_installation_changes_nothing(script: Script) -> None:
    code = """
import importlib, os, sys
before = list(sys.meta_path)
assert lockstep.as_ray.install() == "2.0"  # before the first import of ray
import ray
os.environ["LOCKSTEP_AS_RAY"] = "2.6"
assert lockstep.as_ray.install() == importlib.reload(lockstep.as_ray).release == "2.0"
assert sys.meta_path == before and sys.modules["ray"] is ray and ray.__version__ == "2.0.0"
"""
    script(code, LOCKSTEP_AS_RAY="2.0")


# ---------------------------------------------------------------- workers

FIT = """
import ray
from ray.air import Checkpoint, ScalingConfig, session
from ray.air.config import RunConfig
from ray.train.data_parallel_trainer import DataParallelTrainer

def run(function, workers=2, **options):
    trainer = DataParallelTrainer(
        function,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(verbose=0, **options),
    )
    return trainer.fit()
"""


def test_workers_see_the_alias_too(script: Script) -> None:
    code = f"""{FIT}
def train():
    import ray.train.base_trainer
    from ray.air import session as again, Checkpoint as Again
    from ray.tune import Tuner
    import lockstep
    assert again is session and again is lockstep.session
    assert Again is lockstep.Checkpoint and isinstance(Again.from_dict({{"a": 1}}), Checkpoint)
    assert ray.is_initialized() and not isinstance(1, Tuner)
    session.report({{"version": ray.__version__, "rank": session.get_world_rank(), "value": ray.get(ref)["x"]}})

ref = ray.put({{"x": 5}})
metrics = run(train).metrics
print(metrics["version"], metrics["rank"], metrics["value"])
"""
    assert script(code, LOCKSTEP_AS_RAY="2.0").stdout == "2.0.0 0 5\n"


def test_a_function_that_fails_raises_both_types(script: Script) -> None:
    code = f"""{FIT}
from ray.train.base_trainer import TrainingFailedError

def train():
    raise ValueError("boom")

for kind in (ValueError, TrainingFailedError):
    try:
        run(train)
    except kind as error:
        print(kind.__name__, "boom" in str(error))
"""
    assert script(code).stdout == "ValueError True\nTrainingFailedError True\n"


def test_checkpoint_frequency_of_a_function_is_a_tune_error_and_a_value_error(script: Script) -> None:
    code = f"""{FIT}
from ray.air import CheckpointConfig
from ray.tune import TuneError

for kind in (ValueError, TuneError):
    for option in ({{"checkpoint_frequency": 2}}, {{"checkpoint_at_end": True}}):
        try:
            run(lambda: None, checkpoint_config=CheckpointConfig(**option))
        except kind:
            print(kind.__name__)
frequent = RunConfig(checkpoint_config=CheckpointConfig(checkpoint_frequency=2))
trainer = DataParallelTrainer(lambda: None, run_config=frequent)
try:
    trainer.fit()
except ValueError as error:
    assert "checkpoint_frequency" in str(error)
else:
    raise AssertionError
"""
    assert script(code).stdout.split() == ["ValueError"] * 2 + ["LockstepError"] * 2


# ---------------------------------------------------------------- a real Ray


@pytest.fixture
def real_ray(tmp_path: Path) -> str:
    """A directory with a package that looks like Ray."""
    (tmp_path / "site" / "ray").mkdir(parents=True)
    (tmp_path / "site" / "ray" / "__init__.py").write_text("__version__ = 'real'\n")
    return str(tmp_path / "site")


def test_a_real_ray_is_not_hidden(script: Script, real_ray: str) -> None:
    code = """
try:
    import lockstep.as_ray
except ImportError as error:
    print(type(error).__name__, error)
import ray, os
print(ray.__version__, "LOCKSTEP_AS_RAY" in os.environ)
"""
    told, after = script(code, first="", PYTHONPATH=real_ray).stdout.splitlines()
    assert told.startswith("RealRayError") and os.path.join(real_ray, "ray") in told
    assert "LOCKSTEP_AS_RAY_SHADOW=1" in told
    assert after == "real False"


def test_a_real_ray_that_was_imported_is_named(script: Script, real_ray: str) -> None:
    done = script("import lockstep.as_ray", fails=True, first="import ray", PYTHONPATH=real_ray)
    assert "it has been imported from" in done.stderr and real_ray in done.stderr


@pytest.mark.parametrize("first", ["import lockstep.as_ray", "import ray, lockstep.as_ray"])
def test_a_real_ray_is_hidden_when_told(script: Script, real_ray: str, first: str) -> None:
    code = "import ray\nprint(ray.__version__)"
    done = script(code, first=first, PYTHONPATH=real_ray, LOCKSTEP_AS_RAY_SHADOW="1")
    assert done.stdout == "2.6.0\n"


def test_a_directory_called_ray_is_no_real_one(script: Script, tmp_path: Path) -> None:
    (tmp_path / "ray").mkdir()
    assert script("import ray\nprint(ray.__version__)").stdout == "2.6.0\n"


# ---------------------------------------------------------------- ray.init and its like


def test_init_and_shutdown(script: Script) -> None:
    code = """
import ray
assert not ray.is_initialized()
context = ray.init(num_cpus=3, logging_level="error", resources={"token": 2})
assert ray.is_initialized() and context["node_ip_address"] == context.address_info["node_ip_address"]
try:
    ray.init()
except RuntimeError as error:
    assert "ignore_reinit_error=True" in str(error)
else:
    raise AssertionError
assert ray.init(ignore_reinit_error=True) is context
assert ray.cluster_resources()["CPU"] == 3.0 and ray.cluster_resources()["token"] == 2.0
ray.shutdown()
assert not ray.is_initialized()
ray.shutdown()
with ray.init("auto"):
    assert ray.is_initialized()
assert not ray.is_initialized()
"""
    script(code)


def test_resources_are_those_of_this_machine(script: Script) -> None:
    code = """
import json, ray
resources = ray.cluster_resources()
assert ray.available_resources() == resources
[node] = ray.nodes()
assert node["Alive"] and node["Resources"] == resources
assert f"node:{ray.util.get_node_ip_address()}" in resources
print(json.dumps(resources))
"""
    resources = json.loads(script(code).stdout)
    assert resources["CPU"] == len(os.sched_getaffinity(0))
    assert resources["memory"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert resources.get("GPU") != 0


def test_resources_that_init_declares_are_held_by_workers(script: Script) -> None:
    code = """
import ray
from ray.air import session
from ray.air.config import RunConfig, ScalingConfig
from ray.train.data_parallel_trainer import DataParallelTrainer
from ray.tune import Callback

ray.init(num_cpus=16, num_gpus=4, resources={"token": 3})
assert ray.available_resources() == ray.cluster_resources()
seen = []

class See(Callback):
    def on_trial_result(self, *args, **kwargs):
        seen.append(ray.available_resources())

scaling = ScalingConfig(num_workers=2, use_gpu=True, resources_per_worker={"CPU": 6, "GPU": 0.5, "token": 1})
run_config = RunConfig(verbose=0, callbacks=[See()])
trainer = DataParallelTrainer(lambda: session.report({}), scaling_config=scaling, run_config=run_config)
trainer.fit()
assert (seen[0]["CPU"], seen[0]["GPU"], seen[0]["token"]) == (4, 3, 1), seen
assert ray.available_resources() == ray.cluster_resources()
ray.shutdown()
assert "token" not in ray.cluster_resources()
try:
    ray.init(resources={"token": -1})
except ValueError as error:
    assert "0 or more" in str(error)
else:
    raise AssertionError
"""
    script(code)


def test_num_cpus_limits_nothing(script: Script) -> None:
    code = f"""{FIT}
ray.init(num_cpus=1)
print(run(lambda: session.report({{"size": session.get_world_size()}}), workers=3).metrics["size"])
"""
    assert script(code).stdout == "3\n"


def test_put_and_get(script: Script) -> None:
    code = """
import ray
value = {"weights": [1, 2]}
ref = ray.put(value)
assert isinstance(ref, ray.ObjectRef) and ray.is_initialized()
assert ray.get(ref) is value and ray.get([ref, ray.put(2)], timeout=1) == [value, 2]
assert ray.get(ray.cloudpickle.loads(ray.cloudpickle.dumps(ref))) == value
for wrong in (lambda: ray.get(3), lambda: ray.put(ref)):
    try:
        wrong()
    except ValueError as error:
        assert "ray." in str(error)
    else:
        raise AssertionError
"""
    script(code)


# ---------------------------------------------------------------- what is not there

USED = """
from lockstep.as_ray import NotAvailableError
def told(use):
    try:
        use()
    except NotAvailableError as error:
        assert isinstance(error, NotImplementedError) and isinstance(error, lockstep.LockstepError)
        return str(error)
    raise AssertionError("nothing was raised")
"""


def test_what_a_cluster_would_have_is_said_to_be_missing(script: Script) -> None:
    code = f"""{USED}
import ray

@ray.remote
def task(x):
    "Doubles."
    return 2 * x

assert task.__name__ == "task" and task.__doc__ == "Doubles."
for use in (lambda: ray.ObjectRef(b"1"), lambda: ray.util.placement_group([]), lambda: task.bind(1),
            lambda: task.options(num_gpus=1)):
    assert told(use).startswith("[ray.") and "; " in told(use)
"""
    script(code)


def test_what_is_missing_says_that_it_is_not_there_yet(script: Script) -> None:
    code = f"""{USED}
import ray, ray.data
from ray import tune
from ray.data import Dataset
from ray.tune.integration.wandb import wandb_mixin
from ray.tune.schedulers import PB2, ResourceChangingScheduler
from ray.tune.search.ax import AxSearch
from ray.tune.suggest.nevergrad import NevergradSearch

def annotated(data: Dataset, scheduler: "PB2 | None" = None) -> Dataset | None: ...
class Mine(PB2): ...
assert not isinstance(3, Dataset) and issubclass(Mine, PB2) and not hasattr(AxSearch, "suggest")

for use, said in ((lambda: PB2(), "PopulationBasedTraining"), (lambda: Mine(), "does not have this scheduler"),
                  (lambda: ResourceChangingScheduler(), "with_resources"), (lambda: AxSearch(), "TPESearch"),
                  (lambda: NevergradSearch.suggest, "no adapter"), (lambda: wandb_mixin(print), "session.report()"),
                  (lambda: tune.SyncConfig(upload_dir="s3://bucket"), "nothing is uploaded")):
    assert said in told(use), told(use)
from ray.data.block import BlockAccessor
for use in (lambda: BlockAccessor(), lambda: BlockAccessor.for_block(None)):
    assert "this part of Ray Data is not available yet" in told(use), told(use)
"""
    script(code)


def test_placeholders_reach_workers(script: Script) -> None:
    code = f"""{FIT}{USED}
from ray.tune.schedulers import PB2
from ray.data.block import BlockAccessor

def train():
    assert not isinstance(1, BlockAccessor)
    session.report({{"told": told(lambda: PB2()), "data": told(lambda: BlockAccessor())}})

metrics = run(train).metrics
print(metrics["told"])
print(metrics["data"])
"""
    told, data = script(code).stdout.splitlines()
    assert told.startswith("[ray.tune.schedulers.PB2]")
    assert data.startswith("[ray.data.block.BlockAccessor]")


def test_data_sets_under_the_names_of_ray(script: Script, tmp_path: Path) -> None:
    code = f"""
import ray
from ray.air import RunConfig, ScalingConfig, session
from ray.data import ActorPoolStrategy
from ray.data.preprocessors import Chain, MinMaxScaler
from ray.train import DataConfig
from ray.train.torch import TorchTrainer

ds = ray.data.range(100, parallelism=4).map_batches(lambda b: {{"x": b["id"] * 2.0}}, compute=ActorPoolStrategy(size=2))
train, validation = ds.train_test_split(test_size=0.2, shuffle=True, seed=1)
assert (train.count(), validation.count()) == (80, 20)
assert ray.data.range_tensor(3, shape=(2, 2)).take_batch(3)["data"].shape == (3, 2, 2)
assert ray.data.from_items([1, 2]).take_all() == [{{"item": 1}}, {{"item": 2}}]

def train_func():
    seen = sum(len(batch["x"]) for batch in session.get_dataset_shard("train").iter_torch_batches(batch_size=8))
    most = max(float(batch["x"].max()) for batch in session.get_dataset_shard("train").iter_batches(batch_size=8))
    whole = sum(1 for _ in session.get_dataset_shard("validation").iter_rows())
    session.report({{"seen": seen, "whole": whole, "most": most}})

result = TorchTrainer(
    train_func,
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(storage_path={str(tmp_path / "runs")!r}, verbose=0),
    datasets={{"train": train, "validation": validation}},
    dataset_config=DataConfig(datasets_to_split=["train"]),
    preprocessor=Chain(MinMaxScaler(columns=["x"])),
).fit()
print(result.metrics["seen"], result.metrics["whole"], result.metrics["most"] <= 1.0)
"""
    assert script(code).stdout.split() == ["40", "20", "True"]


@pytest.mark.parametrize("release", ["2.0", "2.6"])
def test_trainers_keep_the_order_of_data_sets(script: Script, release: str) -> None:
    code = """
import ray
from ray.air import RunConfig, ScalingConfig, session
from ray.air.config import DatasetConfig
from ray.train import DataConfig
from ray.train.data_parallel_trainer import DataParallelTrainer

ds = ray.data.from_items([{"x": i} for i in range(1000)])

def train_func():
    shard = session.get_dataset_shard("train")
    session.report({"rows": [int(row["x"]) for _ in range(2) for row in shard.iter_rows()]})

def rows(config):
    given = {"datasets": {"train": ds}, "dataset_config": config, "run_config": RunConfig(verbose=0)}
    return DataParallelTrainer(train_func, **given).fit().metrics["rows"]

assert rows(None) == rows(DataConfig(datasets_to_split=["train"])) == 2 * list(range(1000))
assert rows({"train": DatasetConfig(split=True)}) == 2 * list(range(1000))
shuffled = rows({"train": DatasetConfig(global_shuffle=True)})
assert shuffled != 2 * list(range(1000)) and sorted(shuffled[:1000]) == list(range(1000))
assert rows(DataConfig(datasets_to_shuffle=["train"]))[:1000] == shuffled[:1000]
"""
    script(code, LOCKSTEP_AS_RAY=release)


def test_a_base_trainer_has_its_data_sets(script: Script) -> None:
    code = """
import ray, torch
from ray.air import Checkpoint, RunConfig, ScalingConfig, session
from ray.data.preprocessors import MinMaxScaler
from ray.train.base_trainer import BaseTrainer

class Mine(BaseTrainer):
    _scaling_config_allowed_keys = ["trainer_resources"]

    def setup(self):
        assert self.datasets["train"].max("x") == 9.0
        self.model = torch.nn.Linear(1, 1)

    def training_loop(self):
        train = self.datasets["train"]
        start = self.resume_from_checkpoint.to_dict()["step"] if self.resume_from_checkpoint else 0
        for step in range(start, 2):
            seen = torch.cat([batch["x"] for batch in train.iter_torch_batches(batch_size=4)])
            session.report({"most": float(seen.max()), "rows": len(seen), "other": self.datasets["other"].count()},
                           checkpoint=Checkpoint.from_dict({"step": step + 1}))

class Own(Mine):
    def preprocess_datasets(self):
        self.datasets = {"train": self.datasets["train"].limit(3), "other": self.datasets["train"]}

train = ray.data.from_items([{"x": float(i)} for i in range(10)])
given = {"datasets": {"train": train, "other": lambda: ray.data.range(5).map(lambda row: {"x": row["id"] + 0.5})},
         "run_config": RunConfig(verbose=0)}
result = Mine(**given, preprocessor=MinMaxScaler(columns=["x"])).fit()
assert (result.metrics["most"], result.metrics["rows"], result.metrics["other"]) == (1.0, 10, 5), result.metrics
scaler = result.checkpoint.get_preprocessor()
assert scaler.transform_batch({"x": torch.tensor([9.0]).numpy()})["x"][0] == 1.0
metrics = Own(**given).fit().metrics
assert (metrics["most"], metrics["rows"], metrics["other"]) == (2.0, 3, 10), metrics
handle = Own(**given).start()
assert handle.wait().metrics["rows"] == 3
try:
    Mine(**given, scaling_config=ScalingConfig(num_workers=2)).fit()
except ValueError as error:
    assert "num_workers" in str(error)
else:
    raise AssertionError
try:
    Mine(datasets={"train": 1})
except ValueError as error:
    assert "datasets['train']" in str(error)
else:
    raise AssertionError
"""
    script(code)
