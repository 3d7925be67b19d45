"""What `seqloom translate` says besides its translations: how far it has got, and what was odd in the end."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seqloom.cli.output import json_line, one_line
from seqloom.core.errors import DataError, Problem, UsageError
from seqloom.core.events import Event, Listener, notice

if TYPE_CHECKING:
    from seqloom.apps.attention_alignment import Alignment
    from seqloom.apps.request import Wish
    from seqloom.apps.translator import Translation
    from seqloom.runs.language_check import Sample
    from seqloom.text.glossary import Glossary
    from seqloom.text.tokenizer import Tokenizer, Tokenizers


# How `seqloom translate` writes the translations of a line.

Format = Callable[["Tokenizers", int, str, Sequence["Translation"]], list[str]]
"""The lines to be written for the translations of a line, given the line and its number, counted from 1."""


def as_text(_tokenizers: "Tokenizers", _number: int, _line: str, found: "Sequence[Translation]") -> list[str]:
    """The best translation."""
    return [one_line(found[0].text)]


def as_scored(_tokenizers: "Tokenizers", _number: int, _line: str, found: "Sequence[Translation]") -> list[str]:
    """Its score, a tab, the best translation."""
    return [f"{_score(found[0])}\t{one_line(found[0].text)}"]


def as_nbest(_tokenizers: "Tokenizers", number: int, _line: str, found: "Sequence[Translation]") -> list[str]:
    """A line for each translation: number, text, score."""
    return [f"{number} ||| {one_line(each.text)} ||| {_score(each)}" for each in found]


def as_json(tokenizers: "Tokenizers", number: int, line: str, found: "Sequence[Translation]") -> list[str]:
    """One record with all translations."""
    records = [_record(tokenizers, each) for each in found]
    return [json_line({"line": number, "source": line, "translations": records})]


def _score(translation: "Translation") -> str:
    return "null" if translation.score is None else f"{translation.score:.6f}"


def _record(tokenizers: "Tokenizers", translation: "Translation") -> dict[str, Any]:
    """A translation with its score itemised; the parts of a long line are added up."""
    from seqloom.core.symbols import END

    piece = tokenizers.target.piece
    terms: dict[str, float] = {}
    tokens: list[str] = []
    log_probs: list[float] = []
    for hypothesis in translation.hypotheses:
        ids = [*hypothesis.symbols, *([END] if hypothesis.is_finished else [])]
        tokens += [piece(id) for id in ids]
        log_probs += hypothesis.token_log_probs
        for name, value in hypothesis.terms.items():
            terms[name] = terms.get(name, 0.0) + value
    return {
        "text": translation.text,
        "score": translation.score,
        "terms": terms,
        "tokens": tokens,
        "token_log_probs": log_probs,
        "is_finished": all(hypothesis.is_finished for hypothesis in translation.hypotheses),
        "is_complete": all(hypothesis.is_complete for hypothesis in translation.hypotheses),
        "hit_limit": translation.hit_limit,
        **_alignment(translation.alignment),
    }


def _alignment(alignment: "Alignment | None") -> dict[str, Any]:
    if alignment is None:
        return {}
    return {
        "source_words": alignment.source_words,
        "target_words": alignment.target_words,
        "alignment": alignment.links,
    }


# What `seqloom translate` is asked to bring into its translations, or to keep out of them.


@dataclass(frozen=True)
class Asked:
    """The same for all lines, but for the prefixes."""

    glossary: "Glossary | None"
    prefixes: tuple[str, ...] | None
    prefix_file: Path | None
    forbidden: tuple[str, ...]
    stops: tuple[str, ...]
    dictionary: Mapping[str, str] | None = None

    def wishes(self, first: int, count: int) -> "list[Wish] | None":
        """The wishes for so many lines from the line of this number on, counted from 0; None if nothing is wished."""
        from seqloom.apps.request import Wish

        if not (self.prefixes is not None or self.forbidden or self.stops):
            return None
        if self.prefixes is not None and len(self.prefixes) < first + count:
            message = (
                f"{len(self.prefixes):,} prefixes, but the text has more lines; each line needs one, a blank one too"
            )
            raise DataError(problems=[Problem(message, str(self.prefix_file))])
        prefixes = [""] * count if self.prefixes is None else self.prefixes[first : first + count]
        return [Wish(prefix, forbidden=self.forbidden, stops=self.stops) for prefix in prefixes]

    def require_lines(self, total: int | None) -> None:
        """Refuse prefixes that are not as many as lines, if it is known how many there are."""
        if self.prefixes is not None and total is not None and len(self.prefixes) != total:
            message = (
                f"{len(self.prefixes):,} prefixes for {total:,} lines of text; each line needs one, a blank one too"
            )
            raise DataError(problems=[Problem(message, str(self.prefix_file))])


def read_asked(
    *,
    glossary: Path | None,
    prefix: Path | None,
    forbid: Sequence[str] | None,
    stop: Sequence[str] | None,
    dictionary: Path | None,
) -> Asked:
    """Read the files; what is blank or wrong is refused."""
    from seqloom.core.files import read_lines
    from seqloom.text.glossary import read_glossary
    from seqloom.text.normalise import is_blank

    for flag, values in (("--forbid", forbid), ("--stop", stop)):
        if any(is_blank(value) for value in values or ()):
            raise UsageError(f"{flag} was given nothing that can be seen; name a word, such as {flag} 'Hund'")
    return Asked(
        glossary=None if glossary is None else read_glossary(glossary),
        prefixes=None if prefix is None else tuple("" if is_blank(line) else line for line in read_lines(prefix)),
        prefix_file=prefix,
        forbidden=tuple(forbid or ()),
        stops=tuple(stop or ()),
        dictionary=None if dictionary is None else dict(read_glossary(dictionary).terms),
    )


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
        from seqloom.runs.language_check import Sample, doubt_in_words

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
        from seqloom.text.tokenizer import unfamiliar_share

        shares = {at: unfamiliar_share(tokenizer, line) for at, line in enumerate(lines) if not is_blank(line)}
        if shares and min(shares.values()) == 1:
            return True
        self.strange += [first + at for at, share in shares.items() if share > 0.5]
        return False

    def look_at_places(self, lines: Iterable[tuple[int, str]], tokenizer: "Tokenizer") -> None:
        """Take in lines of the source, each with the number that it is known by; several may share one."""
        from seqloom.text.tokenizer import unfamiliar_share

        shares = [(place, unfamiliar_share(tokenizer, line)) for place, line in lines]
        if any(share < 1 for _, share in shares):  # else another notice says so of the whole
            self.strange += dict.fromkeys(place for place, share in shares if share > 0.5)

    def messages(self, name: str) -> list[str]:
        """A sentence for each thing that was odd in a text of this name."""
        said: list[str] = []
        if self.cut:
            from seqloom.runs.translator import limit_advice

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
