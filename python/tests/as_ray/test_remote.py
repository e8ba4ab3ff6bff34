"""`@ray.remote`: tasks and actors in processes of this machine."""

from __future__ import annotations

from .conftest import Script

HEAD = """
import os, time
import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

def raised(kind, use):
    try:
        use()
    except kind as error:
        return error
    raise AssertionError("nothing was raised")

if True:
"""


def test_tasks(script: Script) -> None:
    script(
        HEAD
        + """
    ray.init(num_cpus=2)

    @ray.remote
    def square(x, plus=0):
        return x * x + plus, os.getpid()

    refs = [square.remote(x) for x in range(6)]
    values = ray.get(refs)
    assert [value for value, _ in values] == [0, 1, 4, 9, 16, 25]
    pids = {pid for _, pid in values}
    assert 1 <= len(pids) <= 2 and os.getpid() not in pids  # two at a time, in warm processes

    @ray.remote(num_returns=2)
    def both(pair):
        return pair[0], "second"

    first, second = both.remote(square.remote(3, plus=ray.put(1)))  # references among the arguments are resolved
    assert ray.get([first, second]) == [10, "second"]
    assert ray.get(both.options(num_returns=1).remote((5,))) == (5, "second")

    @ray.remote
    def nested(refs):
        return sum(ray.get(square.remote(x))[0] for x in range(3)) + ray.get(refs[0])

    assert ray.get(nested.remote([ray.put(100)])) == 105

    @ray.remote(num_cpus=3)
    def large(): ...
    assert "3 CPUs, but there are 2" in str(raised(ValueError, large.remote))
    assert "square.remote" in str(raised(TypeError, lambda: square(1)))
"""
    )


def test_errors_of_tasks(script: Script) -> None:
    script(
        HEAD
        + """
    class Own(ValueError): ...

    @ray.remote
    def fails(kind):
        if kind == "die":
            os._exit(3)
        raise Own("bad input")

    error = raised(RayTaskError, lambda: ray.get(fails.remote("raise")))
    assert isinstance(error, ValueError) and "bad input" in str(error)
    assert "bad input" in str(raised(ValueError, lambda: ray.get(fails.remote("raise"))))

    @ray.remote
    def ok(x): return x
    assert "bad input" in str(raised(ValueError, lambda: ray.get(ok.remote(fails.remote("raise")))))
    raised(RayActorError, lambda: ray.get(fails.remote("die")))
    assert ray.get(ok.remote(7)) == 7  # another process takes its place

    @ray.remote
    def slow():
        time.sleep(60)
    raised(GetTimeoutError, lambda: ray.get(slow.remote(), timeout=0.2))
"""
    )


def test_wait(script: Script) -> None:
    script(
        HEAD
        + """
    ray.init(num_cpus=2)

    @ray.remote
    def after(path, value):
        while path and not os.path.exists(path):
            time.sleep(0.01)
        return value

    late, soon = after.remote("go", 1), after.remote("", 2)
    assert ray.wait([late, soon]) == ([soon], [late])
    assert ray.wait([late], timeout=0.05) == ([], [late])
    open("go", "w").close()
    assert ray.wait([late, soon], num_returns=2) == ([late, soon], [])
    assert ray.get(late) == 1
"""
    )


def test_actors(script: Script) -> None:
    script(
        HEAD
        + """
    @ray.remote
    class Counter:
        def __init__(self, start=0):
            self.value = start

        def add(self, x=1):
            self.value += x
            return self.value

        def pid(self):
            return os.getpid()

        @ray.method(num_returns=2)
        def pair(self):
            return self.value, "x"

        def fail(self):
            raise KeyError("nothing there")

    counter, other = Counter.remote(10), Counter.options(name="other", num_cpus=1).remote()
    assert ray.get([counter.add.remote() for _ in range(5)]) == [11, 12, 13, 14, 15]  # in order
    assert ray.get(counter.add.remote(x=ray.put(5))) == 20
    assert ray.get(other.add.remote()) == 1 and ray.get_actor("other") is other
    assert ray.get(counter.pid.remote()) != ray.get(other.pid.remote())
    value, text = counter.pair.remote()
    assert (ray.get(value), ray.get(text)) == (20, "x")
    raised(KeyError, lambda: ray.get(counter.fail.remote()))
    assert ray.get(counter.add.remote(0)) == 20  # its state stays
    assert "no method" in str(raised(AttributeError, lambda: counter.nothing))
    ray.kill(counter)
    raised(RayActorError, lambda: ray.get(counter.add.remote()))
    assert ray.get(other.add.remote()) == 2
"""
    )


def test_tasks_beside_a_trainer(script: Script) -> None:
    script(
        HEAD
        + """
    from ray import train
    from ray.train import ScalingConfig
    from ray.train.data_parallel_trainer import DataParallelTrainer

    @ray.remote
    def load(part):
        return list(range(part * 3, part * 3 + 3))

    parts = ray.get([load.remote(part) for part in range(4)])

    def train_func(config):
        train.report({"sum": sum(map(sum, config["parts"])), "again": ray.get(load.remote(0))[2]})

    result = DataParallelTrainer(train_func, train_loop_config={"parts": parts},
                                 scaling_config=ScalingConfig(num_workers=2)).fit()
    assert (result.metrics["sum"], result.metrics["again"]) == (66, 2)
    assert ray.get(load.remote(1)) == [3, 4, 5]
"""
    )
