"""Word alignment by eflomal, with its own number of rounds. Answers {"seconds": …}.

links       from files to links of both directions, by its IBM model 1, by its Python interface
default     the same by its model 3 (with jumps and fertility), its default
"""

import argparse
import time
from importlib.metadata import version
from pathlib import Path

import eflomal
from serving import Line


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=Path, nargs=2, required=True)
    parser.add_argument("--iterations", type=int, required=True, help="it samples, and chooses its own number")
    parser.add_argument("--threads", type=int, required=True, help="it uses what OMP_NUM_THREADS says")
    given = parser.parse_args()
    line = Line()
    line.say({"version": version("eflomal")})
    links = [str(given.text[0].with_suffix(f".eflomal-{side}")) for side in ("forward", "backward")]
    for name, _ in line.commands():
        begin = time.perf_counter()
        with given.text[0].open(encoding="utf-8") as source, given.text[1].open(encoding="utf-8") as target:
            aligner = eflomal.Aligner(model=1 if name == "links" else 3)
            aligner.align(source, target, links_filename_fwd=links[0], links_filename_rev=links[1])
        line.say({"seconds": time.perf_counter() - begin})


if __name__ == "__main__":
    main()
