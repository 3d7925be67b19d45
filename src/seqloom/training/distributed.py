"""The ranks of a run: processes that torchrun started, each with the same model and its own batches."""

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import torch
from torch import Tensor, distributed
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from seqloom.core.errors import TrainingError, UsageError

# How the ranks of a run find each other, after a restart too.
#
# torchrun gives all attempts of a run the same store. It still has the addresses of ranks that have died, and restarted
# ranks may try to connect to them. So the first rank opens a store of its own at each start and sends its port to every
# rank that asks; each request has a unique key, so no answer is an old one.

CONNECT_TIMEOUT = timedelta(minutes=30)
"""How long ranks wait for each other at the start."""

_PAUSE = 0.05
"""Seconds between two checks for requests."""

_REQUEST, _ANSWER, _ARRIVAL = "question of {}", "answer to {}", "rank {} is here"
"""Keys of a rank, of its request and of a rank."""


def has_torchrun_store() -> bool:
    """Whether torchrun provides a store for this process."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)


def fresh_store(rank: int, size: int) -> Store:
    """A store for the ranks of this attempt only."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    lent = PrefixStore("seqloom", TCPStore(host, port, size, is_master=False, timeout=CONNECT_TIMEOUT))
    if rank > 0:
        request = secrets.token_hex(16)
        lent.set(_REQUEST.format(rank), request)
        found = TCPStore(host, int(lent.get(_ANSWER.format(request))), size, is_master=False, timeout=CONNECT_TIMEOUT)
        found.set(_ARRIVAL.format(rank), "")
        return found
    # Send each rank the port of the new store, until all have connected. Requests of dead ranks are harmless.
    own = TCPStore(host, 0, size, is_master=True, wait_for_workers=False, timeout=CONNECT_TIMEOUT)
    answered: set[str] = set()
    for _ in range(round(CONNECT_TIMEOUT.total_seconds() / _PAUSE)):
        missing = [rank for rank in range(1, size) if not own.check([_ARRIVAL.format(rank)])]
        if not missing:
            return own
        asking = [rank for rank in missing if lent.check([_REQUEST.format(rank)])]
        for request in {lent.get(_REQUEST.format(rank)).decode() for rank in asking} - answered:
            lent.set(_ANSWER.format(request), str(own.port))
            answered.add(request)
        time.sleep(_PAUSE)
    raise TrainingError(
        f"rank {', '.join(map(str, missing))} of {size} did not connect within {CONNECT_TIMEOUT}; see its error message"
    )


PATIENCE = timedelta(days=30)
"""How long ranks wait for work of the first rank: preparing text, validating, writing files."""


@dataclass(frozen=True)
class World:
    """Which rank this process is, of how many, and the few things that ranks do together.

    Only tensors travel between ranks, never pickled objects.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    patient: distributed.ProcessGroup | None = None
    """A group with a long timeout, for waiting while one rank works alone."""

    @property
    def is_first(self) -> bool:
        """Whether this rank writes files and emits events."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """The sum over all ranks of each of some numbers, the same on every rank."""
        return self._reduce(values, distributed.ReduceOp.SUM)

    def count(self, value: int) -> int:
        """The sum over all ranks of one integer each."""
        return int(self.sum(float(value))[0])

    def least(self, value: int) -> int:
        """The least of one integer per rank."""
        return int(self._reduce((float(value),), distributed.ReduceOp.MIN)[0])

    def _reduce(self, values: tuple[float, ...], how: distributed.ReduceOp.RedOpType) -> list[float]:
        if self.size == 1 or not values:
            return list(values)
        # float64 holds every count below 2⁵³ exactly.
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        distributed.all_reduce(tensor, how)
        return [float(value) for value in tensor.tolist()]

    def from_first(self, *values: float) -> list[float]:
        """The values of the first rank, on every rank."""
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        distributed.broadcast(tensor, src=0, group=self.patient)
        return [float(value) for value in tensor.tolist()]

    def stack(self, tensor: Tensor) -> Tensor:
        """One row per rank, on the CPU, in the order of the ranks; shapes must agree."""
        if self.size == 1:
            return tensor.detach().cpu()[None]
        mine = tensor.detach().to(self.device)
        rows = [torch.empty_like(mine) for _ in range(self.size)]
        distributed.all_gather(rows, mine)
        return torch.stack(rows).cpu()

    def first_does(self, action: Callable[[], None], *, what: str) -> None:
        """Run an action on the first rank; if it fails there, every rank stops."""
        error: BaseException | None = None
        if self.is_first:
            try:
                action()
            except BaseException as raised:
                error = raised
        (has_failed,) = self.from_first(float(error is not None))
        if error is not None:
            raise error
        if has_failed:
            raise TrainingError(f"rank 0 could not {what}; see its error message")


def alone(device: torch.device | None = None) -> World:
    """The world of a single process."""
    return World(device=device or torch.device("cpu"))


@contextmanager
def join(device: torch.device) -> Iterator[World]:
    """The world that torchrun's environment describes (gloo between CPUs, NCCL between GPUs), or one alone without it.

    On GPUs each rank takes the one with its local number: see `World.device`.
    """
    size = _from_environment("WORLD_SIZE", 1)
    if size == 1:
        yield alone(device)
        return
    if device.type == "cuda":
        device = torch.device("cuda", _from_environment("LOCAL_RANK", 0))
        torch.cuda.set_device(device)
    rank = _from_environment("RANK", 0)
    _from_environment("MASTER_PORT", 0)  # to refuse what is not a number
    try:
        backend = "nccl" if device.type == "cuda" else "gloo"
        if has_torchrun_store():
            distributed.init_process_group(backend, store=fresh_store(rank, size), rank=rank, world_size=size)
        else:
            distributed.init_process_group(backend)
    except ValueError as error:
        raise UsageError(
            f"RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT must be set, as torchrun does: {error}"
        ) from error
    except RuntimeError as error:
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        raise TrainingError(f"the {size} ranks could not connect at {where}: {error}") from error
    try:
        # torch's timeout is ten or thirty minutes, and preparing a large corpus takes longer. A rank that dies is still
        # noticed immediately: its connections close.
        patient = distributed.new_group(backend="gloo", timeout=PATIENCE)
        yield World(rank=distributed.get_rank(), size=distributed.get_world_size(), device=device, patient=patient)
    finally:
        distributed.destroy_process_group()


def _from_environment(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    try:
        return int(text) if text else default
    except ValueError as error:
        raise UsageError(
            f"{name}={text!r} in the environment is not a number; let torchrun set it, or unset it"
        ) from error
