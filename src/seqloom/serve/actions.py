"""What a worker does with a model of each purpose: texts and options in, results that can be written as JSON out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from seqloom.apps.engine import EngineTranslator, Translates, open_engine
from seqloom.apps.request import ConstraintSet, Request
from seqloom.apps.translator import Translation, Translator, open_translator
from seqloom.core.declaration import Purpose
from seqloom.text.glossary import Glossary
from seqloom.text.tags import take_out

Engine = Literal["seqloom", "ctranslate2"]

Groups = Sequence[Sequence[str]]
"""The texts of each request in a batch."""

Emit = Callable[[int, Any], None]
"""Gets the number of a group and a part of its answer, while the rest is still being computed."""

WARM_UP = "Hello, <b>world</b>!"
"""Translated before the first request, so that no request waits for a compiler."""


@dataclass
class Cancellation:
    """Which groups of a batch nobody waits for any more, and how many rows left a search because of it."""

    groups: set[int] = field(default_factory=set)
    dropped_rows: int = 0


Action = Callable[[Groups, Mapping[str, Any], Cancellation, Emit], list[list[Any]]]
"""The result of each text of each group; a cancelled group may lack results."""


def open_actions(
    purpose: Purpose, path: Path, overrides: Sequence[str], *, engine: Engine = "seqloom"
) -> dict[str, Action]:
    """Open a model, run each of its loops once, and return what can be done with it, by name."""
    if purpose == "translator":
        translator = open_translator(path, overrides)
        served = TranslatorActions(translator, open_engine(path, overrides) if engine == "ctranslate2" else None)
        for tags in (False, True):
            served.translate([[WARM_UP]], {"tags": tags}, Cancellation(), ignore_parts)
        return {"translate": served.translate}
    raise NotImplementedError


def ignore_parts(_group: int, _part: Any) -> None:
    """Emit nothing."""


class TranslatorActions:
    """Translates: with our search, or plain lines with CTranslate2."""

    def __init__(self, translator: Translator, engine: EngineTranslator | None = None) -> None:
        self._translator, self._engine = translator, engine

    def translate(
        self, groups: Groups, options: Mapping[str, Any], _cancellation: Cancellation, _emit: Emit
    ) -> list[list[Any]]:
        """The translation of each line, and alternatives.

        Options: `nbest`, `tags`, `align`, `prefix`, `glossary` (pairs of terms) and `split`.
        """
        lines = [line for group in groups for line in group]
        owners = [number for number, group in enumerate(groups) for _ in group]
        request = self._request(options)
        found: list[list[Translation]] = [[] for _ in lines]
        for translator, places, wanted in self._shares(lines, request):
            results = translator.run([lines[at] for at in places], wanted)
            for at, result in zip(places, results, strict=True):
                found[at] = result
        answers: list[list[Any]] = [[] for _ in groups]
        for owner, result in zip(owners, found, strict=True):
            if result:
                answers[owner].append(_translation_record(result))
        return answers

    def _request(self, options: Mapping[str, Any]) -> Request:
        own, nbest = self._translator.config.search, options.get("nbest", 1)
        changes = {"nbest": nbest, "beam": max(own.beam, nbest), "split": options.get("split", own.split)}
        terms = options.get("glossary")
        return Request(
            own.model_copy(update=changes),
            constraints=ConstraintSet(prefix=options["prefix"]) if options.get("prefix") else None,
            glossary=Glossary(tuple((source, target) for source, target in terms)) if terms else None,
            tags=options.get("tags", False),
            align=options.get("align", False),
        )

    def _shares(self, lines: Sequence[str], request: Request) -> list[tuple[Translates, list[int], Request]]:
        """The lines for the engine, and those with tags, terms, prefixes or alignments for our own search."""
        every = list(range(len(lines)))
        if self._engine is None or request.glossary or request.constraints or request.align:
            return [(self._translator, every, request)]
        tagged = [at for at in every if request.tags and take_out(lines[at]).plain != lines[at]]
        plain = sorted(set(every) - set(tagged))
        shares: list[tuple[Translates, list[int], Request]] = []
        if plain:
            shares.append((self._engine, plain, Request(request.search)))
        if tagged:
            shares.append((self._translator, tagged, request))
        return shares


def _translation_record(found: Sequence[Translation]) -> dict[str, Any]:
    best = found[0]
    record: dict[str, Any] = {"text": best.text, "score": best.score}
    if len(found) > 1:
        record["alternatives"] = [{"text": each.text, "score": each.score} for each in found[1:]]
    if best.hit_limit:
        record["hit_limit"] = True
    if best.alignment is not None:
        record["spans"], record["links"] = best.alignment.target_spans, best.alignment.links
    return record
