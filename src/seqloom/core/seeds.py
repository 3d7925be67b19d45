"""Named integer seeds, all derived from the one seed of a run.

Each use of randomness has a name, so that adding one changes no other, and a seed is a pure function of the run's
seed, the name and some counters: nothing has to be saved to resume.
"""

import hashlib


def seed_for(seed: int, name: str, *counters: int) -> int:
    """A 63-bit seed for one named use, such as `seed_for(7, "dropout", rank, step)`."""
    text = "/".join([str(seed), name, *map(str, counters)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
