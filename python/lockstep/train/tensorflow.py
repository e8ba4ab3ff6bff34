"""``lockstep.train.tensorflow`` is ``lockstep.tensorflow``: the place that users of Ray Train look in."""

import sys

import lockstep.tensorflow

sys.modules[__name__] = lockstep.tensorflow
