"""The phrase table: probabilities that add up, all spans found, stored whole, and refused when damaged."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.classical.alignment import Bitext
from seqloom.core.errors import ModelError
from seqloom.smt.extraction import WordLinks, extract_phrases
from seqloom.smt.phrase_table import (
    LEAST_WEIGHT,
    PhraseTable,
    Smoothing,
    WordWeights,
    build_table,
    conditional,
    discounts_of,
    orientation_scores,
)

SOURCES = [[4, 5, 6], [4, 5], [6, 4, 5], [7, 4]]
TARGETS = [[8, 9, 10], [8, 9], [10, 8, 9], [8]]
LINKS = [[(0, 0), (1, 1), (2, 2)], [(0, 0), (1, 1)], [(0, 0), (1, 1), (2, 2)], [(0, 0), (1, 0)]]

pairs_of_phrases = st.dictionaries(
    st.tuples(st.integers(0, 5), st.integers(0, 5)), st.integers(1, 6), min_size=1, max_size=20
)


def small_table(**options: int) -> PhraseTable:
    bitext, links = Bitext.from_sentences(SOURCES, TARGETS), WordLinks.of(LINKS)
    return build_table(extract_phrases(bitext, links), WordWeights.of(bitext, links), **options)


@given(pairs_of_phrases, st.sampled_from(["none", "kneser_ney"]))
def test_phrase_probabilities_add_up_to_one(counts: dict[tuple[int, int], int], smoothing: Smoothing) -> None:
    given_, outcome = (np.array([key[side] for key in counts], np.int64) for side in (0, 1))
    amounts = np.array(list(counts.values()), np.int64)
    found = conditional(given_, outcome, amounts, smoothing=smoothing)
    assert ((found >= 0) & (found <= 1 + 1e-12)).all()
    for phrase in np.unique(given_):
        own = given_ == phrase
        total = found[own].sum()
        if smoothing == "kneser_ney":  # what was taken from these pairs is shared by all phrases, also those not seen
            taken = discounts_of(amounts)[np.minimum(amounts[own], 3)].sum() / amounts[own].sum()
            lower = np.bincount(outcome, minlength=6) / len(outcome)
            total += taken * (1 - lower[outcome[own]].sum())
        assert total == pytest.approx(1, abs=1e-9)


def test_orientations_are_probabilities_with_a_prior() -> None:
    counts = np.array([[3, 0, 0, 0, 2, 1], [0, 0, 0, 0, 0, 0]], np.int32)
    found = np.exp(orientation_scores(np.array([0, 1]), counts, np.array([0, 1])))
    np.testing.assert_allclose(found[:, :3].sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(found[:, 3:].sum(axis=1), 1, rtol=1e-6)
    assert found[0, 0] > 0.8 > found[1, 0] > 0.5  # the pair without counts has what is usual


def test_scores_are_those_of_the_formulas() -> None:
    bitext, links = Bitext.from_sentences(SOURCES, TARGETS), WordLinks.of(LINKS)
    table = build_table(extract_phrases(bitext, links), WordWeights.of(bitext, links), smoothing="none")
    found = table.find(np.array([4, 5], np.int32))
    rows = {
        (int(begin), int(end), tuple(table.targets[slice(*table.target_starts[option : option + 2])].tolist())): option
        for begin, end, option in zip(*found, strict=True)
    }
    assert set(rows) == {(0, 1, (8,)), (0, 2, (8, 9)), (1, 2, (9,))}
    # 4 5 is always 8 9; the word 8 has four links to 4 and one to 7, and each of the others has one partner.
    scores = np.exp(table.scores[rows[0, 2, (8, 9)]].astype(np.float64))
    np.testing.assert_allclose(scores, [1, 4 / 5, 1, 1], rtol=1e-6)
    # 7 is a phrase only with 4, so it is added as a word: it was linked once, with 8.
    (begin, end, option), *_ = zip(*table.find(np.array([7], np.int32)), strict=True)
    assert (begin, end, table.targets[table.target_starts[option]]) == (0, 1, 8)
    np.testing.assert_allclose(np.exp(table.scores[option, [1, 3]]), [1 / 5, 1], rtol=1e-6)
    assert np.exp(table.scores.min()) >= LEAST_WEIGHT / 2


@given(st.lists(st.integers(4, 8), max_size=8))
def test_all_spans_with_options_are_found(ids: list[int]) -> None:
    table, bitext = small_table(), Bitext.from_sentences(SOURCES, TARGETS)
    pairs = extract_phrases(bitext, WordLinks.of(LINKS))
    known = {pairs.sources.text(int(number)) for number in pairs.source} | {(7,)}
    found = table.find(np.array(ids, np.int32))
    expected = {(a, b) for a in range(len(ids)) for b in range(a + 1, len(ids) + 1) if tuple(ids[a:b]) in known}
    assert set(zip(found.begins.tolist(), found.ends.tolist(), strict=True)) == expected
    assert (np.diff(found.begins) >= 0).all()


def test_a_table_keeps_the_best_options() -> None:
    sources, targets = [[4]] * 6, [[8], [8], [8], [9], [9], [10]]
    bitext, links = Bitext.from_sentences(sources, targets), WordLinks.of([[(0, 0)]] * 6)
    pairs, weights = extract_phrases(bitext, links), WordWeights.of(bitext, links)
    assert build_table(pairs, weights, options=2, smoothing="none").targets.tolist() == [8, 9]
    assert build_table(pairs, weights, options=9, smoothing="none").targets.tolist() == [8, 9, 10]


def test_a_stored_table_is_the_same() -> None:
    table = small_table()
    again = PhraseTable.restore(table.arrays(), sources=8, targets=11)
    for one, other in zip(table, again, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("words", 0, 99),
        ("words", 0, -1),
        ("words", 0, 7),  # not in order, so that it could not be found
        ("children", 0, 0),
        ("children", -1, 99),
        ("children", 1, -5),
        ("options", 1, 10**9),
        ("options", 0, 1),
        ("target_starts", 2, -1),
        ("target_starts", -1, 10**9),
        ("targets", 1, 11),
        ("targets", 0, 2),
        ("scores", 0, np.nan),
        ("orientations", 0, np.inf),
    ],
)
def test_a_damaged_table_is_refused(name: str, place: int, value: float) -> None:
    arrays = {key: array.copy() for key, array in small_table().arrays().items()}
    arrays[name][place] = value
    with pytest.raises(ModelError, match=f"the phrase table is damaged: .*{name}"):
        PhraseTable.restore(arrays, sources=8, targets=11)


def test_a_table_with_arrays_of_another_kind_is_refused() -> None:
    arrays = small_table().arrays()
    with pytest.raises(ModelError, match="links is uint8 of shape"):
        PhraseTable.restore({**arrays, "links": arrays["links"][:-1]}, sources=8, targets=11)
    with pytest.raises(ModelError, match="scores is float64 of shape"):
        PhraseTable.restore({**arrays, "scores": arrays["scores"].astype(np.float64)}, sources=8, targets=11)
    with pytest.raises(ModelError, match="not a phrase table: words missing"):
        PhraseTable.restore({key: array for key, array in arrays.items() if key != "words"}, sources=8, targets=11)
