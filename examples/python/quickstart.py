"""A small convolutional network learns handwritten digits on four workers.

    python examples/python/quickstart.py
    python examples/python/quickstart.py --epochs 16 --resume RUN_DIRECTORY

The data (1797 images of 8 x 8 pixels) ships with scikit-learn; nothing is downloaded. It reaches more than 95 % on
images that it has not seen, and keeps the best two checkpoints.
"""

import argparse
import json
from pathlib import Path

import torch
from lockstep import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, session
from lockstep.torch import TorchTrainer, all_reduce_mean, enable_reproducibility, prepare_data_loader, prepare_model
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset


def digits():
    """Training images and test images."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    inputs = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    inputs, labels = inputs[order], torch.tensor(labels)[order]
    return TensorDataset(inputs[:1440], labels[:1440]), TensorDataset(inputs[1440:], labels[1440:])


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def train_func(config):
    enable_reproducibility(seed=0)
    train_set, test_set = digits()
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    start = 0
    checkpoint = session.get_checkpoint()
    if checkpoint:
        state = checkpoint.to_dict()
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"] + 1
    model = prepare_model(model)
    train_loader = prepare_data_loader(DataLoader(train_set, batch_size=config["batch_size"], shuffle=True))
    test_loader = prepare_data_loader(DataLoader(test_set, batch_size=119))

    for epoch in range(start, config["num_epochs"]):
        train_loader.set_epoch(epoch)
        model.train()
        total = 0.0
        for inputs, labels in train_loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
        model.eval()
        correct = seen = 0
        with torch.no_grad():
            for inputs, labels in test_loader:
                correct += (model(inputs).argmax(1) == labels).sum().item()
                seen += len(labels)
        mean = all_reduce_mean({"loss": total / len(train_loader), "correct": correct, "seen": seen})
        metrics = {"epoch": epoch, "loss": mean["loss"], "accuracy": mean["correct"] / mean["seen"]}
        state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        session.report(metrics, checkpoint=Checkpoint.from_dict(state))


def print_table(reports):
    print(f"\n{'epoch':>5}  {'loss':>8}  {'test accuracy':>13}  {'seconds':>7}")
    for row in reports:
        print(f"{row['epoch']:5d}  {row['loss']:8.4f}  {row['accuracy']:13.2%}  {row['time_this_iter_s']:7.2f}")


def print_plot(losses, height=8):
    """One column per epoch."""
    top = max(losses)
    print("\nloss")
    for level in range(height, 0, -1):
        columns = (" █ " if loss > top * (level - 0.5) / height else "   " for loss in losses)
        print(f"{top * level / height:6.3f} │" + "".join(columns).rstrip())
    print("       └" + "───" * len(losses) + " epochs")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--resume", metavar="RUN_DIRECTORY", help="go on with an earlier run")
    arguments = parser.parse_args()
    settings = {"lr": 2e-3, "batch_size": 16, "num_epochs": arguments.epochs}
    if arguments.resume:
        trainer = TorchTrainer.restore(arguments.resume, train_func, settings)
    else:
        trainer = TorchTrainer(
            train_func,
            train_loop_config=settings,
            scaling_config=ScalingConfig(num_workers=4),
            run_config=RunConfig(
                failure_config=FailureConfig(max_failures=3),
                checkpoint_config=CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="accuracy"),
            ),
        )
    result = trainer.fit()

    reports = [json.loads(line) for line in (result.path / "result.json").read_text().splitlines()]
    print_table(reports)
    print_plot([row["loss"] for row in reports])
    print(f"\ntest accuracy: {result.metrics['accuracy']:.2%}")
    print("best checkpoints:", ", ".join(Path(kept).name for kept, _ in result.best_checkpoints))
    print(f"run directory: {result.path}\n")
    print("look further:")
    print(f"  tensorboard --logdir {result.path}")
    print(f"  lockstep runs {result.path.parent}")
    print(f"  python examples/python/quickstart.py --epochs {2 * arguments.epochs} --resume {result.path}")
