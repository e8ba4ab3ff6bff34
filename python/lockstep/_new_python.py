"""``lockstep new python``: a project to start from, which trains at once."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from pathlib import Path

FRAMEWORKS = {
    "torch": "torch==2.13.0",
    "tensorflow": "tensorflow-cpu",
    "jax": "jax",
    "lightning": "lightning",
    "transformers": "transformers accelerate",
    "xgboost": "xgboost pandas pyarrow",
    "plain": "",
}
"""The choices, and what they need besides Lockstep."""

_BEGINNING = '''"""Trains a model on several workers: lockstep run train.py --workers 4 --epochs 10"""

import argparse

@IMPORTS@


@FUNCTION@

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--name", help="of the run; started again with the same name, it continues")
    options = parser.parse_args()
@TRAINER@
    result = trainer.fit()
    print(result.metrics["@METRIC@"], result.path)


if __name__ == "__main__":
    main()
'''
_TRAINER = """    trainer = @KIND@(
        train_func,
        train_loop_config={"epochs": options.epochs},
        scaling_config=ScalingConfig(num_workers=options.workers),
        run_config=RunConfig(
            name=options.name,
            resume="auto" if options.name else "never",
            failure_config=FailureConfig(max_failures=3),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
    )"""
_CONFIGS = "CheckpointConfig, FailureConfig, RunConfig, ScalingConfig"

_TORCH = (
    f"""import torch
from lockstep import Checkpoint, {_CONFIGS}, session
from lockstep.torch import TorchTrainer, all_reduce_mean, prepare_data_loader, prepare_model
from torch.utils.data import DataLoader, TensorDataset""",
    '''def train_func(config):
    """Runs on every worker. Replace the data and the model by yours."""
    torch.manual_seed(0)
    inputs = torch.randn(1024, 8)
    targets = inputs.sum(dim=1, keepdim=True)
    loader = prepare_data_loader(DataLoader(TensorDataset(inputs, targets), batch_size=32, shuffle=True))
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    start = 0
    if checkpoint := session.get_checkpoint():
        saved = checkpoint.to_dict()
        model.load_state_dict(saved["model"])
        start = saved["epoch"] + 1
    model = prepare_model(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(start, config["epochs"]):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        saved = Checkpoint.from_dict({"model": model.state_dict(), "epoch": epoch})
        session.report({"epoch": epoch, "loss": all_reduce_mean(loss)}, checkpoint=saved)
''',
    "TorchTrainer",
)
_TENSORFLOW = (
    f"""import numpy
from lockstep import {_CONFIGS}
from lockstep.tensorflow import ReportCheckpointCallback, TensorflowTrainer""",
    '''def train_func(config):
    """Runs on every worker. Replace the data and the model by yours."""
    import tensorflow as tf

    inputs = numpy.random.default_rng(0).normal(size=(1024, 8)).astype("float32")
    targets = inputs.sum(axis=1, keepdims=True)
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(32, activation="relu"), tf.keras.layers.Dense(1)])
        model.compile(optimizer="adam", loss="mse")
    model.fit(inputs, targets, batch_size=64, epochs=config["epochs"], verbose=0,
              callbacks=[ReportCheckpointCallback()])
''',
    "TensorflowTrainer",
)
_JAX = (
    f"""import numpy
from lockstep import Checkpoint, {_CONFIGS}, session
from lockstep.jax import JaxTrainer""",
    '''def train_func(config):
    """Runs on every worker. Replace the data and the model by yours."""
    import jax
    import jax.numpy as jnp
    from jax.experimental.multihost_utils import process_allgather

    rank, size = session.get_world_rank(), session.get_world_size()
    inputs = numpy.random.default_rng(0).normal(size=(1024, 8))[rank::size]
    targets = inputs.sum(axis=1)
    weights, start = jnp.zeros(8), 0
    if checkpoint := session.get_checkpoint():
        saved = checkpoint.to_dict()
        weights, start = jnp.asarray(saved["weights"]), saved["epoch"] + 1
    step = jax.jit(jax.value_and_grad(lambda w: jnp.mean((inputs @ w - targets) ** 2)))
    for epoch in range(start, config["epochs"]):
        loss, gradient = step(weights)
        weights = weights - 0.1 * process_allgather(gradient).reshape(-1, 8).mean(axis=0)
        saved = Checkpoint.from_dict({"weights": numpy.asarray(weights), "epoch": epoch})
        session.report({"epoch": epoch, "loss": float(loss)}, checkpoint=saved)
''',
    "JaxTrainer",
)
_LIGHTNING = (
    f"""import lightning
import torch
from lockstep import {_CONFIGS}
from lockstep.integrations.lightning import (
    DDPStrategy,
    LightningEnvironment,
    ReportCheckpointCallback,
    checkpoint_path,
    prepare_trainer,
)
from lockstep.torch import TorchTrainer
from torch.utils.data import DataLoader, TensorDataset""",
    '''class Model(lightning.LightningModule):
    """Replace it by yours."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def training_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def train_func(config):
    """Runs on every worker."""
    inputs = torch.randn(1024, 8)
    trainer = lightning.Trainer(
        max_epochs=config["epochs"],
        devices="auto",
        strategy=DDPStrategy(),
        plugins=[LightningEnvironment()],
        callbacks=[ReportCheckpointCallback()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        logger=False,
    )
    loader = DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=32)
    with checkpoint_path() as path:
        prepare_trainer(trainer).fit(Model(), loader, ckpt_path=path)
''',
    "TorchTrainer",
)
_TRANSFORMERS = (
    f"""import torch
from lockstep import {_CONFIGS}
from lockstep.integrations.transformers import ReportCheckpointCallback, checkpoint_path, prepare_trainer
from lockstep.torch import TorchTrainer""",
    '''class Numbers(torch.utils.data.Dataset):
    """Replace it by yours: items are the model's arguments."""

    def __len__(self):
        return 256

    def __getitem__(self, index):
        words = torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": int(words[0] > 31)}


def train_func(config):
    """Runs on every worker."""
    import transformers

    small = transformers.BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    arguments = transformers.TrainingArguments(
        "out",
        num_train_epochs=config["epochs"],
        logging_strategy="epoch",
        save_strategy="epoch",
        use_cpu=not torch.cuda.is_available(),
        report_to=[],
        disable_tqdm=True,
    )
    model = transformers.BertForSequenceClassification(small)
    trainer = transformers.Trainer(model, arguments, train_dataset=Numbers())
    trainer.add_callback(ReportCheckpointCallback())
    with checkpoint_path() as path:
        prepare_trainer(trainer).train(resume_from_checkpoint=path)
''',
    "TorchTrainer",
)
_PLAIN = (
    f"""from lockstep import Checkpoint, DataParallelTrainer, {_CONFIGS}, session""",
    '''def train_func(config):
    """Runs on every worker, with any library."""
    value, start = 1.0, 0
    if checkpoint := session.get_checkpoint():
        saved = checkpoint.to_dict()
        value, start = saved["value"], saved["epoch"] + 1
    for epoch in range(start, config["epochs"]):
        value /= 2
        saved = Checkpoint.from_dict({"value": value, "epoch": epoch})
        session.report({"epoch": epoch, "loss": value, "rank": session.get_world_rank()}, checkpoint=saved)
''',
    "DataParallelTrainer",
)
_XGBOOST = (
    f"""import lockstep.data
import numpy
import pandas
from lockstep import {_CONFIGS}
from lockstep.xgboost import XGBoostTrainer""",
    '''def table():
    """Replace it by yours, for example lockstep.data.read_parquet("train/*.parquet")."""
    frame = pandas.DataFrame(numpy.random.default_rng(0).normal(size=(2000, 4)), columns=list("abcd"))
    frame["target"] = (frame.a + frame.b > frame.c).astype(int)
    return lockstep.data.from_pandas(frame).repartition(8)
''',
    """    trainer = XGBoostTrainer(
        params={"objective": "binary:logistic", "tree_method": "hist"},
        label_column="target",
        num_boost_round=options.epochs,
        datasets={"train": table()},
        scaling_config=ScalingConfig(num_workers=options.workers),
        run_config=RunConfig(
            name=options.name,
            failure_config=FailureConfig(max_failures=3),
            checkpoint_config=CheckpointConfig(num_to_keep=2, checkpoint_frequency=1),
        ),
    )""",
)
_PARTS = {
    "torch": _TORCH,
    "tensorflow": _TENSORFLOW,
    "jax": _JAX,
    "lightning": _LIGHTNING,
    "transformers": _TRANSFORMERS,
    "xgboost": _XGBOOST,
    "plain": _PLAIN,
}
_METRICS = {"xgboost": "train-logloss"}

_README = """# @NAME@

A program that trains on several workers with Lockstep.

    pip install -r requirements.txt
    lockstep run train.py --workers 4 --epochs 10

| | |
|---|---|
| `lockstep run train.py --name first` | a run with a name; started again, it continues |
| `lockstep runs` | lists the runs and their states |
| `lockstep logs RUN -f` | follows what the workers print |
| `lockstep checkpoint list RUN` | a run's checkpoints |
| `lockstep doctor` | checks this machine |
"""


def files(name: str, framework: str) -> dict[str, str]:
    """The project's files by name."""
    imports, function, kind = _PARTS[framework]
    trainer = kind if "\n" in kind else _TRAINER.replace("@KIND@", kind)
    program = _BEGINNING.replace("@IMPORTS@", imports).replace("@FUNCTION@", function)
    program = program.replace("@TRAINER@", trainer).replace("@METRIC@", _METRICS.get(framework, "loss"))
    return {
        "train.py": program,
        "README.md": _README.replace("@NAME@", name),
        "requirements.txt": "\n".join(["lockstep", *FRAMEWORKS[framework].split()]) + "\n",
        ".gitignore": "__pycache__/\nout/\n",
    }


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="lockstep new python", description=__doc__)
    parser.add_argument("name", metavar="NAME", help="the project's name, or a path that ends with it")
    parser.add_argument("--framework", choices=list(FRAMEWORKS), default="torch", help="default: torch")
    given = parser.parse_args(words)
    place = Path(given.name).absolute()
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", place.name):
        return _refused(
            f"a project cannot be named {place.name!r}; begin with a letter, and use letters, digits, _ and -"
        )
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        return _refused(f"{str(place)!r} already holds files; choose another name")
    made = files(place.name, given.framework)
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            (place / name).write_text(text, encoding="utf-8")
    except OSError as error:
        return _refused(f"{str(place)!r} could not be written: {error}; choose another place")
    print(f"{shlex.quote(str(place))}: {', '.join(made)}\n\nLet it train:\n")
    print(f"    cd {shlex.quote(given.name)}\n    lockstep run train.py")
    return 0


def _refused(why: str) -> int:
    sys.stderr.write(f"lockstep: [new] {why}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
