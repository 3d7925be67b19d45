"""Random sentences that make sense.

Only `Random.random` is used, because it alone gives the same numbers on every Python version. Choices that some
language cannot express apart are not made: "her" is never a recipient (French lui is him and her), "them" never a
direct object (German sie is her and them), and his, her and their point to the subject.
"""

from seqloom.data.phrasebook import tree
from seqloom.data.phrasebook.clauses import INTRANSITIVES, LANDMARKS, ClauseSampler
from seqloom.data.phrasebook.lexicon import (
    ADJECTIVES,
    CLAUSAL,
    DITRANSITIVE,
    INSIDE,
    NOUNS,
    TRANSITIVE,
    VERBS,
    nouns_of,
)
from seqloom.data.phrasebook.notes import NOTES
from seqloom.data.phrasebook.phrases import KIN, NAMES, OWN, PLAIN_VERBS, SUBJECT_PRONOUNS
from seqloom.data.phrasebook.tree import Clause, Copula, Determiner, NounPhrase, Pronoun, Tense, Wh

THINKING = tuple(CLAUSAL.values())
FEELINGS = tuple(
    ADJECTIVES[name] for name in ("tired", "happy", "sad", "nervous", "lazy", "curious", "brave", "clever")
)
CONSEQUENCES = tuple(
    VERBS[name] for name in (*[verb.name for verb in INTRANSITIVES], "go", "return", "help", "thank", "call")
)
ASKED = tuple(
    TRANSITIVE[name]
    for name in (
        "eat",
        "drink",
        "read",
        "write",
        "buy",
        "sell",
        "find",
        "lose",
        "forget",
        "wash",
        "repair",
        "paint",
        "build",
        "order",
        "prepare",
    )
)
COUNTED = tuple(
    verb
    for verb in PLAIN_VERBS
    if verb.name
    in ("eat", "read", "write", "buy", "sell", "find", "wash", "repair", "paint", "photograph", "feed", "see", "invite")
)
COMMANDS = tuple(
    TRANSITIVE[name]
    for name in (
        "open",
        "close",
        "wash",
        "clean",
        "repair",
        "read",
        "feed",
        "forget",
        "call",
        "help",
        "thank",
        "listen",
        "await",
        "watch",
        "buy",
        "use",
    )
)
PLACES_WITH = (
    (nouns_of("animal"), tuple(NOUNS[name] for name in ("garden", "park", "forest", "village"))),
    (nouns_of("furniture machine"), tuple(NOUNS[name] for name in ("kitchen", "room", "office", "cellar", "hotel"))),
    (nouns_of("building"), tuple(NOUNS[name] for name in ("town", "village"))),
    (tuple(NOUNS[name] for name in ("tourist", "child", "guest", "student", "customer", "man", "woman")),
     tuple(NOUNS[name] for name in ("museum", "park", "hotel", "restaurant", "library", "market", "theatre"))),
)  # fmt: skip
# What is bought and then eaten: first verb, second verb, what.
CHAINS = tuple(
    (TRANSITIVE[first], TRANSITIVE[second], nouns_of(classes))
    for first, second, classes in (
        ("buy", "eat", "fruit dish"),
        ("prepare", "eat", "dish"),
        ("order", "eat", "dish"),
        ("buy", "wear", "clothes"),
        ("wash", "wear", "clothes"),
        ("buy", "read", "book newspaper"),
        ("seek", "find", "object"),
        ("buy", "repair", "bicycle boat radio watch"),
        ("repair", "sell", "vehicle"),
        ("write", "forget", "letter"),
        ("buy", "lose", "ticket umbrella key ring"),
    )
)


class SentenceSampler(ClauseSampler):
    """Draws sentences, one after the other, from one stream of random numbers."""

    def sentence(self) -> tree.Sentence:
        x = self.random()
        if x < 0.60:
            return tree.Statement(self.clause())
        if x < 0.69:
            return tree.Question(self.asked(self.clause(rich=False)))
        if x < 0.76:
            return self.open_question()
        if x < 0.82:
            return self.reported()
        if x < 0.92:
            return self.joined()
        if x < 0.95:
            return self.existence()
        if x < 0.985:
            return self.order()
        if x < 0.992:
            noun = self.pick(LANDMARKS) if self.chance(0.5) else self.pick(nouns_of("building object"))
            return tree.WhereIs(NounPhrase(noun, Determiner.THE), self.chance(0.5))
        if x < 0.999:
            return tree.ClockIs(1 + int(self.random() * 11), self.chance(0.4))
        return tree.Note(int(self.random() * len(NOTES)))

    def asked(self, value: tree.Proposition) -> tree.Proposition:
        """As one asks it: nothing negative, nobody indefinite."""
        value = value._replace(negated=False, fronted=False)
        who = value.subject
        if isinstance(who, NounPhrase) and who.determiner in (1, 2, 4, 5, 6):
            who = NounPhrase(who.noun, Determiner.THE, who.plural)
            value = value._replace(subject=who)
        if who == Pronoun.I:
            value = value._replace(subject=Pronoun.YOU)
        if isinstance(value, Clause) and value.tense == Tense.PERFECT:
            value = value._replace(tense=Tense.PAST)
        if isinstance(value, Clause) and value.frequency is not None:
            value = value._replace(frequency=None)
        return value

    def asker(self) -> tree.Nominal:
        x = self.random()
        if x < 0.3:
            return self.pick(SUBJECT_PRONOUNS[1:])
        if x < 0.6:
            return self.pick(NAMES)
        if x < 0.8:
            return NounPhrase(self.pick(KIN), self.pick(OWN))
        return NounPhrase(self.pick(TRANSITIVE["eat"].subjects), Determiner.THE, self.chance(0.2))

    def asked_tense(self) -> Tense:
        return self.pick((Tense.PRESENT, Tense.PAST, Tense.PAST, Tense.FUTURE))

    def open_question(self) -> tree.Sentence:
        x = self.random()
        if x < 0.2:
            return tree.OpenQuestion(Wh.WHAT, Clause(self.asker(), self.pick(ASKED), self.asked_tense()))
        if x < 0.4:
            verb = self.pick(ASKED)
            nobody = tree.Gap(NOUNS["man"], False)
            thing = self.simple_object(self.pick(verb.objects))
            return tree.OpenQuestion(Wh.WHO, Clause(nobody, verb, self.asked_tense(), object=thing))
        if x < 0.6:
            verb = self.pick(COUNTED)
            noun = self.pick([noun for noun in verb.objects if not (noun.is_mass or noun.is_kin)])
            return tree.HowMany(noun, Clause(self.asker(), verb, self.asked_tense()))
        asks = self.pick((Wh.WHERE, Wh.WHEN, Wh.WHY))
        who = self.asker()
        if self.chance(0.5):
            return tree.OpenQuestion(asks, Clause(who, self.pick(INTRANSITIVES), self.asked_tense()))
        verb = self.pick(ASKED)
        thing = self.simple_object(self.pick(verb.objects))
        return tree.OpenQuestion(asks, Clause(who, verb, self.asked_tense(), object=thing))

    def reported(self) -> tree.Reported:
        who = self.asker()
        said = self.clause(rich=False)
        return tree.Reported(who, self.pick(THINKING), said._replace(fronted=False))

    def protagonist(self) -> tuple[tree.Nominal, Pronoun]:
        """Somebody, and the pronoun that takes up the name."""
        x = self.random()
        if x < 0.4:
            person = self.pick(NAMES)
            return person, Pronoun.SHE if person.feminine else Pronoun.HE
        if x < 0.7:
            kin = self.pick(KIN)
            return NounPhrase(kin, self.pick(OWN)), Pronoun.SHE if "female" in kin.classes else Pronoun.HE
        pronoun = self.pick(SUBJECT_PRONOUNS)
        return pronoun, pronoun

    def joined(self) -> tree.Sentence:
        x = self.random()
        who, again = self.protagonist()
        if x < 0.2:
            return self.chain(who, again)
        if x < 0.4:
            return tree.Joined(
                "and", self.plain(self.act(self.pick(INTRANSITIVES), rich=False)), self.plain(self.clause(rich=False))
            )
        verb = self.pick(CONSEQUENCES)
        if x < 0.55:
            act = Clause(again, verb, Tense.FUTURE, self.chance(0.2), goal=None)
            return tree.Joined("if", self.completed(act), Copula(who, self.pick(FEELINGS), negated=self.chance(0.15)))
        tense = Tense.PRESENT if self.chance(0.5) else Tense.PAST
        if x < 0.7:
            return tree.Joined(
                "because",
                self.completed(Clause(who, verb, Tense.PRESENT, self.chance(0.3))),
                Copula(again, self.pick(FEELINGS), very=self.chance(0.3)),
            )
        state = Copula(who, self.pick(FEELINGS), very=self.chance(0.3))
        link = "so" if x < 0.85 else "but"
        del tense
        return tree.Joined(link, state, self.completed(Clause(again, verb, Tense.PRESENT, self.chance(0.2))))

    def plain(self, value: tree.Proposition) -> tree.Proposition:
        return value._replace(fronted=False)

    def completed(self, value: Clause) -> Clause:
        """With the object or goal that its verb asks for."""
        verb = value.verb
        if verb.objects:
            thing = self.object(verb, value.subject, negative=value.negated, rich=False)
            return value._replace(object=thing)
        if verb.name in ("go", "return"):
            return value._replace(goal=self.goal(verb, value.subject))
        return value

    def chain(self, who: tree.Nominal, again: Pronoun) -> tree.Joined:
        first, second, nouns = self.pick(CHAINS)
        noun = self.pick(nouns)
        plural = self.chance(0.2)
        tense = Tense.FUTURE if self.chance(0.3) else Tense.PAST
        determiner = Determiner.THE if self.chance(0.5) else Determiner.BARE if plural else Determiner.A
        count = 2 + int(self.random() * 4) if determiner == Determiner.BARE else 0
        thing = NounPhrase(noun, determiner, plural, count, self.adjective_for(noun, 0.2))
        time = None
        if self.chance(0.4):
            time = self.past_time() if tense == Tense.PAST else self.future_time()
        act = Clause(who, first, tense, object=thing, time=time)
        return tree.Joined("and", act, Clause(again, second, tense, object=tree.Echo(noun, plural)))

    def existence(self) -> tree.Existence:
        things, places = self.pick(PLACES_WITH)
        noun = self.pick(things)
        adjective = self.adjective_for(noun, 0.25)
        x = self.random()
        if x < 0.4:
            thing = NounPhrase(noun, Determiner.A, False, 0, adjective)
        elif x < 0.75:
            thing = NounPhrase(noun, Determiner.BARE, True, 2 + int(self.random() * 8), adjective)
        else:
            thing = NounPhrase(noun, Determiner.MANY, True, 0, adjective)
        ground = self.pick(places)
        determiner = Determiner.THIS if self.chance(0.4) else Determiner.THE
        return tree.Existence(thing, tree.Place(INSIDE[ground.name], NounPhrase(ground, determiner)))

    def order(self) -> tree.Order:
        if self.chance(0.3):
            verb = self.pick((DITRANSITIVE["give"], DITRANSITIVE["show"], DITRANSITIVE["send"], DITRANSITIVE["bring"]))
            thing = NounPhrase(self.pick(verb.objects), Determiner.THE, self.chance(0.15))
            return tree.Order(verb, thing, False, self.chance(0.5), to_me=True)
        verb = self.pick(COMMANDS)
        noun = self.pick(verb.objects)
        if noun.is_kin:
            thing = NounPhrase(noun, self.pick((Determiner.MY, Determiner.YOUR, Determiner.OUR)))
        elif noun.is_mass:
            thing = NounPhrase(noun, Determiner.BARE)
        else:
            thing = NounPhrase(noun, Determiner.THE, False, 0, self.adjective_for(noun, 0.25))
        if verb.name == "forget":
            return tree.Order(verb, thing, True, False)
        negated = (
            not noun.is_mass
            and verb.name in ("open", "close", "wash", "read", "call", "buy", "use")
            and self.chance(0.3)
        )
        return tree.Order(verb, thing, negated, not negated and self.chance(0.4))
