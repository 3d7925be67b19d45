"""How spaces and joins are written inside pieces, so that joining the pieces restores the text.

    subwords     "Quoi ? Bien."  ↔  ▁Quoi▁?▁Bien.   ▁ is a space, or the start of the text
    characters   "Quoi ?"        ↔  Quoi▁?
    words        "(Bien.)"       ↔  (￭  Bien  ￭.  ￭)    ￭ is on the side where a mark touches its neighbour
                 "天气好。"        ↔  天  ￭气  ￭好  ￭。      likewise characters, if each is a word

A text may hold these signs itself: they are swapped for control characters, which no normalised text has.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

SPACE = "▁"
JOINER = "￭"
UNKNOWN_SIGN = "⁇"
"""What `<unk>` looks like in decoded text."""

BYTE_PIECES = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""The pieces that spell unknown characters in UTF-8, in the order of their bytes."""

# U+2585 is here because sentencepiece skips the lines that hold it: it uses the character for itself.
_HIDE = {ord(" "): SPACE, ord(SPACE): "\x1a", 0x2585: "\x1b"}
_SHOW = {ord(SPACE): " ", 0x1A: SPACE, 0x1B: "\u2585"}

UNSPACED = (
    "\u0e00-\u0fff"  # Thai, Lao, Tibetan
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u2e80-\u2fdf\u3000-\u312f\u31a0-\u31bf\u31f0-\u31ff"  # radicals, CJK punctuation, kana, bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff9f"  # Chinese characters, full-width forms
    "\U00020000-\U0003ffff"
)
"""Characters of scripts that put no space between words, as the inside of a character class."""

_unspaced = re.compile(f"[{UNSPACED}]")
_begins_unspaced = _unspaced.match
_chunks = re.compile(f"{SPACE}?[^{SPACE}]+").findall


def mark_spaces(text: str, *, has_start: bool = True) -> str:
    """Write spaces as ▁, with one before the first word so that it looks like any other word.

    Scripts without spaces between words get no ▁ at the start: there it would make the first word look strange.
    """
    is_plain = SPACE not in text and "\u2585" not in text
    marked = text.replace(" ", SPACE) if is_plain else text.translate(_HIDE)
    return SPACE + marked if has_start and marked and not _begins_unspaced(marked) else marked


def show_spaces(marked: str, *, has_start: bool = True) -> str:
    """Undo `mark_spaces`."""
    return (marked.removeprefix(SPACE) if has_start else marked).translate(_SHOW)


def split_chunks(marked: str) -> list[str]:
    """Cut marked text before each ▁. No subword crosses such a place, so chunks can be treated one by one."""
    chunks: list[str] = _chunks(marked)
    return chunks


# --- words -----------------------------------------------------------------------------------------------------------

# Over the shape of a text: words are letters and digits, apostrophes between letters, commas and points in numbers.
_words = re.compile(r"[ld]+(?:(?:(?<=l)a(?=l)|(?<=d)p(?=d))[ld]+)*|.").finditer


def split_words(text: str) -> list[str]:
    """Cut normalised text into words and single marks, with ￭ where a mark touches its neighbour."""
    words: list[str] = []
    for chunk in text.replace(JOINER, "\x1a").split(" "):
        if chunk.isalpha():
            words.append(chunk)
        else:
            words += _split_short(chunk) if len(chunk) <= 64 else _split_chunk(chunk)
    return words


def split_characters(text: str) -> list[str]:
    """As `split_words`, with each character of a script without spaces, and its combining marks, as a word."""
    words: list[str] = []
    for word in split_words(text):
        if JOINER in word or not _unspaced.search(word):
            words.append(word)
            continue
        begins = [at for at in range(1, len(word)) if parts_characters(word[at - 1], word[at])]
        parts = [word[begin:end] for begin, end in zip([0, *begins], [*begins, len(word)], strict=True)]
        words += [parts[0], *(JOINER + part for part in parts[1:])]
    return words


def parts_characters(before: str, after: str) -> bool:
    """Whether a word may end between two characters because one is of a script without spaces."""
    return bool(_unspaced.match(before) or _unspaced.match(after)) and unicodedata.category(after)[0] != "M"


MIN_UNSEGMENTED = 4.0
"""Characters of a script without spaces between two spaces, on average, above which the words are not separated."""


def is_unsegmented(lines: Sequence[str]) -> bool:
    """Whether lines are in a script without spaces between words, and were not cut into words by hand."""
    lengths = [len(_unspaced.findall(chunk)) for line in lines for chunk in line.split()]
    lengths = [length for length in lengths if length]
    return sum(lengths) > MIN_UNSEGMENTED * max(1, len(lengths))


def join_words(words: Sequence[str]) -> str:
    """Undo `split_words` and `split_characters`."""
    parts: list[str] = []
    is_open = True  # nothing so far, or the last mark touches what follows
    for word in words:
        core = word.removeprefix(JOINER)
        if not is_open and len(core) == len(word):
            parts.append(" ")
        is_open = core.endswith(JOINER)
        parts.append(core.removesuffix(JOINER))
    return "".join(parts).replace("\x1a", JOINER)


def _split_chunk(chunk: str) -> list[str]:
    shape = "".join(map(_shape_of, chunk))
    words: list[str] = []
    for match in _words(shape):
        word = chunk[match.start() : match.end()]
        if match[0][0] in "ld":
            words.append(word)
            continue
        # A mark says on which sides it touches a word; of two marks that touch, the second says it.
        touches_before = match.start() > 0
        touches_after = shape[match.end() : match.end() + 1] in {"l", "d"}
        words.append(f"{JOINER if touches_before else ''}{word}{JOINER if touches_after else ''}")
    return words


@lru_cache(maxsize=1 << 16)
def _split_short(chunk: str) -> tuple[str, ...]:
    return tuple(_split_chunk(chunk))


@lru_cache(maxsize=1 << 12)
def _shape_of(character: str) -> str:
    """l letter, d digit, a apostrophe, p point or comma, s any other mark."""
    if character in "'’":
        return "a"
    if character in ".,":
        return "p"
    category = unicodedata.category(character)
    # The zero-width joiners occur inside words of Persian and of Indian languages.
    if category[0] in "LM" or character in "\u200c\u200d":
        return "l"
    return "d" if category[0] == "N" else "s"


def capitalised(word: str) -> str:
    """A word as it begins a sentence."""
    return word[:1].upper() + word[1:]


def uncapitalised(word: str) -> str:
    """A word with a small first letter."""
    return word[:1].lower() + word[1:]


MAX_PHONE_CHARACTERS = 3
"""Characters of a phone or a letter, where a word is spelled out with spaces between them: AH0, ts."""


def is_unspaced(character: str) -> bool:
    """Whether a character belongs to a script that puts no space between words."""
    return _unspaced.match(character) is not None


def count_words(line: str) -> int:
    """The words between spaces; in scripts without spaces, the characters."""
    characters = len(_unspaced.findall(line))
    return characters + len((_unspaced.sub(" ", line) if characters else line).split())


def is_one_word(line: str) -> bool:
    """Whether a line is one word, or one spelled out in phones or letters: `tough`, `T AH1 F`."""
    if _unspaced.search(line):
        return count_words(line) == 1
    words = line.split()
    return len(words) == 1 or (len(words) > 1 and max(map(len, words)) <= MAX_PHONE_CHARACTERS)
