"""Translating with several processes, behind the same door as one translator."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType

from seqloom.core.arguments import as_lines
from seqloom.core.errors import UsageError
from seqloom.recipes.jobs import Workers
from seqloom.recipes.translate import Translation, Translator, Watch
from seqloom.recipes.wishes import Wish
from seqloom.text.glossary import Glossary
from seqloom.text.tokenizer import Tokenizers


@dataclass(frozen=True)
class _Asked:
    """What is asked of every line."""

    align: bool
    tags: bool
    wish: Wish | None
    glossary: Glossary | None
    dictionary: Mapping[str, str] | None


class ProcessTranslator:
    """Translates as the translator does that it is made of, in several processes that load its model again.

    What is asked for must be the same for all lines. The processes end with the block that it is used in.
    """

    def __init__(self, translator: Translator, overrides: Sequence[str] = (), *, jobs: int) -> None:
        """`overrides` are the settings of the search with which the translator was opened."""
        self._translator = translator
        self._overrides = tuple(overrides)
        self._jobs = jobs
        self._asked: _Asked | None = None
        self._workers: Workers | None = None

    def __enter__(self) -> "ProcessTranslator":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._workers is not None:
            self._workers.__exit__(kind, error, trace)
            self._workers = None

    @property
    def tokenizers(self) -> Tokenizers:
        """Those of the model."""
        return self._translator.tokenizers

    @property
    def longest(self) -> int:
        """Tokens of a source sentence, the end counted, up to which it is not cut."""
        return self._translator.longest

    @property
    def source_language(self) -> str | None:
        """The language that it reads, where the model says so."""
        return self._translator.source_language

    def unknown_rate(self, lines: Sequence[str]) -> float:
        """Share of source tokens that the model's vocabulary does not have."""
        return self._translator.unknown_rate(lines)

    def search(
        self,
        lines: Iterable[str],
        *,
        align: bool = False,
        tags: bool = False,
        wishes: Sequence[Wish | None] | None = None,
        glossary: Glossary | None = None,
        dictionary: Mapping[str, str] | None = None,
        first: int = 0,
        progress: Callable[[int], None] = lambda _lines: None,
        watch: Watch | None = None,
    ) -> list[list[Translation]]:
        """The best translations of each line, best first; `watch` is told of lines in parts once they are done.

        Lines are numbered on from `first`, as the translator does it.
        """
        given = as_lines(lines, "search")
        several = set(wishes or [None])
        if len(several) > 1:
            raise UsageError("several processes take the same wish for all lines; translate with one process")
        asked = _Asked(align, tags, several.pop(), glossary, dictionary)
        results = self._workers_for(asked).search(given, first=first, progress=progress)
        if watch is not None and self._translator.config.search.split == "long":
            for number, found in enumerate(results):
                if len(found[0].hypotheses) > 1:
                    watch.cut(number, len(found[0].hypotheses))
        return results

    def _workers_for(self, asked: _Asked) -> Workers:
        if self._workers is None or asked != self._asked:
            self.__exit__(None, None, None)
            search = partial(_search, asked=asked)
            folder = self._translator.loaded.folder
            self._workers, self._asked = Workers(folder, self._overrides, jobs=self._jobs, search=search), asked
        return self._workers


def _search(translator: Translator, lines: list[str], first: int, *, asked: _Asked) -> list[list[Translation]]:
    return translator.search(
        lines,
        align=asked.align,
        tags=asked.tags,
        wishes=None if asked.wish is None else [asked.wish] * len(lines),
        glossary=asked.glossary,
        dictionary=asked.dictionary,
        first=first,
    )
