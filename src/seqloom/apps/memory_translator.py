"""Translating with a translation memory: lines that it has are not decoded, similar ones are returned beside.

memory = read_memory([Path("project.tmx")], languages=("en", "de"))
translator = MemoryTranslator(Translator.load("run/model"), memory)
translator.run(["Save the file."], Request())
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from seqloom.apps.alignments import Alignment
from seqloom.apps.engine import Translates
from seqloom.apps.request import Request
from seqloom.apps.translator import PartListener, Translation
from seqloom.metrics.calibration import Calibration
from seqloom.text.tokenizer import Tokenizers
from seqloom.text.translation_memory import MIN_PERCENTAGE, MemoryMatch, TranslationMemory


class MemoryTranslator:
    """Translates as the translator that it is made of, but for lines that a memory has."""

    def __init__(
        self, translator: Translates, memory: TranslationMemory, *, least_percentage: int = MIN_PERCENTAGE
    ) -> None:
        self.translator, self.memory, self.least_percentage = translator, memory, least_percentage

    @property
    def tokenizers(self) -> Tokenizers:
        return self.translator.tokenizers

    @property
    def longest(self) -> int:
        return self.translator.longest

    @property
    def source_language(self) -> str | None:
        return self.translator.source_language

    @property
    def calibration(self) -> Calibration | None:
        return self.translator.calibration

    def run(
        self,
        lines: Sequence[str],
        request: Request,
        *,
        first: int = 0,
        progress: Callable[[int], None] = lambda _lines: None,
        watch: PartListener | None = None,
    ) -> list[list[Translation]]:
        """The best translations of each line, best first. That of the memory is alone, whatever the constraints are."""
        exact = [self.memory.match(line) for line in lines]
        # A blank line takes the place of one that is known: the place of a line decides its random draws.
        sent = ["" if known else line for line, known in zip(lines, exact, strict=True)]
        found = self.translator.run(sent, request, first=first, progress=progress, watch=watch)
        results = []
        for line, known, translations in zip(lines, exact, found, strict=True):
            if known is not None:
                results.append([remembered(known, align=request.align or request.tags)])
                continue
            matches = tuple(self.memory.near(line, least=self.least_percentage))
            results.append([replace(each, matches=matches) for each in translations] if matches else translations)
        return results


def remembered(match: MemoryMatch, *, align: bool = False) -> Translation:
    """The translation of a unit of the memory; with `align`, an alignment without links."""
    alignment = Alignment.empty() if align else None
    return Translation(match.unit.target, None, alignment=alignment, confidence=1.0, matches=(match,))
