"""PyTorch on many workers: three lines turn a single-process loop into a distributed one. For example::

from lockstep import ScalingConfig, session
from lockstep.torch import TorchTrainer, prepare_data_loader, prepare_model

def train_func():
    model = prepare_model(Net())                                      # 1
    loader = prepare_data_loader(DataLoader(data, batch_size=32))     # 2
    ...

TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=4)).fit()    # 3
"""

from lockstep.torch import _require as _require
from lockstep.torch.amp import accelerate, backward, prepare_optimizer
from lockstep.torch.checkpoint import TorchCheckpoint
from lockstep.torch.config import TorchConfig
from lockstep.torch.loader import prepare_data_loader
from lockstep.torch.metrics import all_reduce_mean
from lockstep.torch.model import get_device, prepare_model
from lockstep.torch.predictor import TorchPredictor
from lockstep.torch.profiler import TorchWorkerProfiler
from lockstep.torch.reproducibility import enable_reproducibility
from lockstep.torch.trainer import TorchTrainer

__all__ = [
    "TorchCheckpoint",
    "TorchConfig",
    "TorchPredictor",
    "TorchTrainer",
    "TorchWorkerProfiler",
    "accelerate",
    "all_reduce_mean",
    "backward",
    "enable_reproducibility",
    "get_device",
    "prepare_data_loader",
    "prepare_model",
    "prepare_optimizer",
]
