"""Word documents (.docx): the text of each paragraph is a segment, and everything else stays as it was.

    <w:p> <w:r><w:t>Take </w:t></w:r>
          <w:r><w:rPr><w:b/></w:rPr><w:t>this</w:t></w:r>      formatting other than that of most of the text is a pair
          <w:hyperlink r:id="rId4"> … </w:hyperlink>           so are links and tracked insertions
          <w:r><w:tab/></w:r> <w:r><w:drawing>…                tabs, images, fields, notes and bookmarks are codes

Tabs and line breaks part segments, as in HTML. A text box inside a drawing has paragraphs of its own.
"""

import re
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from pathlib import Path

from seqloom.core.archive import Limits, read_archive
from seqloom.core.errors import DataError
from seqloom.text.formats.documents import (
    Passage,
    Piece,
    has_letters,
    lines_between_breaks,
    passage_edits,
    require_few_tags,
    trimmed_range,
)
from seqloom.text.formats.segments import Code, Content, Filling, Kind, Languages, Script, Segment, text_of
from seqloom.text.formats.xml import Element, content_of, escape, parse_tree

LIMITS = Limits(members=5000, bytes=100 << 20, ratio=400)
"""How much a document may hold when it is decompressed."""

_PARTS = re.compile(r"word/(?:document|header|footer|footnotes|endnotes|comments)[0-9]*\.xml")
_NAMESPACES = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",
)
_AROUND_TEXT = frozenset({"hyperlink", "ins", "moveTo", "smartTag", "customXml", "sdt", "fldSimple", "dir", "bdo"})
_PROPERTIES = frozenset({"smartTagPr", "customXmlPr", "fldData"})
"""What may be before the text inside of these."""
_DROPPED = frozenset({"proofErr", "lastRenderedPageBreak", "softHyphen"})
"""Left by the last layout and spelling check of the old words."""
_UNSEEN = re.compile(r"<\w+:(?:lang|noProof|webHidden)(?:\s[^>]*)?/>")
"""Formatting that does not show."""
_SPACE = re.compile(r"[ \t\r\n]+")
_MAX_PART_BYTES = 32 << 20
"""Bytes of a file with text; a page of Word takes some 10 kB."""
_MAX_BOXES = 4
"""Text boxes inside each other."""
_MAX_FIELDS = 20
"""Fields inside each other."""


@dataclass(frozen=True)
class _Format:
    """How runs of text are written."""

    opening: str
    """The tag of a run."""
    properties: str

    @property
    def key(self) -> str:
        """What runs that look alike have in common."""
        key = _UNSEEN.sub("", self.properties)
        return "" if key.endswith("/>") or re.fullmatch(r"<[\w:]+></[\w:]+>", key) else key


@dataclass(frozen=True)
class _Atom:
    """A piece of a paragraph, of which other pieces are independent."""

    piece: Piece
    format: _Format | None = None
    """Of text."""
    run: Element | None = None
    """The run that it begins in."""
    last_run: Element | None = None
    """The run that it ends in."""
    field: str = ""
    """Of a field: begin, instruction, separate or end."""
    instruction: str = ""

    @property
    def code(self) -> Code | None:
        return self.piece.content if isinstance(self.piece.content, Code) else None


def parse_docx(data: bytes, path: Path) -> "DocxCatalogue":
    """A document; a DataError says why a file is none."""
    members = read_archive(data, str(path), limits=LIMITS)
    if not any(_PARTS.fullmatch(member.filename) for member, _ in members):
        raise DataError(f"{path} is not a Word document: it has no word/document.xml")
    return DocxCatalogue(data, members, path)


@dataclass
class _Part:
    """A file of the archive with text, and its passages."""

    script: Script
    passages: list[Passage] = field(default_factory=list)


class DocxCatalogue:
    """The paragraphs of a document: text, headers, footers, notes and comments."""

    locked = 0
    languages: Languages = (None, None)

    def __init__(self, data: bytes, members: Sequence[tuple[zipfile.ZipInfo, bytes]], path: Path) -> None:
        self._data, self._members = data, members
        self._parts: dict[str, _Part] = {}
        self._places: list[tuple[str, int]] = []  # the part and the number in it of each segment
        self.segments: list[Segment] = []
        for member, content in members:
            if not _PARTS.fullmatch(member.filename):
                continue
            if len(content) > _MAX_PART_BYTES:
                raise DataError(f"{path / member.filename}: larger than {_MAX_PART_BYTES:,} bytes; split the document")
            require_few_tags(content, path / member.filename)
            script, root = parse_tree(content, path / member.filename)
            part = self._parts[member.filename] = _Part(script)
            part.passages = sorted(_Paragraphs(script.text, root).passages, key=lambda passage: passage.start)
            for number, passage in enumerate(part.passages):
                self._places.append((member.filename, number))
                line = script.line(passage.start)
                self.segments.append(Segment(passage.content, "", "untranslated", line, member.filename))

    def filled(self, fillings: Mapping[int, Filling], *, target: str | None = None) -> bytes:  # noqa: ARG002
        """The document with translations in place of these segments; other files in it have the same content."""
        by_part: dict[str, dict[int, Filling]] = {}
        for number, filling in fillings.items():
            name, inside = self._places[number]
            by_part.setdefault(name, {})[inside] = filling
        edited: dict[str, bytes] = {}
        for name, inside_fillings in by_part.items():
            part = self._parts[name]
            kept = {number: each for number, each in inside_fillings.items() if _is_nested(each.content)}
            if edits := passage_edits(part.script.text, part.passages, kept):
                edited[name] = part.script.edited(edits, errors="xmlcharrefreplace")
        if not edited:
            return self._data
        target_file = BytesIO()
        with zipfile.ZipFile(target_file, "w") as archive:
            for member, content in self._members:
                archive.writestr(copy(member), edited.get(member.filename, content))
        return target_file.getvalue()


class _Paragraphs:
    """The passages of an XML file."""

    def __init__(self, text: str, root: Element) -> None:
        self._text = text
        prefix = next(
            (
                name.removeprefix("xmlns").removeprefix(":")
                for name, attribute in root.attributes.items()
                if name.partition(":")[0] == "xmlns" and attribute.value in _NAMESPACES
            ),
            "w",
        )
        self._prefix = f"{prefix}:" if prefix else ""
        self.passages: list[Passage] = []
        left = [(root, 0)]
        while left:
            element, depth = left.pop()
            if self._name(element) == "p":
                depth += 1
                if depth <= _MAX_BOXES:
                    self._add_paragraph(element)
            left += [(child, depth) for child in element.children]

    def _name(self, element: Element) -> str:
        """The name of an element of WordprocessingML; empty for others."""
        return element.name if element.tag == self._prefix + element.name else ""

    def _properties(self, run: Element) -> Element | None:
        """The formatting of a run, which is its first child."""
        return run.children[0] if run.children and self._name(run.children[0]) == "rPr" else None

    def _get(self, element: Element, name: str) -> str:
        return element.get(self._prefix + name) or ""

    def _add_paragraph(self, paragraph: Element) -> None:
        atoms: list[_Atom] = []
        self._read(paragraph.children, atoms)
        joined = self._with_fields(atoms) or []
        for start, stop in lines_between_breaks([atom.piece for atom in joined], inside_pairs=False):
            line = joined[start:stop]
            first, end = trimmed_range([atom.piece for atom in line])
            if has_letters(atom.piece.content for atom in line[first:end]):
                self.passages.append(self._passage(line[first:end]))

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self, children: Sequence[Element], atoms: list[_Atom]) -> None:
        """The pieces inside an element."""
        for child in children:
            name = self._name(child)
            if name == "r":
                self._read_run(child, atoms)
            elif name in _AROUND_TEXT and not child.is_empty and not self._is_field_without_text(child, name):
                holder = child.child("sdtContent") if name == "sdt" else child
                if holder is None or holder.is_empty:
                    self._add(atoms, child.start, child.end)
                    continue
                inside, start = holder.children, holder.inner_start
                if inside and self._name(inside[0]) in _PROPERTIES:
                    inside, start = inside[1:], inside[0].end
                self._add(atoms, child.start, start, kind="open", pair=str(child.start))
                self._read(inside, atoms)
                self._add(atoms, holder.inner_end, child.end, kind="close", pair=str(child.start))
            elif name not in _DROPPED and name != "pPr":
                self._add(atoms, child.start, child.end)

    def _is_field_without_text(self, element: Element, name: str) -> bool:
        """Whether a field shows what Word computes; the text of a link is that of people."""
        return name == "fldSimple" and not _is_link(self._get(element, "instr"))

    def _add(self, atoms: list[_Atom], start: int, end: int, *, kind: Kind = "alone", pair: str = "") -> None:
        atoms.append(_Atom(Piece(Code(self._text[start:end], kind, pair), start, end)))

    def _read_run(self, run: Element, atoms: list[_Atom]) -> None:
        properties = self._properties(run)
        raw = self._text[properties.start : properties.end] if properties else ""
        shape = _Format(self._text[run.start : run.inner_start], raw)
        for child in run.children:
            name = self._name(child)
            inner = self._text[child.inner_start : child.inner_end]
            if name == "rPr" or name in _DROPPED:
                continue
            if name == "t":
                text = _SPACE.sub(" ", text_of(content_of(self._text, child, keeps_space=True)))
                text = text if child.get("xml:space") == "preserve" else text.strip(" ")
                if text:
                    atoms.append(_Atom(Piece(text, child.start, child.end), shape, run, run))
                continue
            if name == "noBreakHyphen":
                atoms.append(_Atom(Piece("\u2011", child.start, child.end), shape, run, run))
                continue
            alone = f"{shape.opening}{raw}{self._text[child.start : child.end]}</{run.tag}>"
            is_tab = name in ("tab", "ptab")
            code = Code(alone, "border" if is_tab else "alone", parts_words=is_tab or name in ("br", "cr"))
            kind = {"fldChar": self._get(child, "fldCharType"), "instrText": "instruction"}.get(name, "")
            atoms.append(_Atom(Piece(code, child.start, child.end), None, run, run, kind, inner))

    def _with_fields(self, atoms: Sequence[_Atom]) -> list[_Atom] | None:
        """Pieces with each field as one code, or as a pair if it is a link; None if one cannot be kept together.

        A field that does not end in the paragraph (a table of contents) is a code, and so is its end.
        """
        joined: list[_Atom] = []
        begun: list[int] = []  # where among those joined a field begins
        for atom in atoms:
            if atom.field == "end" and begun:
                start = begun.pop()
                inside = [*joined[start:], atom]
                if not _is_balanced(inside):
                    return None
                split = next((at for at, each in enumerate(inside) if each.field == "separate"), None)
                instruction = "".join(each.instruction for each in inside[:split] if each.field == "instruction")
                if split is None or not _is_link(instruction):
                    joined[start:] = [_merged(inside, self._text)]
                else:
                    name = f"field {inside[0].piece.start}"
                    opening = _merged(inside[: split + 1], self._text, kind="open", pair=name)
                    closing = _merged(inside[-1:], self._text, kind="close", pair=name)
                    joined[start:] = [opening, *inside[split + 1 : -1], closing]
                continue
            if atom.field == "begin":
                begun.append(len(joined))
                if len(begun) > _MAX_FIELDS:
                    return None
            joined.append(atom)
        for start in reversed(begun):  # its end is in another paragraph
            stop = start + 1
            while stop < len(joined) and joined[stop].field in ("instruction", "separate"):
                stop += 1
            joined[start:stop] = [_merged(joined[start:stop], self._text)]
        return joined

    # --- segments -----------------------------------------------------------------------------------------------------

    def _passage(self, atoms: Sequence[_Atom]) -> Passage:
        sizes: Counter[str] = Counter()
        formats: dict[str, _Format] = {}
        for atom in atoms:
            if atom.format is not None:
                assert isinstance(atom.piece.content, str)
                sizes[atom.format.key] += len(atom.piece.content)
                formats.setdefault(atom.format.key, atom.format)
        base = current = sizes.most_common(1)[0][0]
        content: list[str | Code] = []
        pairs: dict[str, _Format] = {}
        for atom in atoms:
            piece, wanted = atom.piece.content, base  # codes are outside of the pairs
            if isinstance(piece, str) and atom.format is not None:
                wanted = atom.format.key if piece.strip() else current
            if wanted != current:
                if current != base:
                    content.append(_format_code(len(pairs), "close"))
                if wanted != base:
                    opening = _format_code(len(pairs) + 1, "open")
                    content.append(opening)
                    pairs[opening.name] = formats[wanted]
                current = wanted
            if isinstance(piece, Code):
                content.append(_without_border(piece))
            elif content and isinstance(content[-1], str):
                content[-1] += piece
            else:
                content.append(piece)
        if current != base:
            content.append(_format_code(len(pairs), "close"))
        first, last = atoms[0], atoms[-1]
        start, end, before, after = first.piece.start, last.piece.end, "", ""
        if first.run is not None:  # of which the rest stays, with what comes before it
            is_begun = first.run.children[1 if self._properties(first.run) else 0].start < start
            start, before = (start, f"</{first.run.tag}>") if is_begun else (first.run.start, "")
        if last.last_run is not None:
            properties, is_left = self._properties(last.last_run), last.last_run.children[-1].start >= end
            reopened = self._text[last.last_run.start : properties.end if properties else last.last_run.inner_start]
            end, after = (end, reopened) if is_left else (last.last_run.end, "")
        codes = tuple(
            replace(atom.piece, content=_without_border(atom.code)) for atom in atoms if atom.code is not None
        )
        write = partial(self._write, base=formats[base], formats=pairs, before=before, after=after)
        return Passage(tuple(content), start, end, write, codes)

    def _write(
        self, content: Content, *, base: _Format, formats: Mapping[str, _Format], before: str, after: str
    ) -> str:
        """Text as runs, each in the format of the pair that it is in; codes as they are."""
        written, opened = [before], [base]
        for piece in content:
            if isinstance(piece, str):
                shape = opened[-1]
                name = shape.opening[1:].split()[0].rstrip(">")
                space = ' xml:space="preserve"' if piece != piece.strip() or "  " in piece else ""
                text = f"<{self._prefix}t{space}>{escape(piece)}</{self._prefix}t>"
                written.append(f"{shape.opening}{shape.properties}{text}</{name}>")
            elif piece.name not in formats:
                written.append(piece.text)
            elif piece.kind == "open":
                opened.append(formats[piece.name])
            else:
                opened.pop()
        return "".join([*written, after])


def _format_code(number: int, kind: Kind) -> Code:
    """One half of a pair around text of another format."""
    name = f"format {number}"
    return Code(f"</{name}>" if kind == "close" else f"<{name}>", kind, name)


def _without_border(code: Code) -> Code:
    """A tab inside a pair, which parts words but not the segment."""
    return replace(code, kind="alone") if code.kind == "border" else code


def _is_link(instruction: str) -> bool:
    return instruction.split()[:1] == ["HYPERLINK"]


def _is_nested(content: Content) -> bool:
    """Whether each pair is closed where it must be; what is not would not be XML."""
    opened: list[str] = []
    for piece in content:
        if isinstance(piece, Code) and piece.kind == "open":
            opened.append(piece.name)
        elif isinstance(piece, Code) and piece.kind == "close" and (not opened or opened.pop() != piece.name):
            return False
    return not opened


def _is_balanced(atoms: Sequence[_Atom]) -> bool:
    """Whether no pair begins among these pieces without its end, or the other way round."""
    names = Counter(atom.code.name for atom in atoms if atom.code is not None and atom.code.kind != "alone")
    return all(count == 2 for count in names.values())


def _merged(atoms: Sequence[_Atom], text: str, *, kind: Kind = "alone", pair: str = "") -> _Atom:
    """Neighbours as one code."""
    written = []
    for atom in atoms:
        if atom.code is not None:
            written.append(atom.code.text)
            continue
        assert atom.format is not None
        assert atom.run is not None
        raw = text[atom.piece.start : atom.piece.end]
        written.append(f"{atom.format.opening}{atom.format.properties}{raw}</{atom.run.tag}>")
    first, last = atoms[0], atoms[-1]
    piece = Piece(Code("".join(written), kind, pair), first.piece.start, last.piece.end)
    return _Atom(piece, run=first.run, last_run=last.last_run)
