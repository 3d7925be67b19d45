"""`seqloom translate MODEL catalogue.po`: what has no translation gets one."""

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seqloom.cli.arguments import require_content
from seqloom.cli.output import json_line, require_open
from seqloom.cli.translate_output import TRANSLATING, Asked, Tally
from seqloom.core.errors import UsageError
from seqloom.core.events import Event, Listener, notice
from seqloom.core.files import require_file, require_writable, write_atomically
from seqloom.core.text_files import is_compressed
from seqloom.text.formats.readers import format_of
from seqloom.text.languages import is_language_code

if TYPE_CHECKING:
    from seqloom.apps.catalogues import Filled
    from seqloom.apps.engine import Translates


@dataclass(frozen=True)
class CatalogueJob:
    """A catalogue, what to do with it, and where it goes."""

    path: Path | None
    out: Path | None
    is_in_place: bool
    target: str | None
    with_fuzzy: bool
    for_review: bool
    as_json: bool
    engine: str

    @property
    def place(self) -> Path | None:
        """The file to write; None for standard output."""
        return self.path if self.is_in_place else self.out


def catalogue_job(job: CatalogueJob, model: Path, *, others: Sequence[str]) -> CatalogueJob | None:
    """The job if its file is a catalogue; `others` are flags given that are for lines. What does not fit is refused."""
    if format_of(model) is not None and model.is_file():
        raise UsageError(f"{model} is a catalogue; name the model before it: seqloom translate MODEL {model}")
    if job.path is None or format_of(job.path) is None:
        flags = {"--target": job.target, "--fuzzy": job.with_fuzzy, "--review": job.for_review}
        for flag, is_given in (flags | {"--in-place": job.is_in_place}).items():
            if is_given:
                raise UsageError(f"{flag} is for catalogues (.po, .mo, .xlf, .xliff, .tmx, .jsonl), not for plain text")
        return None
    if others:
        raise UsageError(f"{others[0]} is for text with a sentence per line; {job.path} is a catalogue")
    if job.target is not None and not is_language_code(job.target):
        raise UsageError(f"--target {job.target[:60]!r} is no code of a language, such as de, pt-BR or sr_RS@latin")
    if job.for_review and format_of(job.path) == "mo":
        raise UsageError(f"{job.path}: a compiled catalogue has no marks for --review; fill the .po that it is made of")
    if format_of(job.path) not in ("po", "jsonl"):  # these have no frame, so that an empty one is a whole one
        require_content([job.path])
    if job.is_in_place and job.out is not None:
        raise UsageError("--in-place and --out both say where the catalogue goes; leave one out")
    if job.is_in_place and is_compressed(job.path):
        raise UsageError(f"{job.path} is compressed, so it cannot be filled in place; decompress it, or name --out")
    if job.is_in_place:
        require_file(job.path)
        require_writable(job.path)
    if job.place is None:
        require_open(sys.stdout, "standard output")
        if job.as_json:
            raise UsageError("--json writes a record of what was done; name a file for the catalogue with --out")
        if format_of(job.path) == "mo" and sys.stdout.isatty():
            raise UsageError("a compiled catalogue is nothing for a terminal; name a file with --out")
    return job


def translate_catalogue(
    job: CatalogueJob,
    model: Path,
    overrides: Sequence[str],
    *,
    opened: "AbstractContextManager[Translates]",
    asked: Asked,
    listener: Listener,
) -> None:
    """Read, translate, write. What is wrong with the file is told before the model is read."""
    from seqloom.apps.catalogues import fill_catalogue, plan_work, require_languages
    from seqloom.apps.search_settings import resolved
    from seqloom.text.formats.readers import open_catalogue
    from seqloom.text.tokenizer import are_unknown

    assert job.path is not None
    config = resolved(model, overrides) if job.engine == "seqloom" else None
    known = (config.data.source, config.data.target) if config else (None, None)
    require_languages("the catalogue", (None, job.target), known, way_out="leave out --target")
    wanted = known[0], job.target or known[1]
    catalogue = open_catalogue(job.path, languages=wanted)
    require_languages(str(job.path), catalogue.languages, wanted)
    work = plan_work(catalogue, with_fuzzy=job.with_fuzzy)
    align = config is not None and getattr(config.model, "attention", None) != "none"
    with opened as translator:
        watch = _Watch(listener, str(job.path), work.places, translator.longest)
        if are_unknown(translator.tokenizers.source, work.lines):
            notice(listener, "100% of the source is unknown to this model; is this the right language and model?")
        filled = fill_catalogue(
            work,
            translator,
            target=wanted[1],
            align=align,
            review=job.for_review,
            wishes=asked.wishes(0, len(work.lines)),
            glossary=asked.glossary,
            dictionary=asked.dictionary,
            progress=watch.lines_done,
            watch=watch,
        )
        _write(job, filled.data)
        _tell(job, filled, translator, listener)


@dataclass
class _Watch:
    """How far a catalogue has got."""

    listener: Listener
    name: str
    places: Sequence[int]
    limit: int
    done: int = 0

    def cut(self, line: int, parts: int) -> None:
        place = f"{self.name}:{self.places[line]}"
        notice(self.listener, f"{place}: longer than {self.limit} tokens, translated in {parts} parts")

    def parts_done(self, _done: int, _everything: int) -> None:
        """Lines are told of, and are short."""

    def lines_done(self, lines: int) -> None:
        self.done += lines
        self.listener(Event("progress", {"what": TRANSLATING, "done": self.done, "all": len(self.places)}))


def _write(job: CatalogueJob, data: bytes) -> None:
    place = job.place
    if place is None:
        sys.stdout.flush()
        if sys.stdout.isatty():  # through the stream that spells out what a terminal would obey
            sys.stdout.write(data.decode("utf-8", errors="replace"))
        else:
            sys.stdout.buffer.write(data)
        sys.stdout.flush()
    elif place.exists() and not place.is_file():
        place.write_bytes(data)  # a pipe or a device stays what it is
    else:
        write_atomically(Path(os.path.realpath(place)), data)


def _tell(job: CatalogueJob, filled: "Filled", translator: "Translates", listener: Listener) -> None:
    """What was done, as sentences and, if asked for, as a record."""
    assert job.path is not None
    tally = Tally(unit="entry" if format_of(job.path) == "mo" else "line")
    for line in filled.lines:
        tally.count([line.translation], line.place)
    tally.look_at_places([(line.place, line.text) for line in filled.lines], translator.tokenizers.source)
    said = [_summary(job, filled)]
    if filled.fuzzy:
        if format_of(job.path) == "mo":
            kept = "left out, as a compiled catalogue holds none"
        elif job.for_review:  # all are marked, so that the mark does not show which ones these are
            kept = "to be looked at first"
        else:
            kept = "marked fuzzy"
        why = "their placeholders were put in by guess, or they were cut short"
        said.append(f"{filled.fuzzy:,} of them {kept}: {why}")
    why = "the model said nothing, or placeholders could not be kept apart from words"
    left = {**filled.passed_over, why: filled.left - sum(filled.passed_over.values())}
    said += [f"{count:,} left untranslated: {reason}" for reason, count in left.items() if count]
    for message in [*said, *tally.messages(str(job.path))]:
        notice(listener, message)
    if job.as_json:
        counts = {"segments": filled.segments, "wanted": filled.wanted, "filled": len(filled.fillings)}
        marked = len(filled.fillings) if job.for_review else 0 if format_of(job.path) == "mo" else filled.fuzzy
        marks = {"fuzzy": filled.fuzzy, "review": job.for_review, "marked": marked, "left": filled.left}
        print(json_line({"catalogue": job.place, **counts, **marks, "alone": asdict(filled.rest)}))


def _summary(job: CatalogueJob, filled: "Filled") -> str:
    """How many were translated, and why the others were not."""
    rest, marked = filled.rest, " and marked for review" if job.for_review and filled.fillings else ""
    them = "it" if rest.fuzzy == 1 else "them"
    reasons = {
        "had a translation": rest.translated,
        f"fuzzy left alone (--fuzzy translates {them} again)": rest.fuzzy,
        "without text": rest.blank,
        'more not to be translated (translate="no")': rest.locked,
        "more without the source language": rest.foreign,
    }
    others = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items() if count)
    done = f"{job.path}: {len(filled.fillings):,} of {filled.segments:,} segments translated{marked}"
    return f"{done}; {others}" if others else done
