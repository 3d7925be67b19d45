"""Types and shapes of the package, checked at each call of the test run.

jaxtyping's import hook wraps every function and dataclass of the package. Its own wrapper checks the arguments twice
and binds them by name at each call, whether or not a shape is among them, which was half of the time of all tests.
This one lets beartype check them once, and opens a table of axis names only where an annotation has axes.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any, ForwardRef, Literal, Protocol, get_args, get_origin, get_type_hints, runtime_checkable

import beartype
import jaxtyping
from jaxtyping import AbstractArray, jaxtyped

_beartype: Any = beartype.beartype(conf=beartype.BeartypeConf(violation_type=TypeError))
"""A wrong type is what Python calls one, so that code meets it as it would without the check."""


def check_package(name: str) -> None:
    """Check a package from now on: the hook works on modules as they are imported, so call it before they are."""
    _make_protocols_checkable(f"{name}.")
    jaxtyping.jaxtyped = _checked  # type: ignore[assignment]  # the hook's decorator, by the name it has there
    jaxtyping.install_import_hook(name, "beartype.beartype")


def _make_protocols_checkable(prefix: str) -> None:
    """Let `isinstance` answer for every Protocol of the package: the type check refuses one for which it cannot."""
    meta: Any = type(Protocol)
    plain = meta.__init__

    def initialise(cls: Any, *args: Any, **kwargs: Any) -> None:
        plain(cls, *args, **kwargs)
        if cls.__module__.startswith(prefix) and cls.__dict__.get("_is_protocol", False):
            runtime_checkable(cls)

    meta.__init__ = initialise


def _checked(*, typechecker: object) -> Callable[[Any], Any]:
    """What stands for `jaxtyping.jaxtyped`; the type checker is always beartype."""
    return check


def check(thing: Any) -> Any:
    """A function, method, property or dataclass that checks what it is given and what it gives."""
    if inspect.isclass(thing):
        if dataclasses.is_dataclass(thing) and "__init__" in vars(thing):
            thing.__init__ = _check_function(thing.__init__)  # type: ignore[misc]
        return thing
    if isinstance(thing, classmethod | staticmethod):
        return type(thing)(_check_function(thing.__func__))
    if isinstance(thing, property):
        return property(*(part and _check_function(part) for part in (thing.fget, thing.fset, thing.fdel)))
    return _check_function(thing)


def _check_function(function: Any) -> Any:
    if type(function) is FunctionType and "<locals>" in function.__qualname__:
        return _check_inner(function)
    checked, has_axes = _apply_beartype(function)
    return _with_axes(checked) if has_axes else checked


def _apply_beartype(function: Any) -> tuple[Any, bool]:
    """A function that checks its types, and whether axes are among them."""
    written = function.__annotations__
    known = {name: _resolved(annotation, function.__globals__) for name, annotation in written.items()}
    function.__annotations__ = known
    try:
        checked = _beartype(function)
    finally:
        function.__annotations__ = written  # others read them too, the command line among them
    checked.__annotations__ = written
    return checked, any(map(_has_axes, known.values()))


_inner: dict[CodeType, tuple[dict[str, Any], Any, bool]] = {}
"""For each function inside a function its annotations, and what `_apply_beartype` gave for it."""


def _check_inner(function: FunctionType) -> Any:
    """A function inside a function is made at each call of the outer one, but its check is made once.

    That takes a millisecond, and an inner function of a decoding step is made at every step. The check finds its
    function in the default of an argument, which is replaced here. It is made for a twin without the values of outer
    variables, so that it does not keep them alive.
    """
    code, written = function.__code__, function.__annotations__
    if code not in _inner or _inner[code][0] != written:
        cells = tuple(CellType() for _ in code.co_freevars)
        twin = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, cells)
        twin.__kwdefaults__, twin.__annotations__ = function.__kwdefaults__, written
        twin.__qualname__, twin.__module__ = function.__qualname__, function.__module__
        _inner[code] = (written, *_apply_beartype(twin))
    _, pattern, has_axes = _inner[code]
    if not hasattr(pattern, "__wrapped__"):  # nothing in it can be checked
        return function
    places = [name for name, value in pattern.__kwdefaults__.items() if value is pattern.__wrapped__]
    checked: Any = FunctionType(pattern.__code__, pattern.__globals__, function.__name__)
    checked.__kwdefaults__ = {**pattern.__kwdefaults__, **dict.fromkeys(places, function)}
    functools.update_wrapper(checked, pattern)
    functools.update_wrapper(checked, function)
    assert places, "beartype keeps the function that it checks elsewhere"
    return _with_axes(checked) if has_axes else checked


def _with_axes(checked: Any) -> Any:
    """With a table of its own in which the names of axes are bound to sizes."""

    @functools.wraps(checked)
    def within(*args: Any, **kwargs: Any) -> Any:
        with jaxtyped("context"):
            return checked(*args, **kwargs)

    return within


def _resolved(annotation: Any, names: dict[str, Any]) -> Any:
    """An annotation without strings; `Any` where a name stands for something that is not there yet."""
    if not _has_strings(annotation):
        return annotation

    def holder(value: Any) -> None: ...

    holder.__annotations__["value"] = annotation
    try:
        return get_type_hints(holder, names, include_extras=True)["value"]
    except Exception:  # a name of a module that is imported for the linter alone, or of a class below this one
        return Any


def _has_strings(annotation: Any) -> bool:
    if isinstance(annotation, str | ForwardRef):
        return True
    if get_origin(annotation) is Literal:
        return False
    return any(map(_has_strings, _parts(annotation)))


def _has_axes(annotation: Any) -> bool:
    if inspect.isclass(annotation) and issubclass(annotation, AbstractArray):
        return True
    return any(map(_has_axes, _parts(annotation)))


def _parts(annotation: Any) -> tuple[Any, ...]:
    """What stands between the brackets; the arguments of a callable are a list."""
    if isinstance(annotation, list):
        return tuple(annotation)
    return get_args(annotation)
