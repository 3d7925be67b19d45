"""How a benchmark begins and ends: in a folder of its own, with its claims on the last lines, with a code that tells.

0    every goal was reached
1    one was missed, or what was measured is not good enough to be claimed
2    it could not be measured: the error says why
130  Ctrl-C; 143 SIGTERM
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from harness.processes import ContestantError, exit_on_termination
from harness.progress import say
from harness.ratios import Claim
from seqloom.core.errors import SeqloomError


@dataclass(frozen=True)
class Outcome:
    """What a benchmark claims, and whether all that it asks besides holds, such as the quality of fast translations."""

    claims: Sequence[Claim]
    is_good: bool = True

    @property
    def code(self) -> int:
        """0 if everything was reached, else 1."""
        return 0 if self.is_good and all(each.is_reached for each in self.claims) else 1


def measure_and_exit(measure: Callable[[Path], Outcome]) -> NoReturn:
    """Measure, given an empty folder that goes afterwards, print the claims and leave."""
    exit_on_termination()
    try:
        with tempfile.TemporaryDirectory() as folder:
            outcome = measure(Path(folder))
    except (SeqloomError, ContestantError, subprocess.CalledProcessError) as error:
        say(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    print()
    for each in outcome.claims:
        print(each)
    sys.exit(outcome.code)
