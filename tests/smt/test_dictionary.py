"""The dictionary with rules: longest match, rules of order, combinations and scores against brute force, by example."""

import math
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.calling import call
from seqloom.core.errors import ConfigError, DataError
from seqloom.runs.translation import complete_words
from seqloom.runs.translator import source_sentence
from seqloom.search.settings import SearchConfig
from seqloom.smt.dictionary import (
    Dictionary,
    DictionaryEntry,
    DictionaryTranslator,
    Lookup,
    Translated,
    best_choices,
)
from seqloom.smt.rules import ANY, Phrase, Rule, read_rules, reorder
from seqloom.text.tokenizer import TextConfig, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizers
from tiny_runs import write_corpus

WORDS = st.sampled_from(["a", "b", "c", "A", "B"])
SENTENCES = st.lists(WORDS, min_size=1, max_size=6)
KEYS = st.lists(st.lists(WORDS, min_size=1, max_size=3).map(tuple), unique=True, max_size=6)


def lengths_of(count: int) -> list[tuple[int, ...]]:
    """All ways to cut so many words into parts."""
    return [(n, *rest) for n in range(1, count + 1) for rest in (lengths_of(count - n) if n < count else [()])]


@given(SENTENCES, KEYS)
def test_phrases_are_the_longest_from_left_to_right(words: list[str], keys: list[tuple[str, ...]]) -> None:
    lookup = Lookup([Translated(key, (" ".join(key),), "", 1.0) for key in keys], is_word=lambda _word: True)
    units = lookup.units(words)
    known = {tuple(map(str.lower, key)) for key in keys}

    def is_known(begin: int, length: int) -> bool:
        return length == 1 or tuple(map(str.lower, words[begin : begin + length])) in known

    possible = [
        parts for parts in lengths_of(len(words)) if all(is_known(sum(parts[:at]), n) for at, n in enumerate(parts))
    ]
    assert tuple(unit.end - unit.begin for unit in units) == max(possible)
    for unit in units:
        written = tuple(words[unit.begin : unit.end])
        (chosen,) = unit.options[0].words
        if written in keys:
            assert chosen == " ".join(written)
        elif tuple(map(str.lower, written)) in known:
            assert chosen.lower() == " ".join(written).lower()
        else:
            assert (unit.how, chosen) == ("copied", written[0])


CLASSES = "nva"
RULES = st.lists(
    st.lists(st.sampled_from([*CLASSES, ANY]), min_size=2, max_size=3).flatmap(
        lambda each: st.permutations(range(len(each))).map(lambda order: Rule(tuple(each), tuple(order)))
    ),
    max_size=4,
)


@given(st.text(CLASSES, max_size=8), RULES)
def test_rules_are_applied_as_a_regular_expression_would_be(classes: str, rules: list[Rule]) -> None:
    expected = list(range(len(classes)))
    patterns = ["(" + "".join(rule.patterns).replace(ANY, ".") + ")" for rule in rules]
    for match in re.finditer("|".join(patterns), classes) if rules else ():
        assert match.lastindex is not None
        order = rules[match.lastindex - 1].order
        expected[match.start() : match.end()] = [match.start() + place for place in order]
    assert reorder([Phrase((each,), each) for each in classes], rules) == expected


@given(
    st.lists(
        st.lists(st.integers(-5, 0).map(float), min_size=1, max_size=4).map(lambda each: sorted(each)[::-1]), max_size=4
    )
)
def test_choices_come_by_falling_sum_and_once(values: list[list[float]]) -> None:
    found = list(best_choices(values))
    assert sorted(found) == sorted(product(*(range(len(each)) for each in values)))
    sums = [sum(each[at] for each, at in zip(values, choice, strict=True)) for choice in found]
    assert sums == sorted(sums, reverse=True)


def translator_of(
    entries: Sequence[tuple[str, str, str, float]], rules: Sequence[Rule] = (), *, text: Sequence[str] = ()
) -> DictionaryTranslator:
    """A translator of these entries, whose target vocabulary has the words of a text as well."""
    pairs = [(source, target) for source, target, _, _ in entries]
    lines = [source for source, _ in pairs], [*(target for _, target in pairs), *text, "."]
    tokenizers = complete_words(train_tokenizers(*lines, TextConfig(kind="word", size=1000, shared=False)), pairs)
    cut = tuple(Translated(tuple(a.split()), tuple(b.split()), category, score) for a, b, category, score in entries)
    return DictionaryTranslator(cut, tuple(rules), tokenizers, {})


def translations(model: DictionaryTranslator, line: str, *, nbest: int = 1) -> list[str]:
    found = model.search(
        [source_sentence(model.tokenizers.source, line)], SearchConfig(beam=100, nbest=nbest, unknown="copy")
    )
    return [model.tokenizers.target.decode(each.symbols) for each in found[0]]


ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "a b", "c"]),
        st.sampled_from(["x", "y", "x y", "", "x x"]),
        st.sampled_from(["n", "v"]),
        st.sampled_from([1.0, 0.5, 0.25]),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60)
@given(ENTRIES, st.lists(st.sampled_from(["a", "b", "c", "d", "A"]), min_size=1, max_size=4), RULES)
def test_the_score_of_a_text_is_that_of_its_best_derivation(
    entries: list[tuple[str, str, str, float]], words: list[str], rules: list[Rule]
) -> None:
    model = translator_of(entries, rules, text=["X y"])
    sentence = source_sentence(model.tokenizers.source, " ".join(words))
    (found,) = model.search([sentence], SearchConfig(beam=1000, nbest=1000))
    best = {each.symbols: each.score for each in found}
    assert len(best) == len(found)
    assert list(best.values()) == sorted(best.values(), reverse=True)
    for each in found:
        assert math.isclose(math.fsum(each.terms.values()), each.score, abs_tol=1e-9)
        assert math.isclose(math.fsum(each.token_log_probs), each.score, abs_tol=1e-9)
    scores = model.score([sentence] * len(best), list(best))
    assert scores == pytest.approx(list(best.values()), abs=1e-9)
    impossible = (*max(best, key=len), model.tokenizers.target.encode("y")[0])
    assert model.score([sentence], [impossible]) == [-math.inf]


GIVEN = [
    ("the", "le", "article", 1.0),
    ("red", "rouge", "adjective", 1.0),
    ("red", "roux", "adjective", 0.5),
    ("car", "voiture", "noun", 1.0),
    ("ice cream", "glace", "noun", 1.0),
    ("eats", "mange", "verb", 1.0),
    ("please", "", "", 1.0),
    ("friend", "ami", "noun", 1.0),
    ("friends", "amis", "noun", 1.0),
    ("teacher", "professeur", "noun", 1.0),
    ("teachers", "professeurs", "noun", 1.0),
    ("garden", "jardin", "noun", 1.0),
    ("window", "bureau", "noun", 1.0),
    ("Ann", "Anne", "", 1.0),
]
FRENCH = [Rule(("adjective", "noun"), (1, 0)), Rule(("noun", "word:today"), (1, 0))]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("The red car", "Le voiture rouge"),  # found in lower case, reordered, with its capital again
        ("the red ice cream eats", "le glace rouge mange"),  # the longest phrase
        ("car today please", "⁇ voiture"),  # a rule on a word; a word that is left out
        ("ANN eats", "Anne mange"),
        ("gardens", "jardins"),  # "" → "s" as in friends and teachers, and jardins is a word
        ("windows", "bureau"),  # bureaus is not
        ("red", "rouge"),
        ("red.", "rouge."),
    ],
)
def test_a_sentence_is_translated_by_phrases_stems_and_rules(line: str, expected: str) -> None:
    assert translations(translator_of(GIVEN, FRENCH, text=["les jardins"]), line) == [expected]


def test_alternatives_come_in_the_order_of_their_scores() -> None:
    assert translations(translator_of(GIVEN), "red car", nbest=5) == ["rouge voiture", "roux voiture"]


def test_a_file_is_read_and_written(tmp_path: Path) -> None:
    file = tmp_path / "words.tsv"
    file.write_text("# a comment\nHund\tdog\tnoun\n\nguten Morgen\tgood morning\t\t0.5\ndoch\t\n", encoding="utf-8")
    read = Dictionary.read(file)
    assert read.entries == (
        DictionaryEntry("Hund", "dog", "noun"),
        DictionaryEntry("guten Morgen", "good morning", "", 0.5),
        DictionaryEntry("doch", ""),
    )
    assert read.classes == ["noun"]
    read.write(tmp_path / "again.tsv")
    assert Dictionary.read(tmp_path / "again.tsv") == read
    for line, problem in (
        ("Hund dog", "no tab in 'Hund dog'; a line is a word, a tab and its translation"),
        ("\tdog", "no word before the tab"),
        ("a\tb\tc\t0", "the score '0' is not a number above 0"),
        ("a\tb\tc\t1\te", "5 columns; there are at most 4"),
    ):
        file.write_text(f"Katze\tcat\n{line}\n", encoding="utf-8")
        with pytest.raises(DataError, match=re.escape(f"{file}:2: {problem}")):
            Dictionary.read(file)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "- from: [noun, adverb]\n  to: [2, 1]\n",
            "rules.yaml:1: unknown class 'adverb'; classes are those of words.tsv",
        ),
        ("from: x\n", "rules are a list"),
        ("- [noun, noun]\n", "a rule has `from` and `to`"),
        ("- from: [noun]\n  to: [1]\n", "`from` is a list of two or more classes"),
        ("- from: [noun, noun]\n  to: [noun, noun]\n", "`from` has a class twice"),
        ("- from: [noun, verb]\n  to: [1, 1]\n", "`to` must have each of ['noun', 'verb'] once"),
        ("- from: [noun, verb]\n  to: [verb, adjective]\n", "`to` must have each of ['noun', 'verb'] once"),
    ],
)
def test_rules_that_cannot_be_applied_are_refused(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=re.escape(problem)):
        read_rules(file, ["noun", "verb"], origin="words.tsv")


def test_a_given_dictionary_needs_no_word_of_the_pairs(tmp_path: Path) -> None:
    files, dev = write_corpus(tmp_path, count=30)
    words, rules, out = tmp_path / "words.tsv", tmp_path / "rules.yaml", tmp_path / "run"
    words.write_text(
        "blue zeppelin\tblaues Luftschiff\tnoun\nflies\tfliegt\tverb\nYesterday\tgestern\tadverb\n", "utf-8"
    )
    rules.write_text("- from: [adverb, noun, verb]\n  to: [adverb, verb, noun]\n", encoding="utf-8")
    named = [*(word for name in files for word in ("--train", name)), "--dev", f"{dev[0]},{dev[1]}", "--out", out]
    settings = ["model.kind=dictionary", f"model.file={words}", "data.workers=1", "evaluation.resamples=40"]
    trained = call("train", *settings, f"model.rules={rules}", *named)
    assert trained.code == 0, trained.err
    assert "dictionary of 3 words and phrases" in trained.err
    text = tmp_path / "text.en"
    text.write_text("Yesterday blue zeppelin flies!\n", encoding="utf-8")
    words.unlink()  # the model has all that it needs
    rules.unlink()
    assert call("translate", out, text).out == "Gestern fliegt blaues Luftschiff!\n"

    named[-1] = tmp_path / "other"
    words.write_text("Hund\tdog\tnoun\nKatze cat\n", encoding="utf-8")
    called = call("train", *settings, *named)
    assert (called.code, f"{words}:2: no tab in 'Katze cat'" in called.err) == (3, True), called
    words.write_text("Hund\tdog\tnoun\n", encoding="utf-8")
    rules.write_text("- from: [noun, verb]\n  to: [verb, noun]\n", encoding="utf-8")
    called = call("train", *settings, f"model.rules={rules}", *named)
    assert called.code == 2
    assert f"unknown class 'verb'; classes are those of {words}, and they are noun" in called.err
    assert not (tmp_path / "other").exists()


def test_vocabularies_of_fitted_translators_have_what_they_may_write() -> None:
    text = TextConfig(kind="word", size=100, shared=False)
    learned = train_tokenizers(["Der Hund: ja!"], ["The dog"], text)
    tokenizers: Tokenizers = complete_words(learned, [("Gute Nacht", "good night")])
    assert tokenizers.source.vocabulary[: learned.source.size] == learned.source.vocabulary
    assert {"Gute", "Nacht"} <= set(tokenizers.source.vocabulary)
    assert {"the", "Dog", "good", "Good", "￭:", "￭!"} <= set(tokenizers.target.vocabulary)


def test_a_mark_of_both_languages_translates_itself(tmp_path: Path) -> None:
    """Where the target language leaves most commas out, the full stop explains them better than the comma does."""
    nouns = {"Mann": "man", "Kind": "child", "Hund": "dog", "Vogel": "bird", "Koch": "cook"}
    verbs = {"singt": "sings", "rennt": "runs", "lacht": "laughs", "isst": "eats"}
    pairs = [(f"ein {x} , der {v} .", f"a {y} who {w} .") for x, y in nouns.items() for v, w in verbs.items()]
    pairs += [(f"hallo , {x} .", f"hello , {y} .") for x, y in list(nouns.items())[:3]]
    for code, lines in zip(("de", "en"), zip(*pairs, strict=True), strict=True):
        (tmp_path / f"train.{code}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        (tmp_path / f"dev.{code}").write_text(f"{lines[0]}\n", encoding="utf-8")
    files = [word for name in ("train", "dev") for word in (f"--{name}", f"{tmp_path}/{name}.de,{tmp_path}/{name}.en")]
    trained = call("train", "model.kind=dictionary", *files, "--out", tmp_path / "run")
    assert trained.code == 0, trained.err
    (tmp_path / "text").write_text("hallo , Koch .\n", encoding="utf-8")
    assert call("translate", tmp_path / "run", tmp_path / "text").out == "hello , cook .\n"
