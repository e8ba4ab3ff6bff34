"""``lockstep.train.torch`` is ``lockstep.torch``: the place that users of Ray Train look in."""

import sys

import lockstep.torch

sys.modules[__name__] = lockstep.torch
