"""Documents with their summaries: JSONL, or a table or text with one document in each line.

{"source": ["One sentence.", "Another."], "target": "A summary."}         sentences as they are
{"source": "One sentence. Another.", "target": ["A summary.", "Or so."]}  cut into sentences by rules
One sentence. Another. TAB A summary.                                     .tsv
One sentence. Another.                                                    any other text, without summaries
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqloom.core.errors import DataError, Problem, Problems, UsageError
from seqloom.core.files import LineReader, matching_files
from seqloom.core.text_files import OnBad
from seqloom.text.formats.jsonl import BadRecord, parse_record, require_text, require_texts
from seqloom.text.formats.readers import format_of, is_tsv
from seqloom.text.normalise import is_blank
from seqloom.text.sentences import pieces, sentence_borders


@dataclass(frozen=True)
class Document:
    """A text in sentences, and what it is summarised as."""

    sentences: tuple[str, ...]
    summaries: tuple[str, ...] = ()
    """One or more, of which the nearest counts."""

    def to_json(self) -> str:
        """The record of it."""
        return json.dumps({"source": self.sentences, "target": self.summaries}, ensure_ascii=False)


def cut_document(text: str) -> tuple[str, ...]:
    """The sentences of a text, by rules."""
    return tuple(pieces(text, sentence_borders(text)))


def read_documents(
    paths: Sequence[Path],
    *,
    has_summaries: bool,
    encoding: str = "utf-8",
    on_bad: OnBad = "error",
) -> list[Document]:
    """The documents of files, one file after another; a DataError names the lines that are wrong.

    With `has_summaries`, each document needs one. Without, a blank line of a text is a document without sentences.
    """
    found: list[Document] = []
    for path in [each for name in paths for each in matching_files(name)]:
        before = len(found)
        found += _read(path, has_summaries=has_summaries, encoding=encoding, on_bad=on_bad)
        if len(found) == before:
            raise DataError(problems=[Problem("empty, expected at least one document", str(path))])
    return found


def _read(path: Path, *, has_summaries: bool, encoding: str, on_bad: OnBad) -> Iterator[Document]:
    is_jsonl = (named := format_of(path)) is not None and named.name == "JSONL"
    if not is_jsonl and (named is not None or (has_summaries and not is_tsv(path))):
        raise UsageError(
            f"{path}: documents with their summaries are read from .jsonl, records with the members source and target, "
            "or from .tsv, with a document, a tab and a summary in each line"
        )
    problems = Problems()
    for number, line in enumerate(LineReader(path, encoding, on_bad=on_bad), start=1):
        if is_jsonl and not line.strip():
            continue
        try:
            document = parse_document(line, is_jsonl=is_jsonl, is_table=is_tsv(path), has_summaries=has_summaries)
        except BadRecord as error:
            problems.add(str(error), path, number, error.column if is_jsonl else None)
            continue
        if not problems:
            yield document
    problems.require_none()


def parse_document(line: str, *, is_jsonl: bool, is_table: bool = False, has_summaries: bool = False) -> Document:
    """The document of a line. A BadRecord says what is wrong with it."""
    if is_jsonl:
        record = parse_record(line)
        document = Document(_sentences(record), _summaries(record))
        if not document.sentences:
            raise BadRecord("the source has no text")
    elif is_table:
        source, *summaries = line.split("\t")
        if len(summaries) > 1 or (has_summaries and not summaries):
            columns = f"{len(summaries) + 1} column{'s' if summaries else ''}"
            raise BadRecord(f"{columns}, expected a document, a tab and a summary")
        document = Document(cut_document(source), tuple(each.strip() for each in summaries if not is_blank(each)))
    else:
        document = Document(cut_document(line))
    if has_summaries and not (document.sentences and document.summaries):
        raise BadRecord("the document has no text" if not document.sentences else "no summary: its target is empty")
    return document


def _sentences(record: dict[str, Any]) -> tuple[str, ...]:
    """The sentences of a record: a list as it is, or a text that is cut."""
    name = "source" if "source" in record else "text"
    if name not in record:
        raise BadRecord(f"no member 'source' or 'text'; there are {', '.join(map(str, record))[:80] or 'none'}")
    if isinstance(record[name], list):
        listed = (" ".join(text.split()) for text in require_texts(record[name]))
        return tuple(text for text in listed if not is_blank(text))
    return cut_document(" ".join((require_text(record[name]) or "").split()))


def _summaries(record: dict[str, Any]) -> tuple[str, ...]:
    given = record.get("target")
    texts = require_texts(given) if isinstance(given, list) else [require_text(given) or ""]
    return tuple(" ".join(text.split()) for text in texts if not is_blank(text))


def fingerprint(documents: Sequence[Document]) -> str:
    """A hash of documents and their summaries."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(document.to_json().encode("utf-8") + b"\n")
    return digest.hexdigest()
