"""Horovod on many workers, which Lockstep starts and connects. For example::

from lockstep import ScalingConfig, session
from lockstep.horovod import HorovodTrainer

def train_func():
    import horovod.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    ...

HorovodTrainer(train_func, scaling_config=ScalingConfig(num_workers=4)).fit()

Importing this module does not import Horovod: the process that calls ``fit()`` need not load it.
"""

from lockstep.horovod.config import HorovodConfig
from lockstep.horovod.trainer import HorovodTrainer

__all__ = ["HorovodConfig", "HorovodTrainer"]
