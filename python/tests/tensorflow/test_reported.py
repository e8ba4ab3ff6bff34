"""Tensors of TensorFlow in reports."""

from __future__ import annotations

import numpy
import pytest
import tensorflow as tf
from lockstep import _core
from lockstep._reported import reported


def test_tensors_and_variables() -> None:
    for one in (tf.constant(2.5), tf.constant([[2.5]]), tf.Variable(2.5), tf.constant(2.5, tf.bfloat16)):
        assert reported(one) == 2.5 and type(reported(one)) is float
    assert reported(tf.constant(True)) is True
    several = reported(tf.Variable([[1, 2], [3, 4]], dtype=tf.int32))
    assert type(several) is numpy.ndarray and several.dtype == numpy.int32 and several.tolist() == [[1, 2], [3, 4]]
    assert reported(tf.ones(2, tf.bfloat16)).dtype == numpy.float32


def test_a_tensor_of_a_graph_has_no_value_yet() -> None:
    raised: list[TypeError] = []

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        with pytest.raises(TypeError, match=r'value\["loss"\] is a tensor of a graph') as caught:
            _core.as_in_files({"loss": x})
        raised.append(caught.value)
        return x

    step(tf.ones(2))
    assert raised


def test_sparse_tensors_are_refused() -> None:
    with pytest.raises(TypeError, match=r'value\["x"\] is a tensorflow.*SparseTensor'):
        _core.as_in_files({"x": tf.sparse.from_dense([[1, 0]])})
