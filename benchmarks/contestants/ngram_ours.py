"""N-gram models by ours. Answers {"seconds": …}.

fit      count and smooth a Kneser-Ney model of a text given as sentences of words
ids      log P of each id of a text, from an ARPA file
lines    log P of each line of the same text, from strings
"""

import argparse
import time
from collections import Counter
from pathlib import Path

import numpy as np
from serving import Line

from seqloom.classical.ngram import NGramConfig, encode_lines
from seqloom.core.symbols import END, RESERVED
from seqloom.interop.arpa import read_arpa
from seqloom.text.tokenizer import EncodedText
from seqloom.version import __version__


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--order", type=int, required=True)
    parser.add_argument("--model", type=Path, help="an ARPA file")
    given = parser.parse_args()
    line = Line()
    lines = given.text.read_text(encoding="utf-8").split("\n")[:-1]
    sentences = [each.split() for each in lines]
    model = read_arpa(given.model) if given.model else None
    ids = encode_lines(lines, model.words)[0] if model else np.empty(0, np.int32)
    line.say({"version": __version__, "total": float(model.score_lines(lines).sum()) if model else 0.0})
    for name, _ in line.commands():
        begin = time.perf_counter()
        if name == "fit":
            fit(sentences, given.order)
        elif model is not None:
            model.log_probs(ids) if name == "ids" else model.score_lines(lines)
        line.say({"seconds": time.perf_counter() - begin})


def fit(sentences: list[list[str]], order: int) -> None:
    """From words to a model that answers."""
    counts = Counter(word for sentence in sentences for word in sentence)
    numbers = {word: number for number, word in enumerate(dict.fromkeys([*RESERVED, *counts]))}
    ids = [number for sentence in sentences for number in [*(numbers[word] for word in sentence), END]]
    NGramConfig(order=order).fit(EncodedText(np.array(ids, np.int32), list(numbers)))


if __name__ == "__main__":
    main()
