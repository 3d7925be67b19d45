"""A program for two ranks, of which one does something that takes longer than torch is willing to wait."""

import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from unittest import mock

import torch
from torch import distributed

from seqloom.training.distributed import join

LIMIT = timedelta(seconds=1)


def main(run: Path, options: dict[str, object]) -> int:
    """Let the first rank take three times as long as collectives may; 0 if all of them were patient."""
    hasty = partial(distributed.init_process_group, timeout=LIMIT)
    with mock.patch.object(distributed, "init_process_group", hasty), join(torch.device("cpu")) as world:
        if options["patient"]:
            world.first_does(lambda: time.sleep(3 * LIMIT.total_seconds()), what="wait")
        else:
            time.sleep(3 * LIMIT.total_seconds() if world.is_first else 0)
            world.sum(1.0)
        (run / f"done.{world.rank}").touch()
    return 0
