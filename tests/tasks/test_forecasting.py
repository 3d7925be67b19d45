"""The forecasting task: its windows, its order, and its figures against the metrics of forecasts."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from seqloom.classical.forecasting import LastValue
from seqloom.core.errors import DataError
from seqloom.data.series import cut_windows
from seqloom.metrics.forecasting import measure_forecasts
from seqloom.models.forecaster import ForecasterConfig
from seqloom.tasks.forecasting import ForecastingTask, SeriesPart
from seqloom.tasks.settings import ForecastingConfig


def task_of(
    values: Tensor,
    train_rows: int,
    *,
    history: int,
    horizon: int,
    outputs: int | None = None,
    seed: int = 1,
    **given: int,
) -> ForecastingTask:
    context = min(history, train_rows)
    return ForecastingTask(
        SeriesPart(values[:train_rows], 0),
        SeriesPart(values[train_rows - context :], context),
        config=ForecastingConfig.model_validate(given),
        history=history,
        horizon=horizon,
        outputs=outputs or horizon,
        seed=seed,
        fingerprint="",
    )


@given(st.integers(8, 60), st.integers(1, 6), st.integers(1, 5), st.integers(1, 9), st.integers(0, 3))
def test_an_epoch_has_each_training_window_once_in_an_order_of_seed_and_epoch(
    rows: int, history: int, horizon: int, size: int, epoch: int
) -> None:
    values = torch.arange(rows + 20.0)[:, None]
    if rows < history + horizon:
        rows = history + horizon
        values = torch.arange(rows + 20.0)[:, None]
    task = task_of(values, rows, history=history, horizon=horizon, windows_per_batch=size)
    batches = [task.batch(epoch, index) for index in range(task.batches(epoch))]
    assert [len(batch.begins) for batch in batches[:-1]] == [size] * (len(batches) - 1)
    begins = [int(batch.history[at, 0, 0]) for batch in batches for at in range(len(batch.begins))]
    assert sorted(begins) == list(range(rows - history - horizon + 1))
    for batch in batches:  # each future follows its history, and nothing after the training rows is seen
        torch.testing.assert_close(torch.cat([batch.history, batch.future], 1).diff(dim=1).unique(), torch.ones(1))
        assert batch.future.max() < rows
        assert task.count(batch) == batch.future.numel()
    # Asking out of order, or from another process, gives the same batch.
    again = task_of(values, rows, history=history, horizon=horizon, windows_per_batch=size)
    again.batch(epoch + 1, 0)
    torch.testing.assert_close(again.batch(epoch, len(batches) - 1).history, batches[-1].history)


def test_orders_differ_by_epoch_and_by_seed() -> None:
    values = torch.randn(200, 1, generator=torch.Generator().manual_seed(0))
    task = task_of(values, 150, history=5, horizon=2)
    other = task_of(values, 150, history=5, horizon=2, seed=2)
    first = task.batch(0, 0).begins.tolist()
    assert first != task.batch(1, 0).begins.tolist()
    assert first != other.batch(0, 0).begins.tolist()


@pytest.mark.parametrize("strategy", ["direct", "recursive"])
def test_validation_measures_the_whole_horizon_as_the_metrics_do(strategy: str) -> None:
    generator = np.random.default_rng(0)
    values = generator.normal(size=(700, 2)).cumsum(axis=0)
    scaled = torch.from_numpy(values).float()
    config = ForecasterConfig.model_validate({"history": 6, "horizon": 4, "columns": 2, "strategy": strategy})
    task = task_of(scaled, 300, history=6, horizon=4, outputs=config.outputs)
    model = config.build(seed=1)  # which forecasts the last value
    past, future = cut_windows(values, range(300, 700), history=6, horizon=4)
    expected = measure_forecasts(LastValue().forecast(past, horizon=4), future)
    found = task.validate(model)
    assert found["loss"] == pytest.approx(expected.mse, rel=1e-5)
    assert found["mae"] == pytest.approx(expected.mae, rel=1e-5)
    assert task.dev_loss(model) == found["loss"]
    # The loss is a sum over what one pass gives.
    batch = task.batch(0, 0)
    loss = task.loss(model, batch)
    assert loss.count == 32 * config.outputs * 2
    repeated = batch.history[:, -1:].expand(-1, config.outputs, -1)
    assert float(loss.total.detach()) == pytest.approx(float((repeated - batch.future).square().sum()), rel=1e-6)


def test_a_horizon_beyond_a_part_is_refused() -> None:
    values = torch.zeros(50, 1)
    with pytest.raises(DataError, match="horizon 12 is beyond the dev part: with history 5 a window has 17 rows"):
        task_of(values, 40, history=5, horizon=12)
    with pytest.raises(DataError, match="horizon 5 is beyond the training part"):
        task_of(values, 9, history=5, horizon=5)


@pytest.mark.parametrize("design", ["linear", "mlp", "recurrent", "transformer"])
def test_every_design_learns_to_beat_the_last_value_on_a_noisy_sine(design: str) -> None:
    time = torch.arange(600.0)
    values = (0.3 * time).sin() + 0.1 * torch.randn(600, generator=torch.Generator().manual_seed(0))
    config = ForecasterConfig.model_validate(
        {"design": design, "history": 24, "horizon": 4, "width": 16, "heads": 2, "feed_forward": 16, "patch": 6}
    )
    task = task_of(values[:, None], 450, history=24, horizon=4)
    model: nn.Module = config.build(seed=1)
    before = task.dev_loss(model)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(120):
        epoch, index = divmod(step, task.batches(0))
        loss = task.loss(model, task.batch(epoch, index))
        optimiser.zero_grad()
        (loss.total / loss.count).backward()
        optimiser.step()
    assert task.dev_loss(model.eval()) < 0.3 * before
