"""Codes and placeholders carried through a translation: taken out before it, put back by the alignment after it.

    Save %s to <g id="1">disk</g>.\\nReally?    a segment
    Save to disk.  |  Really?                   what is translated, line by line

A line end stays where it was, with what is before and after it translated apart; but one inside a sentence that was
wrapped manually goes between the words that its neighbours became. The filling has each placeholder exactly as often as
the source, and those that touch each other still do. Where that took a guess, it is fuzzy; where it cannot be had,
there is no filling.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from seqloom.text.formats.placeholders import (
    MAX_ENCLOSED_LENGTH,
    Placeholder,
    count_placeholders,
    find_placeholders,
    is_too_long,
    without_placeholders,
)
from seqloom.text.formats.segments import Code, Content, Edit, Filling, apply_edits
from seqloom.text.tags import Tagged, place_tags, take_out
from seqloom.text.words import Span, word_spans

_PRIVATE = range(0xE000, 0xF900)
_ONE_LINE = dict.fromkeys((*range(0x20), 0x7F, 0xFFFE, 0xFFFF), " ")
"""Line ends, and what XML cannot write: if removed, their neighbours would join."""
_ORDERED = re.compile(r"%(?!\d+\$|[1-9]\d?%?$|L[1-9]|[%({]|<(?!PRI)|[A-Z_]+%).*|\{\}")
"""Placeholders that take their values by their order: %s and {}, but not %1$s, %(name)s and {0}."""


@dataclass(frozen=True)
class Rendering:
    """What an engine made of a line."""

    text: str
    target_spans: Sequence[Span] = ()
    """The places of its words."""
    links: Sequence[tuple[int, int]] = ()
    """Aligned words of the line and of the translation; none where the engine does not know."""
    is_whole: bool = True
    """False where it had to stop too early."""


@dataclass(frozen=True)
class _Unit:
    """A line with codes that is translated by itself."""

    before: str
    tagged: Tagged
    after: str
    pieces: dict[str, str | Code]
    """What each stand-in replaces."""
    raw: Content


class CannotCarry(Exception):
    """A segment that cannot be translated; the message is the reason, which continues "left untranslated:"."""


class Carrier:
    """The lines of a segment that are to be translated, and the way back.

    `is_format` says that its text is known to go to printf or its like. What cannot be brought back raises CannotCarry.
    """

    def __init__(self, content: Content, *, is_format: bool = False) -> None:
        self._content, self._is_format = content, is_format
        if any(isinstance(piece, str) and is_too_long(piece) for piece in content):
            raise CannotCarry(f"braces or a comment in the text have more than {MAX_ENCLOSED_LENGTH:,} characters")
        mark = _unused(content)
        self._parts: list[_Unit | str | Code] = []
        self._holds_text = self._needs_review = False
        for run in self._runs(content):
            self._parts += _parts_of(run, mark)
        self._stand_in = re.compile(f"</?[A-Za-z0-9]+ {mark}[0-9]+/?>")

    def _runs(self, content: Content) -> Iterator[list[str | Code | Placeholder]]:
        """The pieces between borders, and the borders, in two lists."""
        run: list[str | Code | Placeholder] = []
        for piece in content:
            if isinstance(piece, Code):
                if piece.kind == "border":
                    yield run
                    yield [piece]
                    run = []
                else:
                    run.append(piece)
                continue
            done = 0
            for each in find_placeholders(piece, is_format=self._is_format):
                self._holds_text |= each.holds_text
                run.append(piece[done : each.start])
                done = each.end
                # A line end inside a sentence, after a word or comma and before a lower-case letter, is not a border.
                before, after = piece[each.start - 1 : each.start], piece[each.end : each.end + 1]
                if each.is_line_end and not ((before.isalnum() or before == ",") and after.islower()):
                    yield run
                    yield [each]
                    run = []
                else:
                    run.append(each.text if each.is_tag else each)
            run.append(piece[done:])
        yield run

    @property
    def lines(self) -> list[str]:
        """What is to be translated."""
        return [part.tagged.plain.strip() for part in self._parts if isinstance(part, _Unit)]

    def filling(self, renderings: Iterable[Rendering], *, normalise: Callable[[str], str] = str) -> Filling | None:
        """The segment in the other language, given the translations of its lines; None if it cannot be trusted."""
        self._needs_review = self._holds_text
        made = list(renderings)
        texts = [self._clean(each.text) for each in made]
        if not all(texts):
            return None
        units = [part for part in self._parts if isinstance(part, _Unit)]
        carried = [
            list(self._restored(self._carried(unit, each, normalise), unit))
            for unit, each in zip(units, made, strict=True)
        ]
        content = self._in_order(self._whole(carried))
        if not self._has_all(content):
            # Text and placeholders have become something else together: they are kept apart, at the end.
            self._needs_review = True
            content = self._whole([[text, *self._apart(unit.raw)] for unit, text in zip(units, texts, strict=True)])
        return Filling(content, self._needs_review) if self._has_all(content) else None

    def _has_all(self, content: Content) -> bool:
        return has_all_of(self._content, content, is_format=self._is_format)

    def _clean(self, text: str) -> str:
        return without_placeholders(text.translate(_ONE_LINE), is_format=self._is_format).strip()

    def _whole(self, carried: Iterable[Sequence[str | Code]]) -> Content:
        """The segment with these pieces in place of what was translated."""
        given, pieces = iter(carried), list[str | Code]()
        for part in self._parts:
            pieces += [part.before, *next(given), part.after] if isinstance(part, _Unit) else [part]
        return _joined(pieces)

    def _carried(self, unit: _Unit, rendering: Rendering, normalise: Callable[[str], str]) -> str:
        """A translation with stand-ins where its codes belong."""
        text, spans, links = rendering.text.translate(_ONE_LINE), rendering.target_spans, rendering.links
        if count_placeholders(text, is_format=self._is_format):  # of the model's own making: it was shown none
            text, spans, links = self._clean(text), (), ()
            self._needs_review = True
        if unit.tagged.nodes and not links:
            # Links by place alone, for want of better ones: word i of I is linked to word i J / I of J.
            words, spans = len(word_spans(normalise(unit.tagged.plain))), word_spans(text)
            links = [(at, at * len(spans) // words) for at in range(words)] if spans else []
            self._needs_review = True
        placed = place_tags(unit.tagged, text, target_spans=spans, links=links, normalise=normalise)
        self._needs_review |= placed.is_guessed or not rendering.is_whole
        return placed.text.strip()

    def _restored(self, text: str, unit: _Unit) -> Iterator[str | Code]:
        """Text with the originals of its stand-ins."""
        done = 0
        for found in self._stand_in.finditer(text):
            piece = unit.pieces[found[0]]
            between = text[done : found.start()]
            is_line_end = "\n" in piece if isinstance(piece, str) else piece.parts_words
            yield between.rstrip(" ") if is_line_end else between
            yield piece
            done = found.end()
            if is_line_end:
                while text.startswith(" ", done):
                    done += 1
        yield text[done:]

    def _apart(self, content: Content) -> Iterator[str | Code]:
        """The codes and placeholders of a content, each after a space, unless it touched another or is a line end."""
        is_touching = False
        for piece in content:
            if isinstance(piece, Code):
                yield from (piece,) if is_touching else (" ", piece)
                is_touching = True
                continue
            done = 0
            for each in find_placeholders(piece, is_format=self._is_format):
                is_touching = is_touching and each.start == done
                yield from (each.text,) if each.is_line_end or is_touching else (" ", each.text)
                done, is_touching = each.end, not each.is_line_end
            is_touching = is_touching and done == len(piece)

    def _in_order(self, content: Content) -> Content:
        """Placeholders that take their values by their order, in the order of the source, with those they touch."""
        find = partial(_slots, is_format=self._is_format)
        wanted = [slot.text for _, slot in find(self._content, with_neighbours=False)]
        slots = list(find(content, with_neighbours=False))
        found = [slot.text for _, slot in slots]
        if wanted == found or Counter(wanted) != Counter(found):
            return content
        self._needs_review = True
        runs = [slot.text for _, slot in find(self._content, with_neighbours=True)]
        places = list(find(content, with_neighbours=True))
        if Counter(runs) == Counter(slot.text for _, slot in places):
            wanted, slots = runs, places
        edits: dict[int, list[Edit]] = {}
        for text, (number, slot) in zip(wanted, slots, strict=True):
            edits.setdefault(number, []).append(replace(slot, text=text))
        return tuple(
            apply_edits(piece, edits[number]) if isinstance(piece, str) and number in edits else piece
            for number, piece in enumerate(content)
        )


def _slots(content: Content, *, is_format: bool, with_neighbours: bool) -> Iterator[tuple[int, Edit]]:
    """Placeholders that take their values by their order, alone or with all others that they touch.

    Each is an edit that would change nothing, with the number of its piece.
    """
    for number, piece in enumerate(content):
        if isinstance(piece, Code):
            continue
        start, end, is_ordered = 0, -1, False
        for each in (*find_placeholders(piece, is_format=is_format), None):
            if each is None or not with_neighbours or each.start != end or each.is_line_end or each.is_tag:
                if is_ordered:
                    yield number, Edit(start, end, piece[start:end])
                start, is_ordered = each.start if each else 0, False
            if each is not None:
                end = -1 if each.is_line_end or each.is_tag else each.end
                is_ordered = is_ordered or _ORDERED.fullmatch(each.text) is not None


def has_all_of(source: Content, target: Content, *, is_format: bool = False) -> bool:
    """Whether two contents have the same codes and placeholders, each as often."""
    inventories = Counter[str | Code](), Counter[str | Code]()
    for content, found in zip((source, target), inventories, strict=True):
        for piece in _joined(content):
            found.update([piece] if isinstance(piece, Code) else count_placeholders(piece, is_format=is_format))
    return inventories[0] == inventories[1]


def _joined(pieces: Iterable[str | Code]) -> Content:
    """Neighbouring texts as one, empty ones left out."""
    joined: list[str | Code] = []
    texts: list[str] = []  # joined once: to add each to the last would take quadratic time
    for piece in (*pieces, None):
        if isinstance(piece, str):
            texts.append(piece)
            continue
        if text := "".join(texts):
            joined.append(text)
        texts = []
        if piece is not None:
            joined.append(piece)
    return tuple(joined)


def _unused(content: Content) -> str:
    """A private-use character that is not in a text, to mark stand-ins."""
    text = "".join(piece if isinstance(piece, str) else "" for piece in content)
    taken = {ord(character) for character in text if ord(character) in _PRIVATE}
    unused = next((chr(code) for code in _PRIVATE if code not in taken), None)
    if unused is None:
        raise CannotCarry(f"the text holds all {len(_PRIVATE):,} private characters, so none is left to mark places by")
    return unused


def _parts_of(run: Sequence[str | Code | Placeholder], mark: str) -> "list[_Unit | str | Code]":
    """One unit, with the spaces around it; one without letters is not changed."""
    line: list[str] = []
    originals: dict[str, str | Code] = {}
    names: dict[str, str] = {}
    for piece in run:
        if isinstance(piece, str):
            line.append(piece)
            continue
        name = "br" if piece.parts_words else "c"
        kind = piece.kind if isinstance(piece, Code) else "alone"
        if isinstance(piece, Code) and kind in ("open", "close"):
            name = names.setdefault(piece.name, f"c{len(names)}")
        opening, closing = "</" if kind == "close" else "<", ">" if kind in ("open", "close") else "/>"
        stand_in = f"{opening}{name} {mark}{len(originals)}{closing}"
        originals[stand_in] = piece.text if isinstance(piece, Placeholder) else piece
        line.append(stand_in)
    raw = _joined(piece.text if isinstance(piece, Placeholder) else piece for piece in run)
    text = "".join(line)
    core = text.strip()
    tagged = take_out(core)
    if not any(character.isalpha() for character in tagged.plain):
        return list(raw)
    at = text.index(core)
    return [_Unit(text[:at], tagged, text[at + len(core) :], originals, raw)]
