"""Precision of dictionaries from mapped word vectors, without a parallel line.

    python benchmarks/vector_mapping.py [--seed 1] [--folder DIR]

Vectors of the phrasebook's English and of a cipher of it (`seqloom.data.cipher`), trained on different halves; and of
the first half of Multi30k's German and the second half of its English (SEQLOOM_DATA names the folder of the data).
Printed: the share of words whose first translation is right. The cipher is its own gold dictionary; that of Multi30k
comes from word alignments of all its pairs, of which the mapping sees none.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.progress import say
from seqloom import train
from seqloom.apps.vectors import align_vectors, open_vectors
from seqloom.classical.alignment import Bitext, fit_aligner
from seqloom.classical.vector_mapping import MappingSettings, Start
from seqloom.classical.vectors import WordVectors
from seqloom.core.errors import SeqloomError, UsageError
from seqloom.core.files import read_lines, write_atomically
from seqloom.data.cipher import cipher_of, cipher_word
from seqloom.data.phrasebook import sample_sentences
from seqloom.text.marks import JOINER, split_words

PHRASEBOOK_LINES = 26_800
MULTI30K_HALF = 14_500
FREQUENT_WORDS = (300, 1000)
"""Precision is measured on so many most frequent words of the source."""
SEED_WORDS = 100
GOLD_SHARE, GOLD_LINKS = 0.2, 5
"""A translation is right if it has this share of the links of a word, which has at least so many of them."""

Gold = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Halves:
    """Lines of two languages, none of which translates another, and which translations of words are right."""

    name: str
    source: Sequence[str]
    target: Sequence[str]
    gold: Gold


def cipher_halves(*, seed: int) -> Halves:
    """Half of the phrasebook's English as a cipher, and the other half as it is."""
    lines = sample_sentences("en", count=PHRASEBOOK_LINES, seed=1)
    middle = len(lines) // 2
    words = {word for line in lines for word in words_of(line)}
    gold = {cipher_word(word, seed): frozenset({word}) for word in words if word.isalpha()}
    return Halves("cipher of the phrasebook", cipher_of(lines[:middle], seed), lines[middle:], gold)


def multi30k_folder() -> Path:
    """Where Multi30k is."""
    data = os.environ.get("SEQLOOM_DATA")
    if not data or not (Path(data) / "multi30k").is_dir():
        raise UsageError(f"SEQLOOM_DATA={data or ''} has no folder multi30k; set it to the folder with the data sets")
    return Path(data) / "multi30k"


def multi30k_halves() -> Halves:
    """The first half of the German side and the second half of the English side."""
    folder = multi30k_folder()
    german, english = (list(read_lines(folder / f"train.{language}.gz")) for language in ("de", "en"))
    gold = aligned_words(german, english)
    return Halves("Multi30k de–en", german[:MULTI30K_HALF], english[-MULTI30K_HALF:], gold)


def aligned_words(sources: Sequence[str], targets: Sequence[str]) -> Gold:
    """The words that a word is linked to often, by word alignments of parallel lines."""
    sides = [[words_of(line) for line in lines] for lines in (sources, targets)]
    known = [{word: number for number, word in enumerate(sorted({w for line in side for w in line}))} for side in sides]
    one, other = ([[ids[word] for word in line] for line in side] for ids, side in zip(known, sides, strict=True))
    bitext = Bitext.from_sentences(one, other)
    links: dict[str, Counter[str]] = {}
    alignments = fit_aligner(bitext).align(bitext, symmetrise="intersection")
    for source, target, alignment in zip(*sides, alignments, strict=True):
        for place, partner in alignment:
            links.setdefault(source[place], Counter())[target[partner]] += 1
    return {
        word: frozenset(other for other, count in found.items() if count >= GOLD_SHARE * found.total())
        for word, found in links.items()
        if found.total() >= GOLD_LINKS and word.isalpha()
    }


def words_of(line: str) -> list[str]:
    """Lower-cased words and marks."""
    return [word.replace(JOINER, "") for word in split_words(line.strip().lower())]


def train_vectors(lines: Sequence[str], folder: Path, *, seed: int) -> WordVectors:
    """word2vec with the settings that are chosen for so much text, but wider; the mapping reduces the width itself."""
    folder.mkdir(parents=True)
    write_atomically(folder / "text.txt", "".join(f"{line}\n" for line in lines))
    overrides = ["model.kind=word2vec", "text.lowercase=true", "model.width=200", "model.threads=1", f"seed={seed}"]
    train(overrides=overrides, train=[str(folder / "text.txt")], out=folder / "run")
    return open_vectors(folder / "run")


def most_frequent_pairs(source: WordVectors, target: WordVectors, gold: Gold) -> list[tuple[str, str]]:
    """The most frequent source words, each with its most frequent right translation."""
    pairs = []
    for word in source.words:
        if known := [other for other in gold.get(word, ()) if other in target]:
            pairs.append((word, min(known, key=target.row)))
    return pairs[:SEED_WORDS]


def precision(found: Mapping[str, str], words: Sequence[str], gold: Gold, target: WordVectors) -> tuple[float, int]:
    """The share of right translations among the words that could be right, and their number."""
    asked = [word for word in words if any(other in target for other in gold.get(word, ()))]
    return sum(found[word] in gold[word] for word in asked) / len(asked), len(asked)


def map_halves(halves: Halves, starts: Sequence[Start], *, folder: Path, seed: int) -> list[str]:
    """Train vectors of both halves, map them from each start, and measure; the rows of a table."""
    begin = time.perf_counter()
    source = train_vectors(halves.source, folder / "source", seed=seed)
    target = train_vectors(halves.target, folder / "target", seed=seed + 1)
    say(f"{halves.name}: {source!r}, {target!r}, {time.perf_counter() - begin:.0f} s")
    rows = []
    for start in starts:
        begin = time.perf_counter()
        seeds = most_frequent_pairs(source, target, halves.gold) if start == "seeds" else []
        mapping = align_vectors(source, target, start=start, seeds=seeds, settings=MappingSettings(seed=seed))
        found = {pair.source: pair.target for pair in mapping.dictionary()}
        given = {word for word, _ in seeds}
        shares = []
        for count in (*FREQUENT_WORDS, len(source)):
            words = [word for word in source.words[:count] if word not in given]
            share, asked = precision(found, words, halves.gold, target)
            shares.append(f"{share:.1%} of {asked}")
        seconds = time.perf_counter() - begin
        name = f"{len(seeds)} seeds" if seeds else {"equal": "equal strings"}.get(start, start)
        say(f"{halves.name}, {name}: {mapping.chance}")
        p_value = mapping.chance.p_value if mapping.chance else float("nan")
        rows.append(f"| {halves.name} | {name} | {' | '.join(shares)} | {p_value:.1g} | {seconds:.0f} |")
    return rows


def measure_mapping(folder: Path, *, seed: int) -> None:
    """Map both texts and print the table."""
    rows = map_halves(cipher_halves(seed=seed), ["nothing"], folder=folder / "cipher", seed=seed)
    rows += map_halves(multi30k_halves(), ["nothing", "equal", "seeds"], folder=folder / "multi30k", seed=seed)
    first, second = FREQUENT_WORDS
    print(f"\n| text | start | {first} most frequent words | {second} | all | p of chance | seconds |")
    print("|---|---|---:|---:|---:|---:|---:|")
    print("\n".join(rows))
    print("\nThe share of words whose first translation is right; seeds are left out.")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="seed of the cipher, of training and of the mapping")
    parser.add_argument("--folder", type=Path, help="keep runs here (default: a temporary folder)")
    given = parser.parse_args()
    try:
        if given.folder is not None:
            measure_mapping(given.folder, seed=given.seed)
            return
        with tempfile.TemporaryDirectory() as folder:
            measure_mapping(Path(folder), seed=given.seed)
    except SeqloomError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
