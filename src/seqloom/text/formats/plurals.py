"""Plural forms of a language, as the header of a message catalogue tells them.

Plural-Forms: nplurals=2; plural=(n > 1);     for each number n, which form it takes: here 0 for none and one
"""

import gettext
import re
from collections.abc import Callable
from dataclasses import dataclass

from seqloom.text.formats.placeholders import count_placeholders

MOST_FORMS = 12
"""No language has more than six; a header that says a million is not believed."""

_HEADER = re.compile(
    r"^Plural-Forms:\s*nplurals\s*=\s*(\d{1,6})\s*;\s*plural\s*=\s*([^;\n]+)", re.MULTILINE | re.IGNORECASE
)
_TRIED = 1_001


@dataclass(frozen=True)
class PluralForms:
    """How many forms there are, and which of them is that of one."""

    count: int
    of_one: int
    is_of_one_alone: bool
    """Whether that form serves no other number, as it does in English but not in Russian (1, 21, 31 …)."""

    def source(self, form: int, singular: str, plural: str, *, is_format: bool = False) -> str:
        """What a form is translated from: the singular for that of one, unless it serves other numbers, too.

        "One file" cannot stand for 21 files where the plural says "%d files".
        """
        if form != self.of_one or self.count == 1:
            return plural
        of_one, of_others = (count_placeholders(text, is_format=is_format) for text in (singular, plural))
        return singular if self.is_of_one_alone or of_one == of_others else plural


def plural_forms(header: str) -> PluralForms | None:
    """The forms that a header tells; None where it tells none, or none that can be."""
    found = _HEADER.search(header)
    if found is None or not 1 <= int(found[1]) <= MOST_FORMS:
        return None
    count = int(found[1])
    try:
        choose: Callable[[int], int] = gettext.c2py(found[2].strip())
        of_one = choose(1)
        is_alone = all(choose(number) != of_one for number in range(_TRIED) if number != 1)
    except (ValueError, ZeroDivisionError, OverflowError, RecursionError):
        return None
    return PluralForms(count, of_one, is_alone) if 0 <= of_one < count else None


def forms_like_english(count: int) -> PluralForms:
    """So many forms, for want of a header: the first is that of one."""
    return PluralForms(count, 0, True)
