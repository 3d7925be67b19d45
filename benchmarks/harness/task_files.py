"""Plain files for the tasks of the package, made of the data folder: treebanks, tables, recordings, series.

Every maker writes into a folder and gives the paths. What is drawn is drawn by fixed seeds, so that all seeds of a
benchmark learn from the same files. A number, where one is taken, is that of the first sentences, words or lines that
are used: a little text to try all steps.
"""

import io
import json
import math
import random
import re
import tarfile
import wave
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.commands import data_file, data_lines, write_lines
from seqloom.data.handwriting import GLYPHS, handwriting_lines
from seqloom.data.scenes import write_scenes


@dataclass(frozen=True)
class Files:
    """A file to train on, and one to measure on."""

    train: Path
    test: Path


# --- treebanks --------------------------------------------------------------------------------------------------------


def treebank(path: Path, name: str, *, sentences: int | None = None) -> Path:
    """A CoNLL-U file of the data folder, or its first sentences."""
    blocks = "\n".join(data_lines(name)).split("\n\n")
    path.write_text("\n\n".join([*[each for each in blocks if each.strip()][:sentences], ""]), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Trees:
    """Sentences with their dependency trees as brackets, `words<tab>parse`, and how many were left out."""

    path: Path
    count: int
    non_projective: int


def bracketed(words: Sequence[str], heads: Sequence[int]) -> str | None:
    """One bracket for each word that has dependents, around its whole subtree; None if a subtree has gaps.

    Words and heads are counted from 1; the head of the root is 0.
    """
    first, last = list(range(len(words))), list(range(len(words)))
    sizes = [1] * len(words)
    for start in range(len(words)):
        at = heads[start] - 1
        while at >= 0:  # all ancestors
            first[at], last[at] = min(first[at], start), max(last[at], start)
            sizes[at] += 1
            at = heads[at] - 1
    if any(last[at] - first[at] + 1 != sizes[at] for at in range(len(words))):
        return None
    opened, closed = [0] * len(words), [0] * len(words)
    for at, size in enumerate(sizes):
        if size > 1:
            opened[first[at]] += 1
            closed[last[at]] += 1
    return " ".join(" ".join(["("] * opened[at] + [word] + [")"] * closed[at]) for at, word in enumerate(words))


def trees(path: Path, name: str, *, sentences: int | None = None) -> Trees:
    """The trees of a treebank. Brackets among the words are written as -LRB- and -RRB-."""
    lines, left_out = list[str](), 0
    blocks = [each for each in "\n".join(data_lines(name)).split("\n\n") if each.strip()]
    for block in blocks[:sentences]:
        rows = [line.split("\t") for line in block.split("\n") if line[:1].isdigit()]
        rows = [row for row in rows if row[0].isdigit()]  # neither ranges nor empty nodes
        words = [row[1].replace(" ", "_").replace("(", "-LRB-").replace(")", "-RRB-") for row in rows]
        parse = bracketed(words, [int(row[6]) for row in rows])
        if parse is None:
            left_out += 1
        else:
            lines.append(f"{' '.join(words)}\t{parse}")
    return Trees(write_lines(path, lines), len(lines), left_out)


# --- labels -----------------------------------------------------------------------------------------------------------

FOLDS = 10


def question_folds(folder: Path, *, seed: int, folds: int, lines: int | None = None) -> list[Files]:
    """Ten parts of TREC, drawn by the seed: each is tested after training on the others; so many of them."""
    found = [line for line in data_lines("sentence-classification/TREC.train.all") if line.strip()][:lines]
    random.Random(seed).shuffle(found)
    made = []
    for fold in range(folds):
        train = [line for number, line in enumerate(found) if number % FOLDS != fold]
        paths = [folder / f"trec-{seed}-{fold}.{name}.txt" for name in ("train", "test")]
        made.append(Files(write_lines(paths[0], train), write_lines(paths[1], found[fold::FOLDS])))
    return made


def sentiments(folder: Path, *, lines: int | None = None) -> Files:
    """SST-2: its training lines, and its dev set as test."""
    train, test = (
        write_lines(folder / f"sst2.{part}.txt", data_lines(f"sentence-classification/stsa.binary.{part}.gz")[:lines])
        for part in ("train", "dev")
    )
    return Files(train, test)


# --- speech and handwriting -------------------------------------------------------------------------------------------

SPEAKERS = ("george", "jackson", "nicolas", "theo")
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TEST_INDICES, TRAIN_INDICES = range(5), range(5, 50)
MIN_DIGITS, MAX_DIGITS = 3, 7
PAUSES = (0.05, 0.25)
"""Seconds of silence between two digits, from and to."""
TRAIN_STRINGS, TEST_STRINGS = 500, 100
"""Strings of each speaker."""

Recordings = Mapping[tuple[int, str, int], np.ndarray]
"""Samples by digit, speaker and index."""
RATE = 8000


def recordings() -> Recordings:
    """All recordings of the data folder."""
    found = {}
    with tarfile.open(data_file("fsdd/recordings.tar.gz")) as archive:
        for member in archive:
            name = re.fullmatch(r".*/(\d)_(\w+)_(\d+)\.wav", member.name)
            file = archive.extractfile(member) if name else None
            if name is None or file is None:
                continue
            with wave.open(io.BytesIO(file.read())) as sound:
                assert (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) == (RATE, 1, 2)
                samples = np.frombuffer(sound.readframes(sound.getnframes()), np.int16)
            found[int(name[1]), name[2], int(name[3])] = samples
    return found


def digit_strings(
    folder: Path,
    sounds: Recordings,
    *,
    name: str,
    speakers: Iterable[str],
    indices: Sequence[int],
    count: int,
    spelled: bool = False,
) -> Path:
    """A table of recordings with their digits, `count` of each speaker; each is of one speaker, with short pauses.

    With `spelled`, the transcripts are words in letters.
    """
    (folder / "sounds").mkdir(exist_ok=True)
    rows = []
    for speaker in speakers:
        draw = random.Random(f"{speaker} {indices} {count}")
        for number in range(count):
            digits = [draw.randrange(10) for _ in range(draw.randint(MIN_DIGITS, MAX_DIGITS))]
            parts = list[np.ndarray]()
            for digit in digits:
                silence = np.zeros(round(RATE * draw.uniform(*PAUSES)), np.int16)
                parts += [silence] * bool(parts) + [sounds[digit, speaker, draw.choice(indices)]]
            path = folder / "sounds" / f"{speaker}-{indices[0]}-{indices[-1]}-{count}-{number}.wav"
            if not path.is_file():
                with wave.open(str(path), "wb") as sound:
                    sound.setnchannels(1)
                    sound.setsampwidth(2)
                    sound.setframerate(RATE)
                    sound.writeframes(np.concatenate(parts).tobytes())
            text = " ".join(DIGITS[digit] if spelled else str(digit) for digit in digits)
            rows.append(f"{path.relative_to(folder)}\t{text}")
    return write_lines(folder / f"{name}.tsv", rows)


TRAIN_STYLES, TEST_STYLES = range(300), range(10_000, 10_050)
HANDWRITTEN_WORDS = (2, 5)


def handwritten(folder: Path, *, train: int, test: int) -> Files:
    """Pieces of captions in styles of 300 writers, and pieces of others in styles of 50 others."""
    paths = []
    for name, part, count, styles in (("train", "train", train, TRAIN_STYLES), ("test", "val", test, TEST_STYLES)):
        draw, texts = random.Random(name), list[str]()
        lines = [line.lower().split() for line in data_lines(f"multi30k/{part}.en.gz") if line.strip()]
        while len(texts) < count:
            words = draw.choice(lines)
            size = draw.randint(*HANDWRITTEN_WORDS)
            start = draw.randint(0, max(0, len(words) - size))
            text = " ".join(words[start : start + size])
            if {*text} <= {*GLYPHS, " "}:
                texts.append(text)
        made = handwriting_lines(texts, styles=styles, seed=1)
        paths.append(write_lines(folder / f"handwriting.{name}.jsonl", made))
    return Files(*paths)


TRAIN_SCENES, TEST_SCENES = 5000, 500


def scenes(folder: Path, *, language: str, images: int | None = None) -> Files:
    """Images with captions in a language; each of the test shows a combination that those of the training do not."""
    train = write_scenes(folder, "train", count=images or TRAIN_SCENES, languages=[language])
    test = write_scenes(folder, "test", count=TEST_SCENES if images is None else images // 10, languages=[language])
    return Files(train[language], test[language])


# --- series -----------------------------------------------------------------------------------------------------------

ETT_ROWS = (8640, 2880, 2880)
"""Rows of training, dev and test: 12, 4 and 4 months."""


@dataclass(frozen=True)
class Table:
    """Rows to train on, those after them to validate on if there are some, and all rows up to the last one tested."""

    train: Path
    dev: Path | None
    whole: Path
    tested: int
    """Rows at the end of `whole` that are forecast."""


def transformer_readings(folder: Path) -> Table:
    """ETTh1 in its usual split."""
    heading, *rows = data_lines("ett/ETTh1.csv.gz")
    train, dev, test = ETT_ROWS
    return Table(
        write_lines(folder / "train.csv", [heading, *rows[:train]]),
        write_lines(folder / "dev.csv", [heading, *rows[train : train + dev]]),
        write_lines(folder / "whole.csv", [heading, *rows[: train + dev + test]]),
        test,
    )


def airline(folder: Path) -> Table:
    """Passengers of 144 months; the last three years are tested."""
    rows = [line.rstrip("\r") for line in data_lines("time-series/airline-passengers.csv")]
    tested = 36
    rows = [row for row in rows if row]
    return Table(
        write_lines(folder / "airline.train.csv", rows[:-tested]),
        None,
        write_lines(folder / "airline.csv", rows),
        tested,
    )


def noisy_sine(folder: Path) -> Table:
    """sin(0.01 t) and noise of deviation 0.2, t = 1 … 1000; the first 600 rows are for training."""
    draw = random.Random(1)
    rows = ["value", *(f"{math.sin(0.01 * t) + draw.gauss(0, 0.2):.6f}" for t in range(1, 1001))]
    return Table(write_lines(folder / "sine.train.csv", rows[:601]), None, write_lines(folder / "sine.csv", rows), 400)


# --- text to text -----------------------------------------------------------------------------------------------------


def pronunciations(folder: Path, *, words: int | None = None) -> Files:
    """CMUdict without stress: `word<tab>PH ON ES`, a line for each different pronunciation."""
    paths = []
    for part in ("train", "dev"):
        pairs = dict[str, None]()
        for line in data_lines(f"cmudict/cmudict-{part}.dict.gz"):
            if entry := line.split("#")[0].split():
                word = re.sub(r"\(\d+\)$", "", entry[0])
                pairs[f"{word}\t{' '.join(phone.rstrip('012') for phone in entry[1:])}"] = None
        kept = list(pairs)
        if words is not None:
            kept = random.Random(1).sample(kept, words if part == "train" else words // 10)
        paths.append(write_lines(folder / f"cmudict.{part}.tsv", kept))
    return Files(*paths)


def commands_to_actions(folder: Path, split: str, *, lines: int | None = None) -> Files:
    """A split of SCAN as tables."""
    paths = []
    for part in ("train", "test"):
        pairs = [re.fullmatch(r"IN: (.*) OUT: (.*)", line) for line in data_lines(f"scan/tasks_{part}_{split}.txt.gz")]
        rows = [f"{pair[1]}\t{pair[2].strip()}" for pair in pairs if pair]
        if lines is not None:
            rows = random.Random(1).sample(rows, lines if part == "train" else lines // 10)
        paths.append(write_lines(folder / f"scan.{split}.{part}.tsv", rows))
    return Files(*paths)


def abstracts(folder: Path, *, papers: int | None = None) -> Files:
    """SciTLDR: a record for each paper, with the sentences of its abstract and its summaries."""
    paths = []
    for part in ("train", "dev"):
        found = [json.loads(line) for line in data_lines(f"scitldr/{part}.jsonl.gz") if line][:papers]
        kept = (json.dumps({name: each[name] for name in ("source", "target")}, ensure_ascii=False) for each in found)
        paths.append(write_lines(folder / f"scitldr.{part}.jsonl", kept))
    return Files(*paths)


def play(folder: Path, *, turns: int | None = None) -> Files:
    """Shakespeare: the first nine tenths of the turns for training, the others as test; blank lines between turns."""
    blocks = [each for each in "\n".join(data_lines("tinyshakespeare/input.txt.gz")).split("\n\n") if each.strip()]
    blocks = blocks[:turns]
    border = len(blocks) * 9 // 10
    paths = folder / "play.train.txt", folder / "play.test.txt"
    for path, part in zip(paths, (blocks[:border], blocks[border:]), strict=True):
        path.write_text("\n\n".join(part) + "\n", encoding="utf-8")
    return Files(*paths)


def turns_of(path: Path) -> list[str]:
    """What is said in each turn of a play, on one line, without the name of who says it."""
    blocks = path.read_text(encoding="utf-8").split("\n\n")
    return [" ".join(block.strip().split("\n")[1:]) or "…" for block in blocks if block.strip()]
