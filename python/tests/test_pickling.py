"""The training function's way to the workers, and what it may look like."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from lockstep import ConfigError, DataParallelTrainer, SerializationError
from lockstep._pickling import call, check_signature, dump, dump_config, load, pack, unpack

LOCK = threading.Lock()


class Step:
    """A callable object."""

    def __init__(self, factor: Any) -> None:
        self.factor = factor

    def __call__(self, config: dict[str, int]) -> int:
        return int(config["x"] * self.factor)

    def run(self, config: dict[str, int]) -> int:
        return self(config)


def through(function: Callable[..., Any], config: Any) -> Any:
    check_signature(function)
    return call(*load(dump(function, config))[:2])


def test_functions_of_all_shapes_run() -> None:
    offset = 10

    def with_config(config: dict[str, int]) -> int:
        return config["x"] + offset

    def with_extra(config: dict[str, int], extra: int = 5) -> int:
        return config["x"] + extra

    def two(config: dict[str, int], factor: int) -> int:
        return config["x"] * factor

    config = {"x": 2}
    assert through(with_config, config) == 12
    assert through(with_extra, config) == 7
    assert through(lambda: offset, config) == 10
    assert through(lambda c: c["x"], config) == 2
    assert through(functools.partial(two, factor=4), config) == 8
    assert through(functools.partial(two, {"x": 3}, 2), None) == 6
    assert through(Step(3), config) == 6
    assert through(Step(3).run, config) == 6


def test_a_missing_config_is_an_empty_dict_or_the_default() -> None:
    assert through(lambda config: config, None) == {}
    assert through(lambda config="default": config, None) == "default"
    assert through(lambda config="default": config, {"x": 1}) == {"x": 1}
    assert through(lambda *args, **kwargs: (args, kwargs), {"x": 1}) == ((), {})


def generator(config: Any) -> Any:
    yield 1


async def coroutine(config: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda a, b: None, r"2 parameters without a default \(a, b\)"),
        (functools.partial(lambda a, b, c: None, 1), r"2 parameters without a default \(b, c\)"),
        (lambda *, config: None, "keyword-only parameter config"),
        (lambda config, *, extra: None, r"2 parameters without a default \(config, extra\)"),
        ("train", "must be a function"),
        (None, "must be a function"),
        (generator, "generator function"),
        (functools.partial(generator, 1), "generator function"),
        (coroutine, "coroutine function"),
    ],
)
def test_other_shapes_are_refused_at_construction(function: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        DataParallelTrainer(function)


def test_an_unpicklable_closure_variable_is_named() -> None:
    lock = threading.Lock()

    def train() -> None:
        lock.acquire()

    with pytest.raises(SerializationError, match=r"closure variable 'lock', a _thread.lock, cannot be sent") as caught:
        dump(train, None)
    assert "make it inside the function" in str(caught.value)


def test_an_unpicklable_global_is_named() -> None:
    def train() -> None:
        def inner() -> None:
            LOCK.acquire()

        inner()

    with pytest.raises(SerializationError, match=r"global variable 'LOCK', a _thread\.lock"):
        dump(train, None)


def test_the_way_to_an_unpicklable_part_is_told() -> None:
    holder = Step({"deep": [1, threading.Lock()]})

    def helper() -> Any:
        return holder

    def train() -> None:
        helper()

    with pytest.raises(SerializationError) as caught:
        dump(train, None)
    way = "closure variable 'helper', closure variable 'holder', attribute 'factor'['deep'][1], a _thread.lock"
    assert way in str(caught.value)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (functools.partial(lambda a, b: None, threading.Lock()), "its argument 0, a _thread.lock"),
        (Step(threading.Lock()), "attribute 'factor', a _thread.lock"),
        (Step(threading.Lock()).run, "the object it is bound to, attribute 'factor', a _thread.lock"),
        (lambda config, lock=threading.Lock(): None, "default value 0, a _thread.lock"),  # noqa: B008
    ],
)
def test_unpicklable_callables(function: Any, words: str) -> None:
    with pytest.raises(SerializationError) as caught:
        dump(function, None)
    assert words in str(caught.value)


def test_an_unpicklable_config_value_is_named() -> None:
    with pytest.raises(SerializationError, match=r"train_loop_config\['data'\]\['locks'\]\[1\], a _thread.lock"):
        dump_config({"x": 1, "data": {"locks": [2, threading.Lock()]}})


def test_one_part_can_be_replaced_without_opening_the_others() -> None:
    function, _, backend, *_ = unpack(dump(lambda config: config["x"], {"x": 1}, "backend"))
    loaded = load(pack(bytes(function), dump_config({"x": 5}), bytes(backend)))
    assert call(*loaded[:2]) == 5 and loaded.backend == "backend" and not loaded.datasets
    assert unpack(pack(b"not a pickle", b"", b"neither")) == [b"not a pickle", b"", b"neither", b"", b""]


@pytest.mark.parametrize("size", [0, 1, 23, 64, 65])
def test_data_sets_begin_at_a_multiple_of_64(size: int) -> None:
    payload = pack(b"f" * size, b"c", b"b", b"p", b"data")
    assert unpack(payload)[3:] == [b"p", b"data"] and payload.index(b"data") % 64 == 0


def test_the_bytes_of_earlier_versions_are_read() -> None:
    three = b"".join(len(part).to_bytes(8, "little") + part for part in (b"f", b"c", b"b"))
    assert unpack(three) == [b"f", b"c", b"b", b"", b""]


@pytest.mark.parametrize(
    "payload", [b"", b"\0", b"\xff" * 8, b"\x09" + b"\0" * 7 + b"short", pack(b"a", b"b"), pack(b"", b"", b"")[8:]]
)
def test_broken_bytes_are_refused(payload: bytes) -> None:
    with pytest.raises(ConfigError, match="broken"):
        unpack(payload)
