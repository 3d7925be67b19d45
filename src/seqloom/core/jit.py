"""Loops as machine code, by numba, whose compiler is imported when the first of them is called."""

import inspect
import threading
from collections.abc import Callable, Iterable
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


@cache
def has_numba() -> bool:
    """Whether numba is installed; it is not imported."""
    return find_spec("numba") is not None


def compiled(*, fast: Iterable[str] = (), is_inlined: bool = False) -> Callable[[F], F]:
    """A decorator that makes machine code of a function when it is first called, kept on disk if there is a place.

    `fast` names liberties with floating-point numbers, by LLVM's names: "contract" joins a product and a sum into one
    instruction, "reassoc" lets a sum be taken eight at a time. Other threads run meanwhile. Arguments are positional:
    that is how compiled code is called quickly. A function that is inlined becomes a part of each that calls it, for
    small ones that would spend their time on being passed many arrays.
    """
    options = {"fastmath": set(fast), "error_model": "numpy", "nogil": True, "forceinline": is_inlined}

    def make_kernel(function: F) -> F:
        return cast("F", Kernel(function, options))

    return make_kernel


class Kernel:
    """A function that numba will compile. Importing numba takes a second, so that waits for the first call.

    Compiled functions find each other in the globals of their modules. Before the first of a module is compiled, all
    kernels among these globals are replaced by what numba makes of them.
    """

    _lock = threading.RLock()

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self.plain = inspect.unwrap(function)  # as it was written: the test run wraps type checks around it
        self.options = options
        self._dispatcher: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        return (self._dispatcher or self.load())(*arguments)

    def load(self) -> Callable[..., Any]:
        """The function as numba calls it."""
        with self._lock:
            if self._dispatcher is None:
                import numba

                try:
                    self._dispatcher = numba.njit(self.plain, cache=True, **self.options)
                    discard_unreadable(self._dispatcher)
                except RuntimeError:  # no folder that can be written to
                    self._dispatcher = numba.njit(self.plain, **self.options)
                names = self.plain.__globals__
                kernels = {name: value for name, value in names.items() if isinstance(value, Kernel)}
                names.update({name: kernel.load() for name, kernel in kernels.items()})
            return self._dispatcher


def discard_unreadable(dispatcher: Any) -> None:
    """Empty the cache of a kernel if an earlier version of the package wrote it with classes that no longer exist.

    numba unpickles the argument types of a cache before it compares the date of the source, so a renamed class would
    end the program.
    """
    try:
        dispatcher._cache._cache_file._load_index()
    except (AttributeError, ImportError):
        dispatcher._cache.flush()
