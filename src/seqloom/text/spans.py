"""Spans of words, such as names, as a tag for each word, and the steps between tags that are legal.

    words    in  New    York   City   Paris  today
    bio      O   B-LOC  I-LOC  I-LOC  B-LOC  O        B begins a span and I continues it (IOB2)
    iob1     O   I-LOC  I-LOC  I-LOC  B-LOC  O        B only where a span follows another of its label (CoNLL-2003)
    bioes    O   B-LOC  I-LOC  E-LOC  S-LOC  O        E ends a span, S is one of a single word

Tags are read as conlleval reads them, whatever their scheme: a span goes on while a B or I is followed by an I or E of
the same label, and each other tag that is not O begins one. So every sequence of tags has spans, and it is legal in a
scheme if these spans, written in the scheme, are the same tags again.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Bool

from seqloom.core.errors import DataError

Scheme = Literal["bio", "iob1", "bioes"]

OUTSIDE = "O"
"""The tag of a word that is in no span."""


class LabelledSpan(NamedTuple):
    """Words from `begin` to before `end`, counted from 0."""

    begin: int
    end: int
    label: str


def is_span_tag(tag: str) -> bool:
    """Whether a tag is O, or B, I, E or S with a label after a hyphen or without one."""
    return tag == OUTSIDE or (tag[:1] in ("B", "I", "E", "S") and (len(tag) == 1 or (tag[1] == "-" and len(tag) > 2)))


def spans_of(tags: Sequence[str]) -> list[LabelledSpan]:
    """The spans of a sentence, by the rules of conlleval."""
    spans: list[LabelledSpan] = []
    begin, before = 0, (OUTSIDE, "")
    for place, tag in enumerate((*tags, OUTSIDE)):
        now = _parts(tag)
        if not _continues(before, now):
            if before[0] != OUTSIDE:
                spans.append(LabelledSpan(begin, place, before[1]))
            begin = place
        before = now
    return spans


def tags_of(spans: Iterable[LabelledSpan], length: int, *, scheme: Scheme = "bio") -> list[str]:
    """The tags of a sentence of so many words with these spans, which may not overlap."""
    tags, before = [OUTSIDE] * length, LabelledSpan(0, 0, "")
    for span in sorted(spans):
        if not before.end <= span.begin < span.end <= length:
            raise DataError(
                f"the span {span.label} from {span.begin} to {span.end} is empty, overlaps another or goes beyond the "
                f"{length} words of its sentence"
            )
        is_alone = span.end == span.begin + 1
        touches = span.begin == before.end > before.begin and span.label == before.label
        letters = ["I"] * (span.end - span.begin)
        if scheme != "iob1" or touches:
            letters[0] = "B"
        if scheme == "bioes":
            letters[-1] = "S" if is_alone else "E"
        tags[span.begin : span.end] = [f"{letter}-{span.label}" if span.label else letter for letter in letters]
        before = span
    return tags


def legal_steps(tags: Sequence[str], *, scheme: Scheme = "bio") -> Bool[np.ndarray, "from_1 to_1"]:
    """Whether each tag may follow each other; the last row is the begin of a sentence, the last column its end."""
    parts = [*map(_parts, tags), (OUTSIDE, "")]  # begin and end are as a word outside
    legal = np.zeros((len(parts), len(parts)), np.bool_)
    for row, (letter, label) in enumerate(parts):
        for column, (following, its_label) in enumerate(parts):
            continues = _continues((letter, label), (following, its_label))
            match scheme:
                case "bio":
                    is_legal = following in (OUTSIDE, "B") or (following == "I" and continues)
                case "iob1":
                    is_after_same = letter in ("B", "I") and label == its_label
                    is_legal = following in (OUTSIDE, "I") or (following == "B" and is_after_same)
                case "bioes":
                    # A span that B or I leaves open goes on, and none goes on that E or S closed.
                    is_legal = continues if letter in ("B", "I") else following in (OUTSIDE, "B", "S")
            legal[row, column] = is_legal
    if scheme != "bioes":
        unknown = [place for place, (letter, _) in enumerate(parts) if letter in ("E", "S")]
        legal[unknown], legal[:, unknown] = False, False
    return legal


def find_scheme(sentences: Iterable[Sequence[str]]) -> Scheme | None:
    """The scheme in which all these tags are legal, bio before the others; None if there is none."""
    possible = list(get_args(Scheme))
    has_spans = False
    for tags in sentences:
        if not all(map(is_span_tag, tags)):
            return None
        has_spans = has_spans or any(tag != OUTSIDE for tag in tags)
        possible = [scheme for scheme in possible if tags_of(spans_of(tags), len(tags), scheme=scheme) == list(tags)]
        if not possible:
            return None
    return possible[0] if has_spans else None


def _parts(tag: str) -> tuple[str, str]:
    """The letter of a tag, and its label."""
    if not is_span_tag(tag):
        raise DataError(f"{tag!r} is not a tag of spans; such tags are O, B-LABEL, I-LABEL, E-LABEL and S-LABEL")
    return tag[0], tag[2:]


def _continues(before: tuple[str, str], now: tuple[str, str]) -> bool:
    """Whether a tag is of the same span as the one before it."""
    return before[0] in ("B", "I") and now[0] in ("I", "E") and before[1] == now[1]
