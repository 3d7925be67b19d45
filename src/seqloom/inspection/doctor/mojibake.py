"""Mojibake: UTF-8 that was read as Windows-1252 or Latin-1, `fÃ¼r` for `für`, and how to undo it.

Any letter À…ô and the marks behind it may happen to be a sequence of UTF-8: `“CAFÉ”` holds É”, the two bytes of ɔ. So a
sequence is decoded only if it cannot be sound text where it is and its character can be:

- *clear*: a capital after a small letter (`fÃ¼r`), a mark that follows no letter (`Ã¤`), a closing mark before a letter
  (`HÃ”TEL`), or several sequences in a row that give one script (`ÐŸÑ€Ð¸`)
- *plausible*: an assigned character, of the script and the case of the letters beside it

A line of which every character beyond ASCII is part of a sequence was misread as a whole: one clear sequence is enough
to decode all of it. In any other line, clear sequences alone are decoded.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise

from seqloom.inspection.doctor.texts import script_of

_BYTES: Mapping[str, int] = {
    **{chr(byte): byte for byte in range(0x80, 0x100)},
    # Five bytes have no character in Windows-1252; most programs take them from Latin-1.
    **{bytes([byte]).decode("cp1252", "ignore") or chr(byte): byte for byte in range(0x80, 0xA0)},
}
_AS_BYTES = {ord(sign): byte for sign, byte in _BYTES.items()}
_FOLLOWING = "".join(sign for sign, byte in _BYTES.items() if byte < 0xC0)
_PERHAPS = re.compile(f"[\u00c2-\u00f4][{_FOLLOWING}]")
_SEQUENCE = re.compile(
    "[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|\xed[\x80-\x9f][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    "|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)
_CONTROL = re.compile("[\x80-\x9f]")
_BEYOND_ASCII = re.compile("[^\x00-\x7f]")

_NEVER_AFTER_A_LETTER = frozenset("€‚ƒ„ˆ‰˜¡¢£¤¥¦§¨¬¯±¶¸¼½¾¿") | frozenset(map(chr, range(0x80, 0xA0)))
_ENDS_A_WORD = frozenset("“”«»‹›†‡™©ª®°²³¹º")
"""Marks that may follow a letter, but not stand between two."""

_CLOSING = frozenset("“”‘’«»‹›…")
_USUAL_LATIN = re.compile(
    "[\u00aa\u00ba\u00c0-\u017f\u018f\u01a0\u01a1\u01af\u01b0\u01cd-\u01dc\u0218-\u021b\u0259\u1e00-\u1eff]"
)
_USUAL_ACCENT = re.compile("[\u0300-\u030c\u0323-\u0328]")
_TIMES = 3
"""A text may have been misread more than once: `fÃƒÂ¼r`."""

_MANY = 3
"""Clear sequences of a line from which on it may give unusual Latin letters too, such as ɛ."""


def mend_mojibake(text: str) -> str:
    """Text whose UTF-8 was misread, as it was meant; any other text as it is."""
    sound = text
    for _ in range(_TIMES):
        if text.isascii() or not _PERHAPS.search(text):
            break
        decoded = _decode(text)
        if decoded == text:
            break
        text = decoded
        # Controls may be bytes of what was misread before; by themselves they are nothing that anybody meant.
        if not _CONTROL.search(text):
            sound = text
    return sound


@dataclass
class _Sequence:
    """Characters that may be one misread character."""

    start: int
    end: int
    character: str
    run: int = 0
    """Which of the runs of adjacent sequences it belongs to."""
    is_clear: bool = False
    is_weak: bool = False
    """Whether it is clear if nothing else in the line is sound."""
    is_plausible: bool = False


def _decode(text: str) -> str:
    as_bytes = text.translate(_AS_BYTES)
    found = [
        _Sequence(match.start(), match.end(), match[0].encode("latin-1").decode("utf-8"))
        for match in _SEQUENCE.finditer(as_bytes)
    ]
    for before, here in pairwise(found):
        here.run = before.run + (here.start != before.end)
    for _, some in groupby(found, key=lambda each: each.run):
        _look_at_run(text, list(some))
    covered = sum(each.end - each.start for each in found)
    is_whole = covered == len(_BEYOND_ASCII.findall(text)) and all(each.is_plausible for each in found)
    weak = [each for each in found if each.is_weak]
    is_known_by_weak = is_whole and (len(weak) > 1 or any(not _is_quoted(text, each) for each in weak))
    is_clear = [each.is_plausible and (each.is_clear or (each.is_weak and is_known_by_weak)) for each in found]
    if not any(is_clear):
        return text
    # Few signs of a misreading, and a letter that hardly any language has: rather a capital before a closing quote.
    is_usual = sum(is_clear) >= _MANY or all(map(_is_usual, (each.character for each in found)))
    if not is_usual:
        return text
    pieces, last = [], 0
    for each, clear in zip(found, is_clear, strict=True):
        if is_whole or clear:
            pieces += [text[last : each.start], each.character]
            last = each.end
    return "".join([*pieces, text[last:]])


def _look_at_run(text: str, run: list[_Sequence]) -> None:
    """Say of each sequence of a run whether it is clear and plausible."""
    scripts = {script for each in run if (script := script_of(each.character))}
    is_one = len(scripts) == 1 or scripts == {"HAN", "KANA"}
    is_long = is_one and len(run) > 1 and run[-1].end - run[0].start >= 6
    before = text[run[0].start - 1 : run[0].start]
    for at, each in enumerate(run):
        after = run[at + 1].character if at + 1 < len(run) else text[each.end : each.end + 1]
        earlier = before if at else text[max(0, each.start - 2) : each.start]
        each.is_clear = is_long or _is_impossible(text, each)
        # No language has a word Ã or Â.
        each.is_weak = text[each.start] in "ÃÂ" and (
            not before or before == "'" or before.isspace() or before.isdigit()
        )
        each.is_plausible = _is_plausible(each.character, earlier, after, is_long=is_long)
        before = before[-1:] + each.character


def _is_impossible(text: str, sequence: _Sequence) -> bool:
    """Whether no sound text has these characters there."""
    first, rest = text[sequence.start], text[sequence.start + 1 : sequence.end]
    before, after = text[: sequence.start][-1:], text[sequence.end : sequence.end + 1]
    if first.isupper() and before.islower():
        return True
    if not _NEVER_AFTER_A_LETTER.isdisjoint(rest):
        return True
    if rest[-1] in _ENDS_A_WORD and after.isalpha():
        return True
    return first.isupper() and before.isupper() and rest[0].islower() and rest[0] not in _ENDS_A_WORD


def _is_quoted(text: str, sequence: _Sequence) -> bool:
    """Whether it may be a letter at the end of a quotation: `the letter Â»`."""
    return text[sequence.start + 1] in _CLOSING and not text[sequence.end : sequence.end + 1].isalpha()


def _is_plausible(character: str, before: str, after: str, *, is_long: bool) -> bool:
    """Whether a character may stand between what is before it, two characters if there are so many, and after it."""
    category = unicodedata.category(character)
    if _CONTROL.match(character):
        return True
    if category in ("Cc", "Cn", "Co", "Cs"):
        return False
    if category[0] == "M":
        return is_long or before[-1:].isalpha()
    script = script_of(character)
    if not script or is_long:
        return True
    if character.islower() and len(before) == 2 and all(map(str.isupper, before)):
        return False
    beside = {script_of(sign) for sign in (before[-1:], after) if sign} - {""}
    # Greek letters are also signs: μm.
    return beside <= {script} or script == "GREEK"


def _is_usual(character: str) -> bool:
    if unicodedata.category(character)[0] == "M":
        return bool(_USUAL_ACCENT.match(character))
    return script_of(character) != "LATIN" or bool(_USUAL_LATIN.match(character))
