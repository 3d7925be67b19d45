"""Steps in one compiled call: what the plan and the layers give, alone and in a batch."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Int
from torch import Tensor

from nn.loops import use_loops
from seqloom.core.errors import ModelError
from seqloom.core.stepping import BeamSteps, Source, State, Step
from seqloom.core.symbols import BEGIN, END
from seqloom.models import transformer
from seqloom.models.t5 import T5Config
from seqloom.models.transformer import Transformer, TransformerConfig, TransformerStepper
from seqloom.nn.embeddings import Symbols
from seqloom.nn.fast import packed, threads
from seqloom.nn.fast.compiled_step import CompiledStep
from seqloom.nn.fast.int8 import Int8Output, with_int8
from seqloom.search.decode import decode
from seqloom.search.driver import Cancellation
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig

LENGTHS = (9, 3, 6, 1, 7, 5)
SYMBOLS = 37


def model(seed: int = 1, *, is_rounded: bool = False, **changed: object) -> Transformer:
    """With the scale of a trained model, so that hypotheses differ."""
    sizes = {"width": 32, "heads": 4, "encoder_layers": 1, "decoder_layers": 2, "feed_forward": 48, **changed}
    symbols = Symbols(source=SYMBOLS, target=SYMBOLS, is_shared=True)
    config = T5Config if changed.get("kind") == "t5" else TransformerConfig
    built = config.model_validate(sizes).build(symbols, seed=seed).eval()
    with torch.no_grad():
        for name, parameter in built.named_parameters():
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name)))
            parameter += (0.3 if parameter.dim() == 1 else 0.1) * noise
    if not is_rounded:
        return built
    rounded = with_int8(built, least_weights=1)
    assert isinstance(rounded, Transformer)
    return rounded


def source(lengths: tuple[int, ...] = LENGTHS) -> Source:
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(4, SYMBOLS, (len(lengths), max(lengths)), generator=generator)
    return Source(ids, torch.tensor(lengths))


@dataclass(frozen=True)
class OneOf:
    """Decodes one sentence of a batch, which was encoded with the others: products of encoders depend on them."""

    stepper: TransformerStepper
    batch: Source
    number: int
    begin: int = BEGIN
    end: int = END

    @property
    def source(self) -> Source:
        place = slice(self.number, self.number + 1)
        return Source(self.batch.ids[place], self.batch.lengths[place])

    def start(self, source: Source) -> State:
        assert len(source.lengths) == 1
        return self.stepper.start(self.batch).select(torch.tensor([self.number]))

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        return self.stepper.step(state, last)

    def step_beams(self, state: State, last: Int[Tensor, " rows"], **given: Any) -> BeamSteps | None:
        return self.stepper.step_beams(state, last, **given)

    def decode(self, settings: SearchConfig) -> list[list[Hypothesis]]:
        return decode(self, self.source, settings)


def by_plan(stepper: TransformerStepper) -> TransformerStepper:
    stepper.compiled = None
    return stepper


def lists(batch: Source) -> Int[Tensor, "sentences offered"]:
    """END and some symbols, more for long sentences; not a multiple of anything."""
    rows = [[END, *range(4, 12 + int(length))] for length in batch.lengths]
    longest = max(map(len, rows))
    return torch.tensor([row + [-1] * (longest - len(row)) for row in rows])


def assert_same(ones: list[list[Hypothesis]], others: list[list[Hypothesis]], *, within: float) -> None:
    for some, same in zip(ones, others, strict=True):
        assert [each.symbols for each in some] == [each.symbols for each in same]
        for a, b in zip(some, same, strict=True):
            assert abs(a.score - b.score) <= within
            assert (a.is_finished, a.is_complete, a.hit_limit) == (b.is_finished, b.is_complete, b.hit_limit)
            assert a.token_log_probs == pytest.approx(b.token_log_probs, abs=within)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"norm": "after", "activation": "gelu", "tying": "none"},
        {"is_rounded": True},
        {"is_rounded": True, "activation": "gelu", "width": 48, "heads": 3, "decoder_layers": 1},
        {"positions": "learned", "longest": 7, "heads": 1},
        {"positions": "none", "norm": "after", "decoder_layers": 3},
        {"positions": "bias"},
        {"kind": "t5", "head_size": 12, "buckets": 6, "farthest": 9, "frame": {"target_before": (0,)}, "absent": (1,)},
        {"kind": "t5", "head_size": 4, "gated": False, "tying": "all", "scaled_output": True, "decoder_layers": 1},
        {"kind": "t5", "head_size": 8, "is_rounded": True},
    ],
)
@pytest.mark.parametrize("is_listed", [False, True])
def test_a_beam_is_that_of_the_plan(changed: dict[str, Any], is_listed: bool) -> None:
    translator, batch = model(**changed), source()
    options: dict[str, Any] = {"shortlist": lists} if is_listed else {}
    for settings in (
        SearchConfig(beam=5, nbest=5, length_constant=3),
        SearchConfig(beam=2, stop="first"),
        SearchConfig(beam=1),
        SearchConfig(beam=3, nbest=2, length_factor=0, length_constant=70, length_normalisation="none"),
    ):
        stepper = translator.stepper(**options)
        assert stepper.compiled is not None
        found = decode(stepper, batch, settings)
        assert_same(found, decode(by_plan(translator.stepper(**options)), batch, settings), within=1e-5)
        assert_same(found[2:3], OneOf(stepper, batch, 2).decode(settings), within=0)


@pytest.mark.parametrize("is_listed", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"mode": "huggingface", "peer_renormalise": True, "peer_forced_end": True},
        {"mode": "huggingface", "peer_early_stopping": "never", "shortest_constant": 4},
        {"mode": "huggingface", "beam": 1, "nbest": 1},
        {"mode": "fairseq", "peer_length_penalty": 0.5},
        {"mode": "opennmt-lua"},
        {},
    ],
)
def test_other_rules_of_a_beam_are_those_of_the_plan(options: dict[str, Any], is_listed: bool) -> None:
    translator, batch = model(), source()
    given: dict[str, Any] = {"shortlist": lists} if is_listed else {}
    settings = SearchConfig(**{"beam": 3, "nbest": 3, "length_factor": 1.5, "length_constant": 8, **options})
    free = decode(translator.stepper(**given), batch, settings)
    common = max(symbol for some in free for each in some for symbol in each.symbols)
    settings = settings.model_copy(update={"never": (0, common, 9999)})
    found = decode(translator.stepper(**given), batch, settings)
    assert_same(found, decode(by_plan(translator.stepper(**given)), batch, settings), within=1e-5)
    assert not any(common in each.symbols for some in found for each in some)


def test_sentences_alone_are_those_of_a_batch_to_the_last_bit() -> None:
    batch = source((9, 3, 6, 1, 7, 5, 9, 9, 2, 4, 8, 6, 3))
    for translator in (model(), model(is_rounded=True), model(width=64, activation="gelu")):
        settings, stepper = SearchConfig(beam=4, nbest=3), translator.stepper()
        for number, found in enumerate(decode(stepper, batch, settings)):
            assert_same([found], OneOf(stepper, batch, number).decode(settings), within=0)


def test_it_is_the_packed_weights_that_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    translator, batch, settings = model(), source(), SearchConfig(beam=3)
    stepper = translator.stepper()
    assert stepper.compiled is not None
    found = decode(stepper, batch, settings)
    stepper.compiled.products.floats[-200:-100] += 1.0  # in the output
    with pytest.raises(AssertionError):
        assert_same(decode(stepper, batch, settings), found, within=1e-5)
    assert_same(decode(by_plan(stepper), batch, settings), found, within=1e-5)


def test_a_step_gives_the_log_probabilities_that_a_beam_ranks() -> None:
    stepper, batch = model().stepper(), source()
    with torch.inference_mode():
        state, last = stepper.start(batch), torch.full((len(LENGTHS),), BEGIN)
        step = stepper.step(state, last)
        ahead = stepper.step_beams(stepper.start(batch), last, totals=torch.zeros(len(last)).double().numpy(), beam=4,
                                   steps=1)  # fmt: skip
    assert ahead is not None
    best = step.log_probs.sort(dim=1, descending=True, stable=True)
    assert torch.equal(torch.from_numpy(ahead.symbols[0]), best.indices[:, :5])
    assert torch.equal(torch.from_numpy(ahead.log_probs[0]).float(), best.values[:, :5])
    assert torch.allclose(step.log_probs.exp().sum(1), torch.ones(len(last)), atol=1e-5)


def test_models_that_cannot_be_packed_are_decoded_by_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, settings = source(), SearchConfig(beam=3)
    for changed in ({"width": 24}, {"feed_forward": 50}, {"positions": "shaw"}, {"output_projection": False}):
        assert model(**changed).stepper().compiled is None
    assert model().double().stepper().compiled is None
    assert model().stepper(attention=True).compiled is None
    joined = model(positions="concatenated")
    assert_same(decode(joined.stepper(), batch, settings), decode(by_plan(joined.stepper()), batch, settings), within=0)
    with monkeypatch.context() as patch:
        patch.setattr(packed.torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
        assert model().stepper().compiled is None
        assert model().stepper().plan is not None
    use_loops(monkeypatch, fewest=1_000)
    monkeypatch.setattr(CompiledStep, "beams", None)
    monkeypatch.setattr(CompiledStep, "log_probs", None)
    decode(model().stepper(), batch, settings)


@pytest.mark.parametrize(("is_rounded", "threads"), [(True, 1), (False, 2)])
def test_many_rows_are_left_to_the_library_where_it_is_faster(
    is_rounded: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformer.torch, "get_num_threads", lambda: threads)
    stepper, last = model(is_rounded=is_rounded).stepper(), torch.full((4,), BEGIN)
    totals = torch.zeros(4).double().numpy()
    with torch.inference_mode():
        few, many = (stepper.start(source((3,) * count)) for count in (3, 4))
        assert stepper.step_beams(few, last[:3], totals=totals[:3], beam=4, steps=1) is not None
        assert stepper.step_beams(many, last, totals=totals, beam=4, steps=1) is None


def test_several_threads_give_what_one_gives_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary that does not fill its last panel, more rows than one call computes, and products split up."""
    stepper, settings = model(activation="silu").stepper(), SearchConfig(beam=4, nbest=4, length_constant=12)
    alone = decode(stepper, source(), settings)
    monkeypatch.setattr(threads, "MIN_SHARED_WORK", 1)
    calls: list[int] = []
    monkeypatch.setattr(packed, "share", lambda parts, compute: (calls.append(parts), threads.share(parts, compute)))
    monkeypatch.setattr(transformer.torch, "get_num_threads", lambda: 3)
    # The encoder multiplies by torch, whose results may differ with its threads: here there is one in both cases.
    together = decode(stepper, source(), settings)
    assert max(calls) > 1
    assert_same(together, alone, within=0)


def test_an_output_in_eight_bits_matters_only_without_a_shortlist() -> None:
    translator, last, totals = model(), torch.full((4,), BEGIN), torch.zeros(4).double().numpy()
    translator.output = Int8Output(translator.output)
    for stepper, is_one_call in ((translator.stepper(), False), (translator.stepper(shortlist=lists), True)):
        with torch.inference_mode():
            found = stepper.step_beams(stepper.start(source((3,) * 4)), last, totals=totals, beam=4, steps=1)
        assert (found is not None) == is_one_call


@pytest.mark.parametrize("is_rounded", [False, True])
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_a_published_decoder_is_one_call_too(
    activation: str, is_rounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its activations, a norm of the embeddings, a bias, absent symbols, and symbols before the first one."""
    translator = model(
        is_rounded=is_rounded,
        activation=activation,
        embedding_norm=True,
        output_bias=True,
        absent=(BEGIN, 5),
        frame={"source_before": (8,), "target_before": (END, 9)},
    )
    settings = SearchConfig(beam=3, length_factor=0, length_constant=12)
    stepper = translator.stepper()
    with torch.inference_mode():
        state = stepper.start(source((4,)))
        assert stepper.step_beams(state, torch.tensor([BEGIN]), totals=np.zeros(1), beam=3, steps=2) is not None
    fast = decode(stepper, source(), settings)
    lists_of_all = torch.arange(SYMBOLS).expand(len(LENGTHS), -1)
    listed = decode(translator.stepper(shortlist=lambda _: lists_of_all), source(), settings)
    use_loops(monkeypatch, fewest=1_000)
    plain = decode(translator.stepper(), source(), settings)
    assert_same(fast, plain, within=1e-4)
    if not is_rounded:
        assert_same(fast, listed, within=1e-4)
    assert not {BEGIN, 5} & {symbol for each in plain for found in each for symbol in found.symbols}


def test_weights_that_are_not_numbers_are_an_error() -> None:
    broken = model()
    with torch.no_grad():
        broken.decoder.layers[0].self.qkv.weight[0, 0] = float("nan")
    with pytest.raises(ModelError, match=r"\(NaN\), first in row 0 of 6"):
        decode(broken.stepper(), source(), SearchConfig(beam=3))


def test_a_sentence_alone_can_be_cancelled_after_each_step() -> None:
    asked: list[int] = []

    def is_cancelled(sentence: int) -> bool:
        asked.append(sentence)
        return len(asked) == 3

    settings, alone = SearchConfig(beam=3, length_factor=0, length_constant=60), source((4,))
    stepper = model(seed=2).stepper()
    full = decode(stepper, alone, settings, cancellation=Cancellation(lambda _: False))
    assert_same(full, decode(stepper, alone, settings), within=0)
    assert decode(stepper, alone, settings, cancellation=Cancellation(is_cancelled)) == [[]]
    asked.clear()
    decode(stepper, alone, settings, cancellation=Cancellation(lambda each: bool(asked.append(each))))
    assert len(asked) >= len(full[0][0].symbols) - 1  # not after the last


@pytest.mark.parametrize("lengths", [(4,), (4, 3)])
def test_a_flag_ends_several_steps_after_the_one_that_is_computed(lengths: tuple[int, ...]) -> None:
    stepper, batch = model(seed=2).stepper(), source(lengths)
    given = {"totals": np.zeros(len(lengths)), "beam": 1, "steps": 20}
    last = torch.full((len(lengths),), BEGIN)
    with torch.inference_mode():
        many = stepper.step_beams(stepper.start(batch), last, **given, stop=np.zeros(1, np.uint8))
        one = stepper.step_beams(stepper.start(batch), last, **given, stop=np.ones(1, np.uint8))
    assert many is not None
    assert one is not None
    assert len(many.symbols) > 1
    assert len(one.symbols) == 1
    assert np.array_equal(one.symbols[0], many.symbols[0])
    # A search that is stopped again and again, and asked each time, finds what it finds at once.
    stop, settings = np.ones(1, np.uint8), SearchConfig(beam=3, length_factor=0, length_constant=60)

    def never(_sentence: int) -> bool:
        stop[0] = 1
        return False

    found = decode(stepper, batch, settings, cancellation=Cancellation(never, stop=stop))
    assert_same(found, decode(stepper, batch, settings), within=0)
