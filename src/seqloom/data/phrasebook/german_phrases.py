"""German noun phrases, places and times: articles, adjective endings, contractions of prepositions."""

from seqloom.data.phrasebook import slots, tree
from seqloom.data.phrasebook.concepts import Noun, Person, Region, Time
from seqloom.data.phrasebook.lexicon import MONTHS, NUMBERS
from seqloom.data.phrasebook.tokens import Tag, Token
from seqloom.data.phrasebook.tree import Determiner, Pronoun

NOMINATIVE, ACCUSATIVE, DATIVE = 0, 1, 2
# The rows of all tables below: masculine, feminine, neuter, plural; the columns: nominative, accusative, dative.
Endings = tuple[tuple[str, str, str], ...]
DER: Endings = (("der", "den", "dem"), ("die", "die", "der"), ("das", "das", "dem"), ("die", "die", "den"))
STRONG: Endings = (("er", "en", "em"), ("e", "e", "er"), ("es", "es", "em"), ("e", "e", "en"))
WEAK: Endings = (("e", "en", "en"), ("e", "e", "en"), ("e", "e", "en"), ("en", "en", "en"))
MIXED: Endings = (("er", "en", "en"), ("e", "e", "en"), ("es", "es", "en"), ("en", "en", "en"))
# The endings of ein, kein and mein.
EIN: Endings = (("", "en", "em"), ("e", "e", "er"), ("", "", "em"), ("e", "e", "en"))
RELATIVE: Endings = (("der", "den", "dem"), ("die", "die", "der"), ("das", "das", "dem"), ("die", "die", "denen"))
IT: Endings = (("er", "ihn", "ihm"), ("sie", "sie", "ihr"), ("es", "es", "ihm"), ("sie", "sie", "ihnen"))
POSSESSIVES = {
    Determiner.MY: "mein",
    Determiner.YOUR: "dein",
    Determiner.HIS: "sein",
    Determiner.HER: "ihr",
    Determiner.OUR: "unser",
    Determiner.THEIR: "ihr",
}
PRONOUNS = (
    ("ich", "mich", "mir"),
    ("du", "dich", "dir"),
    ("er", "ihn", "ihm"),
    ("sie", "sie", "ihr"),
    ("wir", "uns", "uns"),
    ("sie", "sie", "ihnen"),
    ("es", "es", "ihm"),
)
REFLEXIVES = ("mich", "dich", "sich", "uns", "euch", "sich")
# Index of the verb form: ich, du, er, wir, ihr, sie.
PERSONS = (0, 1, 2, 2, 3, 5, 2)
SEIN = ("bin", "bist", "ist", "sind", "seid", "sind")
CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("an", "das"): "ans",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}


def person_of(subject: tree.Nominal) -> int:
    if isinstance(subject, Pronoun):
        return PERSONS[subject]
    if isinstance(subject, Person):
        return 2
    return 5 if isinstance(subject, tree.Both) or subject.plural else 2


def article(determiner: Determiner, row: int, case: int, negative: bool) -> tuple[str, Endings]:
    """The article and the table from which the adjective after it takes its ending."""
    if determiner == Determiner.THE:
        return DER[row][case], WEAK
    if negative and determiner in (Determiner.A, Determiner.BARE):
        return "kein" + EIN[row][case], MIXED
    if determiner == Determiner.A:
        return "ein" + EIN[row][case], MIXED
    if determiner == Determiner.BARE:
        return "", STRONG
    if determiner == Determiner.THIS:
        return "dies" + STRONG[row][case], WEAK
    if determiner == Determiner.EVERY:
        return "jed" + STRONG[row][case], WEAK
    if determiner == Determiner.MANY:
        return "viel" + STRONG[row][case], STRONG
    if determiner == Determiner.SOME:
        return "einig" + STRONG[row][case], STRONG
    ending = EIN[row][case]
    stem = POSSESSIVES[determiner]
    # unser loses its e only in speech; the written ending is added whole.
    return stem + ending, MIXED


def noun_phrase(phrase: tree.NounPhrase, base: int, case: int, negative: Tag = 0) -> list[Token]:
    """A noun phrase; `negative` is the tag of the negation where kein expresses it."""
    noun, determiner, plural, count, adjective, relative = phrase
    place = base << 4
    forms = noun.de
    row = 3 if plural else forms.gender
    word, endings = article(determiner, row, case, bool(negative))
    tokens: list[Token] = []
    if word:
        tag: Tag = place | slots.DETERMINER
        if negative and word.startswith("kein"):
            tag = (place | slots.DETERMINER, negative)  # type: ignore[assignment]
        tokens.append((word, tag))
    if count:
        tokens.append((NUMBERS[count][2], place | slots.COUNT))
    if adjective is not None:
        tokens.append((adjective.de_stem + endings[row][case], place | slots.ADJECTIVE))
    tokens.append(((forms.plural if plural else forms.singular)[case], place | slots.HEAD))
    if relative is not None:
        tokens += relative_clause(relative, noun, row, place)
    return tokens


def relative_clause(value: tree.Clause, noun: Noun, row: int, place: int) -> list[Token]:
    # The clause needs noun phrases and they need the clause: one of the two imports has to wait.
    from seqloom.data.phrasebook.german import clause

    case = NOMINATIVE if isinstance(value.subject, tree.Gap) else value.verb.de.case
    pronoun: Token = (RELATIVE[row][case], place | slots.PRONOUN)
    comma: Token = (",", place | slots.COMMA)
    return [comma, pronoun, *clause(value, place | slots.RELATIVE, "final"), (",", 0)]


def nominal(phrase: tree.Nominal, base: int, case: int, negative: Tag = 0) -> list[Token]:
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
    relation, ground = place
    return prepositional(relation.de, ground, base, case=relation.case, tag=tag)


def sometime(time: tree.Sometime, base: int) -> list[Token]:
    place = base << 4
    if isinstance(time, Time):
        return [(time.de, place | slots.HEAD)]
    kind, first, second = time
    preposition = place | slots.PREPOSITION
    if kind == "date":
        month: Token = (MONTHS[second - 1][2], place | slots.HEAD)
        return [("am", preposition), (f"{first}.", place | slots.COUNT), month]
    if kind == "ago":
        return [("vor", preposition), (NUMBERS[first][2], place | slots.COUNT), ("Tagen", place | slots.HEAD)]
    if kind == "year":
        return [("im Jahr", preposition), (str(first), place | slots.COUNT)]
    return [("um", preposition), *clock(first, second, place)]


def clock(hour: int, half: int, place: int) -> list[Token]:
    """Ein Uhr, drei Uhr; half past three is half of the fourth hour."""
    if half:
        return [("halb", place | slots.UNIT), (NUMBERS[hour + 1][2], place | slots.COUNT)]
    word = "ein" if hour == 1 else NUMBERS[hour][2]
    return [(word, place | slots.COUNT), ("Uhr", place | slots.HEAD)]
