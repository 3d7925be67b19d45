"""Products in eight bits: exact sums, one scale per row, near enough to floats; models that share their parameters."""

import pytest
import torch
from torch import Tensor, nn

from nn.loops import use_loops
from seqloom.core.errors import UsageError
from seqloom.core.stepping import Source
from seqloom.core.symbols import END
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.models.t5 import T5Config
from seqloom.models.transformer import TransformerConfig
from seqloom.nn.embeddings import Symbols
from seqloom.nn.fast.int8 import Int8Linear, Int8Output, Int8Weight, round_rows, with_int8

SYMBOLS = Symbols(source=20, target=17, is_shared=False)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("inputs", [1, 33, 128, 515])
def test_the_kernel_gives_the_exact_sum_even_of_the_largest_numbers(inputs: int) -> None:
    weight, bias, x = numbers(40, inputs, seed=1), numbers(40, seed=2), numbers(9, inputs, seed=3)
    weight[0], weight[1], x[0], x[1] = 1.0, -1.0, 1.0, -1.0  # in sixteen bits two such products would not fit
    int8 = Int8Weight(weight, bias)
    torch.testing.assert_close(int8.product(x), int8.plain_product(x), rtol=1e-6, atol=1e-6)
    off_by_one = Int8Weight(weight, bias)
    off_by_one.rounded = off_by_one.rounded + 1
    assert (int8.product(x) - off_by_one.plain_product(x)).abs().max() > 1e-3


def test_a_row_does_not_depend_on_its_neighbours_to_the_last_bit() -> None:
    int8, x = Int8Weight(numbers(300, 64), None), numbers(37, 64, seed=5)
    together = int8.product(x)
    loud = x.clone()
    loud[5] *= 1e4
    for row in (0, 7, 36):
        assert torch.equal(int8.product(x[row : row + 1])[0], together[row])
        assert torch.equal(int8.product(loud)[row], together[row])
    # With one scale for the batch, a loud neighbour would change everything.
    scale = loud.abs().max() / 127
    assert not torch.equal((loud / scale).round()[0], (x / (x.abs().max() / 127)).round()[0])


def test_the_rounding_is_of_the_order_of_its_bits() -> None:
    weight, x = numbers(200, 256), numbers(50, 256, seed=4)
    exact = x @ weight.t()
    error = (Int8Weight(weight, None).product(x) - exact).norm() / exact.norm()
    assert 1e-4 < error < 0.02


def test_rows_of_zeros_and_no_rows_give_the_bias() -> None:
    int8 = Int8Weight(numbers(5, 8), torch.arange(5.0))
    assert torch.equal(int8.product(torch.zeros(2, 8)), torch.arange(5.0).expand(2, 5))
    assert int8.product(torch.zeros(0, 8)).shape == (0, 5)
    assert int8.product(torch.zeros(2, 3, 8)).shape == (2, 3, 5)


def test_rounded_rows_use_the_whole_range() -> None:
    rounded, scales = round_rows(torch.tensor([[-2.0, 1.0, 2.0], [0.0, 0.0, 0.5]]))
    assert rounded.tolist() == [[1, 192, 255], [128, 128, 255]]
    torch.testing.assert_close(scales, torch.tensor([[2 / 127], [0.5 / 127]]))


def model_of(kind: str) -> nn.Module:
    if kind == "transformer":
        return TransformerConfig(width=16, heads=2, encoder_layers=1, decoder_layers=2, feed_forward=32).build(
            Symbols(20, 20, is_shared=True), seed=1
        )
    if kind == "t5":
        small = T5Config(width=16, heads=2, head_size=12, encoder_layers=1, decoder_layers=2, feed_forward=32)
        return small.build(Symbols(20, 20, is_shared=True), seed=1)
    return Seq2SeqConfig(cell=kind, width=12, embedding_width=8, tying="none").build(SYMBOLS, seed=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["transformer", "t5", "lstm", "gru", "rnn"])
def test_a_model_in_eight_bits_shares_its_parameters_and_gives_nearly_the_same(kind: str) -> None:
    model = model_of(kind).eval()
    twin = with_int8(model, least_weights=1)
    assert {id(parameter) for parameter in twin.parameters()} == {id(parameter) for parameter in model.parameters()}
    assert any(isinstance(module, Int8Linear) for module in twin.modules())
    assert isinstance(twin.output, Int8Output)
    assert not any(isinstance(module, Int8Linear | Int8Output) for module in model.modules())
    source = Source(torch.tensor([[4, 9, 5, END], [7, END, 0, 0]]), torch.tensor([4, 2]))
    steps = []
    with torch.inference_mode():
        for each in (model, twin):
            stepper = each.stepper()  # type: ignore[operator]
            state = stepper.step(stepper.start(source), torch.tensor([1, 1])).state
            steps.append(stepper.step(state, torch.tensor([6, 8])).log_probs)
    assert 0 < (steps[0] - steps[1]).abs().max() < 0.2
    torch.testing.assert_close(steps[1].exp().sum(1), torch.ones(2))


def test_small_matrices_stay_as_they_are() -> None:
    twin = with_int8(model_of("transformer"))
    assert not any(isinstance(module, Int8Linear | Int8Output) for module in twin.modules())


def test_other_devices_are_refused() -> None:
    with pytest.raises(UsageError, match="not supported on meta; use float32"):
        with_int8(nn.Linear(3, 3, device="meta"))


def test_loops_round_as_torch_does_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(9, 37, generator=torch.Generator().manual_seed(1)) * torch.logspace(-30, 30, 9)[:, None]
    x[4] = 0
    found = []
    with torch.inference_mode():
        for fewest in (1, 1000):
            use_loops(monkeypatch, fewest=fewest)
            found.append(round_rows(x))
    (loops, of_loops), (plain, of_plain) = found
    assert torch.equal(loops, plain)
    assert torch.equal(of_loops, of_plain)
    assert len(loops.unique()) > 100
