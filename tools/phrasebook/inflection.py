"""Inflection from the short entries of the tables to full forms; used once, when the lexicon is read."""

from phrasebook.concepts import (
    ChineseVerb,
    EnglishVerb,
    FrenchNoun,
    FrenchVerb,
    GermanNoun,
    GermanVerb,
)

VOWELS = frozenset("aeiouâàäéèêëîïôöûùüœh")
# Consonants that English doubles are written in the table; these endings take -es.
HISSING = ("s", "x", "z", "ch", "sh")


def spaced(word: str) -> str:
    return word.replace("_", " ")


def english_plural(noun: str) -> str:
    if noun.endswith(HISSING):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def english_noun(entry: str) -> tuple[str, str]:
    singular, _, plural = spaced(entry).partition("/")
    return singular, plural or english_plural(singular)


def english_past(base: str) -> str:
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    return base + "ed"


def english_progressive(base: str) -> str:
    if base.endswith("e") and not base.endswith(("ee", "oe")):
        return base[:-1] + "ing"
    return base + "ing"


def english_third(base: str) -> str:
    if base == "have":
        return "has"
    return base + "es" if base == "go" else english_plural(base)


def marks(entry: str) -> tuple[list[str], str, str, str]:
    """The forms of an entry, then its complement (+), preposition (>) and coverb (<)."""
    forms: list[str] = []
    tail = preposition = coverb = ""
    for part in entry.split():
        if part[0] == "+":
            tail = spaced(part[1:])
        elif part[0] == ">":
            preposition = part[1:]
        elif part[0] == "<":
            coverb = part[1:]
        else:
            forms.append(part)
    return forms, tail, preposition, coverb


def english_verb(entry: str) -> EnglishVerb:
    forms, tail, preposition, _ = marks(entry)
    base = forms[0]
    given = [*forms, "-", "-", "-", "-"]
    past = given[1] if given[1] != "-" else english_past(base)
    participle = given[2] if given[2] != "-" else past
    progressive = given[3] if given[3] != "-" else english_progressive(base)
    if given[1] == "-" and given[3] != "-":
        # "shopping" and "travelling" double their consonant in the past as well.
        past = participle = progressive[:-3] + "ed"
    return EnglishVerb(base, english_third(base), past, participle, progressive, tail, preposition)


def french_noun(entry: str) -> FrenchNoun:
    word, gender = entry.split()
    aspirated = word.startswith("*")
    singular, _, plural = spaced(word.removeprefix("*")).partition("/")
    elides = singular[0].lower() in VOWELS and not aspirated
    return FrenchNoun(singular, plural or singular + "s", gender == "f", elides)


def french_adjective(entry: str) -> tuple[str, str, str, str, str]:
    """Masculine, masculine before a vowel, feminine, masculine plural, feminine plural."""
    forms = entry.removeprefix("^").split()
    masculine, feminine = forms[0], forms[1]
    before_vowel = forms[2] if len(forms) > 2 else masculine
    if masculine.endswith(("s", "x")):
        plural = masculine
    elif masculine.endswith("eau"):
        plural = masculine + "x"
    else:
        plural = masculine + "s"
    return masculine, before_vowel, feminine, plural, feminine + "s"


def french_present(infinitive: str) -> tuple[str, ...]:
    if infinitive.endswith("er"):
        stem = infinitive[:-2]
        soft = stem + "e" if stem.endswith("g") else stem[:-1] + "ç" if stem.endswith("c") else stem
        return (stem + "e", stem + "es", stem + "e", soft + "ons", stem + "ez", stem + "ent")
    stem = infinitive[:-1]
    return (stem + "s", stem + "s", stem + "t", stem + "ssons", stem + "ssez", stem + "ssent")


def french_imperfect(present: tuple[str, ...]) -> tuple[str, ...]:
    stem = present[3].removesuffix("ons")
    plain = stem.removesuffix("e") if stem.endswith("ge") else stem
    return (stem + "ais", stem + "ais", stem + "ait", plain + "ions", plain + "iez", stem + "aient")


def french_verb(entry: str) -> FrenchVerb:
    forms, tail, preposition, _ = marks(entry)
    flags = [form for form in forms if form in ("@", "se")]
    words = [form for form in forms if form not in ("@", "se")]
    infinitive = words[0]
    if len(words) > 1:
        present, participle, stem = tuple(words[1].split("/")), words[2], words[3]
    else:
        present, stem = french_present(infinitive), infinitive
        participle = infinitive[:-2] + "é" if infinitive.endswith("er") else infinitive[:-1]
    future = tuple(stem + ending for ending in ("ai", "as", "a", "ons", "ez", "ont"))
    reflexive = "se" in flags
    return FrenchVerb(
        infinitive,
        present,
        french_imperfect(present),
        future,
        participle,
        etre="@" in flags or reflexive,
        reflexive=reflexive,
        tail=tail,
        preposition=preposition,
    )


def german_noun(entry: str) -> GermanNoun:
    singular, gender, plural = spaced(entry).split(" ")
    oblique = singular
    if gender == "wm":
        oblique = singular + ("n" if singular.endswith(("e", "er", "ar")) else "en")
    dative_plural = plural if plural.endswith(("n", "s")) else plural + "n"
    index = {"m": 0, "wm": 0, "f": 1, "n": 2}[gender]
    return GermanNoun(index, (singular, oblique, oblique), (plural, plural, dative_plural))


def german_present(infinitive: str, second: str, third: str) -> tuple[str, ...]:
    """The present of ich, du, er, wir, ihr, sie."""
    stem = infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]
    # ich streichle, ich füttere
    first = stem[:-2] + "le" if infinitive.endswith("eln") else stem + "e"
    linked = stem + "e" if stem.endswith(("t", "d")) else stem
    second = second or linked + ("t" if stem.endswith(("s", "ß", "z")) else "st")
    return (first, second, third or linked + "t", infinitive, linked + "t", infinitive)


def german_imperative(stem: str, present: tuple[str, ...]) -> str:
    """The command to one person: gib, lies, mach, antworte, öffne."""
    if "i" in present[1] and "i" not in stem:
        return present[1].removesuffix("t") if stem[-1] in "sz" else present[1].removesuffix("st")
    return stem + "e" if stem.endswith(("t", "d", "er")) else stem


def german_verb(entry: str) -> GermanVerb:
    forms, tail, government, _ = marks(entry)
    flags = [form for form in forms if form in ("@", "sich")]
    words = [form for form in forms if form not in ("@", "sich")]
    prefix, dot, simple = words[0].partition(".")
    if not dot:
        prefix, simple = "", words[0]
    stem = simple[:-2] if simple.endswith("en") else simple[:-1]
    if len(words) == 3:
        present, participle = tuple(words[1].split("/")), words[2]
    elif len(words) == 4:
        present, participle = german_present(simple, words[1], words[2]), prefix + words[3]
    else:
        present = german_present(simple, "", "")
        participle = f"{prefix}ge{present[4]}"
    preposition, _, case = government.partition(":")
    return GermanVerb(
        prefix + simple,
        present,
        participle,
        prefix,
        sein="@" in flags,
        reflexive="sich" in flags,
        tail=tail,
        preposition=preposition,
        case=2 if case == "dat" else 1,
        imperative=german_imperative(stem, present),
    )


def chinese_verb(entry: str) -> ChineseVerb:
    forms, tail, _, coverb = marks(entry)
    return ChineseVerb(" ".join(forms), tail, coverb)
