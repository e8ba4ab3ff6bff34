"""Keeps nodes of a Ray cluster for a driver, and runs its agents there: the helper program of ``src/engine/ray``.

It alone imports Ray. It speaks with the driver over the socket whose number is its argument, a JSON object a line:

    driver ── {"address", "nodes", "workers", ...}, then {"launch", "argv", "secret"}, {"replace"} ──► helper
    driver ◄─ {"waiting"}, {"nodes"} or {"failed"}, then {"ended", "why"}, {"replaced", "node"}, {"noted"} ── helper

When the socket ends, it kills the actors, leaves the cluster and ends. An actor's agent ends with the actor.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

STOP_WITHIN = 2.0
"""Seconds for an agent; then it is killed."""
LEAVE_WITHIN = 6.0
"""Seconds; then it ends without a good-bye, and Ray cleans up after it."""
TELL_AFTER = 5.0
"""Seconds that Ray may take to find room before the user is told what it waits for."""
TRY_AGAIN = 1.0
"""Seconds between two attempts to get an actor in place of a lost one."""
CONNECT_WITHIN = 10.0
"""Seconds for the cluster's head to answer."""
LAST_BYTES = 4096
"""Of what an agent printed."""

# Sent to the agent when its actor ends: the agent then kills its workers, which a SIGKILL would leave to themselves.
RUN_BOUND = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


class ConfigProblem(Exception):
    """What the user must change."""


class Keeper:
    """An actor: holds a part of a node, and runs an agent there. Two calls at once: run() and stop()."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def about(self) -> dict[str, Any]:
        import ray

        context = ray.get_runtime_context()
        return {
            "node": context.get_node_id(),
            "host": socket.gethostname(),
            "gpus": [str(each) for each in context.get_accelerator_ids().get("GPU", [])],
        }

    def run(self, argv: list[str], secret: str, gpus: list[str]) -> str:
        """Runs the agent to its end; says how it ended. Its standard input ends when this process does."""
        import importlib.util
        import tempfile

        def program() -> list[str]:
            if shutil.which(argv[0]):
                return argv
            package = importlib.util.find_spec("lockstep")
            for place in package.submodule_search_locations or () if package else ():
                if shutil.which(agent := os.path.join(place, "bin", "lockstep-agent")):
                    return [agent, *argv[1:]]
            if found := shutil.which("lockstep"):
                return [found, "agent", *argv[1:]]
            raise FileNotFoundError(
                f"lockstep is not installed on {socket.gethostname()}: there is no {argv[0]}, {sys.executable} has no "
                "package lockstep, and there is no lockstep in PATH; install the same version there"
            )

        # Ray sets the number of threads for what it takes for a task of few cores.
        env = {
            name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "LOCKSTEP_AGENT_ID")
        }
        env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        with tempfile.TemporaryFile() as output:
            try:
                command = program()
            except FileNotFoundError as problem:
                return str(problem)
            process = self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", RUN_BOUND, str(os.getpid()), *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=env,
                start_new_session=True,
            )
            assert process.stdin
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(f"{secret}\n".encode())
                process.stdin.flush()
            code = process.wait()
            output.seek(max(output.tell() - LAST_BYTES, 0))
            said = output.read().decode(errors="replace").strip()
        how = f"signal {-code}" if code < 0 else f"code {code}"
        return f"the agent has ended with {how}" + (f": {said}" if said else "")

    def stop(self) -> None:
        """Ends the agent in peace. Ray kills it with the actor, and then what its workers started stays behind."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_WITHIN)


@dataclass
class Node:
    """A node of the run: the actors on it, the first of which runs the agent, and which bundles they hold."""

    name: str
    bundles: list[int]
    keepers: list[Any]
    gpus: list[str]
    run: Any = field(default=None)
    """The agent's: what Keeper.run() will return."""


class Cluster:
    """The nodes that Ray gave. Everything happens in one thread, which takes calls from a queue."""

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        import ray

        self.ray = ray
        self.tell = tell
        self.calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.nodes: dict[str, Node] = {}
        self.group: Any = None
        self.bundles: list[dict[str, float]] = []

    # ------------------------------------------------------------------ getting nodes

    def reserve(self, wanted: dict[str, Any]) -> list[dict[str, Any]]:
        """Waits until Ray has the room. The nodes."""
        from ray.util.placement_group import placement_group

        whole_nodes = wanted["workers"] is None
        self.bundles = (
            self.whole_nodes(wanted["nodes"])
            if whole_nodes
            else [{name: amount for name, amount in wanted["resources_per_worker"].items() if amount > 0}]
            * wanted["workers"]
        )
        strategy = "SPREAD" if whole_nodes else wanted["strategy"]
        self.group = placement_group(self.bundles, strategy=strategy)
        ready = self.group.ready()
        patience = wanted["patience"]
        done, _ = self.ray.wait([ready], timeout=min(TELL_AFTER, patience))
        if not done:
            self.tell({"waiting": f"waiting for room on the Ray cluster: {self.shortage(strategy)}"})
            done, _ = self.ray.wait([ready], timeout=max(patience - TELL_AFTER, 0))
        if not done:
            raise RuntimeError(f"Ray has not found room within {patience:g} s: {self.shortage(strategy)}")
        keepers = [self.keeper(bundle) for bundle in self.leaders()]
        for _, indices, found in self.by_node(keepers):
            node = self.add(indices, found)
            self.nodes[node.name] = node
        return [self.said(self.nodes[name]) for name in sorted(self.nodes)]

    def whole_nodes(self, most: int | None) -> list[dict[str, float]]:
        """A bundle for each node with a free core: all that is free there."""
        from ray._private.state import available_resources_per_node

        free = available_resources_per_node()
        bundles = []
        for node in self.ray.nodes():
            here = free.get(node["NodeID"], {})
            if node["Alive"] and here.get("CPU", 0) >= 1:
                bundle = {name: float(int(here[name])) for name in ("CPU", "GPU") if here.get(name, 0) >= 1}
                bundles.append({**bundle, f"node:{node['NodeManagerAddress']}": 0.001})
        bundles.sort(key=lambda bundle: -bundle["CPU"])
        if most is not None and len(bundles) < most:
            raise ConfigProblem(
                f"{most} nodes were asked for, but only {len(bundles)} of the Ray cluster have a free core: "
                f"free are {self.listed(self.ray.available_resources())}"
            )
        if not bundles:
            raise RuntimeError(f"no node of the Ray cluster has a free core: {self.shortage('SPREAD')}")
        return bundles[:most]

    def shortage(self, strategy: str) -> str:
        counts: dict[str, int] = defaultdict(int)
        for bundle in self.bundles:
            counts[self.listed(bundle)] += 1
        asked = ", ".join(f"{count} x ({bundle})" for bundle, count in counts.items())
        there, free = self.ray.cluster_resources(), self.ray.available_resources()
        has = f"the cluster has {self.listed(there)}; free are {self.listed(free)}"
        return f"asked for {asked or 'a core'} ({strategy}); {has}"

    @staticmethod
    def listed(amounts: dict[str, float]) -> str:
        kept = [
            f"{amount:g} {name}" for name, amount in sorted(amounts.items()) if ":" not in name and "memory" not in name
        ]
        return ", ".join(kept) or "nothing"

    def places(self) -> dict[int, str]:
        """The node of each bundle."""
        from ray.util.placement_group import placement_group_table

        return {int(bundle): node for bundle, node in placement_group_table(self.group)["bundles_to_node_id"].items()}

    def leaders(self) -> list[int]:
        """The bundles that need an actor: one on each node, and all with GPUs, whose numbers only actors learn."""
        seen: set[str] = set()
        chosen = []
        for bundle, node in sorted(self.places().items()):
            if node not in seen or self.bundles[bundle].get("GPU", 0) > 0:
                chosen.append(bundle)
            seen.add(node)
        return chosen

    def keeper(self, bundle: int) -> tuple[int, Any]:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=bundle)
        options = {
            "num_cpus": 0,
            "num_gpus": self.bundles[bundle].get("GPU", 0),
            "max_restarts": 0,
            "max_concurrency": 2,
        }
        return bundle, self.ray.remote(Keeper).options(scheduling_strategy=strategy, **options).remote()

    def by_node(
        self, keepers: Sequence[tuple[int, Any]], about: Sequence[dict[str, Any]] | None = None
    ) -> Iterator[tuple[str, list[int], list[tuple[Any, dict[str, Any]]]]]:
        """For each node its id, all bundles on it, and its actors with what they say."""
        said = about or self.ray.get([keeper.about.remote() for _, keeper in keepers])
        places = self.places()
        found: dict[str, list[tuple[Any, dict[str, Any]]]] = defaultdict(list)
        for (_, keeper), each in zip(keepers, said, strict=True):
            found[each["node"]].append((keeper, each))
        for node, actors in found.items():
            yield node, [bundle for bundle, place in places.items() if place == node], actors

    def add(self, bundles: list[int], actors: list[tuple[Any, dict[str, Any]]]) -> Node:
        host = str(actors[0][1]["host"])
        name, number = host, 1
        while name in self.nodes:
            number += 1
            name = f"{host}-{number}"
        gpus = [gpu for _, about in actors for gpu in about["gpus"]]
        return Node(name, bundles, [keeper for keeper, _ in actors], gpus)

    def said(self, node: Node) -> dict[str, Any]:
        return {"name": node.name, "cpus": sum(self.bundles[bundle].get("CPU", 0) for bundle in node.bundles)}

    # ------------------------------------------------------------------ agents

    def launch(self, name: str, argv: list[str], secret: str) -> None:
        node = self.nodes[name]
        run = node.run = node.keepers[0].run.remote(argv, secret, node.gpus)

        def ended() -> None:
            if self.nodes.get(name) is node and node.run is run:
                node.run = None
                self.tell({"ended": name, "why": self.outcome(run)})

        self.when_done(run, ended)

    def outcome(self, run: Any) -> str:
        try:
            return str(self.ray.get(run))
        except Exception as error:
            return f"the actor has ended: {str(error).strip().splitlines()[0]}"

    def when_done(self, reference: Any, call: Callable[[], None]) -> None:
        reference.future().add_done_callback(lambda _: self.calls.put(call))

    def replace(self, lost: str) -> None:
        """Gets an actor where Ray places the bundles of the lost node now: there, or on another node."""
        node = self.nodes[lost]
        for keeper in node.keepers:
            self.ray.kill(keeper)
        node.run = None
        fresh = [self.keeper(bundle) for bundle in self.leaders_of(node)]
        answers = [keeper.about.remote() for _, keeper in fresh]
        waiting = len(answers)

        def one_came() -> None:
            nonlocal waiting
            waiting -= 1
            if waiting == 0 and self.nodes.get(lost) is node:
                self.replaced(node, fresh, answers)

        for answer in answers:
            self.when_done(answer, one_came)

    def leaders_of(self, node: Node) -> list[int]:
        with_gpus = [bundle for bundle in node.bundles if self.bundles[bundle].get("GPU", 0) > 0]
        return with_gpus or node.bundles[:1]

    def replaced(self, lost: Node, fresh: list[tuple[int, Any]], answers: list[Any]) -> None:
        try:
            about = self.ray.get(answers)
        except Exception as error:
            self.tell({"noted": f"no actor in place of {lost.name} yet: {str(error).strip().splitlines()[0]}"})
            for _, keeper in fresh:
                self.ray.kill(keeper)
            threading.Timer(TRY_AGAIN, self.calls.put, [partial(self.replace, lost.name)]).start()
            return
        # Ray may have torn apart what was on one node; the run takes the part with the most bundles.
        options = [
            ([bundle for bundle in bundles if bundle in lost.bundles], actors)
            for _, bundles, actors in self.by_node(fresh, about)
        ]
        bundles, actors = max(options, key=lambda option: len(option[0]))
        del self.nodes[lost.name]
        node = self.add(bundles, actors)
        self.nodes[node.name] = node
        self.tell({"replaced": lost.name, "node": self.said(node)})

    # ------------------------------------------------------------------ the end

    def work(self) -> None:
        """Takes calls until None comes."""
        while (call := self.calls.get()) is not None:
            call()

    def leave(self) -> None:
        from ray.util.placement_group import remove_placement_group

        running = [node for node in self.nodes.values() if node.run is not None]
        with contextlib.suppress(Exception):
            self.ray.wait(
                [node.keepers[0].stop.remote() for node in running], num_returns=len(running), timeout=STOP_WITHIN
            )
        for node in self.nodes.values():
            for keeper in node.keepers:
                with contextlib.suppress(Exception):
                    self.ray.kill(keeper)
        if self.group is not None:
            with contextlib.suppress(Exception):
                remove_placement_group(self.group)
        self.ray.shutdown()


# ---------------------------------------------------------------------- the cluster


def connect(address: str) -> subprocess.Popen[bytes] | None:
    """Connects to the cluster. If this machine is no node of it, it becomes one without resources: a process of Ray,
    which the caller ends."""
    import ray

    address = address or os.environ.get("RAY_ADDRESS", "") or "auto"
    if "://" in address:
        raise ConfigProblem(
            f"the address of the Ray cluster is {address!r}; it must be HOST:PORT, where its head listens, or 'auto'"
        )
    guest = None
    if address != "auto" and (own := address_towards(address)) not in node_addresses(address):
        guest = join_as_guest(address, own)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:
        if guest is not None:
            guest.terminate()
        if address != "auto":
            raise RuntimeError(f"the Ray cluster at {address} cannot be reached: {error}") from error
        raise RuntimeError(
            f"there is no Ray cluster on this machine ({error}); start the script on one of its nodes, or set "
            "RAY_ADDRESS=HOST:PORT, where its head listens"
        ) from error
    return guest


def address_towards(address: str) -> str:
    """This machine's own, by which it reaches the cluster."""
    host, _, port = address.rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))
            return str(probe.getsockname()[0])
    except (OSError, ValueError) as error:
        raise ConfigProblem(
            f"the address of the Ray cluster is {address!r}, which cannot be reached: {error}"
        ) from error


def node_addresses(address: str) -> set[str]:
    """Of the cluster's nodes. `ray.init` kills its process if it takes another machine's node for its own."""
    from ray._raylet import GcsClient
    from ray.core.generated.gcs_pb2 import GcsNodeInfo

    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=CONNECT_WITHIN):
        nodes = GcsClient(address=address).get_all_node_info(timeout=CONNECT_WITHIN)
        return {node.node_manager_address for node in nodes.values() if node.state == GcsNodeInfo.ALIVE}
    raise RuntimeError(f"the Ray cluster at {address} cannot be reached; is its head there, and no firewall between?")


def join_as_guest(address: str, own: str) -> subprocess.Popen[bytes]:
    program = os.path.join(os.path.dirname(sys.executable), "ray")
    start = [program, "start", f"--address={address}", f"--node-ip-address={own}", "--num-cpus=0", "--num-gpus=0"]
    bound = [sys.executable, "-I", "-S", "-c", RUN_BOUND, str(os.getpid())]
    guest = subprocess.Popen(
        [*bound, *start, "--disable-usage-stats", "--block"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert guest.stdout
    said = []
    for line in guest.stdout:
        said.append(line.decode(errors="replace").strip())
        if "Ray runtime started" in said[-1]:
            threading.Thread(target=guest.stdout.read, daemon=True).start()
            return guest
    guest.wait()
    raise RuntimeError(
        f"this machine is no node of the Ray cluster at {address}, and could not become one: "
        f"{' '.join(filter(None, said))[-1000:]}"
    )


# ---------------------------------------------------------------------- the driver


def commands_into(cluster: Cluster, lines: Iterator[bytes]) -> None:
    """Passes on what the driver says until it ends."""
    for line in lines:
        said = json.loads(line)
        if "launch" in said:
            cluster.calls.put(partial(cluster.launch, said["launch"], said["argv"], said["secret"]))
        else:
            cluster.calls.put(partial(cluster.replace, said["replace"]))
    cluster.calls.put(None)
    end_soon()


def end_soon() -> None:
    """Ends this process after a while, whatever it waits for."""
    timer = threading.Timer(LEAVE_WITHIN, os._exit, [1])
    timer.daemon = True
    timer.start()


def main() -> int:
    driver = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(driver.fileno(), False)
    lines = iter(driver.makefile("rb").readline, b"")

    def tell(message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            driver.sendall(json.dumps(message).encode() + b"\n")

    def fail(why: str, is_config: bool) -> int:
        tell({"failed": why, "is_config": is_config})
        return 1

    wanted = json.loads(next(lines))
    try:
        from ray import init  # noqa: F401  # `import ray` also finds a directory of that name
    except ImportError as error:
        return fail(f"Ray is not installed for {sys.executable} ({error}): pip install ray, as on the cluster", True)
    guest = None
    cluster = Cluster(tell)
    try:
        guest = connect(wanted["address"])
        threading.Thread(target=commands_into, args=(cluster, lines), daemon=True).start()
        tell({"nodes": cluster.reserve(wanted)})
        cluster.work()
        return 0
    except ConfigProblem as problem:
        return fail(str(problem), True)
    except Exception as error:
        return fail(str(error) or type(error).__name__, False)
    finally:
        end_soon()
        cluster.leave()
        if guest is not None:
            guest.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                guest.wait(LEAVE_WITHIN / 2)


if __name__ == "__main__":
    sys.exit(main())
