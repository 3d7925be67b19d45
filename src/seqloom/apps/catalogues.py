"""Translating catalogues: untranslated segments are filled, everything else stays as it was, byte for byte."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from seqloom.apps.engine import Translates
from seqloom.apps.request import Request
from seqloom.apps.translator import PartListener, Translation
from seqloom.core.errors import UsageError
from seqloom.text.formats.carry import CannotCarry, Carrier, Rendering
from seqloom.text.formats.segments import Catalogue, Filling, Segment
from seqloom.text.formats.tmx import TmxCatalogue, is_language


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

    def rest(self) -> OtherSegments:
        """What is left as it is, counted by reason."""
        wanted = self.carriers.keys() | self.passed_over.keys()
        alone = [each for number, each in enumerate(self.catalogue.segments) if number not in wanted]
        translated = sum(each.state == "translated" for each in alone)
        blank = sum(each.state != "translated" and not has_text(each) for each in alone)
        foreign = self.catalogue.foreign if isinstance(self.catalogue, TmxCatalogue) else 0
        return OtherSegments(translated, len(alone) - translated - blank, blank, self.catalogue.locked, foreign)


def plan_work(catalogue: Catalogue, *, with_fuzzy: bool = False) -> CatalogueWork:
    """Collect the lines of untranslated segments, and of fuzzy ones if requested; those without text are left out."""
    states = ("untranslated", "fuzzy") if with_fuzzy else ("untranslated",)
    wanted = {number: each for number, each in enumerate(catalogue.segments) if each.state in states and has_text(each)}
    carriers, passed_over = {}, {}
    for number, segment in wanted.items():
        try:
            carriers[number] = Carrier(segment.source, is_format=segment.is_format)
        except CannotCarry as reason:
            passed_over[number] = str(reason)
    lines = [(line, wanted[number].line) for number, carrier in carriers.items() for line in carrier.lines]
    return CatalogueWork(
        catalogue, carriers, tuple(line for line, _ in lines), tuple(place for _, place in lines), passed_over
    )


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
    progress: Callable[[int], None] = lambda _lines: None,
    watch: PartListener | None = None,
) -> FilledCatalogue:
    """Translate the segments of a catalogue. `target` is the language that is written where the file needs one.

    Without alignments, for engines and models that have none, the places of placeholders are guessed, and translations
    that have some are fuzzy. With `review`, all translations are marked for review.
    """
    best = [each[0] for each in translator.run(work.lines, request, progress=progress, watch=watch)]
    return finish_work(work, best, normalise=translator.tokenizers.source.normaliser, target=target, review=review)


def finish_work(
    work: CatalogueWork,
    translations: Sequence[Translation],
    *,
    normalise: Callable[[str], str],
    target: str | None = None,
    review: bool = False,
) -> FilledCatalogue:
    """Fill a catalogue with the translations of `work.lines`, one for each line.

    They are plain, made with `align` where the model can; `normalise` is what the model does to a source line. The
    other arguments are those of `fill_catalogue`.
    """
    given = iter(translations)
    fillings: dict[int, Filling] = {}
    for number, carrier in work.carriers.items():
        renderings = []
        for each in (next(given) for _ in carrier.lines):
            known, is_whole = each.alignment, not each.hit_limit
            rendering = Rendering(each.text, is_whole=is_whole)
            if known is not None:
                rendering = Rendering(each.text, known.target_spans, known.links, is_whole)
            renderings.append(rendering)
        filling = carrier.filling(renderings, normalise=normalise)
        if filling is not None:
            fillings[number] = filling
    lines = [CatalogueLine(*each) for each in zip(work.lines, work.places, translations, strict=True)]
    marked = {number: replace(each, is_fuzzy=True) for number, each in fillings.items()} if review else fillings
    data = work.catalogue.filled(marked, target=target)
    return FilledCatalogue(
        data,
        len(work.catalogue.segments),
        len(work.carriers) + len(work.passed_over),
        fillings,
        work.rest(),
        lines,
        Counter(work.passed_over.values()),
    )


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
