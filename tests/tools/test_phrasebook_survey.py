"""Facts about many thousands of sentences.

This file runs itself as a program in processes with different hash seeds, and the tests compare what it reports: a
second process makes a part of the sentences, and all of them in the slow test.
"""

import hashlib
import json
import os
import subprocess
import sys
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest

from phrasebook import tree
from phrasebook.concepts import Concept
from phrasebook.lexicon import PEOPLE
from phrasebook.linearise import RENDERERS, sample_trees
from phrasebook.phrases import PLAIN_VERBS
from phrasebook.tree import Clause, Determiner, NounPhrase, Statement, Tense
from seqloom.data.phrasebook import LANGUAGES, Split

SIZES: dict[Split, int] = {"train": 20_000, "dev": 1_000, "test": 1_000, "unseen": 1_000}
PART = 1_500
"""Sentences of each split that are enough to see whether anything depends on the process."""
PAIRS = tuple((source, target) for source, target in product(LANGUAGES, LANGUAGES) if source != target)


def concepts_in(node: object) -> set[Concept]:
    if isinstance(node, Concept):
        return {node}
    return set().union(*map(concepts_in, node)) if isinstance(node, tuple) else set()


def simple_sentences(language: str) -> tuple[int, int]:
    """How many sentences "name verb object" there are, and how many of them do not start with the bare name."""
    render = RENDERERS[language]
    anna, paul = PEOPLE["Anna"], PEOPLE["Paul"]
    objects = [(verb, noun) for verb in PLAIN_VERBS for noun in verb.objects if not (noun.is_mass or noun.is_kin)]
    rests, odd = set(), 0
    for (verb, noun), determiner, tense in product(
        objects, (Determiner.THE, Determiner.A, Determiner.THIS), (Tense.PRESENT, Tense.PAST, Tense.FUTURE)
    ):
        thing = NounPhrase(noun, determiner)
        first = render(Statement(Clause(anna, verb, tense, object=thing))).text
        second = render(Statement(Clause(paul, verb, tense, object=thing))).text
        rests.add(first.removeprefix(getattr(anna, language)))
        odd += first.removeprefix(getattr(anna, language)) != second.removeprefix(getattr(paul, language))
    return len(rests) * len({getattr(person, language) for person in PEOPLE.values()}), odd


Texts = dict[str, dict[Split, list[str]]]


def draw(*, most: int) -> tuple[dict[Split, list[Any]], Texts]:
    """Sentences of each split, and what each language says for them."""
    sizes = {split: min(size, most) for split, size in SIZES.items()}
    drawn = {split: list(islice(sample_trees(seed=3, split=split), size)) for split, size in sizes.items()}
    texts: Texts = {
        language: {split: [render(sentence).text for sentence in trees] for split, trees in drawn.items()}
        for language, render in RENDERERS.items()
    }
    return drawn, texts


def digest(texts: Texts, *, most: int) -> str:
    """One number for the first sentences of each split."""
    first = {language: {split: part[:most] for split, part in parts.items()} for language, parts in texts.items()}
    return hashlib.sha256(repr(first).encode()).hexdigest()


def take_survey() -> dict[str, Any]:
    drawn, texts = draw(most=max(SIZES.values()))
    shared, translations = {}, {}
    for language, parts in texts.items():
        sets = {split: set(part) for split, part in parts.items()}
        shared[language] = sum(map(len, sets.values())) - len(set().union(*sets.values()))
    for source, target in PAIRS:
        found: dict[str, set[str]] = {}
        for first, second in zip(texts[source]["train"], texts[target]["train"], strict=True):
            found.setdefault(first, set()).add(second)
        translations[f"{source}-{target}"] = sum(len(several) > 1 for several in found.values())
    known = set().union(*map(concepts_in, drawn["train"]))
    unknown = set().union(*map(concepts_in, drawn["unseen"])) - known
    lengths = [len(RENDERERS["en"](sentence).tokens) - 1 for sentence in drawn["train"]]
    return {
        "shared": shared,
        "several translations": translations,
        "unknown": sorted(concept.name for concept in unknown),
        "distinct": {language: len(set(texts[language]["train"])) for language in LANGUAGES},
        "simple": {language: simple_sentences(language) for language in LANGUAGES},
        "lengths": [min(lengths), max(lengths), sum(lengths) / len(lengths)],
        "torch": "torch" in sys.modules,
        "notes": sum(isinstance(sentence, tree.Note) for sentence in drawn["train"]),
        "digest": digest(texts, most=max(SIZES.values())),
        "digest of a part": digest(texts, most=PART),
    }


def survey_with(hash_seed: str, *words: str) -> dict[str, Any]:
    paths = [str(Path(__file__).parents[2] / "tools"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    program = [sys.executable, str(Path(__file__).resolve()), *words]
    result = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    facts: dict[str, Any] = json.loads(result.stdout)
    return facts


@pytest.fixture(scope="module")
def survey() -> dict[str, Any]:
    return survey_with("1")


def test_splits_share_no_sentence_in_any_language(survey: dict[str, Any]) -> None:
    assert survey["shared"] == dict.fromkeys(LANGUAGES, 0)


def test_each_source_has_one_translation(survey: dict[str, Any]) -> None:
    """Twelve directions, 20,000 sentences: at most two in ten thousand may be said in two ways."""
    assert len(survey["several translations"]) == 12
    assert max(survey["several translations"].values()) <= 4


def test_unseen_sentences_combine_words_that_training_knows_apart(survey: dict[str, Any]) -> None:
    assert survey["unknown"] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_simple_transitive_sentences_alone_are_more_than_a_hundred_thousand(
    survey: dict[str, Any], language: str
) -> None:
    """One small corner of the grammar, counted: so many names times so many ways to go on."""
    count, odd = survey["simple"][language]
    assert odd == 0
    assert count >= 100_000


def test_sampled_sentences_seldom_repeat(survey: dict[str, Any]) -> None:
    assert min(survey["distinct"].values()) > 0.9 * SIZES["train"]


def test_sentences_have_two_to_two_dozen_words(survey: dict[str, Any]) -> None:
    shortest, longest, mean = survey["lengths"]
    assert shortest >= 2
    assert 15 <= longest <= 25
    assert 7 <= mean <= 9


def test_notes_are_part_of_the_training_split(survey: dict[str, Any]) -> None:
    assert survey["notes"] > 0


def test_torch_is_not_imported(survey: dict[str, Any]) -> None:
    assert survey["torch"] is False


@pytest.mark.slow
def test_nothing_depends_on_the_process(survey: dict[str, Any]) -> None:
    assert survey_with("2", "part") == {"digest of a part": survey["digest of a part"]}


@pytest.mark.slow
def test_none_of_all_sentences_depends_on_the_process(survey: dict[str, Any]) -> None:
    assert survey_with("2") == survey


if __name__ == "__main__":
    is_part = sys.argv[1:] == ["part"]
    facts = {"digest of a part": digest(draw(most=PART)[1], most=PART)} if is_part else take_survey()
    sys.stdout.write(json.dumps(facts))
