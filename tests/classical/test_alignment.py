"""IBM model 1: equal to the textbook's loop over dictionaries, never less likely, the same on any number of threads."""

import importlib.util
import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.classical import alignment as kernels
from seqloom.classical.alignment import Bitext, Model1, Model1Config, fit_aligner, fit_model1, score_alignments
from seqloom.core.errors import DataError
from seqloom.data.phrasebook import sample_pairs
from seqloom.reference import model1 as reference
from seqloom.reference.model1 import Table
from seqloom.text.formats.pharaoh import GoldLinks

NULL = -1
Sentence = list[int]
Texts = tuple[list[Sentence], list[Sentence]]

sentence = st.lists(st.integers(0, 6), max_size=5)
texts = st.lists(st.tuples(sentence, sentence), min_size=1, max_size=8).map(
    lambda pairs: ([[4, 5], *(pair[0] for pair in pairs)], [[1, 0], *(pair[1] for pair in pairs)])
)
REFERENCE_SETTINGS = ("iterations", "null_rate", "tension", "dirichlet_alpha")
configs = st.builds(
    Model1Config,
    iterations=st.integers(1, 4),
    null_rate=st.sampled_from([None, 0.0, 0.08, 0.5]),
    tension=st.sampled_from([0.0, 4.0]),
)


def fit_plainly(sources: list[Sentence], targets: list[Sentence], config: Model1Config) -> tuple[Table, list[float]]:
    return reference.fit_model1(sources, targets, **config.model_dump(include=set(REFERENCE_SETTINGS)))


def as_dictionary(model: Model1) -> dict[tuple[int, int], float]:
    rows = {NULL if row == model.table.null else row: model.table.row(row) for row in range(model.table.null + 1)}
    return {
        (row, int(column)): float(probability)
        for row, (columns, probabilities) in rows.items()
        for column, probability in zip(columns, probabilities, strict=True)
    }


def some_text(pairs: int = 60, *, words: int = 12, seed: int = 3) -> Texts:
    """Sentences whose translation is word + 1, with a repeated word now and then and an extra target word."""
    generator = np.random.default_rng(seed)
    sources = [generator.integers(0, words, size=generator.integers(1, 8)).tolist() for _ in range(pairs)]
    targets = [[word + 1 for word in source] + ([0] if len(source) > 3 else []) for source in sources]
    return sources, targets


# --- fitting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.01, 1.0])
@given(texts=texts, config=configs)
@settings(max_examples=40)
def test_probabilities_and_likelihoods_equal_the_textbook_loop(
    alpha: float, texts: Texts, config: Model1Config
) -> None:
    config = config.model_copy(update={"dirichlet_alpha": alpha})
    model = fit_model1(Bitext.from_sentences(*texts), config)
    table, history = fit_plainly(*texts, config)
    ours = as_dictionary(model)
    assert ours.keys() == table.keys()
    assert max(abs(ours[key] - table[key]) for key in table) < 1e-10
    assert list(model.log_likelihoods) == pytest.approx(history, abs=1e-10, rel=1e-12)


def test_the_comparison_notices_another_null_rate() -> None:
    texts = some_text(10)
    model = fit_model1(Bitext.from_sentences(*texts), Model1Config(null_rate=0.2))
    table, _ = fit_plainly(*texts, Model1Config(null_rate=0.21))
    ours = as_dictionary(model)
    assert max(abs(ours[key] - table[key]) for key in table) > 1e-4


@given(texts=texts, config=configs)
@settings(max_examples=40)
def test_the_likelihood_never_falls(texts: Texts, config: Model1Config) -> None:
    found = fit_model1(Bitext.from_sentences(*texts), config.model_copy(update={"iterations": 12})).log_likelihoods
    assert len(found) == 12
    assert all(after >= before - 1e-9 for before, after in pairwise(found))


def test_rows_add_up_to_one_and_with_a_prior_to_less() -> None:
    bitext = Bitext.from_sentences(*some_text())
    for alpha in (0.0, 0.1):
        table = fit_model1(bitext, Model1Config(dirichlet_alpha=alpha)).table
        sums = [table.row(row)[1].sum() for row in range(table.null + 1)]
        assert all(total < 1 for total in sums) if alpha else sums == pytest.approx([1.0] * len(sums))


def test_a_worked_example() -> None:
    # das Haus, das Buch, ein Buch without the null word: das met the twice, house once and book once.
    bitext = Bitext.from_sentences([[0, 1], [0, 2], [3, 2]], [[0, 1], [0, 2], [3, 2]])
    table = fit_model1(bitext, Model1Config(iterations=1, null_rate=0.0)).table
    assert dict(zip(*(part.tolist() for part in table.row(0)), strict=True)) == pytest.approx(
        {0: 0.5, 1: 0.25, 2: 0.25}
    )
    assert table.probability(1, 0) == pytest.approx(0.5)
    assert table.probability(1, 2) == 0.0
    assert len(table.row(table.null)[0]) == 0


@pytest.mark.parametrize("config", [Model1Config(), Model1Config(tension=4.0, null_rate=0.1, dirichlet_alpha=0.01)])
def test_the_number_of_threads_changes_no_bit(config: Model1Config) -> None:
    bitext = Bitext.from_sentences(*some_text(300, words=40))
    models = [fit_aligner(bitext, config, threads=threads) for threads in (1, 2, 5)]
    for model in models[1:]:
        for one, other in ((models[0].forward, model.forward), (models[0].backward, model.backward)):
            assert one.log_likelihoods == other.log_likelihoods
            assert np.array_equal(one.table.probabilities, other.table.probabilities)
            assert np.array_equal(one.choose(bitext), other.choose(bitext, threads=3))


def test_the_table_holds_the_pairs_that_share_a_sentence_at_twelve_bytes_each() -> None:
    sources, targets = some_text(30)
    table = fit_model1(Bitext.from_sentences(sources, targets)).table
    met = {(x, y) for source, target in zip(sources, targets, strict=True) for x in source for y in target}
    met |= {(table.null, y) for target in targets for y in target}
    assert len(table.columns) == len(met)
    assert table.columns.nbytes + table.probabilities.nbytes == 12 * len(met)


def test_blank_sides_teach_nothing() -> None:
    sources, targets = some_text(20)
    plain = fit_model1(Bitext.from_sentences(sources, targets))
    gaps = fit_model1(Bitext.from_sentences([[], *sources, [3], []], [[1], *targets, [], []]))
    assert plain.log_likelihoods == gaps.log_likelihoods
    assert np.array_equal(plain.table.probabilities, gaps.table.probabilities)


def test_text_that_cannot_be_aligned_is_refused() -> None:
    with pytest.raises(DataError, match="none of 2 pairs has words on both sides"):
        fit_model1(Bitext.from_sentences([[1], []], [[], [1]]))
    with pytest.raises(DataError, match="2 source sentences but 1 target sentences"):
        Bitext.from_sentences([[1], [2]], [[1]])
    with pytest.raises(DataError, match="-3 among the target ids is invalid"):
        Bitext.from_sentences([[1]], [[4, -3]])


@given(x=st.floats(1e-3, 1e6))
def test_digamma_equals_torch(x: float) -> None:
    theirs = torch.digamma(torch.tensor(x, dtype=torch.float64)).item()
    assert kernels.digamma(x) == pytest.approx(theirs, rel=1e-13, abs=1e-13)


def test_progress_reports_every_iteration_of_both_directions() -> None:
    reported: list[int] = []
    fit_aligner(Bitext.from_sentences(*some_text(5)), Model1Config(iterations=3), progress=reported.append)
    assert reported == [1, 2, 3, 4, 5, 6]


# --- use -------------------------------------------------------------------------------------------------------------


@given(texts=texts, config=configs)
@settings(max_examples=30)
def test_scores_and_posteriors_and_the_best_links_follow_the_formula(texts: Texts, config: Model1Config) -> None:
    model = fit_model1(Bitext.from_sentences(*texts), config)
    table = as_dictionary(model)
    for x, y in zip(*texts, strict=True):
        terms = []
        for j, word in enumerate(y):
            a = reference.weights(len(x), len(y), j, null_rate=config.null_rate, tension=config.tension)
            terms.append([a[i] * table.get((x[i] if i >= 0 else NULL, word), 0.0) for i in range(-1, len(x))])
        sums = [sum(row) for row in terms]
        log_probability = sum(math.log(total) if total else -math.inf for total in sums)
        assert model.score(x, y) == pytest.approx(log_probability, abs=1e-10)
        posteriors = model.posteriors(x, np.array(y, np.int64))
        assert posteriors.shape == (len(y), len(x) + 1)
        for row, total, found in zip(terms, sums, posteriors, strict=True):
            assert found.tolist() == pytest.approx([each / total if total else 0.0 for each in row], abs=1e-12)
        links = {j: i for i, j in model.links(x, y)}
        for j, row in enumerate(terms):
            assert row[links.get(j, -1) + 1] == pytest.approx(max(row), rel=1e-12)


def test_the_score_of_the_training_text_is_its_likelihood() -> None:
    texts = some_text(20)
    longer, model = (fit_model1(Bitext.from_sentences(*texts), Model1Config(iterations=n)) for n in (4, 3))
    total = sum(model.score(x, y) for x, y in zip(*texts, strict=True))
    assert total == pytest.approx(longer.log_likelihoods[3], rel=1e-12)


def test_of_a_repeated_word_the_place_nearest_to_the_diagonal_is_linked() -> None:
    texts = some_text(60)
    model = fit_model1(Bitext.from_sentences(*texts), Model1Config(iterations=8))
    assert model.links([3, 5, 3, 7, 3], [4, 6, 4, 8, 4]) == {(place, place) for place in range(5)}


def test_words_never_met_have_no_link_and_no_probability_but_a_floor() -> None:
    model = fit_model1(Bitext.from_sentences(*some_text()), Model1Config(null_rate=0.1))
    assert model.links([2, 99], [77, 3]) == {(0, 1)}
    assert model.posteriors([2, 99], [77])[0].tolist() == [0.0, 0.0, 0.0]
    assert model.score([2, 99], [77]) == -math.inf
    assert model.score([2, 99], [77], floor=1e-9) == pytest.approx(math.log(1e-9))
    assert model.links([], [3]) == set()
    assert model.score([2], []) == 0.0


# --- both directions -------------------------------------------------------------------------------------------------


def join_plainly(forward: Sequence[int], backward: Sequence[int], rule: str) -> set[tuple[int, int]]:
    """The published pseudo-code on sets of (source, target); `forward[j]` is a source place, `backward[i]` a target."""
    one = {(i, j) for j, i in enumerate(forward) if i >= 0}
    other = {(i, j) for i, j in enumerate(backward) if j >= 0}
    links = {"forward": set(one), "backward": set(other), "union": one | other}.get(rule, one & other)
    if rule.startswith("grow-diag"):
        steps = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]
        size = -1
        while size < len(links):
            size = len(links)
            for e in range(len(forward)):
                for f in range(len(backward)):
                    if (f, e) in links:
                        for right, down in steps:
                            new = f + down, e + right
                            is_free = new[0] not in {i for i, _ in links} or new[1] not in {j for _, j in links}
                            if is_free and new in one | other:
                                links.add(new)
    if rule == "grow-diag-final-and":
        for side in (one, other):
            for new in sorted(side, key=lambda link: (link[1], link[0])):
                if new[0] not in {i for i, _ in links} and new[1] not in {j for _, j in links}:
                    links.add(new)
    return links


RULES = ("forward", "backward", "intersection", "union", "grow-diag", "grow-diag-final-and")


@st.composite
def chosen(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    n, m = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    forward = draw(st.lists(st.integers(-1, n - 1), min_size=m, max_size=m))
    return forward, draw(st.lists(st.integers(-1, m - 1), min_size=n, max_size=n))


@given(both=chosen())
@settings(max_examples=200)
def test_joined_directions_equal_the_published_procedure(both: tuple[list[int], list[int]]) -> None:
    codes = (kernels.INTERSECTION, kernels.UNION, kernels.GROW_DIAG, kernels.GROW_DIAG_FINAL_AND)
    forward, backward = (np.array(side, np.int32) for side in both)
    found = []
    for rule, code in zip(RULES[2:], codes, strict=True):
        grid = np.zeros((len(backward), len(forward)), np.bool_)
        kernels.join_directions(forward, backward, code, grid)
        found.append({(int(i), int(j)) for i, j in np.argwhere(grid)})
        assert found[-1] == join_plainly(*both, rule), rule
    assert found[0] <= found[2] <= found[3] <= found[1]


@pytest.mark.parametrize("rule", RULES)
def test_links_of_a_text_are_those_of_its_sentences(rule: str) -> None:
    texts = some_text(40)
    bitext = Bitext.from_sentences(*texts)
    aligner = fit_aligner(bitext)
    forward, backward = aligner.forward.choose(bitext), aligner.backward.choose(bitext.turned())
    for k, links in enumerate(aligner.align(bitext, symmetrise=rule)):  # type: ignore[arg-type]
        x, y = texts[0][k], texts[1][k]
        place = slice(*bitext.target_starts[k : k + 2]), slice(*bitext.source_starts[k : k + 2])
        assert links == sorted(join_plainly(forward[place[0]].tolist(), backward[place[1]].tolist(), rule))
        assert aligner.links(x, y, symmetrise=rule) == set(links)  # type: ignore[arg-type]


def test_a_blank_line_has_no_links_and_keeps_its_place() -> None:
    sources, targets = some_text(20)
    aligner = fit_aligner(Bitext.from_sentences(sources, targets))
    found = list(aligner.align(Bitext.from_sentences([[2], [], [4], []], [[3], [5], [], []])))
    assert found == [[(0, 0)], [], [], []]


# --- learning and parity ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def phrasebook() -> tuple[Bitext, list[GoldLinks]]:
    pairs = sample_pairs("en", "de", count=600, seed=1)
    ids: list[dict[str, int]] = [{}, {}]
    sides = [
        [[known.setdefault(word, len(known)) for word in words] for words in texts]
        for known, texts in zip(
            ids, zip(*((p.source_tokens, p.target_tokens) for p in pairs), strict=True), strict=True
        )
    ]
    gold = [GoldLinks(frozenset(pair.alignment), frozenset(pair.alignment)) for pair in pairs]
    return Bitext.from_sentences(*sides), gold


def test_planted_alignments_are_found(phrasebook: tuple[Bitext, list[GoldLinks]]) -> None:
    bitext, gold = phrasebook
    rates = {}
    for iterations in (1, 8):
        aligner = fit_aligner(bitext, Model1Config(iterations=iterations))
        rates[iterations] = score_alignments(list(aligner.align(bitext)), gold).error_rate
    assert rates[8] < 0.3
    assert rates[8] < rates[1]


@pytest.mark.parity
@pytest.mark.skipif(importlib.util.find_spec("nltk") is None, reason="nltk is not installed")
def test_probabilities_equal_those_of_nltk() -> None:
    from nltk.translate import AlignedSent, IBMModel1

    # Source words repeat, target words do not: nltk adds up the sums of a repeated target word and divides by that.
    generator = np.random.default_rng(7)
    targets = [generator.permutation(12)[: generator.integers(2, 8)].tolist() for _ in range(25)]
    sources = [[word + 1 for word in target] + target[:2] for target in targets]
    corpus = [
        AlignedSent([f"y{word}" for word in y], [f"x{word}" for word in x])
        for x, y in zip(sources, targets, strict=True)
    ]
    theirs = IBMModel1(corpus, 6).translation_table

    def distance(config: Model1Config) -> float:
        ours = as_dictionary(fit_model1(Bitext.from_sentences(sources, targets), config))
        return max(
            abs(theirs[f"y{y}"][None if x == NULL else f"x{x}"] - probability) for (x, y), probability in ours.items()
        )

    assert distance(Model1Config(iterations=6)) < 1e-10
    assert distance(Model1Config(iterations=5)) > 1e-4
