"""What every dialect calls: translating texts and files, detecting languages, completing and embedding texts.

A dialect parses requests and writes answers. Limits, languages, the choice of models and the queue are here, so that
all of them behave the same.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seqloom.serve.http import Call, ServerState
from seqloom.serve.models import ServedModel, ServedModels, code_of, name_of_language
from seqloom.serve.pool import Pool
from seqloom.serve.refusal import Refusal, bad_request

_LINE_BREAK = re.compile(r"(\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])")
_BLANKS = re.compile(r"(\s*)(.*?)(\s*)", re.DOTALL)


@dataclass(frozen=True)
class Detected:
    """The language of a text, as it was guessed."""

    language: str
    confidence: float
    """Between 0 and 1."""


@dataclass(frozen=True)
class Translated:
    """The translation of one text."""

    text: str
    alternatives: tuple[str, ...] = ()
    """Other translations, best first, none of them twice or equal to `text`."""
    source: str = ""
    """The language that it was translated from."""
    detected: Detected | None = None
    """Where the language was to be detected."""
    score: float | None = None
    confidence: float | None = None
    lines: tuple[Mapping[str, Any], ...] = ()
    """What was found for each line of the text: text, score, alignment where it was requested."""


@dataclass(frozen=True)
class _Piece:
    """A line of a text, and the white space and line break around it."""

    before: str
    line: str
    after: str


@dataclass
class Service:
    """A running server, as dialects see it."""

    state: ServerState
    models: ServedModels
    pool: Pool
    detect: Callable[[str], list[Detected]] = lambda _text: []
    """The languages that are translated from, the most probable for a text first."""

    # --- languages ----------------------------------------------------------------------------------------------------

    def languages(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """Code, name and targets of each language."""
        return [(code, name_of_language(code), targets) for code, targets in self.models.languages.items()]

    def find_steps(self, source: str | None, target: str, model: str | None = None) -> tuple[ServedModel, ...]:
        """The models for a pair of languages, or the one that is named."""
        if model is not None:
            found = self.models.by_name.get(model)
            if found is None or found.purpose != "translator":
                raise Refusal(404, f"there is no translation model of this name; the names are {self._names()}")
            return (found,)
        assert source is not None
        wanted = code_of(source), code_of(target)
        for code, role in zip(wanted, ("source", "target"), strict=True):
            if code not in self.models.languages:
                known = ", ".join(self.models.languages)
                raise bad_request(f"the {role} language {_shown(code)} is not supported; the languages are {known}")
        steps = self.models.steps(*wanted)
        if not steps:
            targets = ", ".join(self.models.languages[wanted[0]]) or "no other language"
            raise bad_request(f"there is no translation from {wanted[0]} to {wanted[1]}; {wanted[0]} has {targets}")
        return steps

    def _names(self) -> str:
        return ", ".join(model.name for model in self.models.translators)

    # --- translating --------------------------------------------------------------------------------------------------

    def check_texts(self, call: Call, texts: Sequence[Any]) -> list[str]:
        """Texts within the limits of a request."""
        limits = self.state.settings
        if len(texts) > limits.texts:
            raise bad_request(f"{len(texts)} texts are more than the limit of {limits.texts} per request")
        for text in texts:
            if not isinstance(text, str):
                raise bad_request("each text must be a string")
            if len(text) > limits.characters:
                raise bad_request(f"a text has {len(text):,} characters; the limit is {limits.characters:,}")
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
        glossary: Sequence[tuple[str, str]] = (),
        align: bool = False,
    ) -> list[Translated]:
        """The translation of each text; `source` None or `auto` is detected for each text by itself.

        Lines of a text are translated one by one; line breaks and the white space around lines stay as they are.
        Placeholders and tags are carried over.
        """
        if alternatives > self.state.settings.alternatives:
            raise bad_request(
                f"{alternatives} alternatives are more than the limit of {self.state.settings.alternatives}"
            )
        texts = self.check_texts(call, texts)
        is_auto = model is None and (source is None or source.lower() in ("auto", ""))
        detected = [self.detect_one(text) for text in texts] if is_auto else [None] * len(texts)
        by_language: dict[str | None, list[int]] = {}
        for at, found in enumerate(detected):
            by_language.setdefault(found.language if found else source, []).append(at)
        options = {"nbest": alternatives + 1, "tags": True, "align": align, "glossary": [list(t) for t in glossary]}
        results: list[Translated | None] = [None] * len(texts)

        for language, places in by_language.items():
            steps = () if language == code_of(target) and model is None else self.find_steps(language, target, model)
            some = await self._translate_texts(call, [texts[at] for at in places], steps, options)
            origin = steps[0].source or "" if steps else language or ""
            for at, result in zip(places, some, strict=True):
                results[at] = replace(result, source=origin, detected=detected[at])
        return [result for result in results if result is not None]

    def detect_one(self, text: str) -> Detected:
        """The language of a text that is to be translated from whatever it is in."""
        guesses = self.detect(text)
        if not guesses or guesses[0].confidence <= 0:
            raise bad_request(
                "the language of a text cannot be detected, because it has no letters of a language that is served; "
                "name the source language"
            )
        return guesses[0]

    async def _translate_texts(
        self, call: Call, texts: Sequence[str], steps: Sequence[ServedModel], options: Mapping[str, Any]
    ) -> list[Translated]:
        pieces = [split_lines(text) for text in texts]
        lines = [piece.line for some in pieces for piece in some]
        found = iter(await self.translate_lines(call, lines, steps, options))
        results = []
        for some in pieces:
            records = [next(found) for _ in some]
            whole = join_lines(some, [record["text"] for record in records])
            others: list[str] = []
            filled = [record for record in records if record["text"]]
            if len(filled) == 1:  # alternatives of several lines cannot be combined in one order
                for other in filled[0].get("alternatives", ()):
                    variant = join_lines(some, [other["text"] if r is filled[0] else r["text"] for r in records])
                    if variant not in (whole, *others):
                        others.append(variant)
            scores = [record["score"] for record in filled if record["score"] is not None]
            sure = [record["confidence"] for record in filled if record.get("confidence") is not None]
            score = sum(scores) if scores else None
            confidence = min(sure, default=None)
            results.append(Translated(whole, tuple(others), score=score, confidence=confidence, lines=tuple(records)))
        return results

    async def translate_lines(
        self,
        call: Call,
        lines: Sequence[str],
        steps: Sequence[ServedModel],
        options: Mapping[str, Any],
    ) -> list[dict[str, Any]]:
        """What workers found for each line, by one model after the other; blank lines need no worker."""
        options = {"split": self.state.settings.split, **options}
        results: list[dict[str, Any]] = [{"text": line, "score": None} for line in lines]
        places = [at for at, line in enumerate(lines) if line.strip()]
        for number, step in enumerate(steps):
            is_last = number == len(steps) - 1
            # Terms and alternatives belong to the language that is asked for.
            wanted = options if is_last else {**options, "nbest": 1, "align": False, "glossary": []}
            given = [results[at]["text"] for at in places]
            found = await self.pool.submit(step.name, "translate", given, wanted, deadline=call.deadline)
            for at, record in zip(places, found, strict=True):
                results[at] = record
        return results


def split_lines(text: str) -> list[_Piece]:
    """The lines of a text, apart from the white space around them."""
    parts = _LINE_BREAK.split(text)
    pieces = []
    for at in range(0, len(parts), 2):
        match = _BLANKS.fullmatch(parts[at])
        assert match is not None
        before, line, after = match.groups()
        pieces.append(_Piece(before, line, after + (parts[at + 1] if at + 1 < len(parts) else "")))
    return pieces


def join_lines(pieces: Sequence[_Piece], lines: Sequence[str]) -> str:
    """A text with these lines in place of its own."""
    return "".join(f"{piece.before}{line}{piece.after}" for piece, line in zip(pieces, lines, strict=True))


def _shown(code: str) -> str:
    return repr(code[:20])
