"""The side of the contestants: commands in, answers out. Imports nothing but the standard library.

run N       train N steps: {"tokens": …, "source_tokens": …, "seconds": …, "loss": …}
validate    {"loss": …}, the cross-entropy per target token of the held-out pairs, in nats, without smoothing
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TextIO


class Line:
    """The line to the driver. What anybody else prints goes to stderr from now on."""

    def __init__(self) -> None:
        self._out: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def say(self, answer: Mapping[str, object]) -> None:
        """Answer the last command."""
        print(json.dumps(answer), file=self._out, flush=True)

    def commands(self) -> Iterator[tuple[str, int]]:
        """The commands as they come, each with its number (0 where it has none), until the driver hangs up."""
        for line in iter(sys.stdin.readline, ""):
            name, _, number = line.strip().partition(" ")
            yield name, int(number or 0)
