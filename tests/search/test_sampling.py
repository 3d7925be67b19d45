"""Sampling: filters against a plain twin, frequencies against exact probabilities, draws that belong to a place."""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from search.steppers import Bigram, Grammar, History, Masked, Shortlisted, numbered, sentences
from seqloom.core.errors import ModelError, UsageError
from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.search.constraints import All, Constraints, Forbidden, Prefix, StopAt
from seqloom.search.greedy import forced_search, greedy_search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.sampling import choices_of, sample_search, uniform
from seqloom.search.settings import SearchConfig

seeds = st.integers(0, 10_000)
samplings = st.builds(
    SearchConfig,
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_k=st.integers(0, 7),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.1, 0.6]),
)


def settings(samples: int = 1, *, limit: int = 5) -> SearchConfig:
    return SearchConfig(beam=samples, nbest=samples, length_factor=0.0, length_constant=limit)


def draw(
    stepper: Stepper,
    source: Source,
    chosen: SearchConfig,
    *,
    sampling: SearchConfig,
    keys: Sequence[int] | None = None,
    constraints: Constraints | None = None,
) -> list[list[Hypothesis]]:
    """Samples by settings of which `sampling` says what is drawn from."""
    names = ("temperature", "top_k", "top_p", "min_p", "seed")
    both = chosen.model_copy(update={name: getattr(sampling, name) for name in names})
    return sample_search(stepper, source, both, keys=keys, constraints=constraints)


def plain_choices(log_probs: Sequence[float], sampling: SearchConfig) -> list[float]:
    """q(y) symbol by symbol, as the formulas have it."""
    order = sorted(range(len(log_probs)), key=lambda symbol: -log_probs[symbol])
    tempered = [math.exp(value / sampling.temperature) for value in log_probs]
    total = sum(tempered)
    tempered = [value / total for value in tempered]
    kept, before = set(), 0.0
    for rank, symbol in enumerate(order):
        is_in_k = sampling.top_k == 0 or rank < sampling.top_k
        is_in_p = sampling.top_p == 1 or before < sampling.top_p
        if is_in_k and is_in_p and tempered[symbol] >= sampling.min_p * max(tempered):
            kept.add(symbol)
        before += tempered[symbol]
    total = sum(tempered[symbol] for symbol in kept)
    return [value / total if symbol in kept else 0.0 for symbol, value in enumerate(tempered)]


def step_of(rows: Sequence[Sequence[float]], symbols: Sequence[int] | None = None) -> Step:
    """A step that offers these log-probabilities."""
    log_probs = torch.tensor(rows, dtype=torch.float64)
    state = numbered(sentences([1] * len(rows)))
    return Step(log_probs, state, symbols=None if symbols is None else torch.tensor(symbols))


def probabilities(step: Step, sampling: SearchConfig, *, symbols: int) -> list[list[float]]:
    """q by symbol, for each row."""
    choices = choices_of(step, sampling)
    full = torch.zeros(len(step.log_probs), symbols, dtype=torch.float64)
    full.scatter_add_(1, choices.symbols, choices.weights)
    return (full / full.sum(1, keepdim=True)).tolist()


@effort(max_examples=100)
@given(st.lists(st.integers(-8, 0), min_size=1, max_size=7), samplings)
def test_the_filters_equal_their_plain_twin(logits: list[int], sampling: SearchConfig) -> None:
    """Whole numbers, so that symbols tie, times √2, so that no sum of probabilities meets a threshold exactly."""
    [log_probs] = (math.sqrt(2) * torch.tensor([logits], dtype=torch.float64)).log_softmax(1).tolist()
    [found] = probabilities(step_of([log_probs]), sampling, symbols=len(logits))
    assert found == pytest.approx(plain_choices(log_probs, sampling), abs=1e-12)


def test_each_filter_keeps_what_its_formula_says() -> None:
    step = step_of([[math.log(part) for part in (0.1, 0.4, 0.3, 0.2)]])

    def kept(sampling: SearchConfig) -> list[float]:
        return probabilities(step, sampling, symbols=4)[0]

    assert kept(SearchConfig()) == pytest.approx([0.1, 0.4, 0.3, 0.2])
    assert kept(SearchConfig(temperature=0.5)) == pytest.approx([1 / 30, 16 / 30, 9 / 30, 4 / 30])
    assert kept(SearchConfig(top_k=2)) == pytest.approx([0, 4 / 7, 3 / 7, 0])
    assert kept(SearchConfig(top_p=0.65)) == pytest.approx([0, 4 / 7, 3 / 7, 0])
    assert kept(SearchConfig(top_p=0.75)) == pytest.approx([0, 4 / 9, 3 / 9, 2 / 9])
    assert kept(SearchConfig(min_p=0.45)) == pytest.approx([0, 4 / 9, 3 / 9, 2 / 9])
    assert kept(SearchConfig(min_p=0.55)) == pytest.approx([0, 4 / 7, 3 / 7, 0])
    assert kept(SearchConfig(temperature=0.5, min_p=0.55)) == pytest.approx([0, 16 / 25, 9 / 25, 0])


def test_top_p_looks_at_all_symbols_and_not_at_what_top_k_left() -> None:
    """Of (4, 3, 3)/10, top-k 2 leaves (4, 3)/7: 4/7 alone would do for top-p 0.5, but 4/10 does not."""
    step = step_of([[math.log(part) for part in (0.4, 0.3, 0.3)]])
    assert probabilities(step, SearchConfig(top_k=2, top_p=0.5), symbols=3)[0] == pytest.approx([4 / 7, 3 / 7, 0])


def test_the_tempered_distribution_is_what_the_filters_look_at() -> None:
    """Squared, (4, 3, 2, 1) is (16, 9, 4, 1)/30: 16/30 passes one half, 4/10 does not."""
    step = step_of([[math.log(part) for part in (0.4, 0.3, 0.2, 0.1)]])
    assert probabilities(step, SearchConfig(temperature=0.5, top_p=0.5), symbols=4)[0] == [1, 0, 0, 0]
    assert probabilities(step, SearchConfig(top_p=0.5), symbols=4)[0] == pytest.approx([4 / 7, 3 / 7, 0, 0])


@effort(max_examples=30)
@given(seeds, st.sampled_from([None, 2, 3]), st.sampled_from([{"temperature": 0.0}, {"top_k": 1}]))
def test_temperature_zero_and_top_one_are_greedy(seed: int, levels: int | None, sharp: Mapping[str, float]) -> None:
    stepper = Bigram(6, seed=seed, levels=levels, dtype=torch.float32)
    source = sentences([3, 1, 6, 2], seed=seed)
    sampling = SearchConfig(temperature=sharp.get("temperature", 1.0), top_k=int(sharp.get("top_k", 0)), seed=seed)
    greedy = greedy_search(stepper, source, settings(limit=8))
    found = draw(stepper, source, settings(2, limit=8), sampling=sampling)
    assert found == [[best, best] for best in greedy]  # to the last bit, ties included


def test_a_temperature_near_zero_comes_to_greedy_and_one_does_not() -> None:
    stepper, source = History(6, seed=3), sentences([3, 1, 6, 2])
    greedy = [[best] for best in greedy_search(stepper, source, settings())]
    for temperature in (1e-3, 1e-300):
        assert draw(stepper, source, settings(), sampling=SearchConfig(temperature=temperature)) == greedy
    assert draw(stepper, source, settings(), sampling=SearchConfig()) != greedy


def exact_distribution(stepper: Stepper, sampling: SearchConfig, *, limit: int) -> dict[tuple[int, ...], float]:
    """The probability of every output (end included, where it has one), by going every way there is."""
    prefixes: list[tuple[tuple[int, ...], float, State]] = [((), 1.0, stepper.start(sentences([3])))]
    found: dict[tuple[int, ...], float] = {}
    for length in range(1, limit + 1):
        longer = []
        for symbols, probability, state in prefixes:
            step = stepper.step(state, torch.tensor([symbols[-1] if symbols else stepper.begin]))
            for symbol, part in enumerate(plain_choices(step.log_probs[0].tolist(), sampling)):
                way = ((*symbols, symbol), probability * part, step.state)
                if symbol == stepper.end or length == limit:
                    found[way[0]] = way[1]
                else:
                    longer.append(way)
        prefixes = longer
    return {symbols: probability for symbols, probability in found.items() if probability > 0}


def chi_square(counts: Mapping[tuple[int, ...], int], exact: Mapping[tuple[int, ...], float]) -> float:
    """How many standard deviations Pearson's statistic lies above its mean; rare outputs are counted together."""
    total = sum(counts.values())
    frequent = [output for output, probability in exact.items() if probability * total >= 10]
    cells = [(counts.get(output, 0), exact[output] * total) for output in frequent]
    rest = (total - sum(seen for seen, _ in cells), total - sum(expected for _, expected in cells))
    cells += [rest] if rest[1] > 1 else []
    assert set(counts) <= set(exact), "something impossible was drawn"
    statistic = sum((seen - expected) ** 2 / expected for seen, expected in cells)
    freedom = len(cells) - 1
    return (statistic - freedom) / math.sqrt(2 * freedom)


def output_of(hypothesis: Hypothesis, stepper: Stepper) -> tuple[int, ...]:
    return (*hypothesis.symbols, *([stepper.end] if hypothesis.is_finished else []))


def drawn(stepper: Stepper, sampling: SearchConfig, *, limit: int, keys: Sequence[int]) -> list[list[tuple[int, ...]]]:
    """For each key, 1000 outputs of the sentence that `exact_distribution` knows."""
    one = sentences([3])
    source = Source(one.ids.repeat(len(keys), 1), one.lengths.repeat(len(keys)))
    found = draw(stepper, source, settings(1000, limit=limit), sampling=sampling, keys=keys)
    return [[output_of(hypothesis, stepper) for hypothesis in samples] for samples in found]


@pytest.mark.parametrize(
    "sampling",
    [
        SearchConfig(seed=1),
        SearchConfig(temperature=0.6, seed=2),
        SearchConfig(temperature=1.5, top_k=4, seed=3),
        SearchConfig(top_p=0.8, seed=4),
        SearchConfig(temperature=2.0, min_p=0.3, seed=5),
        SearchConfig(temperature=1.3, top_k=5, top_p=0.9, min_p=0.05, seed=6),
    ],
    ids=["as it is", "tempered", "top-k", "top-p", "min-p", "all"],
)
def test_outputs_come_as_often_as_they_are_probable(sampling: SearchConfig) -> None:
    stepper = History(6, seed=11)
    counts = Counter(itertools.chain.from_iterable(drawn(stepper, sampling, limit=3, keys=[5, 9, 2])))
    exact = exact_distribution(stepper, sampling, limit=3)
    assert sum(exact.values()) == pytest.approx(1, abs=1e-9)
    assert chi_square(counts, exact) < 3
    other = SearchConfig(temperature=1.15 * sampling.temperature)
    wrong = exact_distribution(stepper, other, limit=3)
    assert chi_square(counts, wrong) > 5, "the test cannot tell a temperature 15% off"


def test_samples_of_different_keys_and_numbers_are_independent() -> None:
    """Pairs of first symbols, of two keys at the same number and of one key at neighbouring numbers."""
    stepper, sampling = History(6, seed=11), SearchConfig(temperature=2.0, seed=7)
    left, right = drawn(stepper, sampling, limit=1, keys=[0, 1])
    exact = exact_distribution(stepper, sampling, limit=1)
    product = {(*one, *two): exact[one] * exact[two] for one in exact for two in exact}

    def pairs(ones: Sequence[tuple[int, ...]], twos: Sequence[tuple[int, ...]]) -> Counter[tuple[int, ...]]:
        return Counter((*one, *two) for one, two in zip(ones, twos, strict=True))

    assert chi_square(pairs(left, right), product) < 3
    assert chi_square(pairs(left[::2], left[1::2]), product) < 3
    assert chi_square(pairs(left, left), product) > 50


def test_uniform_numbers_fill_the_interval_evenly_and_each_place_has_its_own() -> None:
    places = list(itertools.product([0, 1], [3, 4], range(10), range(1, 51)))
    numbers = [uniform(seed, key, sample=sample, step=step) for seed, key, sample, step in places]
    assert len(set(numbers)) == len(places) == 2000
    assert all(0 <= number < 1 for number in numbers)
    counts: Counter[tuple[int, ...]] = Counter((int(20 * number),) for number in numbers)
    assert chi_square(counts, {(cell,): 1 / 20 for cell in range(20)}) < 3
    assert uniform(0, 3, sample=1, step=2) == uniform(0, 3, sample=1, step=2)


@effort(max_examples=30)
@given(seeds, samplings, st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_neighbours_and_padding_change_nothing(seed: int, sampling: SearchConfig, lengths: list[int]) -> None:
    stepper, source = History(6, seed=seed), sentences(lengths, seed=seed)
    chosen = SearchConfig(beam=2, nbest=2, length_factor=1.0, length_constant=2)
    keys = [10 + 3 * row for row in range(len(lengths))]
    together = draw(stepper, source, chosen, sampling=sampling, keys=keys)
    padded = sentences(lengths, seed=seed, pad=9, extra=3)
    assert draw(stepper, padded, chosen, sampling=sampling, keys=keys) == together
    backwards = Source(source.ids.flip(0), source.lengths.flip(0))
    assert draw(stepper, backwards, chosen, sampling=sampling, keys=keys[::-1])[::-1] == together
    for row, length in enumerate(lengths):
        alone = Source(source.ids[row : row + 1, :length], source.lengths[row : row + 1])
        assert draw(stepper, alone, chosen, sampling=sampling, keys=[keys[row]]) == [together[row]]


def test_seed_and_key_change_the_draws_and_fewer_samples_are_the_first_of_more() -> None:
    stepper, source = History(8, seed=2), sentences([4, 2, 5])
    many = draw(stepper, source, settings(20), sampling=SearchConfig(seed=1))
    assert draw(stepper, source, settings(20), sampling=SearchConfig(seed=1), keys=[0, 1, 2]) == many
    assert draw(stepper, source, settings(3), sampling=SearchConfig(seed=1)) == [part[:3] for part in many]
    assert draw(stepper, source, settings(20), sampling=SearchConfig(seed=2)) != many
    other = draw(stepper, source, settings(20), sampling=SearchConfig(seed=1), keys=[0, 7, 2])
    assert [mine == theirs for mine, theirs in zip(many, other, strict=True)] == [True, False, True]


def test_log_probs_are_those_of_the_model_whatever_was_drawn_from() -> None:
    stepper, source = History(6, seed=4), sentences([3, 5, 2])
    found = draw(stepper, source, settings(6), sampling=SearchConfig(temperature=3.0, top_k=5, min_p=0.01))
    seen = 0
    for row, samples in enumerate(found):
        alone = Source(source.ids[row : row + 1], source.lengths[row : row + 1])
        for sample in [sample for sample in samples if sample.is_finished]:
            [fed] = forced_search(stepper, alone, [sample.symbols], settings=settings())
            assert fed == sample
            assert fed.attention is not None
            assert sample.attention is not None
            torch.testing.assert_close(fed.attention, sample.attention)
            assert sum(sample.terms.values()) == pytest.approx(sample.score, abs=1e-9)
            seen += 1
    assert seen >= 5


@effort(max_examples=30)
@given(seeds, samplings, st.permutations([2, 3, 5, 6]))
def test_a_shortlist_in_any_order_equals_forbidding_the_others(
    seed: int, sampling: SearchConfig, offered: list[int]
) -> None:
    whole, source = Bigram(8, seed=seed), sentences([3, 2], seed=seed)
    short = draw(Shortlisted(whole, offered), source, settings(3), sampling=sampling)
    full = draw(Masked(whole, offered), source, settings(3), sampling=sampling)
    assert [[one.symbols for one in part] for part in short] == [[one.symbols for one in part] for part in full]
    assert {symbol for part in short for one in part for symbol in one.symbols} <= {3, 5, 6}


def test_each_row_may_have_a_shortlist_of_its_own() -> None:
    rows = [[math.log(0.75), math.log(0.25), -math.inf], [math.log(0.5), math.log(0.2), math.log(0.3)]]
    step = Step(step_of(rows).log_probs, numbered(sentences([1, 1])), symbols=torch.tensor([[6, 4, 6], [3, 9, 2]]))
    for sampling in (SearchConfig(), SearchConfig(top_k=3, min_p=0.01)):
        choices = choices_of(step, sampling)
        assert choices.symbols.tolist() == [[4, 6, 6], [2, 3, 9]]
        assert probabilities(step, sampling, symbols=10)[0][4:7] == pytest.approx([0.25, 0, 0.75])
        assert probabilities(step, sampling, symbols=10)[1][2:4] == pytest.approx([0.3, 0.5])


def test_what_has_no_end_is_cut_and_an_empty_batch_gives_an_empty_list() -> None:
    endless = Grammar(["<s>", "</s>", "a"], {"<s>": {"a": 1.0}, "a": {"a": 1.0}}, begin="<s>", end="</s>")
    [[first, second]] = draw(endless, sentences([2]), settings(2, limit=4), sampling=SearchConfig())
    assert (first.symbols, first.is_finished) == ((2,) * 4, False)
    assert first == second
    assert draw(endless, sentences([]), settings(), sampling=SearchConfig()) == []


def test_a_dead_end_and_a_nan_are_errors_with_a_sentence() -> None:
    stuck = Grammar(["<s>", "</s>", "a"], {"<s>": {"a": 1.0}}, begin="<s>", end="</s>")
    for sampling in (SearchConfig(), SearchConfig(top_k=1), SearchConfig(top_p=0.5), SearchConfig(temperature=0.0)):
        with pytest.raises(ModelError, match="sentence 0 of the batch cannot continue: at step 2"):
            draw(stuck, sentences([2]), settings(), sampling=sampling)
    broken = Bigram(5, seed=0)
    broken.table[:, broken.begin, 3] = float("nan")
    with pytest.raises(ModelError, match=r"\(NaN\), first in row 0 of 2"):
        draw(broken, sentences([2, 3]), settings(), sampling=SearchConfig())


def test_a_key_for_each_sentence() -> None:
    with pytest.raises(UsageError, match="got 1 keys for 2 sentences"):
        draw(Bigram(5, seed=0), sentences([2, 3]), settings(), sampling=SearchConfig(), keys=[4])


def test_constraints_hold_and_leave_the_other_sentences_as_they_are() -> None:
    stepper, source = History(8, seed=6), sentences([3, 3, 4])
    free = draw(stepper, source, settings(20), sampling=SearchConfig(seed=3))
    constraints = [Prefix((5, 4)), None, All((Forbidden(((6,),)), StopAt(((4,),))))]
    bound = draw(stepper, source, settings(20), sampling=SearchConfig(seed=3), constraints=constraints)
    assert all(sample.symbols[:2] == (5, 4) for sample in bound[0])
    assert any(sample.symbols[:2] != (5, 4) for sample in free[0])
    assert bound[1] == free[1]
    assert any(6 in sample.symbols for sample in free[2])
    assert not any(6 in sample.symbols for sample in bound[2])
    stopped = [sample for sample in bound[2] if 4 in sample.symbols]
    assert stopped
    assert all(sample.symbols.index(4) == len(sample.symbols) - 1 and sample.is_finished for sample in stopped)
    for sample in bound[0]:
        assert sum(sample.token_log_probs) == pytest.approx(sample.log_prob, abs=1e-9)
        assert sample.token_log_probs[0] == pytest.approx(_first_log_prob(stepper, source, symbol=5), abs=1e-12)
    with pytest.raises(UsageError, match="got 1 constraints for 3 sentences"):
        draw(stepper, source, settings(), sampling=SearchConfig(), constraints=[None])


def _first_log_prob(stepper: Stepper, source: Source, *, symbol: int) -> float:
    step = stepper.step(stepper.start(source), source.lengths.new_full((3,), stepper.begin))
    return float(step.log_probs[0, symbol])


def test_what_is_allowed_is_drawn_in_proportion() -> None:
    """Where some symbols are forbidden, the others come as often as the model has them among themselves."""
    stepper, one = History(6, seed=11), sentences([3])
    exact = exact_distribution(stepper, SearchConfig(), limit=1)
    likely = max((output for output in exact if output != (stepper.end,)), key=lambda output: exact[output])
    [found] = draw(
        stepper, one, settings(1000, limit=1), sampling=SearchConfig(seed=1), constraints=[Forbidden((likely,))]
    )
    allowed = {output: part / (1 - exact[likely]) for output, part in exact.items() if output != likely}
    assert sum(allowed.values()) == pytest.approx(1)
    assert exact[likely] > 0.1
    assert chi_square(Counter(output_of(sample, stepper) for sample in found), allowed) < 3


def test_an_end_normalisation_acts_as_in_greedy_search() -> None:
    stepper, source = Bigram(6, seed=9), sentences([6, 5, 6, 4])
    dear = settings(limit=8).model_copy(update={"end_normalisation": 3.0})
    greedy = greedy_search(stepper, source, dear)
    assert greedy != greedy_search(stepper, source, settings(limit=8))
    assert [one for [one] in draw(stepper, source, dear, sampling=SearchConfig(temperature=0.0))] == greedy


@pytest.mark.parity
@pytest.mark.parametrize(
    "sampling",
    [SearchConfig(temperature=0.7), SearchConfig(top_k=3), SearchConfig(top_p=0.7), SearchConfig(min_p=0.2)],
    ids=["temperature", "top-k", "top-p", "min-p"],
)
def test_each_filter_equals_the_one_of_transformers(sampling: SearchConfig) -> None:
    process = pytest.importorskip("transformers.generation.logits_process")
    theirs = [
        process.TemperatureLogitsWarper(sampling.temperature),
        process.TopKLogitsWarper(sampling.top_k or 9),
        process.TopPLogitsWarper(sampling.top_p),
        process.MinPLogitsWarper(sampling.min_p),
    ]
    log_probs = (2 * torch.randn(50, 9, dtype=torch.float64)).log_softmax(1)
    scores = log_probs
    for warper in theirs:
        scores = warper(torch.zeros(50, 1, dtype=torch.long), scores)
    found = torch.tensor(probabilities(step_of(log_probs.tolist()), sampling, symbols=9), dtype=torch.float64)
    torch.testing.assert_close(found, scores.softmax(1))
    assert (found - log_probs.exp()).abs().max() > 1e-2
