"""The grammar of the phrasebook: splits, tokens and spelling; and the file that is made from it."""

from itertools import islice

import pytest
import zstandard

from phrasebook import __main__ as maker
from phrasebook import tree
from phrasebook.lexicon import NOUNS, PEOPLE, VERBS
from phrasebook.linearise import RENDERERS, sample_trees
from phrasebook.splits import is_held_out, split_of
from phrasebook.tokens import Rendering
from phrasebook.tree import Clause, Determiner, NounPhrase, Pronoun, Statement, Tense
from seqloom.data.phrasebook import FILE, SPLITS, Split, sample_pairs


def draw(split: Split, count: int, seed: int = 1) -> list[tree.Sentence]:
    return list(islice(sample_trees(seed=seed, split=split), count))


@pytest.mark.parametrize("seed", [1, 4])
@pytest.mark.parametrize("split", SPLITS)
def test_the_first_seeds_read_what_the_grammar_draws_with_them(split: Split, seed: int) -> None:
    drawn = [RENDERERS["de"](sentence) for sentence in draw(split, 30, seed=seed)]
    distinct = list(dict.fromkeys(rendering.text for rendering in drawn))
    read = sample_pairs("de", "en", count=len(distinct), seed=seed, split=split)
    assert [pair.source for pair in read] == distinct
    assert {pair.source_tokens for pair in read} == {rendering.tokens for rendering in drawn}


@pytest.mark.slow
def test_the_file_is_what_the_grammar_makes() -> None:
    assert zstandard.ZstdDecompressor().decompress(FILE.read_bytes()).decode() == maker.corpus()


def test_notes_belong_to_the_training_split() -> None:
    assert all(split_of(tree.Note(which)) == "train" for which in range(2))


@pytest.mark.parametrize("split", SPLITS)
def test_features_that_a_language_may_leave_unsaid_do_not_change_the_split(split: Split) -> None:
    for sentence in draw(split, 60, seed=8):
        if isinstance(sentence, Statement) and isinstance(sentence.clause, Clause):
            clause = sentence.clause
            other = clause._replace(tense=Tense.FUTURE, negated=not clause.negated)
            if isinstance(clause.subject, NounPhrase):
                other = other._replace(subject=clause.subject._replace(plural=True, determiner=Determiner.THE))
            assert split_of(Statement(other)) == split_of(sentence) == split
            assert split_of(tree.Question(other)) == split


def test_held_out_pairs_never_occur_outside_unseen() -> None:
    pairs = [(verb, noun) for verb in VERBS.values() for noun in verb.objects]
    held_out = [(verb, noun) for verb, noun in pairs if is_held_out(verb, noun)]
    assert 0.01 < len(held_out) / len(pairs) < 0.08
    for verb, noun in held_out:
        for determiner in (Determiner.THE, Determiner.A):
            sentence = Statement(Clause(Pronoun.HE, verb, object=NounPhrase(noun, determiner)))
            assert split_of(sentence) == "unseen"


def test_every_verb_keeps_objects_for_training() -> None:
    for verb in VERBS.values():
        assert not verb.objects or any(not is_held_out(verb, noun) for noun in verb.objects), verb


@pytest.fixture(scope="module")
def renderings() -> list[dict[str, Rendering]]:
    trees = [sentence for split in SPLITS for sentence in draw(split, 100, seed=5)]
    return [{language: render(sentence) for language, render in RENDERERS.items()} for sentence in trees]


def test_names_and_nouns_are_aligned_with_their_translations() -> None:
    forms = [
        {noun.en[0]: (noun.de.singular[0], noun.zh[0]) for noun in NOUNS.values() if " " not in noun.en[0]},
        {person.en: (person.de, person.zh) for person in PEOPLE.values()},
    ]
    words = {english: pair for table in forms for english, pair in table.items()}
    checked = 0
    for target, column in (("de", 0), ("zh", 1)):
        for pair in sample_pairs("en", target, count=250, seed=7):
            for position, word in enumerate(pair.source_tokens):
                if word in words and words[word][column] in pair.target_tokens:
                    linked = {pair.target_tokens[second] for first, second in pair.alignment if first == position}
                    assert words[word][column] in linked, (pair, word)
                    checked += 1
    assert checked > 200


def test_text_is_its_tokens_put_together(renderings: list[dict[str, Rendering]]) -> None:
    for row in renderings:
        for rendering in row.values():
            assert "".join(rendering.tokens) == rendering.text.replace(" ", "")
            assert len(rendering.tokens) == len(rendering.tags)
            assert all(token and " " not in token for token in rendering.tokens)


def test_spelling_follows_each_language(renderings: list[dict[str, Rendering]]) -> None:
    for row in renderings:
        assert " " not in row["zh"].text
        assert row["zh"].text[-1] in "。？！"
        for language in ("en", "fr", "de"):
            text = row[language].text
            assert text[0] == text[0].upper()
            assert "  " not in text
            assert " ," not in text
            assert " ." not in text
            assert text.endswith((" ?", " !", ".") if language == "fr" else ("?", "!", "."))
        if row["en"].text[-1] in "?!":
            assert row["fr"].text[-2] == " "
            assert row["en"].text[-2] != " "


def test_closing_marks_agree_across_languages(renderings: list[dict[str, Rendering]]) -> None:
    marks = {".": "。", "?": "？", "!": "！"}
    for row in renderings:
        assert row["fr"].text[-1] == row["de"].text[-1] == row["en"].text[-1]
        assert row["zh"].text[-1] == marks[row["en"].text[-1]]
