"""A made-up language: text with other words in another order, for translation without parallel text.

    words    each word becomes a word of four or five syllables that a hash of the seed and the word chooses,
             regardless of its case; numbers and punctuation stay
    order    a word of at most three letters follows the word after it, unless punctuation is between them:
             "He waits in the garden." → [waits] [he] [the] [in] [garden].

A cipher has no state: the same word becomes the same word in every text, so a training text and a test text are in the
same language. Nothing of the spelling is left, and short words (articles, prepositions, pronouns) come after what they
refer to, as they do in languages with postpositions.
"""

from collections.abc import Iterable
from functools import lru_cache

from seqloom.core.seeds import seed_for
from seqloom.text.marks import JOINER, join_words, split_words

CONSONANTS, VOWELS = "bdfghjklmnprstvz", "aeiou"
SHORT_LETTERS = 3
"""Letters of the longest words that change places with the next word."""


def cipher_of(lines: Iterable[str], seed: int) -> list[str]:
    """The lines in the made-up language of this seed."""
    return [_cipher_line(line, seed) for line in lines]


def cipher_word(word: str, seed: int) -> str:
    """The lower-cased word that a word becomes; what has no letter stays."""
    return _made_up(word.lower(), seed) if _has_letters(word) else word


def _cipher_line(line: str, seed: int) -> str:
    words = split_words(line)
    first = next((place for place, word in enumerate(words) if _has_letters(word)), None)
    if first is None:
        return line
    is_capital = words[first][:1].isupper()
    made = []
    for place, word in enumerate(words):
        new = cipher_word(word, seed)
        made.append(new.capitalize() if place != first and _has_letters(word) and word[:1].isupper() else new)
    place = first
    while place + 1 < len(words):
        one, other = words[place : place + 2]
        if _has_letters(one) and len(one) <= SHORT_LETTERS and JOINER not in other:
            made[place], made[place + 1] = made[place + 1], made[place]
            place += 1
        place += 1
    if is_capital:
        made[first] = made[first][:1].upper() + made[first][1:]
    return join_words(made)


@lru_cache(maxsize=1 << 16)
def _made_up(word: str, seed: int) -> str:
    number = seed_for(seed, f"cipher {word}")
    number, longer = divmod(number, 2)
    syllables = []
    for _ in range(4 + longer):
        number, consonant = divmod(number, len(CONSONANTS))
        number, vowel = divmod(number, len(VOWELS))
        syllables.append(CONSONANTS[consonant] + VOWELS[vowel])
    return "".join(syllables)


def _has_letters(word: str) -> bool:
    return any(character.isalpha() for character in word)
