"""``lockstep doctor``: what is here, what is missing, and what to do about it."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from lockstep import _core, _installed

OK, NOTE, BAD = "ok", "note", "bad"
ENOUGH_FILES = 4096
ENOUGH_SHARED = 1 << 30
FRAMEWORKS = {
    "torch": "PyTorch",
    "tensorflow": "TensorFlow",
    "jax": "JAX",
    "horovod": "Horovod",
    "lightning": "Lightning",
    "transformers": "Transformers",
    "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
}


@dataclass
class Finding:
    """One line of the table."""

    what: str
    state: str
    """ok, note (something is not there that you may not need), or bad (something will fail)."""
    found: str
    advice: str = ""


def findings() -> list[Finding]:
    """All, in the order in which they are shown."""
    found: list[Finding] = []
    for check in (
        lockstep_itself,
        python_itself,
        machine,
        gpus,
        frameworks,
        torch_backend,
        data_sets,
        compiler,
        shared_memory,
        limits,
        storage,
        ports,
        engines,
        real_ray,
    ):
        try:
            found += check()
        except Exception as error:
            found.append(Finding(check.__name__, NOTE, f"could not be checked: {error}"))
    return found


def lockstep_itself() -> Iterator[Finding]:
    import lockstep

    yield Finding("Lockstep", OK, f"{lockstep.__version__} in {Path(__file__).parent}")
    agent = Path(os.environ.get("LOCKSTEP_AGENT") or Path(__file__).parent / "bin" / "lockstep-agent")
    if os.access(agent, os.X_OK):
        yield Finding("agent", OK, str(agent))
    else:
        yield Finding("agent", BAD, f"{agent} cannot be executed", "install Lockstep again, or correct LOCKSTEP_AGENT")
    if command := shutil.which("lockstep"):
        yield Finding("command", OK, command)
    else:
        yield Finding("command", NOTE, "not in the PATH", f"activate the environment of {sys.executable}")


def python_itself() -> Iterator[Finding]:
    place = "virtual environment" if sys.prefix != sys.base_prefix else "no virtual environment"
    yield Finding("Python", OK, f"{platform.python_version()} at {sys.executable} ({place})")


def machine() -> Iterator[Finding]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    usable = len(os.sched_getaffinity(0))
    cpus = f"{usable} of {os.cpu_count()}" if usable != os.cpu_count() else str(usable)
    yield Finding("cores", OK, f"{cpus}; {memory / 2**30:.1f} GiB of memory; Linux {platform.release()}")
    if not hasattr(os, "pidfd_open") or not _has_pidfd():
        yield Finding(
            "pidfd", BAD, "the kernel does not offer it", "Linux 5.4 or newer is needed; in a sandbox, allow it"
        )


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
        return True
    except OSError:
        return False


def gpus() -> Iterator[Finding]:
    number = int(_core.total_resources().get("GPU", 0))
    if number:
        yield Finding("GPUs", OK, f"{number}", "")
    else:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
        why = "CUDA_VISIBLE_DEVICES is empty" if hidden else "the NVIDIA driver lists none"
        yield Finding("GPUs", NOTE, f"none: {why}", "use_gpu=False, the default, trains on CPUs")


def frameworks() -> Iterator[Finding]:
    for module, name in FRAMEWORKS.items():
        if _installed.is_installed(module):
            yield Finding(name, OK, _version(module))
    missing = [name for module, name in FRAMEWORKS.items() if not _installed.is_installed(module)]
    if len(missing) == len(FRAMEWORKS):
        yield Finding("frameworks", NOTE, "none is installed", "pip install torch, or another that you use")
    elif missing:
        yield Finding("not installed", NOTE, ", ".join(missing))


def _version(module: str) -> str:
    for name in (module, f"{module}-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "installed"


def torch_backend() -> Iterator[Finding]:
    if not _installed.is_installed("torch"):
        return
    version = _version("torch").split("+")[0].replace(".", "_")
    made = list((Path(__file__).parent / "torch").glob(f"_c10d_{version}*.so"))
    if made:
        yield Finding("fast collectives", OK, f"for torch {_version('torch')}")
    else:
        advice = "python -m lockstep.torch.build_backend compiles it in a minute; until then ranks use Gloo"
        yield Finding("fast collectives", NOTE, f"not compiled for torch {_version('torch')}", advice)


def data_sets() -> Iterator[Finding]:
    if not _installed.is_installed("pyarrow"):
        yield Finding("data sets", NOTE, "pyarrow is not installed", "pip install 'lockstep[data]' for lockstep.data")
        return
    module = list((Path(__file__).parent / "data").glob("_arrow_*.so"))
    if module:
        yield Finding("data sets", OK, f"pyarrow {_version('pyarrow')}")
    else:
        yield Finding(
            "data sets", BAD, "Lockstep was installed without pyarrow", "install Lockstep again, beside pyarrow"
        )


def compiler() -> Iterator[Finding]:
    for what, names, why in (
        ("C++ compiler", [os.environ.get("CXX", ""), "c++", "g++", "clang++"], "for C++ programs and fast collectives"),
        ("CMake", ["cmake"], "for C++ programs"),
    ):
        path = next((found for name in names if name and (found := shutil.which(name))), None)
        if path is None:
            yield Finding(what, NOTE, "not found", f"install one; only needed {why}")
            continue
        told = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20).stdout.splitlines()
        yield Finding(what, OK, told[0] if told else path)


def shared_memory() -> Iterator[Finding]:
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError:
        yield Finding(
            "/dev/shm", NOTE, "not there", "PyTorch's loaders with workers need it; in a container: --ipc=host"
        )
        return
    text = f"{free / 2**20:,.0f} MiB free"
    if free >= ENOUGH_SHARED:
        yield Finding("/dev/shm", OK, text)
    else:
        advice = (
            "PyTorch's loaders with workers may need more: --shm-size=1g for a container. Lockstep itself uses none"
        )
        yield Finding("/dev/shm", NOTE, text, advice)


def limits() -> Iterator[Finding]:
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY or files >= ENOUGH_FILES:
        yield Finding("open files", OK, f"at most {files}")
    else:
        limit = "" if most == resource.RLIM_INFINITY else f", at most {most}"
        yield Finding(
            "open files", NOTE, f"at most {files}", f"ulimit -n {ENOUGH_FILES}{limit}: many workers need more"
        )
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    text = "no limit" if processes == resource.RLIM_INFINITY else f"at most {processes}"
    yield Finding("processes", OK if processes < 0 or processes >= 1024 else NOTE, text)


def storage() -> Iterator[Finding]:
    place = Path(_core.default_storage_path())
    there = next((each for each in (place, *place.parents) if each.exists()), Path("/"))
    if not os.access(there, os.W_OK):
        yield Finding(
            "storage", BAD, f"{place} cannot be written", "set LOCKSTEP_STORAGE_PATH, or RunConfig(storage_path=)"
        )
        return
    free = shutil.disk_usage(there).free
    advice = "lockstep prune --older-than 30d deletes old runs" if free < 5 << 30 else ""
    yield Finding("storage", NOTE if advice else OK, f"{place}, {free / 2**30:.1f} GiB free", advice)
    with tempfile.NamedTemporaryFile() as file:
        os.fsync(file.fileno())


def ports() -> Iterator[Finding]:
    try:
        with socket.create_server((_core.LOOPBACK, 0)) as server:
            port = server.getsockname()[1]
            socket.create_connection((_core.LOOPBACK, port), 5).close()
        yield Finding("ports", OK, f"the loopback, {_core.LOOPBACK}, accepts connections")
    except OSError as error:
        advice = "PyTorch's ranks find each other there; allow local connections"
        yield Finding("ports", BAD, f"{_core.LOOPBACK}: {error}", advice)


def engines() -> Iterator[Finding]:
    yield Finding("this machine", OK, "runs workers")
    if path := shutil.which("srun"):
        yield Finding("Slurm", NOTE, f"srun is {path}", "see the documents for which clusters can be used")


def real_ray() -> Iterator[Finding]:
    if "lockstep.as_ray" not in sys.modules and _installed.is_installed("ray"):
        advice = "the alias refuses to hide it: use another environment, or LOCKSTEP_AS_RAY_SHADOW=1"
        yield Finding("Ray", NOTE, f"{_version('ray')} is installed", advice)


def table(found: list[Finding]) -> str:
    """What is printed."""
    width = max(len(each.what) for each in found)
    marks: dict[str, str] = {OK: "  ok", NOTE: "note", BAD: " BAD"}
    lines = []
    for each in found:
        lines.append(f"{marks[each.state]}  {each.what:<{width}}  {each.found}")
        if each.advice:
            lines.append(f"      {'':<{width}}  -> {each.advice}")
    wrong = sum(each.state == BAD for each in found)
    lines += ["", f"{wrong} thing{'' if wrong == 1 else 's'} must be corrected" if wrong else "Lockstep can run here."]
    return "\n".join(lines)


def main(words: list[str], check: Callable[[], list[Finding]] = findings) -> int:
    parser = argparse.ArgumentParser(prog="lockstep doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print a JSON array")
    given = parser.parse_args(words)
    found = check()
    print(json.dumps([asdict(each) for each in found], indent=2) if given.json else table(found))
    return int(any(each.state == BAD for each in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
