"""Taggers, classifiers and forecasters compared: their sets, and what each rung answers on the test set.

data/train.*, dev.*, test.*   the sets of all rungs
data/sets.json                how large they are, and what is measured

A test set is a list of units: sentences, texts, or blocks of forecasts. A rung answers each of them by a line, which a
metric compares with the right one; so intervals and tests between rungs draw whole units.

    tagging          the tags of a sentence                   accuracy of each column, F1 of spans
    classification   the label of a text                      accuracy, macro-F1
    forecasting      sums of errors over as many windows in   MSE and MAE, in deviations of the training rows
                     a row as there are steps ahead
"""

import json
import shutil
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float, Float64

from seqloom.apps.classifier import Classifier
from seqloom.apps.forecaster import Forecaster
from seqloom.apps.tagger import Tagger
from seqloom.classical.bayes import NaiveBayes, majority_label, words_of
from seqloom.classical.forecasting import Forecaster as Rule
from seqloom.classical.forecasting import LastValue, MovingAverage, SeasonalNaive, choose_window, possible_histories
from seqloom.compare.results import Scale, Score, TaskResult
from seqloom.compare.rungs import Rung
from seqloom.compare.subject import Clock, Order
from seqloom.core.errors import DataError, SeqloomWarning, UsageError
from seqloom.core.events import Listener, ignore, notice, phase
from seqloom.core.files import LineReader, matching_files, read_json, write_atomically
from seqloom.core.seeds import seed_for
from seqloom.core.text_files import bare_name
from seqloom.data.labelled import LabelledCorpus
from seqloom.data.series import cut_windows, find_series_form, fit_scaling, read_series
from seqloom.data.tokens import TokenCorpus
from seqloom.metrics.classification import Accuracy, MacroF1
from seqloom.metrics.scoring import Bootstrap, Metric, Statistics, score
from seqloom.metrics.tagging import SpanF1, TagAccuracy, join_tags
from seqloom.runs.config import RunConfig
from seqloom.runs.forecasting import series_settings
from seqloom.runs.prepare import choose_config
from seqloom.runs.tagging import count_tags, written
from seqloom.tasks.settings import TaggingConfig
from seqloom.text.formats.conllu import TokenFile

MAX_HELD_OUT = 1_000
"""Sentences or texts of a dev or test set that is held out; at most a tenth of all."""

HELD_OUT_SHARE = 5
"""Of a series, one part in so many is the test set, and one of the others the dev set."""

RECORD = "sets.json"

WARM_UP = 8
"""Units answered before the speed is measured."""

WINDOWS_AT_ONCE = 256

Answers = Mapping[str, Sequence[str]]
"""The lines of a rung for each metric, by its name."""


@dataclass(frozen=True)
class Sets:
    """The three sets as files, and what is measured on them."""

    train: str
    dev: str
    test: str
    counts: Mapping[str, int]
    """The size of each."""
    leaked: int
    """Test units that are in the training set too."""
    settings: tuple[str, ...]
    """Of all rungs."""


@dataclass(frozen=True)
class Answered:
    """What a rung has answered."""

    answers: Answers
    seconds: float
    parameters: int


class TaskTest(Protocol):
    """The test set of a task, with what its rungs learn from."""

    unit: str
    """What the sets consist of."""
    per_second: str
    """What the speed counts."""

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """The main one first."""
        ...

    @property
    def right(self) -> Answers:
        """The right answers."""
        ...

    @property
    def asked(self) -> int:
        """What is answered in the measured seconds: words, texts or forecasts."""
        ...

    def count(self, rung: str) -> Answered:
        """The answers of a rung that only counts."""
        ...

    def answers_of(self, run: Path, clock: Clock) -> Answered:
        """The answers of a run."""
        ...


def hold_out(keys: Sequence[Hashable], count: int, *, seed: int, kept: frozenset[int] = frozenset()) -> set[int]:
    """The places of about `count` units drawn at random, those of one key together; `kept` ones are never drawn."""
    places: dict[Hashable, list[int]] = {}
    for at, key in enumerate(keys):
        places.setdefault(key, []).append(at)
    groups = list(places.values())
    chosen: set[int] = set()
    for number in np.random.default_rng(seed).permutation(len(groups)).tolist():
        group = groups[number]
        if len(chosen) + len(group) <= count and kept.isdisjoint(group):
            chosen.update(group)
    return chosen


@dataclass(frozen=True)
class _Units:
    """Sentences or texts of a set."""

    keys: list[Hashable]
    """Equal for units that are the same to a model."""
    written: list[str]
    """As they are written to a file."""


def _split_units(
    read: Callable[[Sequence[Path]], _Units],
    order: Order,
    *,
    unit: str,
    first_of: Callable[[_Units], frozenset[int]],
    listener: Listener,
) -> dict[str, _Units]:
    """The sets; those that are not given are drawn from the training set."""
    train, sets = read(order.train), dict[str, _Units]()
    everything = len(train.keys)
    for name, paths in (("test", order.test), ("dev", order.dev)):
        if paths:
            sets[name] = read(paths)
            continue
        count = min(MAX_HELD_OUT, everything // 10)
        if count == 0:
            raise DataError(f"too few {unit} ({everything:,}) to hold out a {name} set; give --{name} files")
        held = hold_out(train.keys, count, seed=seed_for(order.seed, name), kept=first_of(train))
        if not held:
            raise DataError(f"no {unit} can be held out for a {name} set; give --{name} files")
        notice(listener, f"no {name} files: {len(held):,} of {everything:,} {unit} are held out")
        rest = [at for at in range(len(train.keys)) if at not in held]
        sets[name], train = _picked(train, sorted(held)), _picked(train, rest)
    return {"train": train, **sets}


def _picked(units: _Units, places: Sequence[int]) -> _Units:
    return _Units([units.keys[at] for at in places], [units.written[at] for at in places])


def _write_units(
    folder: Path, sets: Mapping[str, _Units], *, ending: str, unit: str, settings: Sequence[str], listener: Listener
) -> Sets:
    known = set(sets["train"].keys)
    leaked = sum(key in known for key in sets["test"].keys)
    if leaked:
        total = len(sets["test"].keys)
        notice(listener, f"{leaked:,} of {total:,} test {unit} are also in the training set: scores measure memory")
    names = {name: f"{name}{ending}" for name in sets}
    for name, units in sets.items():
        write_atomically(folder / names[name], "".join(units.written))
    counts = {name: len(units.keys) for name, units in sets.items()}
    return Sets(names["train"], names["dev"], names["test"], counts, leaked, tuple(settings))


# --- tagging ----------------------------------------------------------------------------------------------------------


def split_tagging(folder: Path, order: Order, *, listener: Listener) -> Sets:
    """Write the sentences of the sets as they are in their files."""
    ending = ".txt"

    def read(paths: Sequence[Path]) -> _Units:
        nonlocal ending
        files = [TokenFile(path) for name in paths for path in matching_files(name)]
        ending = ".conllu" if files[0].layout.is_conllu else ".tsv" if files[0].layout.separator == "\t" else ".txt"
        found = [each for file in files for each in file if each.words]
        return _Units([each.forms for each in found], [f"{each.text.lstrip(_MARK).rstrip()}\n\n" for each in found])

    TokenCorpus(order.train)  # to refuse what cannot be learned
    sets = _split_units(read, order, unit="sentences", first_of=lambda _: frozenset(), listener=listener)
    return _write_units(folder, sets, ending=ending, unit="sentences", settings=order.settings, listener=listener)


_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"


class TaggingTest:
    """Sentences with the right tags."""

    unit, per_second = "sentences", "words/s"

    def __init__(self, train: Path, dev: Path, test: Path, config: RunConfig) -> None:  # noqa: ARG002
        assert isinstance(config.task, TaggingConfig)
        self.task = config.task
        self._train, self._test = TokenCorpus([train]), TokenCorpus([test])
        for column in self.task.columns:
            if column not in self._test.sentences[0].values:
                raise DataError(f"the test set has no column {column}, which the training set has")

    @property
    def metrics(self) -> Mapping[str, Metric]:
        found: dict[str, Metric] = {}
        for column in self.task.columns:
            found[f"{column} accuracy"] = TagAccuracy(column)
            if column in self.task.schemes:
                found[f"{column} span F1"] = SpanF1(column)
        return found

    @property
    def right(self) -> Answers:
        return self._lines({column: [each.values[column] for each in self._test] for column in self.task.columns})

    @property
    def asked(self) -> int:
        return self._test.words

    def count(self, rung: str) -> Answered:
        found, seconds = {}, 0.0
        for column in self.task.columns:
            tagger = count_tags(self._train.sentences, column, self.task).get(rung)
            if tagger is None:
                raise UsageError(f"column {column} has {len(self.task.tags[column]):,} tags, too many for it")
            began = perf_counter()
            found[column] = [written(column, each.forms, tagger.tag(each.forms)) for each in self._test]
            seconds += perf_counter() - began
        return Answered(self._lines(found), seconds, 0)

    def answers_of(self, run: Path, clock: Clock) -> Answered:
        tagger = Tagger.load(run)
        sentences = [each.forms for each in self._test]
        tagger.tag(sentences[:WARM_UP])
        began = clock()
        tagged = tagger.tag(sentences)
        seconds = clock() - began
        found = {column: [each[column] for each in tagged] for column in self.task.columns}
        return Answered(self._lines(found), seconds, tagger.card.parameters)

    def _lines(self, tags: Mapping[str, Sequence[Sequence[str]]]) -> Answers:
        """The lines of all metrics: accuracy and F1 of a column look at the same ones."""
        columns = {column: list(map(join_tags, each)) for column, each in tags.items()}
        return {name: columns[name.rsplit(" accuracy", 1)[0].rsplit(" span F1", 1)[0]] for name in self.metrics}


# --- classification ---------------------------------------------------------------------------------------------------


def split_classification(folder: Path, order: Order, *, listener: Listener) -> Sets:
    """Write the texts of the sets as records, whatever form they have."""
    columns = [each.partition("=")[2] for each in order.settings if each.startswith("data.label_column=")]
    if columns and not columns[-1].isdecimal():
        raise UsageError(f"data.label_column={columns[-1]} is not a number of a column, counted from 1")
    column = int(columns[-1]) if columns else None
    labels: list[str] = []

    def read(paths: Sequence[Path]) -> _Units:
        corpus = LabelledCorpus(paths, encoding=order.encoding, column=column)
        for sentence in (*corpus.readings, *corpus.notices):
            notice(listener, sentence)
        examples = list(corpus)
        if not labels:
            labels.extend(each.label for each in examples)
        names = ("text", "text_pair")
        records = [{"label": each.label, **dict(zip(names, each.texts, strict=False))} for each in examples]
        return _Units(
            [each.texts for each in examples], [json.dumps(each, ensure_ascii=False) + "\n" for each in records]
        )

    def first_of(units: _Units) -> frozenset[int]:
        """The first example of each label, which stays in the training set."""
        found: dict[str, int] = {}
        for at, line in enumerate(units.written):
            found.setdefault(json.loads(line)["label"], at)
        return frozenset(found.values())

    sets = _split_units(read, order, unit="texts", first_of=first_of, listener=listener)
    settings = [each for each in order.settings if not each.startswith("data.label_column=")]
    return _write_units(folder, sets, ending=".jsonl", unit="texts", settings=settings, listener=listener)


class ClassificationTest:
    """Texts with the right labels."""

    unit, per_second = "texts", "texts/s"

    def __init__(self, train: Path, dev: Path, test: Path, config: RunConfig) -> None:  # noqa: ARG002
        self._train, self._test = (list(LabelledCorpus([path])) for path in (train, test))

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return {"accuracy": Accuracy(), "macro-F1": MacroF1()}

    @property
    def right(self) -> Answers:
        labels = tuple(each.label for each in self._test)
        return dict.fromkeys(self.metrics, labels)

    @property
    def asked(self) -> int:
        return len(self._test)

    def count(self, rung: str) -> Answered:
        labels = [each.label for each in self._train]
        if rung == "majority":
            began = perf_counter()
            found = [majority_label(labels)] * len(self._test)
        else:
            bayes = NaiveBayes.fit((words_of(each.texts) for each in self._train), labels)
            began = perf_counter()
            found = bayes.classify(words_of(each.texts) for each in self._test)
        return Answered(dict.fromkeys(self.metrics, found), perf_counter() - began, 0)

    def answers_of(self, run: Path, clock: Clock) -> Answered:
        classifier = Classifier.load(run)
        texts: list[Any] = [each.texts if len(each.texts) > 1 else each.texts[0] for each in self._test]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SeqloomWarning)
            classifier.classify(texts[:WARM_UP])
            began = clock()
            found = [each.label for each in classifier.classify(texts)]
        return Answered(dict.fromkeys(self.metrics, found), clock() - began, classifier.card.parameters)


# --- forecasting ------------------------------------------------------------------------------------------------------


def split_forecasting(folder: Path, order: Order, *, listener: Listener) -> Sets:
    """Write the rows of the sets: the dev rows follow the training rows, and the test rows those."""
    if len(order.train) != 1 or len(order.dev) > 1 or len(order.test) > 1:
        raise UsageError("a forecaster reads one table, with a column for each series: give one file as each set")
    heading, rows = _table_rows(order.train[0], order.encoding)
    sets: dict[str, list[str]] = {}
    for name, paths in (("test", order.test), ("dev", order.dev)):
        if paths:
            _, sets[name] = _table_rows(paths[0], order.encoding)
            continue
        count = len(rows) // HELD_OUT_SHARE
        if count == 0:
            raise DataError(f"too few rows ({len(rows):,}) to hold out a {name} set; give a --{name} file")
        notice(listener, f"no {name} file: the last {count:,} of {len(rows):,} rows are held out")
        rows, sets[name] = rows[:-count], rows[-count:]
    sets["train"] = rows
    ending = Path(bare_name(order.train[0])).suffix or ".csv"
    for name, lines in sets.items():
        write_atomically(folder / f"{name}{ending}", "".join(f"{line}\n" for line in [*heading, *lines]))
    counts = {name: len(lines) for name, lines in sets.items()}
    return Sets(f"train{ending}", f"dev{ending}", f"test{ending}", counts, leaked=0, settings=order.settings)


def _table_rows(path: Path, encoding: str) -> tuple[list[str], list[str]]:
    """The heading of a table, if it has one, and its rows."""
    lines = [line for line in LineReader(path, encoding) if line.strip()]
    form = find_series_form(path, lines)
    return lines[: form.has_heading], lines[form.has_heading :]


class ForecastingTest:
    """Rows that follow those of the training and the dev set."""

    unit, per_second = "rows", "forecasts/s"

    def __init__(self, train: Path, dev: Path, test: Path, config: RunConfig) -> None:
        model, task = series_settings(config)
        settings = config.data.series
        parts = [
            read_series(path, time_column=settings.time_column, fill=settings.fill).series.values
            for path in (train, dev, test)
        ]
        self.horizon, self.period = model.horizon, task.period
        self.train_rows, self.before = len(parts[0]), len(parts[0]) + len(parts[1])
        self.values: Float64[np.ndarray, "time columns"] = np.concatenate(parts)
        self.scaling = fit_scaling(parts[0])
        if len(parts[2]) < self.horizon:
            raise DataError(
                f"horizon {self.horizon} is beyond the test set, which has {len(parts[2]):,} rows; set a shorter "
                "model.horizon, or give a --test file"
            )

    @property
    def metrics(self) -> Mapping[str, Metric]:
        signature = f"horizon:{self.horizon}|scaled|block:{self.horizon}"
        return {name: MeanError(name, signature) for name in ("MSE", "MAE")}

    @property
    def right(self) -> Answers:
        blocks = -(-self.asked // self.horizon)
        return {name: ["0 0"] * blocks for name in self.metrics}

    @property
    def asked(self) -> int:
        return len(self.values) - self.before - self.horizon + 1

    def count(self, rung: str) -> Answered:
        parameters = 0
        rule: Rule
        if rung == "last":
            rule, history = LastValue(), 1
        elif rung == "season":
            if self.period < 2:
                raise UsageError("no period was found in the training rows; set task.period")
            rule, history = SeasonalNaive(self.period), self.period
        elif rung == "average":
            history = self.period if self.period > 1 else 10
            rule = MovingAverage(history)
        else:
            histories = possible_histories(self.train_rows, self.horizon, period=self.period or None)
            dev = range(self.train_rows, self.before)
            rule = window = choose_window(self.values, dev, horizon=self.horizon, histories=histories).model
            history, parameters = window.history, window.weights.size + window.bias.size
        began = perf_counter()
        errors = self._errors(lambda past: rule.forecast(past, horizon=self.horizon), history=history)
        return Answered(errors, perf_counter() - began, parameters)

    def answers_of(self, run: Path, clock: Clock) -> Answered:
        forecaster = Forecaster.load(run)
        began = clock()
        errors = self._errors(
            lambda past: forecaster.forecast_many(past, steps=self.horizon), history=forecaster.history
        )
        return Answered(errors, clock() - began, forecaster.card.parameters)

    def _errors(self, forecast: Callable[[np.ndarray], np.ndarray], *, history: int) -> Answers:
        """Sums of squared and absolute errors, and their numbers, of each block of windows."""
        part = range(self.before, len(self.values))
        past, truth = cut_windows(self.values, part, history=history, horizon=self.horizon)
        if len(truth) != self.asked:
            raise UsageError(f"its history of {history:,} rows reaches back before the first row; give more rows")
        found = np.empty((len(truth), 2))
        for begin in range(0, len(truth), WINDOWS_AT_ONCE):
            some = slice(begin, begin + WINDOWS_AT_ONCE)
            error = np.abs(self.scaling.apply(forecast(past[some])) - self.scaling.apply(truth[some]))
            found[some, 0], found[some, 1] = np.square(error).sum(axis=(1, 2)), error.sum(axis=(1, 2))
        starts = np.arange(0, len(truth), self.horizon)
        sums = np.add.reduceat(found, starts, axis=0)  # [blocks, 2]
        windows = np.diff(np.append(starts, len(truth)))
        numbers = (windows * truth.shape[1] * truth.shape[2]).tolist()
        return {
            name: [f"{total!r} {count}" for total, count in zip(sums[:, at].tolist(), numbers, strict=True)]
            for at, name in enumerate(self.metrics)
        }


@dataclass(frozen=True)
class MeanError:
    """The mean of errors, given their sum and their number in each line.

    Windows that follow each other overlap, so a block of as many as there are steps ahead is drawn together.
    """

    name: str
    signature: str

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:  # noqa: ARG002
        lines = np.array([[float(part) for part in line.split()] for line in hypotheses])  # [blocks, 2]
        return Statistics(self.name, float(self.values(lines.sum(axis=0)[None])[0]), self.signature, lines)

    def values(self, sums: Float[np.ndarray, "corpora parts"]) -> Float[np.ndarray, " corpora"]:
        return np.asarray(sums[:, 0] / sums[:, 1])


# --- the subject of a comparison --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskKind:
    """How the sets of a task are made and tested."""

    split: Callable[..., Sets]
    test: Callable[[Path, Path, Path, RunConfig], TaskTest]
    scale: Callable[[str], Scale]
    """Of the main score, by its name."""
    chosen: Callable[[RunConfig], list[str]] = lambda _config: []
    """Settings that are chosen once for all rungs."""


KINDS: Mapping[str, TaskKind] = {
    "tagging": TaskKind(split_tagging, TaggingTest, lambda name: Scale(name, decimals=2)),
    "classification": TaskKind(split_classification, ClassificationTest, lambda name: Scale(name, decimals=2)),
    "forecasting": TaskKind(
        split_forecasting,
        ForecastingTest,
        lambda name: Scale(name, decimals=4, is_error=True),
        chosen=lambda config: [f"model.horizon={series_settings(config)[0].horizon}"],
    ),
}
"""The tasks other than translation, as task.kind names them."""


class TaskSubject:
    """The sets of a task below a folder."""

    sizes: Sequence[int] = ()

    def __init__(self, folder: Path, order: Order, *, listener: Listener, clock: Clock) -> None:
        self.folder, self.order, self.kind = folder, order, KINDS[order.kind]
        self._listener, self._clock = listener, clock
        self._sets: Sets | None = None

    @property
    def sets(self) -> Sets:
        assert self._sets is not None
        return self._sets

    def size(self) -> int:
        return self.sets.counts["train"]

    def prepare(self) -> None:
        try:
            record = read_json(self.folder / RECORD)
            self._sets = Sets(**{**record, "settings": tuple(record["settings"])})
        except (OSError, ValueError, TypeError, KeyError):
            shutil.rmtree(self.folder, ignore_errors=True)
            phase(self._listener, "reading the data")
            self.folder.mkdir(parents=True)
            sets = self._sets = self.kind.split(self.folder, self.order, listener=self._listener)
            found = self.kind.chosen(self._config())
            self._sets = replace(sets, settings=(*found, *sets.settings))
            self.test  # noqa: B018  to refuse what cannot be tested before anything is trained
            write_atomically(self.folder / RECORD, json.dumps(asdict(self._sets), indent=1) + "\n")

    def examine(self) -> None:
        return None

    def files(self, part: str) -> list[str]:
        return [str(self.folder / {"train": self.sets.train, "dev": self.sets.dev, "test": self.sets.test}[part])]

    def overrides(self) -> list[str]:
        return [f"task.kind={self.order.kind}", *self.sets.settings]

    def _config(self) -> RunConfig:
        """The settings that a run has for these sets."""
        return choose_config(None, self.overrides(), train=self.files("train"), dev=self.files("dev"), listener=ignore)

    @cached_property
    def test(self) -> TaskTest:
        """The test set."""
        train, dev, test = (Path(self.files(name)[0]) for name in ("train", "dev", "test"))
        return self.kind.test(train, dev, test, self._config())

    @property
    def scale(self) -> Scale:
        """Of the main score."""
        return self.kind.scale(next(iter(self.test.metrics)))

    def count(self, rung: Rung, folder: Path) -> TaskResult:
        began = perf_counter()
        found = self.test.count(rung.name)
        folder.mkdir(parents=True, exist_ok=True)
        return self._result(rung, folder, found, minutes=(perf_counter() - began) / 60, is_improving=False)

    def measure(self, rung: Rung, run: Path, *, minutes: float, is_improving: bool) -> TaskResult:
        """Answer the test set, and score the answers."""
        phase(self._listener, f"{rung.name}: answering the test set")
        found = self.test.answers_of(run / "model", self._clock)
        return self._result(rung, run, found, minutes=minutes, is_improving=is_improving)

    def _result(self, rung: Rung, folder: Path, found: Answered, *, minutes: float, is_improving: bool) -> TaskResult:
        write_atomically(folder / "test.json", json.dumps(found.answers, ensure_ascii=False) + "\n")
        bootstrap, test = Bootstrap(self.order.seed), self.test
        right = test.right
        scores = {
            name: score(metric, found.answers[name], references=right[name], bootstrap=bootstrap)
            for name, metric in test.metrics.items()
        }
        model = folder / "model"
        return TaskResult(
            rung.name,
            {name: Score.of(each) for name, each in scores.items()},
            minutes=minutes,
            per_second=test.asked / max(found.seconds, 1e-9),
            megabytes=sum(path.stat().st_size for path in model.rglob("*") if path.is_file()) / 1e6,
            parameters=found.parameters,
            is_improving=is_improving,
            signatures={name: each.signature for name, each in scores.items()},
        )

    def answers(self, folder: Path) -> Sequence[str]:
        """What a rung has answered, for the main metric."""
        found: Answers = read_json(folder / "test.json")
        return found[next(iter(self.test.metrics))]

    def score_point(self, run: Path, what: str) -> float:  # noqa: ARG002
        raise AssertionError("no curves are measured")
