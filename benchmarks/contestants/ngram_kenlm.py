"""Questions to KenLM by its Python module, which takes strings. `score` answers {"seconds": …}."""

import argparse
import math
import time
from importlib.metadata import version
from pathlib import Path

import kenlm
from serving import Line


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    given = parser.parse_args()
    line = Line()
    lines = given.text.read_text(encoding="utf-8").split("\n")[:-1]
    score = kenlm.Model(str(given.model)).score
    line.say({"version": version("kenlm"), "total": math.log(10) * sum(map(score, lines))})
    for _ in line.commands():
        begin = time.perf_counter()
        sum(map(score, lines))
        line.say({"seconds": time.perf_counter() - begin})


if __name__ == "__main__":
    main()
