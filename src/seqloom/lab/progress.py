"""What an experiment says while it works."""

import time
from collections.abc import Callable

Say = Callable[[str], None]
"""Takes a line of progress."""


def silent(_line: str) -> None:
    """Says nothing."""


class Countdown:
    """Reports the estimated time left after each part of an experiment, if all parts cost the same."""

    def __init__(self, say: Say, parts: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._parts, self._clock = say, parts, clock
        self._since, self._done = clock(), 0

    def done(self, what: str) -> None:
        """One more part is done: "forget bias 2: 3 of 7, about 20 s left"."""
        self._done += 1
        left = (self._clock() - self._since) / self._done * (self._parts - self._done)
        self._say(f"{what}: {self._done} of {self._parts}, about {left:.0f} s left")
