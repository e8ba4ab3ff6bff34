"""A model that is divided among the workers (FSDP2). Every worker writes a part of each checkpoint.

    python examples/python/torch_fsdp.py

Trains on two workers, continues on three from the checkpoint of the two, and assembles the model in one process.
"""

import os
import tempfile

import torch
import torch.distributed.checkpoint as dcp
from lockstep import Checkpoint, CheckpointConfig, RunConfig, ScalingConfig, session
from lockstep.torch import TorchTrainer, all_reduce_mean, get_device
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard


def build():
    return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))


def save(directory, model, optimizer, epoch):
    """Every rank writes its part into its own directory; rank 0 also writes the index."""
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state, "epoch": epoch}, checkpoint_id=directory)


def load(directory, model, optimizer):
    """Every rank reads its part; another number of ranks may have written the checkpoint. Returns the epoch."""
    weights, state = get_state_dict(model, optimizer)
    saved = {"model": weights, "optimizer": state, "epoch": 0}
    dcp.load(saved, checkpoint_id=directory)
    set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
    return saved["epoch"]


def train_func(config):
    torch.manual_seed(0)  # every rank builds the same model: nothing is sent from rank 0
    model = build().to(get_device())
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    start = 0
    if checkpoint := session.get_checkpoint():
        with checkpoint.as_directory() as directory:
            start = load(directory, model, optimizer) + 1
    for epoch in range(start, config["num_epochs"]):
        torch.manual_seed(epoch * session.get_world_size() + session.get_world_rank())
        for _ in range(20):
            inputs = torch.randn(32, 8, device=get_device())
            loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as directory:
            save(directory, model, optimizer, epoch)
            metrics = all_reduce_mean({"epoch": epoch, "loss": loss.item()}) | {"start": start}
            session.report(metrics, checkpoint=Checkpoint.from_directory(directory))


def run(num_workers, num_epochs, resume_from=None):
    return TorchTrainer(
        train_func,
        train_loop_config={"num_epochs": num_epochs},
        scaling_config=ScalingConfig(num_workers=num_workers),
        # keep_all_ranks: the checkpoint consists of the parts of all ranks, not only of rank 0's.
        run_config=RunConfig(checkpoint_config=CheckpointConfig(num_to_keep=2, keep_all_ranks=True)),
        resume_from_checkpoint=resume_from,
    ).fit()


def whole(checkpoint):
    """The model in one process, without workers."""
    with checkpoint.as_directory() as directory, tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "model.pt")
        dcp_to_torch_save(directory, path)
        state = torch.load(path)
    model = build()
    model.load_state_dict(state["model"])
    return model


if __name__ == "__main__":
    first = run(num_workers=2, num_epochs=3)
    parts = [name for name in os.listdir(first.checkpoint.path) if name.endswith(".distcp")]
    print("parts that ranks wrote:", len(parts))
    second = run(num_workers=3, num_epochs=6, resume_from=first.path)
    print("three workers went on at epoch:", second.metrics["start"])
    inputs = torch.randn(256, 8)
    loss = (whole(second.checkpoint)(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    print("learned:", second.metrics["loss"] < first.metrics["loss"] and loss.item() < 2)
