"""word2vec by ours. `fit SEED` answers {"seconds": …, "whole": …} and writes the vectors beside the text.

`seconds` are those of fitting encoded text, which counts it once more; `whole` counts vocabulary and encoding too.
"""

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from serving import Line

from seqloom.classical.word2vec import Word2VecConfig
from seqloom.core.symbols import END, UNKNOWN
from seqloom.interop.word2vec_format import write_vectors
from seqloom.text.tokenizer import EncodedText
from seqloom.text.vocabulary import Vocabulary
from seqloom.version import __version__


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--architecture", choices=("skipgram", "cbow"), required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    line = Line()
    words = given.text.read_text(encoding="utf-8").split()
    config = Word2VecConfig(
        width=100, window=5, negatives=5, minimum_count=5, subsampling=1e-3, learning_rate=0.025,
        architecture=given.architecture, epochs=given.epochs, threads=given.threads,
    )  # fmt: skip
    config.fit(encode(words[:20_000]), seed=1)  # compiles, unless that was done before
    line.say({"version": __version__, "words": len(words)})
    for _, seed in line.commands():
        begin = time.perf_counter()
        text = encode(words)
        middle = time.perf_counter()
        vectors = config.fit(text, seed=seed)
        end = time.perf_counter()
        write_vectors(vectors, given.out)
        line.say({"seconds": end - middle, "whole": end - begin})


def encode(words: Sequence[str]) -> EncodedText:
    """The words as ids; those that come less than five times are unknown."""
    vocabulary = Vocabulary.from_counts(Counter(words), minimum_count=5)
    tokens = list(vocabulary)
    ids = {token: number for number, token in enumerate(tokens)}
    encoded = np.fromiter((ids.get(word, UNKNOWN) for word in words), np.int32, count=len(words))
    return EncodedText(np.append(encoded, np.int32(END)), tokens)


if __name__ == "__main__":
    main()
