"""What the grammar talks about: concepts, each carrying its forms in every language.

A concept is one object, compared by identity. Its `code` is a fixed 63-bit number from which the splits are made.
"""

from dataclasses import dataclass
from typing import NamedTuple

from seqloom.core.seeds import seed_for


def code_of(name: str) -> int:
    """The fixed number of a concept, the same on every machine."""
    return seed_for(0, f"phrasebook concept {name}")


class EnglishVerb(NamedTuple):
    base: str
    third: str
    past: str
    participle: str
    progressive: str
    tail: str
    preposition: str


class FrenchNoun(NamedTuple):
    singular: str
    plural: str
    feminine: bool
    # False before a consonant and before an aspirated h: no elision, no liaison form.
    elides: bool


class FrenchVerb(NamedTuple):
    infinitive: str
    present: tuple[str, ...]
    imperfect: tuple[str, ...]
    future: tuple[str, ...]
    participle: str
    etre: bool
    reflexive: bool
    tail: str
    preposition: str


class GermanNoun(NamedTuple):
    # 0 masculine, 1 feminine, 2 neuter
    gender: int
    # nominative, accusative, dative
    singular: tuple[str, str, str]
    plural: tuple[str, str, str]


class GermanVerb(NamedTuple):
    infinitive: str
    present: tuple[str, ...]
    participle: str
    prefix: str
    sein: bool
    reflexive: bool
    tail: str
    preposition: str
    # The case of the object: 1 accusative, 2 dative.
    case: int
    imperative: str


class ChineseVerb(NamedTuple):
    word: str
    tail: str
    coverb: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Concept:
    name: str
    code: int

    def __repr__(self) -> str:
        return f"<{self.name}>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Noun(Concept):
    classes: frozenset[str]
    en: tuple[str, str]
    fr: FrenchNoun
    de: GermanNoun
    # The word and its classifier.
    zh: tuple[str, str]
    # French and German predicate of a woman in this profession.
    woman: tuple[str, str]
    is_mass: bool
    is_kin: bool


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Verb(Concept):
    traits: frozenset[str]
    subjects: tuple[Noun, ...]
    objects: tuple[Noun, ...]
    en: EnglishVerb
    fr: FrenchVerb
    de: GermanVerb
    zh: ChineseVerb
    # The slot of the fixed complement: its own where every language has one (play "the piano"), else the verb's.
    complement: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Modal(Concept):
    """A verb that is followed by an infinitive; `en` is plain for first person and third person."""

    en: tuple[str, str]
    fr: tuple[str, ...]
    de: tuple[str, ...]
    zh: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Adjective(Concept):
    classes: frozenset[str]
    en: str
    en_comparative: str
    # masculine, masculine before a vowel, feminine, masculine plural, feminine plural
    fr: tuple[str, str, str, str, str]
    fr_precedes: bool
    de: str
    de_stem: str
    de_comparative: str
    zh: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Person(Concept):
    """A person's name, in the order of the languages."""

    feminine: bool
    en: str
    fr: str
    de: str
    zh: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Region(Concept):
    """A city or a country."""

    kind: str
    en: str
    fr: str
    fr_in: str
    fr_from: str
    de: str
    zh: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Relation(Concept):
    """How something lies to a place: prepositions, and what Chinese puts behind the noun."""

    en: str
    fr: str
    de: str
    # The German case: 1 accusative for a goal, 2 dative.
    case: int
    zh: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Adverb(Concept):
    en: str
    fr: str
    de: str
    zh: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Time(Concept):
    """A time expression; `kind` says with which tenses it goes."""

    kind: str
    en: str
    fr: str
    de: str
    zh: str
