"""Plain text as a document: each paragraph is a segment, and everything between paragraphs stays as it was."""

import re
from collections.abc import Iterator
from pathlib import Path

from seqloom.text.formats.documents import DocumentCatalogue, Passage, decode_document, has_letters, joined_text

_LINE = re.compile(r"[^\r\n]*+(\r\n|\n|\r|\Z)")
_MARK = "\ufeff"


def parse_text(data: bytes, path: Path) -> DocumentCatalogue:
    """The text of a file, in UTF-8 or in the encoding of its byte-order mark."""
    script = decode_document(data, path)
    return DocumentCatalogue(script, _passages(script.text))


def _passages(text: str) -> Iterator[Passage]:
    """Lines that follow each other and are not blank; a CR alone ends one."""
    start = end = at = 1 if text.startswith(_MARK) else 0
    while at < len(text):
        found = _LINE.match(text, at)
        assert found is not None
        line, line_end, at = text[at : found.start(1)], found[1], found.end()
        if line.strip():
            end = found.start(1)
        if not line.strip() or line_end == "\r" or at == len(text):
            if has_letters((text[start:end],)):
                yield Passage((text[start:end],), start, end, joined_text)
            start = end = at
