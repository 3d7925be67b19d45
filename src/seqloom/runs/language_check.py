"""Whether a text is in the expected language, judged by its first lines.

There are two kinds of evidence, and no verdict where neither is clear: the script of its letters, and its function
words (the, und, que) for the twenty languages whose function words are known here. One or two sentences are not judged.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from seqloom.data.blocks import Line
from seqloom.text.languages import LANGUAGES, contradicts, language_name
from seqloom.text.scripts import scripts_of, words_of

SAMPLE = 2_000
"""Lines that are examined."""

MIN_WORDS, MIN_LETTERS = 60, 60
"""A text with less is not judged."""

MAX_FOREIGN_SHARE = 0.1
"""The share of its letters that a text in another script may have in the right one: names, numbers, a borrowed word."""

_SCRIPTS = {
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
        return self.language == _bare(language) or (self.script is not None and self.script in _scripts_of(language))


class Sample:
    """Words and letters of the first lines of a text."""

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self.lines = 0
        self._words: Counter[str] = Counter()
        self._letters: Counter[str] = Counter()
        self.add(lines)

    @property
    def is_full(self) -> bool:
        return self.lines >= SAMPLE

    def add(self, lines: Iterable[str]) -> None:
        """Take in more lines, as long as there is room."""
        for line in islice(lines, SAMPLE - self.lines):
            self.lines += 1
            self._words.update(words_of(line[:1_000]))
            self._letters += scripts_of(line[:1_000])

    def doubt(self, language: str | None) -> Doubt | None:
        """Why the text is probably not in a language; None where it may be, or where it is unclear."""
        if language is None:
            return None
        expected, letters = _scripts_of(language), self._letters.total()
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


def _scripts_of(language: str) -> tuple[str, ...]:
    code = _bare(language)
    known = LANGUAGES.get(code)
    return () if known is None or code in _WRITTEN_IN_TWO else _SCRIPTS[known.script]


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


def doubts_of_lines(lines: Iterable[Line], languages: tuple[str | None, str | None]) -> list[str]:
    """The same for the first lines of a corpus."""
    first = list(islice(lines, SAMPLE)) if any(languages) else []
    return doubts_of_pair(Sample(line.source for line in first), Sample(line.target for line in first), languages)


def doubt_in_words(what: str, language: str, doubt: Doubt) -> str:
    """The sentence for one text."""
    return f"the {what} should be {named(language)}, but {doubt.reason}; is this the right text?"


def named(language: str) -> str:
    """A language as it is shown: `German (de)`."""
    name = language_name(language)
    return name if name == language else f"{name} ({language})"
