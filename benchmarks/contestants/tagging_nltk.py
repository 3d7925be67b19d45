"""TnT of nltk. `run` fits a new tagger and tags: {"fit": seconds, "tag": seconds, "right": words}.

A new one each time: it remembers the words that it has tagged. With --capitals, its states tell capitalised words from
others.
"""

import argparse
import json
import time
from pathlib import Path

import nltk
from nltk.tag.tnt import TnT
from serving import Line


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--capitals", action="store_true")
    given = parser.parse_args()
    line, data = Line(), json.loads(given.data.read_text(encoding="utf-8"))
    train = [[(word, tag) for word, tag in sentence] for sentence in data["train"]]
    words = [[word for word, _ in sentence] for sentence in data["dev"]]
    expected = [tag for sentence in data["dev"] for _, tag in sentence]
    line.say({"version": nltk.__version__})
    for _ in line.commands():
        begin = time.perf_counter()
        tagger = TnT(C=given.capitals)
        tagger.train(train)
        fitted = time.perf_counter()
        found = tagger.tagdata(words)
        tagged = time.perf_counter()
        flat = [tag for sentence in found for _, tag in sentence]
        right = sum(map(str.__eq__, flat, expected))
        line.say({"fit": fitted - begin, "tag": tagged - fitted, "right": right})


if __name__ == "__main__":
    main()
