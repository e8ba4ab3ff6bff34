"""JAX arrays in reports. They run in their own process, because other tests need one that has not imported JAX."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import jax
import jax.numpy as jnp
import numpy
import pytest
from lockstep import _core
from lockstep._reported import reported

for one in (jnp.float32(2.5), jnp.array([[2.5]]), jnp.bfloat16(2.5), numpy.asarray(jnp.bfloat16(2.5))):
    assert reported(one) == 2.5 and type(reported(one)) is float
several = reported(jnp.arange(4).reshape(2, 2))
assert type(several) is numpy.ndarray and several.tolist() == [[0, 1], [2, 3]]
assert reported(jnp.ones(2, jnp.bfloat16)).dtype == numpy.float32

# What jit traces has no value yet.
with pytest.raises(TypeError, match=r'value\\["loss"\\] is a .*Tracer that cannot be read here'):
    jax.jit(lambda x: _core.as_in_files({"loss": x}))(jnp.ones(2))
"""


def test_arrays() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
