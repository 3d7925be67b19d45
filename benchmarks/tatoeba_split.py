"""Training, dev and test pairs from a file of Tatoeba sentence pairs, Chinese to English.

    python benchmarks/tatoeba_split.py data/tatoeba-cmn-eng/cmn.txt.gz --out tatoeba
    seqloom compare --train tatoeba/train.zh,tatoeba/train.en --dev tatoeba/dev.zh,tatoeba/dev.en \
        --test tatoeba/test.zh,tatoeba/test.en --minutes 150 --out ladder

The file has English, Chinese and their authors, separated by tabs. It is sorted by length, and many sentences are there
several times with other translations. Pairs that share an English or a Chinese sentence, whatever its case and
punctuation, form a group, directly or through others; a group is in one set only. Groups are drawn at random (seeded),
and of each group one pair is in the dev or test set. Training has all pairs of its groups.
"""

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from seqloom.core.errors import DataError, SeqloomError, UsageError
from seqloom.core.files import read_lines, write_atomically
from seqloom.text.normalise import collapse_spaces

Pair = tuple[str, str]
"""A Chinese sentence and its English translation."""


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of a file with English, Chinese and further columns; repeated ones once."""
    pairs: dict[Pair, None] = {}
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if len(columns) < 2 or not all(map(sentence_key, columns[:2])):
            raise DataError(f"{path}:{number}: expected English, tab, Chinese, found {line[:60]!r}")
        english, chinese = map(collapse_spaces, columns[:2])
        pairs[chinese, english] = None
    return list(pairs)


def sentence_key(sentence: str) -> str:
    """What two sentences have in common that differ in case, spaces and punctuation only."""
    return "".join(character for character in sentence.casefold() if character.isalnum())


def group_pairs(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Pairs that share a sentence of either side, directly or through others, in the order of their first pairs."""
    above: dict[tuple[int, str], tuple[int, str]] = {}

    def top(node: tuple[int, str]) -> tuple[int, str]:
        while (parent := above.setdefault(node, node)) != node:
            above[node] = above[parent]
            node = above[node]
        return node

    for chinese, english in pairs:
        above[top((0, sentence_key(chinese)))] = top((1, sentence_key(english)))
    groups: dict[tuple[int, str], list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(top((1, sentence_key(pair[1]))), []).append(pair)
    return list(groups.values())


def split_pairs(pairs: Sequence[Pair], *, dev: int, test: int, seed: int) -> dict[str, list[Pair]]:
    """The three sets, in random order."""
    drawn = random.Random(seed)
    groups = group_pairs(pairs)
    if dev + test >= len(groups):
        raise UsageError(f"{dev:,} dev and {test:,} test pairs need more than the {len(groups):,} groups of this file")
    drawn.shuffle(groups)
    sets = {
        "dev": [drawn.choice(group) for group in groups[:dev]],
        "test": [drawn.choice(group) for group in groups[dev : dev + test]],
        "train": [pair for group in groups[dev + test :] for pair in group],
    }
    drawn.shuffle(sets["train"])
    return sets


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--dev", type=int, default=1000, metavar="PAIRS")
    parser.add_argument("--test", type=int, default=2000, metavar="PAIRS")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    try:
        sets = split_pairs(read_pairs(given.file), dev=given.dev, test=given.test, seed=given.seed)
        given.out.mkdir(parents=True, exist_ok=True)
        for name, pairs in sets.items():
            write_atomically(given.out / f"{name}.zh", "".join(f"{pair[0]}\n" for pair in pairs))
            write_atomically(given.out / f"{name}.en", "".join(f"{pair[1]}\n" for pair in pairs))
            print(f"{name:5}  {len(pairs):6,} pairs  {given.out / name}.zh, .en")
    except SeqloomError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
