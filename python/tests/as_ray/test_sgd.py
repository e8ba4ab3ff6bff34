"""RaySGD's Trainer under the alias, where it differs from Lockstep's own."""

from __future__ import annotations

from .conftest import Script

HEAD = """
import pytest, ray
from ray.util.sgd import v2 as sgd
from ray.util.sgd.v2 import SGDCallback, Trainer
from ray.util.sgd.v2.backends.backend import Backend, BackendConfig

class TestConfig(BackendConfig):
    @property
    def backend_cls(self):
        return TestBackend

class TestBackend(Backend):
    pass
"""


def test_bad_backends(script: Script) -> None:
    script(f"""{HEAD}
for wrong in (5, None, TestConfig):
    with pytest.raises(TypeError, match="backend is"):
        Trainer(wrong)
with pytest.raises(ValueError, match="invalid"):
    Trainer("invalid")
with pytest.raises(ValueError, match="num_workers"):
    Trainer("torch", 0)
""")


def test_iterators(script: Script) -> None:
    script(f"""{HEAD}
trainer = Trainer(TestConfig(), num_workers=2)
trainer.start()

def count():
    for index in range(3):
        sgd.report(index=index)
    return 1

iterator = trainer.run_iterator(count)
assert iterator.get_final_results() is None
assert next(iterator)[0]["index"] == 0
assert iterator.get_final_results(force=True) == [1, 1] == iterator.get_final_results()
with pytest.raises(StopIteration):
    next(iterator)

def fail():
    sgd.report(loss=1)
    raise NotImplementedError

iterator = trainer.run_iterator(fail)
assert [result["loss"] for result in next(iterator)] == [1, 1]
with pytest.raises(NotImplementedError):
    next(iterator)
assert iterator.is_finished() and iterator.get_final_results() is None
iterator = trainer.run_iterator(fail)
with pytest.raises(NotImplementedError):
    iterator.get_final_results(force=True)

def leave():
    import sys
    sys.exit(1)

iterator = trainer.run_iterator(leave)
with pytest.raises(RuntimeError):
    iterator.get_final_results(force=True)
assert iterator._executor._num_failures == 3 == trainer._backend_executor._num_failures
trainer.shutdown()
""")


def test_worker_groups(script: Script) -> None:
    script(f"""{HEAD}
import torch
from torch import distributed

class Worker:
    def __init__(self, config):
        self.epoch, self.config = 0, config

    def train_epoch(self, step=1):
        self.epoch += step
        return self.epoch

    def total(self):
        number = torch.ones(1) + sgd.world_rank()
        distributed.all_reduce(number)
        return number.item()

    def fail(self):
        raise KeyError("x")

workers = Trainer(backend="torch", num_workers=2).to_worker_group(train_cls=Worker, config={{"lr": 0.1}})
assert len(workers) == 2
assert ray.get([worker.train_epoch.remote() for worker in workers]) == [1, 1]
assert ray.get(workers[0].train_epoch.remote(step=2)) == 3
assert ray.get(workers[1].train_epoch.remote(ray.put(4))) == 5
assert ray.get([worker.total.remote() for worker in workers]) == [3.0, 3.0]
ready, left = ray.wait([worker.train_epoch.remote() for worker in workers], num_returns=2)
assert ray.get(ready) == [4, 6] and not left
with pytest.raises(KeyError):
    ray.get(workers[1].fail.remote())
workers.shutdown()
""")


def test_calls_take_the_values_of_earlier_calls(script: Script) -> None:
    script(f"""{HEAD}
class Worker:
    def __init__(self):
        self.weight = 0

    def grad(self, of=1):
        return of

    def apply(self, *grads):
        self.weight += sum(ray.get(each) if isinstance(each, ray.ObjectRef) else each for each in grads)
        return self.weight

    def apply_all(self, grads):
        return self.apply(*grads)

    def apply_of(self, holder):
        return self.apply(holder.grad)

    def fail(self):
        raise KeyError("x")

first, second = workers = Trainer("torch", num_workers=2).to_worker_group(Worker)
grad = first.grad.remote()
assert ray.get(second.apply.remote(grad)) == 1
assert ray.get(first.apply.remote(first.grad.remote(of=2))) == 2
grads = [worker.grad.remote(first.grad.remote(of=5)) for worker in workers]
done = [worker.apply_all.remote(grads) for worker in workers]
assert ray.get(done) == [12, 11]
assert ray.get(second.apply_all.remote((first.grad.remote(of=4),))) == 15

# An error belongs to the calls that take it.
failed = first.fail.remote()
calls = [first.apply.remote(failed), second.apply_all.remote([failed]), second.apply.remote(1), first.apply.remote(1)]
assert ray.get(calls[2:]) == [16, 13]
for call in calls[:2]:
    with pytest.raises(KeyError):
        ray.get(call)

class Holder:
    pass

holder = Holder()
holder.grad = first.grad.remote()
with pytest.raises(RuntimeError, match="attribute 'grad'"):
    ray.get(second.apply_of.remote(holder))
assert ray.get(second.apply.remote(0)) == 16
workers.shutdown()
""")


def test_models_in_reports(script: Script) -> None:
    script(f"""{HEAD}
import torch
from torch.nn.parallel import DistributedDataParallel

def train_func():
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    sgd.save_checkpoint(model=model)
    sgd.report(model=model, loss=0.5)

class Seen(SGDCallback):
    def handle_result(self, results, **info):
        self.models = [result["model"] for result in results]

trainer, seen = Trainer("torch", 2), Seen()
trainer.start()
trainer.run(train_func, callbacks=[seen])
trainer.shutdown()
assert [type(model) for model in (*seen.models, trainer.latest_checkpoint["model"])] == [torch.nn.Linear] * 3
""")
