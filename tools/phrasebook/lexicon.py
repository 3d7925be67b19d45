"""The concepts, read from the tables and inflected once, when this module is first imported."""

from collections.abc import Iterator

from phrasebook import slots, table_adjectives, table_nouns, table_settings, table_verbs
from phrasebook.concepts import (
    Adjective,
    Adverb,
    Modal,
    Noun,
    Person,
    Region,
    Relation,
    Time,
    Verb,
    code_of,
)
from phrasebook.inflection import (
    chinese_verb,
    english_noun,
    english_verb,
    french_adjective,
    french_noun,
    french_verb,
    german_noun,
    german_verb,
    spaced,
)


def rows(table: str) -> Iterator[list[str]]:
    """The cells of each line."""
    for line in table.strip().splitlines():
        yield [cell.strip() for cell in line.split("|")]


def read_nouns(table: str) -> dict[str, Noun]:
    nouns = {}
    for name, classes, en, fr, de, zh, *woman in rows(table):
        traits = frozenset(classes.split())
        word, classifier = zh.split()
        french_woman, german_woman = woman[0].split() if woman else ("", "")
        nouns[name] = Noun(
            name,
            code_of(name),
            # A concept is also a class of its own, so that an entry can name it.
            classes=traits | {name},
            en=english_noun(en),
            fr=french_noun(fr),
            de=german_noun(de),
            zh=(word, classifier),
            woman=(french_woman, german_woman),
            is_mass="mass" in traits,
            is_kin="kin" in traits,
        )
    return nouns


NOUNS: dict[str, Noun] = {
    **read_nouns(table_nouns.PEOPLE),
    **read_nouns(table_nouns.PROFESSIONS),
    **read_nouns(table_nouns.ANIMALS),
    **read_nouns(table_nouns.FOOD),
    **read_nouns(table_nouns.THINGS),
    **read_nouns(table_nouns.PLACES),
    **read_nouns(table_nouns.LANGUAGES),
}


def nouns_of(classes: str) -> tuple[Noun, ...]:
    """The nouns that belong to any of the classes, in the order of the tables."""
    wanted = set(classes.split())
    return tuple(noun for noun in NOUNS.values() if noun.classes & wanted)


def read_verbs(table: str) -> dict[str, Verb]:
    verbs = {}
    for name, traits, subjects, objects, *entries in rows(table):
        en, fr = english_verb(entries[0]), french_verb(entries[1])
        de, zh = german_verb(entries[2]), chinese_verb(entries[3])
        everywhere = all((en.tail, fr.tail, de.tail, zh.tail))
        verbs[name] = Verb(
            name,
            code_of(name),
            traits=frozenset(traits.split()) - {"-"},
            subjects=nouns_of(subjects),
            objects=nouns_of(objects),
            en=en,
            fr=fr,
            de=de,
            zh=zh,
            complement=slots.COMPLEMENT if everywhere else slots.VERB,
        )
    return verbs


def read_modals(table: str) -> dict[str, Modal]:
    modals = {}
    for name, _, _, _, en, fr, de, zh in rows(table):
        first = en.split()[0]
        modals[name] = Modal(
            name,
            code_of(name),
            en=(first, "wants") if first == "want" else (first, first),
            fr=tuple(fr.split()[1].split("/")),
            de=tuple(de.split()[1].split("/")),
            zh=zh,
        )
    return modals


INTRANSITIVE = read_verbs(table_verbs.INTRANSITIVE)
TRANSITIVE = read_verbs(table_verbs.TRANSITIVE)
DITRANSITIVE = read_verbs(table_verbs.DITRANSITIVE)
MOTION = read_verbs(table_verbs.MOTION)
LOCAL = read_verbs(table_verbs.LOCAL)
CLAUSAL = read_verbs(table_verbs.CLAUSAL)
WEATHER = read_verbs(table_verbs.WEATHER)
VERBS: dict[str, Verb] = {
    **INTRANSITIVE,
    **TRANSITIVE,
    **DITRANSITIVE,
    **MOTION,
    **LOCAL,
    **CLAUSAL,
    **WEATHER,
}
MODALS = read_modals(table_verbs.MODALS)


def read_adjectives(table: str) -> dict[str, Adjective]:
    adjectives = {}
    for name, classes, en, fr, de, zh in rows(table):
        english, _, english_comparative = en.partition(" ")
        german, german_comparative = de.split()
        plain, _, stem = german.partition("/")
        adjectives[name] = Adjective(
            name,
            code_of(name),
            classes=frozenset(classes.split()),
            en=english,
            en_comparative=english_comparative or f"more {english}",
            fr=french_adjective(fr),
            fr_precedes=fr.startswith("^"),
            de=plain,
            # müde: the endings begin with the same e
            de_stem=stem or plain.removesuffix("e"),
            de_comparative=german_comparative,
            zh=zh,
        )
    return adjectives


ADJECTIVES = read_adjectives(table_adjectives.ADJECTIVES)
ADJECTIVES_OF: dict[Noun, tuple[Adjective, ...]] = {
    noun: tuple(adjective for adjective in ADJECTIVES.values() if adjective.classes & noun.classes)
    for noun in NOUNS.values()
}

PEOPLE = {
    name: Person(name, code_of(name), feminine=gender == "f", en=en, fr=fr, de=de, zh=zh)
    for name, gender, en, fr, de, zh in rows(table_settings.NAMES)
}
REGIONS = {
    name: Region(name, code_of(name), kind, en, fr.split()[2], fr.split()[0], fr.split()[1], de, zh)
    for name, kind, en, fr, de, zh in rows(table_settings.REGIONS)
}


def read_prepositions() -> tuple[dict[str, Relation], dict[str, Relation]]:
    """For each place: the relation of being there and, where one can go there, that of going."""
    inside, towards = {}, {}
    for name, english, french, german, suffix in rows(table_settings.PREPOSITIONS):
        en, fr, de = english.split(), french.split(), german.split()
        zh, _, zh_goal = suffix.replace("-", "").partition("/")
        # These relations are fixed by the noun, so they add nothing to what is said: code 0.
        inside[name] = Relation(f"in {name}", 0, en[0], fr[0], de[0], 2, zh)
        if en[1] != "-":
            towards[name] = Relation(f"to {name}", 0, en[1], fr[1], de[1], 2 if de[1] == "zu" else 1, zh_goal)
    return inside, towards


INSIDE, TOWARDS = read_prepositions()
RELATIONS = {
    name: Relation(name, code_of(name), spaced(en), spaced(fr), de, 2, zh)
    for name, en, fr, de, zh in rows(table_settings.RELATIONS)
}
FREQUENCIES = {
    name: Adverb(name, code_of(name), en, fr, de, zh) for name, en, fr, de, zh in rows(table_settings.FREQUENCIES)
}
MANNERS = {
    name: Adverb(name, code_of(name), en, fr, de, zh) for name, _, en, fr, de, zh in rows(table_settings.MANNERS)
}
MANNERS_OF: dict[str, tuple[Adverb, ...]] = {
    verb: tuple(MANNERS[row[0]] for row in rows(table_settings.MANNERS) if verb in row[1].split()) for verb in VERBS
}
TIMES = {
    name: Time(name, code_of(name), kind, en, fr, de, zh) for name, kind, en, fr, de, zh in rows(table_settings.TIMES)
}
SCENES: dict[str, tuple[Noun, ...]] = {
    verb: tuple(NOUNS[place] for place in places.split())
    for verbs, places in rows(table_settings.SCENES)
    for verb in verbs.split()
}
MONTHS = tuple(tuple(row) for row in rows(table_settings.MONTHS))
# Index 0 and 1 are unused: NUMBERS[2] is two.
NUMBERS = ((), (), *(tuple(row) for row in rows(table_settings.NUMBERS)))
