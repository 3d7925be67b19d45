"""How `seqloom translate` processes its input: plain text line by line, or the untranslated entries of a catalogue."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from seqloom.cli.console import clean, json_line, one_line
from seqloom.cli.inputs import LanguageModelFusion, TextEncoding, open_input, open_translator, read_blocks
from seqloom.core.errors import DataError, Problem, Problems, UsageError
from seqloom.core.events import Event, Listener, notice
from seqloom.core.files import open_output, write_atomically
from seqloom.text.formats.pharaoh import format_links
from seqloom.text.formats.readers import is_tsv
from seqloom.text.formats.tsv import column_problem

if TYPE_CHECKING:
    from seqloom.apps.catalogues import FilledCatalogue
    from seqloom.apps.engine import Translates
    from seqloom.apps.request import Request
    from seqloom.apps.translator import Translation
    from seqloom.text.glossary import Glossary
    from seqloom.text.scripts import Sample
    from seqloom.text.tokenizer import Tokenizer, Tokenizers

MAX_LISTED = 10
"""Line numbers listed in a message; more are counted."""
ALL_UNKNOWN = "100% of the source is unknown to this model; is this the right language and model?"

# --- what both kinds of input share ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constraints:
    """What translations must and must not contain; the same for all lines, except the prefixes."""

    glossary: "Glossary | None"
    dictionary: Mapping[str, str] | None
    prefixes: tuple[str, ...] | None
    prefix_file: Path | None
    forbidden: tuple[str, ...]
    stops: tuple[str, ...]

    def request(self, first: int, count: int, *, align: bool, tags: bool = False) -> "Request":
        """The request for `count` lines from line `first` (from 0) on."""
        from seqloom.apps.request import ConstraintSet, Request

        same = ConstraintSet(forbidden=self.forbidden, stops=self.stops)
        request = Request(
            constraints=same or None, glossary=self.glossary, dictionary=self.dictionary, align=align, tags=tags
        )
        if self.prefixes is None:
            return request
        if len(self.prefixes) < first + count:
            self._refuse_prefixes(", but the text has more lines")
        prefixes = self.prefixes[first : first + count]
        return replace(request, constraints=[replace(same, prefix=prefix) for prefix in prefixes])

    def require_lines(self, total: int | None) -> None:
        """Refuse a number of prefixes that differs from the number of lines, if that is known."""
        if self.prefixes is not None and total is not None and len(self.prefixes) != total:
            self._refuse_prefixes(f" for {total:,} lines of text")

    def _refuse_prefixes(self, why: str) -> None:
        message = f"{len(self.prefixes or ()):,} prefixes{why}; each line needs one, which may be blank"
        raise DataError(problems=[Problem(message, str(self.prefix_file))])


def read_constraints(
    *,
    glossary: Path | None,
    prefix: Path | None,
    forbid: Sequence[str] | None,
    stop: Sequence[str] | None,
    dictionary: Path | None,
) -> Constraints:
    """Read the files of --glossary, --prefix and --dictionary; blank words are refused."""
    from seqloom.core.files import read_lines
    from seqloom.text.glossary import read_glossary
    from seqloom.text.normalise import is_blank

    for flag, values in (("--forbid", forbid), ("--stop", stop)):
        if any(is_blank(value) for value in values or ()):
            raise UsageError(f"{flag} is blank; give a word, such as {flag} 'Hund'")
    return Constraints(
        glossary=None if glossary is None else read_glossary(glossary),
        dictionary=None if dictionary is None else dict(read_glossary(dictionary).terms),
        prefixes=None if prefix is None else tuple("" if is_blank(line) else line for line in read_lines(prefix)),
        prefix_file=prefix,
        forbidden=tuple(forbid or ()),
        stops=tuple(stop or ()),
    )


@contextmanager
def open_engine(
    model: Path,
    overrides: Sequence[str],
    *,
    companions: Sequence[Path],
    fusion: LanguageModelFusion | None,
    engine: str,
    jobs: int,
    listener: Listener,
) -> "Iterator[Translates]":
    """Our own search in one process or in several, or CTranslate2."""
    if engine == "ctranslate2":
        from seqloom.apps.engine import open_engine as open_ctranslate2

        yield open_ctranslate2(model, overrides)
        return
    translator = open_translator(model, overrides, companions=companions, fusion=fusion, listener=listener)
    if jobs == 1:
        yield translator
        return
    from seqloom.apps.processes import ProcessTranslator

    with ProcessTranslator(translator, overrides, jobs=jobs) as several:
        yield several


@dataclass
class TranslationProgress:
    """Reports progress: in lines, or in parts once a line had to be split."""

    listener: Listener
    name: str
    places: Sequence[int]
    """For each line, its number in the file."""
    total: int | None
    max_tokens: int
    done: int = 0
    has_parts: bool = False

    def cut(self, line: int, parts: int) -> None:
        place = f"{self.name}:{self.places[line]}"
        notice(self.listener, f"{place}: longer than {self.max_tokens} tokens, translated in {parts} parts")
        self.has_parts = True

    def parts_done(self, done: int, everything: int) -> None:
        if self.has_parts:
            self._report("translating parts of lines", done, everything)

    def lines_done(self, lines: int) -> None:
        self.done += lines
        if not self.has_parts:
            self._report("translating", self.done, self.total)

    def _report(self, what: str, done: int, everything: int | None) -> None:
        self.listener(Event("progress", {"what": what, "done": done, "all": everything}))


@dataclass
class Anomalies:
    """Counts what is reported once at the end: truncated translations and mostly unknown lines."""

    translations: int = 0
    truncated: int = 0
    """Translations that ended at the maximum output length."""
    truncated_lines: list[int] = field(default_factory=list)
    unknown_lines: list[int] = field(default_factory=list)
    """Lines of which the model knows less than half."""

    def check_source(self, lines: Iterable[tuple[int, str]], tokenizer: "Tokenizer") -> bool:
        """Count mostly unknown lines among these, given with their numbers; whether everything is unknown."""
        from seqloom.text.normalise import is_blank
        from seqloom.text.tokenizer import unfamiliar_share

        shares = [(number, unfamiliar_share(tokenizer, line)) for number, line in lines if not is_blank(line)]
        if shares and all(share == 1 for _, share in shares):
            return True
        self.unknown_lines += dict.fromkeys(number for number, share in shares if share > 0.5)
        return False

    def check_output(self, number: int, found: "Sequence[Translation]") -> None:
        """Count the truncated ones among the translations of a line."""
        self.translations += len(found)
        if truncated := sum(each.hit_limit for each in found):
            self.truncated += truncated
            self.truncated_lines.append(number)

    def messages(self, name: str) -> list[str]:
        """A message for each kind of anomaly in the text of this name."""
        messages: list[str] = []
        if self.truncated:
            from seqloom.runs.translator import limit_advice

            messages.append(
                f"{name}: {self.truncated:,} of {self.translations:,} translations ended at the maximum output length "
                f"({self._listed(self.truncated_lines)}); {limit_advice(self.truncated, self.translations)}"
            )
        if self.unknown_lines:
            each = "each of " if len(self.unknown_lines) > 1 else ""
            messages.append(
                f"{name}: more than half of {each}{self._listed(self.unknown_lines)} is unknown to this model, so the "
                "translation is unreliable; is this the right language?"
            )
        return messages

    def _listed(self, numbers: Sequence[int]) -> str:
        nouns = "lines" if len(numbers) > 1 else "line"
        shown = ", ".join(f"{number:,}" for number in numbers[:MAX_LISTED])
        more = len(numbers) - MAX_LISTED
        return f"{nouns} {shown} and {more:,} more" if more > 0 else f"{nouns} {shown}"


# --- plain text ------------------------------------------------------------------------------------------------------

LineFormat = Callable[["Tokenizers", int, str, Sequence["Translation"]], list[str]]
"""The output lines for the translations of a line, given the line and its number, counted from 1."""


def as_text(_tokenizers: "Tokenizers", _number: int, _line: str, found: "Sequence[Translation]") -> list[str]:
    """The best translation."""
    return [one_line(found[0].text)]


def as_scored(_tokenizers: "Tokenizers", _number: int, _line: str, found: "Sequence[Translation]") -> list[str]:
    """Its score, a tab, the best translation."""
    return [f"{_score(found[0])}\t{one_line(found[0].text)}"]


def as_nbest(_tokenizers: "Tokenizers", number: int, _line: str, found: "Sequence[Translation]") -> list[str]:
    """A line for each translation: number, text, score."""
    return [f"{number} ||| {one_line(each.text)} ||| {_score(each)}" for each in found]


def _score(translation: "Translation") -> str:
    return "null" if translation.score is None else f"{translation.score:.6f}"


def as_json(tokenizers: "Tokenizers", number: int, line: str, found: "Sequence[Translation]") -> list[str]:
    """One record with all translations and their score terms; the parts of a long line are added up."""
    from seqloom.core.symbols import END

    piece = tokenizers.target.piece
    records = []
    for translation in found:
        terms: dict[str, float] = {}
        tokens: list[str] = []
        log_probs: list[float] = []
        for hypothesis in translation.hypotheses:
            ids = [*hypothesis.symbols, *([END] if hypothesis.is_finished else [])]
            tokens += [piece(id) for id in ids]
            log_probs += hypothesis.token_log_probs
            for name, value in hypothesis.terms.items():
                terms[name] = terms.get(name, 0.0) + value
        record: dict[str, Any] = {
            "text": translation.text,
            "score": translation.score,
            "terms": terms,
            "tokens": tokens,
            "token_log_probs": log_probs,
            "is_finished": all(hypothesis.is_finished for hypothesis in translation.hypotheses),
            "is_complete": all(hypothesis.is_complete for hypothesis in translation.hypotheses),
            "hit_limit": translation.hit_limit,
        }
        if (alignment := translation.alignment) is not None:
            record |= {"source_words": alignment.source_words, "target_words": alignment.target_words}
            record["alignment"] = alignment.links
        records.append(record)
    return [json_line({"line": number, "source": line, "translations": records})]


class TextOutput(Protocol):
    """Where translations go: standard output, or a file."""

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...

    def isatty(self) -> bool: ...


def opened(out: Path | None) -> AbstractContextManager[TextOutput]:
    """Standard output for None, or a file that appears under its name when it is complete."""
    return nullcontext(sys.stdout) if out is None else open_output(out)


@dataclass(frozen=True)
class TextJob:
    """Text to be translated line by line."""

    path: Path | None
    """None is standard input."""
    encoding: TextEncoding
    write: LineFormat
    constraints: Constraints
    tags: bool

    @property
    def name(self) -> str:
        return str(self.path) if self.path else "standard input"


def count_lines(path: Path | None, encoding: TextEncoding) -> int | None:
    """Read a file once to report invalid bytes before the slow part; its number of lines, None for standard input."""
    if path is None:
        return None
    with open_input(path) as source:
        return sum(len(block) for block in read_blocks(source, str(path), encoding=encoding, is_checked_whole=True))


def translate_text(
    job: TextJob,
    translator: "Translates",
    *,
    stream: TextOutput,
    links: TextOutput | None,
    total: int | None,
    listener: Listener,
) -> None:
    """Translate block by block, so that a line that is piped in is answered before the next one arrives."""
    if job.path is None and sys.stdin.isatty():
        print("Type a sentence and press Enter; Ctrl-D ends.", file=sys.stderr)
    done, has_warned, anomalies, language = 0, False, Anomalies(), LanguageCheck(translator.source_language)
    with open_input(job.path) as source:
        blocks = read_blocks(source, job.name, encoding=job.encoding, warn=lambda message: notice(listener, message))
        for block in _first_columns(blocks, job.path, listener=listener):
            numbers = range(done + 1, done + 1 + len(block))
            numbered = list(zip(numbers, block, strict=True))
            if anomalies.check_source(numbered, translator.tokenizers.source) and not has_warned:
                notice(listener, ALL_UNKNOWN)
                has_warned = True
            if doubt := language.doubt(block):
                notice(listener, doubt)
            progress = TranslationProgress(listener, job.name, numbers, total, translator.longest, done=done)
            results = translator.run(
                block,
                job.constraints.request(done, len(block), align=links is not None, tags=job.tags),
                first=done,
                progress=progress.lines_done,
                watch=progress,
            )
            for (number, line), found in zip(numbered, results, strict=True):
                anomalies.check_output(number, found)
                for text in job.write(translator.tokenizers, number, line, found):
                    stream.write((clean(text) if stream.isatty() else text) + "\n")
                if links is not None and (alignment := found[0].alignment) is not None:
                    links.write(format_links(alignment.links) + "\n")
            stream.flush()
            done += len(block)
    if total:
        listener(Event("progress", {"what": "translating", "done": done, "all": total}))
    for message in anomalies.messages(job.name):
        notice(listener, message)


def _first_columns(blocks: Iterator[list[str]], path: Path | None, *, listener: Listener) -> Iterator[list[str]]:
    """Of a table, the first column, which holds the sources; of other text, the lines."""
    if path is None or not is_tsv(path):
        yield from blocks
        return
    has_notified, before = False, 0
    for block in blocks:
        problems = Problems()
        for number, line in enumerate(block, start=before + 1):
            if "\t" in line and (problem := column_problem(line)):
                problems.add(problem, path, number)
        problems.require_none()
        before += len(block)
        if not has_notified and "\t" in block[0]:
            notice(listener, f"{path}: the first of 2 columns is translated; the second is ignored")
            has_notified = True
        yield [line.partition("\t")[0] for line in block]


@dataclass
class LanguageCheck:
    """Whether the source is in the language of the model, judged by its first lines."""

    language: str | None
    sample: "Sample | None" = None
    is_over: bool = False

    def doubt(self, lines: Sequence[str]) -> str | None:
        """Add lines of the source; a message, once, if they look like another language."""
        if self.language is None or self.is_over:
            return None
        from seqloom.text.scripts import Sample, doubt_in_words

        self.sample = self.sample or Sample()
        self.sample.add(lines)
        found = self.sample.doubt(self.language)
        self.is_over = found is not None or self.sample.is_full
        return None if found is None else doubt_in_words("source", self.language, found)


# --- catalogues ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CatalogueJob:
    """A catalogue to be filled, and where it goes."""

    path: Path
    out: Path | None
    """The file to write; None for standard output."""
    target: str | None
    with_fuzzy: bool
    for_review: bool
    as_json: bool
    constraints: Constraints


def translate_catalogue(
    job: CatalogueJob,
    model: Path,
    overrides: Sequence[str],
    *,
    engine: str,
    opening: "AbstractContextManager[Translates]",
    listener: Listener,
) -> None:
    """Read, translate, write. Errors in the file are reported before the model is loaded."""
    from seqloom.apps.catalogues import fill_catalogue, plan_work, require_languages
    from seqloom.apps.search_settings import resolved
    from seqloom.text.formats.readers import open_catalogue

    config = resolved(model, overrides) if engine == "seqloom" else None
    known = (config.data.source, config.data.target) if config else (None, None)
    require_languages("the catalogue", (None, job.target), known, remedy="leave out --target")
    wanted = known[0], job.target or known[1]
    catalogue = open_catalogue(job.path, languages=wanted)
    require_languages(str(job.path), catalogue.languages, wanted)
    work = plan_work(catalogue, with_fuzzy=job.with_fuzzy)
    anomalies = Anomalies()
    with opening as translator:
        if anomalies.check_source(zip(work.places, work.lines, strict=True), translator.tokenizers.source):
            notice(listener, ALL_UNKNOWN)
        progress = TranslationProgress(listener, str(job.path), work.places, len(work.places), translator.longest)
        align = config is not None and getattr(config.model, "attention", None) != "none"
        filled = fill_catalogue(
            work,
            translator,
            job.constraints.request(0, len(work.lines), align=align),
            target=wanted[1],
            review=job.for_review,
            progress=progress.lines_done,
            watch=progress,
        )
    _write(filled.data, job.out)
    for line in filled.lines:
        anomalies.check_output(line.place, [line.translation])
    for message in [*_summary(job, filled), *anomalies.messages(str(job.path))]:
        notice(listener, message)
    if job.as_json:
        counts = {"segments": filled.segments, "wanted": filled.wanted, "filled": len(filled.fillings)}
        marked = len(filled.fillings) if job.for_review else filled.fuzzy
        marks = {"fuzzy": filled.fuzzy, "review": job.for_review, "marked": marked, "left": filled.left}
        print(json_line({"catalogue": job.out, **counts, **marks, "alone": asdict(filled.rest)}))


def _write(data: bytes, out: Path | None) -> None:
    if out is None:
        sys.stdout.flush()
        if sys.stdout.isatty():  # through the stream that escapes control characters
            sys.stdout.write(data.decode("utf-8", errors="replace"))
        else:
            sys.stdout.buffer.write(data)
        sys.stdout.flush()
    elif out.exists() and not out.is_file():
        out.write_bytes(data)  # a pipe or a device is not replaced
    else:
        write_atomically(Path(os.path.realpath(out)), data)


def _summary(job: CatalogueJob, filled: "FilledCatalogue") -> list[str]:
    """How many segments were translated, which need review, and why the others were left."""
    rest, marked = filled.rest, " and marked for review" if job.for_review and filled.fillings else ""
    reasons = {
        "already translated": rest.translated,
        f"fuzzy (--fuzzy translates {'it' if rest.fuzzy == 1 else 'them'} again)": rest.fuzzy,
        "blank": rest.blank,
        'locked (translate="no")': rest.locked,
        "without the source language": rest.foreign,
    }
    others = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items() if count)
    summary = f"{job.path}: {len(filled.fillings):,} of {filled.segments:,} segments translated{marked}"
    messages = [f"{summary}; not translated: {others}" if others else summary]
    if filled.fuzzy:
        if job.for_review:  # all are marked, so the mark does not identify these
            kept = "need review most"
        else:
            kept = "marked fuzzy"
        messages.append(f"{filled.fuzzy:,} of them {kept}: placeholders were placed by guess, or the output was cut")
    why = "the model produced no text, or placeholders could not be separated from words"
    left = {**filled.passed_over, why: filled.left - sum(filled.passed_over.values())}
    return messages + [f"{count:,} left untranslated: {reason}" for reason, count in left.items() if count]
