"""What a worker does with a model of each purpose: texts and options in, results that can be written as JSON out."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from seqloom.apps.engine import EngineTranslator, open_engine
from seqloom.apps.language_model import open_language_model
from seqloom.apps.request import ConstraintSet, Request
from seqloom.apps.translator import Translation, Translator, open_translator
from seqloom.core.declaration import Purpose
from seqloom.core.errors import UsageError
from seqloom.core.symbols import UNKNOWN
from seqloom.search.settings import SearchConfig
from seqloom.serve.completion import LanguageModelActions
from seqloom.serve.embedding import open_encoder_actions, open_vector_actions
from seqloom.serve.groups import Action, Emit, GroupCancellation, Groups, ignore_parts
from seqloom.serve.looking import LanguageModelLooking, TranslatorLooking, search_of
from seqloom.text.glossary import Glossary, ways_to_write
from seqloom.text.tags import Tagged, place_tags, take_out
from seqloom.text.words import word_spans

Engine = Literal["seqloom", "ctranslate2"]

WARM_UP = "Hello, <b>world</b>!"
"""Translated before the first request, so that no request waits for a compiler."""


def open_actions(
    purpose: Purpose, path: Path, overrides: Sequence[str], *, engine: Engine = "seqloom"
) -> dict[str, Action]:
    """Open a model, run each of its loops once, and return what can be done with it, by name."""
    if purpose == "translator":
        translator = open_translator(path, overrides)
        has_engine = engine == "ctranslate2"
        served = TranslatorActions(translator, open_engine(path, overrides) if has_engine else None)
        for tags in (False, True):
            served.translate([[WARM_UP]], {"tags": tags}, GroupCancellation(), ignore_parts)
        looking = TranslatorLooking(translator, path, has_engine=has_engine)
        return {"translate": served.translate, **looking.actions()}
    if purpose == "language model":
        # How texts are drawn is a matter of each request.
        device = [each for each in overrides if not each.startswith("search.")]
        model = open_language_model(path, device)
        completing = LanguageModelActions(model)
        completing.warm_up()
        return {"complete": completing.complete, **LanguageModelLooking(model).actions()}
    if purpose == "encoder":
        device = [each for each in overrides if not each.startswith("search.")]
        return {"embed": open_encoder_actions(path, device).embed}
    return {"embed": open_vector_actions(path).embed}


MAX_KNOWN_SETTINGS = 100
"""Changes of search settings that are remembered."""


class TranslatorActions:
    """Translates: with our search, or plain lines with CTranslate2."""

    def __init__(self, translator: Translator, engine: EngineTranslator | None = None) -> None:
        self._translator, self._engine = translator, engine
        self._changed: dict[tuple[int, str, str], SearchConfig] = {}

    def translate(
        self, groups: Groups, options: Mapping[str, Any], cancellation: GroupCancellation, _emit: Emit
    ) -> list[list[Any]]:
        """The translation of each line, and alternatives.

        Options: `nbest`, `tags`, `align`, `prefix`, `glossary` (pairs of terms), `split`, `search` (changed settings)
        and `unknown` (whether records count the unknown tokens of the source, and all). A record has `skipped_terms` if
        some terms of the glossary could not be used.
        """
        lines = [line for group in groups for line in group]
        bare: list[Tagged] = []
        if options.get("tags") and not self._translator.can_attend:  # then no word says where a tag belongs
            bare = [take_out(line) for line in lines]
            lines = [each.plain for each in bare]
        owners = [number for number, group in enumerate(groups) for _ in group]
        request = self._request(options)
        skipped = [0] * len(lines)
        found: list[list[Translation]] = [[] for _ in lines]
        by_engine = self._engine_lines(lines, request)
        if self._engine is not None and by_engine:
            results = self._engine.run([lines[at] for at in by_engine], Request(request.search))
            for at, result in zip(by_engine, results, strict=True):
                found[at] = result
        if own := sorted(set(range(len(lines))) - set(by_engine)):
            results, without = self._search(
                [lines[at] for at in own], request, lambda at: owners[own[at]] in cancellation.groups, cancellation
            )
            unwritable = len(options.get("glossary") or ()) - len(request.glossary.terms if request.glossary else ())
            for at, result, is_without in zip(own, results, without, strict=True):
                found[at] = result
                skipped[at] = unwritable + (len(request.glossary.terms) if request.glossary and is_without else 0)
        for at, line in enumerate(bare):
            found[at] = [replace(each, text=_with_tags(line, each.text)) for each in found[at]]
        answers: list[list[Any]] = [[] for _ in groups]
        for text, owner, result, terms in zip(lines, owners, found, skipped, strict=True):
            if result:
                record = _translation_record(result)
                if options.get("unknown"):
                    ids = self._translator.tokenizers.source.encode(text)
                    record["unknown"] = (ids.count(UNKNOWN), len(ids))
                answers[owner].append({**record, "skipped_terms": terms} if terms else record)
        return answers

    def _search(
        self,
        lines: Sequence[str],
        request: Request,
        is_cancelled: Callable[[int], bool],
        cancellation: GroupCancellation,
    ) -> tuple[list[list[Translation]], list[bool]]:
        """The translations of each line, and whether they had to be found without the glossary.

        They must where a line has more terms than fit into the longest translation that is allowed.
        """

        def run(places: Sequence[int], request: Request) -> list[list[Translation]]:
            return self._translator.run(
                [lines[at] for at in places],
                request,
                is_cancelled=lambda at: is_cancelled(places[at]),
                on_dropped=cancellation.count,
                stop=cancellation.stop,
            )

        try:
            return run(range(len(lines)), request), [False] * len(lines)
        except UsageError:
            if request.glossary is None:
                raise
        results, without = [], []
        for at in range(len(lines)):
            try:
                results += run([at], request)
                without.append(False)
            except UsageError:
                results += run([at], replace(request, glossary=None))
                without.append(True)
        return results, without

    def _request(self, options: Mapping[str, Any]) -> Request:
        own = self._translator.config.search
        return Request(
            self._settings(options.get("nbest", 1), options.get("split", own.split), options.get("search")),
            constraints=ConstraintSet(prefix=options["prefix"]) if options.get("prefix") else None,
            glossary=self._glossary(options.get("glossary") or ()),
            tags=options.get("tags", False) and self._translator.can_attend,
            align=options.get("align", False) and self._translator.can_attend,
        )

    def _settings(self, nbest: int, split: str, changes: Mapping[str, Any] | None) -> SearchConfig:
        """The search settings of the model, cached, since most requests have the same.

        With `changes`, which may be empty, those that the workbench shows: the beam stays as it is.
        """
        key = (nbest, split, json.dumps(changes, sort_keys=True))
        if key not in self._changed:
            own = self._translator.config.search
            if changes is not None:
                own = search_of(own, changes)
                nbest = min(nbest, own.beam)
            if len(self._changed) >= MAX_KNOWN_SETTINGS:
                self._changed.clear()
            changed = {"nbest": nbest, "beam": max(own.beam, nbest), "split": split}
            self._changed[key] = own.model_copy(update=changed)
        return self._changed[key]

    def _glossary(self, terms: Sequence[Sequence[str]]) -> Glossary | None:
        """The terms that the model can write; the others are skipped, so that they cost no translation."""
        tokenizer = self._translator.tokenizers.target
        known = tuple((source, target) for source, target in terms if ways_to_write(target, tokenizer))
        return Glossary(known) if known else None

    def _engine_lines(self, lines: Sequence[str], request: Request) -> list[int]:
        """The lines for the engine: those without tags, terms, prefixes and alignments."""
        if self._engine is None or request.glossary or request.constraints or request.align:
            return []
        return [at for at, line in enumerate(lines) if not request.tags or take_out(line).plain == line]


def _with_tags(line: Tagged, text: str) -> str:
    """A translation with the tags of its line, which nothing aligns with its words: they go to its end."""
    return place_tags(line, text, target_spans=word_spans(text), links=(), normalise=str).text


def _translation_record(found: Sequence[Translation]) -> dict[str, Any]:
    best = found[0]
    record: dict[str, Any] = {"text": best.text, "score": best.score, "confidence": best.confidence}
    if best.is_calibrated:
        record["is_calibrated"] = True
    if len(found) > 1:
        record["alternatives"] = [{"text": each.text, "score": each.score} for each in found[1:]]
    if best.hit_limit:
        record["hit_limit"] = True
    if best.alignment is not None:
        record["spans"], record["links"] = best.alignment.target_spans, best.alignment.links
        record["words"] = len(best.alignment.source_words)
    return record
