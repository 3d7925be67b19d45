"""German articles, adjective endings, pronouns, times and verb forms that no table of the lexicon holds."""

from phrasebook import slots, tree
from phrasebook.concepts import Person, Time
from phrasebook.lexicon import MONTHS, NUMBERS
from phrasebook.tokens import Token
from phrasebook.tree import Determiner, Pronoun

NOMINATIVE, ACCUSATIVE, DATIVE = 0, 1, 2
# The rows of all tables below: masculine, feminine, neuter, plural; the columns: nominative, accusative, dative.
Endings = tuple[tuple[str, str, str], ...]
DER: Endings = (("der", "den", "dem"), ("die", "die", "der"), ("das", "das", "dem"), ("die", "die", "den"))
STRONG: Endings = (("er", "en", "em"), ("e", "e", "er"), ("es", "es", "em"), ("e", "e", "en"))
WEAK: Endings = (("e", "en", "en"), ("e", "e", "en"), ("e", "e", "en"), ("en", "en", "en"))
MIXED: Endings = (("er", "en", "en"), ("e", "e", "en"), ("es", "es", "en"), ("en", "en", "en"))
# The endings of ein, kein and mein.
EIN: Endings = (("", "en", "em"), ("e", "e", "er"), ("", "", "em"), ("e", "e", "en"))
WHICH: Endings = (("der", "den", "dem"), ("die", "die", "der"), ("das", "das", "dem"), ("die", "die", "denen"))
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
WERDEN = ("werde", "wirst", "wird", "werden", "werdet", "werden")
HABEN = ("habe", "hast", "hat", "haben", "habt", "haben")
HATTE = ("hatte", "hattest", "hatte", "hatten", "hattet", "hatten")
WAR = ("war", "warst", "war", "waren", "wart", "waren")
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
    return POSSESSIVES[determiner] + EIN[row][case], MIXED


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
