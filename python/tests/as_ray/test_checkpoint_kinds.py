"""Checkpoints of Ray's kinds, and what becomes of files and keys that are added in between."""

from __future__ import annotations

from .conftest import Script


def test_kinds(script: Script) -> None:
    script("""
import os, pickle, tempfile
from ray.air import Checkpoint
from ray.air.checkpoint import _DICT_CHECKPOINT_ADDITIONAL_FILE_KEY

made = Checkpoint(data_dict={"a": 1})
assert made.to_dict() == {"a": 1} and made.get_internal_representation() == ("data_dict", {"a": 1})
place = made.to_directory()
for same in (Checkpoint(local_path=place), Checkpoint(place), Checkpoint(uri="file://" + place)):
    assert same.to_dict() == {"a": 1}
assert Checkpoint.from_uri(made.to_uri("file://" + place + "_uri")).to_dict() == {"a": 1}
try:
    Checkpoint(place, {"a": 1})
except ValueError as error:
    assert "one of" in str(error)
else:
    raise AssertionError

# a dict, written to a directory, a file added, read as a dict, and written again
open(os.path.join(place, "note.txt"), "w").write("hello")
os.mkdir(os.path.join(place, "sub"))
open(os.path.join(place, "sub", "more.txt"), "w").write("more")
data = Checkpoint.from_directory(place).to_dict()
assert data["a"] == 1 and set(data[_DICT_CHECKPOINT_ADDITIONAL_FILE_KEY]) == {"note.txt", "sub/more.txt"}
again = Checkpoint.from_dict({**data, "b": 2}).to_directory()
assert open(os.path.join(again, "note.txt")).read() == "hello"
assert open(os.path.join(again, "sub", "more.txt")).read() == "more"
assert Checkpoint.from_directory(again).to_dict()["b"] == 2

# a directory, read as a dict, a key added, written, and read again
place = tempfile.mkdtemp()
open(os.path.join(place, "model.bin"), "w").write("weights")
data = Checkpoint.from_directory(place).to_dict()
data["step"] = 5
other = Checkpoint.from_dict(data)
with other.as_directory() as directory:
    assert open(os.path.join(directory, "model.bin")).read() == "weights"
    assert Checkpoint.from_directory(directory).to_dict()["step"] == 5
twice = Checkpoint.from_dict(Checkpoint.from_directory(other.to_directory()).to_dict())
assert twice.to_dict()["step"] == 5
with twice.as_directory() as directory:
    assert open(os.path.join(directory, "model.bin")).read() == "weights"
assert repr(Checkpoint(place)) == f"Checkpoint(path={place!r})"
""")


def test_attributes_of_subclasses(script: Script) -> None:
    script("""
import pickle
from ray.air import Checkpoint

class Mine(Checkpoint):
    _SERIALIZED_ATTRS = ("vocabulary",)
    vocabulary = None

mine = Mine.from_dict({"a": 1})
mine.vocabulary = ["x"]
assert Mine.from_checkpoint(mine).vocabulary == ["x"] == pickle.loads(pickle.dumps(mine)).vocabulary
assert Mine.from_checkpoint(Checkpoint.from_dict({"a": 1})).vocabulary is None

import os, tempfile
place = tempfile.mkdtemp()
open(os.path.join(place, "model.bin"), "w").write("weights")
files = Mine.from_directory(place)
files.vocabulary = ["x"]
for each in (mine, files):
    for again in (
        Mine.from_directory(each.to_directory()),
        Mine.from_bytes(each.to_bytes()),
        Mine.from_dict(each.to_dict()),
        Mine.from_uri(each.to_uri("file://" + tempfile.mkdtemp() + "/x")),
        Mine.from_checkpoint(Checkpoint.from_directory(each.to_directory())),
    ):
        assert again.vocabulary == ["x"]
        with again.as_directory() as directory:
            assert os.path.exists(os.path.join(directory, "data.json" if each is mine else "model.bin"))
assert Mine.from_directory(mine.to_directory()).to_dict()["a"] == 1

import ray.train
from ray.air import ScalingConfig, session
from ray.train.data_parallel_trainer import DataParallelTrainer

def train_func():
    made = Mine.from_dict({"a": 2})
    made.vocabulary = ["y"]
    session.report({"loss": 1}, checkpoint=made)

result = DataParallelTrainer(train_func, scaling_config=ScalingConfig(num_workers=1)).fit()
kept = Mine.from_checkpoint(result.checkpoint)
assert (kept.vocabulary, kept.to_dict()["a"]) == (["y"], 2)
""")


def test_metadata_of_a_directory(script: Script) -> None:
    script("""
import os, tempfile
import ray.train
from ray.train import Checkpoint, ScalingConfig
from ray.train.data_parallel_trainer import DataParallelTrainer

def train_func():
    with tempfile.TemporaryDirectory() as place:
        checkpoint = Checkpoint.from_directory(place)
        checkpoint.set_metadata({"kind": "first"})
        checkpoint.update_metadata({"step": 3})
        ray.train.report({"loss": 1}, checkpoint=checkpoint)

result = DataParallelTrainer(train_func, scaling_config=ScalingConfig(num_workers=1)).fit()
assert result.checkpoint.get_metadata() == {"kind": "first", "step": 3}
result.checkpoint.verify()
try:
    result.checkpoint.set_metadata({})
except ValueError as error:
    assert "belongs to a run" in str(error)
else:
    raise AssertionError
result.checkpoint.filesystem.get_file_info(result.checkpoint.path)
""")
