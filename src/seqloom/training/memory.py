"""Keep freed memory in the process.

The C library of Linux gives large blocks back to the kernel as soon as they are freed. A training step frees and asks
for the same activations again and again, so that each of them is zeroed and mapped anew, page by page, at every step.
Told otherwise, the library keeps them on its own heap.
"""

import ctypes
import platform

# From <malloc.h> of glibc.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4

_PAD_BYTES = 64 << 20
"""By how much more than was asked the heap grows each time: few, large growths."""

_LARGEST_INT = 2**31 - 1


def keep_freed_memory() -> bool:
    """Ask glibc to keep what is freed; whether it agreed. Elsewhere nothing happens.

    No block is mapped for itself, the heap is not trimmed, and it grows in large pieces. The price is that the process
    stays as large as it once was.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _LARGEST_INT), (_TOP_PAD, _PAD_BYTES))
    library = ctypes.CDLL(None)
    return all(library.mallopt(ctypes.c_int(name), ctypes.c_int(value)) == 1 for name, value in settings)
