"""Lightning's Trainer on the workers of a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lockstep import ConfigError, FailureConfig, Result, session
from lockstep.integrations.lightning import (
    DDPStrategy,
    LightningEnvironment,
    ReportCallback,
    ReportCheckpointCallback,
    checkpoint_path,
    prepare_trainer,
)
from torch.utils.data import DataLoader, TensorDataset

Fit = Callable[..., Result]


class Line(lightning.LightningModule):
    """Learns y = 2 x + 1. It keeps which samples it has seen."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[float] = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x, y = batch
        self.seen += x.flatten().tolist()
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        self.log("loss", loss, sync_dist=True, on_epoch=True, on_step=False)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        x, y = batch
        self.log("val_loss", torch.nn.functional.mse_loss(self.layer(x), y), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05)


def loader(rows: int = 32) -> DataLoader[Any]:
    x = torch.arange(rows, dtype=torch.float32).unsqueeze(1) / rows
    return DataLoader(TensorDataset(x, 2 * x + 1), batch_size=4)


def trainer_of(epochs: int, *callbacks: Any, **options: Any) -> Any:
    return lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices="auto",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
        **{"strategy": DDPStrategy(), "plugins": [LightningEnvironment()], **options},
    )


def train_func(config: dict[str, Any]) -> None:
    trainer, module = trainer_of(config["epochs"], ReportCheckpointCallback()), Line()
    assert (trainer.world_size, trainer.global_rank) == (session.get_world_size(), session.get_world_rank())
    with checkpoint_path() as path:
        prepare_trainer(trainer).fit(module, loader(), loader(8), ckpt_path=path)
    if place := config.get("place"):
        weights = [parameter.item() for parameter in module.parameters()]
        Path(place, str(session.get_world_rank())).write_text(repr((sorted(module.seen), weights)))


def alone(epochs: int) -> list[float]:
    """The weights after the same training in one process: batches of all ranks at once."""
    module = Line()
    optimizer = module.configure_optimizers()
    x = torch.arange(32, dtype=torch.float32).unsqueeze(1) / 32
    for _ in range(epochs):
        for first in range(0, 16, 4):  # rank r has the samples r, r + 2, r + 4, ...
            part = torch.cat([x[rank::2][first : first + 4] for rank in range(2)])
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(module.layer(part), 2 * part + 1).backward()
            optimizer.step()
    return [parameter.item() for parameter in module.parameters()]


def test_it_trains_as_one_process_would(torch_fit: Fit, tmp_path: Path) -> None:
    torch.manual_seed(0)

    def in_order(config: dict[str, Any]) -> None:
        module = Line()
        trainer = trainer_of(2, ReportCallback(), use_distributed_sampler=False)
        x = torch.arange(32, dtype=torch.float32).unsqueeze(1)[session.get_world_rank() :: 2] / 32
        trainer.fit(module, DataLoader(TensorDataset(x, 2 * x + 1), batch_size=4))
        Path(config["place"], str(session.get_world_rank())).write_text(repr([p.item() for p in module.parameters()]))

    torch_fit(in_order, config={"place": str(tmp_path)})
    for rank in range(2):
        assert eval((tmp_path / str(rank)).read_text()) == pytest.approx(alone(2), rel=1e-5)


def test_ranks_share_the_samples(torch_fit: Fit, tmp_path: Path) -> None:
    result = torch_fit(train_func, config={"epochs": 1, "place": str(tmp_path)})
    seen = [eval((tmp_path / str(rank)).read_text())[0] for rank in range(2)]
    assert sorted(seen[0] + seen[1]) == [row / 32 for row in range(32)]
    assert result.metrics["epoch"] == 0
    assert result.metrics["step"] == 4
    assert {"loss", "val_loss"} <= set(result.metrics)


def test_a_failed_run_continues_from_lightnings_checkpoint(torch_fit: Fit, tmp_path: Path) -> None:
    def fails_once(config: dict[str, Any]) -> None:
        class Fails(lightning.Callback):
            def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
                if trainer.current_epoch == 2 and not (tmp_path / "failed").exists():
                    torch.distributed.barrier()
                    (tmp_path / "failed").touch()
                    raise RuntimeError("once")

        trainer = trainer_of(4, ReportCheckpointCallback(), Fails())
        with checkpoint_path() as path:
            (tmp_path / f"starts-{os.getpid()}").write_text(str(path is not None))
            prepare_trainer(trainer).fit(Line(), loader(), ckpt_path=path)

    result = torch_fit(fails_once, failure_config=FailureConfig(max_failures=1))
    assert [result.metrics[name] for name in ("epoch", "training_iteration")] == [3, 4]
    assert len(result.failures) >= 1
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as directory:
        saved = torch.load(Path(directory, "checkpoint.ckpt"), weights_only=False)
    assert saved["epoch"] == 3


def test_metrics_can_be_chosen(torch_fit: Fit) -> None:
    def chosen() -> None:
        trainer_of(1, ReportCallback(metrics={"error": "loss"})).fit(Line(), loader())

    result = torch_fit(chosen)
    assert "error" in result.metrics
    assert "loss" not in result.metrics


def test_fewer_checkpoints(torch_fit: Fit) -> None:
    def rarely() -> None:
        trainer_of(5, ReportCheckpointCallback(every=2)).fit(Line(), loader())

    result = torch_fit(rarely)
    assert result.metrics["training_iteration"] == 5
    assert [metrics["epoch"] for _, metrics in result.best_checkpoints] == [1, 3, 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "auto", "plugins": None}, "the trainer's strategy is SingleDeviceStrategy"),
        ({"plugins": None}, r"the trainer's environment is lightning\.\S+LightningEnvironment; write"),
    ],
)
def test_a_trainer_that_would_train_elsewhere_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare_trainer(trainer_of(1, **options))


def test_unknown_metrics_and_intervals_are_refused() -> None:
    with pytest.raises(ConfigError, match="every is 0"):
        ReportCheckpointCallback(every=0)
