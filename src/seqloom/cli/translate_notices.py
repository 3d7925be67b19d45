"""What `seqloom translate` says besides its translations: how far it has got, and what was odd in the end."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from seqloom.core.events import Event, Listener, notice

if TYPE_CHECKING:
    from seqloom.recipes.doubts import Sample
    from seqloom.recipes.translate import Translation
    from seqloom.text.tokenizer import Tokenizer

TRANSLATING = "translating"
NAMED = 10
"""Lines named in a message; more are counted."""


@dataclass
class Telling:
    """How far a block of lines has got: in lines, or in parts where some line had to be cut."""

    listener: Listener
    name: str
    first: int
    total: int | None
    limit: int
    done: int = 0
    has_parts: bool = False

    def cut(self, line: int, parts: int) -> None:
        place = f"{self.name}:{self.first + line}"
        notice(self.listener, f"{place}: longer than {self.limit} tokens, translated in {parts} parts")
        self.has_parts = True

    def parts_done(self, done: int, everything: int) -> None:
        if self.has_parts:
            self._tell("translating parts of lines", done, everything)

    def lines_done(self, lines: int) -> None:
        self.done += lines
        if not self.has_parts:
            self._tell(TRANSLATING, self.first - 1 + self.done, self.total)

    def _tell(self, what: str, done: int, everything: int | None) -> None:
        self.listener(Event("progress", {"what": what, "done": done, "all": everything}))


@dataclass
class Hearing:
    """Whether the source is in the language that the model reads, judged by its first lines until that is clear."""

    language: str | None
    sample: "Sample | None" = None
    is_over: bool = False

    def doubt(self, lines: Sequence[str]) -> str | None:
        """Take in lines of the source; the sentence that says what is wrong, once."""
        if self.language is None or self.is_over:
            return None
        from seqloom.recipes.doubts import Sample, doubt_in_words

        self.sample = self.sample or Sample()
        self.sample.add(lines)
        found = self.sample.doubt(self.language)
        self.is_over = found is not None or self.sample.is_full
        return None if found is None else doubt_in_words("source", self.language, found)


@dataclass
class Tally:
    """What was odd in all lines together, told once at the end."""

    translations: int = 0
    cut: int = 0
    """Translations that ended at the maximum output length."""
    cut_lines: list[int] = field(default_factory=list)
    """Their lines, by their numbers counted from 1."""
    strange: list[int] = field(default_factory=list)
    """Lines of which the model knows less than half, by their numbers counted from 1."""
    unit: Literal["line", "entry"] = "line"
    """What these numbers count."""

    def count(self, found: "Sequence[Translation]", number: int) -> None:
        """Take in the translations of the line with this number."""
        self.translations += len(found)
        cut = sum(one.hit_limit for one in found)
        self.cut += cut
        if cut:
            self.cut_lines.append(number)

    def look_at(self, lines: Sequence[str], first: int, tokenizer: "Tokenizer") -> bool:
        """Take in lines of the source; whether all that can be seen in them is unknown."""
        from seqloom.text.normalise import is_blank
        from seqloom.text.unfamiliar import unfamiliar_share

        shares = {at: unfamiliar_share(tokenizer, line) for at, line in enumerate(lines) if not is_blank(line)}
        if shares and min(shares.values()) == 1:
            return True
        self.strange += [first + at for at, share in shares.items() if share > 0.5]
        return False

    def look_at_places(self, lines: Iterable[tuple[int, str]], tokenizer: "Tokenizer") -> None:
        """Take in lines of the source, each with the number that it is known by; several may share one."""
        from seqloom.text.unfamiliar import unfamiliar_share

        shares = [(place, unfamiliar_share(tokenizer, line)) for place, line in lines]
        if any(share < 1 for _, share in shares):  # else another notice says so of the whole
            self.strange += dict.fromkeys(place for place, share in shares if share > 0.5)

    def messages(self, name: str) -> list[str]:
        """A sentence for each thing that was odd in a text of this name."""
        said: list[str] = []
        if self.cut:
            from seqloom.recipes.translate import limit_advice

            several = f"{self.unit}s" if self.unit == "line" else "entries"
            where = f"{several if len(self.cut_lines) > 1 else self.unit} {_listed(self.cut_lines)}"
            said.append(
                f"{name}: {self.cut:,} of {self.translations:,} translations ended at the maximum output length "
                f"({where}); {limit_advice(self.cut, self.translations)}"
            )
        if self.strange:
            several = {"line": "lines", "entry": "entries"}[self.unit]
            which = f"each of {several}" if len(self.strange) > 1 else self.unit
            them = "them" if len(self.strange) > 1 else "it"
            said.append(
                f"{name}: more than half of {which} {_listed(self.strange)} is unknown to "
                f"this model, so what it makes of {them} means little; "
                "is this its language?"
            )
        return said


def _listed(numbers: Sequence[int]) -> str:
    """The first of these numbers, and how many more there are."""
    more = len(numbers) - NAMED
    shown = ", ".join(f"{number:,}" for number in numbers[:NAMED])
    return f"{shown} and {more:,} more" if more > 0 else shown
