"""How `seqloom translate` processes its input: plain text line by line, or the untranslated entries of a catalogue."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seqloom.cli.arguments import STANDARD_OUTPUT
from seqloom.cli.console import clean, one_line
from seqloom.cli.inputs import TextEncoding, open_input, open_or_stdout, open_translator, read_blocks, read_pairs
from seqloom.core.errors import DataError, Problem, Problems, UsageError
from seqloom.core.events import Listener, json_line, notice
from seqloom.core.events import progress as report_progress
from seqloom.core.files import write_atomically
from seqloom.text.formats.pharaoh import format_links
from seqloom.text.formats.readers import column_problem, is_tsv
from seqloom.text.symbols import with_symbols

if TYPE_CHECKING:
    from seqloom.apps.catalogues import FilledCatalogue
    from seqloom.apps.engine import Translates
    from seqloom.apps.request import Request
    from seqloom.apps.translator import Translation
    from seqloom.runs.config import RunConfig
    from seqloom.text.glossary import Glossary
    from seqloom.text.tokenizer import Tokenizer
    from seqloom.text.translation_memory import MemoryMatch, TranslationMemory

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
    """Read the files of --glossary, --prefix and --dictionary, which may be an aligner; blank words are refused."""
    from seqloom.core.files import read_lines
    from seqloom.text.glossary import read_glossary
    from seqloom.text.normalise import is_blank

    for flag, values in (("--forbid", forbid), ("--stop", stop)):
        if any(is_blank(value) for value in values or ()):
            raise UsageError(f"{flag} is blank; give a word, such as {flag} 'Hund'")
    return Constraints(
        glossary=None if glossary is None else read_glossary(glossary),
        dictionary=None if dictionary is None else _read_dictionary(dictionary),
        prefixes=None if prefix is None else tuple("" if is_blank(line) else line for line in read_lines(prefix)),
        prefix_file=prefix,
        forbidden=tuple(forbid or ()),
        stops=tuple(stop or ()),
    )


def _read_dictionary(path: Path) -> dict[str, str]:
    """A file of terms, or the best translations of a saved aligner."""
    from seqloom.core.archive import is_archive
    from seqloom.text.glossary import read_glossary

    if path.is_dir() or is_archive(path):
        from seqloom.apps.aligner import Aligner

        return Aligner.load(path).dictionary()
    return dict(read_glossary(path).terms)


def read_memories(
    paths: Sequence[Path], model: Path, chosen: Sequence[str] = (), *, target: str | None, listener: Listener
) -> "TranslationMemory | None":
    """Read the files of --memory in the languages of a model, or in the `chosen` ones; None without any."""
    if not paths:
        return None
    from seqloom.apps.search_settings import resolved
    from seqloom.text.translation_memory import read_memory

    # An exported folder does not name its languages.
    data = resolved(model, chosen).data if not (model / "seqloom.json").is_file() else None
    source, known = (data.source, data.target) if data else (None, None)
    memory = read_memory(paths, languages=(source, target or known))
    notice(listener, f"{', '.join(map(str, paths))}: {len(memory):,} translations")
    return memory


def match_text(match: "MemoryMatch") -> str:
    """A near match in words."""
    unit = match.unit
    where = f"{unit.file}:{unit.line}"
    return f"{match.percentage}% match, {where}: {one_line(unit.source)!r} → {one_line(unit.target)!r}"


@contextmanager
def open_engine(
    model: Path,
    overrides: Sequence[str],
    *,
    companions: Sequence[Path],
    fusion: tuple[Path, float] | None,
    engine: str,
    jobs: int,
    listener: Listener,
    shots: Path | None = None,
) -> "Iterator[Translates]":
    """Our own search in one process or in several, a language model with examples, or CTranslate2."""
    if shots is not None:
        from seqloom.apps.few_shot import open_few_shot

        few_shot = open_few_shot(model, read_pairs([shots], listener=listener), overrides)
        yield few_shot
        if message := few_shot.dropped.message(str(model), len(few_shot.pairs)):
            notice(listener, message)
        return
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
            report_progress(self.listener, "translating parts of lines", done, everything)

    def lines_done(self, lines: int) -> None:
        self.done += lines
        if not self.has_parts:
            report_progress(self.listener, "translating", self.done, self.total)


@dataclass
class Anomalies:
    """Counts what is reported once at the end: truncated translations and mostly unknown lines."""

    translations: int = 0
    truncated: int = 0
    """Translations that ended at the maximum output length."""
    truncated_lines: list[int] = field(default_factory=list)
    unknown_lines: list[int] = field(default_factory=list)
    """Lines of which the model knows less than half."""
    unknown_symbols: Counter[str] = field(default_factory=Counter)

    def check_source(self, lines: Iterable[tuple[int, str]], tokenizer: "Tokenizer") -> bool:
        """Count mostly unknown lines and symbols among these, given with their numbers; whether all is unknown."""
        from seqloom.text.normalise import is_blank
        from seqloom.text.tokenizer import unfamiliar_share

        lines = list(lines)
        self.unknown_symbols.update(symbol for _, line in lines for symbol in tokenizer.unknown_symbols(line))
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
        if self.unknown_symbols:
            from seqloom.text.tokenizer import counted_symbols

            messages.append(f"{name}: {counted_symbols(self.unknown_symbols)}")
        return messages

    def _listed(self, numbers: Sequence[int]) -> str:
        nouns = "lines" if len(numbers) > 1 else "line"
        shown = ", ".join(f"{number:,}" for number in numbers[:MAX_LISTED])
        more = len(numbers) - MAX_LISTED
        return f"{nouns} {shown} and {more:,} more" if more > 0 else f"{nouns} {shown}"


# --- plain text ------------------------------------------------------------------------------------------------------

LineStyle = Literal["text", "scores", "nbest", "json"]
"""What is printed for a line: the best translation, its score before it, all translations, or a record."""


def output_lines(
    style: LineStyle, number: int, line: str, found: "Sequence[Translation]", piece: Callable[[int], str]
) -> list[str]:
    """What is printed for the translations of a line; `number` is counted from 1, `piece` writes a target symbol."""
    if style == "json":
        return [json_line({"line": number, "source": line, "translations": [_record(each, piece) for each in found]})]
    rows = [(one_line(each.text), "null" if each.score is None else f"{each.score:.6f}") for each in found]
    if style == "nbest":
        return [f"{number} ||| {text} ||| {score}" for text, score in rows]
    text, score = rows[0]
    return [f"{score}\t{text}" if style == "scores" else text]


def _record(translation: "Translation", piece: Callable[[int], str]) -> dict[str, Any]:
    """A translation with its score terms; the parts of a long line are added up."""
    from seqloom.core.symbols import END

    terms: dict[str, float] = {}
    tokens: list[str] = []
    log_probs: list[float] = []
    for hypothesis in translation.hypotheses:
        tokens += [piece(id) for id in (*hypothesis.symbols, *([END] if hypothesis.is_finished else []))]
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
        "confidence": translation.confidence,
        "is_calibrated": translation.is_calibrated,
    }
    if (alignment := translation.alignment) is not None:
        record |= {"source_words": alignment.source_words, "target_words": alignment.target_words}
        record["alignment"] = alignment.links
    if translation.matches:
        record["memory"] = [{"percentage": each.percentage, **asdict(each.unit)} for each in translation.matches]
    return record


def count_lines(path: Path | None, encoding: TextEncoding) -> int | None:
    """Read a file once to report invalid bytes before the slow part; its number of lines, None for standard input."""
    if path is None:
        return None
    with open_input(path) as source:
        return sum(len(block) for block in read_blocks(source, str(path), encoding=encoding, is_checked_whole=True))


def translate_text(
    path: Path | None,
    opening: "AbstractContextManager[Translates]",
    *,
    encoding: TextEncoding,
    style: LineStyle,
    constraints: Constraints,
    memory: "TranslationMemory | None",
    tags: bool,
    out: Path | None,
    align: Path | None,
    total: int | None,
    symbols: Sequence[int | str] = (),
    listener: Listener,
) -> None:
    """Translate block by block, so that a line that is piped in is answered before the next one arrives.

    `path` and `out` are None for standard input and output; `align` is None if no links are wanted. `symbols` are the
    columns of a table that are read as symbols beside the source.
    """
    from seqloom.apps.memory_translator import MemoryTranslator
    from seqloom.text.scripts import Sample, doubt_in_words

    name, warn = str(path or "standard input"), partial(notice, listener)
    done, has_warned, anomalies = 0, False, Anomalies()
    links_to = nullcontext() if align is None else open_or_stdout(None if align == STANDARD_OUTPUT else align)
    known = near = 0
    with opening as opened, open_or_stdout(out) as stream, links_to as links, open_input(path) as source:
        translator = opened if memory is None else MemoryTranslator(opened, memory)
        if path is None and sys.stdin.isatty():
            print("Type a sentence and press Enter; Ctrl-D ends.", file=sys.stderr)
        # The first lines show whether the source is in the language of the model.
        language, sample = translator.source_language, Sample()
        blocks = read_blocks(source, name, encoding=encoding, warn=warn)
        for block in _first_columns(blocks, path, symbols=symbols, warn=warn):
            numbers = range(done + 1, done + 1 + len(block))
            numbered = list(zip(numbers, block, strict=True))
            if anomalies.check_source(numbered, translator.tokenizers.source) and not has_warned:
                warn(ALL_UNKNOWN)
                has_warned = True
            if language is not None:
                sample.add(block)
                if (doubt := sample.doubt(language)) is not None:
                    warn(doubt_in_words("source", language, doubt))
                if doubt is not None or sample.is_full:
                    language = None
            progress = TranslationProgress(listener, name, numbers, total, translator.longest, done=done)
            results = translator.run(
                block,
                constraints.request(done, len(block), align=links is not None, tags=tags),
                first=done,
                progress=progress.lines_done,
                watch=progress,
            )
            for (number, line), found in zip(numbered, results, strict=True):
                anomalies.check_output(number, found)
                matches = found[0].matches
                known += any(match.percentage == 100 for match in matches)
                near += any(match.percentage < 100 for match in matches)
                for match in matches if style != "json" else ():
                    if match.percentage < 100:
                        warn(f"{name}:{number}: {match_text(match)}")
                for text in output_lines(style, number, line, found, translator.tokenizers.target.piece):
                    stream.write((clean(text) if stream.isatty() else text) + "\n")
                if links is not None and (alignment := found[0].alignment) is not None:
                    links.write(format_links(alignment.links) + "\n")
            stream.flush()
            done += len(block)
        if total:
            report_progress(listener, "translating", done, total)
        if memory is not None:
            warn(f"{name}: {known:,} of {done:,} lines from the memory, near matches for {near:,}")
        for message in anomalies.messages(name):
            warn(message)


def _first_columns(
    blocks: Iterator[list[str]], path: Path | None, *, symbols: Sequence[int | str], warn: Callable[[str], None]
) -> Iterator[list[str]]:
    """Of a table, the first column, which holds the sources, with its symbols; of other text, the lines."""
    if path is None or not is_tsv(path):
        yield from blocks
        return
    if symbols:
        places = [place for place in symbols if isinstance(place, int)]
        if not places:
            raise UsageError(
                f"{path} has columns without names, and this model reads members of records as symbols; give lines of "
                "a source, a tab and its symbols"
            )
        yield from _rows_with_symbols(blocks, path, places)
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
            warn(f"{path}: the first of 2 columns is translated; the second is ignored")
            has_notified = True
        yield [line.partition("\t")[0] for line in block]


def _rows_with_symbols(blocks: Iterator[list[str]], path: Path, places: Sequence[int]) -> Iterator[list[str]]:
    from seqloom.text.formats.columns import pair_of_row

    before = 0
    for block in blocks:
        problems, lines = Problems(), []
        for number, line in enumerate(block, start=before + 1):
            pair = pair_of_row(line, places, number)
            if isinstance(pair, str):
                problems.add(pair, path, number)
            else:
                lines.append(with_symbols(pair.source, pair.symbols))
        problems.require_none()
        before += len(block)
        yield lines


# --- catalogues ------------------------------------------------------------------------------------------------------


def translate_catalogue(
    path: Path,
    opening: "AbstractContextManager[Translates]",
    *,
    settings: "RunConfig | None",
    out: Path | None,
    target: str | None,
    with_fuzzy: bool,
    for_review: bool,
    review_below: float | None,
    memory: "TranslationMemory | None",
    constraints: Constraints,
    as_json: bool,
    listener: Listener,
) -> None:
    """Fill a catalogue, or replace the words of a document. Errors in the file are reported before the model is loaded.

    `settings` are those of the model, None for another engine; `out` is None for standard output.
    """
    from seqloom.apps.catalogues import fill_catalogue, plan_work, require_languages
    from seqloom.text.formats.readers import is_document, open_catalogue, open_document

    known = (settings.data.source, settings.data.target) if settings else (None, None)
    require_languages("the catalogue", (None, target), known, remedy="leave out --target")
    wanted = known[0], target or known[1]
    has_marks = not is_document(path)
    catalogue = open_catalogue(path, languages=wanted) if has_marks else open_document(path)
    require_languages(str(path), catalogue.languages, wanted)
    work = plan_work(catalogue, with_fuzzy=with_fuzzy, memory=memory)
    anomalies = Anomalies()
    with opening as translator:
        if review_below and translator.calibration is None:
            raise UsageError(
                "--review-below requires a calibrated model that translates alone; calibrate it with: seqloom evaluate "
                "MODEL --source DEV --reference DEV --calibrate"
            )
        if anomalies.check_source(zip(work.places, work.lines, strict=True), translator.tokenizers.source):
            notice(listener, ALL_UNKNOWN)
        progress = TranslationProgress(listener, str(path), work.places, len(work.places), translator.longest)
        align = settings is not None and settings.model.has_attention is not False
        filled = fill_catalogue(
            work,
            translator,
            constraints.request(0, len(work.lines), align=align),
            target=wanted[1],
            review=for_review,
            review_below=review_below,
            progress=progress.lines_done,
            watch=progress,
        )
    if out is None:
        sys.stdout.flush()
        if sys.stdout.isatty():  # through the stream that escapes control characters
            sys.stdout.write(filled.data.decode("utf-8", errors="replace"))
        else:
            sys.stdout.buffer.write(filled.data)
        sys.stdout.flush()
    elif out.exists() and not out.is_file():
        out.write_bytes(filled.data)  # a pipe or a device is not replaced
    else:
        write_atomically(Path(os.path.realpath(out)), filled.data)
    for line in filled.lines:
        anomalies.check_output(line.place, [line.translation])
    for number, matches in work.near.items():
        for match in matches:
            notice(listener, f"{path}:{catalogue.segments[number].line}: {match_text(match)}")
    for message in [
        *_summary(path, filled, for_review=for_review, has_marks=has_marks),
        *anomalies.messages(str(path)),
    ]:
        notice(listener, message)
    if as_json:
        counts = {"segments": filled.segments, "wanted": filled.wanted, "filled": len(filled.fillings)}
        marks = {"fuzzy": filled.fuzzy, "review": for_review, "marked": filled.marked, "left": filled.left}
        marks |= {"doubtful": filled.doubtful, "memory": filled.remembered, "near": len(work.near)}
        print(json_line({"catalogue": out, **counts, **marks, "alone": filled.rest}))


def _summary(path: Path, filled: "FilledCatalogue", *, for_review: bool, has_marks: bool) -> list[str]:
    """How many segments were translated, which need review, and why the others were left.

    `has_marks` says whether the file has a place to mark those for review.
    """
    rest, marked = filled.rest, " and marked for review" if for_review and filled.fillings else ""
    reasons = {
        "already translated": rest.translated,
        f"fuzzy (--fuzzy translates {'it' if rest.fuzzy == 1 else 'them'} again)": rest.fuzzy,
        "blank": rest.blank,
        'locked (translate="no")': rest.locked,
        "without the source language": rest.foreign,
    }
    others = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items() if count)
    summary = f"{path}: {len(filled.fillings):,} of {filled.segments:,} segments translated{marked}"
    messages = [f"{summary}; not translated: {others}" if others else summary]
    if filled.fuzzy:
        kept = "need review most" if for_review else "marked fuzzy"  # for review, all are marked
        kept = kept if has_marks else "need review"
        messages.append(f"{filled.fuzzy:,} of them {kept}: placeholders were placed by guess, or the output was cut")
    if filled.doubtful:
        kept = "with a" if for_review or not has_marks else "marked for review (--review-below 0 marks none):"
        messages.append(f"{filled.doubtful:,} of them {kept} confidence below {filled.review_below:.2f}")
    if filled.remembered:
        messages.append(f"{filled.remembered:,} of them from the memory")
    why = "the model produced no text, or placeholders could not be separated from words"
    left = {**filled.passed_over, why: filled.left - sum(filled.passed_over.values())}
    return messages + [f"{count:,} left untranslated: {reason}" for reason, count in left.items() if count]
