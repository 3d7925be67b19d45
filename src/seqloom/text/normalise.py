"""The rule that every text passes before it is cut into pieces: the same in training and in use, stored with the model.

    no byte-order marks or word joiners → Unicode form → lower case → Unicode form
    → control characters to spaces → one space for each run of white space, none at the ends
    → a space before , . ! ? (only if requested)

The result is one line without control characters, whose only white space is the single space.
"""

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from seqloom.core.errors import DataError

UnicodeForm = Literal["none", "nfc", "nfkc"]

_CONTROL = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], " ")

NO_BREAKS = ("\ufeff", "\u2060")
"""Invisible characters that only forbid a line break: a byte-order mark (zero width no-break space), which files keep
inside when they are concatenated, and the word joiner, which replaces it. They would make their word unknown.
Other invisible characters carry meaning and stay: joiners (U+200C, U+200D) spell words and emoji, U+200B ends words."""

_MAX_MARK_RUN = 200
"""Combining marks in a row before one is kept apart: Python sorts each run in quadratic time."""

_GRAPHEME_JOINER = "\u034f"
"""Ends a run of combining marks without being seen (the stream-safe text format of UAX #15)."""

_TIGHT_PUNCTUATION = re.compile(r"(?<=[^ ])(?=[,.!?])")


@dataclass(frozen=True)
class Normaliser:
    """A normalisation rule as a value: call it with a text. Applying it twice is applying it once."""

    form: UnicodeForm = "nfc"
    """Unicode normalisation form; `nfkc` also folds full-width letters, ligatures and the like."""
    lowercase: bool = False
    """Whether capital letters become small ones."""
    space_before_punctuation: bool = False
    """Whether `,`, `.`, `!` and `?` are set apart from the word before them, as the d2l book does."""
    keeps_spaces: bool = False
    """Whether the text stays as it is, spaces, line ends and control characters included: for published models, which
    normalise it themselves."""

    def __call__(self, text: str) -> str:
        """The text in normal form."""
        if self.keeps_spaces:
            refuse_surrogates(text)
            return text
        if not text.isascii():
            refuse_surrogates(text)
            for mark in NO_BREAKS:
                text = text.replace(mark, "")
            text = _to_form(text, self.form)
        if self.lowercase:
            # A composed letter can fall apart in lower case (İ), so the form is made again.
            text = _to_form(text.lower(), self.form)
        text = collapse_spaces(text)
        return set_punctuation_apart(text) if self.space_before_punctuation else text


def collapse_spaces(text: str) -> str:
    """One line: control characters and runs of any Unicode white space become one space, none at either end."""
    # Printable text has no control characters; asking is far cheaper than translating.
    return " ".join((text if text.isprintable() else text.translate(_CONTROL)).split())


def set_punctuation_apart(text: str) -> str:
    """A space before each `,`, `.`, `!` and `?` that follows something else than a space (d2l, section 10.5)."""
    return _TIGHT_PUNCTUATION.sub(" ", text)


def is_blank(text: str) -> bool:
    """Whether nothing can be seen: only white space, control and zero-width characters, or no characters at all."""
    return all(character.isspace() or unicodedata.category(character) in {"Cc", "Cf"} for character in text)


def refuse_surrogates(text: str) -> None:
    """Raise a DataError for half a surrogate pair: no character, and no encoding can write it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        message = f"the text has half a surrogate pair, U+{code:04X}, at character {error.start + 1}"
        raise DataError(f"{message}; send both halves or the character itself") from error


def _to_form(text: str, form: UnicodeForm) -> str:
    if form == "none":
        return text
    if len(text) > _MAX_MARK_RUN:
        text = _break_mark_runs(text)
    return unicodedata.normalize("NFC" if form == "nfc" else "NFKC", text)


def _break_mark_runs(text: str) -> str:
    characters: list[str] = []
    run = 0
    for character in text:
        run = run + 1 if unicodedata.combining(character) else 0
        if run > _MAX_MARK_RUN:
            characters.append(_GRAPHEME_JOINER)
            run = 1
        characters.append(character)
    return "".join(characters)
