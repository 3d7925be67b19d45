"""Translations that are found first among 1,000: vectors learned from 29,000 pairs, and IBM model 1 beside them.

    python benchmarks/embeddings.py [--model RUN] [--out FOLDER] [--pairs N] [settings …]

SEQLOOM_DATA names the folder of the data. An encoder is trained on Multi30k's German and English captions, without
settings of its own (`task.kind=contrastive`), and each of the 1,000 German lines of test_2016 is looked for among the
English ones, and the other way round. Goal: at least 70% are found first, in both directions.

    vectors          cos(f(x), f(y))
    model 1          log P(query ∣ text) of IBM model 1, fitted to the same pairs (lower-cased words)
    model 1, both    log P(x ∣ y) / words of x + log P(y ∣ x) / words of y

`--model` takes an encoder that is trained already, `--out` keeps the run. `--pairs` uses the first N pairs only: no
goal is claimed then. Further words are settings of the training, such as seed=2. The exit code is 1 if the goal is
missed.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from harness.processes import exit_on_termination
from harness.progress import say
from seqloom import Encoder, train
from seqloom.classical.bitext import Bitext
from seqloom.classical.model1 import Model1, fit_model1
from seqloom.core.errors import SeqloomError, UsageError
from seqloom.core.events import to_json
from seqloom.core.files import read_lines, write_atomically
from seqloom.metrics.retrieval import FoundFirst, score_parallel
from seqloom.metrics.scoring import Bootstrap, CorpusScore, score
from seqloom.text.marks import split_words

GOAL = 70.0
LANGUAGES = ("de", "en")
FLOOR = 1e-6
"""t(y ∣ x) of words that never met."""

Lines = tuple[list[str], list[str]]
"""Those of both languages."""


def read_captions(name: str) -> Lines:
    if not (data := os.environ.get("SEQLOOM_DATA")):
        raise UsageError("SEQLOOM_DATA is not set; it names the folder with multi30k/")
    one, other = (list(read_lines(Path(data) / "multi30k" / f"{name}.{language}.gz")) for language in LANGUAGES)
    return one, other


def word_ids(training: Sequence[str], test: Sequence[str]) -> tuple[list[list[int]], list[list[int]]]:
    """Lower-cased words as numbers; a word of the test that was never met is −1."""
    known: dict[str, int] = {}
    met = [[known.setdefault(word, len(known)) for word in split_words(line.lower())] for line in training]
    return met, [[known.get(word, -1) for word in split_words(line.lower())] for line in test]


def log_probs(
    model: Model1, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> Float64[np.ndarray, "sources targets"]:
    """log P(target ∣ source) of all sources with all targets.

    P(y_j ∣ x) depends on the words of x and on y_j alone, so that all pairs are two products: how often each source has
    each word, times t(y ∣ x), gives P of each word after each source; its logarithm, times how often each target has
    the word, gives the sums.
    """
    of_sources, of_targets = (sorted(set(chain.from_iterable(side))) for side in (sources, targets))
    table = np.full((len(of_sources) + 1, len(of_targets)), FLOOR)  # the last row is that of the null word
    for row, word in enumerate([*of_sources, model.table.null]):
        partners, probabilities = model.table.row(word)
        shares = dict(zip(partners.tolist(), probabilities.tolist(), strict=True))
        table[row] = [max(FLOOR, shares.get(target, 0.0)) for target in of_targets]
    counts = [count_words(*each) for each in ((sources, of_sources), (targets, of_targets))]
    with_null = np.concatenate([counts[0], np.ones((len(sources), 1))], 1)  # [sources, words and null]
    given = with_null @ table / with_null.sum(1, keepdims=True)  # [sources, target words]
    scores: Float64[np.ndarray, "sources targets"] = np.log(given) @ counts[1].T
    return scores


def count_words(sentences: Sequence[Sequence[int]], words: Sequence[int]) -> Float64[np.ndarray, "sentences words"]:
    """How often each sentence has each word."""
    column = {word: at for at, word in enumerate(words)}
    counts = np.zeros((len(sentences), len(words)))
    for row, sentence in enumerate(sentences):
        np.add.at(counts[row], [column[word] for word in sentence], 1)
    return counts


def score_first(
    there: Float64[np.ndarray, "lines lines"], back: Float64[np.ndarray, "lines lines"], test: Lines
) -> tuple[CorpusScore, CorpusScore]:
    """How many lines find their translation first; rows are queries, German in `there` and English in `back`."""
    found = (
        score(
            FoundFirst(f"{LANGUAGES[side]}→{LANGUAGES[1 - side]}"),
            [test[1 - side][at] for at in scores.argmax(1).tolist()],
            references=test[1 - side],
            bootstrap=Bootstrap(seed=1),
        )
        for side, scores in enumerate((there, back))
    )
    one, other = found
    return one, other


def model1_scores(pairs: Lines, test: Lines) -> dict[str, tuple[CorpusScore, CorpusScore]]:
    """Model 1 of both directions, fitted to the pairs: the text that explains a query best, and both together."""
    sides = [word_ids(*each) for each in zip(pairs, test, strict=True)]
    (german, german_test), (english, english_test) = sides
    bitext = Bitext.from_sentences(german, english)
    to_english, to_german = fit_model1(bitext), fit_model1(bitext.turned())
    english_given = log_probs(to_english, german_test, english_test)  # [German, English]
    german_given = log_probs(to_german, english_test, german_test).T
    lengths = [np.array([len(line) for line in each]) for each in (german_test, english_test)]
    both = english_given / lengths[1] + german_given / lengths[0][:, None]
    return {
        "model 1": score_first(german_given, english_given.T, test),
        "model 1, both": score_first(both, both.T, test),
    }


def trained(pairs: Lines, dev: Lines, run: Path, settings: Sequence[str]) -> Path:
    """The run of an encoder of these pairs."""
    files = []
    for name, texts in (("train", pairs), ("dev", dev)):
        for language, lines in zip(LANGUAGES, texts, strict=True):
            files.append(run.parent / f"{run.name}-{name}.{language}")
            write_atomically(files[-1], "".join(f"{line}\n" for line in lines))
    names = [str(file) for file in files]
    train(
        None,
        ["task.kind=contrastive", *settings],
        out=run,
        train=names[:2],
        dev=names[2:],
        listener=lambda event: say(to_json(event)) if event.kind in ("sizing", "validation", "finished") else None,
    )
    return run


def vector_scores(model: Path, test: Lines) -> tuple[CorpusScore, CorpusScore]:
    encoder = Encoder.load(model)
    german, english = (encoder.encode(lines) for lines in test)
    return score_parallel(german, english, texts=test, languages=LANGUAGES, bootstrap=Bootstrap(seed=1))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", type=Path, help="an encoder that is trained already")
    parser.add_argument("--out", type=Path, help="where the run is kept")
    parser.add_argument("--pairs", type=int, help="pairs to learn from, from the first on")
    parser.add_argument("settings", nargs="*", help="settings of the training, such as seed=2")
    given = parser.parse_args()
    exit_on_termination()
    with tempfile.TemporaryDirectory() as temporary:
        captions, dev, test = (read_captions(name) for name in ("train", "val", "test_2016_flickr"))
        pairs = captions[0][: given.pairs], captions[1][: given.pairs]
        began = time.monotonic()
        model = given.model or trained(pairs, dev, given.out or Path(temporary) / "run", given.settings)
        minutes = (time.monotonic() - began) / 60
        rows = {"vectors": vector_scores(model, test), **model1_scores(pairs, test)}
    where = f"trained in {minutes:.1f} minutes" if given.model is None else str(given.model)
    print(f"{len(pairs[0]):,} pairs, {len(test[0]):,} candidates; vectors: {where}")
    for name, scores in rows.items():
        shown = [
            f"{each.value:5.1f} [{each.interval[0]:.1f}, {each.interval[1]:.1f}]" for each in scores if each.interval
        ]
        print(f"{name:14}  de→en {shown[0]}  en→de {shown[1]}")
    if given.pairs is not None:
        return 0
    worst = min(each.value for each in rows["vectors"])
    print(f"goal {GOAL:.0f}%: {'reached' if worst >= GOAL else 'missed'}")
    return int(worst < GOAL)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SeqloomError as error:
        sys.exit(f"error: {error}")
