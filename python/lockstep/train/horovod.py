"""``lockstep.train.horovod`` is ``lockstep.horovod``: the place that users of Ray Train look in."""

import sys

import lockstep.horovod

sys.modules[__name__] = lockstep.horovod
