"""Random noun phrases, places and times that make sense."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from phrasebook import tree
from phrasebook.concepts import Adjective, Noun, Region, Time, Verb
from phrasebook.inflection import VOWELS
from phrasebook.lexicon import (
    ADJECTIVES_OF,
    INSIDE,
    NOUNS,
    PEOPLE,
    REGIONS,
    TIMES,
    TOWARDS,
    TRANSITIVE,
    nouns_of,
)
from phrasebook.tree import Determiner, NounPhrase, Pronoun, Tense

T = TypeVar("T")

NAMES = tuple(PEOPLE.values())
KIN = nouns_of("kin")
CITIES = tuple(region for region in REGIONS.values() if region.kind == "city")
LANDS = tuple(REGIONS.values())
SUBJECT_PRONOUNS = (Pronoun.I, Pronoun.YOU, Pronoun.HE, Pronoun.SHE, Pronoun.WE, Pronoun.THEY)
DIRECT_PRONOUNS = (Pronoun.I, Pronoun.YOU, Pronoun.HE, Pronoun.SHE, Pronoun.WE)
INDIRECT_PRONOUNS = (Pronoun.I, Pronoun.YOU, Pronoun.HE, Pronoun.WE, Pronoun.THEY)
OWN = (Determiner.MY, Determiner.YOUR, Determiner.OUR)
# People one can call one's own; of things and pets all.
OWNED_PEOPLE = frozenset(("friend", "neighbour", "colleague", "guest", "teacher", "doctor", "dentist", "lawyer"))
OWNED = frozenset(
    ("thing", "object", "clothes", "vehicle", "pet", "room", "image", "text", "house", "garden", "office")
)
# What one does with one thing: nobody wears five coats or builds bakeries.
ONE_AT_A_TIME = frozenset(("build", "use", "wear", "take", "clean", "visit", "admire", "describe"))
# Nobody builds an old house or washes a clean shirt.
POINTLESS = frozenset((("build", "aged"), ("clean", "clean"), ("wash", "clean"), ("prepare", "cold")))
# Nouns whose grammatical gender is the natural one in every language.
MALE = frozenset(("man", "boy", "king"))
FEMALE = frozenset(("woman", "queen"))
TIMES_OF: dict[str, tuple[Time, ...]] = {
    kind: tuple(time for time in TIMES.values() if time.kind == kind)
    for kind in ("past", "future", "present", "event", "now")
}
# Verbs after which an object relative is plain in every language: no preposition, no coverb, no complement.
PLAIN_VERBS = tuple(
    verb
    for verb in TRANSITIVE.values()
    if not (verb.en.preposition or verb.fr.preposition or verb.de.preposition or verb.zh.coverb or verb.zh.tail)
    and not verb.traits & {"like", "bare", "have", "state"}
)
VERBS_FOR: dict[Noun, tuple[Verb, ...]] = {
    noun: tuple(verb for verb in PLAIN_VERBS if noun in verb.objects and NOUNS["man"] in verb.subjects)
    for noun in NOUNS.values()
}
VERBS_BY: dict[Noun, tuple[Verb, ...]] = {
    noun: tuple(verb for verb in PLAIN_VERBS if noun in verb.subjects) for noun in NOUNS.values()
}


class PhraseSampler:
    """Draws phrases from one stream of random numbers."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed).random

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.random() * len(choices))]

    def chance(self, rate: float) -> bool:
        return self.random() < rate

    def adjective_for(self, noun: Noun, rate: float) -> Adjective | None:
        adjectives = ADJECTIVES_OF[noun]
        return self.pick(adjectives) if adjectives and self.random() < rate else None

    def owner(self, subject: tree.Nominal | None) -> Determiner:
        """A possessive; with a subject often its own: his, her, their."""
        if subject is not None and self.random() < 0.7:
            own = bound_owner(subject)
            if own is not None:
                return own
        return self.pick(OWN)

    def kin(self, owner: Determiner | None = None) -> NounPhrase:
        """A relative of somebody; a husband or a wife is never ours or theirs."""
        noun = self.pick(KIN)
        owner = self.pick(OWN) if owner is None else owner
        return self.relative_of(noun, owner)

    def relative_of(self, noun: Noun, owner: Determiner) -> NounPhrase:
        if noun.name in ("husband", "wife") and owner in (Determiner.OUR, Determiner.THEIR):
            owner = Determiner.MY
        return NounPhrase(noun, owner)

    def subject(self, verb: Verb, rich: bool) -> tree.Nominal:
        """Somebody or something that can do this; `rich` allows adjectives, relatives and coordination."""
        people = NOUNS["man"] in verb.subjects
        x = self.random()
        if people:
            if x < 0.26:
                return self.pick(SUBJECT_PRONOUNS)
            if x < 0.46:
                return self.pick(NAMES)
            if x < 0.53:
                return self.kin()
            if x < 0.57 and rich:
                return self.couple()
        return self.doer(self.pick(verb.subjects), rich)

    def couple(self) -> tree.Both:
        first = self.pick(NAMES)
        if self.chance(0.5):
            second = self.pick(NAMES)
            if second is not first:
                return tree.Both(first, second)
        return tree.Both(first, self.kin())

    def doer(self, noun: Noun, rich: bool) -> NounPhrase:
        adjective = self.adjective_for(noun, 0.35) if rich else None
        x = self.random()
        if x < 0.50:
            plural = self.random() < 0.25
            relative = self.relative(noun, plural) if rich and self.random() < 0.14 else None
            return NounPhrase(noun, Determiner.THE, plural, 0, adjective, relative)
        if x < 0.62:
            return NounPhrase(noun, Determiner.THIS, self.random() < 0.3, 0, adjective)
        if x < 0.72:
            if noun.name in OWNED_PEOPLE or "pet" in noun.classes:
                return NounPhrase(noun, self.pick(OWN), False, 0, adjective)
            return NounPhrase(noun, Determiner.THE, False, 0, adjective)
        if x < 0.82:
            return NounPhrase(noun, Determiner.A, False, 0, adjective)
        if x < 0.90:
            count = 2 + int(self.random() * 4)
            return NounPhrase(noun, self.pick((Determiner.BARE, Determiner.THE)), True, count, adjective)
        if x < 0.96:
            return NounPhrase(noun, self.pick((Determiner.MANY, Determiner.SOME)), True, 0, adjective)
        return NounPhrase(noun, Determiner.EVERY, False, 0, adjective)

    def relative(self, noun: Noun, plural: bool) -> tree.Clause | None:
        """A relative clause on a noun: as the subject or the object of a plain verb."""
        gap = tree.Gap(noun, plural)
        if VERBS_FOR[noun] and (not VERBS_BY[noun] or self.chance(0.5)):
            verb = self.pick(VERBS_FOR[noun])
            subject = self.pick(NAMES) if self.chance(0.5) else self.pick(SUBJECT_PRONOUNS)
            # Always past: Chinese marks no aspect here.
            return tree.Clause(subject, verb, Tense.PAST, object=gap)
        if VERBS_BY[noun]:
            verb = self.pick(VERBS_BY[noun])
            tense = Tense.PAST if self.random() < 0.5 else Tense.PRESENT
            return tree.Clause(gap, verb, tense, object=self.simple_object(self.pick(verb.objects)))
        return None

    def simple_object(self, noun: Noun) -> NounPhrase:
        if noun.is_kin:
            return self.relative_of(noun, self.pick(OWN))
        if noun.is_mass:
            return NounPhrase(noun, Determiner.BARE)
        return NounPhrase(noun, Determiner.THE if self.chance(0.5) else Determiner.A)

    def object(self, verb: Verb, subject: tree.Nominal, *, negative: bool, rich: bool) -> tree.Nominal:
        """Somebody or something this can be done to, as it is said in a positive or a negative clause."""
        noun = self.pick(verb.objects)
        while isinstance(subject, NounPhrase) and subject.noun is noun:
            noun = self.pick(verb.objects)
        classes = noun.classes
        if "person" in classes or noun.is_kin:
            x = self.random()
            if x < 0.22:
                pronoun = self.object_pronoun(subject, INDIRECT_PRONOUNS if verb.fr.preposition else DIRECT_PRONOUNS)
                hidden = pronoun == Pronoun.SHE and verb.fr.present[2][0] in VOWELS and subject != Pronoun.HE
                # French l' hides the gender before a vowel: it is "him" wherever it can be.
                return Pronoun.HE if hidden else pronoun
            if x < 0.42:
                person = self.pick(NAMES)
                if person is not subject and not isinstance(subject, tree.Both):
                    return person
            if noun.is_kin:
                return self.relative_of(noun, self.owner(subject))._replace(adjective=self.adjective_for(noun, 0.1))
        return self.thing(noun, verb, subject, negative=negative, rich=rich)

    def thing(self, noun: Noun, verb: Verb, subject: tree.Nominal, *, negative: bool, rich: bool) -> NounPhrase:
        adjective = self.adjective_for(noun, 0.4) if rich else None
        if adjective is not None and (verb.name, adjective.name) in POINTLESS:
            adjective = None
        traits = verb.traits
        if "have" in traits:
            count = 0 if negative or self.random() < 0.8 else 2 + int(self.random() * 4)
            determiner = Determiner.BARE if count else Determiner.A
            return NounPhrase(noun, determiner, count > 0, count, None if negative else adjective)
        if noun.is_mass or "like" in traits or "bare" in traits:
            return NounPhrase(noun, Determiner.BARE, not noun.is_mass, 0, None if "like" in traits else adjective)
        x = self.random()
        one = verb.name in ONE_AT_A_TIME
        if negative and not one and x >= 0.35 and x < 0.7:
            return NounPhrase(noun, Determiner.BARE, True)
        if x < 0.35 or negative:
            relative = self.relative(noun, False) if rich and self.random() < 0.2 else None
            return NounPhrase(noun, Determiner.THE, x < 0.07 and relative is None and not one, 0, adjective, relative)
        if x < 0.62 or (one and x > 0.84):
            return NounPhrase(noun, Determiner.A, False, 0, adjective)
        if x < 0.72:
            return NounPhrase(noun, Determiner.THIS, x > 0.69 and not one, 0, adjective)
        if x < 0.84 and (noun.name in OWNED_PEOPLE or classes_meet(noun)):
            return NounPhrase(noun, self.owner(subject), x > 0.81 and not one, 0, adjective)
        if one:
            return NounPhrase(noun, Determiner.A, False, 0, adjective)
        if x < 0.93:
            return NounPhrase(noun, Determiner.BARE, True, 2 + int(self.random() * 6), adjective)
        return NounPhrase(noun, Determiner.BARE, True, 0, adjective)

    def object_pronoun(self, subject: tree.Nominal, pronouns: tuple[Pronoun, ...]) -> Pronoun:
        first = isinstance(subject, Pronoun) and subject in (Pronoun.I, Pronoun.WE)
        while True:
            pronoun = self.pick(pronouns)
            if pronoun != subject and not (first and pronoun in (Pronoun.I, Pronoun.WE)):
                return pronoun

    def recipient(self, subject: tree.Nominal) -> tree.Nominal:
        x = self.random()
        if x < 0.35:
            return self.object_pronoun(subject, INDIRECT_PRONOUNS)
        if x < 0.6:
            person = self.pick(NAMES)
            if person is not subject and not isinstance(subject, tree.Both):
                return person
        if x < 0.75:
            return self.kin(self.owner(subject))
        return NounPhrase(self.pick(TRANSITIVE["play"].subjects), Determiner.THE)

    def ground(self, noun: Noun) -> NounPhrase:
        x = self.random()
        if x < 0.12:
            return NounPhrase(noun, Determiner.THE, False, 0, self.adjective_for(noun, 1.0))
        if x < 0.22 and classes_meet(noun):
            return NounPhrase(noun, self.pick(OWN))
        if x < 0.27:
            return NounPhrase(noun, Determiner.THIS)
        return NounPhrase(noun, Determiner.THE)

    def inside(self, noun: Noun) -> tree.Place:
        return tree.Place(INSIDE[noun.name], self.ground(noun))

    def towards(self, noun: Noun) -> tree.Place:
        return tree.Place(TOWARDS[noun.name], self.ground(noun))

    def city(self) -> Region:
        return self.pick(CITIES)

    def past_time(self, *, years: bool = False) -> tree.Sometime:
        x = self.random()
        if x < 0.65 or (x >= 0.9 and not years):
            return self.pick(TIMES_OF["past"])
        if x < 0.8:
            return self.pick(TIMES_OF["event"])
        if x < 0.9:
            return tree.When("ago", 2 + int(self.random() * 9))
        return tree.When("year", 1950 + int(self.random() * 70))

    def future_time(self) -> tree.Sometime:
        x = self.random()
        if x < 0.6:
            return self.pick(TIMES_OF["future"])
        if x < 0.75:
            return self.pick(TIMES_OF["event"])
        if x < 0.85:
            return self.clock()
        return tree.When("date", 1 + int(self.random() * 28), 1 + int(self.random() * 12))

    def clock(self) -> tree.When:
        return tree.When("clock", 1 + int(self.random() * 11), int(self.random() * 1.4))


def classes_meet(noun: Noun) -> bool:
    """Whether the thing can belong to somebody."""
    return not OWNED.isdisjoint(noun.classes)


def bound_owner(subject: tree.Nominal) -> Determiner | None:
    """The possessive that points to this subject, where all languages agree on its gender."""
    if isinstance(subject, Pronoun):
        return (
            Determiner.MY,
            Determiner.YOUR,
            Determiner.HIS,
            Determiner.HER,
            Determiner.OUR,
            Determiner.THEIR,
        )[subject]
    if isinstance(subject, tree.Both):
        return Determiner.THEIR
    if isinstance(subject, NounPhrase):
        if subject.plural:
            # Chinese writes another "they" for women alone.
            return None if "female" in subject.noun.classes else Determiner.THEIR
        if subject.noun.name in MALE:
            return Determiner.HIS
        return Determiner.HER if subject.noun.name in FEMALE else None
    if isinstance(subject, tree.Gap | tree.Echo):
        return None
    return Determiner.HER if subject.feminine else Determiner.HIS
