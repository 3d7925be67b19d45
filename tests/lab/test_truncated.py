"""Random truncation is right on average, fixed windows are not; an echo needs a gradient that reaches it."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from seqloom.lab.truncation import (
    EchoNetwork,
    EchoTask,
    draw_symbols,
    estimate_of,
    measure_estimates,
    train_echo,
)
from seqloom.models.cell_options import CELLS
from seqloom.nn.bptt.truncation import FULL, Truncation
from seqloom.nn.cells.gru import GRUCell
from seqloom.nn.cells.rnn import ElmanCell

TASK = EchoTask(distance=5, steps=16, width=8, symbols=3, sequences=6, updates=20, tested=16)


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_random_truncation_is_unbiased_within_four_standard_errors(kind: str) -> None:
    network = EchoNetwork(CELLS[kind], TASK)
    truncations = [Truncation("random", keep_rate=rate) for rate in (0.75, 0.9)]
    for found in measure_estimates(network, truncations, draws=100, seed=1):
        assert abs(found.along - 1) < 4 * found.along_error
        # The mean lies from the exact gradient as far as chance puts it: bias² is bias_error² on average.
        assert found.bias < 4 * found.bias_error
        assert found.spread == pytest.approx(found.bias_error * 100**0.5)


def test_fixed_windows_are_biased_and_the_full_gradient_is_not() -> None:
    network, _ = train_echo(ElmanCell, TASK, truncation=FULL, seed=1)
    windows = [Truncation(kind, window=window) for window in (2, 16) for kind in ("chunked", "sliding")]
    full, chunked, sliding, whole_chunk, whole_slide = measure_estimates(network, [FULL, *windows], draws=2, seed=1)
    assert full.bias == full.spread == 0
    assert min(chunked.bias, sliding.bias) > 0.1
    assert max(whole_chunk.bias, whole_slide.bias) < 1e-12  # 16 steps are all there are
    assert chunked.draws == 1


def test_a_window_shorter_than_the_echo_learns_less() -> None:
    task = replace(TASK, updates=120, width=16, learning_rate=0.01)
    short, long = (
        train_echo(ElmanCell, task, truncation=Truncation("sliding", window=window), seed=1)[1] for window in (2, 8)
    )
    assert long < 0.5 * short


def test_measuring_leaves_the_network_as_it_was() -> None:
    network = EchoNetwork(GRUCell, TASK)
    before = [weight.clone() for weight in network.parameters()]
    measure_estimates(network, [FULL], draws=2, seed=1)
    assert all(torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True))
    assert all(weight.dtype == torch.float32 and weight.grad is None for weight in network.parameters())


def test_bias_and_spread_of_a_case_by_hand() -> None:
    exact = torch.tensor([3.0, 4.0], dtype=torch.float64)
    drawn = torch.tensor([[3.0, 9.0], [3.0, 5.0]], dtype=torch.float64)
    found = estimate_of(drawn, exact)
    assert found.bias == pytest.approx(3 / 5)  # the mean is (3, 7)
    assert found.spread == pytest.approx(8**0.5 / 5)
    assert found.along == pytest.approx((9 + 28) / 25)
    assert found.along_error == pytest.approx(8 / 25)  # (45 − 29)/25 apart, over √2 twice


def test_an_echo_is_the_symbol_so_many_steps_before() -> None:
    """A network whose state is a shift register of one-hot symbols tells the echo for certain."""
    task = EchoTask(distance=2, steps=9, symbols=2, width=6)
    network = EchoNetwork(partial(ElmanCell, activation="identity"), task)
    with torch.no_grad():
        for weight in network.parameters():
            weight.zero_()
        network.cell.from_input.weight[:2] = torch.eye(2)
        network.cell.from_state.weight[2:] = torch.eye(6)[:4]
        network.output.weight[:, 4:] = 50 * torch.eye(2)
    shown = draw_symbols(task, 20, generator=torch.Generator().manual_seed(1))
    assert float(network(shown).detach()) < 1e-6
