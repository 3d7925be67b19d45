"""word2vec by gensim. `fit SEED` answers {"seconds": …, "whole": …} and writes the vectors beside the text.

`seconds` are those of training; `whole` counts the vocabulary too. Words are read beforehand, in sentences of 10,000.
"""

import argparse
import time
from pathlib import Path

import gensim
from gensim.models import Word2Vec
from serving import Line

SENTENCE = 10_000


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
    sentences = [words[begin : begin + SENTENCE] for begin in range(0, len(words), SENTENCE)]
    line.say({"version": gensim.__version__, "words": len(words)})
    for _, seed in line.commands():
        begin = time.perf_counter()
        model = Word2Vec(
            vector_size=100, window=5, negative=5, min_count=5, sample=1e-3, alpha=0.025,
            sg=int(given.architecture == "skipgram"), workers=given.threads, seed=seed, epochs=given.epochs,
        )  # fmt: skip
        model.build_vocab(sentences)
        middle = time.perf_counter()
        model.train(sentences, total_examples=model.corpus_count, epochs=given.epochs)
        end = time.perf_counter()
        model.wv.save_word2vec_format(str(given.out), binary=True)
        line.say({"seconds": end - middle, "whole": end - begin})


if __name__ == "__main__":
    main()
