"""What the fork server imports before it forks the workers of a PyTorch run.

Besides torch itself, it imports everything that the first DistributedDataParallel, optimizer step and loader would
import. Those imports take longer than ``import torch``; forked workers inherit them. No tensor operation may run here:
it could start threads, which do not survive a fork.
"""

import torch
import torch._dynamo
import torch.distributed.algorithms.join
import torch.nn.parallel
import torch.optim.lr_scheduler
import torch.profiler._cupti_monitor
import torch.utils.data.distributed  # noqa: F401

from lockstep.torch import backend

backend.is_available()  # loads the backend if it is installed
