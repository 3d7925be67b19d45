"""English: do-support, progressive and perfect, a and an, double objects; adverbs in the order manner, place, time."""

from phrasebook import slots, tree
from phrasebook.concepts import Adjective, Noun, Person, Region, Time
from phrasebook.lexicon import MONTHS, NUMBERS
from phrasebook.notes import NOTES
from phrasebook.tokens import Rendering, Token, split_spaces
from phrasebook.tree import Pronoun, Tense, Wh

SUBJECTS = ("I", "you", "he", "she", "we", "they", "it")
OBJECTS = ("me", "you", "him", "her", "us", "them", "it")
SINGULAR = ("the", "a", "", "this", "every", "", "", "my", "your", "his", "her", "our", "their")
PLURAL = ("the", "", "", "these", "", "many", "some", "my", "your", "his", "her", "our", "their")
# The verb form of a subject: 0 I, 1 you and all plurals, 2 the third person singular.
PERSONS = (0, 1, 2, 2, 1, 1, 2)
BE = ("am", "are", "is")
WAS = ("was", "were", "was")
HAVE = ("have", "have", "has")
LINKS = {"and": "and", "but": "but", "so": "so", "because": "because", "if": "if"}
QUESTIONS = {Wh.WHAT: "what", Wh.WHO: "who", Wh.WHERE: "where", Wh.WHEN: "when", Wh.WHY: "why"}


def person_of(subject: tree.Nominal) -> int:
    if isinstance(subject, Pronoun):
        return PERSONS[subject]
    if isinstance(subject, Person):
        return 2
    return 1 if isinstance(subject, tree.Both) or subject.plural else 2


def nominal(phrase: tree.Nominal, base: int, forms: tuple[str, ...] = OBJECTS) -> list[Token]:
    if isinstance(phrase, tree.NounPhrase):
        return noun_phrase(phrase, base)
    if isinstance(phrase, Pronoun):
        return [(forms[phrase], base << 4 | slots.HEAD)]
    if isinstance(phrase, Person):
        return [(phrase.en, base << 4 | slots.HEAD)]
    if isinstance(phrase, tree.Both):
        first = nominal(phrase.first, base << 4 | slots.FIRST)
        return [*first, ("and", base << 4 | slots.AND), *nominal(phrase.second, base << 4 | slots.SECOND)]
    if isinstance(phrase, tree.Echo):
        return [("them" if phrase.plural else "it", base << 4 | slots.HEAD)]
    return []


def noun_phrase(phrase: tree.NounPhrase, base: int) -> list[Token]:
    noun, determiner, plural, count, adjective, relative = phrase
    place = base << 4
    tokens: list[Token] = []
    word = (PLURAL if plural else SINGULAR)[determiner]
    if word:
        tokens.append((word, place | slots.DETERMINER))
    if count:
        tokens.append((NUMBERS[count][0], place | slots.COUNT))
    if adjective is not None:
        tokens.append((adjective.en, place | slots.ADJECTIVE))
    tokens.append((noun.en[plural], place | slots.HEAD))
    if word == "a" and tokens[1][0][0] in "aeiou" and not tokens[1][0].startswith("uni"):
        tokens[0] = ("an", place | slots.DETERMINER)
    if relative is not None:
        personal = isinstance(relative.subject, tree.Gap) and ("person" in noun.classes or noun.is_kin)
        tokens.append(("who" if personal else "that", place | slots.PRONOUN))
        tokens += clause(relative, place | slots.RELATIVE)
    return tokens


def somewhere(place: tree.Somewhere, base: int, preposition: str) -> list[Token]:
    if isinstance(place, Region):
        return [(preposition, base << 4 | slots.PREPOSITION), (place.en, base << 4 | slots.HEAD)]
    if isinstance(place, tree.There):
        return [("there", base << 4 | slots.HEAD)]
    relation, ground = place
    return [(relation.en, base << 4 | slots.PREPOSITION), *noun_phrase(ground, base)]


def sometime(time: tree.Sometime, base: int) -> list[Token]:
    place = base << 4
    if isinstance(time, Time):
        return [(time.en, place | slots.HEAD)]
    kind, first, second = time
    if kind == "date":
        return [
            ("on", place | slots.PREPOSITION),
            (str(first), place | slots.COUNT),
            (MONTHS[second - 1][0], place | slots.HEAD),
        ]
    if kind == "ago":
        return [
            (NUMBERS[first][0], place | slots.COUNT),
            ("days", place | slots.HEAD),
            ("ago", place | slots.PREPOSITION),
        ]
    if kind == "year":
        return [("in", place | slots.PREPOSITION), (str(first), place | slots.COUNT)]
    return [("at", place | slots.PREPOSITION), *clock(first, second, place)]


def clock(hour: int, half: int, place: int) -> list[Token]:
    word = "one" if hour == 1 else NUMBERS[hour][0]
    if half:
        return [("half past", place | slots.UNIT), (word, place | slots.COUNT)]
    return [(word, place | slots.COUNT), ("o'clock", place | slots.HEAD)]


def finite(value: tree.Clause, base: int, inverted: bool) -> tuple[Token | None, list[Token]]:
    """The auxiliary, if there is one, and the rest of the verb with its adverbs of time and negation."""
    verb, place, person = value.verb.en, base << 4, person_of(value.subject)
    tense, modal, negated = value.tense, value.modal, value.negated
    both = (place | slots.VERB, place | slots.TENSE)
    auxiliary: Token | None = None
    rest: list[Token] = []
    if modal is not None and modal.name != "want":
        auxiliary = (modal.en[0], place | slots.MODAL)
        if negated and modal.name == "can" and not inverted:
            auxiliary, negated = ("cannot", (place | slots.MODAL, place | slots.NEGATION)), False
        rest = [(verb.base, place | slots.VERB)]
    elif tense == Tense.PROGRESSIVE:
        auxiliary, rest = (BE[person], place | slots.TENSE), [(verb.progressive, place | slots.VERB)]
    elif tense == Tense.PERFECT:
        negated = False
        adverb: Token = ("never", place | slots.NEGATION) if value.negated else ("already", place | slots.DEGREE)
        auxiliary, rest = (HAVE[person], place | slots.TENSE), [adverb, (verb.participle, place | slots.VERB)]
    elif tense == Tense.FUTURE:
        auxiliary, rest = ("will", place | slots.TENSE), [(verb.base, place | slots.VERB)]
    elif negated or inverted:
        word = "did" if tense == Tense.PAST else "does" if person == 2 else "do"
        auxiliary = (word, place | slots.TENSE if tense == Tense.PAST else 0)
        rest = [(verb.base, place | slots.VERB)]
        if modal is not None:
            rest = [("want", place | slots.MODAL), ("to", 0), *rest]
    elif modal is not None:
        rest = [(modal.en[person == 2], place | slots.MODAL), ("to", 0), (verb.base, place | slots.VERB)]
    elif tense == Tense.PAST:
        rest = [(verb.past, both)]
    else:
        rest = [(verb.third if person == 2 else verb.base, place | slots.VERB)]
    if value.frequency is not None:
        rest.insert(0, (value.frequency.en, place | slots.FREQUENCY))
    if negated:
        rest.insert(0, ("not", place | slots.NEGATION))
    return auxiliary, rest


def clause(value: tree.Proposition, base: int, inverted: bool = False) -> list[Token]:
    """A clause; `inverted` puts the auxiliary before the subject, as questions do."""
    if isinstance(value, tree.Copula):
        return copula(value, base, inverted)
    place = base << 4
    subject = nominal(value.subject, place | slots.SUBJECT, SUBJECTS)
    auxiliary, rest = finite(value, base, inverted)
    if auxiliary is not None:
        subject = [auxiliary, *subject] if inverted else [*subject, auxiliary]
    tokens = subject + rest
    verb = value.verb.en
    if verb.tail:
        tokens.append((verb.tail, place | value.verb.complement))
    if value.recipient is not None:
        tokens += nominal(value.recipient, place | slots.RECIPIENT)
    if value.object is not None:
        if verb.preposition:
            tokens.append((verb.preposition, place | slots.PREPOSITION))
        tokens += nominal(value.object, place | slots.OBJECT)
    if value.goal is not None:
        tokens += somewhere(value.goal, place | slots.GOAL, "to")
    if value.manner is not None:
        tokens.append((value.manner.en, place | slots.MANNER))
    if value.place is not None:
        tokens += somewhere(value.place, place | slots.PLACE, "from" if "origin" in value.verb.traits else "in")
    return with_time(tokens, value.time, base, value.fronted)


def with_time(tokens: list[Token], time: tree.Sometime | None, base: int, fronted: bool) -> list[Token]:
    if time is None:
        return tokens
    words = sometime(time, base << 4 | slots.TIME)
    return [*words, (",", (base << 4 | slots.TIME) << 4 | slots.COMMA), *tokens] if fronted else tokens + words


def copula(value: tree.Copula, base: int, inverted: bool) -> list[Token]:
    place, person = base << 4, person_of(value.subject)
    subject = nominal(value.subject, place | slots.SUBJECT, SUBJECTS)
    rest: list[Token] = [("not", place | slots.NEGATION)] if value.negated else []
    if value.tense == Tense.FUTURE:
        be: Token = ("will", place | slots.TENSE)
        rest.append(("be", place | slots.VERB))
    else:
        be = (
            (WAS[person], (place | slots.VERB, place | slots.TENSE))
            if value.tense == Tense.PAST
            else (BE[person], place | slots.VERB)
        )
    tokens = [be, *subject, *rest] if inverted else [*subject, be, *rest]
    if value.very:
        tokens.append(("very", place | slots.DEGREE))
    tokens += predicate(value.predicate, place | slots.PREDICATE)
    return with_time(tokens, value.time, base, value.fronted)


def predicate(value: "Adjective | Noun | tree.Place | tree.Comparison | tree.Age", base: int) -> list[Token]:
    place = base << 4
    if isinstance(value, Adjective):
        return [(value.en, place | slots.HEAD)]
    if isinstance(value, Noun):
        article = "an" if value.en[0][0] in "aeiou" else "a"
        return [(article, 0), (value.en[0], place | slots.HEAD)]
    if isinstance(value, tree.Comparison):
        than = nominal(value.than, place | slots.OBJECT)
        return [(value.adjective.en_comparative, place | slots.HEAD), ("than", place | slots.PREPOSITION), *than]
    if isinstance(value, tree.Age):
        return [
            (NUMBERS[value.years][0], place | slots.COUNT),
            ("years", place | slots.HEAD),
            ("old", place | slots.UNIT),
        ]
    return somewhere(value, base, "")


def order(value: tree.Order) -> list[Token]:
    place = slots.ROOT << 4
    verb = value.verb.en
    tokens: list[Token] = [("please", place | slots.DEGREE)] if value.polite else []
    if value.negated:
        tokens += [("do", 0), ("not", place | slots.NEGATION)]
    tokens.append((verb.base, place | slots.VERB))
    if value.to_me:
        tokens.append(("me", (place | slots.RECIPIENT) << 4))
    if value.object is not None:
        if verb.preposition:
            tokens.append((verb.preposition, place | slots.PREPOSITION))
        tokens += noun_phrase(value.object, place | slots.OBJECT)
    return tokens


def open_question(value: tree.OpenQuestion) -> list[Token]:
    asks = value.asks
    word: Token = (QUESTIONS[asks], slots.ROOT << 4 | slots.ASK)
    return [word, *clause(value.clause, slots.ROOT << 4 | slots.LEFT, inverted=asks != Wh.WHO)]


def joined(value: tree.Joined) -> list[Token]:
    place = slots.ROOT << 4
    first, second = clause(value.first, place | slots.LEFT), clause(value.second, place | slots.RIGHT)
    link: Token = (LINKS[value.link], place | slots.LINK)
    comma: Token = (",", place | slots.COMMA)
    if value.link == "if":
        return [link, *second, comma, *first]
    if value.link == "because":
        return [*first, link, *second]
    return [*first, comma, link, *second]


def body(value: tree.Sentence) -> tuple[list[Token], str]:
    """The words of a sentence, and its closing mark."""
    place = slots.ROOT << 4
    match value:
        case tree.Statement(proposition):
            return clause(proposition, place | slots.LEFT), "."
        case tree.Question(proposition):
            return clause(proposition, place | slots.LEFT, inverted=True), "?"
        case tree.OpenQuestion():
            return open_question(value), "?"
        case tree.Joined():
            return joined(value), "."
        case tree.Reported(subject, verb, proposition):
            main = tree.Clause(subject, verb)
            that: Token = ("that", place | slots.LINK)
            return [*clause(main, place | slots.LEFT), that, *clause(proposition, place | slots.RIGHT)], "."
        case tree.Order():
            return order(value), "." if value.polite else "!"
        case tree.Existence(thing, where):
            be: Token = ("are" if thing.plural else "is", place | slots.VERB)
            what = noun_phrase(thing, place | slots.OBJECT)
            return [("there", place | slots.VERB), be, *what, *somewhere(where, place | slots.PLACE, "")], "."
        case tree.HowMany(noun, proposition):
            asked: list[Token] = [("how many", place | slots.ASK), (noun.en[1], place | slots.OBJECT)]
            return asked + clause(proposition, place | slots.LEFT, inverted=True), "?"
        case tree.WhereIs(thing, polite):
            excuse: list[Token] = [("excuse me", place | slots.DEGREE), (",", place | slots.COMMA)] if polite else []
            asked = [("where", place | slots.ASK), ("are" if thing.plural else "is", place | slots.VERB)]
            return excuse + asked + noun_phrase(thing, place | slots.SUBJECT), "?"
        case tree.ClockIs(hour, half):
            return [("it", place | slots.SUBJECT), ("is", place | slots.VERB), *clock(hour, half, place << 4)], "."
        case tree.Note(which):
            words = NOTES[which]["en"]
            return list(words[:-1]), words[-1][0]


def render(value: tree.Sentence) -> Rendering:
    """An English sentence."""
    tokens, mark = body(value)
    tokens = split_spaces(tokens)
    tokens.append((mark, slots.ROOT << 4 | slots.STOP))
    first = tokens[0]
    tokens[0] = (first[0][0].upper() + first[0][1:], first[1])
    words, tags = zip(*tokens, strict=True)
    text = " ".join(words).replace(" 's", "'s").replace(" ,", ",")
    return Rendering(text[: -len(mark) - 1] + mark, words, tags)
