"""A request: what the translations of some lines must contain, and what is returned with them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from seqloom.core.arguments import as_text, require_instance, shown
from seqloom.core.errors import UsageError
from seqloom.core.symbols import BEGIN, END, PAD, UNKNOWN
from seqloom.runs.translator import Part
from seqloom.search.constraints import All, Constraint, ForbiddenText, Lengths, OneOf, Phrases, Prefix, StopText
from seqloom.search.settings import SearchConfig
from seqloom.text.glossary import Glossary, ways_to_write
from seqloom.text.normalise import is_blank
from seqloom.text.spelling import unwritten, word_borders
from seqloom.text.tokenizer import Tokenizer
from seqloom.text.words import sort_of


@dataclass(frozen=True)
class ConstraintSet:
    """The constraints on the translation of one line. A phrase that is given twice must occur twice."""

    prefix: str = ""
    """How the translation begins."""
    phrases: tuple[str, ...] = ()
    """Words and phrases that it must contain, between word borders."""
    forbidden: tuple[str, ...] = ()
    """Words and phrases that it must not contain between word borders, whatever pieces they are made of."""
    stops: tuple[str, ...] = ()
    """Strings after which it stops, as given or as the model writes them (in lower case, say); the string that was
    found is part of the translation."""
    prefix_ids: tuple[int, ...] = ()
    """The beginning in symbols of the model, for one that its tokeniser would split in another way. With END as the
    last one they are the whole translation."""

    def __post_init__(self) -> None:
        as_text(self.prefix, "prefix")
        require_instance(self.prefix_ids, "prefix_ids", (tuple, list), what="a tuple of ids, such as (17, 4)")
        if self.prefix and self.prefix_ids:
            raise UsageError("prefix and prefix_ids are two ways to give one beginning; leave out one of them")
        for name in ("phrases", "forbidden", "stops"):
            given = getattr(self, name)
            require_instance(given, name, (tuple, list), what="a tuple of text, such as ('guten Morgen',)")
            for each in given:
                as_text(each, f"each of {name}")

    def __bool__(self) -> bool:
        return bool(self.prefix or self.prefix_ids or self.phrases or self.forbidden or self.stops)

    def with_terms(self, line: str, glossary: Glossary) -> "ConstraintSet":
        """The same with the translations of all glossary terms in a line as phrases."""
        terms = tuple(target for _, target in glossary.matches(line))
        return replace(self, phrases=(*self.phrases, *terms))


@dataclass(frozen=True)
class Request:
    """What is requested for some lines."""

    search: SearchConfig | None = None
    """Settings of the search in place of the model's own."""
    constraints: ConstraintSet | Sequence[ConstraintSet | None] | None = None
    """One set for all lines, or one for each line."""
    glossary: Glossary | None = None
    """Terms that must be translated so wherever they occur in a line."""
    dictionary: Mapping[str, str] | None = None
    """Translations of source words that the model cannot write, for `search.unknown=copy`."""
    align: bool = False
    """Return which words of the translation come from which of the source, by attention."""
    tags: bool = False
    """Take tags and placeholders out of the lines, and put them back into the translations by that alignment."""
    pieces: bool = False
    """Return the attention and the pieces of both sides."""

    def __post_init__(self) -> None:
        given: Any = self.constraints
        if given is not None and not isinstance(given, ConstraintSet):
            if isinstance(given, str | bytes) or not isinstance(given, Sequence):
                raise UsageError(
                    f"constraints must be a ConstraintSet, or a list with one or None for each line; got {shown(given)}"
                )
            for each in given:
                if each is not None:
                    what = "a ConstraintSet, such as ConstraintSet(prefix='Guten'), or None"
                    require_instance(each, "each of constraints", ConstraintSet, what=what)
        if self.glossary is not None:
            what = "a Glossary, such as Glossary((('dog', 'Hund'),))"
            require_instance(self.glossary, "glossary", Glossary, what=what)
        if self.dictionary is not None:
            require_instance(self.dictionary, "dictionary", Mapping, what="a mapping from source words to target words")

    def line_constraints(self, lines: int) -> Sequence[ConstraintSet | None]:
        """The constraints on each of so many lines."""
        if self.constraints is None or isinstance(self.constraints, ConstraintSet):
            return [self.constraints] * lines
        if len(self.constraints) != lines:
            raise UsageError(
                f"got {len(self.constraints)} constraint sets for {lines} lines; give one for each line, or None"
            )
        return self.constraints


def part_constraints(
    parts: Sequence[Part], constraints: Sequence[ConstraintSet | None], glossary: Glossary | None = None
) -> list[ConstraintSet | None]:
    """The constraints on each part, from those on the lines; terms of the glossary are looked up in each part.

    A prefix applies to the first part of a line; what is forbidden is forbidden everywhere.
    """
    counts = Counter(part.line for part in parts)
    found: list[ConstraintSet | None] = []
    for part in parts:
        given = constraints[part.line]
        if given and counts[part.line] > 1 and (given.phrases or given.stops):
            raise UsageError(
                f"line {part.number} is translated in {counts[part.line]} parts, and it is not known which of them "
                "should contain a phrase or stop; split the line, or use a glossary"
            )
        if given and not part.is_first:
            given = replace(given, prefix="", prefix_ids=())
        found.append(given if glossary is None else (given or ConstraintSet()).with_terms(part.text, glossary))
    return found


def constraint_of(given: ConstraintSet | None, tokenizer: Tokenizer) -> Constraint | None:
    """A constraint set in the symbols of a model; None if it is empty."""
    if not given:
        return None
    parts: list[Constraint] = []
    if given.prefix:
        ids = tokenizer.encode(given.prefix.strip())
        if UNKNOWN in ids or not ids:
            raise UsageError(
                f"the prefix {given.prefix!r} cannot be written in the vocabulary of this model; choose another"
            )
        parts.append(Prefix(tuple(ids)))
    if given.prefix_ids:
        parts += _prefix_of_ids(tuple(given.prefix_ids), tokenizer)
    if given.phrases:
        ways = {phrase: tuple(ways_to_write(phrase, tokenizer)) for phrase in given.phrases}
        if unwritable := [phrase for phrase, found in ways.items() if not found]:
            raise UsageError(
                f"the phrase {unwritable[0]!r} cannot be written in the vocabulary of this model; choose another, or "
                "train the model with a subword tokeniser and byte fallback, which can write everything"
            )
        phrases = tuple(OneOf(ways[phrase]) for phrase in given.phrases)
        parts.append(Phrases(phrases, END, word_borders(tokenizer)))
    if given.forbidden:
        parts.append(_forbidden_text(given.forbidden, tokenizer))
    if given.stops:
        forms: dict[str, None] = {}
        for stop in given.stops:
            # As the model writes it; spaces at its ends, which mean that a word ends there, stay.
            normal, left, right = tokenizer.normaliser(stop), stop[:1].isspace(), stop[-1:].isspace()
            forms |= dict.fromkeys((stop, f"{' ' * left}{normal}{' ' * right}" if normal else stop))
        parts.append(StopText(tokenizer.decode, tuple(forms)))
    return All(tuple(parts))


def _prefix_of_ids(ids: tuple[int, ...], tokenizer: Tokenizer) -> list[Constraint]:
    is_whole = ids[-1] == END
    symbols = ids[:-1] if is_whole else ids
    for symbol in symbols:
        if not isinstance(symbol, int) or symbol in (PAD, BEGIN, END) or not 0 <= symbol < tokenizer.size:
            raise UsageError(
                f"{shown(symbol)} cannot be part of prefix_ids; give ids below {tokenizer.size:,} that are not "
                "reserved, and END at most as the last one"
            )
    only_end = [Lengths(len(symbols), len(symbols), END)] if is_whole else []
    return [Prefix(symbols), *only_end]


def required_symbols(given: ConstraintSet | None, tokenizer: Tokenizer) -> set[int]:
    """The symbols that a shortlist must contain: those of forced text, and letters to continue a forbidden word."""
    if not given:
        return set()
    ways = [way for phrase in given.phrases for way in ways_to_write(phrase, tokenizer)]
    found = {symbol for way in ways for symbol in way} | set(
        tokenizer.encode(given.prefix.strip()) if given.prefix else given.prefix_ids
    )
    return found | _letters(tokenizer) if given.forbidden else found


@lru_cache(maxsize=8)
def _letters(tokenizer: Tokenizer) -> frozenset[int]:
    """The pieces of one character that continue a word, so that a word can still become another."""
    if tokenizer.kind == "word":
        return frozenset()
    sorts = {number: sort_of(piece) for number in range(tokenizer.size) if len(piece := tokenizer.piece(number)) == 1}
    return frozenset(number for number, sort in sorts.items() if sort.is_in_word and not sort.is_unspaced)


@lru_cache(maxsize=8)
def _forbidden_text(phrases: tuple[str, ...], tokenizer: Tokenizer) -> ForbiddenText:
    """One object for all sentences, since it remembers what it has found out."""
    if any(is_blank(phrase) for phrase in phrases):
        raise UsageError(f"a forbidden phrase is blank: {phrases}; leave it out")
    return ForbiddenText(unwritten(tokenizer, phrases), phrases, tokenizer.size, END)
