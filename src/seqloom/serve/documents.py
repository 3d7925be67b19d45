"""Texts with markup and files in a server: which of their lines are translated, and how the result is put together."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Literal, assert_never

from seqloom.apps.alignments import Alignment
from seqloom.apps.translator import Translation
from seqloom.search.hypothesis import Hypothesis
from seqloom.text.formats.html import html_catalogue, xml_catalogue
from seqloom.text.formats.segments import Catalogue

Markup = Literal["text", "html", "xml"]

MEDIA_TYPES = {
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".jsonl": "application/jsonl",
    ".srt": "application/x-subrip",
    ".vtt": "text/vtt",
    ".tmx": "application/xml",
    ".xlf": "application/xml",
    ".xliff": "application/xml",
}
"""Others are plain octets: nothing that a browser would run comes from this server."""

_CUT = Hypothesis((), False, 0.0, {"log_prob": 0.0}, (), hit_limit=True)


def media_type_of(name: str) -> str:
    """How a translated file is declared."""
    return MEDIA_TYPES.get(PurePosixPath(name).suffix.lower(), "application/octet-stream")


def marked_up(
    text: str, markup: Markup, *, ignored: Collection[str] = (), splitting: Collection[str] = ()
) -> Catalogue:
    """A text with markup; elements of XML in `ignored` are not translated, those in `splitting` part sentences."""
    match markup:
        case "html":
            return html_catalogue(text)
        case "xml":
            return xml_catalogue(text, ignore_tags=ignored, splitting_tags=splitting)
        case "text":
            raise AssertionError("plain text has no markup")
        case _:
            assert_never(markup)


def translations_of(records: Sequence[Mapping[str, Any]]) -> list[Translation]:
    """What workers found, as translations that a catalogue can be filled with."""
    return [
        Translation(
            record["text"],
            record["score"],
            hypotheses=(_CUT,) if record.get("hit_limit") else (),
            alignment=alignment_of(record),
            confidence=record.get("confidence"),
            is_calibrated=record.get("is_calibrated", False),
        )
        for record in records
    ]


def alignment_of(record: Mapping[str, Any]) -> Alignment | None:
    """The word alignment in the answer of a worker."""
    if "links" not in record:
        return None
    spans = tuple((begin, end) for begin, end in record["spans"])
    return Alignment((), (), spans, tuple((source, target) for source, target in record["links"]))


def composed(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of the second of two models, aligned with the source of the first.

    Word k of the text between them links i to j if the first links i to k and the second k to j. Where the two do not
    see the same words in it, there is no alignment.
    """
    record = dict(second)
    if "links" not in second:
        return record
    if "links" not in first or len(first["spans"]) != second["words"]:
        for name in ("links", "spans", "words"):
            record.pop(name, None)
        return record
    by_middle: dict[int, list[int]] = {}
    for source, middle in first["links"]:
        by_middle.setdefault(middle, []).append(source)
    pairs = {(source, target) for middle, target in second["links"] for source in by_middle.get(middle, ())}
    return {**record, "links": sorted(pairs), "words": first["words"]}
