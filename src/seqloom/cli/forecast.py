"""`seqloom forecast`: the values that follow a series, its errors in the past, and whether it has drifted."""

import csv
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seqloom.cli.arguments import ModelFolder, require_picture
from seqloom.cli.console import clean, counted, examples, show_events, table
from seqloom.core.errors import UsageError
from seqloom.core.events import Listener, json_line, notice

if TYPE_CHECKING:
    from seqloom.apps.forecaster import Backtest, Drift, Forecast
    from seqloom.data.series import SeriesReading

EXAMPLES = examples(
    "seqloom forecast run/model load.csv --steps 96 > forecast.csv",
    "seqloom forecast run/model load.csv --coverage 0.8 --picture forecast.png",
    "seqloom forecast run/model load.csv --backtest --last 2880",
    "seqloom forecast run/model load.csv --drift",
)

SHOWN_STEPS = (1, 4, 16, 64)
"""Steps ahead whose errors a backtest shows, beside the last one."""

SeriesFile = Annotated[
    Path,
    typer.Argument(
        metavar="SERIES",
        help="A table of numbers with the same columns as in training: CSV or TSV, plain, .gz, .xz or .zst.",
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps", min=1, max=1_000_000, metavar="K", help="Steps ahead; by default the horizon of the model."
    ),
]
Coverage = Annotated[
    float | None,
    typer.Option(
        "--coverage",
        metavar="SHARE",
        help="Probability with which each band holds the truth: 0.5, 0.8, 0.9 (the default), 0.95, 0.98 or 0.99.",
    ),
]
NoBands = Annotated[bool, typer.Option("--no-bands", help="Print the forecasts alone.")]
IsBacktest = Annotated[
    bool, typer.Option("--backtest", help="Forecast rows of the file from the rows before them, and print the errors.")
]
Last = Annotated[
    int | None,
    typer.Option(
        "--last",
        min=1,
        metavar="ROWS",
        help="--backtest: rows at the end of the file that are forecast, by default all after the first history. "
        "--drift: rows that are compared, by default those of one history.",
    ),
]
Stride = Annotated[
    int | None,
    typer.Option("--stride", min=1, metavar="ROWS", help="--backtest: rows from one forecast to the next (1)."),
]
IsDrift = Annotated[
    bool, typer.Option("--drift", help="Print how the last rows differ from those that the model was trained on.")
]
FillGaps = Annotated[
    Literal["linear", "previous"] | None,
    typer.Option(
        "--fill",
        metavar="HOW",
        help="Fill missing rows and cells, which are counted: [bold]linear[/bold] or [bold]previous[/bold]; by default "
        "as in training.",
    ),
]
PictureFile = Annotated[
    Path | None, typer.Option("--picture", metavar="FILE", help="Draw past, forecast and bands: .png or .svg.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def forecast(
    model: ModelFolder,
    series: SeriesFile,
    steps: Steps = None,
    coverage: Coverage = None,
    no_bands: NoBands = False,
    backtest: IsBacktest = False,
    last: Last = None,
    stride: Stride = None,
    drift: IsDrift = False,
    fill: FillGaps = None,
    picture: PictureFile = None,
    json: Json = False,
) -> None:
    """Print the values that follow those of a table, in its units, at its next times, with bands around them.

    A row for each step: the time, then of each series its forecast and the lower and upper end of its band. Columns are
    separated as in the table. Train a forecaster with [bold]seqloom train model.kind=forecaster model.horizon=96
    --train load.csv --out run[/bold].

    With [bold]--backtest[/bold], rows that are in the table are forecast, from each row on; errors are in deviations of
    the training rows, beside those of forecasts without a model. With [bold]--drift[/bold], the last rows are compared
    with those of training: where they differ much, train again.
    """
    if backtest and drift:
        raise UsageError("--backtest cannot be combined with --drift; run the command twice")
    if last is not None and not (backtest or drift):
        raise UsageError(f"--last {last} requires --backtest or --drift")
    if stride is not None and not backtest:
        raise UsageError(f"--stride {stride} requires --backtest")
    if no_bands and coverage is not None:
        raise UsageError(f"--no-bands cannot be combined with --coverage {coverage:g}")
    if drift and (steps is not None or coverage is not None):
        raise UsageError(
            f"--drift makes no forecasts, and cannot be combined with --{'coverage' if steps is None else 'steps'}"
        )
    if picture is not None:
        if backtest or drift:
            raise UsageError(f"--picture {picture} draws a forecast; leave out --{'backtest' if backtest else 'drift'}")
        require_picture(picture)

    from seqloom.apps.forecaster import Forecaster, plain_values
    from seqloom.data.series import SeriesReading

    wanted: float | Literal["usual"] | None = None if no_bands else "usual" if coverage is None else coverage
    with show_events(as_json=json) as listener:
        forecaster = Forecaster.load(model)
        read = forecaster.read(series, fill=fill)
        assert isinstance(read, SeriesReading)
        for sentence in read.notices:
            notice(listener, sentence)
        if drift:
            found = forecaster.drift(read, rows=last)
            print(
                json_line({"drift": [_drift_record(each) for each in found]}) if json else "\n".join(_drift_rows(found))
            )
            return
        if backtest:
            measured = forecaster.backtest(read, steps=steps, rows=last, stride=stride or 1, coverage=wanted)
            print(json_line(plain_values(measured)) if json else "\n".join(_backtest_rows(measured)))
            return
        made = forecaster.forecast(read, steps=steps, coverage=wanted)
        _report_drift(forecaster.drift(read) if forecaster.record else (), listener=listener)
        if json:
            print(json_line(plain_values(made)))
        else:
            _write(made, read)
        if picture is not None:
            _draw(made, read, picture, history=forecaster.history)


def _write(made: "Forecast", read: "SeriesReading") -> None:
    """A row for each step, separated and with the decimal sign of the table."""
    form, names = read.form, list(made.names)
    writer = csv.writer(sys.stdout, delimiter=form.separator, lineterminator="\n")
    heading = ["time" if read.series.times is not None else "row"]
    for name in names:
        heading += [name] if made.lower is None else [name, f"{name} lower", f"{name} upper"]
    writer.writerow(heading)
    bands = made.lower is not None and made.upper is not None
    for step, time in enumerate(made.times):
        cells = [time]
        for column in range(len(names)):
            numbers = [made.values[step, column]]
            if bands:
                assert made.lower is not None
                assert made.upper is not None
                numbers += [made.lower[step, column], made.upper[step, column]]
            texts = ("" if math.isnan(number) else f"{number:.6g}" for number in numbers)
            cells += [text.replace(".", form.decimal) for text in texts]
        writer.writerow(cells)


def _backtest_rows(measured: "Backtest") -> list[str]:
    """The errors of the model and of rules, and those of some steps ahead."""
    best = measured.best_rule
    rows = [("forecasts", "MSE", "MAE"), ("model", f"{measured.mse:.4f}", f"{measured.mae:.4f}")]
    rows += [(name, f"{error:.4f}", "") for name, error in measured.rules.items()]
    lines = [f"{counted(measured.windows, 'window')}, {counted(measured.horizon, 'step')} ahead, in deviations:", ""]
    lines += [*table(rows), ""]
    shown = [step for step in SHOWN_STEPS if step < measured.horizon] + [measured.horizon]
    heading = ["steps ahead", "MSE", "MAE"]
    if measured.covered is not None:
        heading.append(f"within the {measured.coverage:.0%} band")
    of_steps = [heading]
    for step in shown:
        row = [str(step), f"{measured.squared[step - 1]:.4f}", f"{measured.absolute[step - 1]:.4f}"]
        of_steps.append(row if measured.covered is None else [*row, f"{measured.covered[step - 1]:.1%}"])
    lines += [*table(of_steps), ""]
    lines += table(
        [("series", "MAE in its unit"), *((clean(n), f"{e:.6g}") for n, e in measured.absolute_by_series.items())]
    )
    if measured.covered is not None:
        lines += ["", f"{measured.coverage:.0%} bands hold {measured.covered.mean():.1%} of the values"]
    if measured.mse >= measured.rules[best]:
        lines += ["", f"the model does not beat {best}: use that rule, or train again on recent rows"]
    return lines


def _drift_record(drift: "Drift") -> dict[str, object]:
    return {**vars(drift), "has_drifted": drift.has_drifted}


def _drift_rows(found: "tuple[Drift, ...]") -> list[str]:
    heading = ("series", "shift of the mean", "spread", "outside the range", "stability index", "")
    rows = [
        (
            clean(each.name),
            f"{each.shift:+.2f} deviations",
            f"{each.spread:.2f} times",
            f"{each.outside:.1%}",
            f"{each.stability:.2f}",
            "drifted" if each.has_drifted else "",
        )
        for each in found
    ]
    return [f"the last {counted(found[0].rows, 'row')}, compared with the training rows:", "", *table([heading, *rows])]


def _report_drift(found: "tuple[Drift, ...]", *, listener: Listener) -> None:
    names = [clean(each.name) for each in found if each.has_drifted]
    if names:
        more = ", …" if len(names) > 5 else ""
        notice(
            listener,
            f"{', '.join(names[:5])}{more}: the last rows differ much from those of training (see --drift); forecasts "
            "and bands may be unreliable, train again on recent rows",
        )


def _draw(made: "Forecast", read: "SeriesReading", picture: Path, *, history: int) -> None:
    from seqloom.drawing.forecasts import plot_forecast

    picture.parent.mkdir(parents=True, exist_ok=True)
    past = read.series.values[-min(len(read.series), max(history, 2 * len(made.values))) :]
    plot_forecast(
        picture,
        names=made.names,
        times=made.times,
        past=past,
        values=made.values,
        lower=made.lower,
        upper=made.upper,
        coverage=made.coverage,
    )
