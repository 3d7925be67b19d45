"""Where sentences and clauses of a line end, by rules alone.

    always       。！？ ।॥ ؟۔ ։ ።፧ ။ ។៕         the mark always ends a sentence
    if spaced    . ! ? …                         it does so before a space and something that can begin a sentence

Closing quotes and brackets after a mark still belong to its sentence. A point ends no sentence after a title or another
abbreviation that needs a word behind it, after an initial, or after a number of one or two digits (`am 3. Mai`). Where
the rules are in doubt they do not split: two sentences in one are translated well enough, half a sentence is not.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import pairwise

ALWAYS = {
    "Chinese and Japanese": "。！？｡",
    "Devanagari and its neighbours": "।॥",
    "Arabic": "؟۔",
    "Armenian": "։",
    "Ethiopic": "።፧",
    "Burmese": "။",
    "Khmer": "។៕",
}
"""Marks that end a sentence by themselves, by script."""

IF_SPACED = ".!?…"
"""Marks that end a sentence only before a space."""

CLAUSES = {
    "with a space behind": ",;:—–",
    "Chinese and Japanese": "，、；：",
    "Arabic": "،؛",
    "Ethiopic": "፣፤፥",
}
"""Marks that end a clause; the first row only before a space, the others by themselves."""

CLOSERS = "\"'’”»›)]}」』）】》〉］"
OPENERS = "\"'‘’“„«‹([{¿¡「『（【《〈［-–—"

NEVER_LAST = {
    "English": "mr mrs ms messrs dr prof rev fr hon st mt gen col lt sgt capt gov sen rep pres supt e.g i.e cf vs viz",
    "German": "hr fr frl hrn dipl ing z.b d.h u.a z.t bzw ca ggf evtl inkl exkl sog vgl s.o geb gest hl",
    "French": "m mm mme mmes mlle mlles me mgr p.ex c.-à-d env av apr",
    "Spanish": "sr sra srta sres d dña dr dra ud uds p.ej excmo lic",
    "Portuguese": "sr sra srs dr dra exmo p.ex",
    "Italian": "sig sigg sig.ra dott dott.ssa avv prof.ssa on ecc.mo p.es",
    "Dutch": "dhr mevr mej ir ing bijv bv m.b.t o.a t.a.v",
    "Scandinavian languages": "hr fru f.eks t.ex bl.a d.v.s dvs s.k o.a",
    "Polish and Czech": "p pp pan np tzn tzw wg ks inż mgr św tzv např mj sv",
    "Russian and Ukrainian": "г гг гр г-н г-жа т.е т.н напр им проф акад ул пр рис тов св д-р",
    "Turkish": "sn av doç alb yrd örn bkz",
    "Vietnamese": "ts ths pgs gs bs ks",
}
"""Abbreviations that precede another word, so that their full stop does not end a sentence."""

BEFORE_NUMBERS = {
    "Latin": "no nos nr n núm num art arts fig figs abb tab vol bd ch chap cap sec par abs p pp pg pag pág s str op č",
    "Cyrillic": "стр рис табл",
}
"""Abbreviations whose point ends no sentence before a number: `No. 5`."""

_never_last = frozenset(word for words in NEVER_LAST.values() for word in words.split())
_before_numbers = frozenset(word for words in BEFORE_NUMBERS.values() for word in words.split())
_always = "".join(ALWAYS.values())
# French sets a space before its closing quote; German opens with the same sign, but then a word follows.
_closed = f"(?:[{re.escape(CLOSERS)}]| [»›](?!\\S))*"
_sentence_ends = re.compile(f"(?P<marks>[{_always}{IF_SPACED}]+){_closed}")
_spaced, *_unspaced = CLAUSES.values()
_clause_ends = re.compile(f"[{_spaced}]+{_closed}(?=\\s)|[{''.join(_unspaced)}]+{_closed}")
_gap = re.compile(r"\s+")


def pieces(text: str, borders: Iterable[int]) -> Iterator[str]:
    """A text cut at these places, without the spaces around them, and without what is blank."""
    for begin, end in pairwise([0, *borders, len(text)]):
        piece = text[begin:end].strip()
        if piece:
            yield piece


def sentence_borders(text: str) -> list[int]:
    """Places inside a text at which a sentence has ended."""
    return [
        match.end()
        for match in _sentence_ends.finditer(text)
        if match.end() < len(text) and (set(match["marks"]) & set(_always) or _ends_before_space(text, match))
    ]


def clause_borders(text: str) -> list[int]:
    """Places inside a text at which a clause has ended."""
    return [match.end() for match in _clause_ends.finditer(text) if match.end() < len(text)]


def _ends_before_space(text: str, match: re.Match[str]) -> bool:
    """Whether a sentence ends with marks that end it only before a space."""
    gap = _gap.match(text, match.end())
    if gap is None:
        return False
    following = text[gap.end() : gap.end() + 8].lstrip(OPENERS + " ")
    if not following or unicodedata.category(following[0]) == "Ll":
        return False
    if match["marks"] != ".":
        return True
    # A full stop after an abbreviation, initials or an ordinal number is not the end of a sentence.
    end = match.start()
    start = text.rfind(" ", max(0, end - 24), end) + 1  # anything longer is not an abbreviation
    word = text[max(start, end - 24) : end].lstrip(OPENERS)
    is_initials = bool(word) and all(len(part) == 1 and part.isalpha() for part in word.split("."))
    is_ordinal = word.isdigit() and len(word) <= 2
    is_before_number = following[0].isnumeric() and word.lower() in _before_numbers
    return not (is_initials or is_ordinal or word.lower() in _never_last or is_before_number)
