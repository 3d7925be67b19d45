"""Commands of the package as a user would type them, and plain files of the data folder to run them on."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from seqloom.core.errors import UsageError


def seqloom(*arguments: str | Path) -> str:
    """Run a command of the package; its standard output. What it reports goes to stderr."""
    command = [sys.executable, "-m", "seqloom", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def answer(*arguments: str | Path) -> Any:
    """The same with `--json`: its result."""
    return json.loads(seqloom(*arguments, "--json"))


def train(run: Path, *arguments: str | Path) -> Path:
    """Train in a folder, or finish what was begun there; the model."""
    if not (run / "run.json").is_file():
        seqloom("train", *arguments, "--out", run)
    elif not (run / "model" / "model.json").is_file():
        seqloom("train", "--resume", run)
    return run / "model"


def data_file(name: str) -> Path:
    """The path of a file of the data folder."""
    stored = Path(os.environ.get("SEQLOOM_DATA", "")) / name
    if not stored.is_file():
        raise UsageError(f"{stored} not found; set SEQLOOM_DATA to the folder with the data sets")
    return stored


def data_lines(name: str) -> list[str]:
    """The lines of a file of the data folder, plain or .gz."""
    stored = data_file(name)
    content = stored.read_bytes()
    return (gzip.decompress(content) if stored.suffix == ".gz" else content).decode("utf-8").split("\n")


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    """Write the lines that are not blank."""
    path.write_text("".join(f"{line}\n" for line in lines if line.strip()), encoding="utf-8")
    return path
