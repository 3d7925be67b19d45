"""The corpus as its users see it: pairs, splits, alignments, determinism, size."""

from itertools import islice, product

import pytest

from seqloom.core.errors import UsageError
from seqloom.data.phrasebook import LANGUAGES, PhrasePair, Split, note_pairs, sample_pairs, sample_sentences, tree
from seqloom.data.phrasebook.lexicon import NOUNS, PEOPLE, VERBS
from seqloom.data.phrasebook.pairs import RENDERERS, sample_trees
from seqloom.data.phrasebook.splits import SPLITS, is_held_out, split_of
from seqloom.data.phrasebook.tokens import Rendering
from seqloom.data.phrasebook.tree import Clause, Determiner, NounPhrase, Pronoun, Statement, Tense

PAIRS = tuple((source, target) for source, target in product(LANGUAGES, LANGUAGES) if source != target)


def draw(split: Split, count: int, seed: int = 1) -> list[tree.Sentence]:
    return list(islice(sample_trees(seed=seed, split=split), count))


def test_languages_are_english_french_german_and_chinese() -> None:
    assert LANGUAGES == ("en", "fr", "de", "zh")


def test_pair_holds_both_texts_their_tokens_and_the_alignment() -> None:
    weather = note_pairs("zh", "en")[0]
    assert weather == PhrasePair(
        "今天天气很好。",
        "Today's weather is good.",
        ("今天", "天气", "很", "好", "。"),
        ("Today", "'s", "weather", "is", "good", "."),
        ((0, 0), (1, 2), (2, 3), (3, 4), (4, 5)),
    )


def test_notes_are_translated_between_all_languages() -> None:
    outcries = {target: note_pairs("en", target)[1].target for target in ("fr", "de", "zh")}
    assert outcries == {"fr": "Comment oses-tu !", "de": "Wie kannst du es wagen!", "zh": "你怎么敢！"}
    assert all(split_of(tree.Note(which)) == "train" for which in range(2))


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_sampled_sources_are_distinct_and_as_many_as_asked(source: str, target: str) -> None:
    pairs = sample_pairs(source, target, count=60, seed=4)
    assert len({pair.source for pair in pairs}) == 60
    assert pairs == sample_pairs(source, target, count=60, seed=4)
    assert pairs[:20] == sample_pairs(source, target, count=20, seed=4)


def test_seeds_differ() -> None:
    assert sample_sentences("en", count=50, seed=1) != sample_sentences("en", count=50, seed=2)


def test_unknown_language_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no language 'it'; it knows en, fr, de, zh"):
        sample_pairs("en", "it", count=1, seed=0)
    with pytest.raises(UsageError, match=r"no language 'xx'"):
        note_pairs("xx", "en")


def test_negative_count_is_refused_and_none_is_given() -> None:
    with pytest.raises(UsageError, match=r"cannot sample -1 sentences; ask for 0 or more"):
        sample_sentences("en", count=-1, seed=0)
    assert sample_sentences("en", count=0, seed=0) == []


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


def test_alignment_points_to_tokens_and_links_what_has_content() -> None:
    for source, target in PAIRS:
        for pair in sample_pairs(source, target, count=60, seed=6):
            assert all(
                0 <= first < len(pair.source_tokens) and 0 <= second < len(pair.target_tokens)
                for first, second in pair.alignment
            )
            assert len(set(pair.alignment)) == len(pair.alignment)
            last = (len(pair.source_tokens) - 1, len(pair.target_tokens) - 1)
            assert last in pair.alignment


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


def test_alignment_is_the_same_from_both_sides() -> None:
    there = sample_pairs("en", "de", count=100, seed=2)
    back = {(pair.source, pair.target): pair for pair in sample_pairs("de", "en", count=100, seed=2)}
    for pair in there:
        mirrored = back.get((pair.target, pair.source))
        if mirrored is not None:
            assert set(pair.alignment) == {(first, second) for second, first in mirrored.alignment}


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
