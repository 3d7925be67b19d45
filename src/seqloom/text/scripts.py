"""Properties of a single text: its words, its scripts, and a key by which repeats are found."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

from seqloom.text.marks import UNSPACED

_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u0dff"
)
"""Vowel signs and accents, which occur inside words but are not letters to Python's regular expressions."""

_ascii_words = re.compile(r"[a-z0-9]+").findall
_words = re.compile(rf"(?=\w)[{UNSPACED}]|(?:[^\W_{UNSPACED}]|[{_MARKS}])+").findall
_SPECIAL = {"FULLWIDTH": 1, "HALFWIDTH": 1}
_JOINED = {"HIRAGANA": "KANA", "KATAKANA": "KANA", "KATAKANA-HIRAGANA": "KANA", "CJK": "HAN", "IDEOGRAPHIC": "HAN"}
_NO_SCRIPT = frozenset(
    {"MODIFIER", "FEMININE", "MASCULINE", "MICRO", "MATHEMATICAL", "SCRIPT", "DOUBLE-STRUCK", "ANGSTROM"}
)


MAX_SCANNED_CHARACTERS = 20_000
"""Characters of a line that are searched for words: anything longer is not a sentence."""


def words_of(text: str) -> list[str]:
    """Words in lower case without punctuation; each character is one in scripts that put no space between words."""
    text = text[:MAX_SCANNED_CHARACTERS]
    if text.isascii():
        return _ascii_words(text.lower())
    return _words(unicodedata.normalize("NFKC", text).casefold())


def likeness_of(text: str, words: list[str]) -> int:
    """The key of texts that differ in capitals, spaces and marks only, within MAX_SCANNED_CHARACTERS."""
    # A line of marks alone is known by them.
    return key_of((" ".join(words) or text[:MAX_SCANNED_CHARACTERS].strip()) + text[MAX_SCANNED_CHARACTERS:])


def key_of(text: str) -> int:
    """A number of 64 bits that equal texts share."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


class _Scripts(dict[str, str]):
    """The script of each character met so far; "" for what belongs to none."""

    def __missing__(self, character: str) -> str:
        script = ""
        if unicodedata.category(character)[0] == "L":
            parts = unicodedata.name(character, "").split(" ")
            name = parts[_SPECIAL.get(parts[0], 0)] if len(parts) > 1 else ""
            script = "" if name in _NO_SCRIPT else _JOINED.get(name, name)
        self[character] = script
        return script


_SCRIPTS = _Scripts()


def script_of(character: str) -> str:
    """The script of a letter by its Unicode name, such as LATIN; "" for what belongs to none."""
    return _SCRIPTS[character]


def scripts_of(text: str) -> Counter[str]:
    """How many letters of each script a text has, by the Unicode names of the scripts: LATIN, CYRILLIC, HAN …"""
    counts = Counter(map(_SCRIPTS.__getitem__, text))
    del counts[""]
    return counts


FEWEST_LETTERS = 3
"""Letters below which a text has no main script."""


def main_script(scripts: Counter[str], words: Sequence[str]) -> str:
    """The script of most words of a text, by its letters and words; "" if none has more than half.

    Letters do not decide: one name in Latin letters has more of them than the Chinese sentence around it.
    """
    if scripts.total() < FEWEST_LETTERS:
        return ""
    if len(scripts) == 1:
        return next(iter(scripts))
    counts = Counter(map(script_of, (word[0] for word in words)))
    del counts[""]
    name, count = counts.most_common(1)[0] if counts else ("", 0)
    return name if 2 * count > counts.total() else ""


def trigrams(text: str) -> set[str]:
    """All runs of three characters."""
    return {text[at : at + 3] for at in range(len(text) - 2)}
