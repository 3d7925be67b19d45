"""Loops as machine code, by numba. Whoever imports this waits a second for the compiler, so it is imported late."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(*, fast: Iterable[str] = (), is_inlined: bool = False) -> Callable[[F], F]:
    """A decorator that makes machine code of a function when it is first called, kept on disk if there is a place.

    `fast` names liberties with floating-point numbers, by LLVM's names: "contract" joins a product and a sum into one
    instruction, "reassoc" lets a sum be taken eight at a time. Other threads run meanwhile. Arguments are given by
    place: that is how compiled code is called quickly. A function that is inlined becomes a part of each that calls
    it, for small ones that would spend their time on being handed many arrays.
    """
    options: dict[str, Any] = {
        "fastmath": set(fast),
        "error_model": "numpy",
        "nogil": True,
        "forceinline": is_inlined,
    }

    def compile_it(function: F) -> F:
        plain = inspect.unwrap(function)  # as it was written: the test run wraps type checks round it
        try:
            return cast("F", numba.njit(plain, cache=True, **options))
        except RuntimeError:  # no folder that can be written to
            return cast("F", numba.njit(plain, **options))

    return compile_it
