"""Translation with few pairs or none: three figures, each with its goal.

    python benchmarks/few_pairs.py [--part cipher|halves|back] [--different] [--seeds 1 2 3] [--quick] [--keep FOLDER]

SEQLOOM_DATA names the folder of the data. All parts use the commands of the package with one thread.

    cipher   The phrasebook in English, and the same sentences, shuffled, in a made-up language (other words, another
             order). No pairs, no seed words: vectors of both texts are mapped, which gives the dictionary of the start.
             Goal: 60 BLEU on unseen sentences. With `--different` the two texts have no sentence in common; then many
             words of the phrasebook are not distinguished (its names come up at random), and no goal is claimed.
    halves   Multi30k: the German side of one half and the English side of the other, so that no line has a translation,
             and 99 seed words (`few_pairs_seeds.tsv`). Goal: 1.5 times the BLEU of substitution by the dictionary that
             one pair of vector models gives. The model starts from the mean dictionary of five pairs, which is better:
             substitution by it is printed, too.
    back     Multi30k: 2,000 pairs and 27,000 lines of English (data.monolingual), each training cut after 30 minutes.
             Goal: 2 BLEU more than the baseline of the 2,000 pairs on test_2016, as the mean over the seeds.

`--quick` tries all steps on a little text; its figures mean nothing, and no goal is claimed. `--keep` leaves the runs
in a folder, and continues there: a run that is finished is not trained again. The exit code is 1 if a goal is missed.
"""

import argparse
import gzip
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.processes import exit_on_termination
from harness.progress import duration, say
from multi30k_scores import multi30k_bleu
from seqloom.core.errors import SeqloomError, UsageError
from seqloom.data.cipher import cipher_of, cipher_word
from seqloom.data.phrasebook import sample_sentences
from seqloom.metrics.scoring import score
from seqloom.metrics.translation import Bleu
from seqloom.runs.two_texts import Substitution
from seqloom.smt.dictionary import Dictionary
from seqloom.text.marks import split_words

HERE = Path(__file__).resolve().parent
PARTS = ("cipher", "halves", "back")
CIPHER_SEED = 7
CIPHER_GOAL, HALVES_GOAL, BACK_GOAL = 60.0, 1.5, 2.0

TRANSLATIONS = 15
"""Translations of each word in a dictionary of mapped vectors."""
VECTORS = ("model.kind=word2vec", "text.lowercase=true", "model.width=200", "model.threads=1")
CIPHER_MEMBERS: tuple[tuple[str, ...], ...] = ((),)
HALVES_MEMBERS = (
    ("seed=1",), ("seed=2",), ("seed=3",), ("seed=1", "model.subwords={}"), ("seed=2", "model.subwords={}"),
)  # fmt: skip
"""Settings of each pair of vector models, whose dictionaries are averaged."""

CIPHER_MODEL = (
    "text.kind=word", "model.width=64", "model.feed_forward=128", "model.encoder_layers=2", "model.decoder_layers=2",
    "model.dropout_rate=0.1", "training.learning_rate=0.004", "training.warmup=100", "training.steps=1000",
    "training.validate_every=100", "training.save_every=100", "task.start_steps=200", "task.mix_steps=300",
)  # fmt: skip
HALVES_MODEL = (
    "text.kind=word", "text.size=12000", "text.minimum_count=2", "text.lowercase=true", "model.width=128",
    "model.feed_forward=256", "model.encoder_layers=3", "model.decoder_layers=3", "model.dropout_rate=0.1",
    "training.learning_rate=0.002", "training.warmup=300", "training.steps=2000", "training.validate_every=100",
    "training.save_every=100", "task.start_steps=500", "task.mix_steps=800",
)  # fmt: skip
BACK_MODEL = ("training.minutes=30",)
QUICK = ("training.steps=20", "training.validate_every=10", "training.save_every=10", "training.warmup=5")


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    what: str
    value: float
    minutes: float = 0.0


def seqloom(*arguments: str | Path) -> None:
    """Run a command of the package with one thread; its output goes to stderr."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    subprocess.run([sys.executable, "-m", "seqloom", *map(str, arguments)], check=True, env=environment, stdout=2)


def train(run: Path, *arguments: str | Path) -> Path:
    """Train in a folder, or finish what was begun there; the model."""
    if (run / "run.json").is_file():
        if not (run / "model" / "model.json").is_file():
            seqloom("train", "--resume", run)
    else:
        seqloom("train", *arguments, "--out", run)
    return run / "model"


def translate(model: Path, lines: Sequence[str], name: Path) -> list[str]:
    """The translations of lines, by way of files."""
    source, target = name.with_suffix(".source"), name.with_suffix(".translated")
    write(source, lines)
    with source.open("rb") as given, target.open("wb") as taken:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        command = [sys.executable, "-m", "seqloom", "translate", str(model)]
        subprocess.run(command, check=True, env=environment, stdin=given, stdout=taken)
    return target.read_text(encoding="utf-8").splitlines()


def write(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def mapped(
    dictionary: Path, texts: Sequence[Path], members: Sequence[Sequence[str]], *options: str | Path, quick: bool
) -> Path:
    """The dictionary of the mapped vectors of two texts, which are trained in its folder."""
    folder = dictionary.parent
    vectors = [
        ",".join(
            str(train(folder / f"vectors-{number}{text.suffix}", *VECTORS, *settings, "--train", text))
            for number, settings in enumerate(members, start=1)
        )
        for text in texts
    ]
    trials = ("--trials", "0") if quick else ()
    several = ("--translations", str(TRANSLATIONS))  # back-translation finds out which of them is right
    seqloom("vectors", "align", *vectors, *options, *several, *trials, "--out", dictionary)
    return dictionary


# --- the parts --------------------------------------------------------------------------------------------------------


def cipher(folder: Path, *, seed: int, quick: bool, different: bool) -> tuple[list[Figure], bool]:
    """Two texts of the phrasebook without a pair, one of them in another language."""
    count = 1500 if quick else 13_400
    lines = sample_sentences("en", count=2 * count if different else count, seed=seed)
    hidden, shown = (lines[:count], lines[count:]) if different else (lines[:], lines)
    random.Random(seed).shuffle(hidden)
    test = sample_sentences("en", count=100 if quick else 500, seed=seed, split="test")
    sources = cipher_of(test, CIPHER_SEED)
    texts = [
        write(folder / "text.xx", cipher_of(hidden, CIPHER_SEED)),
        write(folder / "text.en", shown),
    ]
    words = {word.lower() for line in lines for word in split_words(line) if any(map(str.isalpha, word))}
    gold = write(folder / "gold.tsv", [f"{cipher_word(word, CIPHER_SEED)}\t{word}" for word in sorted(words)])
    began = time.monotonic()
    options = ("--start", "nothing", "--gold", gold)
    dictionary = mapped(folder / "dictionary.tsv", texts, CIPHER_MEMBERS, *options, quick=quick)
    settings = [*CIPHER_MODEL, *(QUICK if quick else ())]
    model = train(
        folder / "run", "task.kind=unsupervised", f"task.dictionary={dictionary}", f"seed={seed}", *settings,
        "--train", texts[0], "--train", texts[1],
    )  # fmt: skip
    minutes = (time.monotonic() - began) / 60
    substitute, _ = Substitution.both_ways(Dictionary.read(dictionary))
    substituted = [substitute(line) for line in sources]
    found = translate(model, sources, folder / "test")
    before, after = (score(Bleu(), each, references=test).value for each in (substituted, found))
    figures = [Figure("cipher: substitution", before), Figure("cipher: unsupervised", after, minutes)]
    return figures, different or after >= CIPHER_GOAL


def multi30k(name: str, language: str) -> list[str]:
    path = Path(os.environ.get("SEQLOOM_DATA", "")) / "multi30k" / f"{name}.{language}.gz"
    if not path.is_file():
        raise UsageError(f"{path} not found; set SEQLOOM_DATA to the folder with the data sets")
    return gzip.open(path, "rt", encoding="utf-8").read().splitlines()


def halves(folder: Path, *, seed: int, quick: bool) -> tuple[list[Figure], bool]:
    """The German lines of one half and the English lines of the other."""
    german, english = multi30k("train", "de"), multi30k("train", "en")
    half = 1000 if quick else len(german) // 2
    texts = [write(folder / "text.de", german[:half]), write(folder / "text.en", english[half : 2 * half])]
    tested = 50 if quick else 1000
    sources, references = (multi30k("test_2016_flickr", code)[:tested] for code in ("de", "en"))
    began = time.monotonic()
    seeds = ("--seeds", HERE / "few_pairs_seeds.tsv")
    of_one = mapped(folder / "dictionary-1.tsv", texts, HALVES_MEMBERS[:1], *seeds, quick=quick)
    dictionary = mapped(folder / "dictionary.tsv", texts, HALVES_MEMBERS, *seeds, quick=quick)
    settings = [*HALVES_MODEL, *(QUICK if quick else ())]
    model = train(
        folder / "run", "task.kind=unsupervised", f"task.dictionary={dictionary}", f"seed={seed}", *settings,
        "--train", texts[0], "--train", texts[1],
    )  # fmt: skip
    minutes = (time.monotonic() - began) / 60
    ways = [Substitution.both_ways(Dictionary.read(each))[0] for each in (of_one, dictionary)]
    found = translate(model, [line.lower() for line in sources], folder / "test")
    texts_found = [*([way(line) for line in sources] for way in ways), found]
    one, mean, after = (multi30k_bleu(each, references, language="en").value for each in texts_found)
    figures = [
        Figure("halves: substitution, one pair of vector models", one),
        Figure("halves: substitution, the mean of five", mean),
        Figure("halves: unsupervised", after, minutes),
    ]
    return figures, after >= HALVES_GOAL * one


def back(folder: Path, *, seeds: Sequence[int], quick: bool) -> tuple[list[Figure], bool]:
    """2,000 pairs with and without back-translation of 27,000 lines."""
    german, english = multi30k("train", "de"), multi30k("train", "en")
    pairs, lines, tested = (200, 400, 50) if quick else (2000, 27_000, 1000)
    files = [write(folder / "pairs.de", german[:pairs]), write(folder / "pairs.en", english[:pairs])]
    text = write(folder / "more.en", english[pairs : pairs + lines])
    dev = [write(folder / f"dev.{code}", multi30k("val", code)[:tested]) for code in ("de", "en")]
    sources, references = (multi30k("test_2016_flickr", code)[:tested] for code in ("de", "en"))
    figures, gains = [], []
    for seed in seeds:
        began, run = time.monotonic(), folder / f"run-{seed}"
        train(
            run, f"data.monolingual=[{text}]", f"seed={seed}", *BACK_MODEL, *(QUICK if quick else ()),
            "--train", files[0], "--train", files[1], "--dev", dev[0], "--dev", dev[1],
        )  # fmt: skip
        minutes = (time.monotonic() - began) / 60
        values = []
        for name, model in (("baseline", run / "baseline" / "model"), ("back-translation", run / "model")):
            found = translate(model, sources, folder / f"{name}-{seed}")
            values.append(multi30k_bleu(found, references, language="en").value)
            figures.append(Figure(f"back, seed {seed}: {name}", values[-1], 0.0 if name == "baseline" else minutes))
        gains.append(values[1] - values[0])
    figures.append(Figure("back: mean gain", statistics.mean(gains)))
    return figures, statistics.mean(gains) >= BACK_GOAL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, help="one part only")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="of back; the others use the first")
    parser.add_argument("--quick", action="store_true", help="a little text, no goals")
    parser.add_argument("--different", action="store_true", help="cipher: texts without a sentence in common")
    parser.add_argument("--keep", type=Path, help="a folder for the runs")
    given = parser.parse_args()
    exit_on_termination()
    reached: dict[str, bool] = {}
    print("| what | BLEU | minutes |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        for part in [given.part] if given.part else PARTS:
            folder = (given.keep or Path(temporary)) / part
            folder.mkdir(parents=True, exist_ok=True)
            began = time.monotonic()
            try:
                if part == "back":
                    seeds = given.seeds[:1] if given.quick else given.seeds
                    figures, reached[part] = back(folder, seeds=seeds, quick=given.quick)
                elif part == "cipher":
                    figures, reached[part] = cipher(
                        folder, seed=given.seeds[0], quick=given.quick, different=given.different
                    )
                else:
                    figures, reached[part] = halves(folder, seed=given.seeds[0], quick=given.quick)
            except (SeqloomError, subprocess.CalledProcessError) as error:
                say(str(error))
                sys.exit(2)
            for figure in figures:
                minutes = f"{figure.minutes:.0f}" if figure.minutes else ""
                print(f"| {figure.what} | {figure.value:.1f} | {minutes} |", flush=True)
            say(f"{part}: {duration(time.monotonic() - began)}")
    if given.quick:
        return
    goals = {
        "cipher": f"at least {CIPHER_GOAL:g} BLEU without pairs",
        "halves": f"at least {HALVES_GOAL:g} times substitution",
        "back": f"at least {BACK_GOAL:g} BLEU more by back-translation",
    }
    print()
    for part, is_reached in reached.items():
        print(f"{part}: {goals[part]}: {'reached' if is_reached else 'MISSED'}")
    sys.exit(0 if all(reached.values()) else 1)


if __name__ == "__main__":
    main()
