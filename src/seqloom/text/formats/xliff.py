"""XLIFF 1.2 and 2: read with their places, filled without another byte changed.

    1.2   <trans-unit id="1"><source>…</source><target state="translated">…</target></trans-unit>
    2     <unit id="1"><segment state="translated"><source>…</source><target>…</target></segment></unit>

What is not to be translated (translate="no") is left alone, and so are proposals of other tools (alt-trans). Similar
texts of a translation memory are written as alt-trans with their match-quality; not in XLIFF 2, where matches are a
module of their own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seqloom.core.errors import DataError
from seqloom.core.text_files import read_whole
from seqloom.text.formats.segments import Edit, Filling, Languages, Script, Segment, State, catalogue_format, text_of
from seqloom.text.formats.xml import Element, content_of, escape_attribute, parse_tree, space_before, write_content

REVIEW = "needs-review-translation"
_DONE = frozenset({"translated", "final", "signed-off", "reviewed"})


@dataclass(frozen=True)
class _TargetElement:
    """Where the target of a segment is, or belongs."""

    source: Element
    target: Element | None
    after: Element
    """What a new target follows."""
    state: Element | None
    """The element that has the state, where it is not the target."""
    unit: Element
    file: Element


def read_xliff(path: Path) -> "XliffCatalogue":
    """Read a file, `.gz`, `.xz` and `.zst` too; a DataError names what cannot be read."""
    return parse_xliff(read_whole(path), path)


def parse_xliff(data: bytes, path: Path) -> "XliffCatalogue":
    """The same of the bytes of a file; the path is for messages."""
    script, root = parse_tree(data, path)
    version = root.get("version") or ""
    if root.name != "xliff" or not version.startswith(("1.", "2.")):
        raise DataError(f"{path}: XLIFF 1.2 or 2 is expected, but this is <{root.tag} version={version!r}>")
    return XliffCatalogue(script, root, is_second=version.startswith("2."))


class XliffCatalogue:
    """A file of translation units."""

    def __init__(self, script: Script, root: Element, *, is_second: bool) -> None:
        self.script, self.root, self.is_second = script, root, is_second
        self.segments: list[Segment] = []
        """All units, of XLIFF 2 their segments, that are to be translated."""
        self._places: list[_TargetElement] = []
        self.locked = 0
        """Units with translate="no"."""
        for unit, file, may_change, keeps_space in _units(root, "unit" if is_second else "trans-unit"):
            self.locked += not may_change
            holders = [each for each in unit.children if each.name == "segment"] if is_second else [unit]
            for holder in holders if may_change else ():
                if (source := holder.child("source")) is None:
                    continue
                cut = None if is_second else holder.child("seg-source")
                state_holder = holder if is_second else None
                place = _TargetElement(source, holder.child("target"), cut or source, state_holder, unit, file)
                keeps = keeps_space or "preserve" in (holder.get("xml:space"), source.get("xml:space"))
                self._places.append(place)
                self.segments.append(self._segment(place, keeps_space=keeps))

    @property
    def languages(self) -> Languages:
        """As declared; of several files in one, as the first declares."""
        if self.is_second:
            return self.root.get("srcLang"), self.root.get("trgLang")
        file = self.root.child("file")
        return (file.get("source-language"), file.get("target-language")) if file else (None, None)

    def _segment(self, place: _TargetElement, *, keeps_space: bool) -> Segment:
        text, unit = self.script.text, place.unit
        target = "" if place.target is None else text_of(content_of(text, place.target, keeps_space=keeps_space))
        given = (place.state or place.target or unit).get("state")
        state: State = "translated" if given is None or given in _DONE or unit.get("approved") == "yes" else "fuzzy"
        return Segment(
            content_of(text, place.after, keeps_space=keeps_space),
            target,
            state if target.strip() else "untranslated",
            self.script.line(unit.start),
            unit.get("resname") or unit.get("name") or "",
        )

    def filled(self, fillings: Mapping[int, Filling], *, target: str | None = None) -> bytes:
        """The file with these targets. The target language is put in where the file names none."""
        edits: list[Edit] = []
        files: dict[int, Element] = {}
        doubted: dict[int, Element] = {}
        for number, filling in fillings.items():
            place = self._places[number]
            files.setdefault(place.file.start, place.file)
            if (
                place.state is not None
            ):  # of XLIFF 2, whose state is "initial" by default: with a target, that means review
                edits += _set_state(place.state, "initial" if filling.is_fuzzy else "translated", is_needed=True)
            edits += self._target(place, filling)
            if filling.is_fuzzy:
                doubted[place.unit.start] = place.unit
        for unit in doubted.values():  # once, though several of its segments may be in doubt
            approved = unit.attributes.get("approved")
            if approved is not None and approved.value == "yes":
                edits.append(Edit(approved.start, approved.end, "no"))
        name, before = ("trgLang", "srcLang") if self.is_second else ("target-language", "source-language")
        for element in [self.root] if self.is_second and fillings else files.values():
            if target is not None and element.get(name) is None:
                known = element.attributes.get(before)
                at = known.end + 1 if known else element.start + 1 + len(element.tag)
                edits.append(Edit(at, at, f' {name}="{escape_attribute(target)}"'))
        return self.script.edited(edits, errors="xmlcharrefreplace")

    def _target(self, place: _TargetElement, filling: Filling) -> Iterator[Edit]:
        text, inner = self.script.text, write_content(filling.content)
        old = place.target
        if old is None:
            tag = f"{place.source.tag[: -len('source')]}target"
            state = f' state="{REVIEW}"' if filling.is_fuzzy and place.state is None else ""
            indent, at = space_before(text, place.after), place.after.end
            yield Edit(at, at, f"{indent}<{tag}{state}>{inner}</{tag}>{self._proposals(place, filling)}")
            return
        if found := self._proposals(place, filling):
            yield Edit(old.end, old.end, found)
        if place.state is None:
            yield from _set_state(old, REVIEW if filling.is_fuzzy else "translated", is_needed=filling.is_fuzzy)
        if old.is_empty:
            slash = old.end - 2
            while text[slash - 1] in " \t\r\n":
                slash -= 1
            yield Edit(slash, old.end, f">{inner}</{old.tag}>")
        else:
            yield Edit(old.inner_start, old.inner_end, inner)

    def _proposals(self, place: _TargetElement, filling: Filling) -> str:
        """Other translations, as they follow the target of a unit in XLIFF 1.2."""
        if self.is_second:
            return ""
        prefix, indent = place.source.tag[: -len("source")], space_before(self.script.text, place.source)
        written = []
        for each in filling.proposals:
            quality, origin = f'match-quality="{each.percentage}%"', f'origin="{escape_attribute(each.origin)}"'
            sides = (("source", each.source), ("target", each.target))
            inner = "".join(f"<{prefix}{name}>{write_content((text,))}</{prefix}{name}>" for name, text in sides)
            written.append(f"{indent}<{prefix}alt-trans {quality} {origin}>{inner}</{prefix}alt-trans>")
        return "".join(written)


def _set_state(element: Element, state: str, *, is_needed: bool) -> Iterator[Edit]:
    """Write a state where there is one already, or where it is needed."""
    old = element.attributes.get("state")
    if old is not None:
        yield Edit(old.start, old.end, state)
    elif is_needed:
        at = element.start + 1 + len(element.tag)
        yield Edit(at, at, f' state="{state}"')


def _units(root: Element, name: str) -> Iterator[tuple[Element, Element, bool, bool]]:
    """All units of a name with their file, whether they may be translated, and whether space in them is kept."""
    left = [(root, root, True, False)]
    while left:
        element, file, may_change, keeps_space = left.pop()
        may_change = {"yes": True, "no": False}.get(element.get("translate") or "", may_change)
        space = element.get("xml:space")
        keeps_space = keeps_space if space is None else space == "preserve"
        file = element if element.name == "file" else file
        if element.name == name:
            yield element, file, may_change, keeps_space
        else:
            left += [(child, file, may_change, keeps_space) for child in reversed(element.children)]


XLIFF = catalogue_format("XLIFF", (".xlf", ".xliff"), read_xliff, fill=read_xliff)
