"""The forecaster against closed-form windows, torch's own recurrent layers and loops that append forecasts."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from seqloom.classical.forecasting import fit_window
from seqloom.core.declaration import SeriesFacts
from seqloom.core.errors import ConfigError, ModelError
from seqloom.models.forecaster import Channels, Design, Forecaster, ForecasterConfig, WindowNorm, fitting_history

DESIGNS: list[Design] = ["linear", "mlp", "recurrent", "transformer"]


def trained(config: ForecasterConfig) -> Forecaster:
    """A model whose weights are all random: the last layer of a fresh one is zero."""
    model = config.build(seed=1).double().eval()
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3, generator=generator)
    return model


def small(design: Design, **given: object) -> ForecasterConfig:
    sizes = {"history": 10, "horizon": 3, "columns": 2, "width": 8, "heads": 2, "feed_forward": 12, "patch": 4}
    return ForecasterConfig.model_validate({"design": design, **sizes, **given})


def histories(rows: int = 3, time: int = 10, columns: int = 2) -> torch.Tensor:
    return torch.randn(rows, time, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("horizon", [4, 11])
@pytest.mark.parametrize("outputs", [1, 4])
def test_a_linear_forecaster_with_ridge_weights_equals_the_closed_form_window(outputs: int, horizon: int) -> None:
    """Direct and recursive, in the scaled values of the classical model."""
    generator = np.random.default_rng(2)
    values = generator.normal(size=(90, 3)).cumsum(axis=0) * [1, 100, 0.01] + [0, 1e5, -3]
    classical = fit_window(values, history=7, outputs=outputs, strength=0.03, level="last", is_shared=True)
    config = ForecasterConfig(history=7, horizon=outputs, columns=3, window_norm="last")
    model = config.build(seed=1).double()
    weights = torch.from_numpy(classical.weights[0].T)  # [outputs, history]
    # About the last value, the weights of a step sum to 1, so that what the norm adds again is x_L.
    model.core.head.load_state_dict({"weight": weights, "bias": torch.from_numpy(classical.bias[0])})
    past = np.stack([values[20:27], values[50:57]])
    scaled = torch.from_numpy((past - classical.mean) / classical.deviation)
    expected = classical.forecast(past, horizon=horizon)
    ours = model.forecast(scaled, horizon=horizon).detach().numpy() * classical.deviation + classical.mean
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-9)
    with torch.no_grad():
        model.core.head.bias += 1e-3
    other = model.forecast(scaled, horizon=horizon).detach().numpy() * classical.deviation + classical.mean
    assert np.abs((other - expected) / classical.deviation).max() > 5e-4


def test_a_recurrent_forecaster_equals_torch_lstm_and_linear() -> None:
    model = trained(small("recurrent", window_norm="none", layers=2))
    theirs = nn.LSTM(1, 8, num_layers=2, batch_first=True, dtype=torch.float64)
    weights = {}
    for layer, cell in enumerate(model.core.stack.cells):  # type: ignore[union-attr]
        weights |= {
            f"weight_ih_l{layer}": cell.from_input.weight,
            f"weight_hh_l{layer}": cell.from_state.weight,
            f"bias_ih_l{layer}": cell.from_input.bias,
            f"bias_hh_l{layer}": cell.from_state.bias,
        }
    theirs.load_state_dict(weights)
    history = histories()
    for column in range(2):
        states, _ = theirs(history[:, :, column, None])
        expected = model.core.head(states[:, -1])
        torch.testing.assert_close(model(history)[:, :, column], expected, rtol=0, atol=1e-12)
    states, _ = theirs(history[:, 1:, :1])
    assert (model(history)[:, :, 0] - model.core.head(states[:, -1])).abs().max() > 1e-6


@pytest.mark.parametrize("channels", ["independent", "joint"])
@pytest.mark.parametrize("design", DESIGNS)
def test_recursion_equals_forecasts_that_are_appended_one_by_one(design: Design, channels: Channels) -> None:
    """A recurrent core takes the next step from its state, which has read everything since the window began."""
    norm: WindowNorm = "none" if design == "recurrent" else "standard"
    model = trained(small(design, strategy="recursive", channels=channels, window_norm=norm))
    assert model.outputs == 1
    history = histories()
    grown = history
    for _ in range(5):
        if design == "recurrent":
            model.history = grown.shape[1]
        grown = torch.cat([grown, model(grown)], dim=1)
    model.history = 10
    made = model.forecast(history, horizon=5)
    torch.testing.assert_close(made, grown[:, 10:], rtol=0, atol=1e-12)
    assert (made[:, 1:] - made[:, :-1]).abs().max() > 1e-6


@pytest.mark.parametrize("norm", ["last", "mean", "standard", "none"])
@pytest.mark.parametrize("design", DESIGNS)
def test_forecasts_follow_the_level_and_scale_that_the_norm_takes_away(design: Design, norm: WindowNorm) -> None:
    model, history = trained(small(design, window_norm=norm)), histories()
    made = model(history)
    moved = model(history + 7.0) - made
    assert torch.allclose(moved, torch.full_like(moved, 7.0)) == (norm != "none")
    doubled = model(2 * history)
    # The number that is added to the variance of a window is not doubled.
    assert torch.allclose(doubled, 2 * made, atol=1e-3) == (norm == "standard")
    constant = model(torch.full_like(history, 4.0))
    assert constant.isfinite().all()


@pytest.mark.parametrize("channels", ["independent", "joint"])
@pytest.mark.parametrize("design", DESIGNS)
def test_windows_never_mix_and_columns_only_where_they_are_joint(design: Design, channels: Channels) -> None:
    model, history = trained(small(design, channels=channels)), histories()
    made = model(history)
    torch.testing.assert_close(model(history[1:2]), made[1:2], rtol=0, atol=1e-12)
    other = history.clone()
    other[:, 4, 1] += 1.0
    changed = (model(other) - made).abs().amax(dim=(0, 1)) > 1e-9
    assert changed.tolist() == [channels == "joint", True]
    if channels == "independent":  # the same map for all
        torch.testing.assert_close(model(history.flip(2)), made.flip(2), rtol=0, atol=1e-12)


@pytest.mark.parametrize("design", DESIGNS)
def test_a_fresh_model_forecasts_the_last_value_and_reads_its_own_rows_only(design: Design) -> None:
    model = small(design).build(seed=1).eval()
    history = histories(time=14).float()
    torch.testing.assert_close(model(history), history[:, -1:].expand(-1, 3, -1))
    with pytest.raises(ModelError, match="a history of 9 rows and 2 columns does not fit this model: it reads 10 rows"):
        model(history[:, :9])
    sure = trained(small(design))
    earlier = histories(time=14)
    torch.testing.assert_close(sure(earlier), sure(earlier[:, 4:]), rtol=0, atol=0)


def test_any_cell_may_read_the_history_and_contradictions_are_refused() -> None:
    for cell in ("rnn", "lstm", "peephole", "coupled", "gru"):
        assert small("recurrent", cell=cell).build(seed=1)(histories().float()).shape == (3, 3, 2)
    with pytest.raises(ValueError, match=r"model\.activation=relu is for a cell of kind rnn"):
        small("recurrent", cell="gru", activation="relu")
    with pytest.raises(ValueError, match=r"model\.mean has 3 numbers, but model\.columns=2"):
        small("linear", mean=(1.0, 2.0, 3.0))
    with pytest.raises((ValueError, ConfigError), match="width 8 cannot be shared by 3 heads"):
        small("transformer", heads=3)


@given(st.integers(2, 20_000), st.integers(1, 300), st.none() | st.integers(2, 400))
def test_a_chosen_history_leaves_enough_windows_and_is_whole_periods_if_these_fit(
    rows: int, horizon: int, period: int | None
) -> None:
    history = fitting_history(SeriesFacts(rows, rows // 4, 1, period), horizon)
    windows = rows - history - horizon + 1
    assert windows >= 2 * history or history == 1
    if period and rows - period - horizon + 1 >= 2 * period:
        assert history % period == 0
