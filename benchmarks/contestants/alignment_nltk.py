"""IBM model 1 of nltk, fitted on the words between spaces. `fit` answers {"seconds": …}."""

import argparse
import time
from pathlib import Path

import nltk
from nltk.translate import AlignedSent, IBMModel1
from serving import Line


class OnlyFit(IBMModel1):  # type: ignore[misc]
    """Without the alignment of the whole text that its constructor adds: ours is not asked for one either."""

    def align_all(self, parallel_corpus: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=Path, nargs=2, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True, help="it has one, whatever is given")
    given = parser.parse_args()
    line = Line()
    source, target = ([each.split() for each in path.read_text(encoding="utf-8").split("\n")] for path in given.text)
    corpus = [AlignedSent(y, x) for x, y in zip(source, target, strict=True) if x and y]
    line.say({"version": nltk.__version__})
    for _ in line.commands():
        begin = time.perf_counter()
        OnlyFit(corpus, given.iterations)
        line.say({"seconds": time.perf_counter() - begin})


if __name__ == "__main__":
    main()
