"""What somebody wants of a translation, in words: how it begins, what it must and must not hold, where it stops."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from seqloom.core.arguments import as_text, require_instance
from seqloom.core.errors import UsageError
from seqloom.core.symbols import END, UNKNOWN
from seqloom.runs.long_lines import Part
from seqloom.search.constraints import All, Constraint, ForbiddenText, OneOf, Phrases, Prefix, StopText
from seqloom.text.glossary import Glossary, ways_to_write
from seqloom.text.normalise import is_blank
from seqloom.text.spelling import unwritten, word_borders
from seqloom.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Wish:
    """The wishes for one line. A phrase that is named twice must come twice."""

    prefix: str = ""
    """How the translation begins."""
    phrases: tuple[str, ...] = ()
    """Words and phrases that it must hold, between borders of words."""
    forbidden: tuple[str, ...] = ()
    """Words and phrases that must not stand in it between borders of words, whatever pieces it is made of."""
    stops: tuple[str, ...] = ()
    """Strings after which it stops, as they are or as the model writes them (in small letters, say); what was found is
    part of the translation."""

    def __post_init__(self) -> None:
        as_text(self.prefix, "prefix")
        for name in ("phrases", "forbidden", "stops"):
            given = getattr(self, name)
            require_instance(given, name, (tuple, list), what="a tuple of text, such as ('guten Morgen',)")
            for each in given:
                as_text(each, f"each of {name}")

    def __bool__(self) -> bool:
        return bool(self.prefix or self.phrases or self.forbidden or self.stops)


def by_glossary(line: str, glossary: Glossary, wish: Wish | None = None) -> Wish:
    """A wish that holds, besides, the translations of all terms in a line."""
    wish = wish or Wish()
    terms = tuple(target for _, target in glossary.matches(line))
    return Wish(wish.prefix, (*wish.phrases, *terms), wish.forbidden, wish.stops)


def wishes_of_parts(
    parts: Sequence[Part], wishes: Sequence[Wish | None] | None, glossary: Glossary | None = None
) -> list[Wish | None]:
    """The wish of each part, from those of the lines; terms of the glossary are looked for in each part.

    A prefix is how the first part of a line begins; what is forbidden is forbidden everywhere.
    """
    counts = Counter(part.line for part in parts)
    found: list[Wish | None] = []
    for part in parts:
        wish = None if wishes is None else wishes[part.line]
        if wish and counts[part.line] > 1 and (wish.phrases or wish.stops):
            raise UsageError(
                f"line {part.number} is translated in {counts[part.line]} parts, and it is not known which of them "
                "should contain a phrase or stop; split the line, or use a glossary"
            )
        if wish and not part.is_first:
            wish = replace(wish, prefix="")
        found.append(wish if glossary is None else by_glossary(part.text, glossary, wish))
    return found


def constraint_of(wish: Wish | None, tokenizer: Tokenizer) -> Constraint | None:
    """A wish in the symbols of a model; None where nothing is wished."""
    if not wish:
        return None
    parts: list[Constraint] = []
    if wish.prefix:
        parts.append(Prefix(tuple(_known(tokenizer.encode(wish.prefix), wish.prefix, what="prefix"))))
    if wish.phrases:
        phrases = tuple(OneOf(_ways(phrase, tokenizer)) for phrase in wish.phrases)
        parts.append(Phrases(phrases, END, word_borders(tokenizer)))
    if wish.forbidden:
        parts.append(_never(wish.forbidden, tokenizer))
    if wish.stops:
        written = [form for stop in wish.stops for form in (stop, _as_written(stop, tokenizer))]
        parts.append(StopText(tokenizer.decode, tuple(dict.fromkeys(written))))
    return All(tuple(parts))


@lru_cache(maxsize=8)
def _never(phrases: tuple[str, ...], tokenizer: Tokenizer) -> ForbiddenText:
    """One object for all sentences, since it remembers what it has found out."""
    if any(is_blank(phrase) for phrase in phrases):
        raise UsageError(f"a forbidden phrase has nothing that can be seen: {phrases}; leave it out")
    return ForbiddenText(unwritten(tokenizer, phrases), phrases, tokenizer.size, END)


def _ways(phrase: str, tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    ways = ways_to_write(phrase, tokenizer)
    if not ways:
        raise UsageError(
            f"the phrase {phrase!r} cannot be written in the vocabulary of this model; choose another, or train the "
            "model with a subword tokeniser and byte fallback, which can write everything"
        )
    return tuple(ways)


def _as_written(text: str, tokenizer: Tokenizer) -> str:
    """A text in the letters that the model knows; spaces at its ends, which mean that a word ends there, stay."""
    normal = tokenizer.normaliser(text)
    left, right = text[:1].isspace(), text[-1:].isspace()
    return f"{' ' * left}{normal}{' ' * right}" if normal else text


def _known(ids: list[int], text: str, *, what: str) -> list[int]:
    if UNKNOWN in ids or not ids:
        raise UsageError(f"the {what} {text!r} cannot be written in the vocabulary of this model; choose another")
    return ids
