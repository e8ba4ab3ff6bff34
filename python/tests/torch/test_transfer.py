"""Batches of a prepared loader on the worker's device."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from lockstep.torch import _context, _transfer
from made_loaders import Numbers, Prepare
from torch.utils.data import DataLoader

Point = namedtuple("Point", ["x", "y"])


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    tensor: torch.Tensor
    name: str


class Graph:
    def __init__(self, device: str = "cpu") -> None:
        self.device = torch.device(device)

    def to(self, device: torch.device) -> Graph:
        return Graph(str(device))


META = torch.device("meta")


def test_move_finds_tensors_wherever_they_are() -> None:
    def tensor() -> torch.Tensor:
        return torch.zeros(2)

    counts: defaultdict[str, Any] = defaultdict(list)
    counts["a"] = tensor()
    value = {
        "tensor": tensor(),
        "tuple": (tensor(), 1, "text"),
        "list": [tensor(), [tensor(), None]],
        "named": Point(tensor(), Pair(tensor(), 2.5)),
        "ordered": OrderedDict(z=tensor(), a=3),
        "default": counts,
        "user": UserDict({"k": tensor()}),
        "proxy": MappingProxyType({"k": tensor()}),
        "dataclass": Frozen(tensor(), "n"),
        "graph": Graph(),
        "class": torch.Tensor,
        "packed": torch.nn.utils.rnn.pack_sequence([torch.zeros(2), torch.zeros(1)]),
        "bytes": b"x",
        "set": {1},
    }
    moved = _transfer.move(value, META)
    assert type(moved) is dict
    assert list(moved) == list(value)
    found = [
        moved["tensor"],
        moved["tuple"][0],
        moved["list"][0],
        moved["list"][1][0],
        moved["named"].x,
        moved["named"].y.left,
        moved["ordered"]["z"],
        moved["default"]["a"],
        moved["user"]["k"],
        moved["proxy"]["k"],
        moved["dataclass"].tensor,
        moved["graph"],
        moved["packed"].data,
    ]
    assert [each.device for each in found] == [META] * len(found)
    for name in value.keys() - {"proxy"}:
        assert type(moved[name]) is type(value[name]), name
    assert (moved["tuple"][1:], moved["named"].y.right, moved["dataclass"].name) == ((1, "text"), 2.5, "n")
    assert list(moved["ordered"]) == ["z", "a"]
    assert moved["default"]["new"] == []
    assert (moved["class"], moved["bytes"], moved["set"]) == (torch.Tensor, b"x", {1})
    assert value["list"][1][0].device.type == "cpu"  # type: ignore[index]
    assert value["default"]["a"].device.type == "cpu"  # type: ignore[index]


def test_batches_are_moved_to_the_workers_device(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_context, "device", lambda: META)

    def collate(items: list[int]) -> Point:
        return Point(torch.tensor(items), {"n": len(items)})

    given = DataLoader(Numbers(5), 2, collate_fn=collate)
    for options in ({}, {"auto_transfer": False}, {"add_dist_sampler": False}):
        moved = list(prepare(0, 1, given, **options))
        assert [type(batch) for batch in moved] == [Point] * 3
        assert [batch.x.device for batch in moved] == [META] * 3
        assert [batch.y["n"] for batch in moved] == [2, 2, 1]
    kept = list(prepare(0, 1, given, move_to_device=False))
    assert [batch.x.tolist() for batch in kept] == [[0, 1], [2, 3], [4]]


def test_on_the_cpu_batches_are_the_very_same_objects(prepare: Prepare) -> None:
    class Moveless:
        def to(self, device: torch.device) -> Any:
            raise AssertionError("nothing is to be moved on the CPU")

    batch = Moveless()
    loader = prepare(0, 1, DataLoader(Numbers(2), 1, collate_fn=lambda items: batch))
    assert all(given is batch for given in loader)


class FakeCuda:
    """Writes down what is done to streams, tensors and the source, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.active = "main"

    def Stream(self, device: torch.device) -> str:
        return "side"

    def stream(self, stream: str) -> FakeCuda:
        self.entering = stream
        return self

    def __enter__(self) -> None:
        self.active = self.entering

    def __exit__(self, *error: object) -> None:
        self.active = "main"

    def current_stream(self, device: torch.device) -> Any:
        cuda = self

        class Current:
            def wait_stream(self, other: str) -> None:
                cuda.log.append(f"main waits for {other}")

        return Current()


class FakeTensor(torch.Tensor):
    """On the CPU; says that it is on CUDA once it has been moved."""

    cuda_log: FakeCuda
    number: int
    there: bool = False

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return self.there

    def is_pinned(self, *arguments: Any) -> bool:
        return True

    def to(self, *arguments: Any, **options: Any) -> FakeTensor:  # type: ignore[override]
        if not self.there:
            assert options == {"non_blocking": True}
            self.cuda_log.log.append(f"copy {self.number} on {self.cuda_log.active}")
        return fake_tensor(self.cuda_log, self.number, there=True)

    def record_stream(self, stream: Any) -> None:
        assert type(stream).__name__ == "Current"
        self.cuda_log.log.append(f"record {self.number}")


def fake_tensor(cuda: FakeCuda, number: int, there: bool = False) -> FakeTensor:
    made = torch.zeros(1).as_subclass(FakeTensor)
    made.cuda_log, made.number, made.there = cuda, number, there
    return made


class FakeGraph:
    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda

    def to(self, device: torch.device) -> str:
        self.cuda.log.append(f"graph on {self.cuda.active}")
        return "moved graph"


def test_the_next_batch_is_copied_on_a_side_stream_before_the_current_one_is_used() -> None:
    cuda = FakeCuda()

    def source() -> Iterator[Any]:
        for number in range(3):
            cuda.log.append(f"load {number}")
            yield {"x": [fake_tensor(cuda, number)], "graph": FakeGraph(cuda)}

    for batch in _transfer.moved_ahead(source(), torch.device("cuda", 0), cuda):
        assert batch["x"][0].is_cuda
        assert batch["graph"] == "moved graph"
        cuda.log.append(f"use {batch['x'][0].number}")
    one = ["main waits for side", "record {0}", "graph on main", "load {1}", "copy {1} on side", "use {0}"]
    last = ["main waits for side", "record 2", "graph on main", "use 2"]
    rounds = [step.format(number, number + 1) for number in range(2) for step in one]
    assert cuda.log == ["load 0", "copy 0 on side", *rounds, *last]


@pytest.mark.parametrize(("auto", "expected"), [(True, "ahead"), (False, "plain")])
def test_only_a_gpu_is_filled_ahead(
    prepare: Prepare, monkeypatch: pytest.MonkeyPatch, auto: bool, expected: str
) -> None:
    used = []
    monkeypatch.setattr(_context, "device", lambda: torch.device("cuda", 0))
    monkeypatch.setattr(_transfer, "moved_ahead", lambda batches, device: used.append("ahead") or batches)
    monkeypatch.setattr(_transfer, "moved", lambda batches, device: used.append("plain") or batches)
    list(prepare(0, 1, DataLoader(Numbers(2)), auto_transfer=auto))
    assert used == [expected]


def test_a_batch_that_is_only_copied_ahead_does_not_count(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_context, "device", lambda: torch.device("cuda", 0))

    def ahead(batches: Any, device: Any) -> Iterator[Any]:
        yield from list(batches)

    monkeypatch.setattr(_transfer, "moved_ahead", ahead)
    loader = prepare(0, 1, DataLoader(Numbers(8), 2))
    assert [loader.state_dict()["samples"] for _ in loader] == [2, 4, 6, 8]
