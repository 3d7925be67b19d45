r"""Placeholders in text that programs show: what must be kept exactly.

    <b> </b> <br/> <!-- … -->      HTML                 %s %-5.2lf %2$*1$d %(name)s %% %<PRIu64>   printf
    {0} {name} {n, number} {{x}}   formats, ICU         %1 %1% %{name} %Y %HOME%       Qt, Boost, Ruby, dates, Windows
    ${x} $name                     templates            \n \t \u00e9                   escapes that are text
    &amp; &#160;                   entities             https://… name@example.org     addresses
    --option                       command lines        a line end                     (real ones, not \n)
    [X7X]                          marks of Weblate

Matching is permissive: to keep a word that is not a placeholder costs little, to lose a placeholder breaks a
program. But a percent sign after a number that begins a word is text (100%ig, 50 %-Rabatt), unless the file says that
the message is a format of printf; then a flag may also be a space (% d). A number before %% is part of it. The time is
linear in the length of the text.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

MAX_ENCLOSED_LENGTH = 2_000
"""Characters up to which braces and comments are looked through for their end."""

# Possessive quantifiers and look-behinds keep every search from trying the same characters again.
_PATTERN = r"""(?P<tag> </?[A-Za-z][^<>]*> )
    | (?P<end> (?: (?<![ \t]) [ \t]++ )? \r?\n [ \t]*+ )
    | <!--
    | (?: https?|ftp|mailto|file ) :[^\s<>"'{}\\|^`]++
    | (?<![\w.+-]) [\w.+-]++ @ [\w-]++ (?:\.[\w-]++)++
    | (?<![\w-]) --[A-Za-z][\w-]*+
    | % \( (?: [^()\n]{1,100}+ | \([^()\n]{0,100}+\) ){1,20}+ \) [-+\ 0\#]*+ (?:\*|\d++)? (?:\.(?:\*|\d++))?
        (?: [hlL] (?=[diouxXeEfFgGcrsa]) )? [A-Za-z]
    | % (?:\d++\$)? FLAGS*+ (?:\*|\d++)? (?:\.(?:\*|\d++))? <PRI[A-Za-z0-9]{1,20}>
    | % \{[^{}\n]{1,100}\}
    | (?<!\d) % <[^<>\n]{1,100}> [-+0\#]*+ \d*+ (?:\.\d++)? [A-Za-z]?
    | % [A-Z_]{2,40} %
    | %[1-9]\d?+% (?![\w(])
    | %L?[1-9]\d?+ (?![\d$A-Za-z]|\.\d)
    | (?P<printf> % (?:\d++\$)? FLAGS*+ (?: \*(?:\d++\$)? | \d++ )? (?: \.(?: \*(?:\d++\$)? | \d++ | (?=[eEfFgG]\b) ) )?
        (?: hh | ll | I64 | I32 | I(?=[diu]) | wf?(?:8|16|32|64) | [hlqjztL] )? [A-Za-z@] )
    | (?: (?<![\w.,]) \d++ (?:[.,]\d++)*+ )? %%
    | [$\#]? \{
    | \[ X [0-9]++ X \]
    | \$ [A-Za-z_]\w*+ \$?
    | (?P<escape> \\ (?: [nrtabfv0"'\\] | u[0-9A-Fa-f]{4} | x[0-9A-Fa-f]{2} ) )
    | & (?: [A-Za-z][A-Za-z0-9]*+ | \#[0-9]++ | \#[xX][0-9A-Fa-f]++ ) ;
"""
_FOUND = re.compile(_PATTERN.replace("FLAGS", r"[-+\#0']"), re.VERBOSE)
_FOUND_IN_FORMAT = re.compile(_PATTERN.replace("FLAGS", r"[-+\ \#0']").replace("| % [A-Z_]{2,40} %\n", ""), re.VERBOSE)
"""With a space for a flag, and without variables of Windows, which formats have none of: %X_%d."""
_PLAIN = re.compile(r"""(?:[\w .,;!?'"()]++|-(?!-))*+""")
"""Text with none of the signs of which every placeholder has one."""
_SPACES = (" ", "\u00a0", "\u202f")
_BRACE = re.compile("[{}]")
_CLOSING_MARKS = ".,;:!?)]»”’"
_PARTING = frozenset({"&nbsp;", "&#160;", "&#xA0;", "\\n", "\\r", "\\t"})
"""Placeholders that separate words even without a space next to them."""


@dataclass(frozen=True)
class Placeholder:
    """A placeholder and its position."""

    start: int
    end: int
    text: str
    is_tag: bool = False
    """Whether it is an element of HTML, which may have a partner."""
    is_line_end: bool = False
    holds_text: bool = False
    """Whether it contains words for readers, as in {n, plural, one {file} other {files}}."""

    @property
    def parts_words(self) -> bool:
        """Whether the texts before and after it are two words."""
        return self.is_line_end or self.text in _PARTING


def find_placeholders(text: str, *, is_format: bool = False) -> Iterator[Placeholder]:
    """All placeholders of a text, in their order; none is inside another.

    `is_format` says that the text is known to go to printf or its like.
    """
    if _PLAIN.fullmatch(text):
        return
    end, closed = 0, _closed_braces(text)
    pattern = _FOUND_IN_FORMAT if is_format else _FOUND
    while found := pattern.search(text, end):
        start, end, holds_text = found.start(), found.end(), False
        if found[0] == "<!--":
            close = text.find("-->", end, end + MAX_ENCLOSED_LENGTH)
            if close < 0:
                continue
            end = close + len("-->")
        elif found[0].endswith("{"):
            close, holds_text = closed.get(end, (-1, False))
            if not end < close <= end + MAX_ENCLOSED_LENGTH:
                continue
            end = close
        elif "://" in found[0] or found[0].startswith("mailto:"):
            end -= len(found[0]) - len(found[0].rstrip(_CLOSING_MARKS))
        elif found["printf"] and not is_format and _is_percentage(text, start, end):
            end = start + 1
            continue
        yield Placeholder(
            start,
            end,
            text[start:end],
            is_tag=found["tag"] is not None,
            is_line_end=found["end"] is not None,
            holds_text=holds_text,
        )


def _is_percentage(text: str, start: int, end: int) -> bool:
    """Whether a percent sign belongs to the number before it, as in 100%ig, 50%-Rabatt and 50 %-Rabatt.

    A number that ends a name is none: what follows ISO9660%sdatei is a placeholder.
    """
    if not text[end : end + 1].isalpha():
        return False
    number = start
    if text[start - 1 : start] in _SPACES and text[start + 1 : start + 2] == "-":
        number -= 1
    begin = number
    while begin > 0 and text[begin - 1].isdigit():
        begin -= 1
    return begin < number and not (begin > 0 and text[begin - 1].isalpha())


def is_too_long(text: str) -> bool:
    """Whether braces or a comment are too long to be matched, so that their inside looks like text."""
    if len(text) <= MAX_ENCLOSED_LENGTH:
        return False
    if any(close - begin > MAX_ENCLOSED_LENGTH for begin, (close, _) in _closed_braces(text).items()):
        return True
    begin = text.find("<!--")
    while begin >= 0 and (close := text.find("-->", begin)) >= 0:
        if close - begin - len("<!--") > MAX_ENCLOSED_LENGTH - len("-->"):
            return True
        begin = text.find("<!--", close)
    return False


def _closed_braces(text: str) -> dict[int, tuple[int, bool]]:
    """From the place after each brace that is closed to that after its partner, and whether there are others inside."""
    closed: dict[int, tuple[int, bool]] = {}
    waiting: list[tuple[int, int]] = []
    opened = 0
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            opened += 1
            waiting.append((brace.end(), opened))
        elif waiting:
            begin, number = waiting.pop()
            # One right after its own kind is the second half of a pair, as in {{x}}.
            inside = opened - number - text.startswith("{", begin)
            closed[begin] = brace.end(), inside > 0
    return closed


def count_placeholders(text: str, *, is_format: bool = False) -> Counter[str]:
    """How often each placeholder occurs in a text; line ends are counted as one whatever spaces are around them."""
    found = find_placeholders(text, is_format=is_format)
    return Counter("\n" if each.is_line_end else each.text for each in found)


def without_placeholders(text: str, *, is_format: bool = False) -> str:
    """A text from which all placeholders are taken, also those that appear as others go."""
    while found := list(find_placeholders(text, is_format=is_format)):
        kept, done = [], 0
        for each in found:
            kept += [text[done : each.start], " " if each.parts_words else ""]
            done = each.end
        text = "".join([*kept, text[done:]])
    return text
