"""Bins hold every sentence once, scores are those of their sentences, and words follow the numbers."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.core.errors import DataError, UsageError
from seqloom.drawing.figures import save_finding
from seqloom.lab.bottleneck import bins_of, bottleneck_from, source_lengths
from seqloom.metrics.scoring import Bootstrap, score
from seqloom.metrics.translation import Bleu

SOURCES = [" ".join(["wort"] * (1 + line % 7)) for line in range(35)]
REFERENCES = [f"this is line number {line} of a small test set" for line in range(35)]
FEW = Bootstrap(seed=1, resamples=50)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=80), st.integers(1, 12))
def test_bins_hold_every_sentence_once_and_rise(lengths: list[int], bins: int) -> None:
    found = bins_of(lengths, bins=bins)
    assert sorted(line for each in found for line in each.lines) == list(range(len(lengths)))
    assert 1 <= len(found) <= bins
    for each in found:
        inside = [lengths[line] for line in each.lines]
        assert (min(inside), max(inside)) == (each.shortest, each.longest)
    for before, after in pairwise(found):
        assert before.longest < after.shortest


def test_bins_of_distinct_lengths_are_of_equal_size() -> None:
    assert [len(each.lines) for each in bins_of(range(40), bins=8)] == [5] * 8
    assert [each.name for each in bins_of([3, 4, 4, 4, 9, 9], bins=3)] == ["3–4", "9"]


def test_the_score_of_a_bin_is_that_of_its_sentences(tmp_path: Path) -> None:
    half = [line if number % 2 else "nothing of the kind at all" for number, line in enumerate(REFERENCES)]
    finding = bottleneck_from(
        {"one": REFERENCES, "other": half}, REFERENCES, sources=SOURCES, bins=4, bootstrap=FEW, settings={"seed": 9}
    )
    data = finding.data
    assert data["seed"] == 9
    assert sum(each["sentences"] for each in data["bins"]) == 35
    one, other = data["systems"]
    assert [each["value"] for each in one["by_bin"]] == pytest.approx([100.0] * len(data["bins"]))
    chosen = bins_of(source_lengths(SOURCES), bins=4)[0].lines
    expected = score(Bleu(), [half[line] for line in chosen], references=[REFERENCES[line] for line in chosen])
    assert other["by_bin"][0]["value"] == expected.value
    assert other["by_bin"][0]["interval"][0] <= expected.value <= other["by_bin"][0]["interval"][1]
    assert "|bs:50|" in other["whole"]["signature"]
    assert f"above 0 in {len(data['bins'])} of {len(data['bins'])}" in finding.sentence
    assert len(save_finding(finding, tmp_path)) == 3


def test_three_systems_and_one_length_are_reported(tmp_path: Path) -> None:
    three = dict.fromkeys("abc", REFERENCES)
    finding = bottleneck_from(three, REFERENCES, sources=["ein wort"] * 35, bootstrap=FEW)
    assert finding.sentence == "All sources have 2 words; BLEU is 100.0 (a), 100.0 (b), 100.0 (c)."
    assert len(save_finding(finding, tmp_path)) == 3
    assert "minus" not in bottleneck_from(three, REFERENCES, sources=SOURCES, bootstrap=FEW).sentence


def test_sources_without_spaces_are_counted_in_characters() -> None:
    assert source_lengths(["我爱 你", ""], language="zh") == [3, 0]
    assert source_lengths(["I love you", ""], language="en") == [3, 0]


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(DataError, match="plain: 1 hypotheses cannot be compared with 35"):
        bottleneck_from({"plain": ["a"]}, REFERENCES, sources=SOURCES)
    with pytest.raises(DataError, match="34 source lines, but 35 references"):
        bottleneck_from({"plain": REFERENCES}, REFERENCES, sources=SOURCES[1:])
    with pytest.raises(UsageError, match="no system given"):
        bottleneck_from({}, REFERENCES, sources=SOURCES)
    with pytest.raises(UsageError, match="into 0 bins"):
        bins_of([1], bins=0)
