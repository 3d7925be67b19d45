"""Random sentences that make sense.

Only `Random.random` is used, because it alone gives the same numbers on every Python version. Choices that some
language cannot express apart are not made: "her" is never a recipient (French lui is him and her), "them" never a
direct object (German sie is her and them), and his, her and their point to the subject.
"""

from phrasebook import tree
from phrasebook.clauses import INTRANSITIVES, LANDMARKS, MOMENTARY, ClauseSampler
from phrasebook.concepts import Noun, Verb
from phrasebook.lexicon import (
    ADJECTIVES,
    CLAUSAL,
    DITRANSITIVE,
    INSIDE,
    NOUNS,
    TRANSITIVE,
    VERBS,
    nouns_of,
)
from phrasebook.notes import NOTES
from phrasebook.phrases import KIN, NAMES, OWN, SUBJECT_PRONOUNS
from phrasebook.tree import Clause, Copula, Determiner, NounPhrase, Pronoun, Tense, Wh


def verbs(names: str) -> tuple[Verb, ...]:
    return tuple(VERBS[name] for name in names.split())


def nouns(names: str) -> tuple[Noun, ...]:
    return tuple(NOUNS[name] for name in names.split())


KNOWING = tuple(CLAUSAL[name] for name in ("think", "know_that", "say", "believe"))
ALONGSIDE = verbs("eat drink read write clean wash repair paint help feed prepare sell")
# Why one does something, and why one does not: quality, what it leads to, what it keeps from.
MOTIVES = tuple(
    (ADJECTIVES[quality], verbs(does), verbs(leaves))
    for quality, does, leaves in (
        ("tired", "sleep rest dream", "work dance run cook study football tennis swim travel"),
        ("happy", "laugh dance sing smile piano guitar", "cry"),
        ("sad", "cry smoke dream", "laugh dance sing smile cook"),
        ("nervous", "smoke cry call", "sleep rest laugh"),
        ("lazy", "sleep rest dream", "work study cook run clean wash rise"),
        ("curious", "travel study listen visit read", "sleep rest"),
        ("rich", "travel shop smoke", "work cook"),
        ("poor", "work cry sing", "travel shop"),
        ("diligent", "work study cook clean rise", "sleep dream"),
        ("friendly", "smile help thank answer invite", "smoke"),
    )
)
ASKED = verbs("eat drink read write buy sell find lose forget wash repair paint build order prepare")
COUNTED = verbs("eat read write buy sell find wash repair paint photograph feed see invite")
COMMANDS = verbs("open close wash clean repair read feed forget call help thank listen await look_at buy use")
REFUSED = frozenset(("open", "close", "wash", "read", "call", "buy", "use"))
GIVING = tuple(DITRANSITIVE[name] for name in ("give", "show", "send", "bring"))
FINDABLE = nouns_of("building object")
# What there is, and where.
PRESENCE = (
    (nouns_of("animal"), nouns("garden park forest village")),
    (nouns_of("furniture machine"), nouns("kitchen room office cellar hotel")),
    (nouns_of("building"), nouns("town village")),
    (nouns("tourist child guest student customer man woman"), nouns("museum park hotel restaurant library market")),
)
# Two things done with one thing, one after the other.
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
        ("buy", "repair", "bicycle boat radio clock"),
        ("repair", "sell", "vehicle"),
        ("write", "forget", "letter"),
        ("buy", "lose", "ticket umbrella key ring"),
    )
)


class SentenceSampler(ClauseSampler):
    """Draws sentences, one after the other, from one stream of random numbers."""

    def sentence(self) -> tree.Sentence:
        x = self.random()
        if x < 0.62:
            return tree.Statement(self.clause())
        if x < 0.70:
            return tree.Question(self.asked(self.clause(rich=False)))
        if x < 0.76:
            return self.open_question()
        if x < 0.83:
            return self.reported()
        if x < 0.94:
            return self.joined()
        if x < 0.96:
            return self.existence()
        if x < 0.985:
            return self.order()
        if x < 0.992:
            noun = self.pick(LANDMARKS if self.chance(0.5) else FINDABLE)
            return tree.WhereIs(NounPhrase(noun, Determiner.THE), self.chance(0.5))
        if x < 0.999:
            return tree.ClockIs(1 + int(self.random() * 11), self.chance(0.4))
        return tree.Note(int(self.random() * len(NOTES)))

    def asked(self, value: tree.Proposition) -> tree.Proposition:
        """As one asks it: nothing negative, nobody indefinite."""
        value = value._replace(negated=False, fronted=False)
        who = value.subject
        if isinstance(who, NounPhrase) and who.determiner not in (Determiner.THE, Determiner.THIS, *OWN):
            value = value._replace(subject=NounPhrase(who.noun, Determiner.THE, who.plural))
        elif who == Pronoun.I:
            value = value._replace(subject=Pronoun.YOU)
        if isinstance(value, Clause):
            thing = value.object
            if who == Pronoun.I and thing == Pronoun.YOU:
                value = value._replace(object=Pronoun.I)
            if who == Pronoun.I and value.recipient == Pronoun.YOU:
                value = value._replace(recipient=Pronoun.I)
            if value.tense == Tense.PERFECT:
                value = value._replace(tense=Tense.PAST)
            return value._replace(frequency=None)
        return value

    def asker(self) -> tree.Nominal:
        """Somebody definite."""
        x = self.random()
        if x < 0.3:
            return self.pick(SUBJECT_PRONOUNS[1:])
        if x < 0.6:
            return self.pick(NAMES)
        if x < 0.8:
            return self.kin()
        return NounPhrase(self.pick(TRANSITIVE["eat"].subjects), Determiner.THE, self.chance(0.2))

    def open_question(self) -> tree.Sentence:
        x = self.random()
        tense = self.pick((Tense.PRESENT, Tense.PAST, Tense.PAST, Tense.FUTURE))
        if x < 0.2:
            return tree.OpenQuestion(Wh.WHAT, Clause(self.asker(), self.pick(ASKED), tense))
        if x < 0.4:
            verb = self.pick(ASKED)
            nobody = tree.Gap(NOUNS["man"], False)
            thing = self.simple_object(self.pick(verb.objects))
            return tree.OpenQuestion(Wh.WHO, Clause(nobody, verb, tense, object=thing))
        if x < 0.6:
            verb = self.pick(COUNTED)
            noun = self.pick([noun for noun in verb.objects if not (noun.is_mass or noun.is_kin)])
            return tree.HowMany(noun, Clause(self.asker(), verb, tense))
        asks = self.pick((Wh.WHERE, Wh.WHEN, Wh.WHY))
        if asks != Wh.WHY and tense == Tense.PAST:
            # Chinese asks where and when something was done in a construction of its own.
            tense = Tense.FUTURE
        if self.chance(0.5):
            return tree.OpenQuestion(asks, Clause(self.asker(), self.pick(INTRANSITIVES), tense))
        verb = self.pick(ASKED)
        thing = self.simple_object(self.pick(verb.objects))
        return tree.OpenQuestion(asks, Clause(self.asker(), verb, tense, object=thing))

    def reported(self) -> tree.Reported:
        said = self.clause(rich=self.chance(0.5))._replace(fronted=False)
        # One hopes for what is to come.
        verb = CLAUSAL["hope"] if said.tense == Tense.FUTURE and self.chance(0.5) else self.pick(KNOWING)
        return tree.Reported(self.asker(), verb, said)

    def protagonist(self) -> tuple[tree.Nominal, Pronoun]:
        """Somebody, and the pronoun that takes up the name."""
        x = self.random()
        if x < 0.4:
            person = self.pick(NAMES)
            return person, Pronoun.SHE if person.feminine else Pronoun.HE
        if x < 0.7:
            kin = self.pick(KIN)
            return self.relative_of(kin, self.pick(OWN)), Pronoun.SHE if "female" in kin.classes else Pronoun.HE
        pronoun = self.pick(SUBJECT_PRONOUNS)
        return pronoun, pronoun

    def joined(self) -> tree.Joined:
        x = self.random()
        if x < 0.2:
            return self.chain()
        if x < 0.4:
            return self.alongside()
        return self.reasoned()

    def alongside(self) -> tree.Joined:
        """Two people doing two things at the same time."""
        first = self.act(self.pick(INTRANSITIVES), rich=False)
        while True:
            verb = self.pick(INTRANSITIVES if self.chance(0.4) else ALONGSIDE)
            if verb is not first.verb and (first.tense != Tense.PROGRESSIVE or verb.name not in MOMENTARY):
                break
        who = self.asker()
        thing = self.object(verb, who, negative=False, rich=False) if verb.objects else None
        # "now" goes with every progressive, in both clauses.
        time = first.time if first.tense == Tense.PROGRESSIVE else None
        return tree.Joined("and", first, Clause(who, verb, first.tense, object=thing, time=time))

    def reasoned(self) -> tree.Joined:
        """A quality and what it leads to or, after "but", does not."""
        who, again = self.protagonist()
        link = self.pick(("if", "because", "so", "but"))
        quality, does, leaves = self.pick(MOTIVES)
        expected = self.chance(0.65)
        negated = expected if link == "but" else not expected
        state = Copula(again if link == "because" else who, quality, very=link != "if" and self.chance(0.3))
        verb = self.pick(does if expected else leaves)
        tense = Tense.FUTURE if link == "if" else Tense.PRESENT
        act = Clause(who if link == "because" else again, verb, tense, negated)
        if verb.objects:
            act = act._replace(object=self.object(verb, act.subject, negative=negated, rich=False))
        return tree.Joined(link, act, state) if link in ("if", "because") else tree.Joined(link, state, act)

    def chain(self) -> tree.Joined:
        """ "Anna bought an apple, and she ate it." """
        who, again = self.protagonist()
        first, second, things = self.pick(CHAINS)
        noun = self.pick(things)
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
        things, places = self.pick(PRESENCE)
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
            verb = self.pick(GIVING)
            given = NounPhrase(self.pick(verb.objects), Determiner.THE, self.chance(0.15))
            return tree.Order(verb, given, False, self.chance(0.5), to_me=True)
        verb = self.pick(COMMANDS)
        noun = self.pick(verb.objects)
        if noun.is_kin or noun.is_mass:
            thing = self.simple_object(noun)
        else:
            thing = NounPhrase(noun, Determiner.THE, False, 0, self.adjective_for(noun, 0.25))
        if verb.name == "forget":
            return tree.Order(verb, thing, True, False)
        negated = verb.name in REFUSED and not noun.is_mass and self.chance(0.3)
        return tree.Order(verb, thing, negated, not negated and self.chance(0.4))
