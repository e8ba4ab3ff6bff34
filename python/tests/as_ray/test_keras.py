"""Keras callbacks by module: Ray 2.0's works; creating that of Ray 2.6 raises."""

from __future__ import annotations

import pytest

from .conftest import Script

RELEASES = ("1.7", "2.0", "2.6")


@pytest.mark.parametrize("release", RELEASES)
def test_the_older_callback_of_the_newer_module_raises_a_deprecation_warning(script: Script, release: str) -> None:
    code = """
import sys
from ray.air.integrations.keras import Callback

class Mine(Callback):
    def __init__(self):
        super().__init__(metrics=["loss"])

for make in (Callback, lambda: Callback("loss", on="train_end", frequency=2), Mine):
    try:
        make()
    except DeprecationWarning as error:
        print(error)
assert "tensorflow" not in sys.modules
"""
    lines = script(code, LOCKSTEP_AS_RAY=release).stdout.splitlines()
    assert len(lines) == 3 and len(set(lines)) == 1
    assert lines[0].startswith("[ray.air.integrations.keras.Callback]") and "ReportCheckpointCallback(" in lines[0]


@pytest.mark.parametrize("release", RELEASES)
def test_the_other_keras_callbacks_are_those_of_lockstep(script: Script, release: str) -> None:
    code = """
import ray.air.callbacks.keras, ray.air.integrations.keras, ray.train.tensorflow, lockstep.integrations.keras as ours
assert ray.air.callbacks.keras.Callback is ours.Callback
assert ray.air.integrations.keras.ReportCheckpointCallback is ours.ReportCheckpointCallback
assert ray.train.tensorflow.keras.ReportCheckpointCallback is ours.ReportCheckpointCallback
assert ray.air.integrations.keras.Callback is not ours.Callback
"""
    script(code, LOCKSTEP_AS_RAY=release)
