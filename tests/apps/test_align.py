"""The recipe of word alignment: words in, links out, and gold links that do not fit."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

import nasty
from seqloom.apps.align import AlignConfig, WordText, fit_words, read_reference, read_words
from seqloom.classical.alignment import rounds
from seqloom.core.errors import DataError
from seqloom.core.events import Event
from seqloom.data.corpus import ParallelCorpus, open_corpus
from seqloom.text.tokenizer import Segmentation

PAIRS = [
    ("Der Hund schläft.", "The dog sleeps."),
    ("", "nothing"),
    ("Der <unk> Hund!", "The <unk> dog!"),
    ("Die Katze schläft.", "The cat sleeps."),
]


@pytest.fixture
def corpus(tmp_path: Path) -> ParallelCorpus:
    paths = [tmp_path / "a.de", tmp_path / "a.en"]
    for side, path in enumerate(paths):
        path.write_text("".join(f"{pair[side]}\n" for pair in PAIRS), encoding="utf-8")
    return open_corpus(paths)


def shown(text: WordText, side: int, line: int) -> list[str]:
    bitext, words = text.bitext, (text.source_words, text.target_words)[side]
    ids, starts = ((bitext.sources, bitext.source_starts), (bitext.targets, bitext.target_starts))[side]
    return [words[number] for number in ids[starts[line] : starts[line + 1]]]


def test_words_are_cut_as_everywhere_and_are_never_taken_for_reserved_symbols(corpus: ParallelCorpus) -> None:
    text = read_words(corpus, AlignConfig())
    assert shown(text, 0, 0) == ["der", "hund", "schläft", "￭."]
    assert shown(text, 0, 1) == []
    assert text.bitext.sources.min() >= 4
    spaced = read_words(corpus, AlignConfig(segmentation="spaces", lowercase=False))
    assert shown(spaced, 1, 2) == ["The", "<unk>", "dog!"]
    assert spaced.bitext.targets.min() >= 4
    assert len(text.bitext) == len(spaced.bitext) == 4


def test_every_pair_has_its_links_and_progress_is_reported(corpus: ParallelCorpus) -> None:
    reported: list[Event] = []
    config = AlignConfig()
    text = read_words(corpus, config, listener=reported.append)
    learned = fit_words(text, config, listener=reported.append)
    pairs = list(learned.link(listener=reported.append))
    assert [(pair.source, pair.target) for pair in pairs] == [text.words(number) for number in range(4)]
    assert pairs[1].links == []
    assert {(2, 2), (3, 3)} <= set(pairs[0].links)
    assert [pair.links for pair in learned.link(first=2)] == [pair.links for pair in pairs[2:]]
    assert {event["what"] for event in reported} == {"reading", "learning alignments, rounds", "linking words"}
    assert all(event.kind == "progress" and event["done"] <= event["all"] for event in reported)
    for what, everything in (
        ("reading", 4),
        ("learning alignments, rounds", rounds(config.model)),
        ("linking words", 4),
    ):
        assert [event["done"] for event in reported if event["what"] == what][-1] == everything


def test_gold_links_must_fit_the_text(corpus: ParallelCorpus, tmp_path: Path) -> None:
    gold = tmp_path / "gold"
    gold.write_text("0-0 3-3\n\n0-0\n1?1\n", encoding="utf-8")
    assert [len(each.possible) for each in read_reference(gold, corpus, AlignConfig())] == [2, 0, 1, 1]
    gold.write_text("0-0\n1-1\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"gold: 2 lines, but 4 sentence pairs are aligned"):
        read_reference(gold, corpus, AlignConfig())
    gold.write_text("0-0 4-0\n0-0\n\n\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_reference(gold, corpus, AlignConfig())
    assert f"{gold}:1: link 4-0, but the sentences have 4 and 4 words" in str(caught.value)
    assert f"{gold}:2: link 0-0, but the sentences have 0 and 1 words" in str(caught.value)
    assert "are these the gold links of this text" in str(caught.value)


def test_gold_links_that_fit_otherwise_say_how(corpus: ParallelCorpus, tmp_path: Path) -> None:
    gold = tmp_path / "gold.wa"
    gold.write_text("1 4 4 S\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_reference(gold, corpus, AlignConfig(segmentation="spaces"))
    assert "all links fit with segmentation=words" in str(caught.value)
    assert f"{gold}: sentence 1: link 4-4, but the sentences have 3 and 3 words (counted from 1)" in str(caught.value)
    gold.write_text("2 1 0 S\n1 3 3\n2 1 0\n", encoding="utf-8")
    assert read_reference(gold, corpus, AlignConfig(segmentation="spaces"))[1].possible == set()
    paths = [tmp_path / "b.de", tmp_path / "b.en"]
    paths[0].write_text("Ja, ja\n", encoding="utf-8")
    paths[1].write_text("Yes\n", encoding="utf-8")
    gold.write_text("1 1 3 S\n", encoding="utf-8")
    with pytest.raises(DataError, match="fit the other way round, with segmentation=words"):
        read_reference(gold, open_corpus(paths), AlignConfig())


def test_a_segmentation_that_the_gold_links_do_not_count_by_is_warned_of(
    corpus: ParallelCorpus, tmp_path: Path
) -> None:
    gold = tmp_path / "gold.wa"

    def reported(segmentation: Segmentation) -> list[str]:
        events: list[Event] = []
        read_reference(gold, corpus, AlignConfig(segmentation=segmentation), listener=events.append)
        return [str(event["message"]) for event in events if "gold links seem to count" in str(event["message"])]

    gold.write_text("1 1 1\n1 3 3\n3 1 1\n3 3 3\n4 2 2\n4 3 3\n", encoding="utf-8")  # "schläft." is the third word
    (sentence,) = reported("words")
    assert "the last word of 6 with segmentation=spaces, but of 0 with segmentation=words" in sentence
    assert sentence.endswith("use segmentation=spaces")
    assert reported("spaces") == []
    gold.write_text("1 1 1\n1 4 4\n3 1 1\n3 3 3\n4 2 2\n4 4 4\n", encoding="utf-8")
    assert reported("words") == []


def test_the_threads_change_nothing(corpus: ParallelCorpus) -> None:
    text = read_words(corpus, AlignConfig())
    one, two = (fit_words(text, AlignConfig(), threads=threads).fitted.arrays() for threads in (1, 2))
    assert one.keys() == two.keys()
    assert all(np.array_equal(one[name], two[name]) for name in one)


@given(nasty.lines(fewest=2, most=5, longest=20, without="\0\r\t\ufeff"))
@settings(max_examples=20)
def test_any_text_has_a_row_of_links_for_each_pair(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    folder = tmp_path_factory.getbasetemp()
    paths = [folder / "any.de", folder / "any.en"]
    for path, side in zip(paths, (lines, lines[::-1]), strict=True):
        path.write_bytes("".join(f"{line}\n" for line in [*side, "the end"]).encode())
    config = AlignConfig()
    text = read_words(open_corpus(paths), config)
    assert "the" in text.source_words
    links = [pair.links for pair in fit_words(text, config).link()]
    assert len(links) == len(lines) + 1
    for number, row in enumerate(links):
        assert all(source < len(shown(text, 0, number)) for source, _ in row)
        assert all(target < len(shown(text, 1, number)) for _, target in row)
