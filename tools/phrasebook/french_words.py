"""French articles, pronouns, contractions, elision and times."""

from phrasebook import slots, tree
from phrasebook.concepts import Person, Time
from phrasebook.inflection import VOWELS
from phrasebook.lexicon import MONTHS, NUMBERS
from phrasebook.tokens import Token
from phrasebook.tree import Determiner, Pronoun

# Subject, direct object, indirect object and after a preposition.
SUBJECTS = ("je", "tu", "il", "elle", "nous", "ils", "il")
DIRECT = ("me", "te", "le", "la", "nous", "les", "le")
INDIRECT = ("me", "te", "lui", "lui", "nous", "leur", "lui")
TONIC = ("moi", "toi", "lui", "elle", "nous", "eux", "lui")
REFLEXIVES = ("me", "te", "se", "nous", "vous", "se")
# Index of the verb form: je, tu, il, nous, vous, ils.
PERSONS = (0, 1, 2, 2, 3, 5, 2)
AVOIR = ("ai", "as", "a", "avons", "avez", "ont")
ETRE = ("suis", "es", "est", "sommes", "êtes", "sont")
ETAIT = ("étais", "étais", "était", "étions", "étiez", "étaient")
SERA = ("serai", "seras", "sera", "serons", "serez", "seront")
# Masculine, feminine, plural.
ARTICLES = {
    Determiner.THE: ("le", "la", "les"),
    Determiner.A: ("un", "une", "des"),
    Determiner.THIS: ("ce", "cette", "ces"),
    Determiner.EVERY: ("chaque", "chaque", "chaque"),
    Determiner.MANY: ("", "", "beaucoup de"),
    Determiner.SOME: ("", "", "quelques"),
    Determiner.MY: ("mon", "ma", "mes"),
    Determiner.YOUR: ("ton", "ta", "tes"),
    Determiner.HIS: ("son", "sa", "ses"),
    Determiner.HER: ("son", "sa", "ses"),
    Determiner.OUR: ("notre", "notre", "nos"),
    Determiner.THEIR: ("leur", "leur", "leurs"),
}
# What stands before a vowel instead.
BEFORE_VOWEL = {"ce": "cet", "ma": "mon", "ta": "ton", "sa": "son"}
CONTRACTIONS = {("à", "le"): "au", ("à", "les"): "aux", ("de", "le"): "du", ("de", "les"): "des"}
ELISIONS = {
    "le": "l'",
    "la": "l'",
    "de": "d'",
    "je": "j'",
    "ne": "n'",
    "que": "qu'",
    "me": "m'",
    "te": "t'",
    "se": "s'",
}
# Words with an aspirated h or a first sound that allows no elision.
UNELIDED = frozenset(("haut", "haute", "hauts", "hautes", "huit", "onze", "Hambourg"))


def begins_with_vowel(word: str) -> bool:
    return word[0].lower() in VOWELS and word not in UNELIDED


def elide(tokens: list[Token]) -> list[Token]:
    """Je + ai is j'ai, la + orange l'orange, si + il s'il."""
    for position in range(len(tokens) - 1):
        word = tokens[position][0]
        short = ELISIONS.get(word)
        following = tokens[position + 1][0]
        if short is not None:
            if begins_with_vowel(following):
                tokens[position] = (short, tokens[position][1])
        elif word == "si" and following in ("il", "ils"):
            tokens[position] = ("s'", tokens[position][1])
    return tokens


def person_of(subject: tree.Nominal) -> int:
    if isinstance(subject, Pronoun):
        return PERSONS[subject]
    if isinstance(subject, Person):
        return 2
    return 5 if isinstance(subject, tree.Both) or subject.plural else 2


def is_feminine(phrase: tree.Nominal) -> bool:
    """The gender with which adjectives and participles agree; I, you and we are taken as masculine."""
    if isinstance(phrase, Pronoun):
        return phrase == Pronoun.SHE
    if isinstance(phrase, Person):
        return phrase.feminine
    if isinstance(phrase, tree.Both):
        return is_feminine(phrase.first) and is_feminine(phrase.second)
    return phrase.noun.fr.feminine


def is_plural(phrase: tree.Nominal) -> bool:
    return person_of(phrase) > 2


def agree(participle: str, phrase: tree.Nominal) -> str:
    """A participle with the endings of the phrase it agrees with."""
    feminine = "e" if is_feminine(phrase) else ""
    plural = "s" if is_plural(phrase) and not (participle.endswith("s") and not feminine) else ""
    return participle + feminine + plural


def sometime(time: tree.Sometime, base: int) -> list[Token]:
    place = base << 4
    if isinstance(time, Time):
        return [(time.fr, place | slots.HEAD)]
    kind, first, second = time
    preposition = place | slots.PREPOSITION
    if kind == "date":
        day = "1er" if first == 1 else str(first)
        return [("le", preposition), (day, place | slots.COUNT), (MONTHS[second - 1][1], place | slots.HEAD)]
    if kind == "ago":
        return [("il y a", preposition), (NUMBERS[first][1], place | slots.COUNT), ("jours", place | slots.HEAD)]
    if kind == "year":
        return [("en", preposition), (str(first), place | slots.COUNT)]
    return [("à", preposition), *clock(first, second, place)]


def clock(hour: int, half: int, place: int) -> list[Token]:
    word = "une" if hour == 1 else NUMBERS[hour][1]
    tokens: list[Token] = [(word, place | slots.COUNT), ("heure" if hour == 1 else "heures", place | slots.HEAD)]
    return [*tokens, ("et demie", place | slots.UNIT)] if half else tokens
