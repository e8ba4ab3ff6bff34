"""Automatic mixed precision and reproducible numbers, in four more lines.

    python examples/python/torch_mixed_precision.py

Two runs with the same seed give the same loss to the last bit.
"""

import torch
from lockstep import ScalingConfig, session
from lockstep.torch import (
    TorchTrainer,
    accelerate,
    backward,
    enable_reproducibility,
    prepare_data_loader,
    prepare_model,
    prepare_optimizer,
)
from torch.utils.data import DataLoader, TensorDataset


def train_func(config):
    enable_reproducibility(seed=config["seed"])
    accelerate(amp=True)
    inputs = torch.randn(512, 8)
    loader = prepare_data_loader(DataLoader(TensorDataset(inputs, inputs.sum(1, True)), batch_size=32, shuffle=True))
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)))
    optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.02))
    for epoch in range(5):
        for batch, targets in loader:
            optimizer.zero_grad()
            loss = (model(batch) - targets).square().mean()
            backward(loss)
            optimizer.step()
        session.report({"epoch": epoch, "loss": loss.item()})


def run():
    trainer = TorchTrainer(train_func, train_loop_config={"seed": 1}, scaling_config=ScalingConfig(num_workers=2))
    return trainer.fit().metrics["loss"]


if __name__ == "__main__":
    first, second = run(), run()
    print("learned:", first < 1)
    print("bit-equal:", first == second)
