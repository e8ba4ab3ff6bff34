"""`lockstep new cpp` and `lockstep --cmake-dir`, and that a new project builds and trains unchanged."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [".gitignore", "CMakeLists.txt", "README.md", "main.cpp"]

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def executable() -> str:
    """LOCKSTEP_CLI, else what is installed beside this interpreter."""
    path = Path(os.environ.get("LOCKSTEP_CLI") or Path(sys.executable).parent / "lockstep")
    assert path.is_file(), f"{path} is not there: build first, or set LOCKSTEP_CLI"
    return str(path)


def run(command: list[str | Path], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run(list(map(str, command)), env=env, cwd=cwd, capture_output=True, text=True, timeout=600)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    def call(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return run([executable(), *arguments], tmp_path, **environment)

    return call


# ---------------------------------------------------------------- --cmake-dir


def installed_copy(place: Path, *packages: str) -> Path:
    """The executable as installed into an environment, with CMake packages at these places."""
    (place / "bin").mkdir(parents=True)
    shutil.copy(executable(), place / "bin" / "lockstep")
    for package in packages:
        (place / package / "lockstep" / "cmake").mkdir(parents=True)
        (place / package / "lockstep" / "cmake" / "lockstep-config.cmake").touch()
    return place / "bin" / "lockstep"


def test_cmake_dir_of_this_environment(cli: Cli) -> None:
    done = cli("--cmake-dir")
    assert (done.returncode, done.stderr) == (0, "")
    directory = Path(done.stdout.removesuffix("\n"))
    assert directory.is_absolute()
    assert (directory / "lockstep-config.cmake").is_file()
    assert (directory / "lockstepTargets.cmake").is_file()


@pytest.mark.parametrize("packages", ["lib/python3.11/site-packages", "lib/python3.10/dist-packages", "."])
def test_cmake_dir_is_found_from_the_executable(tmp_path: Path, packages: str) -> None:
    command = installed_copy(tmp_path / "env", packages)
    done = run([command, "--cmake-dir"], tmp_path, PATH="/nowhere")  # no Python is needed
    assert (done.returncode, done.stderr) == (0, "")
    printed = Path(done.stdout.removesuffix("\n"))
    assert printed.is_absolute()
    assert printed.resolve() == (tmp_path / "env" / packages / "lockstep" / "cmake").resolve()
    (tmp_path / "link").symlink_to(command)
    assert run([tmp_path / "link", "--cmake-dir"], tmp_path, PATH="/nowhere").stdout == done.stdout


def test_cmake_dir_of_several_is_that_of_the_interpreter(tmp_path: Path) -> None:
    command = installed_copy(tmp_path, "lib/python3.10/site-packages", "lib/python3.11/site-packages")
    wanted = tmp_path / "lib" / "python3.10" / "site-packages"
    (wanted / "lockstep" / "__init__.py").write_text("raise RuntimeError('it was imported')")
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    done = run([command, "--cmake-dir"], tmp_path, PYTHONPATH=str(wanted))
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"{wanted}/lockstep/cmake\n")


def test_no_cmake_dir(tmp_path: Path) -> None:
    command = installed_copy(tmp_path / "env")
    done = run([command, "--cmake-dir"], tmp_path, PATH="/nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith('lockstep: [cmake-dir] "python3" cannot be executed')

    python = tmp_path / "env" / "bin" / "python3"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')  # sees no package
    python.chmod(0o755)
    done = run([command, "--cmake-dir"], tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"lockstep: \[cmake-dir\] \S+ has no package lockstep; install it there.*\n", done.stderr)

    (tmp_path / "lockstep").mkdir()
    (tmp_path / "lockstep" / "__init__.py").touch()
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}" exec "{sys.executable}" -S "$@"\n')
    done = run([command, "--cmake-dir"], tmp_path / "env")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"({tmp_path}/lockstep/__init__.py) has no CMake package" in done.stderr


# ---------------------------------------------------------------- new cpp


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_new_cpp_writes_a_project(cli: Cli, tmp_path: Path) -> None:
    done = cli("new", "cpp", "my-training_2")
    assert (done.returncode, done.stderr) == (0, "")
    project = tmp_path / "my-training_2"
    assert names(project) == FILES
    steps = ["cd my-training_2", "cmake -S . -B build", "cmake --build build -j 2", "./build/my-training_2"]
    assert [line.strip() for line in done.stdout.splitlines()][-4:] == steps
    texts = {name: (project / name).read_text() for name in FILES}
    assert not [name for name, text in texts.items() if "@NAME@" in text]
    assert "project(my-training_2 LANGUAGES CXX)" in texts["CMakeLists.txt"]
    assert "build/my-training_2" in texts["README.md"]
    assert texts[".gitignore"] == "/build/\n"


def test_new_cpp_takes_a_path(cli: Cli, tmp_path: Path) -> None:
    done = cli("new", "cpp", "some where/deep/tool/")
    assert done.returncode == 0
    assert names(tmp_path / "some where" / "deep" / "tool") == FILES
    assert "cd 'some where/deep/tool/'\n" in done.stdout
    assert "add_executable(tool " in (tmp_path / "some where/deep/tool/CMakeLists.txt").read_text()

    here = tmp_path / "here"
    here.mkdir()
    done = run([executable(), "new", "cpp", "."], here)
    assert (done.returncode, names(here)) == (0, FILES)
    assert "    cd " not in done.stdout
    assert "./build/here\n" in done.stdout


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", 'cannot be named ""; begin with a letter'),
        ("2fast", 'cannot be named "2fast"; begin with a letter'),
        ("a b", 'cannot be named "a b"; begin with a letter, and use letters, digits, `_` and `-` only'),
        ("sub/a;b", 'cannot be named "a;b"'),
        ("größe", "cannot be named"),
        ("a::b", 'cannot be named "a::b"'),
        ("..hidden", 'cannot be named "..hidden"'),
        ("/", "cannot be named"),
        ("test", 'cannot be named "test": CMake reserves the name'),
        ("lockstep_torch", 'cannot be named "lockstep_torch": CMake reserves'),
    ],
)
def test_new_cpp_refuses_names(cli: Cli, tmp_path: Path, name: str, message: str) -> None:
    done = cli("new", "cpp", name)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("lockstep: [new] a project ")
    assert message in done.stderr
    assert names(tmp_path) == []


def test_new_cpp_overwrites_nothing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / ".hidden").write_text("mine")
    done = cli("new", "cpp", "full")
    assert (done.returncode, done.stdout) == (1, "")
    assert f'[new] "{tmp_path}/full" already holds files; choose another name' in done.stderr
    assert names(tmp_path / "full") == [".hidden"]

    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("file", "dangling"):
        done = cli("new", "cpp", name)
        assert done.returncode == 1
        assert "exists and is not a directory" in done.stderr
    assert (tmp_path / "file").read_text() == "mine"
    assert names(tmp_path) == ["dangling", "file", "full"]

    (tmp_path / "empty").mkdir()
    assert cli("new", "cpp", "empty").returncode == 0
    assert names(tmp_path / "empty") == FILES


@pytest.mark.parametrize("blocks", [0, 1, 8], ids=lambda count: f"room for {count} KB")
def test_new_cpp_leaves_nothing_when_it_fails(tmp_path: Path, blocks: int) -> None:
    # Files end at this size: the first, or a later one, cannot be written.
    script = 'trap "" XFSZ; ulimit -f "$1"; exec "$0" new cpp new/deep/project'
    done = run(["bash", "-c", script, executable(), str(blocks)], tmp_path)
    if blocks == 8:  # bash counts in KB, and no file is so long
        assert (done.returncode, names(tmp_path / "new" / "deep" / "project")) == (0, FILES)
        return
    assert (done.returncode, done.stdout) == (1, "")
    assert "[new] could not make" in done.stderr
    assert "File too large; nothing was written" in done.stderr
    assert names(tmp_path) == []


def test_new_cpp_in_a_place_that_cannot_be(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = cli("new", "cpp", "file/project")
    assert (done.returncode, done.stdout) == (1, "")
    assert f'could not make "{tmp_path}/file/project"' in done.stderr


@pytest.mark.parametrize("command", [["new"], ["new", "cpp"]])
def test_help_has_examples(cli: Cli, command: list[str]) -> None:
    done = cli(*command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Examples:\n  lockstep new cpp my_training" in done.stdout
    assert "--cmake-dir" in cli("--help").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["new"], "subcommand is required; see `lockstep new --help`"),
        (["new", "rust"], 'there is no command "rust"; see `lockstep new --help`'),
        (["new", "cpp"], "NAME is required; see `lockstep new cpp --help`"),
    ],
)
def test_wrong_usage(cli: Cli, arguments: list[str], message: str) -> None:
    done = cli(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_completion_in_bash(tmp_path: Path) -> None:
    (tmp_path / "projects").mkdir()
    script = """
        source <("$0" completion bash)
        COMP_WORDS=(lockstep "$@"); COMP_CWORD=$#
        _lockstep
        ((${#COMPREPLY[@]})) && printf '%s\\n' "${COMPREPLY[@]}"
    """

    def complete(*words: str) -> list[str]:
        done = run(["bash", "--norc", "-c", script, executable(), *words], tmp_path)
        assert done.stderr == ""
        return done.stdout.splitlines()

    assert complete("ne") == ["new"]
    assert complete("--c") == ["--cmake-dir"]
    assert complete("new", "") == ["cpp", "python"]
    assert complete("new", "cpp", "pro") == ["projects"]
    assert complete("new", "cpp", "--") == ["--help"]
    assert complete("new", "python", "--") == ["--framework", "--help"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_completion_scripts(cli: Cli, shell: str) -> None:
    text = cli("completion", shell).stdout
    assert {"new", "cpp"} <= set(re.split(r"[\s:'()]+", text))
    assert "cmake-dir" in text


# ---------------------------------------------------------------- a project


@pytest.fixture(scope="module")
def project() -> Path:
    """A new project. It lies in the build tree and not in a temporary directory: seen from its build directory, paths
    are then the same in every clone, and the compiler cache serves one from the other."""
    place = ROOT / "build" / "new_cpp_test"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    done = run([executable(), "new", "cpp", "first"], place)
    assert done.returncode == 0, done.stderr
    return place / "first"


def environment(**changes: str) -> dict[str, str]:
    """As with the virtual environment active."""
    bin_directory = Path(executable()).parent
    cache = shutil.which("ccache")
    return {
        "PATH": f"{bin_directory}:{os.environ['PATH']}",
        **({"CMAKE_CXX_COMPILER_LAUNCHER": cache} if cache else {}),
        "CCACHE_BASEDIR": str(ROOT),
        **changes,
    }


def configure(project: Path, build: Path, *options: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return run(["cmake", "-S", project, "-B", build, *options], project, **environment(**changes))


def torch_folder() -> Path:
    import torch

    return Path(torch.__file__).parent


@pytest.mark.timeout(900)
def test_a_new_project_builds_and_trains(project: Path, tmp_path: Path) -> None:
    done = run(["cmake", "-S", ".", "-B", "build"], project, **environment())
    assert done.returncode == 0, done.stderr
    assert f"LibTorch in {torch_folder().resolve()}" in done.stdout
    done = run(["cmake", "--build", "build", "-j", "2"], project, **environment())
    assert done.returncode == 0, done.stdout + done.stderr

    def train(*arguments: str | Path) -> tuple[int, float, Path]:
        done = run(["build/first", *arguments], project, LOCKSTEP_STORAGE_PATH=str(tmp_path))
        assert done.returncode == 0, done.stderr
        printed = re.fullmatch(r"epoch (\d+): loss [\d.]+, accuracy ([\d.]+)%\nrun directory: (.*)\n", done.stdout)
        assert printed, done.stdout
        return int(printed[1]), float(printed[2]), Path(printed[3])

    epoch, accuracy, first_run = train()
    assert (epoch, accuracy > 95) == (9, True)
    assert len(list(first_run.glob("checkpoint_*"))) in (2, 3)  # the best two, and the last
    epoch, accuracy, second_run = train("--workers", "3", "--epochs", "12", "--resume", first_run)
    assert (epoch, accuracy > 95) == (11, True)
    assert len((second_run / "result.json").read_text().splitlines()) == 2  # epochs 10 and 11

    done = run(["build/first", "--wrong"], project, LOCKSTEP_STORAGE_PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "usage: first [--workers N]" in done.stderr


FUNCTIONS = """
#include <iostream>
#include <lockstep/torch.h>

void train(lockstep::Session& session) {
  auto model = lockstep::torch::prepare_model(torch::nn::Linear(2, 2));
  model->forward(torch::ones({1, 2})).sum().backward();
  session.report({{"gradient", model->parameters()[0].grad().mean().item<double>()}});
}
LOCKSTEP_TRAIN_FUNCTION(train);

int run(int argc, char** argv) {
  lockstep::init(argc, argv);
  const auto result = lockstep::TorchTrainer(train, {.scaling = {.num_workers = 2}}).fit();
  std::cout << result.metrics["gradient"] << std::endl;
  return 0;
}
"""


@pytest.mark.timeout(900)
def test_training_functions_in_a_shared_library(project: Path, tmp_path: Path) -> None:
    original = (project / "CMakeLists.txt").read_text()
    (project / "functions.cpp").write_text(FUNCTIONS)
    (project / "whole.cpp").write_text(
        "int run(int, char**);\nint main(int argc, char** argv) { return run(argc, argv); }\n"
    )
    (project / "CMakeLists.txt").write_text(
        original
        + "\nadd_library(functions SHARED functions.cpp)\ntarget_link_libraries(functions PUBLIC Lockstep::torch)"
        + "\nadd_executable(whole whole.cpp)\ntarget_link_libraries(whole PRIVATE functions)\n"
    )
    try:
        for command in (["cmake", "-S", ".", "-B", "build"], ["cmake", "--build", "build", "--target", "whole"]):
            done = run(list(command), project, **environment())
            assert done.returncode == 0, done.stdout + done.stderr
        done = run(["build/whole"], project, LOCKSTEP_STORAGE_PATH=str(tmp_path))
        assert (done.returncode, done.stdout) == (0, "1.0\n"), done.stderr
    finally:
        (project / "CMakeLists.txt").write_text(original)


def test_libtorch_by_path(project: Path, tmp_path: Path) -> None:
    """An unpacked LibTorch archive is a folder with include/, lib/ and share/."""
    archive = tmp_path / "libtorch"
    archive.mkdir()
    for part in ("include", "lib", "share"):
        (archive / part).symlink_to(torch_folder() / part)
    torch_dir = f"{archive}/share/cmake/Torch"
    places: dict[str, str | dict[str, str]] = {
        "prefix": f"-DCMAKE_PREFIX_PATH={archive}",
        "deep_prefix": f"-DCMAKE_PREFIX_PATH=/nowhere;{torch_dir}",
        "torch_dir": f"-DTorch_DIR={torch_dir}",
        "torch_root": f"-DTorch_ROOT={archive}",
        "own": f"-DLOCKSTEP_LIBTORCH={archive}",
        "prefix_variable": {"CMAKE_PREFIX_PATH": f"/nowhere:{archive}"},
        "torch_dir_variable": {"Torch_DIR": torch_dir},
        "torch_root_variable": {"Torch_ROOT": str(archive)},
    }
    for name, given in places.items():
        options, variables = ([given], {}) if isinstance(given, str) else ([], given)
        done = configure(project, tmp_path / name, *options, **variables)
        assert done.returncode == 0, done.stderr
        assert f"LibTorch in {archive}\n" in done.stdout
        rules = "".join(path.read_text() for path in (tmp_path / name / "CMakeFiles").glob("*/flags.make"))
        assert f"-isystem {archive}/include" in rules


def test_libtorch_of_an_interpreter(project: Path, tmp_path: Path) -> None:
    # The PATH has neither `lockstep` nor a Python with torch.
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "empty" / "python3").chmod(0o755)
    path = f"{tmp_path}/empty:/usr/bin:/bin"
    options = [f"-DLockstep_DIR={run([executable(), '--cmake-dir'], tmp_path).stdout.strip()}"]
    done = configure(project, tmp_path / "a", *options, f"-DPython_EXECUTABLE={sys.executable}", PATH=path)
    assert (done.returncode, f"LibTorch in {torch_folder().resolve()}" in done.stdout) == (0, True), done.stderr
    done = configure(project, tmp_path / "b", *options, PATH=path)  # that of the environment that Lockstep is in
    assert (done.returncode, f"LibTorch in {torch_folder().resolve()}" in done.stdout) == (0, True), done.stderr
    done = configure(project, tmp_path / "c", *options, f"-DPython_EXECUTABLE={tmp_path}/empty/python3", PATH=path)
    assert done.returncode == 1
    assert "LibTorch was not found" in " ".join(done.stderr.split())


def test_without_libtorch_a_project_hears_why_it_has_no_torch(tmp_path: Path) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3").chmod(0o755)
    options = [
        f"-DLockstep_DIR={run([executable(), '--cmake-dir'], tmp_path).stdout.strip()}",
        f"-DPython_EXECUTABLE={tmp_path}/python3",
    ]
    for arguments, said in {"Lockstep REQUIRED": True, "Lockstep QUIET": False}.items():
        text = f"cmake_minimum_required(VERSION 3.22)\nproject(core LANGUAGES CXX)\nfind_package({arguments})\n"
        (tmp_path / "CMakeLists.txt").write_text(text)
        done = configure(tmp_path, tmp_path / "build", *options)
        assert done.returncode == 0, done.stderr
        assert ("Lockstep::torch is left out: LibTorch was not found" in done.stdout) is said


def test_an_environment_in_the_project_is_found(project: Path, tmp_path: Path) -> None:
    copy = tmp_path / "first"
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("build"))
    (copy / ".venv" / "bin").mkdir(parents=True)
    (copy / ".venv" / "bin" / "lockstep").symlink_to(executable())
    outside = {"PATH": "/usr/bin:/bin", "VIRTUAL_ENV": "", "CONDA_PREFIX": ""}
    done = configure(copy, copy / "build", **outside)
    assert done.returncode == 0, done.stderr

    shutil.rmtree(copy / ".venv")
    done = configure(copy, tmp_path / "without", **outside)
    assert done.returncode == 1
    message = " ".join(done.stderr.split())
    assert "The command `lockstep` was not found. Activate the Python environment" in message

    (copy / "venv" / "bin").mkdir(parents=True)
    (copy / "venv" / "bin" / "lockstep").write_text("#!/bin/sh\necho 'broken here' >&2\nexit 1\n")
    (copy / "venv" / "bin" / "lockstep").chmod(0o755)
    done = configure(copy, tmp_path / "broken", **outside)
    assert (done.returncode, "broken here" in done.stderr) == (1, True)


@pytest.mark.parametrize("header", ["headeronly/version.h", "csrc/api/include/torch/version.h"])
def test_an_old_libtorch_is_refused(project: Path, tmp_path: Path, header: str) -> None:
    old = tmp_path / "libtorch"
    for file in ("lib/libtorch_cpu.so", "include/torch/csrc/api/include/torch/torch.h", f"include/torch/{header}"):
        (old / file).parent.mkdir(parents=True, exist_ok=True)
        (old / file).touch()
    version = "".join(
        f"#define TORCH_VERSION_{part} {number}\n" for part, number in [("MAJOR", 2), ("MINOR", 4), ("PATCH", 1)]
    )
    (old / "include" / "torch" / header).write_text(version)
    done = configure(project, tmp_path / "build", f"-DLOCKSTEP_LIBTORCH={old}")
    assert done.returncode == 1
    assert f"LibTorch in {old} is 2.4.1: Lockstep needs 2.13 or newer" in " ".join(done.stderr.split())


def test_a_libtorch_that_is_none(project: Path, tmp_path: Path) -> None:
    done = configure(project, tmp_path / "build", f"-DLOCKSTEP_LIBTORCH={tmp_path}")
    assert done.returncode == 1
    assert f"LOCKSTEP_LIBTORCH is {tmp_path}, which holds no LibTorch" in " ".join(done.stderr.split())
