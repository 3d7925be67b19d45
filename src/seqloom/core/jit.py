"""Loops as machine code, by numba, whose compiler is imported when the first of them is called."""

import hashlib
import inspect
import threading
from collections.abc import Callable, Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


@cache
def has_numba() -> bool:
    """Whether numba is installed; it is not imported."""
    return find_spec("numba") is not None


def compiled(*, fast: Iterable[str] = (), is_inlined: bool = False, is_allocating: bool = True) -> Callable[[F], F]:
    """A decorator that makes machine code of a function when it is first called, kept on disk if there is a place.

    `fast` names liberties with floating-point numbers, by LLVM's names: "contract" joins a product and a sum into one
    instruction, "reassoc" lets a sum be taken eight at a time. Other threads run meanwhile. Arguments are positional:
    that is how compiled code is called quickly. A function that is inlined becomes a part of each that calls it, for
    small ones that would spend their time on being passed many arrays. A function that is not allocating makes no
    arrays, so it need not count references to those it uses: faster where many arrays are passed in inner loops.
    """
    options = {"fastmath": set(fast), "error_model": "numpy", "nogil": True, "forceinline": is_inlined}
    if not is_allocating:
        options["_nrt"] = False

    def make_kernel(function: F) -> F:
        return cast("F", Kernel(function, options))

    return make_kernel


class Kernel:
    """A function that numba will compile. Importing numba takes a second, so that waits for the first call.

    Compiled functions find each other in the globals of their modules. Before the first of a module is compiled, all
    kernels among these globals are replaced by what numba makes of them.
    """

    _lock = threading.RLock()
    _sources: ClassVar[dict[str, frozenset[str]]] = {}
    """For each file with kernels, itself and the files whose kernels it calls."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self.plain = inspect.unwrap(function)  # as it was written: the test run wraps type checks around it
        self.options = options
        self._dispatcher: Callable[..., Any] | None = None
        self._loaded: Callable[..., Any] | None = None
        """The dispatcher after `load`: before, the kernels that it calls may not be replaced yet."""

    def __call__(self, *arguments: Any) -> Any:
        if self._loaded is None:
            self._loaded = self.load()
        return self._loaded(*arguments)

    def sources(self) -> frozenset[str]:
        """The files whose kernels are compiled into this one."""
        file, names = self.plain.__code__.co_filename, self.plain.__globals__
        if file not in self._sources:
            self._sources[file] = frozenset({file})  # files that call each other end here
            others = [value for value in names.values() if isinstance(value, Kernel)]
            self._sources[file] = self._sources[file].union(*(other.sources() for other in others))
        return self._sources[file]

    def load(self) -> Callable[..., Any]:
        """The function as numba calls it."""
        with self._lock:
            if self._dispatcher is None:
                import numba

                try:
                    self._dispatcher = numba.njit(self.plain, cache=True, **self.options)
                    depend_on_sources(self._dispatcher, self.sources())
                    discard_unreadable(self._dispatcher)
                except RuntimeError:  # no folder that can be written to
                    self._dispatcher = numba.njit(self.plain, **self.options)
                names = self.plain.__globals__
                kernels = {name: value for name, value in names.items() if isinstance(value, Kernel)}
                names.update({name: kernel.load() for name, kernel in kernels.items()})
            return self._dispatcher


class Instructions(Kernel):
    """A part of compiled functions that is written in LLVM's instructions, where numba's own would be slow.

    The function gets the types of its arguments and returns its signature and a function that emits the instructions
    (`numba.extending.intrinsic`).
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, {})

    def load(self) -> Callable[..., Any]:
        with self._lock:
            if self._dispatcher is None:
                from numba.extending import intrinsic

                self._dispatcher = intrinsic(self.plain)
            return self._dispatcher


def depend_on_sources(dispatcher: Any, files: Iterable[str]) -> None:
    """Let the cache of a kernel depend on all these files.

    numba compares the source of the kernel alone, though the code of those that it calls is part of what it keeps.
    """
    digests = [hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in sorted(files)]
    dispatcher._cache._cache_file._source_stamp = digests


def discard_unreadable(dispatcher: Any) -> None:
    """Empty the cache of a kernel if an earlier version of the package wrote it with classes that no longer exist.

    numba unpickles the argument types of a cache before it compares the date of the source, so a renamed class would
    end the program.
    """
    try:
        dispatcher._cache._cache_file._load_index()
    except (AttributeError, ImportError):
        dispatcher._cache.flush()
