"""The libraries under the names that Ray has for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DATA = """import lockstep.as_ray
import numpy as np, pandas as pd, ray, ray.data, ray.train
from ray.train import ScalingConfig, RunConfig
chance = np.random.default_rng(0)
frame = pd.DataFrame(chance.integers(0, 16, (400, 3)), columns=["a", "b", "c"]).astype(float)
frame["y"] = (frame.a + 2 * frame.b > frame.c + 20).astype(int)
train = ray.data.from_pandas(frame)
"""


def run(tmp_path: Path, code: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(DATA + code)
    env = {**os.environ, "LOCKSTEP_STORAGE_PATH": str(tmp_path / "runs")}
    done = subprocess.run([sys.executable, str(script)], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_xgboost_with_a_training_function(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
import xgboost
from ray.train.xgboost import RayTrainReportCallback, XGBoostTrainer

def train_func():
    rows = ray.train.get_dataset_shard("train").materialize().to_pandas()
    matrix = xgboost.DMatrix(rows.drop(columns="y"), label=rows["y"])
    xgboost.train({"objective": "binary:logistic", "tree_method": "hist"}, matrix, evals=[(matrix, "train")],
                  num_boost_round=4, callbacks=[RayTrainReportCallback()])

result = XGBoostTrainer(train_func, datasets={"train": train}, scaling_config=ScalingConfig(num_workers=2)).fit()
assert result.metrics["training_iteration"] == 5 and result.metrics["train-logloss"] < 0.5  # the last one saves
assert RayTrainReportCallback.get_model(result.checkpoint).num_boosted_rounds() == 4

result = XGBoostTrainer(params={"objective": "binary:logistic"}, label_column="y", num_boost_round=3,
                        datasets={"train": train}, scaling_config=ScalingConfig(num_workers=1)).fit()
assert XGBoostTrainer.get_model(result.checkpoint).num_boosted_rounds() == 3
""",
    )


def test_lightgbm_with_a_training_function(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
import lightgbm
from ray.train.lightgbm import LightGBMTrainer, RayTrainReportCallback, get_network_params

def train_func(config):
    rows = ray.train.get_dataset_shard("train").materialize().to_pandas()
    data = lightgbm.Dataset(rows.drop(columns="y"), label=rows["y"])
    lightgbm.train({"objective": "binary", "verbosity": -1, **config, **get_network_params()}, data,
                   num_boost_round=4, valid_sets=[data], valid_names=["train"], callbacks=[RayTrainReportCallback()])

trainer = LightGBMTrainer(train_func, train_loop_config={"max_depth": 2}, datasets={"train": train},
                          scaling_config=ScalingConfig(num_workers=2))
result = trainer.fit()
assert result.metrics["training_iteration"] == 4 and "train-binary_logloss" in result.metrics
assert RayTrainReportCallback.get_model(result.checkpoint).current_iteration() == 4
""",
    )


def test_lightning_under_rays_names(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
import os, torch, lightning.pytorch as pl
from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment, RayTrainReportCallback, prepare_trainer
from ray.train.torch import TorchTrainer
from torch.utils.data import DataLoader, TensorDataset

class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def train_func():
    x = torch.rand(16, 1)
    trainer = pl.Trainer(max_epochs=2, devices="auto", accelerator="cpu", strategy=RayDDPStrategy(),
                         plugins=[RayLightningEnvironment()], callbacks=[RayTrainReportCallback()],
                         enable_checkpointing=False, enable_progress_bar=False, logger=False)
    trainer = prepare_trainer(trainer)
    trainer.fit(Line(), train_dataloaders=DataLoader(TensorDataset(x, 2 * x), batch_size=4))

result = TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=2)).fit()
assert result.metrics["epoch"] == 1
with result.checkpoint.as_directory() as place:
    assert os.path.exists(os.path.join(place, RayTrainReportCallback.CHECKPOINT_NAME))
""",
    )
