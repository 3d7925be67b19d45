"""The decoder's step as a plan: what its layers give one after another."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from nn.loops import use_loops
from seqloom.core.stepping import Source
from seqloom.core.symbols import END
from seqloom.models.t5 import T5Config
from seqloom.models.transformer import Transformer, TransformerConfig
from seqloom.nn.embeddings import Symbols
from seqloom.nn.fast.int8 import with_int8
from seqloom.nn.probe import listen
from seqloom.search.decode import decode
from seqloom.search.settings import SearchConfig

SYMBOLS = Symbols(source=20, target=20, is_shared=True)
SOURCE = Source(torch.tensor([[4, 9, 5, END], [7, END, 0, 0], [8, 6, END, 0]]), torch.tensor([4, 2, 3]))


def model(seed: int = 1, **changed: object) -> Transformer:
    settings = {"width": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 2, "feed_forward": 24, **changed}
    config = T5Config if changed.get("kind") == "t5" else TransformerConfig
    built = config.model_validate(settings).build(SYMBOLS, seed=seed).eval()
    with torch.no_grad():  # norms and biases begin at 1 and 0, where mistakes would not show
        for name, parameter in built.named_parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name)))
    return built


def steps(translator: Transformer, *, has_plan: bool) -> list[Tensor]:
    """Log-probabilities of some positions, with rows repeated, reordered and dropped."""
    generator = torch.Generator().manual_seed(3)
    stepper = translator.stepper()
    assert stepper.plan is not None
    if not has_plan:
        stepper.plan = None
    found = []
    with torch.inference_mode():
        state, rows = stepper.start(SOURCE), 3
        for position in range(12):
            step = stepper.step(state, torch.randint(4, 20, (rows,), generator=generator))
            found.append(step.log_probs)
            picked = torch.randint(0, rows, (max(2, 9 - position // 3),), generator=generator)
            state, rows = step.state.select(picked), len(picked)
    return found


@pytest.mark.parametrize("norm", ["before", "after"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("is_rounded", [False, True])
def test_the_plan_gives_what_the_layers_give(
    norm: str, activation: str, is_rounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_loops(monkeypatch, fewest=1)
    translator = model(norm=norm, activation=activation)
    if is_rounded:
        rounded = with_int8(translator, least_weights=1)
        assert isinstance(rounded, Transformer)
        translator = rounded
    plan, layers = steps(translator, has_plan=True), steps(translator, has_plan=False)
    for one, other in zip(plan, layers, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5 if not is_rounded else 2e-2)
    others = steps(model(norm=norm, activation="gelu" if activation == "relu" else "relu"), has_plan=False)
    assert (plan[-1] - others[-1]).abs().max() > 3e-2


@pytest.mark.parametrize(
    "changed",
    [
        {"positions": "bias"},
        {"kind": "t5", "head_size": 12, "buckets": 6, "farthest": 9},
        {"kind": "t5", "head_size": 8, "gated": False, "activation": "relu", "tying": "all", "scaled_output": True},
    ],
)
def test_the_plan_knows_relative_positions_and_the_layers_of_t5(
    changed: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_loops(monkeypatch, fewest=1)
    translator = model(**changed)
    plan, layers = steps(translator, has_plan=True), steps(translator, has_plan=False)
    for one, other in zip(plan, layers, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
    assert translator.decoder.bias is not None
    with torch.no_grad():
        translator.decoder.bias.weight[:, 1] += 0.5
    assert (plan[-1] - steps(translator, has_plan=True)[-1]).abs().max() > 1e-3


def test_positions_inside_attention_have_no_plan() -> None:
    assert model(positions="shaw").stepper().plan is None


def test_listeners_hear_the_layers_though_there_is_a_plan() -> None:
    translator = model(feed_forward=32)
    stepper = translator.stepper()
    assert stepper.plan is not None
    settings = SearchConfig(beam=3, length_constant=4)
    planned = decode(stepper, SOURCE, settings)
    with listen(translator, "decoder.layers.0.cross.weights") as trace:
        heard = decode(stepper, SOURCE, settings)
    assert trace["decoder.layers.0.cross.weights"]
    assert [[each.symbols for each in some] for some in heard] == [[each.symbols for each in some] for some in planned]


def test_there_is_no_plan_in_double_precision() -> None:
    assert model().double().stepper().plan is None
    assert model(output_projection=False).stepper().plan is None
    assert model(norm="after", final_norm=True).stepper().plan is None


@pytest.mark.parametrize("inner", [24, 32])
def test_searches_of_one_stepper_do_not_share_their_tables(inner: int, monkeypatch: pytest.MonkeyPatch) -> None:
    use_loops(monkeypatch, fewest=1)
    stepper, chosen = model(feed_forward=inner).stepper(), SearchConfig(beam=4, nbest=2, length_constant=20)
    assert (stepper.compiled is not None) == (inner % 16 == 0)
    alone = decode(stepper, SOURCE, chosen)
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda _: decode(stepper, SOURCE, chosen), range(12)))
    for found in together:
        assert [[each.symbols for each in some] for some in found] == [
            [each.symbols for each in some] for some in alone
        ]
