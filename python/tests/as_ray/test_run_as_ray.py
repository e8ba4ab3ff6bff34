"""`lockstep run --as-ray`: the script runs as `python script.py` would run it, and finds ray."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Run:
    """`lockstep run` with the arguments, in a directory that holds the script."""

    def run(code: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "script.py").write_text(code)
        command = [str(Path(sys.executable).parent / "lockstep"), "run", *arguments]
        return subprocess.run(
            command, env={**environment, **env}, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )

    return run


def test_the_script_finds_ray_and_its_arguments(run: Run) -> None:
    code = "import sys, ray\nprint(ray.__version__, sys.argv)\nsys.exit(7)"
    done = run(code, "--as-ray", "script.py", "--epochs", "3", "--as-ray=1.7", "-h", "--")
    assert done.stdout == "2.6.0 ['script.py', '--epochs', '3', '--as-ray=1.7', '-h', '--']\n", done.stderr
    assert done.returncode == 7


@pytest.mark.parametrize("release", ["1.7", "2.0", "2.6", "2.7", "2.60"])
def test_the_option_names_a_release(run: Run, release: str) -> None:
    code = "import ray\nprint(ray.__version__)"
    assert run(code, f"--as-ray={release}", "script.py", LOCKSTEP_AS_RAY="2.6").stdout == f"{release}.0\n"


@pytest.mark.parametrize(("value", "version"), [("2.0", "2.0.0"), ("1", "2.6.0")])
def test_the_environment_is_enough(run: Run, value: str, version: str) -> None:
    assert run("import ray\nprint(ray.__version__)", "script.py", LOCKSTEP_AS_RAY=value).stdout == f"{version}\n"


@pytest.mark.parametrize("value", ["", "0", "false"])
def test_without_either_there_is_no_ray(run: Run, value: str) -> None:
    assert "No module named 'ray'" in run("import ray", "script.py", LOCKSTEP_AS_RAY=value).stderr


def test_wrong_usage(run: Run) -> None:
    done = run("", "--as-ray=3.1", "script.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "3.1 not in {1.7,2.0,2.6,2.7,2.60}; see `lockstep run --help`" in done.stderr
    assert "no script was given" in run("", "--as-ray").stderr
    assert "--as-ray[=RELEASE]" in run("", "--help").stdout


SELF = """
import sys
main = sys.modules["__main__"]
assert main.__dict__ is globals()
print(__name__, __file__, __spec__, __package__, sys.argv, sys.path[0], sorted(globals()))
def fails():
    raise KeyError("x")
fails()
"""


def test_the_script_cannot_tell_the_difference(run: Run, tmp_path: Path, environment: dict[str, str]) -> None:
    done = run(SELF, "--as-ray", "script.py", "a")
    plain = subprocess.run(
        [sys.executable, "script.py", "a"], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert "KeyError: 'x'" in plain.stderr
    assert (done.returncode, done.stdout, done.stderr) == (plain.returncode, plain.stdout, plain.stderr)


def test_functions_and_classes_of_the_script_reach_workers(run: Run) -> None:
    code = """
import pickle, ray
from ray.air import RunConfig, ScalingConfig, session
from ray.train.data_parallel_trainer import DataParallelTrainer

class Point:
    def __init__(self, x):
        self.x = x

def train(config):
    import ray.air
    assert isinstance(config["point"], Point) and pickle.loads(pickle.dumps(Point(1))).x == 1
    assert ray.air.session is session and __name__ == "__main__"
    session.report({"x": config["point"].x, "version": ray.__version__})

if __name__ == "__main__":
    trainer = DataParallelTrainer(
        train,
        train_loop_config={"point": Point(4)},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(verbose=0),
    )
    print(trainer.fit().metrics["x"], trainer.fit().metrics["version"])
"""
    done = run(code, "--as-ray=2.0", "script.py")
    assert done.stdout == "4 2.0.0\n", done.stderr


def test_children_follow(run: Run) -> None:
    code = """
import multiprocessing, subprocess, sys, ray

def version(_):
    return ray.__version__

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(version, [0]))
    print(subprocess.check_output([sys.executable, "-c", "import ray; print(ray.__version__)"], text=True).strip())
"""
    done = run(code, "--as-ray=1.7", "script.py")
    assert done.stdout == "['1.7.0']\n1.7.0\n", done.stderr


def test_what_imports_no_ray_imports_no_lockstep(run: Run) -> None:
    code = "import sys\nprint([name for name in sys.modules if name.startswith(('lockstep', 'ray'))])"
    assert run(code, "--as-ray", "script.py").stdout == "[]\n"


def test_the_alias_may_be_imported_as_well(run: Run) -> None:
    assert run("import lockstep.as_ray, ray\nprint(ray.__version__)", "--as-ray", "script.py").stdout == "2.6.0\n"


def test_another_sitecustomize_still_runs(run: Run, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('hello')\n")
    done = run("import ray\nprint(ray.__version__)", "--as-ray", "script.py", PYTHONPATH=str(tmp_path / "site"))
    assert done.stdout == "hello\nhello\n2.6.0\n"  # twice: Python starts a second time


def test_a_real_ray_is_not_hidden(run: Run, tmp_path: Path) -> None:
    (tmp_path / "site" / "ray").mkdir(parents=True)
    (tmp_path / "site" / "ray" / "__init__.py").write_text("__version__ = 'real'\n")
    code = "import ray\nprint(ray.__version__)"
    done = run(code, "--as-ray", "script.py", PYTHONPATH=str(tmp_path / "site"))
    assert done.returncode == 1 and "RealRayError" in done.stderr and "LOCKSTEP_AS_RAY_SHADOW=1" in done.stderr
    done = run(code, "--as-ray", "script.py", PYTHONPATH=str(tmp_path / "site"), LOCKSTEP_AS_RAY_SHADOW="1")
    assert done.stdout == "2.6.0\n"


def test_a_python_without_lockstep_says_so(run: Run, tmp_path: Path, environment: dict[str, str]) -> None:
    import shutil

    (tmp_path / "bin").mkdir()
    shutil.copy(Path(sys.executable).parent / "lockstep", tmp_path / "bin" / "lockstep")
    (tmp_path / "bin" / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    (tmp_path / "bin" / "python3").chmod(0o755)
    (tmp_path / "script.py").touch()
    done = subprocess.run(
        [str(tmp_path / "bin" / "lockstep"), "run", "--as-ray", "script.py"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "has no package lockstep" in done.stderr
