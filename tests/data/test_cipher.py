"""The made-up language: a bijection of words, an order by rule, the same in every text."""

from collections import Counter

from seqloom.data.cipher import cipher_of, cipher_word
from seqloom.data.phrasebook import sample_sentences
from seqloom.text.marks import split_words


def test_words_are_replaced_and_short_ones_follow_the_next_word() -> None:
    known = ["he", "waits", "in", "the", "garden", "Anna"]
    he, waits, inside, the, garden, anna = (cipher_word(word, 3) for word in known)
    assert cipher_of(["He waits in the garden.", "in 26, the Anna"], 3) == [
        f"{waits.capitalize()} {he} {the} {inside} {garden}.",
        f"26 {inside}, {anna.capitalize()} {the}",
    ]
    assert cipher_of(["", "26 : 3."], 3) == ["", "26 : 3."]


def test_different_words_become_different_words_and_sentences_keep_their_words() -> None:
    lines = sample_sentences("en", count=20_000, seed=1)
    made = cipher_of(lines, 7)
    words = {word.lower() for line in lines for word in split_words(line)}
    assert len({cipher_word(word, 7) for word in words}) == len(words)
    for line, other in zip(lines[:500], made[:500], strict=True):
        expected = Counter(cipher_word(word, 7) for word in split_words(line.lower()))
        assert Counter(split_words(other.lower())) == expected
        assert line.split() != other.split()
    assert cipher_of(lines[:50], 7) == made[:50]
    assert set(cipher_of(lines[:50], 8)).isdisjoint(made[:50])
