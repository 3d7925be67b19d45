"""Our tagger by counting. `run` fits and tags: {"fit": seconds, "tag": seconds, "right": words}."""

import argparse
import json
import time
from pathlib import Path

from serving import Line

from seqloom.classical.tagger import HmmTagger
from seqloom.version import __version__


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    given = parser.parse_args()
    line, data = Line(), json.loads(given.data.read_text(encoding="utf-8"))
    train = [[(word, tag) for word, tag in sentence] for sentence in data["train"]]
    words = [[word for word, _ in sentence] for sentence in data["dev"]]
    expected = [tag for sentence in data["dev"] for _, tag in sentence]
    line.say({"version": __version__})
    for _ in line.commands():
        begin = time.perf_counter()
        tagger = HmmTagger.fit(train)
        fitted = time.perf_counter()
        found = [tagger.tag(sentence) for sentence in words]
        tagged = time.perf_counter()
        flat = [tag for sentence in found for tag in sentence]
        right = sum(map(str.__eq__, flat, expected))
        line.say({"fit": fitted - begin, "tag": tagged - fitted, "right": right})


if __name__ == "__main__":
    main()
