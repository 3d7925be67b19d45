"""Ranks that are started again meet each other, and not those that have died."""

import threading

import pytest
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from seqloom.training.distributed import fresh_store, has_torchrun_store


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store that torchrun keeps for all attempts."""
    store = TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    return store


def attempt(size: int) -> list[TCPStore]:
    """The stores of all ranks; those after the first ask before it is there."""
    found: dict[int, TCPStore] = {}
    threads = [
        threading.Thread(target=lambda rank=rank: found.update({rank: fresh_store(rank, size)}))
        for rank in reversed(range(size))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [found[rank] for rank in range(size)]


def test_each_attempt_has_a_store_of_its_own_that_knows_nothing_of_the_dead(lent: Store) -> None:
    assert has_torchrun_store()
    first = attempt(3)
    first[2].set("address of 2", "gone")
    assert first[0].get("address of 2") == b"gone"
    second = attempt(3)
    assert second[0].port != first[0].port
    assert [store.port for store in second] == [second[0].port] * 3
    assert not second[1].check(["address of 2"])
    assert lent.num_keys() > 0  # the questions of the dead, which still stand there


def test_a_single_rank_connects_without_others(lent: Store) -> None:
    (store,) = attempt(1)
    assert store.check(["anything"]) is False
