"""JSON files that may come from elsewhere: of bounded size, and an error of two kinds only."""

import json
from pathlib import Path
from typing import Any

LARGEST = 1 << 26
"""Bytes. Descriptions of models have some thousands, vocabularies some millions."""


def read_json(path: Path, *, largest: int = LARGEST) -> Any:
    """What a file holds. It raises an OSError where it cannot be read, and a ValueError where that is no JSON."""
    with path.open("rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"it has more than {largest:,} bytes")
    return parse_json(content)


def parse_json(content: bytes | str) -> Any:
    """The value that a text in UTF-8 stands for; all that can be wrong with it is a ValueError."""
    try:
        return json.loads(content.decode("utf-8") if isinstance(content, bytes) else content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
