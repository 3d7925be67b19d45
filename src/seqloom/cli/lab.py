"""`seqloom lab`: experiments that show how sequence models work."""

import sys
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated

import typer

from seqloom.cli.console import TolerantListener, clean, examples, table
from seqloom.core.errors import UsageError
from seqloom.core.events import Event, ignore, json_line
from seqloom.core.files import require_folders_above

EXAMPLES = examples(
    "seqloom lab",
    "seqloom lab vanishing --out lab/vanishing",
    "seqloom lab forget-bias --out lab/forget-bias --seed 3 --json",
    "seqloom lab gates --quick",
)


def _folder(text: str) -> Path:
    """Refuse an empty path, which would be the current folder."""
    if not text.strip():
        raise UsageError("--out is empty; name a folder, or leave out --out for lab/EXPERIMENT")
    return Path(text)


def lab(
    name: Annotated[
        str | None, typer.Argument(metavar="EXPERIMENT", help="Name of the experiment; without it, all are listed.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            parser=_folder,
            help="Folder for numbers and charts; by default lab/EXPERIMENT or lab/EXPERIMENT-quick.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, metavar="N", help="Random seed.", show_default="1"),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A smaller version that takes seconds; its numbers are not results.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print a record per finding.")] = False,
) -> None:
    """Run an experiment on this machine: why gradients vanish, what a gate does, how long a memory lasts.

    Each experiment answers one question with findings. A finding is a sentence with the measured numbers, NAME.json
    with all of them, and a chart as NAME.png and NAME.svg. The same seed gives the same findings. Results of --quick
    are marked as such.
    """
    from seqloom.lab.catalogue import EXPERIMENTS

    by_name = {experiment.name: experiment for experiment in EXPERIMENTS}
    if name is None:
        if out is not None or seed is not None or quick:
            given = f"--out {out}" if out is not None else f"--seed {seed}" if seed is not None else "--quick"
            raise UsageError(f"{given} requires an EXPERIMENT; `seqloom lab` lists them")
        if json:
            for each in EXPERIMENTS:
                print(json_line({"name": each.name, "question": each.question, "minutes": each.minutes}))
            return
        rows = [
            (each.name, f"{each.minutes:.0f} min" if each.minutes >= 1 else f"{60 * each.minutes:.0f} s", each.question)
            for each in EXPERIMENTS
        ]
        print("\n".join(table(rows)))
        print("\nRun one with: seqloom lab EXPERIMENT --out DIR (times are for one core; --quick takes seconds)")
        return
    key = name.lower().replace("_", "-")
    if key not in by_name:
        near = get_close_matches(key, by_name, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"available: {', '.join(by_name)};"
        raise UsageError(f"{name!r} is not an experiment; {hint} `seqloom lab` lists them all")

    from seqloom.drawing.figures import save_finding

    folder = out or Path("lab") / (f"{key}-quick" if quick else key)
    _make_ready(folder)  # before the experiment, which may take minutes
    listener = ignore if json else TolerantListener(_write)
    findings = by_name[key].run(
        seed=1 if seed is None else seed, quick=quick, say=lambda line: listener(Event("progress", {"line": line}))
    )
    for finding in findings:
        marked = replace(finding, data={"quick": quick, **finding.data})
        files = save_finding(marked, folder)
        if json:
            values = {"name": marked.name, "title": marked.title, "sentence": marked.sentence, **marked.data}
            print(json_line({**values, "files": files}))
        else:
            print("\n".join([clean(marked.sentence), *(f"  {path}" for path in files)]))
    if quick and not json:
        print("These numbers are not results: --quick is too small. Leave it out to measure.")


def _make_ready(folder: Path) -> None:
    """Create the folder; refuse one that cannot hold the files of a finding."""
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
    # The names of the findings are known only after measuring.
    taken = [path for path in inside if path.suffix in (".json", ".png", ".svg") and path.is_dir()]
    if taken:
        raise UsageError(
            f"{taken[0]} is a folder, but a file may have to be written there; name another folder with --out"
        )


def _write(event: Event) -> None:
    """A line of progress on stderr."""
    print(clean(str(event["line"])), file=sys.stderr, flush=True)
