"""The abstract trees: what is said, before any language says it.

Trees are tuples of concepts and features, so they are values: equal when they say the same. The third person
possessives HIS, HER and THEIR always refer to the subject of their clause, and GAP stands where a relative clause
lacks its subject or object.
"""

from enum import IntEnum
from typing import NamedTuple, TypeAlias

from phrasebook.concepts import Adjective, Adverb, Modal, Noun, Person, Region, Relation, Time, Verb


class Determiner(IntEnum):
    THE = 0
    A = 1
    BARE = 2
    THIS = 3
    EVERY = 4
    MANY = 5
    SOME = 6
    MY = 7
    YOUR = 8
    HIS = 9
    HER = 10
    OUR = 11
    THEIR = 12


class Tense(IntEnum):
    PRESENT = 0
    PAST = 1
    FUTURE = 2
    # "is doing", always with "now"
    PROGRESSIVE = 3
    # "has already done"; negated: "has never done"
    PERFECT = 4


class Pronoun(IntEnum):
    I = 0  # noqa: E741 - the English word
    YOU = 1
    HE = 2
    SHE = 3
    WE = 4
    THEY = 5
    # The subject of "it rains"
    WEATHER = 6


class Wh(IntEnum):
    WHAT = 0
    WHO = 1
    WHERE = 2
    WHEN = 3
    WHY = 4


class NounPhrase(NamedTuple):
    noun: Noun
    determiner: Determiner = Determiner.THE
    plural: bool = False
    # 0, or how many
    number: int = 0
    adjective: Adjective | None = None
    relative: "Clause | None" = None


class Both(NamedTuple):
    """Two persons or things joined by "and"."""

    first: "NounPhrase | Person"
    second: "NounPhrase | Person"


class Gap(NamedTuple):
    """The place in a relative clause that its head noun fills."""

    noun: Noun
    plural: bool


class Echo(NamedTuple):
    """ "It" or "them", for a thing named just before."""

    noun: Noun
    plural: bool


Nominal: TypeAlias = NounPhrase | Person | Pronoun | Both | Gap | Echo


def is_woman(subject: Nominal) -> bool:
    """Whether the languages with a form for women use it here."""
    if isinstance(subject, Person):
        return subject.feminine
    if isinstance(subject, Pronoun):
        return subject == Pronoun.SHE
    return isinstance(subject, NounPhrase) and "female" in subject.noun.classes


class Place(NamedTuple):
    """Somewhere: a relation to a noun phrase."""

    relation: Relation
    ground: NounPhrase


class When(NamedTuple):
    """A time made of numbers: a date (day, month), a clock time (hour, half), a number of days ago, a year."""

    kind: str
    first: int
    second: int = 0


class There(NamedTuple):
    """ "There", a goal that was named before."""


Somewhere: TypeAlias = Place | Region | There
Sometime: TypeAlias = Time | When


class Clause(NamedTuple):
    subject: Nominal
    verb: Verb
    tense: Tense = Tense.PRESENT
    negated: bool = False
    modal: Modal | None = None
    object: Nominal | None = None
    recipient: Nominal | None = None
    place: Somewhere | None = None
    goal: Somewhere | None = None
    time: Sometime | None = None
    frequency: Adverb | None = None
    manner: Adverb | None = None
    fronted: bool = False


class Comparison(NamedTuple):
    adjective: Adjective
    than: Nominal


class Age(NamedTuple):
    years: int


class Copula(NamedTuple):
    """ "To be" with an adjective, a profession, a place, a comparison or an age."""

    subject: Nominal
    predicate: "Adjective | Noun | Place | Comparison | Age"
    tense: Tense = Tense.PRESENT
    negated: bool = False
    very: bool = False
    time: Sometime | None = None
    fronted: bool = False


Proposition: TypeAlias = Clause | Copula


class Statement(NamedTuple):
    clause: Proposition


class Question(NamedTuple):
    clause: Proposition


class OpenQuestion(NamedTuple):
    """A question for the object (WHAT), the subject (WHO), the place, the time or the reason."""

    asks: Wh
    clause: Clause


class WhereIs(NamedTuple):
    """ "Excuse me, where is the station?" when polite, else without the first words."""

    thing: NounPhrase
    polite: bool


class HowMany(NamedTuple):
    """ "How many books does Anna buy?" """

    noun: Noun
    clause: Clause


class Order(NamedTuple):
    """A command to one person, with or without "please"."""

    verb: Verb
    object: NounPhrase | None
    negated: bool
    polite: bool
    # "Give me the book!"
    to_me: bool = False


class Joined(NamedTuple):
    """Two clauses joined by "and", "but", "so", "because" or "if" (the condition comes second)."""

    link: str
    first: Proposition
    second: Proposition


class Reported(NamedTuple):
    """ "Anna thinks that …" """

    subject: Nominal
    verb: Verb
    clause: Proposition


class Existence(NamedTuple):
    """ "There are two museums in this town." """

    thing: NounPhrase
    place: Place


class ClockIs(NamedTuple):
    """ "It is three o'clock." """

    hour: int
    half: bool


class Note(NamedTuple):
    """A fixed sentence of the lecture notes."""

    which: int


Sentence: TypeAlias = (
    Statement | Question | OpenQuestion | WhereIs | HowMany | Order | Joined | Reported | Existence | ClockIs | Note
)
