"""Ensembles and fusion: the formulas, the laws of stepping, the oracle, shortlists, and members that do not fit."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeVar

import pytest
import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from torch import Tensor

from laws.stepping import check_stepper_laws
from search.steppers import Bigram, Grammar, History, Masked, Shortlisted, numbered, sentences
from seqloom.core.errors import ConfigError, ModelError
from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.models.seq2seq import Seq2Seq, Seq2SeqConfig
from seqloom.models.transformer import Transformer, TransformerConfig
from seqloom.nn.embeddings import Symbols
from seqloom.search.beam import beam_search
from seqloom.search.ensemble import Ensemble, Fusion, Mode
from seqloom.search.exhaustive import exhaustive_search
from seqloom.search.greedy import greedy_search
from seqloom.search.sampling import sample_search
from seqloom.search.settings import SearchConfig

MODES: tuple[Mode, ...] = ("log_mean", "mean")
modes = st.sampled_from(MODES)
seeds = st.integers(0, 10_000)


class LanguageModel(Bigram):
    """log P(y ∣ last), whatever the source is."""

    def start(self, source: Source) -> State:
        return replace(numbered(source), number=torch.zeros_like(source.lengths))


def settings(beam: int = 1, *, nbest: int = 1, limit: int = 5) -> SearchConfig:
    return SearchConfig(beam=beam, nbest=nbest, length_factor=0.0, length_constant=limit)


def mixed_by_hand(members: Sequence[Tensor], weights: Sequence[float], mode: Mode) -> Tensor:
    """The formulas in probabilities, not in logarithms."""
    probabilities, shares = (
        torch.stack([member.exp() for member in members]),
        torch.tensor(weights, dtype=torch.float64)[:, None, None],
    )
    together = (shares * probabilities).sum(0) if mode == "mean" else (probabilities**shares).prod(0)
    return (together / together.sum(1, keepdim=True)).log()


def first_step(stepper: Stepper, source: Source) -> Step:
    return stepper.step(stepper.start(source), source.lengths.new_full((len(source.lengths),), stepper.begin))


@pytest.mark.parametrize("mode", MODES)
def test_the_mean_is_what_its_formula_says(mode: Mode) -> None:
    steppers, source = [History(7, seed=1), Bigram(7, seed=2), Bigram(7, seed=3)], sentences([2, 5])
    parts = [first_step(stepper, source).log_probs for stepper in steppers]
    weighted = first_step(Ensemble(steppers, [2.0, 1.0, 1.0], mode=mode), source).log_probs
    torch.testing.assert_close(weighted, mixed_by_hand(parts, [0.5, 0.25, 0.25], mode))
    equal = first_step(Ensemble(steppers, mode=mode), source).log_probs
    torch.testing.assert_close(equal, mixed_by_hand(parts, [1 / 3] * 3, mode))
    assert (weighted - equal).abs().max() > 1e-3
    other: Mode = "mean" if mode == "log_mean" else "log_mean"
    assert (equal - mixed_by_hand(parts, [1 / 3] * 3, other)).abs().max() > 1e-3


def test_one_symbol_may_please_a_single_member_or_must_please_all() -> None:
    """0.9 and 0 for one symbol: their arithmetic mean is 0.45, their geometric mean 0."""
    names = ["<s>", "</s>", "a"]
    sure = Grammar(names, {"<s>": {"a": 0.9, "</s>": 0.1}, "a": {"</s>": 1.0}}, begin="<s>", end="</s>")
    never = Grammar(names, {"<s>": {"</s>": 1.0}}, begin="<s>", end="</s>")
    source = sentences([1])
    mean = first_step(Ensemble([sure, never], mode="mean"), source).log_probs.exp()
    geometric = first_step(Ensemble([sure, never], mode="log_mean"), source).log_probs.exp()
    torch.testing.assert_close(mean, torch.tensor([[0, 0.55, 0.45]], dtype=torch.float64), rtol=0, atol=1e-7)
    torch.testing.assert_close(geometric, torch.tensor([[0, 1.0, 0]], dtype=torch.float64))


def test_fusion_adds_the_language_model_with_its_weight() -> None:
    model, language_model, source = History(7, seed=1), LanguageModel(7, seed=5), sentences([2, 5, 1])
    ours, theirs = first_step(model, source).log_probs, first_step(language_model, source).log_probs
    plain = first_step(Fusion(model, language_model, weight=0.3, is_normalised=False), source).log_probs
    torch.testing.assert_close(plain, ours + 0.3 * theirs)
    assert bool((plain.logsumexp(1) < -1e-3).all())
    fused = first_step(Fusion(model, language_model, weight=0.3), source).log_probs
    torch.testing.assert_close(fused, (ours + 0.3 * theirs).log_softmax(1))
    without = first_step(Fusion(model, language_model, weight=0.0), source).log_probs
    torch.testing.assert_close(without, ours)
    assert (fused - ours).abs().max() > 1e-2


def test_a_language_model_of_no_weight_forbids_nothing() -> None:
    names = ["<s>", "</s>", "a"]
    free = Grammar(names, {"<s>": {"a": 0.9, "</s>": 0.1}}, begin="<s>", end="</s>")
    strict = Grammar(names, {"<s>": {"</s>": 1.0}}, begin="<s>", end="</s>")
    source = sentences([1])
    assert first_step(Fusion(free, strict, weight=0.0), source).log_probs.exp()[0, 2] == pytest.approx(0.9, abs=1e-6)
    assert first_step(Fusion(free, strict, weight=0.1), source).log_probs.exp()[0].tolist() == [0, 1, 0]


@pytest.mark.parametrize("mode", MODES)
def test_an_ensemble_of_tables_keeps_the_laws_of_stepping(mode: Mode) -> None:
    check_stepper_laws(lambda: Ensemble([History(9, seed=1), Bigram(9, seed=2)], mode=mode), 20, target_symbols=9)
    check_stepper_laws(
        lambda: Ensemble([History(9, seed=1), Shortlisted(Bigram(9, seed=2), [7, 2, 4])], mode=mode),
        20,
        target_symbols=9,
    )
    check_stepper_laws(
        lambda: Ensemble([Shortlisted(History(9, seed=1), [5, 2, 8]), Shortlisted(Bigram(9, seed=2), [8, 4, 2])]),
        20,
        target_symbols=9,
    )


def test_a_fusion_keeps_the_laws_of_stepping() -> None:
    check_stepper_laws(lambda: Fusion(History(9, seed=1), LanguageModel(9, seed=2), weight=0.4), 20, target_symbols=9)
    short = Shortlisted(History(9, seed=1), [5, 2, 8])
    check_stepper_laws(lambda: Fusion(short, LanguageModel(9, seed=2), weight=0.4), 20, target_symbols=9)
    with pytest.raises(AssertionError, match="the log of the sum"):
        check_stepper_laws(
            lambda: Fusion(History(9, seed=1), LanguageModel(9, seed=2), is_normalised=False), 20, target_symbols=9
        )


SYMBOLS = Symbols(source=13, target=8, is_shared=False)
Model = TypeVar("Model", Transformer, Seq2Seq)


def transformer_of() -> Transformer:
    config = TransformerConfig(width=8, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=12, tying="output")
    return sharpened(config.build(SYMBOLS, seed=1).double().eval())


def seq2seq_of(attention: Literal["none", "bilinear"] = "bilinear") -> Seq2Seq:
    config = Seq2SeqConfig(width=6, embedding_width=5, tying="output", attention=attention)
    return sharpened(config.build(SYMBOLS, seed=2).double().eval())


def sharpened(model: Model) -> Model:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0).add_(0.3 * torch.randn_like(parameter))
    return model


def teacher_forced(model: Transformer | Seq2Seq, source: Source, prefix: Tensor) -> Tensor:
    features = model(source, prefix, torch.full((len(prefix),), prefix.shape[1]))
    return model.output.log_probs(features).view(*prefix.shape, -1)


@pytest.mark.parametrize("mode", MODES)
def test_models_of_different_architectures_keep_the_laws_together(mode: Mode) -> None:
    one, two = transformer_of(), seq2seq_of()

    def at_once(source: Source, prefix: Tensor) -> Tensor:
        parts = [teacher_forced(model, source, prefix).flatten(0, 1) for model in (one, two)]
        return mixed_by_hand(parts, [0.75, 0.25], mode).view(*prefix.shape, -1)

    check_stepper_laws(
        lambda: Ensemble([one.stepper(attention=True), two.stepper(attention=True)], [3.0, 1.0], mode=mode),
        SYMBOLS.source,
        target_symbols=SYMBOLS.target,
        teacher_forced=at_once,
        lengths=(3, 1, 5),
        steps=3,
        tolerance=1e-11,
    )


def test_a_model_with_a_language_model_keeps_the_laws() -> None:
    model = transformer_of()
    check_stepper_laws(
        lambda: Fusion(model.stepper(attention=True), LanguageModel(SYMBOLS.target, seed=4)),
        SYMBOLS.source,
        target_symbols=SYMBOLS.target,
        lengths=(3, 1, 5),
        steps=3,
        tolerance=1e-11,
    )


def check_against_oracle(stepper: Stepper, source: Source, *, symbols: int) -> None:
    """A beam of all sequences, every search against every other."""
    wide = settings((symbols - 1) ** 2 * symbols, nbest=8, limit=3)
    oracle = exhaustive_search(stepper, source, wide)
    for found, best in zip(beam_search(stepper, source, wide), oracle, strict=True):
        assert [hypothesis.symbols for hypothesis in found] == [hypothesis.symbols for hypothesis in best[:8]]
        assert [h.score for h in found] == pytest.approx([h.score for h in best[:8]], abs=1e-9)
    [*greedy] = greedy_search(stepper, source, settings(limit=3))
    assert [best for [best] in beam_search(stepper, source, settings(limit=3))] == greedy
    sampled = sample_search(stepper, source, settings(limit=3).model_copy(update={"temperature": 0.0}))
    assert [best for [best] in sampled] == greedy


@effort(max_examples=15)
@given(seeds, modes)
def test_a_wide_enough_beam_of_an_ensemble_finds_what_the_oracle_finds(seed: int, mode: Mode) -> None:
    ensemble = Ensemble([History(5, seed=seed), Bigram(5, seed=seed + 1)], [1.0, 2.0], mode=mode)
    check_against_oracle(ensemble, sentences([1, 4], seed=seed), symbols=5)


@effort(max_examples=15)
@given(seeds, st.sampled_from([0.0, 0.2, 1.0]), st.booleans())
def test_a_wide_enough_beam_of_a_fusion_finds_what_the_oracle_finds(seed: int, weight: float, normal: bool) -> None:
    fusion = Fusion(History(5, seed=seed), LanguageModel(5, seed=seed), weight=weight, is_normalised=normal)
    check_against_oracle(fusion, sentences([1, 4], seed=seed), symbols=5)


@pytest.mark.parametrize("mode", MODES)
def test_a_wide_enough_beam_of_real_models_finds_what_the_oracle_finds(mode: Mode) -> None:
    source = Source(torch.randint(4, SYMBOLS.source, (2, 4)), torch.tensor([4, 2]))
    together = Ensemble([transformer_of().stepper(), seq2seq_of("none").stepper()], mode=mode)
    check_against_oracle(Fusion(together, LanguageModel(SYMBOLS.target, seed=3)), source, symbols=SYMBOLS.target)


@effort(max_examples=20)
@given(seeds, modes)
def test_copies_of_a_model_and_a_model_alone_say_the_same(seed: int, mode: Mode) -> None:
    member, source = History(6, seed=seed), sentences([3, 1, 4], seed=seed)
    alone = beam_search(member, source, settings(3, nbest=3))
    for together in (Ensemble([member], mode=mode), Ensemble([member, member, member], [1.0, 5.0, 0.5], mode=mode)):
        found = beam_search(together, source, settings(3, nbest=3))
        assert [[h.symbols for h in part] for part in found] == [[h.symbols for h in part] for part in alone]
        assert [h.score for [h, *_] in found] == pytest.approx([h.score for [h, *_] in alone], abs=1e-9)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lists", [([5, 2, 8, 3], [3, 6, 2, 5]), ([5, 2, 3], [5, 2, 3]), ([5, 2, 3], None)])
def test_of_shortlists_what_all_members_offer_is_left(mode: Mode, lists: tuple[list[int], list[int] | None]) -> None:
    """As the same members with the other symbols at −∞, conditioned on what both offer."""
    whole, other = History(9, seed=1), Bigram(9, seed=2)
    first, second = lists
    short = Ensemble([Shortlisted(whole, first), other if second is None else Shortlisted(other, second)], mode=mode)
    source = sentences([3, 1, 5])
    step = first_step(short, source)
    assert step.symbols is not None
    shared = sorted(set(first) & set(range(9) if second is None else second))
    masked = [
        first_step(Masked(whole, first), source).log_probs,
        first_step(other if second is None else Masked(other, second), source).log_probs,
    ]
    expected = mixed_by_hand([member[:, shared] for member in masked], [0.5, 0.5], mode)
    dense = torch.full((3, 9), -math.inf, dtype=torch.float64).index_copy(1, step.symbols, step.log_probs)
    torch.testing.assert_close(dense[:, shared], expected)
    others = [symbol for symbol in range(9) if symbol not in shared]
    assert bool((dense[:, others] == -math.inf).all())


class OwnList:
    """Each row offers symbols of its own; −∞ with a symbol that stands elsewhere fills a row up."""

    def __init__(self, whole: History, symbols: Sequence[Sequence[int]], real: Sequence[int]):
        self.whole, self.symbols, self.real = whole, torch.tensor(symbols), torch.tensor(real)
        self.begin, self.end = whole.begin, whole.end

    def start(self, source: Source) -> State:
        return self.whole.start(source)

    def step(self, state: State, last: Tensor) -> Step:
        step = self.whole.step(state, last)
        is_real = torch.arange(self.symbols.shape[1]) < self.real[:, None]
        log_probs = step.log_probs.gather(1, self.symbols).masked_fill(~is_real, -math.inf).log_softmax(1)
        return replace(step, log_probs=log_probs, symbols=self.symbols)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_first", [True, False])
def test_rows_may_have_shortlists_of_their_own(mode: Mode, is_first: bool) -> None:
    own = OwnList(History(9, seed=1), [[4, 2, 7, 4], [8, 7, 2, 5]], [3, 4])
    shared = Shortlisted(History(9, seed=3), [2, 5, 7, 8, 4])
    source = sentences([2, 3])
    step = first_step(Ensemble([own, shared] if is_first else [shared, own], mode=mode), source)
    assert step.symbols is not None
    table = torch.zeros(2, 9, dtype=torch.float64)
    table.scatter_add_(1, step.symbols.expand(2, -1), step.log_probs.exp())
    for row, symbols in enumerate([[2, 4, 7], [2, 5, 7, 8]]):
        parts = [
            first_step(own, source).log_probs[row][[own.symbols[row].tolist().index(each) for each in symbols]],
            first_step(shared, source).log_probs[row][[[2, 5, 7, 8, 4].index(each) for each in symbols]],
        ]
        expected = mixed_by_hand([part[None] for part in parts], [0.5, 0.5], mode)[0].exp()
        torch.testing.assert_close(table[row, symbols], expected)
        assert float(table[row].sum()) == pytest.approx(1)


def test_shortlists_with_nothing_in_common_are_a_dead_end() -> None:
    apart = Ensemble([Shortlisted(History(9, seed=1), [2, 3]), Shortlisted(Bigram(9, seed=2), [5, 6])])
    with pytest.raises(ModelError, match="sentence 0 of the batch cannot continue: at step 1"):
        greedy_search(apart, sentences([2]), settings())


def test_attention_is_the_mean_over_the_members_that_give_it() -> None:
    one, two, blind, source = History(7, seed=1), OtherLook(7, seed=1), Bigram(7, seed=1), sentences([2, 5])
    looks = [first_step(stepper, source).attention for stepper in (one, two)]
    assert looks[0] is not None
    assert looks[1] is not None
    step = first_step(Ensemble([one, blind, two], [3.0, 2.0, 1.0]), source)
    torch.testing.assert_close(step.attention, 0.75 * looks[0] + 0.25 * looks[1])
    assert first_step(Ensemble([blind, blind]), source).attention is None
    assert first_step(Fusion(blind, one), source).attention is None
    torch.testing.assert_close(first_step(Fusion(one, two), source).attention, looks[0])


class OtherLook(History):
    """Looks from the other end."""

    def step(self, state: State, last: Tensor) -> Step:
        step = super().step(state, last)
        assert step.attention is not None
        return replace(step, attention=step.attention.flip(1))


def test_members_that_do_not_share_a_vocabulary_are_refused() -> None:
    source = sentences([2])
    with pytest.raises(ModelError, match="but model 0 has 7 symbols and model 2 has 8"):
        first_step(Ensemble([History(7, seed=1), Bigram(7, seed=1), Bigram(8, seed=1)]), source)
    with pytest.raises(ModelError, match="but model 0 offers symbol 8 and model 1 has 7 symbols only"):
        first_step(Fusion(Shortlisted(History(9, seed=1), [2, 8]), Bigram(7, seed=1)), source)
    foreign = Grammar(["</s>", "<s>"], {"<s>": {"</s>": 1.0}}, begin="<s>", end="</s>")
    with pytest.raises(ModelError, match="the end symbol is 2 in model 0 and 0 in model 1; take models that were"):
        Ensemble([History(7, seed=1), foreign])
    swapped = Grammar(["</s>", "a", "b", "<s>"], {}, begin="<s>", end="</s>")
    with pytest.raises(ModelError, match="the begin symbol is 1 in model 0 and 3 in model 1"):
        Fusion(History(7, seed=1), swapped)


def test_weights_that_cannot_be_are_refused() -> None:
    member = Bigram(5, seed=0)
    with pytest.raises(ConfigError, match="an ensemble needs at least one model; got 0"):
        Ensemble([])
    with pytest.raises(ConfigError, match="got 1 weights for 2 models"):
        Ensemble([member, member], [1.0])
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ConfigError, match=f"weight {wrong} of model 1 of the ensemble is out of range"):
            Ensemble([member, member], [1.0, wrong])
    for wrong in (-0.1, math.inf, math.nan):
        with pytest.raises(ConfigError, match=f"the weight {wrong} of the language model is out of range"):
            Fusion(member, member, weight=wrong)
