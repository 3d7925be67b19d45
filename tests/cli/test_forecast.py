"""Forecasters on the command line: train, forecast, measure, compare, describe, check, pack, resume, and refusals."""

import csv
import io
import math
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from cli.calling import Called, call
from seqloom import Forecaster
from seqloom.classical.forecasting import SeasonalNaive
from seqloom.core.errors import SeqloomWarning, UsageError
from seqloom.data.series import cut_windows, read_series
from seqloom.metrics.forecasting import measure_forecasts
from seqloom.models.forecaster import ForecasterConfig
from seqloom.runs.model_dir import read_card, read_settings

SETTINGS = (
    *("model.kind=forecaster", "model.history=14", "training.learning_rate=0.01", "training.schedule=constant"),
    *("training.validate_every=60", "training.save_every=60", "training.warmup=5"),
)
ROWS = 420


def weekly(rows: int = ROWS, *, seed: int = 1) -> np.ndarray:
    """Two series with the same week: visits in the hundreds, and a share below one."""
    random, week = np.random.default_rng(seed), np.array([5.0, 6.0, 6.5, 6.0, 8.0, 12.0, 9.0])
    days = week[np.arange(rows) % 7] + random.normal(0, 0.3, rows)
    return np.stack([100 * days, 0.5 - 0.02 * days + random.normal(0, 0.01, rows)], axis=1)


def write_table(path: Path, values: np.ndarray, *, first: str = "2024-01-01", separator: str = ",") -> Path:
    days = np.datetime64(first) + np.arange(len(values))
    lines = [separator.join(("day", "visits", "share")[: 1 + values.shape[1]])]
    lines += [separator.join([str(day), *map(repr, row)]) for day, row in zip(days, values.tolist(), strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, and a forecaster that was trained on its first rows by the command."""
    place = tmp_path_factory.mktemp("forecast")
    write_table(place / "all.csv", weekly())
    write_table(place / "train.csv", weekly()[:350])
    found = call("train", *SETTINGS, "training.steps=180", "--train", place / "train.csv", "--out", place / "run")
    assert found.code == 0, found.err
    assert f"seqloom forecast {place / 'run' / 'model'} FILE" in found.out
    for sentence in (
        "280 training rows of 2 series, a period of 7 rows, so:",
        "7 steps ahead: one period",
        "350 rows of 2 series, daily, from 2024-01-01 to 2024-12-15",
        "no dev file: the last 70 of 350 rows are held out",
        "dev error (MSE over 7 steps) without a model: last value ",
        "below last period of 7, the best rule",
        "values/s",
    ):
        assert sentence in found.err
    return place


def rows_of(found: Called, delimiter: str = ",") -> list[list[str]]:
    assert found.code == 0, found.err
    return list(csv.reader(io.StringIO(found.out), delimiter=delimiter))


def test_a_run_leaves_all_it_needs_in_its_model(place: Path) -> None:
    config, card = read_settings(place / "run" / "model"), read_card(place / "run" / "model")
    model, train = config.model, weekly()[:280]
    assert isinstance(model, ForecasterConfig)
    assert (model.horizon, model.history, model.columns, model.outputs) == (7, 14, 2, 7)
    np.testing.assert_allclose([model.mean, model.deviation], [train.mean(axis=0), train.std(axis=0)])
    assert (config.purpose, config.task.series, config.task.period) == ("forecaster", ("visits", "share"), 7)  # type: ignore[union-attr]
    assert card.trained_on["rows"] == 280
    assert not (place / "run" / "model" / "text").exists()
    scores = {score["name"]: score["value"] for score in card.scores}
    # The rule beside the model is the one of classical/forecasting.py on the same windows.
    past, future = cut_windows(weekly()[:350], range(280, 350), history=14, horizon=7)
    scale = train.std(axis=0)
    expected = measure_forecasts(SeasonalNaive(7).forecast(past, horizon=7) / scale, future / scale).mse
    assert scores["MSE of last period of 7"] == pytest.approx(expected)
    assert scores["MSE"] < 0.8 * expected


def test_forecasts_are_in_the_units_and_times_of_the_table_with_bands_around_them(place: Path, tmp_path: Path) -> None:
    heading, *rows = rows_of(call("forecast", place / "run", place / "train.csv"))
    assert heading == ["time", *(f"{name}{end}" for name in ("visits", "share") for end in ("", " lower", " upper"))]
    assert [row[0] for row in rows] == [f"2024-12-{day}" for day in range(16, 23)]
    numbers = np.array([[float(cell) for cell in row[1:]] for row in rows])
    for value, lower, upper in (numbers[:, :3].T, numbers[:, 3:].T):
        assert (lower < value).all()
        assert (value < upper).all()
    forecaster = Forecaster.load(place / "run")
    made = forecaster.forecast(weekly()[:350])
    np.testing.assert_allclose(made.values, numbers[:, [0, 3]], rtol=1e-4)
    error = np.abs(made.values - weekly()[350:357])
    assert (error < 0.5 * weekly()[:280].std(axis=0)).mean() > 0.7
    (record,) = call("forecast", place / "run", place / "train.csv", "--json", "--coverage", "0.5").records
    np.testing.assert_allclose(record["values"], made.values)
    assert (record["coverage"], record["times"][0]) == (0.5, "2024-12-16")
    assert (np.array(record["upper"]) < numbers[:, [2, 5]]).all()
    # Another separator and decimal sign come back as they are.
    text = (place / "train.csv").read_text(encoding="utf-8").replace(",", ";").replace(".", ",")
    (tmp_path / "german.csv").write_text(text, encoding="utf-8")
    german = rows_of(call("forecast", place / "run", tmp_path / "german.csv", "--no-bands"), delimiter=";")
    assert german[0] == ["time", "visits", "share"]
    assert [float(row[1].replace(",", ".")) for row in german[1:]] == pytest.approx(numbers[:, 0].tolist(), rel=1e-5)
    picture = call("forecast", place / "run", place / "train.csv", "--picture", tmp_path / "new" / "forecast.png")
    assert picture.code == 0, picture.err
    assert (tmp_path / "new" / "forecast.png").read_bytes().startswith(b"\x89PNG")


def test_steps_beyond_the_horizon_are_made_of_forecasts_and_have_no_bands(place: Path) -> None:
    found = call("forecast", place / "run", place / "train.csv", "--steps", "10")
    assert "later ones are made of forecasts, and have no bands" in found.err
    rows = rows_of(found)[1:]
    assert [bool(row[2]) for row in rows] == [True] * 7 + [False] * 3
    forecaster = Forecaster.load(place / "run")
    first = forecaster.forecast(weekly()[:350]).values
    again = forecaster.forecast(np.concatenate([weekly()[:350], first])).values
    with pytest.warns(SeqloomWarning):
        longer = forecaster.forecast(weekly()[:350], steps=10).values
    np.testing.assert_allclose(longer, np.concatenate([first, again[:3]]), rtol=1e-5)


def test_a_backtest_measures_as_a_loop_over_all_origins_does(place: Path) -> None:
    (found,) = call("forecast", place / "run", place / "all.csv", "--backtest", "--last", "70", "--json").records
    forecaster, values = Forecaster.load(place / "run"), weekly()
    scale, squared, held = weekly()[:280].std(axis=0), [], []
    for end in range(350, 350 + 64):
        made = forecaster.forecast(values[:end])
        truth = values[end : end + 7]
        assert made.lower is not None
        assert made.upper is not None
        squared.append(((made.values - truth) / scale) ** 2)
        held.append((made.lower <= truth) & (truth <= made.upper))
    assert (found["windows"], found["horizon"]) == (64, 7)
    assert found["mse"] == pytest.approx(np.mean(squared), rel=1e-5)
    assert found["by_step"]["mse"] == pytest.approx(np.mean(squared, axis=(0, 2)).tolist(), rel=1e-5)
    assert found["covered"] == pytest.approx(np.mean(held))
    assert 0.75 < found["covered"] < 1
    assert found["beats_rules"]
    shown = call("forecast", place / "run", place / "all.csv", "--backtest", "--stride", "7")
    assert shown.lines[0] == "58 windows, 7 steps ahead, in deviations:"
    assert "90% bands hold" in shown.out


def test_drift_is_reported_where_there_is_some(place: Path, tmp_path: Path) -> None:
    calm = call("forecast", place / "run", place / "train.csv", "--drift", "--last", "70", "--json").records[0]["drift"]
    moved = weekly()
    moved[-40:, 0] += 3000
    path = write_table(tmp_path / "moved.csv", moved)
    found = call("forecast", place / "run", path, "--drift", "--json").records[0]["drift"]
    assert [each["has_drifted"] for each in calm] == [False, False]
    assert [each["has_drifted"] for each in found] == [True, False]
    assert found[0]["outside"] == 1
    assert found[0]["shift"] > 10
    assert found[0]["stability"] > 5 * max(each["stability"] for each in calm)
    assert "visits: the last rows differ much from those of training" in call("forecast", place / "run", path).err
    assert "drifted" in call("forecast", place / "run", path, "--drift").lines[3]


def test_the_model_is_described_checked_and_packed(place: Path, tmp_path: Path) -> None:
    shown = call("info", place / "run")
    assert shown.code == 0, shown.err
    assert "2, period 7: visits, share" in shown.out
    assert "280 rows of 2 series" in shown.out
    checked = call("selfcheck", place / "run", "--json")
    assert checked.code == 0, checked.out
    names = {each["name"]: each["outcome"] for each in checked.records if each["record"] == "promise"}
    assert {name for name, outcome in names.items() if outcome == "holds"} == {"files", "saved", "lines", "batch"}
    assert call("pack", place / "run", tmp_path / "packed.zip").code == 0
    packed, own = (call("forecast", model, place / "train.csv") for model in (tmp_path / "packed.zip", place / "run"))
    assert packed.out == own.out != ""
    for command in (("classify",), ("translate",), ("perplexity", place / "all.csv"), ("export", "--to", "onnx")):
        refused = call(command[0], place / "run", *command[1:])
        assert refused.code == 2
        assert "seqloom forecast" in refused.err


@pytest.mark.parametrize("settings", [(), ("model.design=recurrent", "model.width=8", "model.strategy=recursive")])
def test_a_resumed_run_has_the_same_bits(place: Path, tmp_path: Path, settings: tuple[str, ...]) -> None:
    every = [*SETTINGS, "training.validate_every=10", "training.save_every=10", "model.horizon=3", *settings]
    files = ("--train", place / "train.csv")
    assert call("train", *every, "training.steps=20", *files, "--out", tmp_path / "whole").code == 0
    assert call("train", *every, "training.steps=10", *files, "--out", tmp_path / "half").code == 0
    resumed = call("train", "--resume", tmp_path / "half", "training.steps=20")
    assert resumed.code == 0, resumed.err
    whole, half = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "half"))
    assert whole.keys() == half.keys()
    assert all((whole[name] == half[name]).all() for name in whole)
    refused = call("train", "--resume", tmp_path / "half", "model.horizon=4")
    assert refused.code == 2
    assert "model.horizon is 3" in refused.err


def test_a_model_that_beats_no_rule_says_so(place: Path, tmp_path: Path) -> None:
    harm = ("training.steps=2", "training.learning_rate=3", "training.warmup=0", "training.validate_every=2")
    found = call("train", *SETTINGS, *harm, "--train", place / "train.csv", "--out", tmp_path / "run")
    assert found.code == 0, found.err
    said = re.search(r"the model does not beat last period of 7 \(MSE [\d.]+ against [\d.]+\)", found.err)
    assert said is not None
    assert f"Note   {said[0]}" in found.out
    assert said[0] in call("info", tmp_path / "run").out
    shown = call("forecast", tmp_path / "run", place / "all.csv", "--backtest")
    assert shown.lines[-1].startswith("the model does not beat last period of 7")


def test_dev_rows_after_the_training_rows_have_these_as_history(place: Path, tmp_path: Path) -> None:
    dev = write_table(tmp_path / "dev.csv", weekly()[350:], first="2024-12-16")
    few = ("training.steps=2", "model.horizon=7")
    found = call("train", *SETTINGS, *few, "--train", place / "train.csv", "--dev", dev, "--out", tmp_path / "next")
    assert found.code == 0, found.err
    assert read_card(tmp_path / "next" / "model").scores[0]["lines"] == 64
    later = write_table(tmp_path / "later.csv", weekly()[350:], first="2025-01-16")
    found = call("train", *SETTINGS, *few, "--train", place / "train.csv", "--dev", later, "--out", tmp_path / "later")
    assert "the first dev rows serve as history only" in found.err
    assert read_card(tmp_path / "later" / "model").scores[0]["lines"] == 50


def broken(lines: list[str], kind: str) -> list[str]:
    """A table with one fault in it."""
    match kind:
        case "gap":
            return lines[:20] + lines[22:]
        case "empty cell":
            return [*lines[:20], lines[20].rsplit(",", 1)[0] + ",", *lines[21:]]
        case "doubled":
            return [*lines[:20], lines[19], *lines[20:]]
        case "falling":
            return [*lines[:20], lines[21], lines[20], *lines[22:]]
        case "text":
            return [*lines[:20], lines[20].rsplit(",", 1)[0] + ",many", *lines[21:]]
        case _:
            raise ValueError(kind)


@pytest.mark.parametrize(
    ("kind", "line", "message"),
    [
        ("gap", 21, "2 rows missing between 2024-01-19 and 2024-01-22"),
        ("empty cell", 21, "series 'share' has no value; fill=linear or fill=previous fills gaps"),
        ("doubled", 21, "the time 2024-01-19 is doubled"),
        ("falling", 22, "the times fall: 2024-01-20 comes after 2024-01-21"),
        ("text", 21, "column 3: 'many' is not a number"),
    ],
)
def test_bad_tables_are_named_by_file_and_line_before_anything_is_written(
    place: Path, tmp_path: Path, kind: str, line: int, message: str
) -> None:
    lines = (place / "train.csv").read_text(encoding="utf-8").splitlines()
    path = tmp_path / "bad.csv"
    path.write_text("\n".join(broken(lines, kind)) + "\n", encoding="utf-8")
    for words in (("train", *SETTINGS, "--train", path, "--out", tmp_path / "run"), ("forecast", place / "run", path)):
        found = call(*words)
        assert found.code == 3
        assert f"{path}:{line}: {message}" in found.err
    assert not (tmp_path / "run").exists()
    if kind in ("gap", "empty cell"):
        filled = call("forecast", place / "run", path, "--fill", "linear")
        assert filled.code == 0
        assert "filled (linear)" in filled.err


def test_horizons_beyond_the_series_are_refused(place: Path, tmp_path: Path) -> None:
    far = call("train", *SETTINGS, "model.horizon=71", "--train", place / "train.csv", "--out", tmp_path / "run")
    assert far.code == 3
    assert f"{place / 'train.csv'}:351: horizon 71 is beyond the series" in far.err
    far = call("train", *SETTINGS, "model.history=280", "--train", place / "train.csv", "--out", tmp_path / "run")
    assert far.code == 3
    assert "horizon 7 is beyond the series: with history 280 a window has 287 rows, and there are 280" in far.err
    short = write_table(tmp_path / "short.csv", weekly()[:13])
    found = call("forecast", place / "run", short)
    assert found.code == 3
    assert f"{short}:14: 13 rows, but a forecast needs 14" in found.err
    found = call("forecast", place / "run", write_table(tmp_path / "twenty.csv", weekly()[:20]), "--backtest")
    assert found.code == 3
    assert "20 rows, but a backtest of 7 steps needs 21" in found.err


def test_other_columns_folders_and_contradictions_are_refused(place: Path, tmp_path: Path) -> None:
    one = write_table(tmp_path / "one.csv", weekly()[:, :1])
    found = call("forecast", place / "run", one)
    assert found.code == 3
    assert f"{one}:1: the columns are visits, but those of" in found.err
    for words, message in (
        (("--backtest", "--drift"), "--backtest cannot be combined with --drift"),
        (("--last", "9"), "--last 9 requires --backtest or --drift"),
        (("--coverage", "0.91"), "bands of this model are calibrated for 0.5, 0.8, 0.9, 0.95"),
        (("--backtest", "--last", "3"), "rows=3: a backtest of 7 steps"),
        (("--picture", "x.pdf"), "x.pdf is neither .png nor .svg"),
    ):
        refused = call("forecast", place / "run", place / "train.csv", *words)
        assert refused.code == 2
        assert message in refused.err
    folder = call("train", *SETTINGS, "--train", tmp_path, "--out", tmp_path / "run")
    assert folder.code == 2
    assert f"{tmp_path} is a folder; name a table of numbers" in folder.err
    both = call("train", *SETTINGS, "--train", one, "--train", place / "train.csv", "--out", tmp_path / "run")
    assert both.code == 2
    assert "a forecaster reads one table" in both.err


def test_arrays_are_checked_and_many_histories_give_what_each_gives_alone(place: Path) -> None:
    forecaster, values = Forecaster.load(place / "run"), weekly()
    with pytest.raises(UsageError, match=r"series has the shape \[20, 3\]; needed are \[time, 2\], for visits, share"):
        forecaster.forecast(np.zeros((20, 3)))
    histories = np.stack([values[at : at + 14] for at in range(30)])
    together = forecaster.forecast_many(histories, steps=4)
    for at in range(0, 30, 7):
        alone = forecaster.forecast(values[: at + 14], steps=4, coverage=None)
        assert alone.lower is None
        np.testing.assert_allclose(together[at], alone.values, rtol=1e-5)
    read = read_series(place / "all.csv")
    assert math.isclose(forecaster.forecast(read).values[0, 0], forecaster.forecast(values).values[0, 0])
