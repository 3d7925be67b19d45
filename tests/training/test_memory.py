"""Freed memory stays in the process."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource, sys
from seqloom.training.trainer import keep_freed_memory
agreed = keep_freed_memory() if sys.argv[1] == "kept" else True
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.malloc.argtypes, library.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
size = 40 << 20
def touch():
    block = library.malloc(size)
    ctypes.memset(block, 1, size)
    library.free(block)
touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    touch()
print(int(agreed), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    result = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    agreed, count = result.stdout.split()
    assert agreed == "1"
    return int(count)


@pytest.mark.skipif(
    platform.system() != "Linux" or platform.libc_ver()[0] != "glibc", reason="the C library is not glibc"
)
def test_a_block_that_is_freed_and_allocated_again_is_not_faulted_in_again() -> None:
    assert faults("kept") < 100
    assert faults("given back") > 100
