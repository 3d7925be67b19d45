"""`seqloom lab`: ready-made experiments that show how sequence models work."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.console import TolerantListener, clean, examples, json_line, table
from seqloom.core.errors import UsageError
from seqloom.core.events import Event, ignore
from seqloom.core.files import require_folders_above

if TYPE_CHECKING:
    from seqloom.drawing.findings import Finding
    from seqloom.lab.catalogue import Experiment

EXAMPLES = examples(
    "seqloom lab",
    "seqloom lab vanishing --out lab/vanishing",
    "seqloom lab forget-bias --out lab/forget-bias --seed 3 --json",
    "seqloom lab gates --quick",
)


def _folder(text: str) -> Path:
    """A path that was really given: an empty one would be the current folder."""
    if not text.strip():
        raise UsageError("--out '' names no folder; give one, or leave --out away for lab/EXPERIMENT")
    return Path(text)


def lab(
    name: Annotated[
        str | None, typer.Argument(metavar="EXPERIMENT", help="Which one; without a name, all are listed.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            parser=_folder,
            help="Folder for numbers and pictures; lab/EXPERIMENT, or lab/EXPERIMENT-quick.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, metavar="N", help="Where all random numbers come from.", show_default="1"),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller and shorter: a first look in seconds, no results.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="A record per finding on stdout.")] = False,
) -> None:
    """Run an experiment: why gradients vanish, what a gate does, how long a memory lasts, measured on this machine.

    Each experiment asks one question and answers it with findings. A finding is a sentence with the measured numbers,
    NAME.json with all of them, and NAME.png and NAME.svg with the picture. The same seed gives the same findings.
    What --quick has measured is marked as that.
    """
    from seqloom.lab.catalogue import EXPERIMENTS

    if name is None:
        _refuse_settings(out, seed=seed, is_quick=quick)
        _list(EXPERIMENTS, as_json=json)
        return
    experiment = _find(name, EXPERIMENTS)
    folder = out or Path("lab") / (f"{experiment.name}-quick" if quick else experiment.name)
    _make_ready(folder)  # before the experiment, which may take minutes
    tell = ignore if json else TolerantListener(_write)
    given = 1 if seed is None else seed
    findings = experiment.run(seed=given, quick=quick, say=lambda line: tell(Event("progress", {"line": line})))
    for finding in findings:
        marked = replace(finding, data={"quick": quick, **finding.data})
        _report(marked, folder, as_json=json)
    if quick and not json:
        print("These numbers are no results: --quick is too small for that. Leave it out to measure.")


def _find(name: str, experiments: "Sequence[Experiment]") -> "Experiment":
    by_name = {experiment.name: experiment for experiment in experiments}
    spelt = name.lower().replace("_", "-")
    if spelt in by_name:
        return by_name[spelt]
    near = get_close_matches(spelt, by_name, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(by_name)};"
    raise UsageError(f"{name!r} is no experiment; {hint} `seqloom lab` lists them all")


def _make_ready(folder: Path) -> None:
    """Make the folder and refuse one that cannot take the files of a finding."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; --out names a folder")
    require_folders_above(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
        inside = list(folder.iterdir())
    except OSError as error:
        raise UsageError(f"cannot write into {folder}: {error.strerror}; name another folder with --out") from error
    # Which names an experiment will give its findings is known when they are measured.
    taken = [path for path in inside if path.suffix in (".json", ".png", ".svg") and path.is_dir()]
    if taken:
        raise UsageError(f"{taken[0]} is a folder where a file may have to go; name another folder with --out")


def _refuse_settings(out: Path | None, *, seed: int | None, is_quick: bool) -> None:
    if out is not None or seed is not None or is_quick:
        given = f"--out {out}" if out is not None else f"--seed {seed}" if seed is not None else "--quick"
        raise UsageError(f"{given} belongs to an experiment, and none was named; `seqloom lab` lists them")


def _list(experiments: "Sequence[Experiment]", *, as_json: bool) -> None:
    if as_json:
        for each in experiments:
            print(json_line({"name": each.name, "question": each.question, "minutes": each.minutes}))
        return
    rows = [(each.name, _usual(each.minutes), each.question) for each in experiments]
    print("\n".join(table(rows)))
    print("\nRun one with: seqloom lab EXPERIMENT --out DIR (times are those of one busy core; --quick takes seconds)")


def _usual(minutes: float) -> str:
    return f"{minutes:.0f} min" if minutes >= 1 else f"{60 * minutes:.0f} s"


def _report(finding: "Finding", folder: Path, *, as_json: bool) -> None:
    from seqloom.drawing.findings import save_finding

    written = save_finding(finding, folder)
    if as_json:
        values = {"name": finding.name, "title": finding.title, "sentence": finding.sentence, **finding.data}
        print(json_line({**values, "files": written}))
        return
    print(clean(finding.sentence))
    for path in written:
        print(f"  {path}")


def _write(event: Event) -> None:
    """A line of progress on stderr."""
    print(clean(str(event["line"])), file=sys.stderr, flush=True)
