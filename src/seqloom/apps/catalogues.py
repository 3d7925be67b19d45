"""Translating catalogues: untranslated segments are filled, everything else stays as it was, byte for byte."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from seqloom.apps.engine import Translates
from seqloom.apps.request import Request
from seqloom.apps.translator import PartListener, Translation
from seqloom.core.errors import UsageError
from seqloom.text.formats.carry import CannotCarry, Carrier, Rendering, has_all_of
from seqloom.text.formats.segments import Catalogue, Code, Content, Filling, Proposal, Segment
from seqloom.text.formats.tmx import TmxCatalogue, is_language
from seqloom.text.translation_memory import MemoryMatch, TranslationMemory


@dataclass(frozen=True)
class CatalogueLine:
    """A line of a segment as the model reads it, with its translation."""

    text: str
    place: int
    """The line of the file in which its segment begins."""
    translation: Translation


@dataclass(frozen=True)
class OtherSegments:
    """The number of segments that were not to be translated, by reason."""

    translated: int = 0
    fuzzy: int = 0
    blank: int = 0
    """Those without text."""
    locked: int = 0
    """Marked as such in the file; not counted among its segments."""
    foreign: int = 0
    """Units of a translation memory without the source language; not counted either."""


@dataclass(frozen=True)
class FilledCatalogue:
    """A catalogue with its translations, and counts of what was done."""

    data: bytes
    segments: int
    wanted: int
    """Segments that were to be translated."""
    fillings: Mapping[int, Filling]
    """Before all of them are marked for review."""
    rest: OtherSegments
    lines: Sequence[CatalogueLine] = field(default_factory=tuple)
    passed_over: Mapping[str, int] = field(default_factory=dict)
    """How many of those wanted were not translated, by reason."""
    remembered: int = 0
    """Translations that are those of the memory."""
    doubtful: int = 0
    """Translations whose confidence is lower than `review_below`."""
    review_below: float = 0.0
    marked: int = 0
    """Translations marked for review, for any reason."""

    @property
    def fuzzy(self) -> int:
        """Translations with guessed or repaired placeholders."""
        return sum(filling.is_fuzzy for filling in self.fillings.values())

    @property
    def left(self) -> int:
        """Segments left as they were: passed over, or with an empty translation or broken placeholders."""
        return self.wanted - len(self.fillings)


@dataclass(frozen=True)
class CatalogueWork:
    """The segments of a catalogue that are to be translated, and their lines."""

    catalogue: Catalogue
    carriers: Mapping[int, Carrier]
    lines: tuple[str, ...]
    places: tuple[int, ...]
    """For each line, the line of the file in which its segment begins."""
    passed_over: Mapping[int, str] = field(default_factory=dict)
    """Segments whose placeholders cannot be restored, with the reason."""
    remembered: Mapping[int, Filling] = field(default_factory=dict)
    """Segments that the memory has, which are not decoded."""
    near: Mapping[int, Sequence[MemoryMatch]] = field(default_factory=dict)
    """What the memory has for others."""

    def rest(self) -> OtherSegments:
        """What is left as it is, counted by reason."""
        wanted = self.carriers.keys() | self.passed_over.keys() | self.remembered.keys()
        alone = [each for number, each in enumerate(self.catalogue.segments) if number not in wanted]
        translated = sum(each.state == "translated" for each in alone)
        blank = sum(each.state != "translated" and not has_text(each) for each in alone)
        foreign = self.catalogue.foreign if isinstance(self.catalogue, TmxCatalogue) else 0
        return OtherSegments(translated, len(alone) - translated - blank, blank, self.catalogue.locked, foreign)


def plan_work(
    catalogue: Catalogue, *, with_fuzzy: bool = False, memory: TranslationMemory | None = None
) -> CatalogueWork:
    """Collect the lines of untranslated segments, and of fuzzy ones if requested; those without text are left out.

    Segments that the memory has are translated so.
    """
    states = ("untranslated", "fuzzy") if with_fuzzy else ("untranslated",)
    wanted = {number: each for number, each in enumerate(catalogue.segments) if each.state in states and has_text(each)}
    carriers, passed_over = {}, {}
    remembered: dict[int, Filling] = {}
    near: dict[int, Sequence[MemoryMatch]] = {}
    for number, segment in wanted.items():
        if memory is not None:
            if (known := _remembered(segment, memory)) is not None:
                remembered[number] = known
                continue
            if matches := memory.near(_written(segment.source)):
                near[number] = matches
        try:
            carriers[number] = Carrier(segment.source, is_format=segment.is_format)
        except CannotCarry as reason:
            passed_over[number] = str(reason)
    lines = [(line, wanted[number].line) for number, carrier in carriers.items() for line in carrier.lines]
    texts, places = tuple(line for line, _ in lines), tuple(place for _, place in lines)
    return CatalogueWork(catalogue, carriers, texts, places, passed_over, remembered, near)


def _written(content: Content) -> str:
    """Content with its codes as they are in the file."""
    return "".join(piece if isinstance(piece, str) else piece.text for piece in content)


def _remembered(segment: Segment, memory: TranslationMemory) -> Filling | None:
    """The translation of a segment that a memory has; fuzzy if its placeholders are others than those of the segment.

    The space around it is that of the segment. There is none if the codes of the segment are not in it.
    """
    source = _written(segment.source)
    if (target := memory.exact(source)) is None:
        return None
    begin, end = len(source) - len(source.lstrip()), len(source.rstrip())
    target = f"{source[:begin]}{target.strip()}{source[end:]}"
    codes = [piece for piece in segment.source if isinstance(piece, Code)]
    content: list[str | Code] = [target]
    if codes:
        by_text: dict[str, list[Code]] = {}
        for code in codes:
            by_text.setdefault(code.text, []).append(code)
        longest_first = "|".join(re.escape(text) for text in sorted(by_text, key=len, reverse=True))
        pieces = re.split(f"({longest_first})", target)
        if Counter(pieces[1::2]) != Counter(code.text for code in codes):
            return None
        content = [by_text[piece].pop(0) if at % 2 else piece for at, piece in enumerate(pieces)]
    whole = tuple(piece for piece in content if piece)
    return Filling(whole, not has_all_of(segment.source, whole, is_format=segment.is_format))


def has_text(segment: Segment) -> bool:
    """Whether a segment has any text."""
    return bool(segment.text.strip())


def fill_catalogue(
    work: CatalogueWork,
    translator: Translates,
    request: Request,
    *,
    target: str | None = None,
    review: bool = False,
    review_below: float | None = None,
    progress: Callable[[int], None] = lambda _lines: None,
    watch: PartListener | None = None,
) -> FilledCatalogue:
    """Translate the segments of a catalogue. `target` is the language that is written where the file needs one.

    Without alignments, for engines and models that have none, the places of placeholders are guessed, and translations
    that have some are fuzzy. With `review`, all translations are marked for review; otherwise those whose confidence is
    lower than `review_below`, by default the value of the model's calibration, and none without a calibration.
    """
    if review_below is None and translator.calibration is not None:
        review_below = translator.calibration.review_below
    best = [each[0] for each in translator.run(work.lines, request, progress=progress, watch=watch)]
    normalise = translator.tokenizers.source.normaliser
    return finish_work(work, best, normalise=normalise, target=target, review=review, review_below=review_below or 0.0)


def finish_work(
    work: CatalogueWork,
    translations: Sequence[Translation],
    *,
    normalise: Callable[[str], str],
    target: str | None = None,
    review: bool = False,
    review_below: float = 0.0,
) -> FilledCatalogue:
    """Fill a catalogue with the translations of `work.lines`, one for each line.

    They are plain, made with `align` where the model can; `normalise` is what the model does to a source line. The
    other arguments are those of `fill_catalogue`; only calibrated confidences are compared with `review_below`.
    """
    given = iter(translations)
    fillings: dict[int, Filling] = {}
    doubtful: set[int] = set()
    for number, carrier in work.carriers.items():
        renderings = []
        for each in (next(given) for _ in carrier.lines):
            if each.is_calibrated and each.confidence is not None and each.confidence < review_below:
                doubtful.add(number)
            known, is_whole = each.alignment, not each.hit_limit
            rendering = Rendering(each.text, is_whole=is_whole)
            if known is not None:
                rendering = Rendering(each.text, known.target_spans, known.links, is_whole)
            renderings.append(rendering)
        filling = carrier.filling(renderings, normalise=normalise)
        if filling is not None:
            proposals = tuple(map(_proposal, work.near.get(number, ())))
            fillings[number] = replace(filling, proposals=proposals) if proposals else filling
    doubtful &= fillings.keys()
    fillings |= work.remembered
    lines = [CatalogueLine(*each) for each in zip(work.lines, work.places, translations, strict=True)]
    needs_review = fillings.keys() if review else doubtful
    marked = {**fillings, **{number: replace(fillings[number], is_fuzzy=True) for number in needs_review}}
    data = work.catalogue.filled(marked, target=target)
    return FilledCatalogue(
        data,
        len(work.catalogue.segments),
        len(work.carriers) + len(work.passed_over) + len(work.remembered),
        fillings,
        work.rest(),
        lines,
        Counter(work.passed_over.values()),
        remembered=len(work.remembered),
        doubtful=len(doubtful),
        review_below=review_below,
        marked=sum(each.is_fuzzy for each in marked.values()),
    )


def _proposal(match: MemoryMatch) -> Proposal:
    unit = match.unit
    return Proposal(match.percentage, unit.source, unit.target, Path(unit.file).name)


def require_languages(
    name: str,
    catalogue: tuple[str | None, str | None],
    model: tuple[str | None, str | None],
    *,
    remedy: str = "correct the language in the file",
) -> None:
    """Refuse a catalogue whose languages are not those of the model, where both are known."""
    for side, has, can in zip(("from", "into"), catalogue, model, strict=True):
        if has and can and not is_language(has, can):
            raise UsageError(
                f"{name} is to be translated {side} {has!r}, but this model translates {side} {can!r}; use another "
                f"model, or {remedy}"
            )
