"""The training function, its configuration, its backend and its data, as the bytes that are sent to every worker and
stored in ``function.pkl``.

The bytes are five parts in a row, each preceded by 8 bytes with its length, so that ``restore()`` can replace one of
them without opening the others: the pickles of the function, the configuration, the backend and the preprocessor, and
the data sets. The last two may be empty, and are missing in files of earlier versions.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import io
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from lockstep.errors import ConfigError, SerializationError

_LENGTH = struct.Struct("<Q")
_MAX_SEARCH_DEPTH = 8
ALIGNMENT = 64
"""The data sets begin at a multiple of this: rows in memory are used where they are."""


def dump(function: Callable[..., Any], config: Any, backend: Any = None, *data: bytes) -> bytes:
    """All, each pickled once; `data` are the last two parts. Raises SerializationError, which names the variable or key
    that cannot be pickled."""
    return pack(dump_function(function), dump_config(config), dump_backend(backend), *data)


def dump_function(function: Callable[..., Any]) -> bytes:
    """The function alone."""
    return _dump(
        function,
        "the training function",
        "make it inside the function, or pass what it is made from in train_loop_config",
    )


def dump_config(config: Any) -> bytes:
    """The configuration alone."""
    return _dump(config, "train_loop_config", "pass something plain and make it inside the training function")


def dump_backend(backend: Any) -> bytes:
    """The backend's configuration alone."""
    return _dump(backend, "the backend's configuration", "give it plain values")


def dump_value(value: Any) -> bytes:
    """What a function returned."""
    return _dump(value, "what the function returned", "return something plain, or save it in a checkpoint")


def dump_part(value: Any, what: str, advice: str, buffers: Callable[[Any], None] | None = None) -> bytes:
    """Something else; `buffers` gets what the pickle need not contain."""
    return _dump(value, what, advice, buffers)


def pack(*parts: bytes) -> bytes:
    """The parts as one byte string; those after the third may be left out."""
    *others, datasets = [*parts, b"", b""][:5]
    head = b"".join(piece for part in others for piece in (_LENGTH.pack(len(part)), part))
    if not datasets:
        return head + _LENGTH.pack(0)
    gap = -(len(head) + 2 * _LENGTH.size) % ALIGNMENT
    return b"".join((head, _LENGTH.pack(_LENGTH.size + gap + len(datasets)), _LENGTH.pack(gap), bytes(gap), datasets))


def unpack(payload: bytes | memoryview) -> list[memoryview]:
    """The inverse of pack(). Unpickles nothing."""
    rest, parts = memoryview(payload), []
    while rest:
        length = _LENGTH.unpack_from(rest)[0] if len(rest) >= _LENGTH.size else len(rest)
        if len(rest) - _LENGTH.size < length:
            break
        parts.append(rest[_LENGTH.size : _LENGTH.size + length])
        rest = rest[_LENGTH.size + length :]
    if rest or len(parts) not in (3, 5):
        raise ConfigError(
            f"[trainer] the pickled training function is broken: {len(payload)} bytes; pass train_loop_per_worker"
        )
    parts += [memoryview(b"")] * (5 - len(parts))
    if parts[4]:
        (gap,) = _LENGTH.unpack_from(parts[4])
        parts[4] = parts[4][_LENGTH.size + gap :]
    return parts


class Loaded(NamedTuple):
    """What a worker gets."""

    function: Callable[..., Any]
    config: Any
    backend: Any
    preprocessor: memoryview
    datasets: memoryview


def load(payload: bytes | memoryview, *, with_backend: bool = True) -> Loaded:
    """Function, configuration and backend, or None for it; the data stay pickled. Called only in a worker: unpickling
    runs code."""
    import pickle

    function, config, backend, *data = unpack(payload)
    loaded = pickle.loads(function), pickle.loads(config), pickle.loads(backend) if with_backend else None
    return Loaded(*loaded, *data)


def check_signature(function: Any) -> None:
    """Raises ConfigError unless `function` can be called without arguments or with only the configuration."""
    if not callable(function):
        raise ConfigError(f"[trainer] train_loop_per_worker is {function!r}; it must be a function")
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    for is_wrong, what in (
        (inspect.iscoroutinefunction, "a coroutine function; call asyncio.run() inside a plain one"),
        (inspect.isgeneratorfunction, "a generator function (it has a yield); calling it would run nothing of it"),
        (inspect.isasyncgenfunction, "an async generator function; calling it would run nothing of it"),
    ):
        if is_wrong(inner):
            raise ConfigError(f"[trainer] train_loop_per_worker {_name(function)} is {what}")
    required = [parameter for parameter in _parameters(function) if _is_required(parameter)]
    names = ", ".join(parameter.name for parameter in required)
    if len(required) > 1:
        raise ConfigError(
            f"[trainer] train_loop_per_worker {_name(function)} has {len(required)} parameters without a default "
            f"({names}); it may have none or one, which gets train_loop_config"
        )
    if required and required != [_config_parameter(function)]:
        raise ConfigError(
            f"[trainer] train_loop_per_worker {_name(function)} has the keyword-only parameter {names} without "
            "a default; the one that gets train_loop_config must be positional"
        )


def call(function: Callable[..., Any], config: Any) -> Any:
    """Calls a training function, with the configuration if it has a parameter for it.

    A parameter with a default gets the configuration only if there is one.
    """
    parameter = _config_parameter(function)
    if parameter is None or (config is None and not _is_required(parameter)):
        return function()
    given = {} if config is None else config
    return function(**{parameter.name: given}) if parameter.kind is parameter.KEYWORD_ONLY else function(given)


def _config_parameter(function: Callable[..., Any]) -> inspect.Parameter | None:
    """The parameter that gets the configuration: the first positional one.

    ``functools.partial(f, a=1)`` makes the parameters after ``a`` keyword-only; then it is the first one that is not
    set.
    """
    parameters = _parameters(function)
    first = next(filter(_is_positional, parameters), None)
    if first is not None or not isinstance(function, functools.partial):
        return first
    free = {p.name for p in _parameters(function.func) if _is_positional(p)} - function.keywords.keys()
    return next((parameter for parameter in parameters if parameter.name in free), None)


def _is_positional(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"[trainer] the parameters of train_loop_per_worker {_name(function)} cannot be read ({error}); "
            "wrap it in a def"
        ) from error


def _is_required(parameter: inspect.Parameter) -> bool:
    variable = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and not variable


def _dump(value: Any, what: str, advice: str, buffers: Callable[[Any], None] | None = None) -> bytes:
    try:
        return _pickled(value, buffers)
    except Exception as error:
        path, culprit, cause = _culprit(value, what, error, set())
        what = f"{path}, a {_type_name(culprit)}, cannot be sent to another process: {cause}"
        del cause  # its traceback refers to this frame, so the callers' variables would stay until a collection
        raise SerializationError(f"[trainer] {what}; {advice}") from error


def _pickled(value: Any, buffers: Callable[[Any], None] | None = None) -> bytes:
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            """Modules with a class of their own (torch has some) are pickled by name too.

            cloudpickle includes every submodule that a function might refer to, such as torch.distributed.config for
            one that uses torch.distributed and model.config.
            """
            is_module = isinstance(obj, ModuleType) and sys.modules.get(obj.__name__) is obj
            if is_module and type(obj) is not ModuleType:
                return importlib.import_module, (obj.__name__,)
            return super().reducer_override(obj)

    with io.BytesIO() as file:
        Pickler(file, protocol=5, buffer_callback=buffers).dump(value)
        return file.getvalue()


def _culprit(value: Any, path: str, error: Exception, seen: set[int]) -> tuple[str, Any, Exception]:
    """The smallest part of `value` that cannot be pickled: its path, the object, and the reason."""
    seen.add(id(value))
    if len(seen) <= 1000 and path.count(", ") < _MAX_SEARCH_DEPTH:
        for name, part in _parts(value):
            if id(part) in seen or isinstance(part, ModuleType):
                continue
            try:
                _pickled(part)
            except Exception as cause:
                inside = f"{path}{name}" if name.startswith("[") else f"{path}, {name}"
                return _culprit(part, inside, cause, seen)
    return path, value, error


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The objects that pickling `value` would pickle, each with a description of where it is."""
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
    elif isinstance(value, functools.partial):
        yield "its function", value.func
        yield from ((f"its argument {index}", item) for index, item in enumerate(value.args))
        yield from ((f"its argument {name!r}", item) for name, item in value.keywords.items())
    elif isinstance(value, MethodType):
        yield "the object it is bound to", value.__self__
    elif isinstance(value, FunctionType):
        yield from _function_parts(value)
    else:
        yield from ((f"attribute {name!r}", item) for name, item in getattr(value, "__dict__", {}).items())


def _function_parts(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"closure variable {name!r}", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in sorted(_global_names(function.__code__)):
        if name in function.__globals__:
            yield f"global variable {name!r}", function.__globals__[name]
    yield from ((f"default value {index}", item) for index, item in enumerate(function.__defaults__ or ()))
    yield from ((f"default of {name!r}", item) for name, item in (function.__kwdefaults__ or {}).items())


def _global_names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _global_names(constant)
    return names


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
