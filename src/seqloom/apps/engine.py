"""Translating with CTranslate2: it does the search, everything around the search is ours."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from seqloom.apps.request import Request, part_constraints
from seqloom.apps.search_settings import device_of, require_effect, settings_for
from seqloom.apps.translator import PartListener, Translation
from seqloom.core.config import resolve
from seqloom.core.errors import UsageError
from seqloom.interop.ctranslate2 import require_ctranslate2
from seqloom.interop.ctranslate2_engine import (
    DESCRIPTION,
    CTranslate2Engine,
    Found,
    asked_of,
    read_description,
    write_directory,
)
from seqloom.metrics.calibration import Calibration
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import load
from seqloom.runs.translator import Part, join, make_parts
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
from seqloom.text.tokenizer import Tokenizers


class Translates(Protocol):
    """Translates lines: with our search, in one process or several, or with an engine."""

    @property
    def tokenizers(self) -> Tokenizers: ...

    @property
    def longest(self) -> int: ...

    @property
    def source_language(self) -> str | None: ...

    @property
    def calibration(self) -> Calibration | None: ...

    def run(
        self,
        lines: Sequence[str],
        request: Request,
        *,
        first: int = 0,
        progress: Callable[[int], None] = ...,
        watch: PartListener | None = None,
    ) -> list[list[Translation]]: ...


class SearchesIds(Protocol):
    """An engine that translates ids, such as `CTranslate2Engine`."""

    @property
    def tokenizers(self) -> Tokenizers: ...

    def translate_ids(
        self,
        sources: Sequence[Sequence[int]],
        settings: SearchConfig,
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Found]]: ...


class EngineTranslator:
    """Translates lines as `Translator` does, with an engine for the search."""

    def __init__(
        self, engine: SearchesIds, *, search: SearchConfig, longest: int, source_language: str | None = None
    ) -> None:
        """`longest` is the maximum number of tokens of a source sentence, END included."""
        self.source_language = source_language
        self.calibration: Calibration | None = None  # it gives no log-probabilities of tokens
        self.engine, self.tokenizers = engine, engine.tokenizers
        self.settings = search
        self.longest = longest

    def run(
        self,
        lines: Sequence[str],
        request: Request,
        *,
        first: int = 0,
        progress: Callable[[int], None] = lambda _lines: None,
        watch: PartListener | None = None,
    ) -> list[list[Translation]]:
        """The best translations of each line, best first. Of all constraints, only prefixes are supported.

        In messages, lines are numbered from `first`.
        """
        if request.align or request.tags or request.glossary is not None or request.dictionary is not None:
            raise UsageError(
                "glossaries, dictionaries, tags and alignments are not supported with CTranslate2; use no engine"
            )
        settings = request.search or self.settings
        parts = make_parts(lines, self.tokenizers.source, limit=self.longest, split=settings.split, first=first)
        if watch is not None and settings.split == "long":
            for line, count in Counter(part.line for part in parts).items():
                if count > 1:
                    watch.cut(line, count)
        # CTranslate2 refuses a sentence of no tokens; it is left out here.
        by_part = zip(parts, part_constraints(parts, request.line_constraints(len(lines))), strict=True)
        wanted = [(part, given) for part, given in by_part if len(part.ids) > 1]
        if any(given and replace(given, prefix="") for _, given in wanted):
            raise UsageError("forced and forbidden words and stops are not supported with CTranslate2; use no engine")
        prefixes = [self.tokenizers.target.encode(given.prefix) if given else [] for _, given in wanted]
        found = self.engine.translate_ids([part.ids for part, _ in wanted], settings, prefixes=prefixes)
        by_line: dict[int, list[tuple[Part, list[Found]]]] = {}
        for (part, _), some in zip(wanted, found, strict=True):
            by_line.setdefault(part.line, []).append((part, some))
        progress(len(lines))
        return [self._translations(by_line.get(number, [])) for number in range(len(lines))]

    def _translations(self, searched: Sequence[tuple[Part, Sequence[Found]]]) -> list[Translation]:
        """The translations of a line out of those of its parts: of several parts, the best of each."""
        if not searched:
            return [Translation("", None)]
        lists = [found for _, found in searched]
        inside_word = [part.is_inside_word for part, _ in searched]
        translations = []
        for way in [[each] for each in lists[0]] if len(lists) == 1 else [[found[0] for found in lists]]:
            joined = join([self.tokenizers.target.decode(each.ids) for each in way], inside_word=inside_word)
            hypotheses = tuple(
                Hypothesis(each.ids, each.is_finished, each.score, {"log_prob": each.score}, ()) for each in way
            )
            translations.append(Translation(joined.text, sum(each.score for each in way), hypotheses))
        return translations


def open_engine(folder: Path, overrides: Sequence[str] = ()) -> EngineTranslator:
    """CTranslate2 with an exported directory, or with a model that is exported into a temporary one.

    `overrides` are search settings; unsupported ones are refused before anything is written.
    """
    require_ctranslate2()
    device = device_of(overrides) or "cpu"
    if (folder / DESCRIPTION).is_file():
        description = read_description(folder)
        config = resolve(RunConfig, defaults={"search": dict(description.search)}, overrides=overrides)
        require_effect(config.search, overrides)
        asked_of(config.search)
        search = config.search
        if any(override.startswith(("search.length_factor=", "search.length_constant=")) for override in overrides):
            search = search.model_copy(update={"length_overrun": None})  # the exported value belongs to another maximum
        engine = CTranslate2Engine(folder, device=device)
        return EngineTranslator(engine, search=search, longest=description.longest)
    config = settings_for(folder, overrides)  # before the weights are read
    asked_of(config.search)
    loaded = load(folder, device="cpu")
    with TemporaryDirectory() as temporary:
        write_directory(loaded, Path(temporary))
        engine = CTranslate2Engine(Path(temporary), device=device)
        assert engine.tokenizers  # read before the folder is removed
    return EngineTranslator(
        engine,
        search=loaded.search_settings(config.search),
        longest=loaded.config.data.longest,
        source_language=loaded.card.source,
    )
