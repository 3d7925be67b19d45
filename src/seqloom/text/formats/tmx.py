"""Translation memories (TMX): read piece by piece to learn from, or as a whole to be filled.

    <tu><tuv xml:lang="en-GB"><seg>colour</seg></tuv><tuv xml:lang="de"><seg>Farbe</seg></tuv></tu>

Of several variants of a language the one of the very code is taken, or else the first: de for de-AT, en-GB for en.
TMX has no mark for a translation that needs review; here it is a <prop type="x-fuzzy">.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from seqloom.core.errors import DataError, Problems, UsageError
from seqloom.core.text_files import read_whole
from seqloom.text.formats.segments import (
    Content,
    Edit,
    Filling,
    Format,
    Languages,
    Pair,
    Script,
    Segment,
    State,
    text_of,
)
from seqloom.text.formats.xml import (
    Element,
    content_of,
    escape_attribute,
    parse_tree,
    parse_xml,
    space_before,
    write_content,
)

FUZZY = "x-fuzzy"
LANGUAGE_SAMPLE_UNITS = 1_000
"""Units in which the languages of a memory are searched."""
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_NOT_TEXT = frozenset({"bpt", "ept", "ph", "it", "ut", "sub"})
T = TypeVar("T")


def is_language(code: str | None, wanted: str) -> bool:
    """Whether a code names a language, whatever region or script it adds: en-GB is en, and en is en-GB."""
    return _first(code or "") == _first(wanted)


def _first(code: str) -> str:
    return code.replace("_", "-").split("-")[0].lower()


def choose_variant(variants: Sequence[tuple[str, T]], wanted: str) -> T | None:
    """Of variants with their codes the one in a language."""
    exact = [each for code, each in variants if code.lower().replace("_", "-") == wanted.lower().replace("_", "-")]
    near = exact or [each for code, each in variants if is_language(code, wanted)]
    return near[0] if near else None


# --- learning from it ------------------------------------------------------------------------------------------------


class Variant(NamedTuple):  # a tuple, because two are made for each unit
    """The text of a unit in one language, and when it was last changed: `20260131T235959Z`, or empty."""

    text: str
    changed: str


@dataclass
class _Units:
    """Receives a memory while it is parsed, and holds its finished units."""

    languages: Languages
    with_codes: bool = False
    """Whether the markup inside inline codes is part of the text."""
    done: list[tuple[Variant | None, Variant | None, int, list[str]]] = field(default_factory=list)
    """Source, target, line, and the languages of all variants."""
    header: str | None = None
    is_memory: bool = False
    nameless: "array[int]" = field(default_factory=lambda: array("q"))
    """Lines of variants that name no language."""
    _variants: list[tuple[str, Variant]] = field(default_factory=list)
    _line: int = 0
    _changed: tuple[str, str] = "", ""
    """When the open unit and its open variant were changed."""
    _code: str = ""
    _text: list[str] | None = None
    _hidden: int = 0
    """Open elements inside a segment whose content is not text."""
    _empty_code: str | None = None
    """The tag of an open code without markup inside, so far."""
    _mark: list[str] | None = None
    _is_fuzzy: bool = False

    def start(self, name: str, attributes: dict[str, str], line: int) -> None:
        name = name.rpartition("}")[2]
        self.is_memory = self.is_memory or name == "tmx"
        if self._text is not None:
            if self.with_codes and not self._hidden:
                tag = name + "".join(f' {key}="{value}"' for key, value in attributes.items())
                if name in _NOT_TEXT:
                    self._empty_code = f"<{tag}/>"
                else:
                    self._text.append(f"<{tag}>")
            self._hidden += bool(self._hidden or name in _NOT_TEXT)
        elif name == "tu":
            self._line, self._variants = line, []
            self._changed = attributes.get("changedate") or attributes.get("creationdate") or "", ""
        elif name == "prop" and attributes.get("type") == FUZZY:
            self._mark = []
        elif name == "tuv":
            self._is_fuzzy = False
            self._code = attributes.get(_LANGUAGE) or attributes.get("lang") or ""
            own = attributes.get("changedate") or attributes.get("creationdate") or ""
            self._changed = self._changed[0], own
            if not self._code:
                self.nameless.append(line)
        elif name == "seg":
            self._text = []
        elif name == "header":
            self.header = attributes.get("srclang")

    def data(self, text: str) -> None:
        if self._mark is not None:
            self._mark.append(text)
        elif self._text is not None and (self.with_codes or not self._hidden):
            self._text.append(text)
            self._empty_code = None

    def end(self, name: str) -> None:
        name = name.rpartition("}")[2]
        if self._hidden:
            self._hidden -= 1
            if self._empty_code is not None and self._text is not None and not self._hidden:
                self._text.append(self._empty_code)
                self._empty_code = None
        elif name == "seg" and self._text is not None:
            # A translation that needs review is not learnt from.
            text = "" if self._is_fuzzy else "".join(self._text)
            self._variants.append((self._code, Variant(text, self._changed[1] or self._changed[0])))
            self._text = None
        elif self.with_codes and self._text is not None:
            self._text.append(f"</{name}>")
        elif name == "prop" and self._mark is not None:
            self._is_fuzzy = "".join(self._mark).strip() == "true"
            self._mark = None
        elif name == "tu":
            source, target = choose_pair(self._variants, self.languages, self.header)
            self.done.append((source, target, self._line, [code for code, _ in self._variants]))


def _refuse_nameless(path: Path, lines: Iterable[int]) -> None:
    problems = Problems()
    for line in lines:
        problems.add('this <tuv> names no language; it needs one, as in <tuv xml:lang="en">', path, line)
    problems.require_none()


def choose_pair(
    variants: Sequence[tuple[str, T]], languages: Languages, header: str | None
) -> tuple[T | None, T | None]:
    """Source and target: in the requested languages, or else in that of the header and the first other one."""
    source, target = languages
    if source is None:
        named = header if header not in (None, "", "*all*") else None
        others = [code for code, _ in variants if target is None or not is_language(code, target)]
        source = named or next(iter(others), None)
    if source is None:
        return None, None
    if target is None:
        target = next((code for code, _ in variants if not is_language(code, source)), None)
    return choose_variant(variants, source), None if target is None else choose_variant(variants, target)


def read_variants(
    path: Path, *, languages: Languages, with_codes: bool = False
) -> Iterator[tuple[Variant | None, Variant | None, int]]:
    """Source, target and line of each unit. Memory holds a piece of the file.

    Inline codes are left out, or `with_codes` are the markup that they stand for: `<ph>%s</ph>` is %s. One that holds
    none is written as its own tag.
    """
    units = _Units(languages, with_codes)
    for _ in parse_xml(path, units):
        yield from (unit[:3] for unit in units.done)
        units.done.clear()
    if not units.is_memory:
        raise DataError(f"{path}: not a translation memory; it has no <tmx>")
    _refuse_nameless(path, units.nameless)


def read_pairs(path: Path, *, languages: Languages = (None, None)) -> Iterator[Pair | None]:
    """The pairs of a memory; None for a unit that lacks one of the languages."""
    for source, target, line in read_variants(path, languages=languages):
        if source and target and source.text.strip() and target.text.strip():
            yield Pair(source.text, target.text, line)
        else:
            yield None


def read_side(path: Path, *, language: str | None) -> Iterator[str | None]:
    """The texts of a memory in one language, or in that of its header; None for a unit that has none."""
    return (source and source.text for source, _, _ in read_variants(path, languages=(language, None)))


@dataclass(frozen=True)
class Memory:
    """The languages of a memory, without their regions."""

    source: str | None
    """That of its header, if it names one."""
    languages: tuple[str, ...]
    """Those of the header and of the first units, as they come."""


def look_into(path: Path) -> Memory:
    """Find the languages of a memory in its first units."""
    units, seen, looked_at = _Units((None, None)), dict[str, None](), 0
    for _ in parse_xml(path, units):
        for *_, codes in units.done:
            seen |= dict.fromkeys(map(_first, codes))
        looked_at += len(units.done)
        units.done.clear()
        if looked_at >= LANGUAGE_SAMPLE_UNITS:
            break
    source = None if units.header in (None, "", "*all*") else _first(units.header or "")
    return Memory(source, tuple(code for code in dict.fromkeys([source, *seen]) if code))


def settle_languages(path: Path, languages: Languages) -> Languages:
    """Source and target: those requested, or else those of a memory that has no others; otherwise a UsageError."""
    source, target = languages
    if source is not None and target is not None:
        return languages
    memory = look_into(path)
    source = source or (memory.source if not (target and is_language(memory.source, target)) else None)
    wanted = [source, target]
    left = [code for code in memory.languages if not any(is_language(code, each) for each in wanted if each)]
    rest = iter(left)
    if len(left) > wanted.count(None) > 0:
        there, example = memory.languages, [each or next(rest) for each in wanted]
        raise UsageError(
            f"{path} holds texts in {', '.join(there[:-1])} and {there[-1]}; choose two of them, such as: "
            f"data.source={example[0]} data.target={example[1]}"
        )
    return source or next(rest, None), target or next(rest, None)


# --- filling it ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _UnitVariants:
    """A unit, its source variant, and its target variant if it has one."""

    unit: Element
    source: Element
    target: Element | None


def read_tmx(path: Path, *, languages: Languages = (None, None)) -> "TmxCatalogue":
    """Read a memory as a whole, `.gz`, `.xz` and `.zst` too."""
    return parse_tmx(read_whole(path), path, languages=languages)


def parse_tmx(data: bytes, path: Path, *, languages: Languages = (None, None)) -> "TmxCatalogue":
    """The same of the bytes of a file; the path is for messages."""
    script, root = parse_tree(data, path)
    if root.name != "tmx":
        raise DataError(f"{path}: not a translation memory; its outermost element is <{root.tag}>")
    return TmxCatalogue(script, root, languages=languages)


class TmxCatalogue:
    """A translation memory in two of its languages."""

    locked = 0

    def __init__(self, script: Script, root: Element, *, languages: Languages) -> None:
        self.script = script
        header, body = root.child("header"), root.child("body")
        self._header = header.get("srclang") if header else None
        self._asked = languages
        self._places: list[_UnitVariants] = []
        self.segments: list[Segment] = []
        """The units that have the source language."""
        self.foreign = 0
        """How many units have it not."""
        units = body.children if body else ()
        nameless = [each for unit in units for each in unit.children if each.name == "tuv" and not _code_of(each)]
        _refuse_nameless(script.path, [script.line(each.start) for each in nameless])
        for unit in units:
            variants = [(_code_of(each), each) for each in unit.children if each.name == "tuv" and each.child("seg")]
            source, target = choose_pair(variants, languages, self._header)
            if unit.name == "tu" and source is None:
                self.foreign += 1
            elif unit.name == "tu" and source is not None:
                self._places.append(_UnitVariants(unit, source, target))
                self.segments.append(self._segment(unit, source, target))

    @property
    def languages(self) -> Languages:
        """Those of the first unit that has both."""
        for place in self._places:
            if place.target is not None:
                return _code_of(place.source), _code_of(place.target)
        return (self._header if self._header != "*all*" else None), None

    def _segment(self, unit: Element, source: Element, target: Element | None) -> Segment:
        text = "" if target is None else text_of(self._content(target))
        mark = None if target is None else _mark(target)
        state: State = "fuzzy" if mark is not None and self._says_true(mark) else "translated"
        line, name = self.script.line(unit.start), unit.get("tuid") or ""
        return Segment(self._content(source), text, state if text.strip() else "untranslated", line, name)

    def _content(self, variant: Element) -> Content:
        return content_of(self.script.text, _text_of_variant(variant), keeps_space=False)

    def _says_true(self, mark: Element) -> bool:
        return self.script.text[mark.inner_start : mark.inner_end].strip() == "true"

    def filled(self, fillings: Mapping[int, Filling], *, target: str | None = None) -> bytes:
        """The memory with these variants in the target language."""
        code = target or self._asked[1] or self.languages[1]
        edits: list[Edit] = []
        for number, filling in fillings.items():
            place = self._places[number]
            if place.target is not None:
                edits += self._replaced(place.target, filling)
            elif code is None:
                raise DataError(f"{self.script.path}: the memory names no target language; give one with --target")
            else:
                edits.append(self._added(place, filling, code))
        return self.script.edited(edits, errors="xmlcharrefreplace")

    def _replaced(self, variant: Element, filling: Filling) -> Iterator[Edit]:
        segment, mark = _text_of_variant(variant), _mark(variant)
        inner = write_content(filling.content)
        if segment.is_empty:
            yield Edit(segment.start, segment.end, f"<{segment.tag}>{inner}</{segment.tag}>")
        else:
            yield Edit(segment.inner_start, segment.inner_end, inner)
        if mark is not None and self._says_true(mark) != filling.is_fuzzy:
            value = "true" if filling.is_fuzzy else "false"
            if mark.is_empty:
                yield Edit(mark.start, mark.end, f'<{mark.tag} type="{FUZZY}">{value}</{mark.tag}>')
            else:
                yield Edit(mark.inner_start, mark.inner_end, value)
        elif mark is None and filling.is_fuzzy:
            yield Edit(segment.start, segment.start, f"{_FUZZY_MARK}{space_before(self.script.text, segment)}")

    def _added(self, place: _UnitVariants, filling: Filling, code: str) -> Edit:
        """A variant after the last one, laid out as the source is."""
        text, source = self.script.text, place.source
        last = [each for each in place.unit.children if each.name == "tuv"][-1]
        segment = _text_of_variant(source)
        inside = space_before(text, segment)
        after = text[segment.end : source.inner_end]
        after = after if not after.strip() else ""
        name = "xml:lang" if "xml:lang" in source.attributes else "lang"
        mark = f"{inside}{_FUZZY_MARK}" if filling.is_fuzzy else ""
        inner = f"{mark}{inside}<{segment.tag}>{write_content(filling.content)}</{segment.tag}>{after}"
        new = f'{space_before(text, last)}<{source.tag} {name}="{escape_attribute(code)}">{inner}</{source.tag}>'
        return Edit(last.end, last.end, new)


_FUZZY_MARK = f'<prop type="{FUZZY}">true</prop>'


def _mark(variant: Element) -> Element | None:
    """The mark of a variant that needs review."""
    return next((each for each in variant.children if each.name == "prop" and each.get("type") == FUZZY), None)


def _text_of_variant(variant: Element) -> Element:
    segment = variant.child("seg")
    assert segment is not None, "variants without text are left out when a memory is read"
    return segment


def _code_of(variant: Element) -> str:
    return variant.get("xml:lang") or variant.get("lang") or ""


TMX = Format(
    "TMX",
    (".tmx",),
    pairs=lambda path, languages, _encoding: read_pairs(path, languages=languages),
    texts=lambda path, _side, language, _encoding: read_side(path, language=language),
    languages=lambda path: look_into(path).languages,
    settle=settle_languages,
    catalogue=lambda path, languages: read_tmx(path, languages=languages),
)
