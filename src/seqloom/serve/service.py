"""What every dialect calls: translating texts and files, detecting languages, completing and embedding texts.

A dialect parses requests and writes answers. Limits, languages, the choice of models, the memory and the queue are
here, so that all of them behave the same.
"""

import asyncio
import json
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from seqloom.apps.catalogues import CatalogueWork, finish_work, plan_work
from seqloom.serve.completion import CompletionOptions, written_prompt
from seqloom.serve.document_jobs import DocumentJobs
from seqloom.serve.documents import Markup, composed, marked_up, media_type_of, translations_of
from seqloom.serve.files import FileStore
from seqloom.serve.glossaries import GlossaryStore
from seqloom.serve.http import Call, ServerState
from seqloom.serve.models import ServedModel, ServedModels, code_of, name_of_language
from seqloom.serve.pool import Pool
from seqloom.serve.refusal import Refusal, bad_request, overloaded
from seqloom.text.detection import Guess
from seqloom.text.formats.readers import TRANSLATABLE, parse_catalogue
from seqloom.text.formats.segments import Catalogue, Languages
from seqloom.text.glossary import Glossary
from seqloom.text.tags import blank_out, take_out
from seqloom.text.translation_memory import MemoryMatch, TranslationMemory

_LINE_BREAK = re.compile(r"(\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])")

FILE_FORMATS = TRANSLATABLE
"""Endings of the files that can be translated."""

MAX_DETECTION_LINES = 50
"""Lines of a file by which its language is detected."""

MAX_FILE_LINES = 200_000
"""Lines of a file that are translated, far more than a file has time for; each takes a kilobyte of memory."""

MAX_LINE_ENDS = 1_000_000
"""Line ends of a file."""

SEARCHED_CHARACTERS = 5_000
"""Characters of lines in which the terms of a glossary are searched at once."""

Steps = tuple[ServedModel, ...]
"""Models that translate one after the other; none where source and target are the same language."""


@dataclass(frozen=True)
class Translated:
    """The translation of one text."""

    text: str
    alternatives: tuple[str, ...] = ()
    """Other translations, best first, none of them twice or equal to `text`."""
    source: str = ""
    """The language that it was translated from."""
    detected: Guess | None = None
    """Where the language was to be detected."""
    score: float | None = None
    confidence: float | None = None
    """Of its least certain line; 1 for what a memory had."""
    lines: tuple[Mapping[str, Any], ...] = ()
    """What was found for each line of a plain text: text, score, alignment where it was requested."""
    matches: tuple[MemoryMatch, ...] = ()
    """What a memory has for similar lines of a plain text."""


@dataclass(frozen=True)
class TranslatedFile:
    """A translated file."""

    name: str
    data: bytes
    media_type: str
    source: str
    characters: int
    """Characters of its text."""


@dataclass(frozen=True)
class TextOptions:
    """How the texts of a request are translated."""

    alternatives: int = 0
    glossary: Glossary | None = None
    align: bool = False
    markup: Markup = "text"
    ignored: Collection[str] = ()
    """Elements of XML that are not translated."""
    splitting: Collection[str] = ()
    """Elements of XML that part sentences."""

    def for_workers(self, *, tags: bool) -> dict[str, Any]:
        """As workers take them; with `tags`, placeholders are carried over by the worker itself."""
        return {"nbest": self.alternatives + 1, "tags": tags, "align": self.align or not tags}


@dataclass
class Service:
    """A running server, as dialects see it."""

    state: ServerState
    models: ServedModels
    pool: Pool
    files: FileStore
    detect: Callable[[str], list[Guess]]
    """The languages that are served, the most probable for a text first."""
    memories: Mapping[tuple[str, str], TranslationMemory] = field(default_factory=dict)
    runs: Sequence[Path] = ()
    """Folders with training runs that the workbench shows."""
    streams: int = 0
    """Streams of runs that are open."""
    facts: dict[ServedModel, Mapping[str, Any]] = field(default_factory=dict)
    """What workers know of the models, asked when it is first needed."""
    glossaries: GlossaryStore = field(init=False)
    """What clients have stored."""
    documents: DocumentJobs = field(init=False)

    def __post_init__(self) -> None:
        self.glossaries = GlossaryStore(self.state.settings)
        self.documents = DocumentJobs(self.state, self.files)

    # --- languages and models -----------------------------------------------------------------------------------------

    def languages(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """Code, name and targets of each language."""
        return [(code, name_of_language(code), targets) for code, targets in self.models.languages.items()]

    def detect_source(self, text: str, target: str) -> Guess:
        """The language of a text that is to be translated from whatever it is in: the most probable that can be."""
        found = self._guess_source(text, target)
        if found is None:
            raise bad_request(
                "the language of a text cannot be detected, because it has no letters of a language that is served; "
                "name the source language"
            )
        return found

    def detect_sources(self, texts: Sequence[str], target: str) -> list[Guess]:
        """The language of each text. One without letters, such as 10 % or ☺, is taken to be in that of the others."""
        found = [self._guess_source(text, target) for text in texts]
        if None in found:
            common = self.detect_source("\n".join(texts), target)
            return [guess or replace(common, confidence=0.0) for guess in found]
        return [guess for guess in found if guess is not None]

    def _guess_source(self, text: str, target: str) -> Guess | None:
        guesses = [guess for guess in self.detect(text) if guess.confidence > 0]
        goal = code_of(target)
        possible = [each for each in guesses if each.language == goal or self.models.steps(each.language, goal)]
        # Languages that are known by their script alone are equally probable: then the text is to be translated.
        possible.sort(key=lambda guess: (-guess.confidence, guess.language == goal))
        return next(iter(possible), guesses[0]) if guesses else None

    def find_steps(self, source: str | None, target: str, model: str | None = None) -> Steps:
        """The models for a pair of languages, or the one that is named."""
        if model is not None:
            found = self.models.by_name.get(model)
            if found is None or found.purpose != "translator":
                names = ", ".join(each.name for each in self.models.translators)
                raise Refusal(404, f"there is no translation model of this name; the names are {names}")
            return (found,)
        if not isinstance(source, str) or not isinstance(target, str):
            raise bad_request("a language must be a code, such as de")
        wanted = code_of(source), code_of(target)
        for code, role in zip(wanted, ("source", "target"), strict=True):
            if code not in self.models.languages:
                known = ", ".join(self.models.languages)
                served = f"the languages are {known}" if known else "no translator is served here"
                raise bad_request(f"the {role} language {code[:20]!r} is not supported; {served}")
        if wanted[0] == wanted[1]:
            return ()
        steps = self.models.steps(*wanted)
        if not steps:
            pairs = ", ".join(f"{source} to {goal}" for source, goal in self.models.pairs)
            raise bad_request(f"there is no translation from {wanted[0]} to {wanted[1]}; served are {pairs}")
        return steps

    # --- texts --------------------------------------------------------------------------------------------------------

    def check_texts(self, call: Call, texts: Sequence[Any]) -> list[str]:
        """Texts within the limits of a request."""
        limits = self.state.settings
        if len(texts) > limits.texts:
            raise bad_request(f"{len(texts)} texts are more than the limit of {limits.texts} per request")
        for text in texts:
            if not isinstance(text, str):
                raise bad_request("each text must be a string")
            if len(text) > limits.characters:
                raise bad_request(
                    f"a text has {len(text):,} characters; the limit is {limits.characters:,} (serve.characters)"
                )
        call.texts += len(texts)
        call.characters += sum(map(len, texts))
        return list(texts)

    async def translate(
        self,
        call: Call,
        texts: Sequence[Any],
        *,
        source: str | None,
        target: str,
        model: str | None = None,
        alternatives: int = 0,
        glossary: Glossary | None = None,
        align: bool = False,
        markup: Markup = "text",
        ignored: Collection[str] = (),
        splitting: Collection[str] = (),
    ) -> list[Translated]:
        """The translation of each text; `source` None or `auto` is detected for each text by itself.

        Lines of a plain text are translated one by one; line breaks and the white space around lines stay as they are.
        Placeholders and tags are carried over. Texts with markup have no alternatives.
        """
        if not 0 <= alternatives <= self.state.settings.alternatives:
            raise bad_request(
                f"{alternatives} alternatives are not within the limits: 0 to {self.state.settings.alternatives}"
            )
        if not isinstance(target, str):
            raise bad_request("a language must be a code, such as de")
        texts = self.check_texts(call, texts)
        options = TextOptions(alternatives, glossary, align, markup, ignored, splitting)
        is_auto = model is None and (source is None or (isinstance(source, str) and source.lower() in ("auto", "")))
        detected: Sequence[Guess | None] = [None] * len(texts)
        if is_auto:  # milliseconds for each long text, during which others are answered
            detected = await asyncio.to_thread(self.detect_sources, texts, target)
        by_language: dict[str | None, list[int]] = {}
        for at, guess in enumerate(detected):
            by_language.setdefault(guess.language if guess else source, []).append(at)
        results: dict[int, Translated] = {}
        for language, places in by_language.items():
            steps = self.find_steps(language, target, model)
            some = [texts[at] for at in places]
            if markup == "text":
                found = await self._translate_plain(call, some, steps, options)
            else:
                found = await self._translate_marked_up(call, some, steps, options)
            origin = steps[0].source or "" if steps else code_of(language or "")
            for at, result in zip(places, found, strict=True):
                results[at] = replace(result, source=origin, detected=detected[at])
        return [results[at] for at in range(len(texts))]

    async def _translate_plain(
        self, call: Call, texts: Sequence[str], steps: Steps, options: TextOptions
    ) -> list[Translated]:
        pieces = [split_lines(text) for text in texts]
        lines = [piece.line for some in pieces for piece in some]
        memory = self._memory(steps)
        near: dict[int, list[MemoryMatch]] = {}
        known: dict[int, str] = {}
        if memory is not None:
            known, near = await asyncio.to_thread(_look_up, memory, lines)
        asked = [at for at in range(len(lines)) if at not in known]
        found = await self.translate_lines(
            call, [lines[at] for at in asked], steps, options.for_workers(tags=True), options.glossary
        )
        records = dict(zip(asked, found, strict=True))
        for at, text in known.items():
            records[at] = {"text": text, "score": None, "confidence": 1.0}
        results, first = [], 0
        for some in pieces:
            places = range(first, first + len(some))
            matches = tuple(match for at in places for match in near.get(at, ()))
            results.append(_joined(some, [records[at] for at in places], matches))
            first += len(some)
        return results

    async def _translate_marked_up(
        self, call: Call, texts: Sequence[str], steps: Steps, options: TextOptions
    ) -> list[Translated]:

        def parse() -> list[Catalogue]:
            return [
                marked_up(text, options.markup, ignored=options.ignored, splitting=options.splitting) for text in texts
            ]

        catalogues = await asyncio.to_thread(parse)
        filled = await self._fill(call, catalogues, steps, options, target=None)
        return [Translated(data.decode(), confidence=confidence) for data, confidence in filled]

    async def translate_lines(
        self,
        call: Call,
        lines: Sequence[str],
        steps: Steps,
        options: Mapping[str, Any],
        glossary: Glossary | None = None,
    ) -> list[dict[str, Any]]:
        """What workers found for each line, by one model after the other; lines without letters stay as they are.

        Terms that a model cannot write are skipped, and counted in the log.
        """
        options = {"split": self.state.settings.split, "glossary": [], **options}
        if glossary is not None:
            options["glossary"] = await self._terms(call, lines, glossary, tags=options.get("tags", False))
        results: list[dict[str, Any]] = [{"text": line, "score": None, "confidence": None} for line in lines]
        places = [at for at, line in enumerate(lines) if any(map(str.isalpha, blank_out(line)))]
        for number, step in enumerate(steps):
            # Terms and alternatives are of the last language.
            is_last = number == len(steps) - 1
            wanted = options if is_last else {**options, "nbest": 1, "glossary": []}
            given = [results[at]["text"] for at in places]
            found = await self.pool.submit(step.name, "translate", given, wanted, deadline=call.deadline)
            for at, record in zip(places, found, strict=True):
                results[at] = composed(results[at], record) if number else record
            if skipped := max((record.get("skipped_terms", 0) for record in found), default=0):
                self.state.notify("terms_skipped", model=step.name, terms=skipped)
        return results

    async def _terms(
        self, call: Call, lines: Sequence[str], glossary: Glossary, *, tags: bool
    ) -> list[tuple[str, str]]:
        """The pairs of a glossary that some of these lines may need; with `tags`, the lines have tags in them.

        Looking for thousands of terms takes time, so it is done in steps, between which the request can be cancelled.
        """
        found: set[tuple[str, str]] = set()
        waiting, size = list[str](), 0
        for number, line in enumerate(lines, start=1):
            waiting.append(take_out(line).plain if tags else line)
            size += len(line)
            if size >= SEARCHED_CHARACTERS or number == len(lines):
                if (late := asyncio.get_running_loop().time() - call.deadline) > 0:
                    raise overloaded(late)
                found.update((await asyncio.to_thread(glossary.restricted_to, waiting)).terms)
                waiting, size = [], 0
        return [pair for pair in glossary.terms if pair in found]

    def _memory(self, steps: Steps) -> TranslationMemory | None:
        if not steps or steps[0].source is None or steps[-1].target is None:
            return None
        return self.memories.get((steps[0].source, steps[-1].target))

    # --- files --------------------------------------------------------------------------------------------------------

    async def translate_file(
        self,
        call: Call,
        name: str,
        data: bytes,
        *,
        source: str | None,
        target: str,
        glossary: Glossary | None = None,
    ) -> TranslatedFile:
        """Translate a file by the ending of its name; all but the words stays as it was."""
        if len(data) > self.state.settings.file_bytes:
            raise Refusal(413, f"the file has more than {self.state.settings.file_bytes:,} bytes")
        if not isinstance(target, str):
            raise bad_request("a language must be a code, such as de")
        is_auto = source is None or (isinstance(source, str) and source.lower() in ("auto", ""))
        languages = (None if is_auto or source is None else code_of(source), code_of(target))
        catalogue, characters = await asyncio.to_thread(_read_file, name, data, languages=languages)
        if is_auto:
            some = [segment.text for segment in catalogue.segments[:MAX_DETECTION_LINES]]
            source = self.detect_source("\n".join(some), target).language
        steps = self.find_steps(source, target)
        call.texts += len(catalogue.segments)
        call.characters += characters
        options = TextOptions(glossary=glossary)
        ((filled, _),) = await self._fill(call, [catalogue], steps, options, target=code_of(target))
        return TranslatedFile(name, filled, media_type_of(name), code_of(source or ""), characters)

    async def _fill(
        self,
        call: Call,
        catalogues: Sequence[Catalogue],
        steps: Steps,
        options: TextOptions,
        *,
        target: str | None,
    ) -> list[tuple[bytes, float | None]]:
        """Each catalogue with its translations, and the confidence of its least certain line."""
        memory = self._memory(steps)

        def plan() -> list[CatalogueWork]:
            return [plan_work(catalogue, memory=memory) for catalogue in catalogues]

        works = await asyncio.to_thread(plan)
        lines = [line for work in works for line in work.lines]
        if len(lines) > MAX_FILE_LINES:
            raise bad_request(
                f"the file has {len(lines):,} lines to translate; the limit is {MAX_FILE_LINES:,}: split it"
            )
        longest, most = max(map(len, lines), default=0), self.state.settings.line_characters
        if longest > most:
            raise bad_request(
                f"a line or paragraph has {longest:,} characters; the limit is {most:,}, so divide it into shorter ones"
            )
        records = await self.translate_lines(call, lines, steps, options.for_workers(tags=False), options.glossary)

        def finish() -> list[tuple[bytes, float | None]]:
            results, first = [], 0
            normalise = steps[0].normalise if steps else str
            for work in works:
                some = records[first : first + len(work.lines)]
                first += len(work.lines)
                sure = [record["confidence"] for record in some if record.get("confidence") is not None]
                review_below = steps[-1].review_below if steps else 0.0
                done = finish_work(
                    work, translations_of(some), normalise=normalise, target=target, review_below=review_below
                )
                results.append((done.data, min(sure, default=None)))
            return results

        return await asyncio.to_thread(finish)

    # --- language models and word vectors -----------------------------------------------------------------------------

    def check_inputs(self, call: Call, inputs: Sequence[str | Sequence[int]]) -> None:
        """Refuse texts, or lists of ids, that exceed the limits of a request; an id counts as a character."""
        limits = self.state.settings
        if len(inputs) > limits.texts:
            raise bad_request(f"{len(inputs)} texts are more than the limit of {limits.texts} per request")
        ids = [each for each in inputs if not isinstance(each, str)]
        if longest := max((len(each) for each in ids if len(each) > limits.characters), default=0):
            raise bad_request(f"a text has {longest:,} ids; the limit is {limits.characters:,}")
        self.check_texts(call, [each for each in inputs if isinstance(each, str)])
        call.texts += len(ids)
        call.characters += sum(map(len, ids))

    async def complete(
        self,
        call: Call,
        model: str,
        prompts: Sequence[str | Sequence[int]],
        options: CompletionOptions,
        *,
        seed: int | None = None,
        on_part: Callable[[int, Any], None] | None = None,
    ) -> list[dict[str, Any]]:
        """What a language model writes for each prompt: `choices` and numbers of tokens (`LanguageModelActions`).

        With a seed each prompt is continued as it would be alone, without one every time otherwise. `on_part` gets the
        number of a prompt and what was written since the last part, if `options.stream` is set.
        """
        self.check_inputs(call, prompts)
        sent = [written_prompt(prompt, seed=secrets.randbits(63) if seed is None else seed) for prompt in prompts]
        return await self.pool.submit(
            model,
            "complete",
            sent,
            asdict(options),
            deadline=call.deadline,
            on_part=on_part,
            output_tokens=options.max_tokens,
        )

    async def embed(self, call: Call, model: str, inputs: Sequence[str | Sequence[int]]) -> list[dict[str, Any]]:
        """For each text its `vector`, float32 in base64, and its number of `tokens` (`VectorActions`)."""
        self.check_inputs(call, inputs)
        sent = [json.dumps(each, ensure_ascii=False) for each in inputs]
        return await self.pool.submit(model, "embed", sent, {}, deadline=call.deadline)


def _read_file(name: str, data: bytes, *, languages: Languages) -> tuple[Catalogue, int]:
    """A file, and the number of characters of its text."""
    if (ends := data.count(b"\n") + data.count(b"\r")) > MAX_LINE_ENDS:
        raise bad_request(f"the file has {ends:,} line ends; the limit is {MAX_LINE_ENDS:,}: split it")
    catalogue = parse_catalogue(name, data, languages=languages)
    return catalogue, sum(len(segment.text) for segment in catalogue.segments)


# --- lines of plain texts ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LineOfText:
    """A line of a text, and the white space and line break around it."""

    before: str
    line: str
    after: str


def split_lines(text: str) -> list[LineOfText]:
    """The lines of a text, apart from the white space around them."""
    parts = _LINE_BREAK.split(text)
    lines = []
    for at in range(0, len(parts), 2):
        whole = parts[at]
        # Not a regular expression: it would take quadratic time for many spaces inside a line.
        line = whole.strip()
        before = whole[: len(whole) - len(whole.lstrip())]
        after = whole[len(before) + len(line) :] + (parts[at + 1] if at + 1 < len(parts) else "")
        lines.append(LineOfText(before, line, after))
    return lines


def join_lines(lines: Sequence[LineOfText], texts: Sequence[str]) -> str:
    """A text with these lines in place of its own."""
    return "".join(f"{line.before}{text}{line.after}" for line, text in zip(lines, texts, strict=True))


def _joined(
    lines: Sequence[LineOfText], records: Sequence[Mapping[str, Any]], matches: tuple[MemoryMatch, ...]
) -> Translated:
    """The translation of a text out of those of its lines."""
    whole = join_lines(lines, [record["text"] for record in records])
    filled = [record for record in records if record["text"]]
    others: list[str] = []
    if len(filled) == 1:  # alternatives of several lines cannot be combined in one order
        for other in filled[0].get("alternatives", ()):
            texts = [other["text"] if record is filled[0] else record["text"] for record in records]
            if (variant := join_lines(lines, texts)) not in (whole, *others):
                others.append(variant)
    scores = [record["score"] for record in filled if record["score"] is not None]
    sure = [record["confidence"] for record in filled if record.get("confidence") is not None]
    return Translated(
        whole,
        tuple(others),
        score=sum(scores) if scores else None,
        confidence=min(sure, default=None),
        lines=tuple(records),
        matches=matches,
    )


def _look_up(memory: TranslationMemory, lines: Sequence[str]) -> tuple[dict[int, str], dict[int, list[MemoryMatch]]]:
    """The lines that a memory has, and what it has for others."""
    known: dict[int, str] = {}
    near: dict[int, list[MemoryMatch]] = {}
    for at, line in enumerate(lines):
        if not line.strip():
            continue
        if (text := memory.exact(line)) is not None:
            known[at] = text
        elif matches := memory.near(line):
            near[at] = matches
    return known, near
