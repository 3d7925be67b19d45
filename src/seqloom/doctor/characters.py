"""Invalid or suspicious characters and their repair; numbers and brackets that differ between the sides."""

import html
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntFlag
from functools import partial
from itertools import groupby, pairwise

from seqloom.doctor.faults import Fault, Kind, counted, grade, numbers_where, touched
from seqloom.doctor.survey import Survey
from seqloom.text.scripts import MAX_SCANNED_CHARACTERS, script_of, scripts_of

# Mojibake: UTF-8 that was read as Windows-1252 or Latin-1, `fÃ¼r` for `für`, and how to undo it.
#
# Any letter À…ô and the marks behind it may happen to be a sequence of UTF-8: `“CAFÉ”` holds É”, the two bytes of ɔ.
# So a sequence is decoded only if it is impossible as text and its character is plausible in that place:
#
# - *clear*: a capital after a small letter (`fÃ¼r`), a mark that follows no letter (`Ã¤`), a closing mark before a
# letter (`HÃ”TEL`), or several sequences in a row that give one script (`ÐŸÑ€Ð¸`) - *plausible*: an assigned
# character, of the script and the case of the adjacent letters
#
# A line of which every character beyond ASCII is part of a sequence was misread as a whole: one clear sequence is
# enough to decode all of it. In any other line, clear sequences alone are decoded.

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
_MOJIBAKE_CONTROL = re.compile("[\x80-\x9f]")
_BEYOND_ASCII = re.compile("[^\x00-\x7f]")

_NEVER_AFTER_A_LETTER = frozenset("€‚ƒ„ˆ‰˜¡¢£¤¥¦§¨¬¯±¶¸¼½¾¿") | frozenset(map(chr, range(0x80, 0xA0)))
_ENDS_A_WORD = frozenset("“”«»‹›†‡™©ª®°²³¹º")
"""Marks that may follow a letter, but not occur between two."""

_MOJIBAKE_CLOSING = frozenset("“”‘’«»‹›…")
_USUAL_LATIN = re.compile(
    "[\u00aa\u00ba\u00c0-\u017f\u018f\u01a0\u01a1\u01af\u01b0\u01cd-\u01dc\u0218-\u021b\u0259\u1e00-\u1eff]"
)
_USUAL_ACCENT = re.compile("[\u0300-\u030c\u0323-\u0328]")
_TIMES = 3
"""A text may have been misread more than once: `fÃƒÂ¼r`."""

_MANY = 3
"""Clear sequences of a line from which on it may give unusual Latin letters too, such as ɛ."""


def repair_mojibake(text: str) -> str:
    """Undo a misreading of UTF-8; any other text is returned unchanged."""
    repaired = text
    for _ in range(_TIMES):
        if text.isascii() or not _PERHAPS.search(text):
            break
        decoded = _decode(text)
        if decoded == text:
            break
        text = decoded
        # Control characters may be bytes of an earlier misreading; alone they are never intended.
        if not _MOJIBAKE_CONTROL.search(text):
            repaired = text
    return repaired


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
    """Whether it is clear if every other sequence of the line is a misreading too."""
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
    # Few signs of a misreading and a rare letter: more likely a capital before a closing quote.
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
    """Set `is_clear`, `is_weak` and `is_plausible` of each sequence of a run."""
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
    """Whether these characters cannot occur there in valid text."""
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
    return text[sequence.start + 1] in _MOJIBAKE_CLOSING and not text[sequence.end : sequence.end + 1].isalpha()


def _is_plausible(character: str, before: str, after: str, *, is_long: bool) -> bool:
    """Whether a character may occur between `before` (up to two characters) and `after`."""
    category = unicodedata.category(character)
    if _MOJIBAKE_CONTROL.match(character):
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
    adjacent = {script_of(sign) for sign in (before[-1:], after) if sign} - {""}
    # Greek letters are also signs: μm.
    return adjacent <= {script} or script == "GREEK"


def _is_usual(character: str) -> bool:
    if unicodedata.category(character)[0] == "M":
        return bool(_USUAL_ACCENT.match(character))
    return script_of(character) != "LATIN" or bool(_USUAL_LATIN.match(character))


class Odd(IntFlag):
    """Oddities of the characters of a pair."""

    CONTROL = 1
    ZERO_WIDTH = 2
    BIDI = 4
    REPLACEMENT = 8
    MOJIBAKE = 16
    MARK = 32
    SPACE = 64
    ENTITY = 128
    DECOMPOSED = 256
    MIXED = 512
    NUMBERS = 1024
    BRACKETS = 2048
    TAG = 4096
    QUESTION = 8192
    ADDRESS = 16384
    EMOJI = 32768
    NOTE = 65536


NAMES = {
    Odd.CONTROL: "control character",
    Odd.ZERO_WIDTH: "zero-width character",
    Odd.BIDI: "direction override",
    Odd.REPLACEMENT: "replacement character U+FFFD",
    Odd.MOJIBAKE: "UTF-8 read as another encoding",
    Odd.MARK: "byte-order mark inside the text",
    Odd.SPACE: "unusual space",
    Odd.ENTITY: "HTML entity",
    Odd.DECOMPOSED: "decomposed accents",
    Odd.MIXED: "scripts mixed inside a word",
    Odd.NUMBERS: "different numbers",
    Odd.BRACKETS: "unclosed brackets or quotes",
    Odd.TAG: "HTML tag",
    Odd.QUESTION: "question mark inside a word",
    Odd.ADDRESS: "web address",
    Odd.EMOJI: "emoji",
    Odd.NOTE: "note in brackets",
}

_CONTROL = re.compile("[\x01-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
# Joiners shape the letters of Arabic and Indic scripts and join emoji; zero-width spaces part the words of Thai, Lao,
# Burmese and Khmer; Mongolian has its own separator.
_SHAPED, _UNPARTED = "\u0600-\u109f\u1780-\u18af\ua840-\uabff", "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1a20-\u1aaf"
_EMOJI = "\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
_ZERO_WIDTH = re.compile(
    f"[\u2060\u00ad]|(?<![{_UNPARTED}])\u200b|(?<![{_SHAPED}])[\u200c\u200d](?![{_SHAPED}{_EMOJI}])|(?<![\u1800-\u18af])\u180e"
)
_BIDI, _OVERRIDE = re.compile("[\u202a-\u202e\u2066-\u2069]"), re.compile("[\u202d\u202e]")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_SPACES = re.compile("[\u2000-\u200a\u205f\u1680\t]|\u3000(?=[\x20-\x7f])")
_ENTITY = re.compile(r"&(?:[a-zA-Z]{2,8}|#[0-9]{2,6}|#x[0-9a-fA-F]{2,5});")
_TAG = re.compile(
    r"</?(?:a|abbr|b|big|blockquote|br|center|code|dd|div|dl|dt|em|font|h[1-6]|hr|i|img|li|ol|p|pre|q|small|span|strong|"
    r"sub|sup|table|tbody|td|th|thead|tr|tt|u|ul)(?:\s[^<>]*)?/?>|<!--.*?-->",
    re.IGNORECASE,
)
_BREAKS = re.compile(r"</?(?:br|p|div|li|td|tr|th|hr|h[1-6])\b", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://\w|\bwww\.\w")
_EMOJIS = re.compile("[\u2600-\u27bf\u2b50\u2b55\U0001f000-\U0001faff]")
_NOTE = re.compile(
    r"[(\[（［](?=[^()\[\]（）［］]*[^\W\d_]{2})[^()\[\]（）［］]+[)\]）］]"
    r"|\bN\.? ?d\.? ?T\b|\bT/?N:|\bAnm\. ?d|translator['’]s note"
)
_QUESTION = re.compile(
    r"(?:\S*[^\W\d_]|(?<!\S))\?(?P<after>[^\W\d_])\S*|[^\W\d_]\? (?=[^\W\d_])(?P<next>.)|[^\W\d_]\?[,.;]"
)
_NUMBER = re.compile(r"\d+(?:[.,'’\u00a0\u202f]\d+)*")
_OPENING, _CLOSING = "([{", ")]}"
_LONGEST_WORD = 64


def look_at_characters(source: str, target: str) -> int:
    """The oddities of a pair, as bits of `Odd`."""
    found = 0
    for text in (source, target):
        # Printable ASCII has neither control nor invisible characters; this covers most lines.
        if not (text.isascii() and text.isprintable()):
            found |= _look_at_one(text)
        if "&" in text and _ENTITY.search(text):
            found |= Odd.ENTITY
        if "<" in text and _TAG.search(text):
            found |= Odd.TAG
        if "?" in text and has_question_inside(text):
            found |= Odd.QUESTION
    if _differ_in_numbers(source, target):
        found |= Odd.NUMBERS
    if is_left_open(source) != is_left_open(target):
        found |= Odd.BRACKETS
    if bool(_ADDRESS.search(source)) != bool(_ADDRESS.search(target)):
        found |= Odd.ADDRESS
    if _has_note(source, target) or _has_note(target, source):
        found |= Odd.NOTE
    if not (source.isascii() and target.isascii()) and bool(_EMOJIS.search(source)) != bool(_EMOJIS.search(target)):
        found |= Odd.EMOJI
    return int(found)


def _has_note(text: str, other: str) -> bool:
    """Whether a text has a note in brackets and the other one has no bracket at all."""
    return bool(_NOTE.search(text)) and not any(map(other.__contains__, "([（［"))


def has_question_inside(text: str) -> bool:
    """Whether a question mark replaces a letter: `f?r`, `?ber`, `gro? und`; addresses are ignored."""
    return any(
        (match["after"] or match["next"] or "x").islower()
        and not set(match[0]) & set("/=&@")
        and match[0].count("?") <= len(match[0]) / 2
        for match in _QUESTION.finditer(text)
    )


def _look_at_one(text: str) -> int:
    found = 0
    if not text.isprintable():
        patterns = _CONTROL, _ZERO_WIDTH, _bidi(text), _SPACES
        for pattern, odd in zip(patterns, (Odd.CONTROL, Odd.ZERO_WIDTH, Odd.BIDI, Odd.SPACE), strict=True):
            if pattern.search(text):
                found |= odd
        if "\ufeff" in text:
            found |= Odd.MARK
    if "\ufffd" in text:
        found |= Odd.REPLACEMENT
    if repair_mojibake(text) != text:
        found |= Odd.MOJIBAKE
    if not unicodedata.is_normalized("NFC", text[:MAX_SCANNED_CHARACTERS]):
        found |= Odd.DECOMPOSED
    if _has_mixed_word(text):
        found |= Odd.MIXED
    return found


def strip_tags(text: str) -> str:
    """Remove HTML tags; block tags become a space."""
    return re.sub(" {2,}", " ", _TAG.sub(lambda match: " " if _BREAKS.match(match[0]) else "", text)).strip(" ")


def _bidi(text: str) -> re.Pattern[str]:
    """Suspicious direction marks: all of them, or only overrides in right-to-left text."""
    return _OVERRIDE if _RIGHT_TO_LEFT.search(text) else _BIDI


_LOOKALIKES = {"LATIN", "CYRILLIC", "GREEK"}


def _has_mixed_word(text: str) -> bool:
    """Whether a word mixes two similar scripts, such as a Cyrillic а in a Latin word."""
    if len(_LOOKALIKES & scripts_of(text).keys()) < 2:
        return False
    words = (word for word in re.split(r"[\W_]+", text) if 2 < len(word) <= _LONGEST_WORD and word.isalpha())
    return any(len(_LOOKALIKES & scripts_of(word).keys()) > 1 for word in words)


def _differ_in_numbers(source: str, target: str) -> bool:
    """Whether both sides have numbers and these differ; thousands separators are ignored."""
    one, other = _NUMBER.findall(source), _NUMBER.findall(target)
    if not one or not other or sorted(one) == sorted(other):
        return False
    plain = [
        sorted("".join(str(unicodedata.digit(sign)) for sign in number if sign.isdigit()) for number in side)
        for side in (one, other)
    ]
    return plain[0] != plain[1]


def is_left_open(text: str) -> bool:
    """Whether brackets or straight double quotes are unclosed."""
    if not any(map(text.__contains__, '([{)]}"')):
        return False
    opened = sum(map(text.count, _OPENING)) - sum(map(text.count, _CLOSING))
    # Emoticons and list markers, :-) and a), are ignored.
    return opened > 0 or text.count('"') % 2 == 1


# --- repairing ------------------------------------------------------------------------------------------------------


def repair_characters(text: str) -> str:
    """Repair a text: decode entities and double encodings, remove invisible characters, normalise to NFC.

    The replacement character U+FFFD stays: the original is lost.
    """
    if text.isascii() and text.isprintable() and "&" not in text:
        return text
    text = repair_mojibake(text)
    text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
    text = _bidi(text).sub("", _ZERO_WIDTH.sub("", text)).replace("\ufeff", "")
    text = _SPACES.sub(" ", _CONTROL.sub(" ", text))
    return unicodedata.normalize("NFC", text.replace("\n", " ").strip(" "))


# --- faults ----------------------------------------------------------------------------------------------------------

_GROUPS: tuple[tuple[Kind, int, str, str, float], ...] = (
    ("garbled", Odd.MOJIBAKE | Odd.REPLACEMENT | Odd.CONTROL, "Garbled characters",
     "--fix garbled undoes double encodings and removes control characters; U+FFFD cannot be recovered", 0.0),
    ("invisible", Odd.ZERO_WIDTH | Odd.BIDI | Odd.MARK | Odd.SPACE, "Invisible characters",
     "--fix invisible removes them and normalises spaces", 0.05),
    ("spelling", Odd.ENTITY | Odd.DECOMPOSED | Odd.MIXED, "Non-standard spelling of characters",
     "--fix spelling decodes entities and composes accents (NFC)", 0.05),
    ("numbers", Odd.NUMBERS, "Numbers that differ between the sides",
     "check some of them: units and times of day may differ, years should not", 0.05),
    ("brackets", Odd.BRACKETS, "Unclosed brackets or quotes on one side",
     "often a sentence that was split on one side only", 0.05),
    ("markup", Odd.TAG, "HTML tags in the text",
     "--fix markup removes them; keep them if translations should contain them", 0.005),
    ("one-sided", Odd.ADDRESS | Odd.EMOJI | Odd.NOTE, "Addresses, emoji or notes on one side only",
     "a model learns to insert or drop them; --fix one-sided drops the pairs", 0.01),
)  # fmt: skip


def examine_characters(survey: Survey) -> list[Fault]:
    """A fault for each group of oddities that occurs."""
    faults = []
    for kind, bits, title, advice, threshold in _GROUPS:
        lines = numbers_where((survey.odd & bits) != 0)
        if len(lines) == 0:
            continue
        severity = grade(len(lines), len(survey), fix=threshold)
        parts = [
            f"{NAMES[odd]}: {counted(int(((survey.odd & odd) != 0).sum()), 'line')}"
            for odd in Odd
            if odd & bits and ((survey.odd & odd) != 0).any()
        ]
        sentence = f"{touched(len(lines), len(survey))}: {'; '.join(parts)}"
        faults.append(
            Fault(kind, severity, title, sentence, advice, survey.split, lines, describe=partial(_describe, bits=bits))
        )
    return faults


def _describe(source: str, target: str, *, bits: int) -> str:
    found = look_at_characters(source, target) & bits
    return ", ".join(NAMES[odd] for odd in Odd if odd & found)
