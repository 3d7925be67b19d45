"""Compiled kernels and their cache on disk."""

import subprocess
import sys
from pathlib import Path

SOURCE = """
from typing import NamedTuple
from seqloom.core.jit import compiled

class {name}(NamedTuple):
    value: float

@compiled()
def double(number):
    return 2.0 * number.value

print(double({name}(21.0)))
"""


def test_a_cache_of_a_class_that_was_renamed_is_replaced(tmp_path: Path) -> None:
    """As after an upgrade in place: the old cache names a class that the new source does not have."""
    (tmp_path / "main.py").write_text("import kernels")
    for name in ("Before", "Afterwards"):
        (tmp_path / "kernels.py").write_text(SOURCE.format(name=name))
        # Without byte code (-B): Python would take that of another source of the same size and second.
        done = subprocess.run(
            [sys.executable, "-B", "main.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.stdout == "42.0\n", done.stderr
    assert list(tmp_path.rglob("*.nbi")), "no cache was written, so nothing was tested"


INNER = """
from seqloom.core.jit import compiled

@compiled()
def inner(number):
    return {factor} * number
"""

OUTER = """
from inner import inner
from seqloom.core.jit import compiled

@compiled()
def outer(number):
    return inner(number)

print(outer(7))
"""


def test_a_cache_depends_on_the_kernels_that_a_kernel_calls(tmp_path: Path) -> None:
    """As after an upgrade that changes one file of two: the machine code of the other contains it."""
    (tmp_path / "main.py").write_text("import outer")
    (tmp_path / "outer.py").write_text(OUTER)
    for factor in (2, 3):
        (tmp_path / "inner.py").write_text(INNER.format(factor=factor))
        # Without byte code (-B): Python would take that of another source of the same size and second.
        done = subprocess.run(
            [sys.executable, "-B", "main.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.stdout == f"{factor * 7}\n", done.stderr
    assert list(tmp_path.rglob("outer*.nbi")), "no cache was written, so nothing was tested"


THREADS = """
import threading
from time import sleep
import seqloom.core.jit as jit
import outer  # prints nothing

wait, begun, found = jit.discard_unreadable, threading.Event(), []

def slowly(dispatcher):
    begun.set()
    sleep(0.5)
    wait(dispatcher)

jit.discard_unreadable = slowly
kernel = outer.outer
first = threading.Thread(target=lambda: found.append(kernel(7)))
first.start()
begun.wait()
found.append(kernel(7))
first.join()
print(found)
"""


def test_a_second_thread_waits_until_a_kernel_is_whole(tmp_path: Path) -> None:
    """The first call of a kernel prepares those that it calls; a call beside it must not be compiled without them."""
    (tmp_path / "main.py").write_text(THREADS)
    (tmp_path / "outer.py").write_text(OUTER.replace("print(outer(7))", ""))
    (tmp_path / "inner.py").write_text(INNER.format(factor=2))
    done = subprocess.run(
        [sys.executable, "-B", "main.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "[14, 14]\n", done.stderr
