"""How the ranks of a run find each other, after a restart too.

torchrun lends all attempts of a run one store. The addresses of ranks that have died still stand in it, and torch
believes them: ranks that are started again may call those that are gone. So the first rank opens a store of its own at
each start, and tells of it whoever asks; each question has a name that was never used before, so no answer is an old
one.
"""

import os
import secrets
import time
from datetime import timedelta

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from seqloom.core.errors import TrainingError

PATIENCE = timedelta(minutes=30)
"""How long ranks wait for each other at the start."""

_PAUSE = 0.05
"""Seconds between two looks for questions."""


def is_lent_a_store() -> bool:
    """Whether torchrun has a store for this process."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)


def fresh_store(rank: int, size: int) -> Store:
    """A store that the ranks of this attempt have for themselves."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    lent = PrefixStore("seqloom", TCPStore(host, port, size, is_master=False, timeout=PATIENCE))
    if rank == 0:
        own = TCPStore(host, 0, size, is_master=True, wait_for_workers=False, timeout=PATIENCE)
        _answer_all(lent, own, size)
        return own
    question = secrets.token_hex(16)
    lent.set(_question_of(rank), question)
    found = TCPStore(host, int(lent.get(_answer_to(question))), size, is_master=False, timeout=PATIENCE)
    found.set(_arrival_of(rank), "")
    return found


def _answer_all(lent: Store, own: TCPStore, size: int) -> None:
    """Tell each rank where the new store is, until all have come. What dead ranks have asked is answered in vain."""
    answered: set[str] = set()
    for _ in range(round(PATIENCE.total_seconds() / _PAUSE)):
        missing = [rank for rank in range(1, size) if not own.check([_arrival_of(rank)])]
        if not missing:
            return
        asking = [rank for rank in missing if lent.check([_question_of(rank)])]
        for question in {lent.get(_question_of(rank)).decode() for rank in asking} - answered:
            lent.set(_answer_to(question), str(own.port))
            answered.add(question)
        time.sleep(_PAUSE)
    raise TrainingError(
        f"rank {', '.join(map(str, missing))} of {size} did not come within {PATIENCE}; look for its own message"
    )


def _question_of(rank: int) -> str:
    return f"question of {rank}"


def _answer_to(question: str) -> str:
    return f"answer to {question}"


def _arrival_of(rank: int) -> str:
    return f"rank {rank} is here"
