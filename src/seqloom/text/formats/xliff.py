"""XLIFF 1.2 and 2: read with their places, filled without another byte changed.

    1.2   <trans-unit id="1"><source>…</source><target state="translated">…</target></trans-unit>
    2     <unit id="1"><segment state="translated"><source>…</source><target>…</target></segment></unit>

What is not to be translated (translate="no") is left alone, and so are proposals of other tools (alt-trans).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqloom.core.errors import DataError
from seqloom.text.formats.segments import (
    Edit,
    Filling,
    Format,
    Script,
    Segment,
    State,
    segment_pairs,
    segment_texts,
    text_of,
)
from seqloom.text.formats.xml import Element, content_of, escape_attribute, read_tree, space_before, write_content

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
    script, root = read_tree(path)
    version = root.get("version") or ""
    if root.name != "xliff" or not version.startswith(("1.", "2.")):
        raise DataError(f"{path}: XLIFF 1.2 or 2 is expected, but this is <{root.tag} version={version!r}>")
    return XliffCatalogue(script, root, is_second=version.startswith("2."))


class XliffCatalogue:
    """A file of translation units."""

    def __init__(self, script: Script, root: Element, *, is_second: bool) -> None:
        self.script, self.root, self.is_second = script, root, is_second
        self._read = list(self._segments())
        self.locked = sum(1 for _ in _units(root, self._unit, is_open=False))
        """Units with translate="no"."""

    @property
    def _unit(self) -> str:
        return "unit" if self.is_second else "trans-unit"

    @property
    def segments(self) -> list[Segment]:
        """All units, of XLIFF 2 their segments, that are to be translated."""
        return [segment for segment, _ in self._read]

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """As declared; of several files in one, as the first declares."""
        if self.is_second:
            return self.root.get("srcLang"), self.root.get("trgLang")
        file = self.root.child("file")
        return (file.get("source-language"), file.get("target-language")) if file else (None, None)

    def _segments(self) -> Iterator[tuple[Segment, _TargetElement]]:
        for unit, file, keeps_space in _units(self.root, self._unit):
            for holder in [each for each in unit.children if each.name == "segment"] if self.is_second else [unit]:
                source = holder.child("source")
                if source is not None:
                    cut = None if self.is_second else holder.child("seg-source")
                    place = _TargetElement(
                        source, holder.child("target"), cut or source, holder if self.is_second else None, unit, file
                    )
                    keeps = keeps_space or "preserve" in (holder.get("xml:space"), source.get("xml:space"))
                    yield self._segment(place, unit, keeps_space=keeps), place

    def _segment(self, place: _TargetElement, unit: Element, *, keeps_space: bool) -> Segment:
        text = self.script.text
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

    # ------------------------------------------------------------------------------------------------------------------

    def filled(self, fillings: Mapping[int, Filling], *, target: str | None = None) -> bytes:
        """The file with these targets. The target language is put in where the file names none."""
        edits: list[Edit] = []
        files: dict[int, Element] = {}
        doubted: dict[int, Element] = {}
        for number, filling in fillings.items():
            place = self._read[number][1]
            files.setdefault(place.file.start, place.file)
            edits += self._states(place, filling) if place.state is not None else ()
            edits += self._target(place, filling)
            if filling.is_fuzzy:
                doubted[place.unit.start] = place.unit
        for unit in doubted.values():  # once, though several of its segments may be in doubt
            approved = unit.attributes.get("approved")
            if approved is not None and approved.value == "yes":
                edits.append(Edit(approved.start, approved.end, "no"))
        if target is not None and fillings:
            edits += self._languages(list(files.values()), target)
        return self.script.edited(edits, errors="xmlcharrefreplace")

    def _target(self, place: _TargetElement, filling: Filling) -> Iterator[Edit]:
        text, inner = self.script.text, write_content(filling.content)
        old = place.target
        if old is None:
            tag = f"{place.source.tag[: -len('source')]}target"
            state = f' state="{REVIEW}"' if filling.is_fuzzy and place.state is None else ""
            indent, at = space_before(text, place.after), place.after.end
            yield Edit(at, at, f"{indent}<{tag}{state}>{inner}</{tag}>")
            return
        if place.state is None:
            yield from _set_state(old, REVIEW if filling.is_fuzzy else "translated", is_needed=filling.is_fuzzy)
        if old.is_empty:
            slash = old.end - 2
            while text[slash - 1] in " \t\r\n":
                slash -= 1
            yield Edit(slash, old.end, f">{inner}</{old.tag}>")
        else:
            yield Edit(old.inner_start, old.inner_end, inner)

    def _states(self, place: _TargetElement, filling: Filling) -> Iterator[Edit]:
        """Of XLIFF 2, whose state is "initial" by default: with a target, that means review."""
        assert place.state is not None
        state = "initial" if filling.is_fuzzy else "translated"
        yield from _set_state(place.state, state, is_needed=True)

    def _languages(self, files: Sequence[Element], target: str) -> Iterator[Edit]:
        name, before = ("trgLang", "srcLang") if self.is_second else ("target-language", "source-language")
        for element in [self.root] if self.is_second else files:
            if element.get(name) is None:
                known = element.attributes.get(before)
                at = known.end + 1 if known else element.start + 1 + len(element.tag)
                yield Edit(at, at, f' {name}="{escape_attribute(target)}"')


def _set_state(element: Element, state: str, *, is_needed: bool) -> Iterator[Edit]:
    """Write a state where there is one already, or where it is needed."""
    old = element.attributes.get("state")
    if old is not None:
        yield Edit(old.start, old.end, state)
    elif is_needed:
        at = element.start + 1 + len(element.tag)
        yield Edit(at, at, f' state="{state}"')


def _units(root: Element, name: str, *, is_open: bool = True) -> Iterator[tuple[Element, Element, bool]]:
    """All units of a name that are, or are not, to be translated, with their file and whether space in them is kept."""
    left = [(root, root, True, False)]
    while left:
        element, file, may_change, keeps_space = left.pop()
        may_change = {"yes": True, "no": False}.get(element.get("translate") or "", may_change)
        space = element.get("xml:space")
        keeps_space = keeps_space if space is None else space == "preserve"
        file = element if element.name == "file" else file
        if element.name == name:
            if may_change == is_open:
                yield element, file, keeps_space
        else:
            left += [(child, file, may_change, keeps_space) for child in reversed(element.children)]


XLIFF = Format(
    "XLIFF",
    (".xlf", ".xliff"),
    pairs=lambda path, _languages, _encoding: segment_pairs(read_xliff(path).segments),
    texts=lambda path, side, _language, _encoding: segment_texts(read_xliff(path).segments, side),
    languages=lambda path: read_xliff(path).languages,
    catalogue=lambda path, _languages: read_xliff(path),
)
