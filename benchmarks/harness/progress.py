"""Progress lines on stderr, so that stdout holds nothing but results."""

import sys
import time


def say(sentence: str) -> None:
    """One line for whoever watches."""
    print(sentence, file=sys.stderr, flush=True)


class Countdown:
    """Tells how far a number of equal parts has come, and how long the others will take."""

    def __init__(self, what: str, parts: int) -> None:
        self._what, self._parts, self._done = what, parts, 0
        self._started = time.monotonic()

    def tick(self) -> None:
        """One more part is done."""
        self._done += 1
        left = (time.monotonic() - self._started) / self._done * (self._parts - self._done)
        say(f"{self._what}: {self._done} of {self._parts}, about {duration(left)} left")


def duration(seconds: float) -> str:
    """Seconds, or minutes and seconds."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"
