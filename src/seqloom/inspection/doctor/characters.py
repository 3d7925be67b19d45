"""Characters that should not be there, and how to mend them; numbers and brackets that differ between the sides."""

import html
import re
import unicodedata
from enum import IntFlag

from seqloom.inspection.doctor.faults import Describe, Fault, Kind, counted, grade, numbers_where, touched
from seqloom.inspection.doctor.mojibake import mend_mojibake
from seqloom.inspection.doctor.survey import Survey
from seqloom.inspection.doctor.texts import LONGEST, scripts_of


class Odd(IntFlag):
    """What is odd about a pair, a bit each."""

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
    Odd.MARK: "byte-order mark inside",
    Odd.SPACE: "unusual space",
    Odd.ENTITY: "HTML entity",
    Odd.DECOMPOSED: "accents apart from their letters",
    Odd.MIXED: "scripts mixed inside a word",
    Odd.NUMBERS: "other numbers",
    Odd.BRACKETS: "brackets or quotes left open",
    Odd.TAG: "HTML tag",
    Odd.QUESTION: "question mark inside a word",
    Odd.ADDRESS: "web address",
    Odd.EMOJI: "emoji",
    Odd.NOTE: "note in brackets",
}

_CONTROL = re.compile("[\x01-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
# Joiners shape the letters of Arabic and Indic scripts and join emoji; zero-width spaces part the words of Thai, Lao,
# Burmese and Khmer; Mongolian has a separator of its own.
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
        # What is printable has neither controls nor anything invisible; most lines end here.
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
    """Whether a question mark is where a letter was: `f?r`, `?ber`, `gro? und`; not so in addresses."""
    return any(
        (match["after"] or match["next"] or "x").islower()
        and not set(match[0]) & set("/=&@")
        and match[0].count("?") <= len(match[0]) / 2
        for match in _QUESTION.finditer(text)
    )


def _look_at_one(text: str) -> int:
    found = 0
    if not text.isprintable():
        for pattern, odd in (
            (_CONTROL, Odd.CONTROL),
            (_ZERO_WIDTH, Odd.ZERO_WIDTH),
            (_bidi(text), Odd.BIDI),
            (_SPACES, Odd.SPACE),
        ):
            if pattern.search(text):
                found |= odd
        if "\ufeff" in text:
            found |= Odd.MARK
    if "\ufffd" in text:
        found |= Odd.REPLACEMENT
    if mend_mojibake(text) != text:
        found |= Odd.MOJIBAKE
    if not unicodedata.is_normalized("NFC", text[:LONGEST]):
        found |= Odd.DECOMPOSED
    if _has_mixed_word(text):
        found |= Odd.MIXED
    return found


def strip_tags(text: str) -> str:
    """The text without HTML tags; where one parted two words, a space does."""
    return re.sub(" {2,}", " ", _TAG.sub(lambda match: " " if _BREAKS.match(match[0]) else "", text)).strip(" ")


def _bidi(text: str) -> re.Pattern[str]:
    """Direction marks that should not be there: all of them, or only overrides where a script runs from the right."""
    return _OVERRIDE if _RIGHT_TO_LEFT.search(text) else _BIDI


_LOOKALIKES = {"LATIN", "CYRILLIC", "GREEK"}


def _has_mixed_word(text: str) -> bool:
    """Whether a word has letters of two scripts that look alike, such as a Cyrillic а in a Latin word."""
    if len(_LOOKALIKES & scripts_of(text).keys()) < 2:
        return False
    words = (word for word in re.split(r"[\W_]+", text) if 2 < len(word) <= _LONGEST_WORD and word.isalpha())
    return any(len(_LOOKALIKES & scripts_of(word).keys()) > 1 for word in words)


def _differ_in_numbers(source: str, target: str) -> bool:
    """Whether both sides have numbers and they are not the same ones; how thousands are parted does not matter."""
    one, other = _NUMBER.findall(source), _NUMBER.findall(target)
    if not one or not other or sorted(one) == sorted(other):
        return False
    return sorted(map(_digits, one)) != sorted(map(_digits, other))


def _digits(number: str) -> str:
    return "".join(str(unicodedata.digit(sign)) for sign in number if sign.isdigit())


def is_left_open(text: str) -> bool:
    """Whether brackets or straight double quotes do not close."""
    if not any(map(text.__contains__, '([{)]}"')):
        return False
    opened = sum(map(text.count, _OPENING)) - sum(map(text.count, _CLOSING))
    # Faces and numbered points, :-) and a), open nothing.
    return opened > 0 or text.count('"') % 2 == 1


# --- mending ---------------------------------------------------------------------------------------------------------


def mend_characters(text: str) -> str:
    """The text without what is odd in it: entities and double encodings undone, what cannot be seen left out, NFC.

    The replacement character stays: what it stands for is lost.
    """
    if text.isascii() and text.isprintable() and "&" not in text:
        return text
    text = mend_mojibake(text)
    text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
    text = _bidi(text).sub("", _ZERO_WIDTH.sub("", text)).replace("\ufeff", "")
    text = _SPACES.sub(" ", _CONTROL.sub(" ", text))
    return unicodedata.normalize("NFC", text.replace("\n", " ").strip(" "))


# --- faults ----------------------------------------------------------------------------------------------------------

_GROUPS: tuple[tuple[Kind, int, str, str, float], ...] = (
    (
        "garbled",
        Odd.MOJIBAKE | Odd.REPLACEMENT | Odd.CONTROL,
        "Garbled characters",
        "--fix garbled undoes double encodings and takes control characters out; what U+FFFD stood for is lost",
        0.0,
    ),
    (
        "invisible",
        Odd.ZERO_WIDTH | Odd.BIDI | Odd.MARK | Odd.SPACE,
        "Characters that cannot be seen",
        "--fix invisible takes them out and writes plain spaces",
        0.05,
    ),
    (
        "spelling",
        Odd.ENTITY | Odd.DECOMPOSED | Odd.MIXED,
        "Characters written in another way",
        "--fix spelling decodes entities and joins accents with their letters (NFC)",
        0.05,
    ),
    (
        "numbers",
        Odd.NUMBERS,
        "Numbers that differ between the sides",
        "look at some of them: units and times of day may well differ, years should not",
        0.05,
    ),
    (
        "brackets",
        Odd.BRACKETS,
        "Brackets or quotes left open on one side",
        "often a sentence that was cut in two on one side only",
        0.05,
    ),
    (
        "markup",
        Odd.TAG,
        "HTML tags in the text",
        "--fix markup removes them; leave them if translations are to carry them too",
        0.005,
    ),
    (
        "one-sided",
        Odd.ADDRESS | Odd.EMOJI | Odd.NOTE,
        "Addresses, emoji or notes on one side only",
        "a model learns to invent or to lose them; --fix one-sided drops the pairs",
        0.01,
    ),
)


def examine_characters(survey: Survey) -> list[Fault]:
    """A fault for each group of oddities that was met."""
    faults = []
    for kind, bits, title, advice, mend in _GROUPS:
        lines = numbers_where((survey.odd & bits) != 0)
        if len(lines) == 0:
            continue
        severity = grade(len(lines), len(survey), mend=mend)
        parts = [
            f"{NAMES[odd]}: {counted(int(((survey.odd & odd) != 0).sum()), 'line')}"
            for odd in Odd
            if odd & bits and ((survey.odd & odd) != 0).any()
        ]
        sentence = f"{touched(len(lines), len(survey))}: {'; '.join(parts)}"
        faults.append(Fault(kind, severity, title, sentence, advice, survey.split, lines, describe=_describer(bits)))
    return faults


def _describer(bits: int) -> Describe:
    def describe(source: str, target: str) -> str:
        found = look_at_characters(source, target) & bits
        return ", ".join(NAMES[odd] for odd in Odd if odd & found)

    return describe
