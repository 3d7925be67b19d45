"""German: verb second and verb final, separable verbs, three cases, strong, weak and mixed adjectives, nicht and kein.

A clause is first taken apart into subject, finite verb, middle field and closing verb forms; the kind of clause then
decides their order:

    main       subject  finite  middle  closing           Anna macht heute die Tür auf
    fronted    time     finite  subject middle  closing   heute macht Anna die Tür auf
    question   finite   subject middle  closing           macht Anna heute die Tür auf
    final      subject  middle  closing finite            weil Anna heute die Tür aufmacht
"""

from typing import Literal, NamedTuple, TypeAlias

from phrasebook import slots, tree
from phrasebook.concepts import Adjective, Noun, Person, Region
from phrasebook.german_words import (
    ACCUSATIVE,
    CONTRACTIONS,
    DATIVE,
    HABEN,
    HATTE,
    IT,
    NOMINATIVE,
    PRONOUNS,
    REFLEXIVES,
    SEIN,
    WAR,
    WERDEN,
    WHICH,
    article,
    clock,
    person_of,
    sometime,
)
from phrasebook.lexicon import NUMBERS
from phrasebook.notes import NOTES
from phrasebook.tokens import Rendering, Token, split_spaces
from phrasebook.tree import Determiner, Pronoun, Tense, Wh

ClauseOrder: TypeAlias = Literal["main", "question", "final"]
LINKS = {"and": "und", "but": "aber", "so": "deshalb", "because": "weil", "if": "wenn"}
QUESTIONS = {Wh.WHAT: "was", Wh.WHO: "wer", Wh.WHERE: "wo", Wh.WHEN: "wann", Wh.WHY: "warum"}


def noun_phrase(phrase: tree.NounPhrase, base: int, case: int, negative: int = 0) -> list[Token]:
    """A noun phrase; `negative` is the tag of the negation where kein expresses it."""
    noun, determiner, plural, count, adjective, relative = phrase
    place = base << 4
    forms = noun.de
    row = 3 if plural else forms.gender
    word, endings = article(determiner, row, case, bool(negative))
    tokens: list[Token] = []
    if word:
        kein = negative and word.startswith("kein")
        tokens.append((word, (place | slots.DETERMINER, negative) if kein else place | slots.DETERMINER))
    if count:
        tokens.append((NUMBERS[count][2], place | slots.COUNT))
    if adjective is not None:
        tokens.append((adjective.de_stem + endings[row][case], place | slots.ADJECTIVE))
    tokens.append(((forms.plural if plural else forms.singular)[case], place | slots.HEAD))
    if relative is not None:
        tokens += relative_clause(relative, row, place)
    return tokens


def relative_clause(value: tree.Clause, row: int, place: int) -> list[Token]:
    case = NOMINATIVE if isinstance(value.subject, tree.Gap) else value.verb.de.case
    pronoun: Token = (WHICH[row][case], place | slots.PRONOUN)
    comma: Token = (",", place | slots.COMMA)
    return [comma, pronoun, *clause(value, place | slots.RELATIVE, "final"), (",", 0)]


def nominal(phrase: tree.Nominal, base: int, case: int, negative: int = 0) -> list[Token]:
    if isinstance(phrase, tree.NounPhrase):
        return noun_phrase(phrase, base, case, negative)
    if isinstance(phrase, Pronoun):
        return [(PRONOUNS[phrase][case], base << 4 | slots.HEAD)]
    if isinstance(phrase, Person):
        return [(phrase.de, base << 4 | slots.HEAD)]
    if isinstance(phrase, tree.Both):
        first = nominal(phrase.first, base << 4 | slots.FIRST, case)
        second = nominal(phrase.second, base << 4 | slots.SECOND, case)
        return [*first, ("und", base << 4 | slots.AND), *second]
    if isinstance(phrase, tree.Echo):
        row = 3 if phrase.plural else phrase.noun.de.gender
        return [(IT[row][case], base << 4 | slots.HEAD)]
    return []


def prepositional(preposition: str, phrase: tree.Nominal, base: int, *, case: int, tag: int) -> list[Token]:
    """A preposition with its phrase: in dem Garten becomes im Garten, zu der Schule zur Schule."""
    tokens = nominal(phrase, base, case)
    if isinstance(phrase, tree.NounPhrase) and phrase.determiner == Determiner.THE:
        short = CONTRACTIONS.get((preposition, tokens[0][0]))
        if short is not None:
            return [(short, (tag, base << 4 | slots.DETERMINER)), *tokens[1:]]
    return [(preposition, tag), *tokens]


def somewhere(place: tree.Somewhere, base: int, preposition: str) -> list[Token]:
    tag = base << 4 | slots.PREPOSITION
    if isinstance(place, Region):
        return [(preposition, tag), (place.de, base << 4 | slots.HEAD)]
    if isinstance(place, tree.There):
        return [("dorthin", base << 4 | slots.HEAD)]
    relation, ground = place
    return prepositional(relation.de, ground, base, case=relation.case, tag=tag)


class Parts(NamedTuple):
    """A clause taken apart; `prefix` is the separable prefix of the finite verb."""

    subject: list[Token]
    finite: Token
    middle: list[Token]
    closing: list[Token]
    prefix: str = ""


def verb_forms(value: tree.Clause, place: int) -> tuple[Token, list[Token], str]:
    """The finite verb, the verb forms that close the clause, and a prefix that leaves the finite verb."""
    verb, person, tense = value.verb.de, person_of(value.subject), value.tense
    if value.modal is not None:
        return (value.modal.de[person], place | slots.MODAL), [(verb.infinitive, place | slots.VERB)], ""
    if tense in (Tense.PRESENT, Tense.PROGRESSIVE):
        return (verb.present[person], place | slots.VERB), [], verb.prefix
    if tense == Tense.FUTURE:
        return (WERDEN[person], place | slots.TENSE), [(verb.infinitive, place | slots.VERB)], ""
    if "have" in value.verb.traits and tense == Tense.PAST:
        return (HATTE[person], (place | slots.VERB, place | slots.TENSE)), [], ""
    auxiliary = (SEIN if verb.sein else HABEN)[person]
    return (auxiliary, place | slots.TENSE), [(verb.participle, place | slots.VERB)], ""


def is_indefinite(phrase: tree.Nominal | None) -> bool:
    """Whether its negation is kein: keinen Apfel, kein Brot."""
    return is_new(phrase) and not (isinstance(phrase, tree.NounPhrase) and phrase.number)


def is_new(phrase: tree.Nominal | None) -> bool:
    """Whether it is spoken of for the first time: ein Apfel, drei Äpfel, Brot."""
    return isinstance(phrase, tree.NounPhrase) and phrase.determiner in (Determiner.A, Determiner.BARE)


def split_objects(value: tree.Clause, place: int, kein: int) -> tuple[list[Token], list[Token]]:
    """Pronouns, which come first in the middle field, and full objects, the dative before the accusative."""
    verb = value.verb.de
    pronouns: list[Token] = [(REFLEXIVES[person_of(value.subject)], 0)] if verb.reflexive else []
    objects: list[Token] = []
    if value.recipient is not None:
        words = nominal(value.recipient, place | slots.RECIPIENT, DATIVE)
        (pronouns if isinstance(value.recipient, Pronoun) else objects).extend(words)
    if value.object is not None and not verb.preposition:
        words = nominal(value.object, place | slots.OBJECT, verb.case, kein)
        (pronouns if isinstance(value.object, Pronoun | tree.Echo) else objects).extend(words)
    return pronouns, objects


def middle_field(value: tree.Clause, place: int, with_time: bool) -> list[Token]:
    """Pronouns, time, frequency, objects, negation, manner, place: the fixed order of the middle field."""
    verb = value.verb.de
    negation = place | slots.NEGATION
    perfect = value.tense == Tense.PERFECT
    kein = value.negated and not perfect and is_indefinite(value.object) and not verb.preposition
    tokens, objects = split_objects(value, place, negation if kein else 0)
    if with_time and value.time is not None:
        tokens += sometime(value.time, place | slots.TIME)
    if value.frequency is not None:
        tokens.append((value.frequency.de, place | slots.FREQUENCY))
    manner: list[Token] = [] if value.manner is None else [(value.manner.de, place | slots.MANNER)]
    particle: list[Token] = [("nicht", negation)] if value.negated and not kein else []
    if perfect:
        particle = [("noch nie", negation) if value.negated else ("schon", place | slots.DEGREE)]
    if is_new(value.object) and not verb.preposition:
        # schon schnell einen Apfel
        tokens += [*particle, *manner, *objects] if perfect else [*manner, *objects, *particle]
    else:
        # den Apfel schon schnell
        tokens += [*objects, *particle, *manner]
    if value.object is not None and verb.preposition:
        tag = place | slots.PREPOSITION
        tokens += prepositional(verb.preposition, value.object, place | slots.OBJECT, case=verb.case, tag=tag)
    if value.place is not None:
        tokens += somewhere(value.place, place | slots.PLACE, "aus" if "origin" in value.verb.traits else "in")
    if value.goal is not None:
        tokens += somewhere(value.goal, place | slots.GOAL, "nach")
    return [*tokens, (verb.tail, place | value.verb.complement)] if verb.tail else tokens


def take_apart(value: tree.Proposition, base: int, with_time: bool) -> Parts:
    place = base << 4
    subject = nominal(value.subject, place | slots.SUBJECT, NOMINATIVE)
    if isinstance(value, tree.Copula):
        return copula(value, place, subject, with_time)
    finite, closing, prefix = verb_forms(value, place)
    return Parts(subject, finite, middle_field(value, place, with_time), closing, prefix)


def copula(value: tree.Copula, place: int, subject: list[Token], with_time: bool) -> Parts:
    person = person_of(value.subject)
    verb = place | slots.VERB
    closing: list[Token] = []
    if value.tense == Tense.FUTURE:
        finite: Token = (WERDEN[person], place | slots.TENSE)
        closing = [("sein", verb)]
    elif value.tense == Tense.PAST:
        finite = (WAR[person], (verb, place | slots.TENSE))
    else:
        finite = (SEIN[person], verb)
    middle: list[Token] = []
    if with_time and value.time is not None:
        middle += sometime(value.time, place | slots.TIME)
    negation = place | slots.NEGATION
    if isinstance(value.predicate, Noun):
        middle += profession(value.predicate, value.subject, place | slots.PREDICATE, negation if value.negated else 0)
        return Parts(subject, finite, middle, closing)
    if value.negated:
        middle.append(("nicht", negation))
    if value.very:
        middle.append(("sehr", place | slots.DEGREE))
    middle += predicate(value.predicate, place | slots.PREDICATE)
    return Parts(subject, finite, middle, closing)


def profession(noun: Noun, subject: tree.Nominal, base: int, negation: int) -> list[Token]:
    """Professions stand without an article: Sie ist Ärztin, er ist kein Arzt."""
    woman = tree.is_woman(subject)
    word: Token = (noun.woman[1] if woman else noun.de.singular[0], base << 4 | slots.HEAD)
    return [("keine" if woman else "kein", negation), word] if negation else [word]


def predicate(value: "Adjective | tree.Place | tree.Comparison | tree.Age", base: int) -> list[Token]:
    place = base << 4
    if isinstance(value, Adjective):
        return [(value.de, place | slots.HEAD)]
    if isinstance(value, tree.Comparison):
        than = nominal(value.than, place | slots.OBJECT, NOMINATIVE)
        return [(value.adjective.de_comparative, place | slots.HEAD), ("als", place | slots.PREPOSITION), *than]
    if isinstance(value, tree.Age):
        years: list[Token] = [(NUMBERS[value.years][2], place | slots.COUNT), ("Jahre", place | slots.HEAD)]
        return [*years, ("alt", place | slots.UNIT)]
    return somewhere(value, base, "")


def clause(value: tree.Proposition, base: int, order: ClauseOrder = "main") -> list[Token]:
    """The parts of a clause in the order of a main clause, a question or a subordinate clause."""
    fronted = order == "main" and value.fronted and value.time is not None
    subject, finite, middle, closing, prefix = take_apart(value, base, with_time=not fronted)
    if order == "final":
        whole: Token = (prefix + finite[0], finite[1]) if prefix else finite
        return [*subject, *middle, *closing, whole]
    if prefix:
        closing = [(prefix, finite[1])]
    if order == "question":
        return [finite, *subject, *middle, *closing]
    if fronted and value.time is not None:
        time = sometime(value.time, base << 4 | slots.TIME)
        return [*time, finite, *subject, *middle, *closing]
    return [*subject, finite, *middle, *closing]


def order_words(value: tree.Order) -> list[Token]:
    place = slots.ROOT << 4
    verb = value.verb.de
    tokens: list[Token] = [(verb.imperative, place | slots.VERB)]
    if value.to_me:
        tokens.append(("mir", (place | slots.RECIPIENT) << 4))
    if value.polite:
        tokens.append(("bitte", place | slots.DEGREE))
    if value.object is not None:
        if verb.preposition:
            tag = place | slots.PREPOSITION
            tokens += prepositional(verb.preposition, value.object, place | slots.OBJECT, case=verb.case, tag=tag)
        else:
            tokens += noun_phrase(value.object, place | slots.OBJECT, verb.case)
    if value.negated:
        tokens.append(("nicht", place | slots.NEGATION))
    if verb.prefix:
        tokens.append((verb.prefix, place | slots.VERB))
    return tokens


def joined(value: tree.Joined) -> list[Token]:
    place = slots.ROOT << 4
    link: Token = (LINKS[value.link], place | slots.LINK)
    comma: Token = (",", place | slots.COMMA)
    if value.link == "if":
        condition = clause(value.second, place | slots.RIGHT, "final")
        return [link, *condition, comma, *clause(value.first, place | slots.LEFT, "question")]
    first = clause(value.first, place | slots.LEFT)
    if value.link == "because":
        return [*first, comma, link, *clause(value.second, place | slots.RIGHT, "final")]
    if value.link == "so":
        return [*first, comma, link, *clause(value.second, place | slots.RIGHT, "question")]
    second = clause(value.second, place | slots.RIGHT)
    return [*first, link, *second] if value.link == "and" else [*first, comma, link, *second]


def body(value: tree.Sentence) -> tuple[list[Token], str]:
    """The words of a sentence, and its closing mark."""
    place = slots.ROOT << 4
    match value:
        case tree.Statement(proposition):
            return clause(proposition, place | slots.LEFT), "."
        case tree.Question(proposition):
            return clause(proposition, place | slots.LEFT, "question"), "?"
        case tree.OpenQuestion(asks, proposition):
            return [(QUESTIONS[asks], place | slots.ASK), *clause(proposition, place | slots.LEFT, "question")], "?"
        case tree.Joined():
            return joined(value), "."
        case tree.Reported(subject, verb, proposition):
            main = clause(tree.Clause(subject, verb), place | slots.LEFT)
            that: list[Token] = [(",", 0), ("dass", place | slots.LINK)]
            return main + that + clause(proposition, place | slots.RIGHT, "final"), "."
        case tree.Order():
            return order_words(value), "." if value.polite else "!"
        case tree.Existence(thing, where):
            what = noun_phrase(thing, place | slots.OBJECT, ACCUSATIVE)
            gives: list[Token] = [("gibt", place | slots.VERB), ("es", place | slots.VERB)]
            return somewhere(where, place | slots.PLACE, "") + gives + what, "."
        case tree.HowMany(noun, proposition):
            asked: list[Token] = [("wie viele", place | slots.ASK), (noun.de.plural[1], place | slots.OBJECT)]
            return asked + clause(proposition, place | slots.LEFT, "question"), "?"
        case tree.WhereIs(thing, polite):
            excuse: list[Token] = [("Entschuldigung", place | slots.DEGREE), (",", place | slots.COMMA)]
            asked = [("wo", place | slots.ASK), ("sind" if thing.plural else "ist", place | slots.VERB)]
            return (excuse if polite else []) + asked + noun_phrase(thing, place | slots.SUBJECT, NOMINATIVE), "?"
        case tree.ClockIs(hour, half):
            return [("es", place | slots.SUBJECT), ("ist", place | slots.VERB), *clock(hour, half, place << 4)], "."
        case tree.Note(which):
            words = NOTES[which]["de"]
            return list(words[:-1]), words[-1][0]


def drop_commas(tokens: list[Token]) -> list[Token]:
    """Without the comma that closes a relative clause where another comma, a link or the end follows."""
    result: list[Token] = []
    for token in tokens:
        if token[0] == "," and result and result[-1][0] == ",":
            result.pop()
        result.append(token)
    while result[-1][0] == ",":
        result.pop()
    return result


def render(value: tree.Sentence) -> Rendering:
    """A German sentence."""
    tokens, mark = body(value)
    tokens = drop_commas(split_spaces(tokens))
    tokens.append((mark, slots.ROOT << 4 | slots.STOP))
    first = tokens[0]
    tokens[0] = (first[0][0].upper() + first[0][1:], first[1])
    words, tags = zip(*tokens, strict=True)
    text = " ".join(words).replace(" ,", ",")
    return Rendering(text[: -len(mark) - 1] + mark, words, tags)
