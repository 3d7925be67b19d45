"""German: verb second and verb final, separable verbs, three cases, strong, weak and mixed adjectives, nicht and kein.

A clause is first taken apart into subject, finite verb, middle field and closing verb forms; the kind of clause then
decides their order:

    main       subject  finite  middle  closing           Anna macht heute die Tür auf
    fronted    time     finite  subject middle  closing   heute macht Anna die Tür auf
    question   finite   subject middle  closing           macht Anna heute die Tür auf
    final      subject  middle  closing finite            weil Anna heute die Tür aufmacht
"""

from typing import Literal, NamedTuple, TypeAlias

from seqloom.data.phrasebook import slots, tree
from seqloom.data.phrasebook.concepts import Adjective, Noun, Person
from seqloom.data.phrasebook.german_phrases import (
    ACCUSATIVE,
    DATIVE,
    NOMINATIVE,
    REFLEXIVES,
    SEIN,
    clock,
    nominal,
    noun_phrase,
    person_of,
    prepositional,
    sometime,
    somewhere,
)
from seqloom.data.phrasebook.lexicon import NUMBERS
from seqloom.data.phrasebook.notes import NOTES
from seqloom.data.phrasebook.tokens import Rendering, Tag, Token, split_spaces
from seqloom.data.phrasebook.tree import Determiner, Pronoun, Tense, Wh

ClauseOrder: TypeAlias = Literal["main", "question", "final"]
WERDEN = ("werde", "wirst", "wird", "werden", "werdet", "werden")
HABEN = ("habe", "hast", "hat", "haben", "habt", "haben")
HATTE = ("hatte", "hattest", "hatte", "hatten", "hattet", "hatten")
WAR = ("war", "warst", "war", "waren", "wart", "waren")
LINKS = {"and": "und", "but": "aber", "so": "deshalb", "because": "weil", "if": "wenn"}
QUESTIONS = {Wh.WHAT: "was", Wh.WHO: "wer", Wh.WHERE: "wo", Wh.WHEN: "wann", Wh.WHY: "warum"}


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
    """Whether its negation is kein: "keinen Apfel", "kein Brot"."""
    return (
        isinstance(phrase, tree.NounPhrase)
        and phrase.determiner in (Determiner.A, Determiner.BARE)
        and not phrase.count
    )


def middle_field(value: tree.Clause, place: int, with_time: bool) -> list[Token]:
    """Pronouns, time, frequency, objects, negation, manner, place: the fixed order of the middle field."""
    verb = value.verb.de
    negation = place | slots.NEGATION
    kein = value.negated and value.tense != Tense.PERFECT and is_indefinite(value.object) and not verb.preposition
    pronouns: list[Token] = []
    objects: list[Token] = []
    if verb.reflexive:
        pronouns.append((REFLEXIVES[person_of(value.subject)], 0))
    for phrase, slot, case in (
        (value.object, slots.OBJECT, verb.case),
        (value.recipient, slots.RECIPIENT, DATIVE),
    ):
        if phrase is None or (slot == slots.OBJECT and verb.preposition):
            continue
        if isinstance(phrase, Pronoun | tree.Echo):
            pronouns += nominal(phrase, place | slot, case)
        elif slot == slots.RECIPIENT:
            objects = nominal(phrase, place | slot, case) + objects
        else:
            objects += nominal(phrase, place | slot, case, negation if kein else 0)
    tokens = pronouns
    if with_time and value.time is not None:
        tokens += sometime(value.time, place | slots.TIME)
    if value.frequency is not None:
        tokens.append((value.frequency.de, place | slots.FREQUENCY))
    if value.tense == Tense.PERFECT:
        perfect: Token = ("noch nie", negation) if value.negated else ("schon", place | slots.DEGREE)
        # "already" and "never" come after a definite object: das Buch schon, noch nie ein Buch
        tokens += [perfect, *objects] if is_indefinite(value.object) else [*objects, perfect]
    else:
        tokens += objects
        if value.negated and not kein:
            tokens.append(("nicht", negation))
    if value.manner is not None:
        tokens.append((value.manner.de, place | slots.MANNER))
    if value.object is not None and verb.preposition:
        tag = place | slots.PREPOSITION
        tokens += prepositional(verb.preposition, value.object, place | slots.OBJECT, case=verb.case, tag=tag)
    if value.place is not None:
        tokens += somewhere(value.place, place | slots.PLACE, "aus" if "origin" in value.verb.traits else "in")
    if value.goal is not None:
        tokens += somewhere(value.goal, place | slots.GOAL, "nach")
    if verb.tail:
        tokens.append((verb.tail, place | slots.COMPLEMENT))
    return tokens


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


def is_woman(subject: tree.Nominal) -> bool:
    if isinstance(subject, Person):
        return subject.feminine
    if isinstance(subject, Pronoun):
        return subject == Pronoun.SHE
    return (isinstance(subject, tree.NounPhrase) and subject.noun.name in ("woman", "girl")) or (
        isinstance(subject, tree.NounPhrase) and "female" in subject.noun.classes
    )


def profession(noun: Noun, subject: tree.Nominal, base: int, negation: Tag) -> list[Token]:
    """Professions stand without an article: Sie ist Ärztin, er ist kein Arzt."""
    woman = is_woman(subject)
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
        time = sometime(value.time, base << 8 | slots.TIME)
        return [*time, finite, *subject, *middle, *closing]
    return [*subject, finite, *middle, *closing]


def order_words(value: tree.Order) -> list[Token]:
    place = slots.ROOT << 4
    verb = value.verb.de
    tokens: list[Token] = [(verb.imperative, place | slots.VERB)]
    if value.to_me:
        tokens.append(("mir", place << 4 | slots.RECIPIENT))
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
        case tree.Note(index):
            words = NOTES[index]["de"]
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
