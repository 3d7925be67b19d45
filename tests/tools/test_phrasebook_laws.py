"""Agreement laws over the whole lexicon and over sampled sentences, and the inflection of single words."""

from itertools import islice, pairwise

import pytest

from phrasebook import chinese, english, french, german, inflection, slots
from phrasebook.concepts import Noun
from phrasebook.french_words import ELISIONS, begins_with_vowel
from phrasebook.lexicon import (
    ADJECTIVES,
    FREQUENCIES,
    MANNERS,
    MODALS,
    NOUNS,
    NUMBERS,
    PEOPLE,
    REGIONS,
    RELATIONS,
    TIMES,
    VERBS,
)
from phrasebook.linearise import RENDERERS, sample_trees
from phrasebook.tokens import Rendering
from phrasebook.tree import (
    Clause,
    Copula,
    Determiner,
    Joined,
    NounPhrase,
    Pronoun,
    Sentence,
    Statement,
    Tense,
)

COUNTABLE = tuple(noun for noun in NOUNS.values() if not noun.is_mass)


@pytest.fixture(scope="module")
def sentences() -> list[Sentence]:
    return list(islice(sample_trees(seed=21, split="train"), 800))


@pytest.fixture(scope="module")
def rendered(sentences: list[Sentence]) -> dict[str, list[Rendering]]:
    return {language: [render(sentence) for sentence in sentences] for language, render in RENDERERS.items()}


def test_lexicon_has_several_hundred_entries() -> None:
    tables = (NOUNS, VERBS, ADJECTIVES, PEOPLE, REGIONS, RELATIONS, TIMES, FREQUENCIES, MANNERS, MODALS)
    assert sum(len(table) for table in tables) + len(NUMBERS[2:]) >= 400


def test_no_two_nouns_share_a_word_where_they_could_be_confused() -> None:
    """Girl and daughter are both fille, but only a daughter is somebody's."""
    for language in ("en", "de", "zh"):
        words = [getattr(noun, language)[0 if language != "de" else 1] for noun in NOUNS.values()]
        assert len(set(words)) == len(words)
    french_words = [noun.fr.singular for noun in NOUNS.values()]
    assert {word for word in french_words if french_words.count(word) > 1} == {"fille"}


@pytest.mark.parametrize("noun", COUNTABLE, ids=lambda noun: noun.name)
def test_every_noun_takes_its_classifier(noun: Noun) -> None:
    word, classifier = noun.zh
    for determiner, first in ((Determiner.THE, "那"), (Determiner.THIS, "这"), (Determiner.A, "一")):
        tokens = [token for token, _ in chinese.noun_phrase(NounPhrase(noun, determiner), 1)]
        assert tokens == [first, classifier, word]
    two = [token for token, _ in chinese.noun_phrase(NounPhrase(noun, Determiner.BARE, True, 2), 1)]
    assert two == ["两", classifier, word]


@pytest.mark.parametrize("noun", COUNTABLE, ids=lambda noun: noun.name)
def test_german_articles_and_adjectives_mark_gender_once(noun: Noun) -> None:
    """Either the article shows the gender (der alte) or the adjective does (ein alter)."""
    marks = ("r", "e", "s")[noun.de.gender]
    adjective = ADJECTIVES["big"]
    definite = [word for word, _ in german.noun_phrase(NounPhrase(noun, Determiner.THE, adjective=adjective), 1, 0)]
    mixed = [word for word, _ in german.noun_phrase(NounPhrase(noun, Determiner.A, adjective=adjective), 1, 0)]
    assert definite[0].endswith(marks)
    assert definite[1] == "große"
    assert mixed[1].endswith(marks)
    assert mixed[0] == ("eine" if noun.de.gender == 1 else "ein")
    for case, article in enumerate(("die", "die", "den")):
        plural = [word for word, _ in german.noun_phrase(NounPhrase(noun, Determiner.THE, True), 1, case)]
        assert plural[0] == article
    assert plural[1].endswith(("n", "s"))


@pytest.mark.parametrize("noun", COUNTABLE, ids=lambda noun: noun.name)
def test_french_adjectives_agree_with_their_noun(noun: Noun) -> None:
    for name, masculine, feminine in (
        ("red", "rouge", "rouge"),
        ("green", "vert", "verte"),
        ("small", "petit", "petite"),
    ):
        adjective = ADJECTIVES[name]
        expected = feminine if noun.fr.feminine else masculine
        for plural in (False, True):
            words = [
                word
                for word, _ in french.noun_phrase(NounPhrase(noun, Determiner.THIS, plural, adjective=adjective), 1)
            ]
            assert expected + ("s" if plural else "") in words
            assert words[1 if name == "small" else 2] == expected + ("s" if plural else "")


def test_french_participles_agree_with_the_subject_after_etre_only() -> None:
    women, men = NounPhrase(NOUNS["woman"], Determiner.THE, True), NounPhrase(NOUNS["man"], Determiner.THE, True)
    for verb in (verb for verb in VERBS.values() if verb.fr.etre and "state" not in verb.traits):
        assert f"{verb.fr.participle}es" in french.render(Statement(Clause(women, verb, Tense.PAST))).tokens
        assert f"{verb.fr.participle}s" in french.render(Statement(Clause(men, verb, Tense.PAST))).tokens
    for verb in (VERBS["sleep"], VERBS["eat"], VERBS["run"]):
        assert verb.fr.participle in french.render(Statement(Clause(women, verb, Tense.PAST))).tokens


def test_verbs_agree_with_every_pronoun() -> None:
    expected = {
        "en": ("I sleep.", "You sleep.", "He sleeps.", "She sleeps.", "We sleep.", "They sleep."),
        "fr": ("Je dors.", "Tu dors.", "Il dort.", "Elle dort.", "Nous dormons.", "Ils dorment."),
        "de": ("Ich schlafe.", "Du schläfst.", "Er schläft.", "Sie schläft.", "Wir schlafen.", "Sie schlafen."),
        "zh": ("我睡觉。", "你睡觉。", "他睡觉。", "她睡觉。", "我们睡觉。", "他们睡觉。"),
    }
    for language, texts in expected.items():
        for pronoun, text in zip(Pronoun, texts, strict=False):
            assert RENDERERS[language](Statement(Clause(pronoun, VERBS["sleep"]))).text == text


def test_german_verbs_stand_last_after_weil_and_together_with_their_prefix() -> None:
    reason = Copula(Pronoun.SHE, ADJECTIVES["tired"])
    for verb in VERBS.values():
        sentence = Joined("because", reason, Clause(Pronoun.HE, verb))
        words = german.render(sentence).tokens
        assert words[-2] == verb.de.prefix + verb.de.present[2]
        main = german.render(Statement(Clause(Pronoun.HE, verb))).tokens
        assert main[1] == verb.de.present[2]
        assert not verb.de.prefix or main[-2] == verb.de.prefix


def test_french_elides_before_every_vowel(rendered: dict[str, list[Rendering]]) -> None:
    for rendering in rendered["fr"]:
        words = rendering.tokens
        for word, following in pairwise(words):
            if word.lower() in ELISIONS:
                assert not begins_with_vowel(following), rendering.text
            if word.endswith("'"):
                assert begins_with_vowel(following), rendering.text


def test_french_contracts_its_prepositions(rendered: dict[str, list[Rendering]]) -> None:
    """Only a clitic could stand as le or les after à or de, and none does here."""
    for rendering in rendered["fr"]:
        for wrong in (" à le ", " à les ", " de le ", " de les ", " à au ", " de du "):
            assert wrong not in rendering.text


def test_german_contracts_its_prepositions(rendered: dict[str, list[Rendering]]) -> None:
    for rendering in rendered["de"]:
        for wrong in (" in dem ", " an dem ", " zu dem ", " zu der ", " in das "):
            assert wrong not in f" {rendering.text} ", rendering.text


def test_english_chooses_a_and_an(rendered: dict[str, list[Rendering]]) -> None:
    for rendering in rendered["en"]:
        words = [word.lower() for word in rendering.tokens]
        for word, following in pairwise(words):
            vowel = following[0] in "aeiou" and not following.startswith("uni")
            assert word != ("a" if vowel else "an"), rendering.text


def test_german_nouns_have_capitals(rendered: dict[str, list[Rendering]]) -> None:
    nouns = {form.lower() for noun in NOUNS.values() for form in (*noun.de.singular, *noun.de.plural)}
    # der Junge, but der junge Mann
    nouns -= {"junge", "jungen"}
    for rendering in rendered["de"]:
        for word in rendering.tokens:
            assert word.lower() not in nouns or word[0].isupper(), rendering.text


def test_negation_reaches_every_language(sentences: list[Sentence], rendered: dict[str, list[Rendering]]) -> None:
    negations = {
        "en": {"not", "cannot", "never"},
        "fr": {"pas", "jamais"},
        "de": {"nicht", "nie", "kein", "keine", "keinen", "keinem", "keiner"},
        "zh": {"不", "没", "从不"},
    }
    seen = 0
    for position, sentence in enumerate(sentences):
        if isinstance(sentence, Statement):
            clause = sentence.clause
            negated = clause.negated or (isinstance(clause, Clause) and clause.frequency is FREQUENCIES["never"])
            inner = isinstance(clause, Clause) and any(
                isinstance(part, NounPhrase) and part.relative for part in (clause.subject, clause.object)
            )
            for language, words in negations.items():
                found = not words.isdisjoint(rendered[language][position].tokens)
                assert found == negated or inner, rendered[language][position].text
            seen += negated
    assert seen > 20


def test_every_part_of_a_clause_is_said_in_every_language(
    sentences: list[Sentence], rendered: dict[str, list[Rendering]]
) -> None:
    """A part that one language dropped would make two trees one sentence, and mix the splits."""
    base = slots.ROOT << 4 | slots.LEFT
    parts = {
        "subject": slots.SUBJECT,
        "verb": slots.VERB,
        "modal": slots.MODAL,
        "object": slots.OBJECT,
        "recipient": slots.RECIPIENT,
        "place": slots.PLACE,
        "goal": slots.GOAL,
        "time": slots.TIME,
        "frequency": slots.FREQUENCY,
        "manner": slots.MANNER,
    }
    for position, sentence in enumerate(sentences):
        if isinstance(sentence, Statement) and isinstance(sentence.clause, Clause):
            for field, slot in parts.items():
                value = getattr(sentence.clause, field)
                if value is None or value is Pronoun.WEATHER:
                    continue
                for language in RENDERERS:
                    rendering = rendered[language][position]
                    tags = {part for tag in rendering.tags for part in (tag if isinstance(tag, tuple) else (tag,))}
                    said = {tag >> shift for tag in tags for shift in range(0, 40, 4)}
                    assert base << 4 | slot in said, (field, language, rendering.text)


@pytest.mark.parametrize(
    ("base", "third", "past", "progressive"),
    [
        ("cry", "cries", "cried", "crying"),
        ("watch", "watches", "watched", "watching"),
        ("love", "loves", "loved", "loving"),
        ("play", "plays", "played", "playing"),
    ],
)
def test_english_verbs_follow_the_spelling_rules(base: str, third: str, past: str, progressive: str) -> None:
    verb = inflection.english_verb(base)
    assert (verb.third, verb.past, verb.progressive) == (third, past, progressive)


@pytest.mark.parametrize(
    ("entry", "present"),
    [
        ("manger", ("mange", "manges", "mange", "mangeons", "mangez", "mangent")),
        ("placer", ("place", "places", "place", "plaçons", "placez", "placent")),
        ("nourrir", ("nourris", "nourris", "nourrit", "nourrissons", "nourrissez", "nourrissent")),
    ],
)
def test_french_regular_verbs_are_conjugated(entry: str, present: tuple[str, ...]) -> None:
    assert inflection.french_verb(entry).present == present


@pytest.mark.parametrize(
    ("entry", "present", "participle", "imperative"),
    [
        ("arbeiten", ("arbeite", "arbeitest", "arbeitet", "arbeiten", "arbeitet", "arbeiten"), "gearbeitet", "arbeite"),
        ("tanzen", ("tanze", "tanzt", "tanzt", "tanzen", "tanzt", "tanzen"), "getanzt", "tanz"),
        ("auf.machen", ("mache", "machst", "macht", "machen", "macht", "machen"), "aufgemacht", "mach"),
        ("lesen liest liest gelesen", ("lese", "liest", "liest", "lesen", "lest", "lesen"), "gelesen", "lies"),
        ("geben gibst gibt gegeben", ("gebe", "gibst", "gibt", "geben", "gebt", "geben"), "gegeben", "gib"),
    ],
)
def test_german_verbs_are_conjugated(entry: str, present: tuple[str, ...], participle: str, imperative: str) -> None:
    verb = inflection.german_verb(entry)
    assert (verb.present, verb.participle, verb.imperative) == (present, participle, imperative)


def test_english_questions_and_negations_use_the_base_form() -> None:
    for verb in VERBS.values():
        words = english.render(Statement(Clause(Pronoun.SHE, verb, Tense.PAST, negated=True))).tokens
        assert words[1:4] == ("did", "not", verb.en.base)
