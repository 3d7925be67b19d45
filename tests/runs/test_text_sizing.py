"""Sizes that are chosen for a text: honest counts of it, and validations that it can afford."""

from pathlib import Path

import pytest

from seqloom.classical.ngram import NGramConfig
from seqloom.core.declaration import TextFacts
from seqloom.core.events import Event, ignore
from seqloom.data.plain_text import TextCorpus
from seqloom.models.bert import BertConfig
from seqloom.models.gpt import WINDOWS
from seqloom.models.rnn_lm import RnnLmConfig
from seqloom.runs.prepare import choose_config
from seqloom.runs.sizing import choose_text_sizes, text_facts
from seqloom.tasks.settings import LanguageModellingConfig
from seqloom.text.tokenizer import Segmentation


@pytest.mark.parametrize(("segmentation", "words"), [("words", 10), ("spaces", 5)])
def test_words_are_counted_as_they_will_be_cut(tmp_path: Path, segmentation: Segmentation, words: int) -> None:
    path = tmp_path / "text.txt"
    path.write_text("Yes, he (Tom) said:\nno.\n\n")
    assert text_facts(TextCorpus([path]), segmentation=segmentation) == TextFacts(3, characters=22, words=words)


def test_a_large_dev_text_is_read_less_often_with_the_reason() -> None:
    facts = TextFacts(lines=100, characters=8_000, words=1_500)
    small, large, huge = (
        choose_text_sizes(facts, RnnLmConfig(), LanguageModellingConfig(), pieces="word", dev_tokens=tokens)
        for tokens in (10, 1_000, 10_000_000)
    )

    def seen(sizing: object) -> tuple[int, int]:
        training, task = sizing.defaults["training"], sizing.defaults["task"]  # type: ignore[attr-defined]
        return training["validate_every"], training["validate_every"] * task["rows"] * task["length"]

    assert all("a validation every" not in str(reason) for reason in small.reasons)
    every, learned = seen(large)
    assert every > seen(small)[0]
    assert 1_000 / learned <= 0.155  # the step is a round figure
    assert any(f"a validation every {every} steps" in reason.text for reason in large.reasons)
    # However large it is, a run is measured a few times.
    assert seen(huge)[0] == huge.defaults["training"]["steps"] // 4


def test_windows_are_at_most_as_long_as_the_model_reads(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"the old house number {n} is red\n" for n in range(200)))
    for longest, length in ((32, 32), (4096, 128)):
        words = ["model.kind=gpt", f"model.longest={longest}", "text.kind=char"]
        config = choose_config(None, words, train=[str(path)], dev=(), listener=ignore)
        assert isinstance(config.task, LanguageModellingConfig)
        assert config.task.length == min(length, WINDOWS["char"])


def test_reasons_are_given_for_sizes_that_are_used_alone(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"the old house number {n} is red\n" for n in range(200)))
    reasons: dict[bool, str] = {}
    for is_given in (True, False):
        words = ["model.kind=bert", *(["model.width=16", "model.layers=2", "model.heads=2"] if is_given else [])]
        events: list[Event] = []
        config = choose_config(None, words, train=[str(path)], dev=(), listener=events.append)
        assert isinstance(config.model, BertConfig)
        reasons[is_given] = " ".join(
            reason for event in events if event.kind == "sizing" for reason in event["reasons"]
        )
        assert (f"layers of width {config.model.width}" in reasons[is_given]) == (not is_given)
    assert "of width" not in reasons[True]
    assert config.model.feed_forward == 4 * config.model.width


def test_words_get_n_grams_of_order_five_however_few_there_are() -> None:
    few = TextFacts(lines=100, characters=8_000, words=1_500)
    assert NGramConfig().sizes_for_text(few, "word").settings["order"] == 5
    assert NGramConfig().sizes_for_text(few, "char").settings["order"] == 8
