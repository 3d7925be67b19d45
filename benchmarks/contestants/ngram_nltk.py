"""Kneser-Ney of nltk, which counts when it is fitted and smooths when it is asked. `fit` answers {"seconds": …}."""

import argparse
import time
from pathlib import Path

import nltk
from nltk.lm import KneserNeyInterpolated
from nltk.lm.preprocessing import padded_everygram_pipeline
from serving import Line


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--order", type=int, required=True)
    given = parser.parse_args()
    line = Line()
    sentences = [each.split() for each in given.text.read_text(encoding="utf-8").split("\n")[:-1]]
    line.say({"version": nltk.__version__})
    for _ in line.commands():
        begin = time.perf_counter()
        model = KneserNeyInterpolated(given.order)
        model.fit(*padded_everygram_pipeline(given.order, sentences))
        line.say({"seconds": time.perf_counter() - begin})


if __name__ == "__main__":
    main()
