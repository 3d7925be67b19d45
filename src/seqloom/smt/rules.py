"""Reordering rules over classes of words, as a dictionary translator applies them to the phrases of a sentence.

A file of rules is a YAML list. Each rule has the classes of neighbouring phrases, and the order they get:

    - from: [noun, adjective]         # a class of the dictionary
      to: [adjective, noun]
    - from: [verb, "word:nicht", "*"]   # a source word, in any case; any phrase
      to: [2, 1, 3]                   # places in `from`, counted from 1

Rules are tried from left to right: at each phrase the first rule of the file whose classes match is applied, and the
next phrase looked at is the one after those that it has ordered. So each phrase is moved once at most.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.core.config import parse_yaml
from seqloom.core.errors import ConfigError
from seqloom.core.files import read_lines

ANY = "*"
WORD = "word:"


class Phrase(NamedTuple):
    """What rules see of a part of a sentence."""

    words: tuple[str, ...]
    """As they are written."""
    category: str
    """Its class; empty if it has none."""


@dataclass(frozen=True)
class Rule:
    """An order for neighbouring phrases."""

    patterns: tuple[str, ...]
    """A class, `word:…` for a source word, or `*` for any phrase."""
    order: tuple[int, ...]
    """Which of them comes first, second, …, counted from 0."""

    def matches(self, phrases: Sequence[Phrase]) -> bool:
        """Whether these phrases, as many as there are patterns, match them."""
        return len(phrases) == len(self.patterns) and all(map(_matches, self.patterns, phrases))


def _matches(pattern: str, phrase: Phrase) -> bool:
    if pattern.startswith(WORD):
        return len(phrase.words) == 1 and phrase.words[0].lower() == pattern.removeprefix(WORD).lower()
    return pattern in (ANY, phrase.category)


def reorder(phrases: Sequence[Phrase], rules: Sequence[Rule]) -> list[int]:
    """The places of the phrases in their new order."""
    order: list[int] = []
    while (at := len(order)) < len(phrases):
        found = next((rule for rule in rules if rule.matches(phrases[at : at + len(rule.patterns)])), None)
        order += [at] if found is None else [at + place for place in found.order]
    return order


def read_rules(path: Path, classes: Collection[str], *, origin: str) -> tuple[Rule, ...]:
    """The rules of a file. Classes that the dictionary does not have are refused; `origin` says where its are from."""
    values, places = parse_yaml("\n".join(read_lines(path)), lambda line: f"{path}:{line}")
    if not isinstance(values, list):
        raise ConfigError(f"{path}:1: rules are a list of `- from: [noun, adjective]` with `to: [adjective, noun]`")
    rules = []
    for number, value in enumerate(values):
        place = places.get((str(number),)) or next(
            (each for keys, each in places.items() if keys[0] == str(number)), str(path)
        )
        rule = _rule(value, place)
        for pattern in rule.patterns:
            if not pattern.startswith(WORD) and pattern != ANY and pattern not in classes:
                others = f"{WORD}… for a source word, or {ANY} for any phrase"
                if not classes:
                    raise ConfigError(
                        f"{place}: unknown class {pattern!r}; there are no classes in {origin}. Name {others}"
                    )
                raise ConfigError(
                    f"{place}: unknown class {pattern!r}; classes are those of {origin}, and they are "
                    f"{', '.join(sorted(classes))}. Name one of them, {others}"
                )
        rules.append(rule)
    return tuple(rules)


def _rule(value: Any, place: str) -> Rule:
    if not isinstance(value, dict) or set(value) != {"from", "to"}:
        raise ConfigError(f"{place}: a rule has `from` and `to`, as in from: [noun, adjective] and to: [2, 1]")
    patterns, wanted = value["from"], value["to"]
    is_list = isinstance(patterns, list) and all(isinstance(each, str) and each for each in patterns)
    if not is_list or len(patterns) < 2:
        raise ConfigError(
            f"{place}: `from` is a list of two or more classes, such as [noun, adjective]; got {patterns!r}"
        )
    order = wanted
    if isinstance(wanted, list) and all(isinstance(each, str) for each in wanted):
        if len(set(patterns)) < len(patterns):
            raise ConfigError(
                f"{place}: `from` has a class twice, so `to` must have places counted from 1, such as [2, 1]; "
                f"got {wanted}"
            )
        order = [patterns.index(each) + 1 if each in patterns else 0 for each in wanted]
    if not isinstance(order, list) or sorted(map(str, order)) != sorted(map(str, range(1, len(patterns) + 1))):
        raise ConfigError(f"{place}: `to` must have each of {patterns} once, or its place from 1 on; got {wanted!r}")
    return Rule(tuple(patterns), tuple(each - 1 for each in order))
