"""Whatever a model would write, the decoded text holds the forced phrases as words, and no forbidden one."""

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from search.steppers import History
from seqloom.apps.request import ConstraintSet, constraint_of, required_symbols
from seqloom.core.errors import UsageError
from seqloom.core.stepping import Source
from seqloom.search.constraints import All, Constraint, ForbiddenText, Phrases
from seqloom.search.decode import decode
from seqloom.search.settings import SearchConfig
from seqloom.text.glossary import ways_to_write
from seqloom.text.tokenizer import TextConfig, Tokenizer
from seqloom.text.tokenizer_training import train_tokenizer
from seqloom.text.words import stands_between_borders

ALPHABETS = ["dog ", "dogs,. ", "do(g-'", "狗do海g ", "dögo "]
KINDS = ["word", "char", "bpe", "unigram", "char+bytes", "bpe+bytes"]


@cache
def tokenizer(kind: str, alphabet: str, seed: int) -> Tokenizer:
    """A small vocabulary, learned from random text, so that it is another one for each seed."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(alphabet), (30, 24), generator=generator).tolist()
    lines = [alphabet, "dog do go", *("".join(alphabet[at] for at in line) for line in drawn)]
    name, _, more = kind.partition("+")
    size = {"char": 40, "word": 40, "bpe": 24, "unigram": 26}[name] + (256 if more else 0)
    return train_tokenizer(lines, TextConfig.model_validate({"kind": name, "size": size, "byte_fallback": bool(more)}))


def count(text: str, phrase: str) -> int:
    """How often a phrase stands in a text between borders of words, at places that do not overlap."""
    at = found = 0
    while (at := text.find(phrase, at)) >= 0:
        is_there = stands_between_borders(text, at, at + len(phrase))
        found, at = found + is_there, at + (len(phrase) if is_there else 1)
    return found


def texts(constraint: Constraint, ours: Tokenizer, *, seed: int, **chosen: object) -> list[str]:
    """What a search finds for two sentences under a stepper that puts symbols together at random."""
    stepper = History(ours.size, seed=seed)
    source = Source(torch.tensor([[5, 6, 4, 7], [4, 4, 0, 0]]), torch.tensor([4, 2]))
    config = SearchConfig.model_validate({"nbest": 1, "length_factor": 1.0, "length_constant": 6, **chosen})
    found = decode(stepper, source, config, constraints=[constraint, constraint])
    return [ours.decode(each.symbols) for best in found for each in best]


SEARCHES = st.sampled_from([{"beam": 1}, {"beam": 3, "nbest": 3}, {"method": "sample", "nbest": 3, "beam": 3}])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=3)
@given(st.sampled_from(ALPHABETS), st.integers(0, 4), st.sampled_from(["dog", "do", "g", "do g", "狗"]), SEARCHES)
def test_no_translation_holds_a_forbidden_phrase(
    kind: str, alphabet: str, seed: int, phrase: str, chosen: dict[str, object]
) -> None:
    ours = tokenizer(kind, alphabet, seed % 2)
    constraint = constraint_of(ConstraintSet(forbidden=(phrase, "go")), ours)
    assert constraint is not None
    for text in texts(constraint, ours, seed=seed, **chosen):
        assert count(text, phrase) == count(text, "go") == 0


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=3)
@given(st.sampled_from(ALPHABETS), st.integers(0, 4), st.sampled_from(["dog", "do", "do go"]), st.integers(1, 3))
def test_forced_phrases_stand_between_borders_of_words(
    kind: str, alphabet: str, seed: int, phrase: str, beam: int
) -> None:
    ours = tokenizer(kind, alphabet, seed % 2)
    times = 1 + seed % 2
    if not ways_to_write(phrase, ours):
        with pytest.raises(UsageError, match="cannot be written"):
            constraint_of(ConstraintSet(phrases=(phrase,)), ours)
        return
    constraint = constraint_of(ConstraintSet(phrases=(phrase,) * times), ours)
    assert constraint is not None
    for text in texts(constraint, ours, seed=seed, beam=beam, length_constant=12):
        assert count(text, phrase) >= times


def test_two_occurrences_fit_with_the_border_between_them() -> None:
    ours = tokenizer("char+bytes", "dogs,. ", 1)
    constraint = constraint_of(ConstraintSet(phrases=("do", "do")), ours)
    assert constraint is not None
    for seed in range(3):
        assert all(count(text, "do") == 2 for text in texts(constraint, ours, seed=seed, beam=1, length_constant=4))


def test_the_comparison_tells_runs_of_symbols_from_words() -> None:
    ours = tokenizer("char", "dog ", 0)
    way = tuple(ours.encode("dog"))
    glued = [texts(Phrases((way,), 2), ours, seed=seed, beam=2) for seed in range(8)]
    assert any(not count(text, "dog") for found in glued for text in found)


def test_a_prefix_that_ends_in_a_forbidden_word_is_refused() -> None:
    ours = tokenizer("char", "dog ", 0)
    constraint = constraint_of(ConstraintSet(prefix="go dog", forbidden=("dog",)), ours)
    assert constraint is not None
    with pytest.raises(UsageError, match=r"the prefix .* cannot come: something in it is forbidden \('dog'"):
        texts(constraint, ours, seed=0)
    other = constraint_of(ConstraintSet(prefix="go do", forbidden=("dog",)), ours)
    assert other is not None
    assert all(text.startswith("go do") and not count(text, "dog") for text in texts(other, ours, seed=0))


def test_a_forced_phrase_that_is_forbidden_is_refused() -> None:
    ours = tokenizer("bpe", "dog ", 0)
    constraint = constraint_of(ConstraintSet(phrases=("dog",), forbidden=("dog",)), ours)
    assert constraint is not None
    with pytest.raises(UsageError, match=r"the forced phrase .* cannot come: something in it is forbidden \('dog'"):
        texts(constraint, ours, seed=0)
    other = constraint_of(ConstraintSet(phrases=("dog",), forbidden=("do",)), ours)
    assert other is not None
    assert all(count(text, "dog") and not count(text, "do") for text in texts(other, ours, seed=0))


def test_a_stop_does_not_leave_a_forbidden_word_behind() -> None:
    ours = tokenizer("char", "dog ", 0)
    constraint = constraint_of(ConstraintSet(forbidden=("do", "o"), stops=("o",)), ours)
    assert constraint is not None
    for seed in range(6):
        assert all(not count(text, "do") and not count(text, "o") for text in texts(constraint, ours, seed=seed))


@pytest.mark.parametrize(
    ("stop", "text", "is_over"),
    [
        ("Dog", "a dog", True),
        ("caf\u0065\u0301", "cafe\u0301", True),
        ("dog ", "a dog", False),  # the space says that the word must have ended
        ("Dog ", "a dogs", False),
        ("DOG\t", "a dog is", True),
        ("x", "a dog", False),
    ],
)
def test_a_stop_is_found_as_the_model_writes_it(stop: str, text: str, *, is_over: bool) -> None:
    ours = train_tokenizer(["a dog is at the café, x"], TextConfig(kind="char", lowercase=True))
    constraint = constraint_of(ConstraintSet(stops=(stop,)), ours)
    assert constraint is not None
    place = constraint.begin()
    for symbol in ours.encode(text):
        place = constraint.after(place, symbol)
    assert constraint.is_over(place) == is_over


def test_a_stop_in_a_model_of_all_letters_is_found_as_it_is() -> None:
    ours = train_tokenizer(["a dog, a Dog"], TextConfig(kind="char"))
    constraint = constraint_of(ConstraintSet(stops=("Dog",)), ours)
    assert constraint is not None
    for text, is_over in (("a dog", False), ("a Dog", True)):
        place = constraint.begin()
        for symbol in ours.encode(text):
            place = constraint.after(place, symbol)
        assert constraint.is_over(place) == is_over


def test_a_shortlist_holds_the_letters_that_go_on_with_a_forbidden_word() -> None:
    ours = tokenizer("bpe", "dog ", 0)
    letters = {number for number in range(ours.size) if ours.piece(number) in ("d", "o", "g")}
    assert required_symbols(ConstraintSet(forbidden=("dog",)), ours) == letters != set()
    assert required_symbols(ConstraintSet(forbidden=("dog",)), tokenizer("word", "dog ", 0)) == set()
    assert required_symbols(ConstraintSet(stops=("dog",)), ours) == set()


def test_words_of_a_word_vocabulary_are_refused_at_once() -> None:
    ours = tokenizer("word", "dog ", 0)
    never = constraint_of(ConstraintSet(forbidden=("dog",)), ours)
    assert isinstance(never, All)
    assert ours.encode("dog")[0] in never.forbidden(never.begin())
    (part,) = never.parts
    assert isinstance(part, ForbiddenText)
    assert not part.unfinished(part.begin())
