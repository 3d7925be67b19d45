"""`seqloom compare`: the ladder of a task, from counting to a Transformer, on one set of data."""

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer

from seqloom.cli.arguments import Encoding, JsonEvents, ParallelFiles, file_names, parse_words, require_utf8_names
from seqloom.cli.console import duration, examples, show_events
from seqloom.core.errors import UsageError
from seqloom.core.events import json_line
from seqloom.core.files import matching_files, require_file, require_folders_above

EXAMPLES = examples(
    "seqloom compare --train corpus.de --train corpus.en --minutes 60 --out ladder",
    "seqloom compare --train train.de,train.en --dev dev.de,dev.en --test test.de,test.en --minutes 150 --out ladder",
    "seqloom compare --train corpus.de-en.tsv --minutes 20 --out ladder --rungs dictionary,phrases,transformer",
    "seqloom compare --train corpus.de,corpus.en --minutes 90 --out ladder --rung my-transformer.yaml",
    "seqloom compare --train train.conllu --test test.conllu --minutes 30 --out taggers task.columns='[upos]'",
    "seqloom compare --train load.csv --minutes 15 --out forecasters model.horizon=24",
    "seqloom compare --resume ladder",
)

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="path=value",
        help="Settings: seed=2, data.source=de, data.target=en; of other tasks task.kind, and all of task and data.",
    ),
]
DevFiles = Annotated[
    list[str] | None,
    typer.Option("--dev", metavar="FILE", help="Validation text, in the same form; by default, a part is held out."),
]
TestFiles = Annotated[
    list[str] | None,
    typer.Option("--test", metavar="FILE", help="Test text, in the same form; by default, a part is held out."),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        "--minutes",
        metavar="M",
        help="Minutes for everything: training, translating and the report. Required without --resume.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FOLDER", help="A new folder for runs and report. Required without --resume."),
]
Rungs = Annotated[
    str | None,
    typer.Option(
        "--rungs",
        metavar="NAMES",
        help="Only these rungs, separated by commas, such as dictionary,phrases,transformer.",
    ),
]
OwnRungs = Annotated[
    list[Path] | None,
    typer.Option("--rung", metavar="CONFIG.yaml", help="A config file as a further rung, named by the file."),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="FOLDER",
        help="Continue an interrupted comparison, with its files and settings; more --minutes try skipped rungs again.",
    ),
]


def compare(
    words: Words = None,
    train: ParallelFiles = None,
    dev: DevFiles = None,
    test: TestFiles = None,
    minutes: Minutes = None,
    out: Out = None,
    rungs: Rungs = None,
    rung: OwnRungs = None,
    resume: Resume = None,
    encoding: Encoding = None,
    json: JsonEvents = False,
) -> None:
    """Compare models on your own data, from counting to a Transformer, and learn which one pays.

    Each rung is an ordinary run below [bold]--out[/bold], trained on the same data and measured on the same test set.
    Rungs that count take the time that they need; neural networks share the remaining minutes.

    The task is recognised by the files, or set by task.kind: pairs (dictionary, channel, phrases, rnn, attention,
    transformer), tagging (majority, hmm, window, one-way, two-way, crf, transformer), classification (majority, bayes,
    bert) or forecasting (last, season, average, ridge, linear, mlp, recurrent, transformer).

    The report (report.html, report.md, report.json) is written after each rung: scores with intervals, tests between
    neighbours, speed, size and advice; of translators also quality by length, word frequency and number of pairs, and
    ten sentences.
    """
    given = parse_words(words)
    if given.others:
        raise UsageError(f"{given.others[0]!r} is not a setting path=value; name text files with --train")
    names = [file_names(each) for each in (train, dev, test)]
    if resume is not None:
        extra: dict[str, object] = {"--train": names[0], "--dev": names[1], "--test": names[2], "--out": out}
        extra |= {"--rungs": rungs, "--rung": rung, "settings": given.overrides}
        if used := next((option for option, value in extra.items() if value), None):
            raise UsageError(f"--resume {resume} takes its files and settings from there; leave out {used}")
    else:
        if not names[0]:
            raise UsageError("no text to learn from: give --train corpus.de --train corpus.en")
        if minutes is None or out is None:
            missing = "--minutes, such as --minutes 60" if minutes is None else "--out, such as --out ladder"
            raise UsageError(f"{missing.partition(',')[0]} is missing; give {missing}")
        if not 0 < minutes < inf:
            raise UsageError(f"--minutes {minutes:g} leaves no time or has no end; give a number above 0")
        require_folders_above(out)
    paths = [[file for name in each for file in matching_files(Path(name))] for each in names]
    require_utf8_names([*(path for each in paths for path in each), out, resume])
    for file in (file for each in [*paths, rung or []] for file in each):
        require_file(file)

    from seqloom.compare import ladder, report, task_report
    from seqloom.compare.rungs import Rung, choose_rungs
    from seqloom.compare.subject import PAIRS, Order

    def rungs_of(record: Mapping[str, Any]) -> tuple[Rung, ...]:
        own = {name: Path(path) for name, path in record["configs"].items()}
        names = [name for name in record["rungs"] if name not in own]
        return choose_rungs(names, list(own.values()), kind=record.get("kind", PAIRS))

    with show_events(as_json=json) as listener:
        if resume is not None:
            climbing = ladder.resume(resume, rungs=rungs_of, minutes=minutes, listener=listener)
        else:
            assert out is not None
            assert minutes is not None
            settings = dict(each.split("=", 1) for each in given.overrides)
            kind = _kind(settings.pop("task.kind", None), paths[0], words=given.overrides, encoding=encoding or "utf-8")
            _require_known(settings, kind)
            chosen = choose_rungs([each.strip() for each in rungs.split(",")] if rungs else [], rung or [], kind=kind)
            seed = int(settings.pop("seed", "1"))
            of_pairs = kind == PAIRS
            order = Order(
                train=tuple(paths[0]),
                dev=tuple(paths[1]),
                test=tuple(paths[2]),
                minutes=minutes,
                rungs=chosen,
                languages=(settings.get("data.source"), settings.get("data.target")) if of_pairs else (None, None),
                encoding=encoding or "utf-8",
                seed=seed,
                kind=kind,
                settings=() if of_pairs else tuple(f"{name}={value}" for name, value in settings.items()),
            )
            climbing = ladder.start(out, order, listener=listener)
        if climbing.order.kind == PAIRS:
            climbing.climb(after_step=report.write_report)
            found = report.write_report(climbing)
            advice, shown = found.advice, report.to_markdown(found).partition("## Ten sentences")[0]
        else:
            climbing.climb(after_step=task_report.write_report)
            of_task = task_report.write_report(climbing)
            advice, shown = of_task.advice, task_report.to_markdown(of_task)
    if json:
        print(json_line({"report": str(climbing.out / report.JSON), "advice": advice}))
        return
    print(shown.rstrip())
    print(f"\nReport  {climbing.out / report.HTML}  ({duration(climbing.state.seconds)})")


def _kind(given: str | None, files: Sequence[Path], *, words: Sequence[str], encoding: str) -> str:
    """The task that is compared: as `task.kind` names it, or as the files show."""
    from seqloom.compare.rungs import LADDERS
    from seqloom.runs.recognition import recognise, require_one

    kind = given
    if kind is None:
        has_languages = {"data.source", "data.target"} <= {each.partition("=")[0] for each in words}
        names = [str(path) for path in files]
        options = [word for name in names for word in ("--train", name)]
        reading = require_one(
            () if has_languages else recognise(names, encoding=encoding),
            names=names,
            words=[*words, *options],
            command="compare",
        )
        kind = "translation" if reading is None else reading.setting.partition("=")[2]
    if kind not in LADDERS:
        origin = f"task.kind={kind}" if given is not None else f"{files[0]} is for {kind}, which"
        raise UsageError(f"{origin} has no rungs to compare; the tasks are {', '.join(LADDERS)}")
    return kind


def _require_known(settings: Mapping[str, str], kind: str) -> None:
    """Refuse settings of a comparison that are unknown, or that belong to a rung."""
    if kind == "translation":
        known: tuple[str, ...] = ("data.source", "data.target", "seed")
        wrong = [name for name in settings if name not in known]
    else:
        known = ("task.kind", "task.*", "data.*", "text.*", "model.horizon", "model.history", "seed")
        sections = ("task.", "data.", "text.")
        own = ("data.train", "data.dev", "data.encoding")
        wrong = [name for name in settings if name in own or not (name in known or name.startswith(sections))]
    if wrong:
        raise UsageError(f"{wrong[0]} is not a setting of compare ({', '.join(known)}); put it into a --rung file")
    if not settings.get("seed", "1").isdigit():
        raise UsageError(f"seed={settings['seed']} is not a whole number")
