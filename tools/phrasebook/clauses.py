"""Random clauses that make sense in all languages."""

from typing import NamedTuple

from phrasebook import tree
from phrasebook.concepts import Adverb, Verb
from phrasebook.lexicon import (
    ADJECTIVES_OF,
    DITRANSITIVE,
    FREQUENCIES,
    INTRANSITIVE,
    LOCAL,
    MANNERS_OF,
    MODALS,
    MOTION,
    NOUNS,
    RELATIONS,
    SCENES,
    TIMES,
    TRANSITIVE,
    WEATHER,
    nouns_of,
)
from phrasebook.phrases import KIN, LANDS, NAMES, OWN, TIMES_OF, PhraseSampler
from phrasebook.tree import Clause, Copula, Determiner, NounPhrase, Pronoun, Tense

INTRANSITIVES = tuple(INTRANSITIVE.values())
TRANSITIVES = tuple(TRANSITIVE.values())
DITRANSITIVES = tuple(DITRANSITIVE.values())
MOTIONS = tuple(MOTION.values())
FREQUENTLY = tuple(FREQUENCIES.values())
ABLE = tuple(MODALS.values())
VAGUE = (Determiner.EVERY, Determiner.MANY, Determiner.SOME)
# Done in a moment: no progressive.
MOMENTARY = frozenset(("see", "hear", "find", "lose", "forget", "meet", "wear", "rise", *MOTION))
# Qualities that come and go: only these have a past and a future.
CHANGING = {
    *("tired", "happy", "sad", "nervous", "rich", "poor", "polite", "patient", "friendly", "lazy", "quiet", "clean"),
    *("dirty", "cold", "hot", "fresh", "expensive", "cheap", "famous", "curious", "diligent", "dangerous"),
}
# Verbs that Chinese makes with a result (看见, 找到): no plain negation of the present.
RESULTATIVE = frozenset(("see", "hear", "find", "lose", "meet"))
# What one remembers by the year.
REMEMBERED = frozenset(("build", "visit", "photograph", "travel", "study", "write", "paint", "meet", *MOTION))
PAST_YEARS = tuple(TIMES[name] for name in ("last_year", "last_summer", "last_winter", "last_month"))
ANIMAL_GOALS = tuple(NOUNS[name] for name in ("garden", "forest", "park", "lake", "kitchen", "village"))
WALKS = tuple(
    NOUNS[name]
    for name in (
        "school", "university", "station", "restaurant", "museum", "theatre", "cinema", "library", "church",
        "supermarket", "bakery", "bank", "pharmacy", "office", "garden", "park", "market", "kitchen", "cellar",
    )
)  # fmt: skip
DRIVES = tuple(NOUNS[name] for name in ("station", "airport", "hospital", "supermarket", "hotel", "beach", "factory"))
SURFACES = tuple(NOUNS[name] for name in ("table", "chair", "bed", "sofa"))
LANDMARKS = tuple(NOUNS[name] for name in ("house", "church", "school", "hotel", "tree", "bridge", "tower", "station"))
OBJECTS = nouns_of("object")
STANDING = nouns_of("furniture vehicle")
COMPARED = tuple(nouns_of(kind) for kind in ("animal", "clothes", "furniture", "vehicle", "fruit", "job"))
JOBS = nouns_of("job")
DESCRIBED = tuple(noun for noun in NOUNS.values() if ADJECTIVES_OF[noun] and not noun.is_mass)
FOODS = tuple(noun for noun in nouns_of("mass") if ADJECTIVES_OF[noun])
CHILDREN = tuple(NOUNS[name] for name in ("child", "boy", "girl"))


class Setting(NamedTuple):
    """When and how often something is done, or not."""

    tense: Tense
    negated: bool
    time: tree.Sometime | None = None
    frequency: Adverb | None = None


class ClauseSampler(PhraseSampler):
    """Draws clauses; `rich` ones have adjuncts, adjectives and relative clauses."""

    def clause(self, rich: bool = True) -> tree.Proposition:
        x = self.random()
        if x < 0.16:
            return self.act(self.pick(INTRANSITIVES), rich=rich)
        if x < 0.60:
            return self.act(self.pick(TRANSITIVES), rich=rich)
        if x < 0.70:
            return self.act(self.pick(DITRANSITIVES), rich=rich)
        if x < 0.80:
            return self.act(self.pick(MOTIONS), rich=rich)
        if x < 0.83:
            return self.residence()
        if x < 0.85:
            return self.weather()
        return self.being(rich)

    def act(self, verb: Verb, *, rich: bool = True) -> Clause:
        """A clause with this verb: tense and time first, then who, what and where."""
        tense, negated, time, frequency = self.setting(verb, rich)
        who = self.subject(verb, rich)
        modal = None
        if tense == Tense.PRESENT and frequency is None and not verb.traits and self.random() < 0.2:
            modal = self.pick(ABLE)
            negated = negated and modal.name != "must"
            if time is not None:
                time = self.future_time() if self.chance(0.7) else None
        negative = negated or (frequency is not None and frequency.name == "never")
        if isinstance(who, NounPhrase) and who.determiner in VAGUE and (negative or tense == Tense.PERFECT):
            # "Every man does not sleep" has two readings.
            who = who._replace(determiner=Determiner.THE)
        thing = self.object(verb, who, negative=negative, rich=rich) if verb.objects else None
        recipient = self.recipient(who) if verb.name in DITRANSITIVE else None
        goal = self.goal(verb, who, tense) if verb.name in MOTION else None
        place = manner = None
        if rich and not verb.traits and goal is None:
            if MANNERS_OF[verb.name] and not negative and self.random() < 0.15:
                manner = self.pick(MANNERS_OF[verb.name])
            elif self.random() < (0.5 if thing is None else 0.4) and not isinstance(thing, Pronoun):
                place = self.scene(verb)
        if isinstance(thing, NounPhrase) and thing.relative is not None and (place or time):
            # What follows a relative clause would be read as part of it.
            thing = thing._replace(relative=None)
        fronted = rich and time is not None and self.random() < 0.25
        return Clause(who, verb, tense, negated, modal, thing, recipient, place, goal, time, frequency, manner, fronted)

    def setting(self, verb: Verb, rich: bool) -> Setting:
        """Tense, negation and time that go together and with the verb."""
        x = self.random()
        negated = self.random() < 0.14
        if verb.traits:
            if "have" in verb.traits and x < 0.25:
                return Setting(Tense.PAST, negated, self.past_time())
            return Setting(Tense.PRESENT, negated)
        if x < 0.36:
            return self.present_setting(verb, rich, negated)
        if x < 0.44 and verb.name not in MOMENTARY:
            return Setting(Tense.PROGRESSIVE, negated, TIMES["now"])
        if x < 0.50:
            return Setting(Tense.PERFECT, negated)
        timed = self.random() < 0.75
        if x < 0.80:
            return Setting(Tense.PAST, negated, self.past_time(years=verb.name in REMEMBERED) if timed else None)
        return Setting(Tense.FUTURE, negated, self.future_time() if timed else None)

    def present_setting(self, verb: Verb, rich: bool, negated: bool) -> Setting:
        resultative = verb.name in RESULTATIVE
        x = self.random()
        if rich and x < 0.3:
            # The last frequency is "never", which is a negation as well.
            return Setting(Tense.PRESENT, False, None, self.pick(FREQUENTLY[:-1] if resultative else FREQUENTLY))
        if rich and x < 0.72:
            # "Does not read every day" has two readings.
            return Setting(Tense.PRESENT, False, self.pick(TIMES_OF["present"]))
        return Setting(Tense.PRESENT, negated and not resultative, self.clock() if rich and x < 0.82 else None)

    def goal(self, verb: Verb, who: tree.Nominal, tense: Tense) -> tree.Somewhere:
        if tense != Tense.FUTURE and verb.name != "run_to" and self.random() < 0.1:
            # French drops y before the future of aller.
            return tree.There()
        if isinstance(who, NounPhrase) and "animal" in who.noun.classes:
            return self.towards(self.pick(ANIMAL_GOALS))
        if verb.name == "fly" or (verb.name in ("drive", "return") and self.chance(0.5)):
            return self.pick(LANDS)
        return self.towards(self.pick(DRIVES if verb.name == "drive" else WALKS))

    def scene(self, verb: Verb) -> tree.Somewhere | None:
        places = SCENES.get(verb.name)
        if not places:
            return None
        if verb.name in ("work", "study", "meet", "travel", "dance", "sing") and self.chance(0.3):
            return self.city()
        return self.inside(self.pick(places))

    def residence(self) -> Clause:
        verb = LOCAL["live"] if self.chance(0.6) else LOCAL["come"]
        who = self.subject(verb, True)
        place = self.pick(LANDS)
        if verb.name == "live" and self.chance(0.3):
            time: tree.Sometime = self.pick(PAST_YEARS)
            if self.chance(0.5):
                time = tree.When("year", 1950 + int(self.random() * 70))
            return Clause(who, verb, Tense.PAST, False, place=place, time=time, fronted=self.chance(0.3))
        return Clause(who, verb, negated=self.chance(0.12), place=place)

    def weather(self) -> Clause:
        verb = self.pick(tuple(WEATHER.values()))
        x = self.random()
        place = self.pick(LANDS) if self.chance(0.6) else None
        negated = self.chance(0.15)
        if x < 0.35:
            frequency = FREQUENCIES[self.pick(("often", "sometimes", "rarely"))]
            return Clause(Pronoun.WEATHER, verb, place=place, frequency=frequency)
        if x < 0.7:
            return Clause(Pronoun.WEATHER, verb, Tense.PAST, negated, place=place, time=self.past_time())
        return Clause(Pronoun.WEATHER, verb, Tense.FUTURE, negated, place=place, time=self.future_time())

    def being(self, rich: bool = True) -> Copula:
        x = self.random()
        if x < 0.5:
            return self.quality(rich)
        if x < 0.62:
            return self.profession()
        if x < 0.80:
            return self.location()
        if x < 0.92:
            return self.comparison()
        child: tree.Nominal = self.pick(NAMES)
        if self.chance(0.5):
            child = NounPhrase(self.pick(CHILDREN), self.pick((Determiner.THE, Determiner.THIS)))
        return Copula(child, tree.Age(2 + int(self.random() * 11)))

    def profession(self) -> Copula:
        x = self.random()
        who: tree.Nominal = self.pick((Pronoun.HE, Pronoun.SHE))
        if x < 0.7:
            who = self.pick(NAMES) if x < 0.35 else self.kin()
        return Copula(who, self.pick(JOBS), negated=self.chance(0.2))

    def quality(self, rich: bool) -> Copula:
        x = self.random()
        if x < 0.45:
            noun = self.pick(DESCRIBED)
            adjective = self.pick(ADJECTIVES_OF[noun])
            if noun.is_kin:
                who: tree.Nominal = self.relative_of(noun, self.pick(OWN))
            else:
                who = self.doer(noun, False)
            if isinstance(who, NounPhrase) and who.determiner == Determiner.A:
                who = who._replace(determiner=Determiner.THIS)
        elif x < 0.55:
            noun = self.pick(FOODS)
            adjective = self.pick(ADJECTIVES_OF[noun])
            who = NounPhrase(noun, Determiner.THE)
        else:
            who = (
                self.pick(NAMES)
                if self.chance(0.5)
                else self.pick((Pronoun.I, Pronoun.YOU, Pronoun.HE, Pronoun.SHE, Pronoun.WE, Pronoun.THEY))
            )
            adjective = self.pick(ADJECTIVES_OF[KIN[0]])
        y = self.random()
        negated = self.random() < 0.15 and not (isinstance(who, NounPhrase) and who.determiner in VAGUE)
        very = not negated and not adjective.zh.endswith("色") and self.random() < 0.3
        if adjective.name in CHANGING and y < 0.3:
            time = self.pick(TIMES_OF["past"])
            return Copula(who, adjective, Tense.PAST, negated, very, time, rich and self.chance(0.3))
        if adjective.name in CHANGING and y < 0.45:
            return Copula(who, adjective, Tense.FUTURE, negated, very, self.pick(TIMES_OF["future"]))
        return Copula(who, adjective, Tense.PRESENT, negated, very)

    def location(self) -> Copula:
        x = self.random()
        negated = self.chance(0.15)
        if x < 0.5:
            thing = NounPhrase(self.pick(OBJECTS), self.pick((Determiner.THE, Determiner.THE, *OWN)))
            surface = self.pick(SURFACES)
            if self.chance(0.5):
                where = self.inside(surface)
            else:
                where = tree.Place(
                    self.pick((RELATIONS["under"], RELATIONS["beside"], RELATIONS["behind"])), self.ground(surface)
                )
            return Copula(thing, where, negated=negated)
        if x < 0.75:
            who: tree.Nominal = (
                self.pick(NAMES) if self.chance(0.5) else self.pick((Pronoun.HE, Pronoun.SHE, Pronoun.THEY))
            )
            return Copula(who, self.inside(self.pick(WALKS)), negated=negated)
        relation = self.pick((RELATIONS["behind"], RELATIONS["before"], RELATIONS["beside"]))
        ground = self.ground(self.pick(LANDMARKS))
        thing = NounPhrase(self.pick(STANDING) if self.chance(0.5) else self.pick(LANDMARKS), Determiner.THE)
        if thing.noun is ground.noun:
            thing = NounPhrase(NOUNS["car"], Determiner.THE)
        return Copula(thing, tree.Place(relation, ground), negated=negated)

    def comparison(self) -> Copula:
        if self.chance(0.4):
            first, second = self.pick(NAMES), self.pick(NAMES)
            if first is not second:
                return Copula(first, tree.Comparison(self.pick(ADJECTIVES_OF[KIN[0]]), second))
        nouns = self.pick(COMPARED)
        one, other = self.pick(nouns), self.pick(nouns)
        while other is one:
            other = self.pick(nouns)
        shared = [
            adjective
            for adjective in ADJECTIVES_OF[one]
            if adjective in ADJECTIVES_OF[other] and not adjective.zh.endswith("色")
        ]
        determiner = Determiner.THIS if self.chance(0.3) else Determiner.THE
        than = NounPhrase(other, determiner)
        return Copula(NounPhrase(one, determiner), tree.Comparison(self.pick(shared), than))
