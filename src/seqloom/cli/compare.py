"""`seqloom compare`: the ladder from a dictionary to a Transformer on one corpus."""

from collections.abc import Mapping
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
    "seqloom compare --resume ladder",
)

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="path=value", help="Settings: data.source=de, data.target=en, seed=2."),
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
        help="Only these rungs: dictionary, channel, phrases, rnn, attention, transformer; separated by commas.",
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
    """Compare translators on your own text, from a dictionary to a Transformer, and learn which one pays.

    Each rung is an ordinary run below [bold]--out[/bold], trained on the same pairs and measured on the same test set.
    Rungs that count words and phrases take the time that they need; neural networks share the remaining minutes.

    The report (report.html, report.md, report.json) is written after each rung: scores with intervals, tests between
    neighbours, quality by length, word frequency and number of pairs, speed, size, ten sentences, and advice.
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

    from seqloom.compare import ladder
    from seqloom.compare.report import HTML, to_markdown, write_report
    from seqloom.compare.rungs import Rung, choose_rungs

    def rungs_of(record: Mapping[str, Any]) -> tuple[Rung, ...]:
        own = {name: Path(path) for name, path in record["configs"].items()}
        return choose_rungs([name for name in record["rungs"] if name not in own], list(own.values()))

    with show_events(as_json=json) as listener:
        if resume is not None:
            climbing = ladder.resume(resume, rungs=rungs_of, minutes=minutes, listener=listener)
        else:
            assert out is not None
            assert minutes is not None
            settings = _settings(given.overrides)
            chosen = choose_rungs([each.strip() for each in rungs.split(",")] if rungs else [], rung or [])
            order = ladder.Order(
                train=tuple(paths[0]),
                dev=tuple(paths[1]),
                test=tuple(paths[2]),
                minutes=minutes,
                rungs=chosen,
                languages=(settings.get("data.source"), settings.get("data.target")),
                encoding=encoding or "utf-8",
                seed=int(settings.get("seed", "1")),
            )
            climbing = ladder.start(out, order, listener=listener)
        climbing.climb(after_step=write_report)
        report = write_report(climbing)
    if json:
        print(json_line({"report": str(climbing.out / "report.json"), "advice": report.advice}))
        return
    print(to_markdown(report).partition("## Ten sentences")[0].rstrip())
    print(f"\nReport  {climbing.out / HTML}  ({duration(climbing.state.seconds)})")


def _settings(overrides: list[str] | tuple[str, ...]) -> dict[str, str]:
    """The settings of a comparison by name; others are refused."""
    known = ("data.source", "data.target", "seed")
    found = dict(each.split("=", 1) for each in overrides)
    for name in found:
        if name not in known:
            raise UsageError(f"{name} is not a setting of compare ({', '.join(known)}); put it into a --rung file")
    if not found.get("seed", "1").isdigit():
        raise UsageError(f"seed={found['seed']} is not a whole number")
    return found
