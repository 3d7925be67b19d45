"""The memory that a forward and a backward pass of a recurrent layer takes, measured in a fresh process for each.

peak I      entry I: {"bytes": …}

It is the peak of the process's resident memory during one call, less what was resident before: weights, inputs and
libraries are there already, gradients and all that is kept for the backward pass are counted, whoever allocates them.
(torch has no statistics of its allocator on a processor, and its profiler does not see what its libraries take.)

A process is forked for each entry from this one, which has loaded everything and computed nothing. So that the peak
is that of live memory, and the same in each repetition: large blocks go back to the system as they are freed, free
pages left over from loading do so before the call, and the layer has been called before on a batch of two positions.
"""

import argparse
import contextlib
import ctypes
import gc
import importlib
import json
import os
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from recurrent_layers import build, make_call, make_product
from serving import Line

ONE_ARENA, LARGE_BLOCKS = (-8, 1), (-3, 128 * 1024)
"""Settings of glibc's allocator: one heap for all threads; from 128 kB on a block is a mapping of its own, and that
does not change as blocks are freed."""

WARM_PRODUCT = 512
"""Size of a matrix product, by which the library for products makes its own buffers before anything is counted."""

SMALLEST = 4096
"""One page: no call is said to take less."""

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def can_measure() -> bool:
    """Whether the system tells and forgets the peak of a process, and the allocator can be set."""
    try:
        reset_peak()
        libc().mallopt(*LARGE_BLOCKS)
        libc().mallopt(*ONE_ARENA)
    except (OSError, AttributeError):
        return False
    return True


def libc() -> ctypes.CDLL:
    """The C library of this process."""
    return ctypes.CDLL(None)


def reset_peak() -> None:
    """Let the kernel forget the highest resident size so far."""
    RESET.write_text("5", encoding="ascii")


def resident(name: str) -> int:
    """VmRSS (now) or VmHWM (highest so far) in bytes."""
    (found,) = (line.split()[1] for line in STATUS.read_text(encoding="ascii").splitlines() if line.startswith(name))
    return 1024 * int(found)


def peak_of(entry: dict[str, Any], shape: tuple[int, int, int], *, threads: int) -> int:
    """Bytes of one call over a batch of this shape."""
    torch.set_num_threads(threads)
    module, layer = build(entry, shape[2])
    make_call(module, layer, (1, 2, shape[2]))()
    make_product(WARM_PRODUCT)()
    call = make_call(module, layer, shape)
    gc.collect()
    libc().malloc_trim(0)
    reset_peak()
    before = resident("VmRSS")
    call()
    return max(SMALLEST, resident("VmHWM") - before)


def in_child(work: Callable[[], int]) -> int:
    """What the work gives in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(work()).encode("ascii"))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="ascii") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    if not said:
        raise RuntimeError("the process that was to measure a layer ended without an answer")
    return int(said)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--entries", type=json.loads, required=True)
    parser.add_argument("--shape", type=int, nargs=3, required=True, metavar=("BATCH", "TIME", "WIDTH"))
    given = parser.parse_args()
    line = Line()
    can = can_measure()
    with contextlib.suppress(ImportError):  # what the first backward pass would load, half a second for each child
        importlib.import_module("torch.fx.experimental.symbolic_shapes")
    gc.freeze()
    line.say({"can_measure": can})
    batch, length, width = given.shape
    for _, number in line.commands():
        work = partial(peak_of, given.entries[number], (batch, length, width), threads=given.threads)
        line.say({"bytes": in_child(work)})


if __name__ == "__main__":
    main()
