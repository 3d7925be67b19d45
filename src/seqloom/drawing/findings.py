"""A finding: what was measured, its picture and the sentence that says what is seen."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from seqloom.core.files import write_atomically

FORMATS = ("png", "svg")


@dataclass(frozen=True)
class Finding:
    """One measurement in three forms."""

    name: str
    """The stem of its files, such as `gradient-by-lag`."""
    title: str
    sentence: str
    """What the numbers say, with the numbers; written by the code that measured them."""
    data: Mapping[str, Any]
    """Settings and results, all of it such that JSON can hold it."""
    draw: Callable[[], Figure]
    """The picture, drawn when it is wanted."""


def save_finding(finding: Finding, folder: Path) -> list[Path]:
    """Write NAME.json, NAME.png and NAME.svg into a folder that exists, each of them whole; return what was written."""
    values = {"name": finding.name, "title": finding.title, "sentence": finding.sentence, **finding.data}
    data = folder / f"{finding.name}.json"
    write_atomically(data, json.dumps(values, ensure_ascii=False, indent=1, allow_nan=False) + "\n")
    figure = finding.draw()
    pictures = [folder / f"{finding.name}.{suffix}" for suffix in FORMATS]
    for picture in pictures:
        drawn = BytesIO()
        date = {"Date": None} if picture.suffix == ".svg" else None
        figure.savefig(drawn, format=picture.suffix[1:], dpi=144, metadata=date)
        write_atomically(picture, drawn.getvalue())
    return [data, *pictures]
