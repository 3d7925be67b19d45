"""Words and scripts of a text, a key by which repeats are found, and whether it is in the expected language."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

from seqloom.text.languages import LANGUAGES, contradicts, language_name
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


MIN_SCRIPT_SHARE = 0.2
"""Minimum share of a side's letters for a script to belong to it; Japanese has two such scripts."""


def main_scripts(letters: Mapping[str, int]) -> tuple[str, ...]:
    """The scripts that a side is written in, the most frequent first."""
    least = MIN_SCRIPT_SHARE * max(1, sum(letters.values()))
    return tuple(name for name, count in sorted(letters.items(), key=lambda item: -item[1]) if count >= least)


def trigrams(text: str) -> set[str]:
    """All runs of three characters."""
    return {text[at : at + 3] for at in range(len(text) - 2)}


# --- whether a text is in the expected language, judged by its first lines --------------------------------------------
#
# There are two kinds of evidence, and no verdict where neither is clear: the script of its letters, and its function
# words (the, und, que) for the twenty languages whose function words are known. One or two sentences are not judged.

SAMPLED_LINES = 2_000
"""Lines that are examined."""

MIN_WORDS, MIN_LETTERS = 60, 60
"""A text with less is not judged."""

MAX_FOREIGN_SHARE = 0.1
"""The share of its letters that a text in another script may have in the right one: names, numbers, a borrowed word."""

_SCRIPTS_BY_CODE = {
    "Latn": ("LATIN",), "Cyrl": ("CYRILLIC",), "Arab": ("ARABIC",), "Hebr": ("HEBREW",), "Thaa": ("THAANA",),
    "Deva": ("DEVANAGARI",), "Beng": ("BENGALI",), "Guru": ("GURMUKHI",), "Gujr": ("GUJARATI",), "Orya": ("ORIYA",),
    "Taml": ("TAMIL",), "Telu": ("TELUGU",), "Knda": ("KANNADA",), "Mlym": ("MALAYALAM",), "Sinh": ("SINHALA",),
    "Grek": ("GREEK",), "Armn": ("ARMENIAN",), "Geor": ("GEORGIAN",), "Ethi": ("ETHIOPIC",), "Kore": ("HANGUL", "HAN"),
    "Hans": ("HAN",), "Jpan": ("KANA", "HAN"), "Thai": ("THAI",), "Laoo": ("LAO",), "Khmr": ("KHMER",),
    "Mymr": ("MYANMAR",), "Tibt": ("TIBETAN",),
}  # fmt: skip
_WRITTEN_IN_TWO = frozenset(
    {"az", "bs", "ha", "kk", "ku", "ky", "mn", "ms", "pa", "sd", "sr", "tg", "tk", "tt", "ug", "uz"}
)
"""Languages that have more than one script in use."""


@dataclass(frozen=True)
class Doubt:
    """What a text seems to be instead."""

    reason: str
    language: str | None = None
    """The code of the language, if its function words show it."""
    script: str | None = None
    """The Unicode name of the script, if its letters show it."""

    def is_like(self, language: str) -> bool:
        """Whether the text fits another language."""
        return self.language == _bare(language) or (self.script is not None and self.script in usual_scripts(language))


class Sample:
    """Words and letters of the first lines of a text."""

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self.lines = 0
        self._words: Counter[str] = Counter()
        self._letters: Counter[str] = Counter()
        self.add(lines)

    @property
    def is_full(self) -> bool:
        return self.lines >= SAMPLED_LINES

    def add(self, lines: Iterable[str]) -> None:
        """Take in more lines, as long as there is room."""
        for line in islice(lines, SAMPLED_LINES - self.lines):
            self.lines += 1
            self._words.update(words_of(line[:1_000]))
            self._letters += scripts_of(line[:1_000])

    def doubt(self, language: str | None) -> Doubt | None:
        """Why the text is probably not in a language; None where it may be, or where it is unclear."""
        if language is None:
            return None
        expected, letters = usual_scripts(language), self._letters.total()
        if (
            expected
            and letters >= MIN_LETTERS
            and sum(self._letters[each] for each in expected) < MAX_FOREIGN_SHARE * letters
        ):
            script = self._letters.most_common(1)[0][0]
            return Doubt(f"its letters are {script.title()}", script=script)
        if self._words.total() < MIN_WORDS:
            return None
        found = contradicts(self._words, _bare(language))
        return None if found is None else Doubt(f"its small words are {language_name(found)}", language=found)


def _bare(language: str) -> str:
    """A code without its region."""
    return language.replace("_", "-").split("-")[0].lower()


def usual_scripts(language: str) -> tuple[str, ...]:
    """The scripts that a language is written in; none if it is unknown, or has more than one in use."""
    code = _bare(language)
    known = LANGUAGES.get(code)
    return () if known is None or code in _WRITTEN_IN_TWO else _SCRIPTS_BY_CODE[known.script]


def doubts_of_pair(source: Sample, target: Sample, languages: tuple[str | None, str | None]) -> list[str]:
    """A sentence for each side that is probably in another language, or one for two that are swapped."""
    found = source.doubt(languages[0]), target.doubt(languages[1])
    one, other = languages
    if found[0] and found[1] and one and other and found[0].is_like(other) and found[1].is_like(one):
        return [
            f"source and target look swapped: the source should be {named(one)}, but {found[0].reason}; the target "
            f"should be {named(other)}, but {found[1].reason}"
        ]
    return [
        doubt_in_words(side, language, doubt)
        for side, language, doubt in zip(("source", "target"), languages, found, strict=True)
        if doubt is not None and language is not None
    ]


def doubt_in_words(what: str, language: str, doubt: Doubt) -> str:
    """The sentence for one text."""
    return f"the {what} should be {named(language)}, but {doubt.reason}; is this the right text?"


def named(language: str) -> str:
    """A language as it is shown: `German (de)`."""
    name = language_name(language)
    return name if name == language else f"{name} ({language})"
