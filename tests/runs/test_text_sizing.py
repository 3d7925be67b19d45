"""Sizes that are chosen for a text: honest counts of it, and validations that it can afford."""

from pathlib import Path

import pytest

from seqloom.classical.ngram import NGramConfig
from seqloom.core.declaration import TextFacts
from seqloom.data.plain_text import TextCorpus
from seqloom.models.rnn_lm import RnnLmConfig
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


def test_words_get_n_grams_of_order_five_however_few_there_are() -> None:
    few = TextFacts(lines=100, characters=8_000, words=1_500)
    assert NGramConfig().sizes_for_text(few, "word").settings["order"] == 5
    assert NGramConfig().sizes_for_text(few, "char").settings["order"] == 8
