"""Subword regularisation: the text stays, its limits are the plain cut and single characters, and draws are exact."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import models

import nasty
from seqloom.core.errors import ConfigError
from seqloom.core.symbols import BEGIN, END, RESERVED, UNKNOWN
from seqloom.text.marks import BYTE_PIECES
from seqloom.text.subword_sampling import subword_sampler
from seqloom.text.tokenizer import FlatIds, TextConfig, Tokenizer, byte_pairs
from seqloom.text.tokenizer_training import train_tokenizer

LINES = [
    "A man says: 'so it's the dogs' house', and the dog's owner isn't laughing...",
    "'Tis rock 'n' roll, isn't it? The dogs' owners' dogs aren't l'homme's.",
    "Ein Mann und ein Hund laufen am Strand; der Hund läuft schneller!!",
    "L'homme et le chien courent sur la plage : 1 984 fois, 3,5 km.",
    "我们在海边看狗，你们在家里看书。",
    "it's the man's dog's house, the dogs' house and it's 'so' 'nice'",
]
CONFIGS = {
    "bpe": TextConfig(kind="bpe", size=200),
    "bpe-bytes": TextConfig(kind="bpe", size=480, byte_fallback=True),
    "unigram": TextConfig(kind="unigram", size=160),
    "unigram-bytes": TextConfig(kind="unigram", size=420, byte_fallback=True),
}
TEXTS = nasty.texts(most=4, longest=60) | st.text(st.sampled_from("aaethsdgo '’'é1我.\u200d"), max_size=30)
DRAWS = 20_000


@cache
def tokenizer(name: str) -> Tokenizer:
    return train_tokenizer(LINES, CONFIGS[name])


def sampled(ours: Tokenizer, rows: Sequence[Sequence[int]], rate: float, *, longest: int = 10_000) -> list[list[int]]:
    return subword_sampler(ours, rate)(FlatIds.of(rows), np.arange(len(rows)), longest=longest).rows()


def characters(ours: Tokenizer, ids: Sequence[int]) -> list[str]:
    whole = {*RESERVED, *BYTE_PIECES}
    pieces = [ours.piece(number) for number in ids]
    return [part for piece in pieces for part in ([piece] if piece in whole else piece)]


@pytest.mark.parametrize("name", CONFIGS)
@settings(max_examples=60)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4), rate=st.floats(0, 1))
def test_other_cuts_spell_the_same_text(name: str, texts: list[str], rate: float) -> None:
    ours = tokenizer(name)
    plain = [[*row, END] for row in ours.encode_many(texts)]
    for before, after in zip(plain, sampled(ours, plain, rate), strict=True):
        assert characters(ours, after) == characters(ours, before)
        assert ours.decode(after) == ours.decode(before)


@pytest.mark.parametrize("name", ["bpe", "bpe-bytes"])
@settings(max_examples=200)
@given(texts=st.lists(TEXTS | st.sampled_from(LINES), min_size=1, max_size=4))
def test_without_dropout_the_cut_is_the_plain_one_and_with_all_of_it_single_characters(
    name: str, texts: list[str]
) -> None:
    ours = tokenizer(name)
    plain = [[BEGIN, *row, END] for row in ours.encode_many(texts)]
    assert sampled(ours, plain, 0.0) == plain
    for before, after in zip(plain, sampled(ours, plain, 1.0), strict=True):
        assert [ours.piece(number) for number in after] == characters(ours, before)


# A tiny table of merges, and the distribution of cuts by brute force.

MERGES = [("a", "b"), ("ab", "a"), ("b", "a"), ("c", "d"), ("ab", "cd"), ("▁", "ab"), ("a", "ab"), ("▁", "abcd")]


@cache
def tiny_bpe() -> Tokenizer:
    pieces = dict.fromkeys([*RESERVED, "▁", *"abcd", *("".join(pair) for pair in MERGES)])
    ids = {piece: number for number, piece in enumerate(pieces)}
    fast = FastTokenizer(models.BPE(ids, MERGES, unk_token=RESERVED[UNKNOWN]))
    return Tokenizer(TextConfig(kind="bpe"), byte_pairs(fast.to_str().encode("utf-8")))


def bpe_dropout(pieces: tuple[str, ...], rate: float) -> dict[tuple[str, ...], float]:
    """P of each cut: the first pair of a round that is not skipped, in the order of merges, is joined."""
    ranks = {pair: rank for rank, pair in enumerate(MERGES)}
    pairs = sorted((ranks[pair], at) for at, pair in enumerate(pairwise(pieces)) if pair in ranks)
    found = Counter({pieces: rate ** len(pairs)})
    for skipped, (_, at) in enumerate(pairs):
        joined = (*pieces[:at], pieces[at] + pieces[at + 1], *pieces[at + 2 :])
        for cut, probability in bpe_dropout(joined, rate).items():
            found[cut] += rate**skipped * (1 - rate) * probability
    return found


def worst_deviation(drawn: Mapping[tuple[str, ...], int], exact: Mapping[tuple[str, ...], float]) -> float:
    """The largest deviation of a frequency from its probability, in standard deviations."""
    total = sum(drawn.values())
    assert math.isclose(math.fsum(exact.values()), 1)
    assert drawn.keys() <= exact.keys()
    return max(abs(drawn.get(cut, 0) - total * p) / math.sqrt(total * p * (1 - p) + 1) for cut, p in exact.items())


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_bpe_dropout_has_the_distribution_of_its_rounds(rate: float) -> None:
    ours, exact = tiny_bpe(), bpe_dropout(tuple("▁abaab"), rate)
    plain = ours.encode("abaab")
    drawn = Counter(tuple(map(ours.piece, row)) for row in sampled(ours, [plain] * DRAWS, rate))
    assert len(drawn) > 3
    assert worst_deviation(drawn, exact) < 4.5
    assert worst_deviation(drawn, bpe_dropout(tuple("▁abaab"), rate + 0.05)) > 6  # which it would notice
    # The library that learned the merges draws alike, in a word without overlapping pairs: there it lets a pair that
    # is gone already end a round.
    fast = FastTokenizer.from_str(ours.content.decode("utf-8"))
    fast.model.dropout = rate
    theirs = Counter(tuple(each.tokens) for each in fast.encode_batch(["▁abcd"] * DRAWS, add_special_tokens=False))
    assert worst_deviation(theirs, bpe_dropout(tuple("▁abcd"), rate)) < 4.5


def cuts(word: str, pieces: Mapping[str, float]) -> Iterator[tuple[str, ...]]:
    """All ways to cut a word into pieces."""
    if not word:
        yield ()
    for end in range(1, len(word) + 1):
        if word[:end] in pieces:
            yield from ((word[:end], *rest) for rest in cuts(word[end:], pieces))


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
def test_unigram_cuts_are_drawn_by_their_smoothed_probabilities(alpha: float) -> None:
    lines = ["rund rund Hund Hund Hunde und und Stunde Stunden Runde Kunde Kunden runden Hundert undicht"] * 3
    ours, word = train_tokenizer(lines, TextConfig(kind="unigram", size=25)), "▁Hunde"
    processor = sentencepiece.SentencePieceProcessor(model_proto=ours.content)
    scores = {piece: processor.get_score(at) for at, piece in enumerate(ours.vocabulary) if at >= len(RESERVED)}

    def exact(alpha: float) -> dict[tuple[str, ...], float]:
        weights = {cut: math.exp(alpha * sum(scores[piece] for piece in cut)) for cut in cuts(word, scores)}
        return {cut: weight / sum(weights.values()) for cut, weight in weights.items()}

    drawn = Counter(tuple(map(ours.piece, row)) for row in sampled(ours, [ours.encode("Hunde")] * DRAWS, alpha))
    assert len(exact(alpha)) == 4  # ▁Hunde, ▁Hund e, ▁ H unde, ▁ H u n d e
    assert worst_deviation(drawn, exact(alpha)) < 4.5
    assert worst_deviation(drawn, exact(alpha * 0.7)) > 6  # which it would notice
    sentencepiece.set_random_generator_seed(1)
    options = {"enable_sampling": True, "alpha": alpha, "nbest_size": -1, "num_threads": 1}
    theirs = Counter(map(tuple, processor.encode([word] * DRAWS, out_type=str, **options)))
    assert worst_deviation(theirs, exact(alpha)) < 4.5


@pytest.mark.parametrize("name", CONFIGS)
def test_a_cut_depends_on_its_seed_alone_and_is_never_too_long(name: str) -> None:
    ours = tokenizer(name)
    plain = ours.encode_many(LINES)
    sampler = subword_sampler(ours, 0.3)
    seeds = np.arange(len(LINES)) + 7
    together = sampler(FlatIds.of(plain), seeds, longest=10_000).rows()
    assert together != sampler(FlatIds.of(plain), seeds + 1, longest=10_000).rows()
    for row, seed, expected in reversed(list(zip(plain, seeds, together, strict=True))):
        assert sampler(FlatIds.of([row]), np.array([seed]), longest=10_000).rows() == [expected]
    longest = sorted(map(len, together))[len(together) // 2]
    bounded = sampler(FlatIds.of(plain), seeds, longest=longest).rows()
    assert bounded == [new if len(new) <= longest else old for old, new in zip(plain, together, strict=True)]
    assert bounded != together


def test_tokenisers_without_other_cuts_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"of kind word has no other cuts to draw; train with text\.kind=bpe"):
        subword_sampler(train_tokenizer(LINES, TextConfig(kind="word")), 0.1)
    with pytest.raises(ConfigError, match=r"subword sampling at 1\.5 is not possible"):
        subword_sampler(tokenizer("bpe"), 1.5)
