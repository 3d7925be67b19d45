"""What is remembered of chunks changes the time, never the ids."""

import random

import pytest

from seqloom.text.tokenizer import ChunkCache


class Counting:
    """Ids of letters, and how many chunks were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, chunks: list[str]) -> list[list[int]]:
        self.asked += chunks
        return [list(map(ord, chunk)) for chunk in chunks]


def small(entries: int) -> tuple[ChunkCache, Counting]:
    counting = Counting()
    cache = ChunkCache(counting)
    cache.entries = entries
    return cache, counting


@pytest.mark.parametrize("entries", [1, 3, 1000])
def test_ids_are_those_of_each_chunk_whatever_is_remembered(entries: int) -> None:
    cache, _ = small(entries)
    draw = random.Random(1)
    for _ in range(60):
        texts = [" ".join(draw.choices(["a", "bb", "c" * 80, "dé", "e", "中"], k=draw.randrange(5))) for _ in range(3)]
        found = cache.segment(texts)
        marked = ["▁" * bool(text) + text.replace(" ", "▁") for text in texts]
        expected = [list(map(ord, text.removeprefix("▁") if text.startswith("▁中") else text)) for text in marked]
        assert found.rows() == expected


def test_frequent_chunks_stay_while_rare_ones_pass() -> None:
    cache, counting = small(50)
    for at in range(400):
        cache.segment([f"often rare{at}"])
    assert counting.asked.count("▁often") == 1
    assert len(counting.asked) == 401
    assert len(cache._young) + len(cache._old) <= 100


def test_long_chunks_are_not_remembered() -> None:
    cache, counting = small(50)
    for _ in range(3):
        cache.segment(["x" * 100 + " short"])
    assert counting.asked.count("▁short") == 1
    assert len([chunk for chunk in counting.asked if len(chunk) > 64]) == 3
