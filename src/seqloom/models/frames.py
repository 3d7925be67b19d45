"""What a published model reads around its texts: language codes, instructions, and the symbols that begin an output.

    source    source_before  X  END  source_after
    target    target_before  Y  END

Callers know nothing of it: they pass X END, and BEGIN Y. The model reads BEGIN as `target_before`.
"""

from contextlib import suppress
from typing import Literal

from pydantic import Field

from seqloom.core.config import Config
from seqloom.core.errors import UsageError
from seqloom.core.symbols import BEGIN
from seqloom.text.languages import choose_code

LanguageScheme = Literal["none", "named_in_source", "before", "after", "instructions"]
"""Where the symbols of languages are: nowhere, before the source (that of the target language), before both texts, or
after the source and before the target; or each pair of languages has an instruction before the source."""


class FrameConfig(Config):
    """Symbols that a model reads around its texts."""

    source_before: tuple[int, ...] = ()
    """Symbols before each source."""
    source_after: tuple[int, ...] = ()
    """Symbols after the end of each source."""
    target_before: tuple[int, ...] = (BEGIN,)
    """Symbols that are read before the first one that is written."""
    scheme: LanguageScheme = "none"
    """Where the symbols of languages are: none, named_in_source (the symbol of the target language before the source),
    before (those of both languages before their texts) or after (that of the source language after the source); or
    instructions (an instruction for each pair of languages)."""
    languages: dict[str, int] = Field(default_factory=dict)
    """The symbol of each language."""
    instructions: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """The symbols of an instruction before the source, by pairs of languages such as en-de."""
    source: str | None = None
    """The language that is translated from, for a model of several."""
    target: str | None = None
    """The language that is translated into, for a model of several."""

    def chosen(self, source: str | None, target: str | None) -> "FrameConfig":
        """The same for other languages, by what a user typed; None keeps a language. They are looked up at once."""
        found = {side: typed for side, typed in (("source", source), ("target", target)) if typed is not None}
        frame = self.model_copy(update=found)
        if self.scheme == "instructions":
            frame._instruction()
            return frame
        for side in ("source", "target"):
            if side in found and (side == "target" or self.scheme != "named_in_source"):
                found[side] = frame._code(side)
        return self.model_copy(update=found)

    def symbols(self) -> "FrameConfig":
        """The same with the symbols of the chosen languages in their places."""
        if self.scheme == "none":
            return self
        before, after, begin = self.source_before, self.source_after, self.target_before
        if self.scheme == "instructions":
            return FrameConfig(source_before=(*self._instruction(), *before), source_after=after, target_before=begin)
        if self.scheme == "named_in_source":
            before = (self._symbol("target"), *before)
        else:
            begin = (*begin, self._symbol("target"))
            own = self._symbol("source")
            before, after = ((own, *before), after) if self.scheme == "before" else (before, (*after, own))
        return FrameConfig(source_before=before, source_after=after, target_before=begin)

    def _instruction(self) -> tuple[int, ...]:
        """That of the chosen languages; none if none are chosen, because a text may bring its own."""
        if self.source is None and self.target is None:
            return ()
        if self.source is not None and self.target is not None:
            with suppress(UsageError):
                source = choose_code(self.source, {pair.split("-")[0] for pair in self.instructions})
                targets = {pair.split("-")[1]: pair for pair in self.instructions if pair.startswith(f"{source}-")}
                return self.instructions[targets[choose_code(self.target, targets)]]
        given = [f"{flag} {code}" for flag, code in (("--from", self.source), ("--to", self.target)) if code]
        known = ", ".join(self.instructions)
        raise UsageError(f"{' '.join(given)}: this model knows instructions for {known}; choose one of these pairs")

    def _symbol(self, side: Literal["source", "target"]) -> int:
        return self.languages[self._code(side)]

    def _code(self, side: Literal["source", "target"]) -> str:
        """The code of the chosen language."""
        language: str | None = getattr(self, side)
        flag = {"source": "--from", "target": "--to"}[side]
        if language is None:
            some = ", ".join(list(self.languages)[:3])
            raise UsageError(
                f"this model knows {len(self.languages)} languages; choose one with {flag} ({some}, …), in training "
                f"with model.frame.{side}="
            )
        try:
            return choose_code(language, self.languages)
        except UsageError as error:
            raise UsageError(f"{flag} {language}: {error}") from error
