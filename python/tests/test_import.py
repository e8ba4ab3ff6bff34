"""Importing lockstep: quick, light, and only on Linux."""

from __future__ import annotations

import subprocess
import sys


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_import_loads_no_framework_and_starts_nothing() -> None:
    heavy = ("numpy", "cloudpickle", "pandas", "torch", "tensorflow", "multiprocessing", "asyncio")
    code = f"import lockstep, sys, threading; print([m for m in {heavy} if m in sys.modules], threading.active_count())"
    assert python(code) == "[] 1"


def test_import_is_quick() -> None:
    code = "import time; start = time.process_time(); import lockstep; print(time.process_time() - start)"
    assert min(float(python(code)) for _ in range(3)) < 0.1


def test_every_public_name_is_there() -> None:
    assert python(
        "import lockstep; [getattr(lockstep, name) for name in lockstep.__all__]; print(lockstep.__version__)"
    )


def test_names_of_ray_train_where_the_packages_name_was_replaced() -> None:
    for name in ("tensorflow", "horovod", "torch"):
        code = f"import lockstep.train.{name}, lockstep.{name}; print(lockstep.train.{name} is lockstep.{name})"
        assert python(code) == "True"
    assert python("from lockstep.air import session; from lockstep import session as s; print(s is session)") == "True"
    code = (
        "import lockstep, lockstep.air as air; print(all(getattr(lockstep, n) is getattr(air, n) for n in air.__all__))"
    )
    assert python(code) == "True"


def test_elsewhere_the_import_says_linux_only() -> None:
    code = (
        "import sys; sys.platform = 'darwin'\ntry:\n    import lockstep\nexcept ImportError as error:\n    print(error)"
    )
    assert "Linux only" in python(code)


def test_errors_of_the_core_are_those_of_the_package() -> None:
    import pytest
    from lockstep import ConfigError, StorageError, _core

    with pytest.raises(ConfigError):
        _core.check_hosts(["a", "b", "a"])
    with pytest.raises(StorageError):
        _core.Checkpoint.from_directory("/no/such/place")


def test_examples_in_docstrings_are_right() -> None:
    import doctest

    from lockstep import _encoding, _exception_classes, _failed_error, _nested, checkpoint, config, errors

    for module in (_encoding, _exception_classes, _failed_error, _nested, checkpoint, config, errors):
        result = doctest.testmod(module)
        assert result.attempted > 0
        assert result.failed == 0


def test_the_command_line_can_be_run_as_a_module() -> None:
    import lockstep

    done = subprocess.run([sys.executable, "-m", "lockstep", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"lockstep {lockstep.__version__}"
