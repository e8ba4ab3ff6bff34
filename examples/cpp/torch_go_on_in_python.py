"""Continues the run of example_torch_digits in Python; C++ can then continue from the result.

    example_torch_digits --epochs 2
    python examples/cpp/torch_go_on_in_python.py RUN_DIRECTORY   trains one more epoch
    example_torch_digits --epochs 4 --resume THE_NEW_RUN_DIRECTORY

A checkpoint holds tensors by parameter name, so `load_state_dict` accepts them unchanged, in both directions.
"""

import sys
from pathlib import Path

import torch
from lockstep import Checkpoint, Result, RunConfig, ScalingConfig, session
from lockstep.torch import TorchTrainer, enable_reproducibility, prepare_data_loader, prepare_model
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

sys.path.append(str(Path(__file__).parents[1] / "python"))


def train_func():
    from quickstart import digits, network

    enable_reproducibility(seed=0)
    train_set, test_set = digits()
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    saved = session.get_checkpoint().to_dict()
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    inputs, labels = test_set.tensors
    before = (model(inputs).argmax(1) == labels).float().mean().item()
    model = prepare_model(model)
    loader = prepare_data_loader(DataLoader(train_set, batch_size=16, shuffle=True))
    loader.set_epoch(saved["epoch"] + 1)
    for images, digit in loader:
        optimizer.zero_grad()
        cross_entropy(model(images), digit).backward()
        optimizer.step()
    after = (model(inputs).argmax(1) == labels).float().mean().item()
    state = {"epoch": saved["epoch"] + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    session.report(
        {"epoch": state["epoch"], "before": before, "accuracy": after}, checkpoint=Checkpoint.from_dict(state)
    )


if __name__ == "__main__":
    result = TorchTrainer(
        train_func,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=Path(sys.argv[1]).parent),
        resume_from_checkpoint=Result.from_path(sys.argv[1]).checkpoint,
    ).fit()
    print(f"accuracy of C++'s model in Python: {result.metrics['before']:.2%}")
    print(f"after an epoch in Python: {result.metrics['accuracy']:.2%}")
    print(f"run directory: {result.path}")
